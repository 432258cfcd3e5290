"""What an S3 server's refusal means to us.

Owns: the mapping from status and error code to the error tree, with the remedy. Refuses to know:
the client that received the refusal. HEAD answers have no body: their code is only the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from extentflow.errors import (
    AccessDenied,
    BucketGone,
    ExtentflowError,
    Misconfigured,
    ObjectGone,
    Permanent,
    StoreUnavailable,
)
from extentflow.storage import pins

_TRANSIENT = frozenset(
    (
        "BandwidthLimitExceeded",
        "InternalError",
        "OperationAborted",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
    )
)
_CREDENTIALS = frozenset(
    (
        "AccessDenied",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidToken",
        "SignatureDoesNotMatch",
    )
)
_REGION = frozenset(
    (
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
        "PermanentRedirect",
        "TemporaryRedirect",
    )
)
_UNSUPPORTED = frozenset(
    ("MethodNotAllowed", "NotImplemented", "NotSupported", "UnsupportedOperation")
)
_UNSUPPORTED_STATUS = (HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)
# What else than reading and ListBucket an operation needs leave for.
_PERMISSIONS = {
    "GetBucketVersioning": "s3:GetBucketVersioning",
    "ListObjectVersions": "s3:ListBucketVersions",
}
_DENIED_STATUS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_REDIRECT_STATUS = (
    HTTPStatus.MOVED_PERMANENTLY,
    HTTPStatus.TEMPORARY_REDIRECT,
    HTTPStatus.PERMANENT_REDIRECT,
)


class Unsupported(Permanent):
    """The server does not know this operation of the S3 API."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refusal, as plain values: `where` was asked of `endpoint`; header names in lower case."""

    operation: str
    where: str
    endpoint: str
    status: int
    code: str
    message: str
    headers: Mapping[str, str]

    @property
    def text(self) -> str:
        """Status, code and message, each said once."""
        parts = (str(self.status), "" if self.code == str(self.status) else self.code, self.message)
        return " ".join(part for part in parts if part)

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later."""
        if self.status == HTTPStatus.NOT_IMPLEMENTED:
            return False
        return (
            self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            or self.status == HTTPStatus.TOO_MANY_REQUESTS
            or self.code in _TRANSIENT
        )

    @property
    def unsupported(self) -> bool:
        """Whether the server says that it does not know the operation at all."""
        return self.status in _UNSUPPORTED_STATUS or self.code in _UNSUPPORTED

    def error(self) -> ExtentflowError:
        """Return the error that says what happened to `where` and what to do."""
        if self.transient:
            return StoreUnavailable(f"{self.where}: {self.endpoint} answered {self.text}")
        if self.operation == "AssumeRole":
            return _role_refused(self)
        for sort in (_gone, _changed, _archived, _denied, _elsewhere):
            error = sort(self)
            if error is not None:
                return error
        kind = Unsupported if self.unsupported else Permanent
        return kind(
            f"{self.where}: {self.endpoint} refused {self.operation} with {self.text}; "
            "check that the endpoint speaks the S3 API, its region and the credentials"
        )


def bucket_gone(where: str, endpoint: str) -> BucketGone:
    """Return the error for a bucket that does not exist."""
    return BucketGone(
        f"{where}: no such bucket at {endpoint}; create it, or correct aws.s3.bucket.name"
    )


def _role_refused(refusal: Refusal) -> ExtentflowError:
    return AccessDenied(
        f"{refusal.where}: the role could not be assumed ({refusal.text}); check "
        "aws.sts.role.arn, aws.sts.role.external.id and the role's trust policy"
    )


def _gone(refusal: Refusal) -> ExtentflowError | None:
    where, endpoint = refusal.where, refusal.endpoint
    marker = refusal.headers.get("x-amz-delete-marker") == "true"
    if refusal.code == "NoSuchBucket":
        return bucket_gone(where, endpoint)
    if marker and refusal.status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        return ObjectGone(f"{where} was deleted (a delete marker stands in its place)")
    if refusal.code == "NoSuchVersion":
        return ObjectGone(f"{where}: no such version (any more) at {endpoint}")
    if refusal.status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        return ObjectGone(f"{where}: no such key (any more) at {endpoint}; upload it again")
    return None


def _changed(refusal: Refusal) -> ExtentflowError | None:
    if refusal.status == HTTPStatus.PRECONDITION_FAILED:
        return pins.changed(refusal.where, "If-Match failed")
    if refusal.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return pins.changed(refusal.where, "it is shorter now")
    return None


def _archived(refusal: Refusal) -> ExtentflowError | None:
    if refusal.code != "InvalidObjectState":
        return None
    return Permanent(f"{refusal.where} is archived; restore it first, then replay")


def _denied(refusal: Refusal) -> ExtentflowError | None:
    where, endpoint = refusal.where, refusal.endpoint
    if refusal.code == "RequestTimeTooSkewed":
        return AccessDenied(f"{where}: {endpoint} refuses this machine's time; set its clock")
    if refusal.code not in _CREDENTIALS and refusal.status not in _DENIED_STATUS:
        return None
    if refusal.operation in _PERMISSIONS:
        return AccessDenied(
            f"{where}: {endpoint} answered {refusal.text} to {refusal.operation}; check the "
            f"credentials and allow {_PERMISSIONS[refusal.operation]}"
        )
    return AccessDenied(
        f"{where}: {endpoint} answered {refusal.text} to {refusal.operation}; check the "
        "credentials and allow s3:GetObject, s3:GetObjectVersion and s3:ListBucket "
        "(without the last one a missing key looks like this, too)"
    )


def _elsewhere(refusal: Refusal) -> ExtentflowError | None:
    if refusal.code not in _REGION and refusal.status not in _REDIRECT_STATUS:
        return None
    region = refusal.headers.get("x-amz-bucket-region", "the bucket's region")
    return Misconfigured(
        f"{refusal.where}: {refusal.endpoint} answered {refusal.text}; "
        f"set aws.s3.region to {region}"
    )
