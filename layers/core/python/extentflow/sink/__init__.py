"""How records reach Kafka: the Sink, Fence and Broker ports and what travels through them.

Owns: the contracts, the shape of progress metadata. Refuses to know: librdkafka, the ledger,
formats.

    Broker.fence(identity) ──> Fence ──.read()──> what the slot's last owner committed
                                  │
                                  ├──.mark(progress)   from now on a missing group is lost knowledge
                                  └──.open() ──> Sink ──.send(records)* ──.commit(progress)──┐
                                                   ^──────────────────────────────────────────┘
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

import pyarrow as pa

METADATA_LIMIT_CHARACTERS = 4_095
PROGRESS_TOPIC = "extentflow.progress"
JOBS_TOPIC = "extentflow.jobs"

Headers = Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one topic, as columns.

    `values` and `keys` are binary arrays of equal length (a null is a Kafka null); `headers`, when
    given, has one entry per record; `partition` -1 leaves the choice to the client's
    Java-compatible partitioner; without keys, and unless a setting says more, to the sink.
    """

    topic: str
    values: pa.BinaryArray | pa.LargeBinaryArray
    keys: pa.BinaryArray | pa.LargeBinaryArray | None = None
    headers: Sequence[Headers] | None = None
    partition: int = -1


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """One record that the client would not take (for example: too large); the rest went on."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class SlotProgress:
    """What a slot's group offset says: how far its extent has come, as of one transaction.

    `job` empty is a marker: the slot was acquired under `epoch` and nothing committed since.
    `records` and `bad` are totals of the extent, not of the transaction.
    """

    epoch: int
    job: str = ""
    extent: int = 0
    position: int = 0
    records: int = 0
    bad: int = 0
    done: bool = False

    def to_metadata(self) -> str:
        """Return compact JSON for the offset's metadata field (the position is the offset)."""
        fields = (self.epoch, self.job, self.extent, self.position, self.records, self.bad)
        names = ("epoch", "job", "extent", "position", "records", "bad")
        text = json.dumps(
            {**dict(zip(names, fields, strict=True)), "done": self.done}, separators=(",", ":")
        )
        if len(text) > METADATA_LIMIT_CHARACTERS:
            raise ValueError(f"progress metadata has {len(text)} characters, Kafka takes 4,095")
        return text

    @classmethod
    def from_metadata(cls, metadata: str) -> Self:
        """Rebuild progress from an offset's metadata.

        Raises:
            ValueError: not what extentflow writes.
        """
        fields = json.loads(metadata)
        if not isinstance(fields, dict):
            raise ValueError(f"progress metadata is not an object: {metadata!r}")  # noqa: TRY004
        try:
            return cls(**fields)
        except TypeError as exc:
            raise ValueError(f"progress metadata has other fields: {metadata!r}") from exc


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """What makes two producers different: one live producer per slot and settings.

    `producer` are librdkafka keys (from `producer.*`); `exactly_once` False asks for an idempotent
    producer without transactions for the records. A record over `max_message_bytes` is refused by
    itself; batches of several stay below `max_batch_bytes`, for topics that take less. `topic` is
    whose limit that is: messages name it, and producers do not differ by it.
    """

    producer: Mapping[str, str] = field(default_factory=dict)
    exactly_once: bool = True
    max_message_bytes: int | None = None
    max_batch_bytes: int | None = None
    topic: str = field(default="", compare=False)


class Sink(Protocol):
    """A producer that owns a slot. Used by one thread, in the process that made it."""

    def send(self, records: Records) -> Sequence[RejectedRecord]:
        """Hand records to the client, in order; blocks while its queue is full.

        The first call after a commit begins the transaction. Values are copied or kept alive by
        the sink; the caller may drop the arrays. Returns the records that were refused one by one.

        Raises:
            Fenced: somebody else owns the slot.
            SinkUnavailable: the broker is away, or the topic does not exist (the message says so).
        """
        ...

    def commit(self, progress: SlotProgress) -> None:
        """Make all records since the last commit and `progress` one atomic fact.

        Also without records: the offset is part of *every* transaction (an empty commit would
        succeed on a fenced producer). At-least-once sinks flush instead and store nothing in
        Kafka; the ledger's position, written afterwards, is then the only one.

        Raises:
            Fenced: somebody else owns the slot by now.
            SinkUnavailable: no answer. After either the outcome is unknown (the answer of a commit
                that happened may be lost): drop the sink, acquire anew, let Kafka tell.
        """
        ...

    def abort(self) -> None:
        """Discard everything since the last commit. Raises as `commit`."""
        ...

    def close(self) -> None:
        """Let go of the client without committing; never raises, never blocks for long."""
        ...


class Fence(Protocol):
    """A slot's identity on one Kafka cluster, taken over from whoever had it."""

    def read(self) -> SlotProgress | None:
        """Return what the slot's previous owners last committed; None where the group is gone.

        Waits out a pending commit (`require_stable`).

        Raises:
            SinkUnavailable: no stable answer within the time-out.
        """
        ...

    def mark(self, progress: SlotProgress) -> None:
        """Commit a transaction that carries only `progress`. Raises as `Sink.commit`."""
        ...

    def open(self) -> Sink:
        """Return the sink to work through; the fence is of no use afterwards."""
        ...

    def close(self) -> None:
        """Let go of the client where no sink was opened; never raises."""
        ...


class Broker(Protocol):
    """One Kafka cluster."""

    @property
    def cluster(self) -> str:
        """The cluster's id, as brokers report it."""
        ...

    def fence(self, identity: str, client: ProducerSettings) -> Fence:
        """Fence the previous producer of `identity` and abort its open transaction.

        `identity` is transactional id and consumer group at once.

        Raises:
            SinkUnavailable: the broker did not answer within the time-out.
            Misconfigured: client settings, credentials or permissions cannot work.
        """
        ...
