"""The ObjectStore adapter for S3 and compatible servers, over boto3.

`store` reads objects, `listing` lists them, `client` creates the boto3 client, and `errors`
translates error responses.
"""

from extentflow.storage.s3.client import RequestLimits
from extentflow.storage.s3.store import S3Store

__all__ = ["RequestLimits", "S3Store"]
