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
    parts = urlsplit(address)
    if parts.scheme in S3_SCHEMES:
        if not parts.netloc:
            raise Misconfigured(f"{address}: write s3://bucket/prefix")
        prefix = parts.path.strip("/")
        store = S3Store(StoreOptions(endpoint=endpoint))
        return store.folder(parts.netloc, f"{prefix}/" if prefix else "")
    if parts.scheme not in ("", "file"):
        raise Misconfigured(f"{address}: write s3://bucket/prefix, or a local folder")
    path = unquote(parts.path) if parts.scheme else address
    return LocalFolder(Path(path).absolute())
