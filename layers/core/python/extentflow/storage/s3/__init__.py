"""Objects in S3 and in everything that speaks its API; boto3's one home on the reading side.

`store` reads, `listing` lists, `client` makes the client, `refusals` says what a server's refusal
means.
"""

from extentflow.storage.s3.client import Limits
from extentflow.storage.s3.store import S3Store

__all__ = ["Limits", "S3Store"]
