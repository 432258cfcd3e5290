"""Delivery to Kafka: the ports Broker, Fence and Sink, and the values that pass through them.

The package contains everything that uses confluent-kafka. Which slot an identity belongs to and
what progress means is left to `delivery`; the choice of settings to `wiring`.

    Broker.fence(identity) ──> Fence ──.read()──> what the slot's previous owner committed
                                  │
                                  ├──.mark(progress)   from now on no group means lost progress
                                  └──.open() ──> Sink ──.send(records)* ──.commit(progress)──┐
                                                   ^──────────────────────────────────────────┘
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Protocol, Self

import pyarrow as pa

from extentflow.kafka.record_headers import HeaderColumns, HeaderLists, Headers

# Brokers reject 4,096 characters with OFFSET_METADATA_TOO_LARGE.
METADATA_LIMIT_CHARACTERS = 4_095
_NO_PROGRESS = "progress metadata is no object of these fields"
PROGRESS_TOPIC = "extentflow.progress"
JOBS_TOPIC = "extentflow.jobs"
SCHEMAS_TOPIC = "extentflow.schemas"


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one topic, as columns.

    `values` and `keys` are binary arrays of equal length (a null is a Kafka null); `headers`, when
    given, has one entry per record. `timestamps` are milliseconds since 1970, 0 where the client's
    time is to be used; `partitions` are those of single records, -1 where `partition` holds.
    `partition` -1 means: librdkafka's Java-compatible partitioner
    chooses by key; without keys, and unless a setting decides, the sink does. Raises ValueError
    where other columns are not as many as the values.
    """

    topic: str
    values: pa.BinaryArray | pa.LargeBinaryArray
    keys: pa.BinaryArray | pa.LargeBinaryArray | None = None
    headers: Sequence[Headers] | None = None
    partition: int = -1
    timestamps: pa.Int64Array | None = None
    partitions: pa.Int32Array | None = None

    def __post_init__(self) -> None:
        for column in (self.keys, self.headers, self.timestamps, self.partitions):
            if column is not None and len(column) != len(self.values):
                raise ValueError(f"{len(self.values)} values with {len(column)} keys or headers")

    def slice(self, start: int, end: int) -> Self:
        """Return the records `[start, end)`, zero copy."""
        count = end - start

        def cut(array: pa.Array | None) -> pa.Array | None:
            return None if array is None else array.slice(start, count)

        return replace(
            self,
            values=cut(self.values),
            keys=cut(self.keys),
            headers=None if self.headers is None else self.headers[start:end],
            timestamps=cut(self.timestamps),
            partitions=cut(self.partitions),
        )

    def take(self, places: Sequence[int]) -> Self:
        """Return the records at these places, in that order."""
        indices = pa.array(places, pa.int64())

        def taken(array: pa.Array | None) -> pa.Array | None:
            return None if array is None else array.take(indices)

        headers = self.headers
        if isinstance(headers, HeaderColumns | HeaderLists):
            headers = headers.take(indices)
        elif headers is not None:
            headers = [headers[place] for place in places]
        return replace(
            self,
            values=taken(self.values),
            keys=taken(self.keys),
            headers=headers,
            timestamps=taken(self.timestamps),
            partitions=taken(self.partitions),
        )


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """One record that the client rejected (for example as too large); the others were queued."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class SlotProgress:
    """The state of a slot's extent as of one transaction, stored as the slot's group offset.

    An empty `job` is a marker: the slot was acquired under `epoch` and committed nothing since.
    `records`, `bad` and `filtered` are totals of the extent, not of the transaction.
    """

    epoch: int
    job: str = ""
    extent: int = 0
    position: int = 0
    records: int = 0
    bad: int = 0
    done: bool = False
    filtered: int = 0

    def to_metadata(self) -> str:
        """Return compact JSON for the offset's metadata field; the offset is the position."""
        members = asdict(self)
        if not self.filtered:
            # Workers of earlier versions, which may settle the slot, take it for foreign metadata.
            del members["filtered"]
        text = json.dumps(members, separators=(",", ":"))
        if len(text) > METADATA_LIMIT_CHARACTERS:
            raise ValueError(
                f"progress metadata has {len(text)} characters, at most "
                f"{METADATA_LIMIT_CHARACTERS} are allowed"
            )
        return text

    @classmethod
    def from_metadata(cls, metadata: str) -> Self:
        """Rebuild progress from an offset's metadata; ValueError if another client wrote it."""
        try:
            progress = cls(**json.loads(metadata))
        except (TypeError, RecursionError) as exc:
            raise ValueError(f"{_NO_PROGRESS}: {metadata!r}") from exc
        # Not isinstance: JSON's true would be a position.
        if any(type(getattr(progress, one.name)) is not one.type for one in fields(cls)):
            raise ValueError(f"{_NO_PROGRESS}: {metadata!r}")
        return progress


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Everything that two producers may differ in: a slot has one live producer at a time.

    `producer` are librdkafka keys (from `producer.*`); `exactly_once` False means an idempotent
    producer without transactions for the records. A single record over `max_message_bytes` is
    rejected; batches of several records stay below `max_batch_bytes`. Messages name `topic`, whose
    limits these are.
    """

    producer: Mapping[str, str] = field(default_factory=dict)
    exactly_once: bool = True
    max_message_bytes: int | None = None
    max_batch_bytes: int | None = None
    topic: str = field(default="", compare=False)

    def stated(self, rejected: Sequence[RejectedRecord]) -> Sequence[RejectedRecord]:
        """Return records that are too large with the setting that limits them, and the remedy."""
        limit, own = self.max_message_bytes, self.producer.get("message.max.bytes", "")
        if own.isdecimal() and (limit is None or int(own) < limit):
            why = f"producer.message.max.bytes is {own}; raise it"
        elif limit is not None:
            whose = f"topic {self.topic}" if self.topic else "the topic"
            why = f"max.message.bytes of {whose} is {limit}; raise it"
        else:
            return rejected
        return [replace(one, reason=f"{one.reason}: {why}") for one in rejected]


class Sink(Protocol):
    """A producer that owns a slot. Used by one thread, in the process that made it."""

    def send(self, records: Records) -> Sequence[RejectedRecord]:
        """Queue records in order; blocks while the client's queue is full.

        The first call after a commit begins the transaction. Values are copied or kept alive by
        the sink; the caller may drop the arrays. Returns the records that were rejected singly.
        Raises Fenced where another worker owns the slot, and SinkUnavailable where the broker is
        unavailable or the topic does not exist; RecordsRejected for records of earlier calls.
        """
        ...

    def commit(self, progress: SlotProgress) -> None:
        """Make all records since the last commit and `progress` one atomic fact.

        Also without records: the offset is part of *every* transaction (an empty commit would
        succeed on a fenced producer). At-least-once sinks flush instead and store nothing in
        Kafka; the ledger's position, written afterwards, is then the only one.

        Raises:
            Fenced: another worker owns the slot.
            SinkUnavailable: no answer. After either error the outcome is unknown (the answer of a
                successful commit may be lost): drop the sink, acquire the slot again, read Kafka.
            RecordsRejected: brokers judge a record as invalid, and reject its batch. Do the same.
        """
        ...

    def abort(self) -> None:
        """Discard everything since the last commit. Raises as `commit`."""
        ...

    def close(self) -> None:
        """Drop the client without committing; never raises, never blocks for long."""
        ...


class Fence(Protocol):
    """The identity of a slot on one Kafka cluster, after its previous producer was fenced."""

    def read(self) -> SlotProgress | None:
        """Return what the slot's previous owners last committed; None if the group is missing.

        Waits for the end of a pending commit (`require_stable`), then raises SinkUnavailable.
        """
        ...

    def mark(self, progress: SlotProgress) -> None:
        """Commit a transaction that carries only `progress`. Raises as `Sink.commit`."""
        ...

    def open(self) -> Sink:
        """Return the sink of this identity; the fence must not be used afterwards."""
        ...

    def close(self) -> None:
        """Drop the client if no sink was opened; never raises."""
        ...


class Broker(Protocol):
    """One Kafka cluster."""

    @property
    def cluster(self) -> str:
        """The id of the cluster, as its brokers report it."""
        ...

    def fence(self, identity: str, client: ProducerSettings) -> Fence:
        """Fence the previous producer of `identity` and abort its open transaction.

        `identity` is transactional id and consumer group at once. Raises SinkUnavailable where the
        broker did not answer within the timeout, and Misconfigured where client settings,
        credentials or permissions cannot work. Where brokers refuse transactions, it raises
        TransactionsRefused for exactly once. For at least once, it returns without a fence.
        """
        ...

    def present_topics(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the ids of those topics that exist, by name; empty where brokers have none.

        A topic that is created again has another id. Raises as `end_offsets`, but not for topics
        that do not exist.
        """
        ...

    def first_offsets(self, topic: str) -> Mapping[int, int]:
        """Return the first offset that each partition has: before it, records were deleted.

        Raises as `end_offsets`.
        """
        ...

    def end_offsets(self, topic: str) -> Mapping[int, int]:
        """Return the offset behind the last record of each partition, open transactions included.

        A record that is sent afterwards has this offset or a higher one. Raises Misconfigured
        without the topic or a permission, and SinkUnavailable where a broker did not answer.
        """
        ...
