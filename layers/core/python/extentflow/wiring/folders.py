"""Opens the folders of lake targets by their address."""

from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from extentflow.errors import Misconfigured
from extentflow.storage import StoreOptions
from extentflow.storage.folders import Folder
from extentflow.storage.local_folder import LocalFolder
from extentflow.storage.s3 import S3Store

S3_SCHEMES = ("s3", "s3a")


@lru_cache(maxsize=8)
def open_folder(address: str, endpoint: str | None = None) -> Folder:
    """Return the folder of an address, with one client per process.

    `s3://bucket/prefix` and `s3a://bucket/prefix` are the same; others are local paths or `file:`
    URIs. `endpoint` is that of an S3-compatible store; credentials are the environment's.

    Raises Misconfigured for another scheme.
    """
    scheme, mark, rest = address.partition("://")
    if mark and scheme in S3_SCHEMES:
        # Keys may have `#` and `?`, which are marks in URIs.
        bucket, _, prefix = rest.partition("/")
        if not bucket:
            raise Misconfigured(f"{address}: write s3://bucket/prefix")
        prefix = prefix.strip("/")
        store = S3Store(StoreOptions(endpoint=endpoint))
        return store.folder(bucket, f"{prefix}/" if prefix else "")
    parts = urlsplit(address)
    if parts.scheme not in ("", "file"):
        raise Misconfigured(f"{address}: write s3://bucket/prefix, or a local folder")
    path = unquote(parts.path) if parts.scheme else address
    return LocalFolder(Path(path).absolute())
