"""The ObjectStore and Folder adapters for S3 and compatible servers, over boto3."""

from extentflow.storage.s3.store import RequestLimits, S3Store

__all__ = ["RequestLimits", "S3Store"]
