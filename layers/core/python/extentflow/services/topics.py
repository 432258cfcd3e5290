"""What topics hold, in rows: the first ones, the last ones, and how many."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types

from extentflow.columnar import ENCODING, BatchFacts, is_columnar
from extentflow.consumer.row_batches import ConsumedBatch, place
from extentflow.consumer.value_reader import ValueReader
from extentflow.converters import open_converter
from extentflow.errors import Misconfigured, located
from extentflow.formats.parquet.column_keys import KeyService
from extentflow.kafka.reading import ConsumedRecord
from extentflow.kafka.record_headers import by_name
from extentflow.services.run_control import Counting, uncounted

DIGEST_BYTES = 16
# How many records before the end of each partition are read at first for the last rows.
FIRST_RECORDS, GROWTH = 4, 8


@dataclass(frozen=True, slots=True)
class ShownRow:
    """One row and its place: the ordinal within its record, 0 where a record is a row."""

    partition: int
    offset: int
    row: int
    timestamp: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class TopicCount:
    """How many rows and records a topic holds; `objects` are those that headers name, with rows.

    `distinct` counts different keys, None where no key was asked for; `doubled` the rows beyond the
    first of their key.
    """

    topic: str
    rows: int
    records: int
    partitions: int
    objects: Mapping[str, int]
    distinct: int | None = None
    doubled: int | None = None


@dataclass(slots=True)
class Digests:
    """Digests of rows, 16 bytes each, by which rows are compared whatever their order."""

    _parts: list[bytes] = field(default_factory=list)

    def add(self, values: pa.Array) -> None:
        """Add the digests of values; those of nulls are those of empty ones."""
        digests = (
            hashlib.blake2b(b"" if value is None else value, digest_size=DIGEST_BYTES).digest()
            for value in values.to_pylist()
        )
        self._parts.append(b"".join(digests))

    def __len__(self) -> int:
        return sum(map(len, self._parts)) // DIGEST_BYTES

    def counted(self) -> tuple[NDArray[np.void], NDArray[np.int64]]:
        """Return the different digests in order, and how often there is each of them."""
        found = np.frombuffer(b"".join(self._parts), np.dtype((np.void, DIGEST_BYTES)))
        self._parts = [found.tobytes()]
        return np.unique(found, return_counts=True)

    def and_of(self, others: "Digests") -> "Digests":
        """Return these digests and others."""
        return Digests([*self._parts, *others._parts])  # noqa: SLF001 - of this class


class ReadableBroker(Protocol):
    """The calls to Kafka that read topics."""

    def first_offsets(self, topic: str) -> Mapping[int, int]:
        """Return the first offset of each partition; Misconfigured where there is no such topic."""

    def end_offsets(self, topic: str) -> Mapping[int, int]:
        """Return the end of each partition; Misconfigured where there is no such topic."""

    def read_from(
        self,
        topic: str,
        begin: Mapping[int, int],
        *,
        end: Mapping[int, int],
        group: str,
        follow: bool = False,
    ) -> Iterator[list[ConsumedRecord]]:
        """Yield the committed records of the partitions of `begin`, up to `end`.

        Raises PositionGone where records were deleted before they were read.
        """


@dataclass(frozen=True, slots=True)
class Topics:
    """Reads the topics of a cluster; only committed records count.

    Records that a topic has at the start of a call are read, or PositionGone says that they were
    deleted before they were read. `group` returns the name of a reader's group. `keys` decrypt
    columns; without, reading encrypted ones raises AccessDenied.
    """

    broker: ReadableBroker
    group: Callable[[], str]
    keys: KeyService | None = None

    def tail(
        self, topic: str, *, rows: int, columns: Sequence[str] | None = None, follow: bool = False
    ) -> Iterator[ShownRow]:
        """Yield the last rows of a topic, at most `rows`, in the order of their records' time.

        With `follow`, then those that arrive, for ever. Raises as `ValueReader`.
        """
        ends, firsts = self.broker.end_offsets(topic), self.broker.first_offsets(topic)
        reader, ahead = ValueReader(columns, keys=self.keys), FIRST_RECORDS
        while True:
            begins = {one: max(firsts.get(one, 0), end - ahead) for one, end in ends.items()}
            found = [one for part in self._read(topic, begins, ends) for one in part]
            if sum(rows_of(topic, one)[0] for one in found) >= rows:
                break
            if all(begin <= firsts.get(one, 0) for one, begin in begins.items()):
                break
            ahead *= GROWTH
        found.sort(key=lambda one: (one.timestamp, one.partition, one.offset))
        shown: list[ShownRow] = []
        for record in reversed(found):
            if len(shown) >= rows:
                break
            shown[:0] = _shown(reader, topic, [record], most=rows - len(shown))
        yield from shown
        if follow:
            for records in self._read(topic, ends, {}, follow=True):
                yield from _shown(reader, topic, records)

    def head(self, topic: str, *, rows: int, columns: Sequence[str] | None) -> Iterator[ShownRow]:
        """Yield the first `rows` rows of a topic, as they arrive. Raises as `tail`."""
        reader = ValueReader(columns, keys=self.keys)
        every = (row for records in self.read_all(topic) for row in _shown(reader, topic, records))
        yield from islice(every, rows)

    def count(
        self, topic: str, *, keys: Sequence[str] = (), counting: Counting = uncounted
    ) -> TopicCount:
        """Count the rows of a topic, and the different values of the columns `keys`.

        Without `keys`, no value is decoded. Keys take 16 bytes of memory for each row. `counting`
        shows how many Kafka records were read.
        """
        with counting("reading", "Kafka record") as show:
            return self._count(topic, keys, show)

    def _count(self, topic: str, keys: Sequence[str], show: Callable[[int], object]) -> TopicCount:
        ends = self.broker.end_offsets(topic)
        reader, digests = ValueReader(keys, keys=self.keys), Digests()
        objects: Counter[str] = Counter()
        rows = records_read = 0
        kinds: dict[str, str] = {}
        for records in self.read_all(topic, ends):
            records_read += len(records)
            show(records_read)
            for record in records:
                count, uri = rows_of(topic, record)
                rows += count
                if uri:
                    objects[uri] += count
            for batch in batches(reader, topic, records) if keys else ():
                for name, kind in _key_types(batch.rows.schema):
                    if kinds.setdefault(name, kind) != kind:
                        raise Misconfigured(
                            f"topic {topic}: the column {name} is {kinds[name]} at first, and at"
                            f" offset {batch.offset} of partition {batch.partition} {kind}; keys of"
                            " these types are not compared"
                        )
                with located(batch.place):
                    digests.add(comparable(batch.rows))
        found = TopicCount(topic, rows, records_read, len(ends), dict(objects))
        if not keys:
            return found
        _, counts = digests.counted()
        return replace(found, distinct=len(counts), doubled=int(counts.sum()) - len(counts))

    def read_all(
        self, topic: str, ends: Mapping[int, int] | None = None
    ) -> Iterator[list[ConsumedRecord]]:
        """Yield the records of a topic from its beginning to `ends` (None: those of now)."""
        ends = self.broker.end_offsets(topic) if ends is None else ends
        firsts = self.broker.first_offsets(topic)
        return self._read(topic, {one: firsts.get(one, 0) for one in ends}, ends)

    def _read(
        self,
        topic: str,
        begin: Mapping[int, int],
        end: Mapping[int, int],
        *,
        follow: bool = False,
    ) -> Iterator[list[ConsumedRecord]]:
        return self.broker.read_from(topic, begin, end=end, group=self.group(), follow=follow)


def _key_types(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Yield columns and what their types are as JSON: equal values of a kind have the same text.

    A column of nulls is of any kind. Floats of other sizes, instants of other units and decimals
    of other scales are written with other digits.
    """
    for column in schema:
        if types.is_integer(column.type):
            yield column.name, "an integer"
        elif types.is_string(column.type) or types.is_large_string(column.type):
            yield column.name, "text"
        elif types.is_decimal(column.type):
            yield column.name, f"a decimal with {column.type.scale} digits behind the point"
        elif not types.is_null(column.type):
            yield column.name, str(column.type)


def rows_of(topic: str, record: ConsumedRecord) -> tuple[int, str]:
    """Return how many rows a record has, and the object that its headers name."""
    headers = by_name(record.headers)
    if ENCODING not in headers:
        return int(record.value is not None), ""
    with located(place(topic, record.partition, record.offset)):
        facts = BatchFacts.of(record.headers)
    return (0, "") if facts is None else (facts.rows, facts.object)


def batches(
    reader: ValueReader, topic: str, records: Sequence[ConsumedRecord]
) -> Iterator[ConsumedBatch]:
    """Yield the rows of records, partition by partition. Raises as `ValueReader.read`."""
    by_partition: dict[int, list[ConsumedRecord]] = {}
    for record in records:
        by_partition.setdefault(record.partition, []).append(record)
    for part in by_partition.values():
        yield from reader.read(topic, part)


def _shown(
    reader: ValueReader,
    topic: str,
    records: Sequence[ConsumedRecord],
    most: int | None = None,
) -> Iterator[ShownRow]:
    """Yield rows as text: JSON of columnar values, other values as they are.

    At most the last `most` rows of each record.
    """
    for record in records:
        if not is_columnar(record.headers) and reader.columns is None:
            yield ShownRow(record.partition, record.offset, 0, record.timestamp, record.value)
            continue
        for batch in reader.read(topic, [record]):
            count = batch.rows.num_rows
            first = 0 if most is None else max(0, count - most)
            with located(batch.place):
                values = _as_json(batch.rows.slice(first))
            for row, value in enumerate(values.to_pylist(), first):
                yield ShownRow(record.partition, record.offset, row, record.timestamp, value)


def _as_json(rows: pa.RecordBatch) -> pa.Array:
    return open_converter("json", rows.schema)(rows)


def comparable(rows: pa.RecordBatch) -> pa.Array:
    """Return rows as JSON in which other values are other texts.

    JSON has null for numbers that are not finite, and no object with a name that occurs twice.
    """
    kinds = pa.schema([(each.name, _comparable_type(each.type)) for each in rows.schema])
    return _as_json(rows.cast(kinds))


def _comparable_type(kind: pa.DataType) -> pa.DataType:
    if types.is_floating(kind):
        return pa.string()
    if types.is_struct(kind):
        return pa.struct([(each.name, _comparable_type(each.type)) for each in kind])
    if types.is_map(kind):
        key, item = _comparable_type(kind.key_type), _comparable_type(kind.item_type)
        return pa.list_(pa.struct([("key", key), ("value", item)]))
    if types.is_fixed_size_list(kind):
        return pa.list_(_comparable_type(kind.value_type), kind.list_size)
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.large_list(_comparable_type(kind.value_type))
    return kind
