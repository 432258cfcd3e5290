"""Read-only calls of any AWS service by name, for checks of an account and of a deployed stage.

Tests: unit/services/test_account_checks.py, unit/services/test_deployed.py
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from extentflow.aws import translate_errors
from extentflow.errors import ExtentflowError, Misconfigured, Retryable

OpenClient = Callable[[str], Any]

_TRANSIENT = frozenset({"Throttling", "ThrottlingException", "RequestLimitExceeded"})
_DENIED = (
    "403",
    "AccessDenied",
    "AccessDeniedException",
    "AuthorizationError",
    "UnauthorizedOperation",
)
# Where the prefix of a service's actions is not the name of its client, or an action has another
# name than its call.
_PREFIXES = {"service-quotas": "servicequotas"}
_ACTIONS = {
    "s3:HeadBucket": "s3:ListBucket",
    "s3:GetBucketNotificationConfiguration": "s3:GetBucketNotification",
}


@dataclass(frozen=True)
class AwsCalls:
    """Calls that clients of `open_client` make; `missing` is the remedy for what does not exist."""

    open_client: OpenClient
    missing: str = ""
    _clients: dict[str, Any] = field(default_factory=dict)

    def call(self, service: str, operation: str, **request: object) -> Any:  # noqa: ANN401 - JSON
        """Return the answer to one request.

        Raises Retryable without one, and Misconfigured with the remedy where AWS refuses it, or the
        answer is of another form.
        """
        remedies = dict.fromkeys(
            _DENIED, f"allow {action(service, operation)} to these credentials"
        )
        if self.missing:
            remedies |= dict.fromkeys(
                ("ValidationError", "ResourceNotFoundException"), self.missing
            )
        with translate_errors(
            f"{service} {operation}", Retryable, transient=_TRANSIENT, remedies=remedies
        ):
            if service not in self._clients:
                self._clients[service] = self.open_client(service)
            ask = getattr(self._clients[service], operation)
            try:
                found = ask(**request)
            except (AttributeError, LookupError, TypeError, ValueError) as exc:
                # The SDK's: what it parsed is of another form than an answer of AWS.
                raise _unreadable(f"{service} {operation}", str(exc)) from exc
        return _readable(f"{service} {operation}", found)

    def find(
        self, service: str, operation: str, absent: Collection[str], **request: object
    ) -> Any | None:  # noqa: ANN401 - JSON
        """Return the answer to one request, or None if AWS answers a code of `absent`."""
        return self.coded(service, operation, dict.fromkeys(absent), **request)

    def coded(self, service: str, operation: str, codes: dict[str, Any], **request: object) -> Any:  # noqa: ANN401 - JSON
        """Return the answer to one request, or what `codes` has for the code of an error."""
        try:
            return self.call(service, operation, **request)
        except ExtentflowError as exc:
            cause = exc.__cause__
            if isinstance(cause, ClientError):
                code = cause.response["Error"].get("Code", "")
                if code in codes:
                    return codes[code]
            raise

    def pages(
        self,
        service: str,
        operation: str,
        key: str,
        *,
        next_page: str = "NextToken",
        **request: object,
    ) -> Iterator[Any]:
        """Yield what all pages of an answer list below `key`."""
        asked = dict(request)
        while True:
            page = self.call(service, operation, **asked)
            yield from page[key]
            if not page.get(next_page):
                return
            asked[next_page] = page[next_page]


class _Answer(dict[str, Any]):
    """An object of an answer. Raises Misconfigured for a key that it lacks."""

    def __init__(self, call: str, found: Mapping[str, Any]) -> None:
        super().__init__((name, _readable(call, one)) for name, one in found.items())
        self._call = call

    def __missing__(self, key: str) -> Any:  # noqa: ANN401 - never returns
        raise _unreadable(self._call, f"it has no {key}")


def _readable(call: str, found: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(found, dict):
        return _Answer(call, found)
    return [_readable(call, one) for one in found] if isinstance(found, list) else found


def _unreadable(call: str, why: str) -> Misconfigured:
    return Misconfigured(
        f"{call}: the answer is not one of AWS ({why}); look for a proxy, or another server, that"
        " answers in its place"
    )


def action(service: str, operation: str) -> str:
    """Return the IAM action that allows a call."""
    words = "".join(word.capitalize() for word in operation.split("_"))
    name = f"{_PREFIXES.get(service, service)}:{words}"
    return _ACTIONS.get(name, name)
