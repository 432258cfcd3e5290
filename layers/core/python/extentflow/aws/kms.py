"""Master keys in AWS KMS: they wrap the keys of encrypted columns."""

import base64
import binascii
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from botocore.config import Config
from botocore.exceptions import ClientError

from extentflow.aws import new_session, translate_errors
from extentflow.errors import AccessDenied, CredentialsUnavailable

TRANSIENT_CODES = frozenset(
    ("DependencyTimeoutException", "KMSInternalException", "KeyUnavailableException")
) | {"LimitExceededException", "RequestTimeout", "ServiceUnavailable", "Throttling"}
TRANSIENT_CODES |= {"ThrottlingException"}
# By code: what to do.
DENIED: Final = {
    "AccessDeniedException": "allow kms:Encrypt to writers and kms:Decrypt to readers",
    "DisabledException": "the key is disabled; enable it",
    "IncorrectKeyException": "another key wrapped it",
    "InvalidCiphertextException": "another key wrapped it, or it is damaged",
    "KMSInvalidStateException": "the key cannot be used now; see its state in KMS",
    "NotFoundException": "there is no such key in that region and account",
}


def connect(region: str | None) -> Any:  # noqa: ANN401 - no types of this service are installed
    """Return a client; the SDK's settings give the endpoint, and the region where it is None."""
    config = Config(
        retries={"total_max_attempts": 4, "mode": "standard"}, connect_timeout=3, read_timeout=5
    )
    session: Any = new_session()
    return session.client("kms", region_name=region, config=config)


class AwsKms:
    """Wraps and unwraps keys in AWS KMS; a `KeyService`. The first call opens the client.

    A master key is named by its ARN, its id, or an alias. Ids in files may have `%3A` for colons,
    which Arrow's settings do not allow. Wrapped keys are the base64 of what Encrypt returns,
    without an encryption context.
    """

    def __init__(self, *, open_client: Callable[[str | None], Any] = connect) -> None:
        self._open_client = open_client
        self._clients: dict[str | None, Any] = {}

    def wrap(self, key: bytes, master: str) -> str:
        """Return a wrapped key.

        Raises CredentialsUnavailable without a usable response after bounded retries, AccessDenied
        where KMS refuses the key, Misconfigured without AWS credentials.
        """
        name = master.replace("%3A", ":")
        with _translated(name):
            response = self._client(name).encrypt(KeyId=name, Plaintext=key)
        return base64.b64encode(response["CiphertextBlob"]).decode()

    def unwrap(self, wrapped: str, master: str) -> bytes:
        """Return the key. Raises as `wrap`."""
        name = master.replace("%3A", ":")
        try:
            blob = base64.b64decode(wrapped, validate=True)
        except (binascii.Error, ValueError) as exc:
            raise AccessDenied(
                f"KMS key {name}: it did not wrap this key, which is no base64"
            ) from exc
        with _translated(name):
            response = self._client(name).decrypt(KeyId=name, CiphertextBlob=blob)
        key: bytes = response["Plaintext"]
        return key

    def _client(self, name: str) -> Any:  # noqa: ANN401 - as `connect`
        region = name.split(":")[3] if name.startswith("arn:") and name.count(":") > 4 else None  # noqa: PLR2004 - of an ARN
        if region not in self._clients:
            self._clients[region] = self._open_client(region)
        return self._clients[region]


@contextmanager
def _translated(name: str) -> Iterator[None]:
    subject = f"KMS key {name}"
    with translate_errors(subject, CredentialsUnavailable, transient=TRANSIENT_CODES, remedies={}):
        try:
            yield
        except ClientError as exc:
            remedy = DENIED.get(exc.response["Error"].get("Code", ""))
            if remedy is None:
                raise
            raise AccessDenied(f"{subject}: {exc}; {remedy}") from exc
