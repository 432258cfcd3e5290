"""Secrets of AWS Secrets Manager: looked up where they are used, remembered for a while.

Owns: the clients, how long a secret is remembered, what a refusal means. Refuses to know: what a
secret holds; no message and no log line repeats any of it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from botocore.config import Config

from extentflow.aws.failures import translated
from extentflow.aws.sessions import own_session
from extentflow.clock import Clock
from extentflow.errors import CredentialsUnavailable, Misconfigured

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient

# How long a rotated secret has to work beside the new one, where nobody says that it is refused.
REMEMBERED_SECONDS = 300.0

PASSING_CODES = frozenset(
    {
        "InternalFailure",
        "InternalServiceError",
        "RequestTimeout",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
    }
)
REMEDIES = {
    "AccessDeniedException": (
        "allow secretsmanager:GetSecretValue on it, and kms:Decrypt on its key where it has one"
    ),
    "DecryptionFailure": "allow kms:Decrypt on the secret's key",
    "InvalidRequestException": "it is marked for deletion; restore it, or name another one",
    "ResourceNotFoundException": "there is no such secret in that region; correct its name",
}


def connect(region: str | None) -> "SecretsManagerClient":
    """Return a client; region (unless named) and endpoint come from the SDK's own settings."""
    config = Config(
        retries={"total_max_attempts": 4, "mode": "standard"}, connect_timeout=3, read_timeout=5
    )
    return own_session().client("secretsmanager", region_name=region, config=config)


class SecretsManager:
    """The secrets that one process may read; connects when first asked."""

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        open_client: Callable[[str | None], "SecretsManagerClient"] = connect,
    ) -> None:
        self._clock = clock or Clock()
        self._open_client = open_client
        self._clients: dict[str | None, SecretsManagerClient] = {}
        self._remembered: dict[str, tuple[float, str]] = {}

    def read(self, name: str, *, anew: bool = False) -> str:
        """Return the text of the secret `name`, a name or an ARN.

        What was read less than five minutes ago is not asked for again, unless `anew`. Measured in
        the wall clock's time, which goes on while an environment is frozen.

        Raises:
            CredentialsUnavailable: no usable answer after bounded retries, or throttled.
            Misconfigured: no such secret, no permission, no text, no AWS credentials.
        """
        now = self._clock.wall()
        since, text = self._remembered.get(name, (now - REMEMBERED_SECONDS, ""))
        if anew or not 0 <= now - since < REMEMBERED_SECONDS:
            text = self._ask(name)
            self._remembered[name] = (now, text)
        return text

    def _ask(self, name: str) -> str:
        with _translated(name):
            answer = self._client(_region(name)).get_secret_value(SecretId=name)
        text = answer.get("SecretString")
        if not text:
            raise Misconfigured(f"secret {name}: it holds no text; store it as SecretString")
        return text

    def _client(self, region: str | None) -> "SecretsManagerClient":
        if region not in self._clients:
            self._clients[region] = self._open_client(region)
        return self._clients[region]


def _translated(name: str) -> AbstractContextManager[None]:
    return translated(
        f"secret {name}", CredentialsUnavailable, passing=PASSING_CODES, remedies=REMEDIES
    )


def _region(name: str) -> str | None:
    """Return the region that an ARN names; None leaves it to the SDK's settings."""
    parts = name.split(":")
    return parts[3] if parts[0] == "arn" else None
