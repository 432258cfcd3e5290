"""Tokens for MSK are signed with the SDK's credentials for the brokers' region."""

import base64
import logging
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.support.golden import Golden

from extentflow.aws.msk import TokenSigner
from extentflow.errors import CredentialsUnavailable, Misconfigured


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")


def opened(token: str) -> tuple[str | None, dict[str, list[str]]]:
    """Return host and query parameters of the signed URL in a token."""
    address = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    return address.hostname, parse_qs(address.query)


def test_a_token_is_a_signed_request_valid_for_15_minutes() -> None:
    before = time.time()
    token, end = TokenSigner()("eu-west-1")
    after = time.time()

    host, said = opened(token)
    assert host == "kafka.eu-west-1.amazonaws.com"
    assert said["Action"] == ["kafka-cluster:Connect"]
    assert said["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert "/eu-west-1/kafka-cluster/" in said["X-Amz-Credential"][0]
    assert said["X-Amz-Signature"]
    assert before + 890 < end <= after + 900


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_without_a_broker_region_the_process_region_is_used(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "us-east-2")

    token, _ = TokenSigner()(None)

    assert opened(token)[0] == "kafka.us-east-2.amazonaws.com"


def test_a_missing_region_raises_with_the_remedy(golden: Golden) -> None:
    with golden.raises(Misconfigured, match="AWS_DEFAULT_REGION"):
        TokenSigner()(None)


def test_missing_credentials_raise_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    with golden.raises(Misconfigured):
        TokenSigner()("eu-west-1")


def test_credentials_that_cannot_be_refreshed_are_retryable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    config = tmp_path / "config"
    config.write_text("[default]\ncredential_process = false\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))

    with pytest.raises(CredentialsUnavailable, match="cannot be signed now: "):
        TokenSigner()("eu-west-1")


def test_no_log_contains_parts_of_a_token(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "bearer-of-rights")

    with caplog.at_level(logging.DEBUG):
        token, _ = TokenSigner()("eu-west-1")
        logging.getLogger("urllib3").debug("other loggers still write")

    _, said = opened(token)
    assert said["X-Amz-Security-Token"] == ["bearer-of-rights"]
    assert "other loggers still write" in caplog.text
    for secret in (said["X-Amz-Signature"][0], "bearer-of-rights", "hidden", token):
        assert secret not in caplog.text
