"""Keys of columns are wrapped by AWS KMS, and what it refuses is said with the remedy."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws
from tests.support.golden import Golden

from extentflow.aws.kms import DENIED, AwsKms, connect
from extentflow.errors import AccessDenied, CredentialsUnavailable, Misconfigured

REGION = "eu-west-1"
KEY = b"0123456789abcdef"


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)


@pytest.fixture
def server() -> Iterator[Any]:
    with mock_aws():
        session: Any = boto3.session.Session()
        yield session.client("kms", region_name=REGION)


class Failing:
    """A client whose calls fail."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def encrypt(self, **_: object) -> None:
        raise self._error

    decrypt = encrypt


def failing(error: Exception) -> AwsKms:
    return AwsKms(open_client=lambda _region: Failing(error))


def refusal(code: str, status: int = 400) -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}},  # type: ignore[typeddict-item]
        "Encrypt",
    )


def test_a_key_is_unwrapped_by_what_wrapped_it(server: Any) -> None:  # noqa: ANN401 - boto3's client
    made = server.create_key()["KeyMetadata"]
    server.create_alias(AliasName="alias/cards", TargetKeyId=made["KeyId"])

    for name in (made["Arn"], made["KeyId"], "alias/cards", made["Arn"].replace(":", "%3A")):
        wrapped = AwsKms().wrap(KEY, name)

        assert KEY.hex() not in wrapped
        assert AwsKms().unwrap(wrapped, name) == KEY


def test_the_arn_of_a_key_chooses_its_region(server: Any) -> None:  # noqa: ANN401 - boto3's client
    session: Any = boto3.session.Session()
    elsewhere = session.client("kms", region_name="us-east-2")
    arn = elsewhere.create_key()["KeyMetadata"]["Arn"]
    kms = AwsKms()

    assert server.meta.region_name != "us-east-2"
    assert kms.unwrap(kms.wrap(KEY, arn), arn) == KEY


@pytest.mark.usefixtures("server")
def test_a_missing_key_is_named(golden: Golden) -> None:
    with golden.raises(AccessDenied, match="alias/nowhere"):
        AwsKms().wrap(KEY, "alias/nowhere")


@pytest.mark.parametrize("code", sorted(DENIED))
def test_what_kms_refuses_is_access_denied_with_the_remedy(code: str, golden: Golden) -> None:
    kms = failing(refusal(code))

    with golden.raises(AccessDenied, match=f"key k.*{code}.*{DENIED[code][:12]}"):
        kms.wrap(KEY, "k")
    with pytest.raises(AccessDenied, match=code):
        kms.unwrap("AAAA", "k")


@pytest.mark.parametrize(
    "error",
    [
        refusal("ThrottlingException"),
        refusal("KeyUnavailableException", 500),
        refusal("Anything", 503),
        EndpointConnectionError(endpoint_url="https://kms.invalid"),
    ],
    ids=repr,
)
def test_an_outage_is_retryable(error: Exception) -> None:
    with pytest.raises(CredentialsUnavailable, match="KMS key k: "):
        failing(error).wrap(KEY, "k")


def test_other_refusals_are_of_the_settings() -> None:
    with pytest.raises(Misconfigured, match="KMS key k: "):
        failing(refusal("InvalidKeyUsageException")).wrap(KEY, "k")


def test_what_is_no_base64_was_not_wrapped_by_kms() -> None:
    with pytest.raises(AccessDenied, match="which is no base64"):
        failing(refusal("unused")).unwrap("*", "k")


def test_calls_of_the_client_end() -> None:
    config = connect(REGION).meta.config

    assert (config.connect_timeout, config.read_timeout) == (3, 5)
    assert config.retries == {"total_max_attempts": 4, "mode": "standard"}
