"""What a call that failed means: it passes, or a person has to act.

Owns: failures of the SDK itself (nobody answered, there is nothing to sign a request with), the
order in which errors are judged. Refuses to know: what a service's codes mean.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.parsers import ResponseParserError

from extentflow.errors import Misconfigured, Retryable

SERVER_ERROR = 500  # and above: HTTP says that the server is at fault

NO_ANSWER = (
    BotoConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
    ResponseParserError,
)
_REMEDIES: dict[type[BotoCoreError], str] = {
    NoRegionError: "no AWS region; set AWS_DEFAULT_REGION or a profile's region",
    NoCredentialsError: "no AWS credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or "
    "AWS_PROFILE, or give this machine a role",
}


@contextmanager
def translated(
    subject: str,
    away: type[Retryable],
    *,
    passing: Collection[str],
    remedies: Mapping[str, str],
) -> Iterator[None]:
    """Run one call about `subject`, as errors name it.

    Raises:
        Retryable: as `away`; no usable answer, a code that is `passing`, or an error of the
            server's.
        Misconfigured: everything else, with the code's remedy.
    """
    try:
        yield
    except ClientError as exc:
        code = exc.response["Error"].get("Code", "")
        status = exc.response["ResponseMetadata"].get("HTTPStatusCode", 0)
        if code in passing or status >= SERVER_ERROR:
            raise away(f"{subject}: {exc}") from exc
        what_to_do = remedies.get(code, "check the credentials and the role's policy")
        raise Misconfigured(f"{subject}: {exc}; {what_to_do}") from exc
    except NO_ANSWER as exc:
        raise away(f"{subject}: {type(exc).__name__}: {exc}") from exc
    except BotoCoreError as exc:
        raise Misconfigured(f"{subject}: {remedy(exc)}") from exc


def remedy(error: BotoCoreError) -> str:
    """Return what is wrong on our side, and what to do about it."""
    return _REMEDIES.get(type(error), str(error))
