"""S3 error responses and the exceptions that they become."""

import pytest

from extentflow.errors import (
    AccessDenied,
    BucketGone,
    ExtentflowError,
    Misconfigured,
    ObjectArchived,
    ObjectChanged,
    ObjectGone,
    Permanent,
    StoreUnavailable,
)
from extentflow.storage.s3.error_codes import S3Error, Unsupported

WHERE, ENDPOINT = "s3://bucket/key[0-9)", "https://s3.example.test"


def refused(status: int, code: str = "", operation: str = "GetObject", **headers: str) -> S3Error:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return S3Error(operation, WHERE, ENDPOINT, status, code, "said so", names)


@pytest.mark.parametrize(
    ("refusal", "error", "says"),
    [
        (refused(500, "InternalError"), StoreUnavailable, "answered 500 InternalError said so"),
        (refused(503, "SlowDown"), StoreUnavailable, ENDPOINT),
        (refused(502), StoreUnavailable, "answered 502 said so"),
        (refused(429), StoreUnavailable, ENDPOINT),
        (refused(400, "RequestTimeout"), StoreUnavailable, ENDPOINT),
        (refused(409, "OperationAborted"), StoreUnavailable, ENDPOINT),
        (refused(503, "Throttling", "AssumeRole"), StoreUnavailable, ENDPOINT),
        (refused(404, "NoSuchKey"), ObjectGone, "no such key"),
        (refused(404, "404"), ObjectGone, "no such key"),
        (refused(410), ObjectGone, "no such key"),
        (refused(404, "NoSuchVersion"), ObjectGone, "no such version"),
        (refused(404, "NoSuchUpload", "UploadPartCopy"), StoreUnavailable, "begin again"),
        (refused(404, "NoSuchBucket"), BucketGone, "no such bucket"),
        (refused(405, "MethodNotAllowed", x_amz_delete_marker="true"), ObjectGone, "deleted"),
        (refused(404, "NoSuchKey", x_amz_delete_marker="true"), ObjectGone, "deleted"),
        (refused(405, "MethodNotAllowed"), Unsupported, "implements the S3 API"),
        (refused(412, "PreconditionFailed"), ObjectChanged, "If-Match failed"),
        (refused(416, "InvalidRange"), ObjectChanged, "shorter than its pin"),
        (refused(403, "AccessDenied"), AccessDenied, "allow s3:GetObject"),
        (refused(403, "InvalidAccessKeyId"), AccessDenied, "check the credentials"),
        (refused(400, "ExpiredToken"), AccessDenied, "check the credentials"),
        (refused(401), AccessDenied, "check the credentials"),
        (refused(403, "RequestTimeTooSkewed"), AccessDenied, "clock"),
        (refused(403, "AccessDenied", "AssumeRole"), AccessDenied, "aws.sts.role.arn"),
        (refused(403, "InvalidObjectState"), ObjectArchived, "archived"),
        (refused(501, "NotImplemented"), Unsupported, "implements the S3 API"),
        (refused(400, "EntirelyNew"), Permanent, "400 EntirelyNew said so"),
        (
            refused(301, "PermanentRedirect", x_amz_bucket_region="eu-west-9"),
            Misconfigured,
            "set aws.s3.region to eu-west-9",
        ),
        (refused(400, "AuthorizationHeaderMalformed"), Misconfigured, "the bucket's region"),
    ],
)
def test_an_error_response_raises_its_class_with_a_remedy(
    refusal: S3Error, error: type[ExtentflowError], says: str
) -> None:
    raised = refusal.to_exception()

    assert type(raised) is error
    assert WHERE in str(raised)
    assert says in str(raised)
