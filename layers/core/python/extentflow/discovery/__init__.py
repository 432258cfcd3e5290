"""Discovery: which objects have arrived, and the jobs for them.

Notifications of any dialect become arrivals; the planner function registers jobs for them; the
reconciler lists objects without a notification and resumes stalled jobs. Extents travel by
`extentflow.queue`; records move in `extentflow.delivery`. An arrival is a hint: the planner sends
HEAD for the object and pins the response.

    S3, EventBridge, SNS ─────┐
    StorageGRID ──> receiver ─┼─> arrivals queue ──parse_notification──> Arrival ──planner──> job
    reconciler, command line ─┘
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from extentflow.discovery import documents
from extentflow.model import bucket_uri

MESSAGE_VERSION = 1


class Dialect(enum.StrEnum):
    """The format of a notification, without its envelope (SNS, SQS, HTTP)."""

    AWS = "aws:s3"
    EVENTBRIDGE = "eventbridge"
    STORAGEGRID = "sgws:s3"
    S3_COMPATIBLE = "other:s3"
    BACKBLAZE = "b2"
    LISTING = "listing"
    COMMAND = "command"


_FACTS: Mapping[str, Callable[[object], Any]] = {
    "version_id": documents.version_id,
    "etag": documents.etag,
    "size": documents.size,
    "sequencer": documents.text,
    "event_time": documents.seconds,
    "endpoint": documents.text,
    "region": documents.text,
}


@dataclass(frozen=True, slots=True)
class Arrival:
    """One object that may have arrived. Only bucket and key are always set.

    `key` is decoded. `version_id` is None on unversioned buckets, `etag` is opaque and without
    quotes, `size` is in bytes. `sequencer` orders the events of one key of one store. `event_time`
    is in seconds since 1970. `endpoint` is the S3 endpoint with which the source is declared at the
    receiver, `region` the AWS region in the event; None means unknown and matches any connector.
    """

    MESSAGE_SOURCE: ClassVar[str] = "arrival"

    bucket: str
    key: str
    dialect: Dialect
    version_id: str | None = None
    etag: str | None = None
    size: int | None = None
    sequencer: str | None = None
    event_time: float | None = None
    endpoint: str | None = None
    region: str | None = None

    @property
    def uri(self) -> str:
        """`s3://bucket/key`, with the version id where it is known."""
        version = f"?versionId={self.version_id}" if self.version_id else ""
        return f"{bucket_uri(self.bucket)}/{self.key}{version}"

    def to_message(self) -> dict[str, Any]:
        """Return the known values, JSON-ready; as JSON, a body for the queue."""
        known = {name: value for name, value in asdict(self).items() if value is not None}
        return {"v": MESSAGE_VERSION, "source": self.MESSAGE_SOURCE, **known}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Rebuild an arrival from `to_message`. Raises ValueError if the message is invalid."""
        if message.get("v") != MESSAGE_VERSION:
            raise ValueError(f"arrival of schema version {message.get('v')!r}, expected 1")
        bucket, key = documents.text(message.get("bucket")), documents.text(message.get("key"))
        if bucket is None or key is None:
            raise ValueError("arrival without bucket or key")
        facts = {name: read(message.get(name)) for name, read in _FACTS.items()}
        return cls(bucket, key, Dialect(message.get("dialect", "")), **facts)
