"""Read-only calls of any AWS service by name, for checks of an account and of a deployed stage.

Tests: unit/services/test_account_checks.py, unit/services/test_deployed.py
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from extentflow.aws import translate_errors
from extentflow.errors import ExtentflowError, Retryable

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

        Raises Retryable without one, and Misconfigured with the remedy where AWS refuses it.
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
            return getattr(self._clients[service], operation)(**request)

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


def action(service: str, operation: str) -> str:
    """Return the IAM action that allows a call."""
    words = "".join(word.capitalize() for word in operation.split("_"))
    name = f"{_PREFIXES.get(service, service)}:{words}"
    return _ACTIONS.get(name, name)
