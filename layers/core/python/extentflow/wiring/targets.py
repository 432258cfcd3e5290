"""Opens the targets that commands write files to."""

from collections.abc import Mapping
from pathlib import Path

from extentflow.config.connector import ConnectorConfig
from extentflow.config.parsing import parse
from extentflow.config.types import illegal_topic
from extentflow.errors import Misconfigured
from extentflow.jobs.addresses import S3_SCHEMES, file_path
from extentflow.storage.local_target import LocalTarget
from extentflow.storage.s3 import S3Store, S3Target
from extentflow.storage.targets import FileTarget
from extentflow.wiring import options
from extentflow.wording import quoted

# The keys of connectors that say how their store is reached.
STORE_KEYS = ("aws.s3.", "aws.access.", "aws.secret.", "aws.sts.")


def open_target(
    where: str,
    settings: Mapping[str, str],
    look_up: options.SecretResolver,
    *,
    retry_seconds: float,
) -> FileTarget:
    """Return the target at an address: `s3://bucket/prefix/`, or a local folder.

    `settings` are keys of connectors that say how S3 is reached (`aws.s3.endpoint`, ...); without
    them the SDK's environment does. Raises Misconfigured with every problem, and
    CredentialsUnavailable where secrets cannot be read now.
    """
    if not where.startswith(S3_SCHEMES):
        if settings:
            raise Misconfigured(f"--set {', '.join(settings)}: only for targets in S3")
        path = file_path(where)
        if path is None:
            raise Misconfigured(f"--to {quoted(where)}: write a folder, or s3://bucket/prefix/")
        return LocalTarget(Path(path))
    if other := [key for key in settings if not key.startswith(STORE_KEYS)]:
        raise Misconfigured(
            f"--set {', '.join(other)}: of a target, only keys that begin with"
            f" {', '.join(STORE_KEYS)}"
        )
    bucket, _, prefix = where.partition("://")[2].partition("/")
    config = _config(bucket, settings)
    store = S3Store(options.store_options(config, look_up, retry_seconds=retry_seconds))
    return S3Target(store.uploads(), bucket, f"{prefix.rstrip('/')}/" if prefix else "")


def _config(bucket: str, settings: Mapping[str, str]) -> ConnectorConfig:
    """Return a connector with the settings of the target, which checks them."""
    return parse(
        {
            "name": "target",
            "topic": "target",
            "input.format": "parquet",
            "aws.s3.bucket.name": bucket,
            **settings,
        }
    )


def require_topic(topic: str) -> None:
    """Raise Misconfigured for a name that no topic has; folders are called after topics."""
    if problem := illegal_topic(topic):
        raise Misconfigured(f"TOPIC: {problem}")
