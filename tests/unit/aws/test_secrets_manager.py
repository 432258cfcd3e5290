"""Secrets are read when needed, cached for a bounded time, and never shown."""

import json
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from botocore.stub import Stubber
from moto import mock_aws
from tests.support.golden import Golden
from tests.support.memory_delivery import Ticker

from extentflow.aws.secrets_manager import CACHED_SECONDS, SecretsManager, connect
from extentflow.errors import CredentialsUnavailable, Misconfigured

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient

REGION = "eu-west-1"
VALUE = "correct-horse"


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)


@pytest.fixture
def server() -> Iterator["SecretsManagerClient"]:
    with mock_aws():
        yield boto3.session.Session().client("secretsmanager", region_name=REGION)


def test_a_secret_is_found_by_name_and_by_arn(server: "SecretsManagerClient") -> None:
    arn = server.create_secret(Name="app/broker", SecretString=VALUE)["ARN"]
    secrets = SecretsManager()

    assert secrets.read("app/broker") == VALUE
    assert secrets.read(arn) == VALUE


def test_an_arn_selects_its_region(server: "SecretsManagerClient") -> None:
    elsewhere = boto3.session.Session().client("secretsmanager", region_name="us-east-2")
    arn = elsewhere.create_secret(Name="far", SecretString=VALUE)["ARN"]

    assert server.meta.region_name != "us-east-2"
    assert SecretsManager().read(arn) == VALUE


def test_a_rotated_secret_is_read_after_the_cache_expires_or_on_refresh(
    server: "SecretsManagerClient",
) -> None:
    server.create_secret(Name="app", SecretString="first")
    ticker = Ticker()
    secrets = SecretsManager(ticker.clock)
    assert secrets.read("app") == "first"

    server.put_secret_value(SecretId="app", SecretString="second")

    ticker.now += CACHED_SECONDS - 1
    assert secrets.read("app") == "first"
    ticker.now += 1
    assert secrets.read("app") == "second"
    server.put_secret_value(SecretId="app", SecretString="third")
    assert secrets.read("app", refresh=True) == "third"
    assert secrets.read("app") == "third"


def test_a_clock_set_back_does_not_extend_the_cache(
    server: "SecretsManagerClient",
) -> None:
    server.create_secret(Name="app", SecretString="first")
    ticker = Ticker()
    secrets = SecretsManager(ticker.clock)
    secrets.read("app")
    server.put_secret_value(SecretId="app", SecretString="second")

    ticker.now -= 3600

    assert secrets.read("app") == "second"


@pytest.mark.usefixtures("server")
def test_a_missing_secret_is_named_with_the_remedy(golden: Golden) -> None:
    with golden.raises(Misconfigured, match="secret nowhere"):
        SecretsManager().read("nowhere")


def test_a_binary_secret_is_rejected(server: "SecretsManagerClient", golden: Golden) -> None:
    server.create_secret(Name="keystore", SecretBinary=VALUE.encode())

    with golden.raises(Misconfigured, match="secret keystore.*SecretString") as caught:
        SecretsManager().read("keystore")

    assert VALUE not in str(caught.value)


def test_a_secret_scheduled_for_deletion_is_named(server: "SecretsManagerClient") -> None:
    server.create_secret(Name="old", SecretString=VALUE)
    server.delete_secret(SecretId="old")

    with pytest.raises(Misconfigured, match="scheduled for deletion"):
        SecretsManager().read("old")


@pytest.mark.parametrize(
    ("code", "status", "error", "message"),
    [
        ("AccessDeniedException", 400, Misconfigured, "allow secretsmanager:GetSecretValue"),
        ("DecryptionFailure", 400, Misconfigured, "allow kms:Decrypt"),
        ("UnrecognizedClientException", 400, Misconfigured, "check the credentials"),
        ("ThrottlingException", 400, CredentialsUnavailable, "secret app: "),
        ("InternalServiceError", 500, CredentialsUnavailable, "secret app: "),
        ("Whatever", 503, CredentialsUnavailable, "secret app: "),
    ],
)
def test_an_error_code_is_permanent_or_retryable(
    code: str, status: int, error: type[Exception], message: str
) -> None:
    client = connect(REGION)
    with Stubber(client) as stub:
        stub.add_client_error("get_secret_value", code, "no", status)

        with pytest.raises(error, match=message) as caught:
            SecretsManager(open_client=lambda _: client).read("app")

    assert isinstance(caught.value.__cause__, ClientError)


@pytest.mark.parametrize(
    ("raised", "error", "message"),
    [
        (EndpointConnectionError(endpoint_url="x"), CredentialsUnavailable, "secret app: Endpoint"),
        (NoCredentialsError(), Misconfigured, "secret app: no AWS credentials"),
    ],
)
def test_an_unreachable_service_or_missing_credentials_raise(
    raised: Exception, error: type[Exception], message: str
) -> None:
    def open_client(_: str | None) -> "SecretsManagerClient":
        raise raised

    with pytest.raises(error, match=message):
        SecretsManager(open_client=open_client).read("app")


def test_no_log_contains_a_secret_at_any_level(
    server: "SecretsManagerClient",
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "bearer-of-rights")
    server.create_secret(Name="app", SecretString=VALUE)

    with caplog.at_level(logging.DEBUG):
        SecretsManager().read("app")
        logging.getLogger("urllib3").debug("other loggers still write")

    assert "other loggers still write" in caplog.text
    for secret in (VALUE, "bearer-of-rights", "Signature="):
        assert secret not in caplog.text


def test_a_failed_read_is_not_cached(server: "SecretsManagerClient") -> None:
    secrets = SecretsManager()
    with pytest.raises(Misconfigured):
        secrets.read("late")

    server.create_secret(Name="late", SecretString=json.dumps({"a": VALUE}))

    assert json.loads(secrets.read("late")) == {"a": VALUE}
