"""Secrets in AWS Secrets Manager, cached for five minutes; no message or log line shows a value."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from botocore.config import Config

from extentflow.aws import new_session, translate_errors
from extentflow.errors import CredentialsUnavailable, Misconfigured
from extentflow.retry import Clock

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient

# A rotated secret must stay valid for this long beside its successor, unless a client reports that
# it is rejected: then the caller reads with `refresh`.
CACHED_SECONDS = 300.0

TRANSIENT_CODES = frozenset(
    ("InternalFailure", "InternalServiceError", "RequestTimeout", "ServiceUnavailable")
) | {"Throttling", "ThrottlingException"}
REMEDIES = {
    "AccessDeniedException": "allow secretsmanager:GetSecretValue on it, and kms:Decrypt on its key"
    " where it has one",
    "DecryptionFailure": "allow kms:Decrypt on the secret's key",
    "InvalidRequestException": "it is scheduled for deletion; restore it, or name another secret",
    "ResourceNotFoundException": "no such secret in that region; correct its name",
}


def connect(region: str | None) -> "SecretsManagerClient":
    """Return a client; the SDK's settings give the endpoint, and the region where it is None."""
    config = Config(
        retries={"total_max_attempts": 4, "mode": "standard"}, connect_timeout=3, read_timeout=5
    )
    return new_session().client("secretsmanager", region_name=region, config=config)


class SecretsManager:
    """Reads and caches secrets for one process; the first read opens the client."""

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        open_client: Callable[[str | None], "SecretsManagerClient"] = connect,
    ) -> None:
        self._clock = clock or Clock()
        self._open_client = open_client
        self._clients: dict[str | None, SecretsManagerClient] = {}
        self._cached: dict[str, tuple[float, str]] = {}

    def read(self, name: str, *, refresh: bool = False) -> str:
        """Return the text of the secret `name`, a name or an ARN.

        A value that was read less than five minutes ago is returned from the cache, unless
        `refresh` is set. The wall clock measures this, because a monotonic clock may stop while a
        Lambda environment is frozen.

        Raises CredentialsUnavailable without a usable response after bounded retries;
        Misconfigured without such a secret, a permission, text in it, or AWS credentials.
        """
        now = self._clock.wall()
        since, text = self._cached.get(name, (now - CACHED_SECONDS, ""))
        if refresh or not 0 <= now - since < CACHED_SECONDS:
            text = self._fetch(name)
            self._cached[name] = (now, text)
        return text

    def _fetch(self, name: str) -> str:
        # The region of an ARN; for a name the SDK's settings apply.
        region = name.split(":")[3] if name.startswith("arn:") else None
        with translate_errors(
            f"secret {name}", CredentialsUnavailable, transient=TRANSIENT_CODES, remedies=REMEDIES
        ):
            if region not in self._clients:
                self._clients[region] = self._open_client(region)
            response = self._clients[region].get_secret_value(SecretId=name)
        text = response.get("SecretString")
        if not text:
            raise Misconfigured(f"secret {name}: it has no SecretString; store the secret as text")
        return text
