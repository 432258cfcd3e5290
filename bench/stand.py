"""The environment of a case: the stack, and topics, objects and connectors that it removes."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from demo.rig import NO_CONFIG, Rig

from bench.pairs import Notify
from bench.process import WarmProcess
from extentflow_local.stack.servers.dynamodb import DynamoDbLocal
from extentflow_local.stack.servers.kafka import Kafka
from extentflow_local.stack.servers.s3 import SeaweedS3
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET = "bench"
# Per partition. Records need not be retained, and should be deleted before they reach the disk.
TOPIC_CONFIG = {
    "retention.bytes": str(64 << 20),
    "segment.bytes": str(32 << 20),
    "file.delete.delay.ms": "1000",
}
SERVICES = (
    Kafka({"log.retention.check.interval.ms": "10000"}),
    SeaweedS3(),
    DynamoDbLocal(),
)
"""A stack that runs already is taken as it is; its broker looks for what may go every 5 minutes."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The parameters of the suite. `root` contains the stack and `var`.

    `scale` multiplies the amount of data, `pairs` is the number of counted rounds.
    """

    root: Path
    scale: float
    pairs: int
    notify: Notify

    @property
    def data(self) -> Path:
        """The folder of generated data sets, shared with the demo."""
        return self.root / "var" / "demo" / "data"


def start(terms: Terms) -> Rig:
    """Start the stack, if it is not running, and create the ledger's table."""
    Stack(terms.root, services=SERVICES, notify=terms.notify).up()
    return Rig.start(terms.root, terms.notify)


@contextmanager
def temporary_topic(rig: Rig, name: str, config: Mapping[str, str] = NO_CONFIG) -> Iterator[str]:
    """Create a topic with a small retention, and delete it afterwards."""
    rig.create_topic(name, {**TOPIC_CONFIG, **config})
    try:
        yield name
    finally:
        rig.delete_topics([name])


def end_of(kafka: Mapping[str, str], topic: str) -> int:
    """Return the sum of a topic's end offsets, including transaction markers."""
    admin = AdminClient({**kafka})
    partitions = admin.list_topics(topic).topics[topic].partitions
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    places = {TopicPartition(topic, number): latest for number in partitions}
    return sum(int(each.result().offset) for each in admin.list_offsets(places).values())


def forget(rig: Rig, connectors: Sequence[str]) -> None:
    """Stop connectors, so that no later component continues their jobs."""
    with WarmProcess.start("bench.processes.forget", rig.environment) as process:
        process.ask(connectors=list(connectors))


@dataclass(frozen=True, slots=True)
class Stand:
    """One case's environment on the running stack. `name` prefixes all its names."""

    rig: Rig
    name: str
    _s3: "S3Client"
    _tidy: ExitStack
    _connectors: list[str] = field(default_factory=list)
    _uploads: dict[Path, str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    @classmethod
    @contextmanager
    def open(cls, terms: Terms, case: str) -> Iterator["Stand"]:
        """Start the stack, if it is not running; remove the case's resources at the end."""
        rig = start(terms)
        s3 = rig.s3_client()
        with ExitStack() as tidy:
            tidy.callback(s3.close)
            stand = cls(rig, f"bench-{case}-{time.strftime('%Y%m%d-%H%M%S')}", s3, tidy)
            tidy.callback(forget, rig, stand._connectors)
            yield stand

    def fresh(self) -> str:
        """Return an unused name."""
        return f"{self.name}-{next(self._numbers)}"

    def topic(self, config: Mapping[str, str] = NO_CONFIG, name: str = "") -> str:
        """Create a topic for the case, of an unused name or this one; return its name."""
        made = temporary_topic(self.rig, name or self.fresh(), config)
        return self._tidy.enter_context(made)

    def connector(self, topic: str, config: Mapping[str, str]) -> str:
        """Store a connector under an unused name, for the case; return the name.

        It reads from the S3 server, unless `config` overrides that.
        """
        name = self.fresh()
        place = {} if "endpoint.type" in config else {"aws.s3.bucket.name": BUCKET}
        self.rig.put_connector({"name": name, "topic": topic, **place, **config})
        self._connectors.append(name)
        return name

    def upload(self, path: Path) -> str:
        """Upload a file, once per case; return its key."""
        if path not in self._uploads:
            key = f"{self.fresh()}/{path.name}"
            self.rig.upload(path, BUCKET, key)
            self._tidy.callback(self.remove, key)
            self._uploads[path] = key
        return self._uploads[path]

    def copy(self, key: str) -> str:
        """Copy an object within the server: the same bytes, not yet delivered; return its key."""
        copied = f"{self.fresh()}/{key.rpartition('/')[2]}"
        self._s3.copy({"Bucket": BUCKET, "Key": key}, BUCKET, copied)
        self._tidy.callback(self.remove, copied)
        return copied

    def remove(self, key: str) -> None:
        """Delete an object. Idempotent."""
        self._s3.delete_object(Bucket=BUCKET, Key=key)
        for path in [path for path, found in self._uploads.items() if found == key]:
            del self._uploads[path]

    def remove_all(self, prefix: str) -> None:
        """Delete the objects whose keys begin with a prefix."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        for key in [one["Key"] for page in pages for one in page.get("Contents", ())]:
            self._s3.delete_object(Bucket=BUCKET, Key=key)

    @contextmanager
    def filling(self, topic: str, rows: int) -> Iterator[None]:
        """Check that a topic receives at least `records` records inside the context.

        Raises:
            RuntimeError: it received fewer.
        """
        before = end_of(self.rig.kafka, topic)
        yield
        found = end_of(self.rig.kafka, topic) - before
        if found < rows:
            raise RuntimeError(f"{topic} was given {found:,} records of {rows:,}")
