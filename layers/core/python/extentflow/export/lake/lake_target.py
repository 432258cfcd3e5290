"""What a lake target states: its columns, and the offsets up to which it holds topics.

target ──state──> TableState: columns, offsets, version
batch  ──remaining──> the part of a micro-batch that the target lacks, or none
target ──write(…, base=state)──> refused where another query wrote these topics meanwhile
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from extentflow.errors import Conflict, Misconfigured
from extentflow.export.lake.lake_rows import RowReader
from extentflow.kafka.reading import created_again, is_another

# Name of topic -> number of partition -> first offset that is not included.
Offsets = Mapping[str, Mapping[int, int]]
NO_OFFSETS: Final[Offsets] = {}
# Name of topic -> its id, which another topic of the same name does not have.
TopicIds = Mapping[str, str]
NO_IDS: Final[TopicIds] = {}
# In the summary of an Iceberg snapshot, and as a member of a manifest.
OFFSETS_KEY: Final = "extentflow.offsets"
EARLIEST: Final = -2  # as Spark's startingOffsets have it


def offsets_text(offsets: Offsets) -> str:
    """Return offsets as compact JSON, as Spark's Kafka source writes them."""
    plain = {
        topic: {str(one): offsets[topic][one] for one in sorted(offsets[topic])}
        for topic in sorted(offsets)
    }
    return json.dumps(plain, separators=(",", ":"))


def read_offsets(text: str) -> Offsets:
    """Return the offsets that `offsets_text` or Spark's Kafka source wrote."""
    found: dict[str, dict[str, int]] = json.loads(text)
    return {
        topic: {int(one): int(end) for one, end in parts.items()} for topic, parts in found.items()
    }


def advanced(offsets: Offsets, ends: Offsets) -> Offsets:
    """Return `offsets` with those of `ends` in their place."""
    return {
        topic: {**offsets.get(topic, {}), **ends.get(topic, {})}
        for topic in [*offsets, *(one for one in ends if one not in offsets)]
    }


@dataclass(frozen=True, slots=True)
class Batch:
    """The ranges `[start, end)` of a micro-batch; a partition without a start is new."""

    start: Offsets
    end: Offsets

    def remaining(self, held: Offsets, where: str, *, begins: bool = True) -> Batch | None:
        """Return the part that a target with the offsets `held` lacks; None: it has all.

        Its ends are never before what the target holds, which another checkpoint may have advanced.

        `begins`: partitions that the target does not hold may start anywhere, because the query
        began there. Raises Conflict where the batch starts behind what the target holds: rows would
        be lost.
        """
        start: dict[str, dict[int, int]] = {}
        behind: dict[str, dict[int, int]] = {}
        lacking = False
        for topic, ends in self.end.items():
            for partition, end in ends.items():
                first = self.start.get(topic, {}).get(partition, 0)
                own = held.get(topic, {}).get(partition)
                if (own is None and first > 0 and not begins) or (own is not None and own < first):
                    holds = f"up to offset {own}" if own is not None else "not at all"
                    raise Conflict(
                        f"{where} holds topic {topic}[{partition}] {holds}, and Spark's"
                        f" checkpoint continues at {first}: the table was restored, or the"
                        " checkpoint belongs to another table. Delete the checkpoint, or leave"
                        " --checkpoint out: the target states where to continue"
                    )
                start.setdefault(topic, {})[partition] = max(first, own or 0)
                behind.setdefault(topic, {})[partition] = max(end, own or 0)
                lacking |= end > max(first, own or 0)
        return Batch(start, behind) if lacking else None


@dataclass(frozen=True, slots=True)
class TableState:
    """What a target holds; `columns` None: it has none yet. `version` is the target's own.

    `doubts` has the topics of which the target may have rows, without a statement that counts.
    `ids` are those of the topics of `offsets`, and of those that the query writes, where known.
    """

    columns: pa.Schema | None = None
    offsets: Offsets = field(default_factory=dict)
    version: Any = None
    doubts: Offsets = field(default_factory=dict)
    ids: TopicIds = field(default_factory=dict)

    def require_same(self, now: TopicIds, where: str) -> None:
        """Raise Conflict where a topic has another id now than in this state."""
        for topic in now.keys() & self.ids.keys():
            if is_another(self.ids[topic], now[topic]):
                raise Conflict(
                    f"{where}: {created_again(topic, self.ids[topic], now[topic])}. Nothing of the"
                    " new topic is written; the next start says how it continues"
                )

    def of_topics(self, now: TopicIds) -> TableState:
        """Return the state with the ids that topics have now; others keep theirs."""
        return replace(self, ids={**self.ids, **known(now)})


def known(ids: TopicIds) -> TopicIds:
    """Return the ids that are not empty: brokers before Kafka 2.8 have none."""
    return {topic: one for topic, one in ids.items() if one}


@dataclass(frozen=True, slots=True)
class Doubt:
    """Topics of which a target may have rows: up to `upper`, or only up to `lower`.

    `why` are sentences about both. Without topics, there is no doubt.
    """

    upper: Offsets = field(default_factory=dict)
    lower: Offsets = field(default_factory=dict)
    why: str = ""

    @classmethod
    def of_ids(cls, state: TableState, now: TopicIds) -> Doubt:
        """Return which topics of `state` are others now, by their ids."""
        again = {
            topic: created_again(topic, state.ids[topic], now[topic])
            for topic in now.keys() & state.ids.keys() & state.offsets.keys()
            if is_another(state.ids[topic], now[topic])
        }
        if not again:
            return cls()
        upper = {topic: state.offsets[topic] for topic in sorted(again)}
        lower: Offsets = {topic: {} for topic in upper}
        return cls(
            upper,
            lower,
            f"{', '.join(again[topic] for topic in upper)}. It has rows of the topic before, up to"
            f" {offsets_text(upper)}, and there may be other records at these offsets now",
        )

    def joined(self, other: Doubt) -> Doubt:
        """Return both doubts as one."""
        if not (self.upper and other.upper):
            return self if self.upper else other
        return Doubt(
            {**other.upper, **self.upper},
            {**other.lower, **self.lower},
            f"{self.why}. And {other.why}",
        )

    def settled(self, where: str, stated: Offsets | None) -> Offsets | None:
        """Return what a person stated for these topics; None: nothing is in doubt.

        Raises as `Target.open`.
        """
        if self.upper:
            if stated is None or stated.keys() != self.upper.keys():
                raise Conflict(
                    f"{where}: {self.why}. Find out which of these rows it has, and state it once."
                    f" All of them: --continue-at '{offsets_text(self.upper)}'. None of them:"
                    f" --continue-at '{offsets_text(self.lower)}'. Some: the offsets behind them"
                )
            return stated
        if stated is not None:
            raise Misconfigured(
                f"--continue-at: {where} states itself where its topics continue; leave the option"
                " out"
            )
        return None


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a write: the state behind it, and how many rows it added."""

    state: TableState
    rows: int


class Target(Protocol):
    """Where rows go. All methods are called on the driver, by one thread."""

    @property
    def where(self) -> str:
        """The target's address, for messages."""
        ...

    @property
    def spark(self) -> bool:
        """Whether rows pass through Spark's own types."""
        ...

    def open(
        self, topics: Sequence[str], stated: Offsets | None = None, ids: TopicIds = NO_IDS
    ) -> TableState:
        """Repair what a killed query left, and return what the target holds.

        `ids` are those that the topics have now.

        Raises Conflict where its history does not decide up to where it holds these topics, or one
        of them was created again, unless a person has `stated` it. Raises Misconfigured for a
        statement that it does not need.
        """
        ...

    def grow(self, columns: pa.Schema, state: TableState) -> TableState:
        """Create the table, or give it these columns; return its state then."""
        ...

    def write(
        self,
        records: DataFrame,
        batch: Batch,
        state: TableState,
        reader: RowReader,
        confirm: Callable[[], None],
    ) -> WriteResult:
        """Add the rows of Kafka records, and the offsets, in one commit on top of `state`.

        `records` has the columns of `rows.KAFKA_COLUMNS`, and only those of `batch`. `reader`
        decodes them, in tasks, to the columns of `state`. `confirm` raises where the records are
        not those of the topics of `state`: it is called when they are read, before the commit.
        Where Spark reads and commits in one step, it is called before that.

        Raises as `confirm`, Conflict where the offsets of these topics are not those of `state` any
        more, and otherwise what tasks raise: SchemaGrown among them.
        """
        ...
