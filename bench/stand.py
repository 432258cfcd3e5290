"""Where a case runs: the stack, and topics, objects and connectors that end with the case.

Owns: these errands and tidying up after them. Refuses to know: what is measured.
"""

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
from demo.rig import Rig

from bench.lane import Lane
from bench.pairs import Notify
from extentflow_local.services.dynamodb import DynamoDbLocal
from extentflow_local.services.kafka import Kafka
from extentflow_local.services.s3 import SeaweedS3
from extentflow_local.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET = "bench"
# Per partition. What nobody reads need not stay, and should go before it is written to the disk.
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
    """What a run of the suite was asked for. `root` is where the stack and `var` are.

    `scale` multiplies the amount of data, `pairs` are the laps that count.
    """

    root: Path
    scale: float
    pairs: int
    notify: Notify

    @property
    def data(self) -> Path:
        """Where generated data sets are kept, shared with the demo."""
        return self.root / "var" / "demo" / "data"


def start(terms: Terms) -> Rig:
    """Start the stack (harmless when it runs) and the ledger's table."""
    Stack(terms.root, services=SERVICES, notify=terms.notify).up()
    return Rig.start(terms.root, terms.notify)


@contextmanager
def temporary_topic(rig: Rig, name: str) -> Iterator[str]:
    """Create a topic that keeps little, and delete it afterwards."""
    rig.create_topic(name, TOPIC_CONFIG)
    try:
        yield name
    finally:
        rig.delete_topics([name])


def end_of(kafka: Mapping[str, str], topic: str) -> int:
    """Return the sum of a topic's end offsets, transactions' markers included."""
    admin = AdminClient({**kafka})
    partitions = admin.list_topics(topic).topics[topic].partitions
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    places = {TopicPartition(topic, number): latest for number in partitions}
    return sum(int(each.result().offset) for each in admin.list_offsets(places).values())


def forget(rig: Rig, connectors: Sequence[str]) -> None:
    """Let go of connectors, so that nobody goes on with what they began."""
    with Lane.start("bench.lanes.forget", rig.environment) as lane:
        lane.ask(connectors=list(connectors))


@dataclass(frozen=True, slots=True)
class Stand:
    """One case's place on the running stack. `name` begins the names of all that it makes."""

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
        """Start the stack (harmless when it runs); remove what the case made at the end."""
        rig = start(terms)
        s3 = rig.s3_client()
        with ExitStack() as tidy:
            tidy.callback(s3.close)
            stand = cls(rig, f"bench-{case}-{time.strftime('%Y%m%d-%H%M%S')}", s3, tidy)
            tidy.callback(forget, rig, stand._connectors)
            yield stand

    def fresh(self) -> str:
        """Return a name that nothing has yet."""
        return f"{self.name}-{next(self._numbers)}"

    def topic(self) -> str:
        """Create a topic, which goes with the case; return its name."""
        return self._tidy.enter_context(temporary_topic(self.rig, self.fresh()))

    def connector(self, topic: str, config: Mapping[str, str]) -> str:
        """Store a connector under a fresh name, which is returned. It goes with the case.

        It reads from the S3 server, unless `config` says otherwise.
        """
        name = self.fresh()
        place = {} if "endpoint.type" in config else {"aws.s3.bucket.name": BUCKET}
        self.rig.put_connector({"name": name, "topic": topic, **place, **config})
        self._connectors.append(name)
        return name

    def upload(self, path: Path) -> str:
        """Upload a file, once per case; return its key. The object goes with the case."""
        if path not in self._uploads:
            key = f"{self.fresh()}/{path.name}"
            self.rig.upload(path, BUCKET, key)
            self._tidy.callback(self.remove, key)
            self._uploads[path] = key
        return self._uploads[path]

    def copy(self, key: str) -> str:
        """Copy an object within the server: the same bytes, never delivered; return its key."""
        copied = f"{self.fresh()}/{key.rpartition('/')[2]}"
        self._s3.copy({"Bucket": BUCKET, "Key": key}, BUCKET, copied)
        self._tidy.callback(self.remove, copied)
        return copied

    def remove(self, key: str) -> None:
        """Delete an object; harmless when it is gone."""
        self._s3.delete_object(Bucket=BUCKET, Key=key)
        for path in [path for path, found in self._uploads.items() if found == key]:
            del self._uploads[path]

    @contextmanager
    def filling(self, topic: str, rows: int) -> Iterator[None]:
        """Look whether a topic is given at least so many records meanwhile, retained or not.

        Raises:
            RuntimeError: it is not.
        """
        before = end_of(self.rig.kafka, topic)
        yield
        found = end_of(self.rig.kafka, topic) - before
        if found < rows:
            raise RuntimeError(f"{topic} was given {found:,} records of {rows:,}")
