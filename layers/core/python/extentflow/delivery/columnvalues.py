"""Records whose values hold many rows as columns: which rows, in which topic and partition.

rows of a chunk ──by topic and partition──> parts ──BatchCutter──> batches
  └ a record for each batch and group of columns
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from extentflow.arrays.buffers import RowErrors
from extentflow.arrays.layouts import require_known
from extentflow.columnar import BatchFacts
from extentflow.columnar.batches import BatchCutter
from extentflow.columnar.encryption import ColumnEncryption
from extentflow.columnar.groups import EncodedGroup, encoded_groups
from extentflow.columnar.partitions import ANY, by_keys
from extentflow.columnar.schemas import plain
from extentflow.columnar.values import to_plain
from extentflow.config.columnar import ColumnGroup
from extentflow.delivery.dead_letters import BATCH_BYTES, FRAME_BYTES
from extentflow.errors import Misconfigured
from extentflow.formats import StoredRows
from extentflow.kafka import Records
from extentflow.kafka.record_headers import Headers
from extentflow.model import Extent

# Ends of batches: how many records and how many rows of a chunk there are up to each.
Cuts = Sequence[tuple[int, int]]
_LONGEST_NUMBER = 10**19


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnValues:
    """How a connector makes columnar values.

    `limit_bytes` is the least `max.message.bytes` of the topics, `partitions` returns how many a
    topic has. `passes`: rows that nothing changes go into values as their object stores them;
    `codec`: only those that are compressed so (None: all). `encryption` of columns (None: all are
    plain) excludes that. `settle` makes a schema one of a
    topic's, and raises IncompatibleSchema where those before it exclude it.
    """

    encoding: str
    compression: str
    batch_bytes: int
    groups: tuple[ColumnGroup, ...]
    limit_bytes: int
    partitions: Callable[[str], int]
    passes: bool = False
    codec: str | None = None
    encryption: ColumnEncryption | None = None
    settle: Callable[[str, pa.Schema], None] = lambda _topic, _schema: None

    def bind(self, schema: pa.Schema, extent: Extent, unit: str, topic: str) -> "BoundColumnValues":
        """Return what makes the records of an extent, from batches of a schema.

        `topic` is that of rows that name no other. Raises UnsupportedType, as `settle`, and as the
        key service of the encryption.
        """
        for one in schema:
            require_known(one, one.name, canonical=True)
        columns = plain(schema)
        groups = encoded_groups(
            columns, self.groups, self.encoding, self.compression, encryption=self.encryption
        )
        cutter = BatchCutter(groups, self.batch_bytes, self.limit_bytes)
        made = BoundColumnValues(self, columns, groups, cutter, extent, unit)
        made.settle(topic)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBatch:
    """Rows to encode, and what is known of them beside their columns.

    `topics`, `keys` and `partitions` are of each row, where there are any; a null or ANY means that
    `topic` and `partition` hold. `headers` and `timestamp` are those of all records.
    """

    columns: pa.RecordBatch
    locations: Sequence[int]
    topic: str
    topics: pa.StringArray | None = None
    keys: pa.Array | None = None
    partitions: pa.Int32Array | None = None
    partition: int = ANY
    headers: Headers = ()
    timestamp: int | None = None

    @property
    def is_together(self) -> bool:
        """Whether all rows may be in one record."""
        return self.topics is None and self.keys is None and self.partitions is None


@dataclass(slots=True)
class _RecordBuilder:
    """Records under construction, and the ends of batches."""

    values: list[pa.Buffer]
    topics: list[str]
    partitions: list[int]
    headers: list[Headers]
    ends: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class BoundColumnValues:
    """Makes the records of one extent."""

    settings: ColumnValues
    schema: pa.Schema
    groups: Sequence[EncodedGroup]
    cutter: BatchCutter
    extent: Extent
    unit: str
    settled: set[str] = field(default_factory=set)

    def settle(self, topic: str) -> None:
        """Settle the schemas of rows of a topic, before the first one. Raises as `bind`."""
        if topic in self.settled:
            return
        for group in self.groups:
            own = pa.schema([self.schema.field(name) for name in group.columns])
            self.settings.settle(group.topic(topic), own)
        self.settled.add(topic)

    def __call__(self, rows: RowBatch) -> tuple[Records, pa.StringArray | None, Cuts]:
        """Return the records of rows, the topic of each, and where decoding may continue.

        The topics are None where all records have the topic of the rows. Raises CorruptRecord for
        the rows of which no value can be made, all of them at once.
        """
        columns = to_plain(rows.columns, self.schema)
        for group in self.groups:
            group.observe(columns)
        self.cutter.limit_bytes = self.most_bytes(rows.headers)
        made = _RecordBuilder([], [], [], [], [])
        with RowErrors() as errors:
            for topic, partition, places in self._parts(rows):
                part = columns if places is None else columns.take(pa.array(places))
                rows_of = None if places is None else places.__getitem__
                with errors.collect(rows_of=rows_of):
                    self._add(made, rows, part, (topic, partition, places))
        if not rows.is_together:
            # Its batches hold rows from everywhere in the chunk.
            made.ends[:] = [(len(made.values), len(rows.locations))] if made.values else []
        count = len(made.values)
        times = None if rows.timestamp is None else pa.repeat(pa.scalar(rows.timestamp), count)
        records = Records(
            rows.topic,
            _joined(made.values),
            headers=made.headers,
            partitions=pa.array(made.partitions, pa.int32()),
            timestamps=times,
        )
        alone = all(topic == rows.topic for topic in made.topics)
        return records, None if alone else pa.array(made.topics, pa.string()), made.ends

    def stored(
        self,
        rows: StoredRows,
        topic: str,
        partition: int,
        headers: Headers,
        *,
        timestamp: int | None,
    ) -> Records:
        """Return the record of rows as their object stores them; there is one group of columns."""
        first, last = int(rows.locations[0]), int(rows.locations[-1])
        facts = self._facts(rows=len(rows.locations), first=first, last=last)
        own = replace(facts, schema=self.groups[0].schema)
        return Records(
            topic,
            pa.array([rows.value], pa.large_binary()),
            headers=[[*own.headers(), *headers]],
            partition=partition,
            timestamps=None if timestamp is None else pa.array([timestamp]),
        )

    def _add(
        self,
        made: _RecordBuilder,
        rows: RowBatch,
        part: pa.RecordBatch,
        place: tuple[str, int, NDArray[np.int64] | None],
    ) -> None:
        topic, partition, places = place
        self.settle(topic)
        for batch in self.cutter.cut(part):
            first, last = batch.start, batch.end - 1
            if places is not None:
                first, last = int(places[first]), int(places[last])
            facts = self._facts(
                rows=batch.end - batch.start,
                first=int(rows.locations[first]),
                last=int(rows.locations[last]),
            )
            chosen = self._aligned(topic, facts.batch, partition)
            for group, value in zip(self.groups, batch.values, strict=True):
                own = replace(
                    facts,
                    schema=group.schema,
                    group=group.group.name,
                    encrypted=group.encrypted,
                )
                made.values.append(value)
                made.topics.append(group.topic(topic))
                made.partitions.append(chosen)
                made.headers.append([*own.headers(), *rows.headers])
            made.ends.append((len(made.values), batch.end))

    def _facts(self, *, rows: int, first: int, last: int) -> BatchFacts:
        extent = self.extent
        return BatchFacts(
            encoding=self.settings.encoding,
            rows=rows,
            schema="",
            batch=f"{extent.job}-{extent.ordinal}-{first}",
            object=extent.version.address,
            version=extent.version.version_id or extent.version.etag,
            extent=f"{extent.start}-{extent.end}",
            first=first,
            last=last,
            unit=self.unit,
        )

    def most_bytes(self, headers: Headers) -> int:
        """Return the limit of a value: that of the topic without frames and headers."""
        longest = self._facts(rows=_LONGEST_NUMBER, first=_LONGEST_NUMBER, last=_LONGEST_NUMBER)
        name = max((one.group.name for one in self.groups), key=len)
        schema = self.groups[0].schema
        hidden = tuple(one for group in self.groups for one in group.encrypted)
        facts = replace(longest, group=name, schema=schema, encrypted=hidden)
        written = [*facts.headers(), *headers]
        size = sum(len(key) + len(value or b"") + FRAME_BYTES for key, value in written)
        return max(1, self.settings.limit_bytes - size - FRAME_BYTES - BATCH_BYTES)

    def _aligned(self, topic: str, batch: str, partition: int) -> int:
        """Return the partition of a batch: with groups, the same in the topics of all of them."""
        if not self.settings.groups:
            return partition
        count = self._count(topic)
        return zlib.crc32(batch.encode()) % count if partition == ANY else partition

    def _count(self, topic: str) -> int:
        """Return how many partitions the topics of a batch have: the same in each."""
        topics = [group.topic(topic) for group in self.groups]
        counts = {each: self.settings.partitions(each) for each in topics}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{each} has {count}" for each, count in counts.items())
            raise Misconfigured(
                f"{self.extent.uri}: the topics of columnar.groups need the same number of"
                f" partitions: {listed}; add partitions"
            )
        return counts[topics[0]]

    def _parts(self, rows: RowBatch) -> Iterator[tuple[str, int, NDArray[np.int64] | None]]:
        """Yield topic, partition and the rows of each part; None: all rows."""
        if rows.is_together:
            yield rows.topic, rows.partition, None
            return
        count = len(rows.locations)
        codes, names = np.zeros(count, np.int64), [rows.topic]
        if rows.topics is not None:
            encoded = rows.topics.fill_null(rows.topic).dictionary_encode()
            codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            names = encoded.dictionary.to_pylist()
        for code, topic in enumerate(names):
            places = np.flatnonzero(codes == code)
            chosen = self._partitions_of(rows, topic, places)
            for partition in np.unique(chosen):
                yield topic, int(partition), places[chosen == partition]

    def _partitions_of(
        self, rows: RowBatch, topic: str, places: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Return the partition of each row, as records of single rows would have it."""
        chosen = np.full(len(places), ANY, np.int32)
        if rows.partitions is not None:
            chosen = rows.partitions.fill_null(ANY).to_numpy(zero_copy_only=False)[places]
        if rows.keys is not None:
            keyed = by_keys(rows.keys.take(pa.array(places)), self._count(topic))
            chosen = np.where(chosen == ANY, keyed, chosen)
        return np.where(chosen == ANY, np.int32(rows.partition), chosen)


def _joined(values: Sequence[pa.Buffer]) -> pa.LargeBinaryArray:
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([value.size for value in values], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(values), buffers)
