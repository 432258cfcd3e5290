"""Translate S3 error responses into the error tree, with a remedy.

Responses to HEAD have no body, so their code is the status.
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
from extentflow.storage import ranges

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
# Permissions beyond s3:GetObject and s3:ListBucket, by operation.
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
    """The server does not implement this operation of the S3 API."""


@dataclass(frozen=True, slots=True)
class S3Error:
    """One error response to a request on `where`; header names are in lower case."""

    operation: str
    where: str
    endpoint: str
    status: int
    code: str
    message: str
    headers: Mapping[str, str]

    @property
    def text(self) -> str:
        """Status, code and message, without repetition."""
        parts = (str(self.status), "" if self.code == str(self.status) else self.code, self.message)
        return " ".join(part for part in parts if part)

    @property
    def transient(self) -> bool:
        """Whether the same request can succeed later."""
        # 501 is permanent although it is a 5xx: the server lacks the operation.
        if self.status == HTTPStatus.NOT_IMPLEMENTED:
            return False
        return (
            self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            or self.status == HTTPStatus.TOO_MANY_REQUESTS
            or self.code in _TRANSIENT
        )

    @property
    def unsupported(self) -> bool:
        """Whether the server reports that it does not implement the operation."""
        return self.status in _UNSUPPORTED_STATUS or self.code in _UNSUPPORTED

    def to_exception(self) -> ExtentflowError:
        """Return the exception that names `where`, the cause and the remedy."""
        if self.transient:
            return StoreUnavailable(f"{self.where}: {self.endpoint} answered {self.text}")
        if self.operation == "AssumeRole":
            return AccessDenied(
                f"{self.where}: the role could not be assumed ({self.text}); check "
                "aws.sts.role.arn, aws.sts.role.external.id and the role's trust policy"
            )
        for translate in (_gone, _changed, _archived, _denied, _wrong_region):
            error = translate(self)
            if error is not None:
                return error
        kind = Unsupported if self.unsupported else Permanent
        return kind(
            f"{self.where}: {self.endpoint} rejected {self.operation} with {self.text}; "
            "check that the endpoint implements the S3 API, and check region and credentials"
        )


def bucket_gone(where: str, endpoint: str) -> BucketGone:
    """Return the error for a bucket that does not exist."""
    return BucketGone(
        f"{where}: no such bucket at {endpoint}; create it, or correct aws.s3.bucket.name"
    )


def _gone(error: S3Error) -> ExtentflowError | None:
    where, endpoint = error.where, error.endpoint
    marker = error.headers.get("x-amz-delete-marker") == "true"
    if error.code == "NoSuchBucket":
        return bucket_gone(where, endpoint)
    if marker and error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        return ObjectGone(f"{where} was deleted (its current version is a delete marker)")
    if error.code == "NoSuchVersion":
        return ObjectGone(f"{where}: no such version at {endpoint}; it may have been deleted")
    if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        return ObjectGone(
            f"{where}: no such key at {endpoint}; it may have been deleted: upload it again"
        )
    return None


def _changed(error: S3Error) -> ExtentflowError | None:
    if error.status == HTTPStatus.PRECONDITION_FAILED:
        return ranges.object_changed(error.where, "If-Match failed")
    # Requests stay within the pinned size, so 416 means that the object became shorter.
    if error.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return ranges.object_changed(error.where, "it is shorter than its pin")
    return None


def _archived(error: S3Error) -> ExtentflowError | None:
    if error.code != "InvalidObjectState":
        return None
    return Permanent(f"{error.where} is archived; restore it first, then replay")


def _denied(error: S3Error) -> ExtentflowError | None:
    where, endpoint = error.where, error.endpoint
    if error.code == "RequestTimeTooSkewed":
        return AccessDenied(
            f"{where}: {endpoint} rejects this machine's time; synchronise its clock (NTP)"
        )
    if error.code not in _CREDENTIALS and error.status not in _DENIED_STATUS:
        return None
    if error.operation in _PERMISSIONS:
        return AccessDenied(
            f"{where}: {endpoint} answered {error.text} to {error.operation}; check the "
            f"credentials and allow {_PERMISSIONS[error.operation]}"
        )
    return AccessDenied(
        f"{where}: {endpoint} answered {error.text} to {error.operation}; check the "
        "credentials and allow s3:GetObject, s3:GetObjectVersion and s3:ListBucket "
        "(without s3:ListBucket a missing key gives the same error)"
    )


def _wrong_region(error: S3Error) -> ExtentflowError | None:
    if error.code not in _REGION and error.status not in _REDIRECT_STATUS:
        return None
    region = error.headers.get("x-amz-bucket-region", "the bucket's region")
    return Misconfigured(
        f"{error.where}: {error.endpoint} answered {error.text}; set aws.s3.region to {region}"
    )
