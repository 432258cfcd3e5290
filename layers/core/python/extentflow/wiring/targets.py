"""Opens the folders that commands write to, by their address."""

import re
from functools import lru_cache
from pathlib import Path

from extentflow.aws.secrets_manager import SecretsManager
from extentflow.config.store_access import StoreAccess
from extentflow.errors import Misconfigured
from extentflow.jobs.addresses import S3_SCHEMES, file_path
from extentflow.storage.folders import Folder
from extentflow.storage.local_folder import LocalFolder
from extentflow.storage.s3 import S3Store
from extentflow.wiring.options import SecretResolver, store_options

# Keys of connectors and their values; hashable, and sent to workers of Spark by pickle.
Settings = tuple[tuple[str, str], ...]


@lru_cache(maxsize=8)
def open_folder(
    address: str, settings: Settings = (), *, retry_seconds: float | None = None
) -> Folder:
    """Return the folder at an address, with one client per process.

    `s3://bucket/prefix` and `s3a://bucket/prefix` are the same; others are local folders.
    `settings` state how S3 is reached; without them the SDK's environment does. Raises
    Misconfigured with every problem, and CredentialsUnavailable where secrets cannot be read now.
    """
    if not address.startswith(S3_SCHEMES):
        if settings:
            names = ", ".join(name for name, _ in settings)
            raise Misconfigured(f"--set {names}: only for targets in S3")
        # Hadoop writes file:/path.
        path = file_path(re.sub("^file:(?=/[^/])", "", address))
        if path is None:
            raise Misconfigured(f"--to {address}: write s3://bucket/prefix, or a local folder")
        return LocalFolder(Path(path))
    # Not by `urlsplit`: keys may have `#` and `?`, which are marks in URIs.
    bucket, _, prefix = address.partition("://")[2].partition("/")
    if not bucket:
        raise Misconfigured(f"--to {address}: write s3://bucket/prefix")
    access = StoreAccess.of(dict(settings))
    resolver = SecretResolver(SecretsManager())
    store = S3Store(store_options(access, resolver, retry_seconds=retry_seconds))
    prefix = prefix.rstrip("/")
    return store.folder(bucket, f"{prefix}/" if prefix else "")
