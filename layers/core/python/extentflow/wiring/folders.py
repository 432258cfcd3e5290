"""Opens the folders of lake targets by their address."""

from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from extentflow.errors import Misconfigured
from extentflow.jobs.addresses import S3_SCHEMES
from extentflow.storage import StoreOptions
from extentflow.storage.folders import Folder
from extentflow.storage.local_folder import LocalFolder
from extentflow.storage.s3 import S3Store


def address_problem(address: str) -> str | None:
    """Return why an address is none of a folder: another scheme, or no bucket."""
    if address.startswith(S3_SCHEMES):
        return None if _bucket_and_prefix(address)[0] else f"{address}: write s3://bucket/prefix"
    known = urlsplit(address).scheme in ("", "file")
    return None if known else f"{address}: write s3://bucket/prefix, or a local folder"


@lru_cache(maxsize=8)
def open_folder(address: str, endpoint: str | None = None) -> Folder:
    """Return the folder of an address, with one client per process.

    `s3://bucket/prefix` and `s3a://bucket/prefix` are the same; others are local paths or `file:`
    URIs. `endpoint` is that of an S3-compatible store; credentials are the environment's.

    Raises Misconfigured as `address_problem`.
    """
    if problem := address_problem(address):
        raise Misconfigured(problem)
    if address.startswith(S3_SCHEMES):
        bucket, prefix = _bucket_and_prefix(address)
        store = S3Store(StoreOptions(endpoint=endpoint))
        return store.folder(bucket, f"{prefix}/" if prefix else "")
    parts = urlsplit(address)
    path = unquote(parts.path) if parts.scheme else address
    return LocalFolder(Path(path).absolute())


def _bucket_and_prefix(address: str) -> tuple[str, str]:
    # Not by `urlsplit`: keys may have `#` and `?`, which are marks in URIs.
    bucket, _, prefix = address.partition("://")[2].partition("/")
    return bucket, prefix.strip("/")
