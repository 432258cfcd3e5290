"""Translates errors of SQS into the error tree, each with its remedy."""

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError

from extentflow.aws.calls import NO_ANSWER, SERVER_ERROR, describe_sdk_error
from extentflow.errors import ExtentflowError, Misconfigured, QueueUnavailable

MISSING_CODES = frozenset(
    {
        "AWS.SimpleQueueService.NonExistentQueue",
        "NonExistentQueue",
        "QueueDoesNotExist",
    }
)
PERMISSION_CODES = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "InvalidSecurity",
        "KMS.AccessDeniedException",
        "KmsAccessDenied",
        "MissingAuthenticationToken",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
# Also of entries that are said to be the sender's fault: throttling by KMS is.
PASSING_CODES = frozenset(
    {
        "InternalError",
        "KMS.ThrottlingException",
        "KmsThrottled",
        "OverLimit",
        "RequestThrottled",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
    }
)
# The delivery is over: its time is up, or the message was deleted meanwhile.
STALE_CODES = frozenset(
    {
        "AWS.SimpleQueueService.MessageNotInflight",
        "MessageNotInflight",
        "ReceiptHandleIsInvalid",
    }
)


@contextmanager
def translated(url: str, doing: str) -> Iterator[None]:
    """Run one call on the queue at `url`; `doing` says in messages what for.

    Raises:
        QueueUnavailable: no usable answer, throttled, or an error of the server's.
        Misconfigured: no such queue, no credentials, no permission, or never to be accepted.
    """
    try:
        yield
    except ClientError as exc:
        raise _refused(url, doing, exc) from exc
    except NO_ANSWER as exc:
        raise QueueUnavailable(f"{url}: {doing}: {type(exc).__name__}: {exc}") from exc
    except BotoCoreError as exc:
        raise Misconfigured(f"{url}: {doing}: {describe_sdk_error(exc)}") from exc


def _refused(url: str, doing: str, error: ClientError) -> ExtentflowError:
    name = code(error)
    status = error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
    if name in MISSING_CODES:
        return Misconfigured(f"{url}: there is no such queue; correct its URL, or deploy the stack")
    if name in PERMISSION_CODES:
        return Misconfigured(
            f"{url}: {doing} was refused, {error}; check the credentials and the role's policy"
        )
    if name in PASSING_CODES or status >= SERVER_ERROR:
        return QueueUnavailable(f"{url}: {doing}: {error}")
    return Misconfigured(f"{url}: {doing} was refused, {error}")


def code(error: ClientError) -> str:
    """Return the server's own name for the reason."""
    return error.response["Error"].get("Code", "")
