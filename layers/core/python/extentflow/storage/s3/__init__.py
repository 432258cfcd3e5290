"""The ObjectStore and FileTarget adapters for S3 and compatible servers, over boto3."""

from extentflow.storage.s3.store import RequestLimits, S3Store
from extentflow.storage.s3.uploads import S3Target

__all__ = ["RequestLimits", "S3Store", "S3Target"]
