"""Tokens for brokers are signed with the SDK's own credentials, for the brokers' region."""

import base64
import logging
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from extentflow.credentials.mskiam import Signer
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
    """Return host and parameters of the signed address that a token is."""
    address = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    return address.hostname, parse_qs(address.query)


def test_a_token_is_a_signed_leave_to_connect_for_a_quarter_of_an_hour() -> None:
    token, end = Signer()("eu-west-1")

    host, said = opened(token)
    assert host == "kafka.eu-west-1.amazonaws.com"
    assert said["Action"] == ["kafka-cluster:Connect"]
    assert said["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert "/eu-west-1/kafka-cluster/" in said["X-Amz-Credential"][0]
    assert said["X-Amz-Signature"]
    assert 890 < end - time.time() <= 900


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_without_the_brokers_region_it_is_our_own(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "us-east-2")

    token, _ = Signer()(None)

    assert opened(token)[0] == "kafka.us-east-2.amazonaws.com"


def test_without_any_region_somebody_has_to_say_one() -> None:
    with pytest.raises(
        Misconfigured, match=r"cannot be signed; no AWS region; set AWS_DEFAULT_REGION"
    ):
        Signer()(None)


def test_without_credentials_somebody_has_to_give_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    with pytest.raises(Misconfigured, match=r"cannot be signed; no AWS credentials"):
        Signer()("eu-west-1")


def test_credentials_that_do_not_come_may_come_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    config = tmp_path / "config"
    config.write_text("[default]\ncredential_process = false\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))

    with pytest.raises(CredentialsUnavailable, match="a token for the brokers: "):
        Signer()("eu-west-1")


def test_no_log_holds_what_a_token_is_made_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "bearer-of-rights")

    with caplog.at_level(logging.DEBUG):
        token, _ = Signer()("eu-west-1")
        logging.getLogger("urllib3").debug("whoever writes no secret is heard")

    _, said = opened(token)
    assert said["X-Amz-Security-Token"] == ["bearer-of-rights"]
    assert "whoever writes no secret is heard" in caplog.text
    for secret in (said["X-Amz-Signature"][0], "bearer-of-rights", "hidden", token):
        assert secret not in caplog.text
