"""The values that all packages share: object versions, extents, jobs and receipts; all frozen.

Tests: unit/ledger/test_stored_items.py
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

MESSAGE_VERSION = 1
JOB_ID_DIGITS = 20


def bucket_uri(bucket: str) -> str:
    """Return `s3://bucket`, or `file:///directory` for a bucket that is a local directory."""
    if bucket.startswith("file://"):
        return bucket
    return f"file://{bucket}" if bucket.startswith("/") else f"s3://{bucket}"


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """One version of one object, pinned at planning; every read is conditional on it.

    `version_id` is None on unversioned buckets. `etag` is opaque and without its quotes.
    `size` is in bytes. `modified` is when the store received it, in whole seconds since the epoch,
    0 where that is not known. It tells uploads of equal bytes apart, and identifies no version. Of
    files it is the ctime, in nanoseconds.
    """

    bucket: str
    key: str
    version_id: str | None
    etag: str
    size: int
    modified: int = field(default=0, compare=False)

    @property
    def pin(self) -> dict[str, Any]:
        """What identifies the version, as JSON-ready values."""
        return {name: value for name, value in asdict(self).items() if name != "modified"}

    @property
    def uri(self) -> str:
        """`s3://bucket/key` (`file://directory/key`), with the version id where there is one."""
        version = f"?versionId={self.version_id}" if self.version_id else ""
        return f"{self.address}{version}"

    @property
    def address(self) -> str:
        """The URI without a version: what commands take, for which `?` is any character."""
        return f"{bucket_uri(self.bucket)}/{self.key}"


@dataclass(frozen=True, slots=True)
class Extent:
    """The half-open byte range `[start, end)` of one object version, under one job.

    Self-contained: a worker needs nothing but the extent and its own settings.
    """

    job: str
    ordinal: int
    connector: str
    version: ObjectVersion
    start: int
    end: int
    format: str

    @property
    def uri(self) -> str:
        """`s3://bucket/key[start-end)`: how every message names an extent."""
        return f"{self.version.uri}[{self.start}-{self.end})"

    def to_message(self) -> dict[str, Any]:
        """Return the work item of schema version 1, as JSON-ready values."""
        return {
            "v": MESSAGE_VERSION,
            "job": self.job,
            "extent": self.ordinal,
            "connector": self.connector,
            "object": self.version.pin,
            "range": [self.start, self.end],
            "format": self.format,
        }

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Self:
        """Rebuild an extent from a work item.

        Raises ValueError for another schema version; KeyError or TypeError where a field is missing
        or has the wrong shape.
        """
        if message["v"] != MESSAGE_VERSION:
            raise ValueError(f"work item of schema version {message['v']!r}, expected 1")
        start, end = message["range"]
        return cls(
            job=message["job"],
            ordinal=message["extent"],
            connector=message["connector"],
            version=ObjectVersion(**message["object"]),
            start=start,
            end=end,
            format=message["format"],
        )


class JobState(enum.StrEnum):
    """Where a job stands.

    PLANNING -> RUNNING -> DONE | FAILED | SUPERSEDED | CANCELLED; `replay JOB` brings the
    last three back to RUNNING (a SUPERSEDED one ends again while its object stays replaced),
    `replay -c NAME` FAILED and CANCELLED ones, and continues open ones that nothing delivers.
    """

    PLANNING = "PLANNING"
    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    SUPERSEDED = "SUPERSEDED"
    CANCELLED = "CANCELLED"

    @property
    def open(self) -> bool:
        """Whether extents of such a job may be claimed."""
        return self in (JobState.PLANNING, JobState.RUNNING)


class ExtentState(enum.StrEnum):
    """Where an extent stands. An extent without an item in the ledger is PENDING."""

    PENDING = "PENDING"
    DONE = "DONE"
    FAILED = "FAILED"

    @property
    def final(self) -> bool:
        """Whether no worker will touch the extent again without a replay."""
        return self is not ExtentState.PENDING


@dataclass(frozen=True, slots=True)
class Content:
    """What planning found in an object. Its job pins it, so that all its extents agree.

    Without a `format` or `compression`, connector and extension decide. `facts` are what the format
    found (`formats.InspectingFormat`); only the format interprets them.
    """

    format: str | None = None
    compression: str = ""
    facts: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a job's object is cut; stored with the job and never recomputed.

    `target_bytes` is what `extent.bytes` resolved to. `count` is the number of extents planned so
    far and `cursor` the first byte not planned yet; both are final when the job leaves PLANNING.
    `covered` is then the sum of the extents' lengths in bytes, -1 before and for jobs of versions
    that did not record it. `cut_version` is that of the format (`Format.cut_version`).
    `compression` and `facts` are those of `Content`.
    """

    target_bytes: int
    count: int = 0
    cursor: int = 0
    covered: int = -1
    cut_version: int = 1
    compression: str = ""
    facts: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """One object version under one connector revision.

    `created` and `ended` (0.0 while it is open) are seconds since the epoch on the ledger's clock.
    `published`: the event of this end was published; `state` and `reopened` identify an end.
    `partition` is the one that holds an ordered object without keys, -1 before the first claim and
    for other jobs. `topics` are the ids that its topics had at its first claim, by name; none where
    brokers have no ids. With more than `most_bad` bad records it is FAILED; -1: any number.
    """

    id: str
    connector: str
    revision: int
    version: ObjectVersion
    format: str
    cluster: str
    plan: Plan
    generation: int = 0
    ordered: bool = False
    state: JobState = JobState.PLANNING
    reason: str = ""
    reopened: int = 0
    created: float = 0.0
    ended: float = 0.0
    published: bool = False
    partition: int = -1
    most_bad: int = -1
    topics: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def content(self) -> Content:
        """What the job pins of its object's content."""
        return Content(self.format, self.plan.compression, self.plan.facts)

    def extent(self, ordinal: int, start: int, end: int) -> Extent:
        """Return the extent `[start, end)` of this job."""
        return Extent(self.id, ordinal, self.connector, self.version, start, end, self.format)

    def in_state(self, state: JobState, reason: str = "", *, ended: float = 0.0) -> Job:
        """Return a copy in another state, not published yet."""
        return replace(self, state=state, reason=reason, ended=ended, published=False)


def job_id(connector: str, version: ObjectVersion, generation: int = 0) -> str:
    """Return the id on which duplicate and late notifications of one object version fall.

    The first 20 hex digits of SHA-256 over connector, bucket, key, version id (or ETag, on
    unversioned buckets) and generation; fields are length-prefixed, so that no two tuples collide.
    """
    pin = version.version_id or version.etag
    fields = (connector, version.bucket, version.key, pin, str(generation))
    text = "".join(f"{len(field)}:{field}" for field in fields)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:JOB_ID_DIGITS]


class Outcome(enum.StrEnum):
    """The result of one `run_extent` call. SKIPPED: not started, the connector is paused."""

    DONE = "DONE"
    FAILED = "FAILED"
    HANDED_BACK = "HANDED_BACK"
    BUSY = "BUSY"
    JOB_CLOSED = "JOB_CLOSED"
    SKIPPED = "SKIPPED"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one `run_extent` call did.

    `records`, `bad`, `filtered` (dropped by transforms, or in row groups that these exclude) and
    `bytes_read` count this call's own work; totals come from the ledger. `seconds` is wall time,
    `peak_rss_bytes` the process's. `retry_after_seconds` is meaningful for BUSY only, and `holder`
    is the message whose worker holds the extent, where there is one.
    """

    job: str
    ordinal: int
    uri: str
    outcome: Outcome
    position: int = 0
    records: int = 0
    bad: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    peak_rss_bytes: int = 0
    retry_after_seconds: float = 0.0
    reason: str = ""
    filtered: int = 0
    holder: str = ""
    worker: str = field(default="", compare=False)
