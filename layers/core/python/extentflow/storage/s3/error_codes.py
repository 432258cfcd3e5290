"""Translate S3 error responses into the error tree, with a remedy.

Responses to HEAD have no body, so their code is the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from botocore.exceptions import ClientError

from extentflow.errors import (
    AccessDenied,
    BucketGone,
    ExtentflowError,
    Misconfigured,
    ObjectArchived,
    ObjectGone,
    Permanent,
    StoreUnavailable,
)
from extentflow.storage import ranges


class Unsupported(Permanent):
    """The server does not implement this operation of the S3 API."""


def bucket_gone(where: str, endpoint: str) -> BucketGone:
    """Return the error for a bucket that does not exist."""
    return BucketGone(
        f"{where}: no such bucket at {endpoint}; create it, or correct aws.s3.bucket.name"
    )


_TRANSIENT_CODES = frozenset(
    ("BandwidthLimitExceeded", "ConditionalRequestConflict", "InternalError", "OperationAborted")
).union(
    ("PriorRequestNotComplete", "RequestLimitExceeded", "RequestThrottled", "RequestTimeout"),
    ("ServiceUnavailable", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests"),
)
_TRANSIENT_STATUSES = frozenset((429, *range(500, 600))) - {501}
_CREDENTIAL_CODES = frozenset(("AccessDenied", "ExpiredToken", "ExpiredTokenException")).union(
    ("InvalidAccessKeyId", "InvalidClientTokenId", "InvalidToken", "SignatureDoesNotMatch")
)
_REGION_CODES = frozenset(
    ("AuthorizationHeaderMalformed", "IllegalLocationConstraintException")
).union(("PermanentRedirect", "TemporaryRedirect"))
_UNSUPPORTED_CODES = frozenset(
    ("MethodNotAllowed", "NotImplemented", "NotSupported", "UnsupportedOperation")
)

# By operation; all others read objects.
_PERMISSIONS = {
    "GetBucketVersioning": "s3:GetBucketVersioning",
    "ListObjectVersions": "s3:ListBucketVersions",
    "GetObjectTagging": "s3:GetObjectTagging and s3:GetObjectVersionTagging",
    "PutObjectTagging": "s3:PutObjectTagging and s3:PutObjectVersionTagging",
    "CopyObject": "s3:PutObject and s3:PutObjectTagging there, s3:GetObject, s3:GetObjectVersion,"
    " s3:GetObjectTagging and s3:GetObjectVersionTagging here",
    "CreateMultipartUpload": "s3:PutObject and s3:PutObjectTagging",
    "DeleteObject": "s3:DeleteObject and s3:DeleteObjectVersion",
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "CompleteMultipartUpload": "s3:PutObject",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "UploadPart": "s3:PutObject",
    "PutObject": "s3:PutObject",
}
_READ_PERMISSIONS = (
    "s3:GetObject, s3:GetObjectVersion and s3:ListBucket "
    "(without s3:ListBucket a missing key gives the same error)"
)


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

    @classmethod
    def of(cls, exc: ClientError, where: str, endpoint: str) -> Self:
        """Return the error response that the SDK raised as `exc`."""
        error, metadata = exc.response.get("Error", {}), exc.response.get("ResponseMetadata", {})
        return cls(
            exc.operation_name,
            where,
            endpoint,
            metadata.get("HTTPStatusCode", 0),
            error.get("Code", ""),
            error.get("Message", ""),
            metadata.get("HTTPHeaders", {}),
        )

    def to_exception(self) -> ExtentflowError:
        """Return the exception that names `where`, the cause and the remedy."""
        code = "" if self.code == str(self.status) else self.code
        text = " ".join(part for part in (str(self.status), code, self.message) if part)
        answered = f"{self.where}: {self.endpoint} answered {text}"
        # 501 is permanent although it is a 5xx: the server lacks the operation.
        if self.status in _TRANSIENT_STATUSES or (code in _TRANSIENT_CODES and self.status != 501):  # noqa: PLR2004
            return StoreUnavailable(answered)
        if code == "NoSuchUpload":  # not ObjectGone: the object of the upload is another one
            return StoreUnavailable(f"{answered} to {self.operation}; it has to begin again")
        if self.operation == "AssumeRole":
            return AccessDenied(
                f"{self.where}: the role could not be assumed ({text}); check "
                "aws.sts.role.arn, aws.sts.role.external.id and the role's trust policy"
            )
        if code == "NoSuchBucket":
            return bucket_gone(self.where, self.endpoint)
        return self._permanent(text, answered)

    def _permanent(self, text: str, answered: str) -> ExtentflowError:
        where, endpoint, code = self.where, self.endpoint, self.code
        error: ExtentflowError
        match self.status:
            case 404 | 405 if self.headers.get("x-amz-delete-marker") == "true":
                error = ObjectGone(f"{where} was deleted (its current version is a delete marker)")
            case _ if code == "NoSuchVersion":
                why = f"no such version at {endpoint}; it may have been deleted"
                error = ObjectGone(f"{where}: {why}")
            case 404 | 410:
                why = f"no such key at {endpoint}; it may have been deleted: upload it again"
                error = ObjectGone(f"{where}: {why}")
            case 412:
                error = ranges.object_changed(where, "If-Match failed")
            case 416:  # requests stay within the pinned size, so the object became shorter
                error = ranges.object_changed(where, "it is shorter than its pin")
            case _ if code == "InvalidObjectState":
                error = ObjectArchived(f"{where} is archived; restore it first, then replay")
            case _ if code == "RequestTimeTooSkewed":
                why = f"{endpoint} rejects this machine's time; synchronise its clock (NTP)"
                error = AccessDenied(f"{where}: {why}")
            case status if code in _CREDENTIAL_CODES or status in (401, 403):
                allow = _PERMISSIONS.get(self.operation, _READ_PERMISSIONS)
                why = f"check the credentials and allow {allow}"
                error = AccessDenied(f"{answered} to {self.operation}; {why}")
            case status if code in _REGION_CODES or status in (301, 307, 308):
                region = self.headers.get("x-amz-bucket-region", "the bucket's region")
                error = Misconfigured(f"{answered}; set aws.s3.region to {region}")
            case status:
                lacking = code in _UNSUPPORTED_CODES or status in (405, 501)
                error = (Unsupported if lacking else Permanent)(
                    f"{where}: {endpoint} rejected {self.operation} with {text}; check that the "
                    "endpoint implements the S3 API, and check region and credentials"
                )
        return error
