"""What topics hold, in rows: the last ones, how many, and whether they are those of objects."""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types

from extentflow.columnar import ENCODING, BatchFacts, is_columnar
from extentflow.columnar.values import decode
from extentflow.config.columnar import ARROW, REST
from extentflow.config.columnar import NONE as ROWS
from extentflow.config.connector import ConnectorConfig
from extentflow.consumer.row_batches import ConsumedBatch, place
from extentflow.consumer.value_reader import ValueReader
from extentflow.converters import open_converter
from extentflow.delivery.dead_letters import describe
from extentflow.delivery.pipeline import ConvertedChunk
from extentflow.errors import (
    CorruptRecord,
    Misconfigured,
    Permanent,
    contain_defects,
    located,
)
from extentflow.formats.parquet.column_keys import KeyService
from extentflow.jobs.addresses import KeyScope, select_all
from extentflow.kafka.reading import ConsumedRecord
from extentflow.kafka.record_headers import by_name
from extentflow.model import ObjectVersion
from extentflow.wiring import Runtime
from extentflow.wiring.extents import preview
from extentflow.wiring.options import job_request

# Opens the display of a number: what is done, and of what; as `RunProgress.counting`.
Counting: TypeAlias = Callable[[str, str], AbstractContextManager[Callable[[int], object]]]
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


@dataclass(frozen=True, slots=True)
class Verification:
    """Rows of objects compared with those of a topic, by their contents.

    `missing` rows of the objects are not in the topic, `unexpected` ones of the topic are not in
    the objects, or there more often. `others` rows of the topic belong to other objects, and
    `unnamed` ones to objects that no header names.
    """

    topic: str
    objects: int
    expected: int
    found: int
    missing: int
    unexpected: int
    others: int
    unnamed: int = 0

    @property
    def equal(self) -> bool:
        """Whether each row is there, once."""
        return not (self.missing or self.unexpected)


@dataclass(slots=True)
class _Digests:
    """Digests of rows, 16 bytes each, by which rows are compared whatever their order."""

    _parts: list[bytes] = field(default_factory=list)

    def add(self, values: pa.Array) -> None:
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

    def and_of(self, others: "_Digests") -> "_Digests":
        """Return these digests and others."""
        return _Digests([*self._parts, *others._parts])  # noqa: SLF001 - of this class


# Columns by their group; None: all of them.
_Groups: TypeAlias = dict[str, tuple[str, ...] | None]


@dataclass(slots=True)
class _TopicRows:
    """The rows that a topic holds: values of rows, and those of columnar values of some objects.

    `columns` has the groups of these objects; `others` counts rows of other objects.
    """

    rows: _Digests = field(default_factory=_Digests)
    columnar: _Digests = field(default_factory=_Digests)
    columns: dict[str, _Groups] = field(default_factory=dict)
    others: int = 0


@dataclass(frozen=True, slots=True)
class Topics:
    """Reads the topics of a runtime's cluster; only committed records count.

    `keys` decrypt columns; without, reading encrypted ones raises AccessDenied.
    """

    runtime: Runtime
    keys: KeyService | None = None

    def tail(
        self, topic: str, *, rows: int, columns: Sequence[str] | None = None, follow: bool = False
    ) -> Iterator[ShownRow]:
        """Yield the last rows of a topic, at most `rows`, in the order of their records' time.

        With `follow`, then those that arrive, for ever. Raises as `ValueReader`.
        """
        ends = self.runtime.broker.end_offsets(topic)
        reader, ahead = ValueReader(columns, keys=self.keys), FIRST_RECORDS
        while True:
            begins = {one: max(0, end - ahead) for one, end in ends.items()}
            found = [one for part in self._read(topic, begins, ends) for one in part]
            if sum(_rows_of(topic, one)[0] for one in found) >= rows or not any(begins.values()):
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
        every = (row for records in self._all(topic) for row in _shown(reader, topic, records))
        yield from islice(every, rows)

    def count(self, topic: str, *, keys: Sequence[str] = ()) -> TopicCount:
        """Count the rows of a topic, and the different values of the columns `keys`.

        Without `keys`, no value is decoded. Keys take 16 bytes of memory for each row.
        """
        ends = self.runtime.broker.end_offsets(topic)
        reader, digests = ValueReader(keys, keys=self.keys), _Digests()
        objects: Counter[str] = Counter()
        rows = records_read = 0
        kinds: dict[str, str] = {}
        for records in self._all(topic, ends):
            records_read += len(records)
            for record in records:
                count, uri = _rows_of(topic, record)
                rows += count
                if uri:
                    objects[uri] += count
            for batch in _batches(reader, topic, records) if keys else ():
                for name, kind in _key_types(batch.rows.schema):
                    if kinds.setdefault(name, kind) != kind:
                        raise Misconfigured(
                            f"topic {topic}: the column {name} is {kinds[name]} at first, and at"
                            f" offset {batch.offset} of partition {batch.partition} {kind}; keys of"
                            " these types are not compared"
                        )
                with located(batch.place):
                    digests.add(_comparable(batch.rows))
        found = TopicCount(topic, rows, records_read, len(ends), dict(objects))
        if not keys:
            return found
        _, counts = digests.counted()
        return replace(found, distinct=len(counts), doubled=int(counts.sum()) - len(counts))

    def verify(
        self,
        topic: str,
        config: ConnectorConfig,
        revision: int,
        addresses: Sequence[str],
        *,
        counting: Counting = lambda _what, _of: nullcontext(lambda _done: None),
    ) -> Verification:
        """Compare the rows of objects, as the connector delivers them, with those of a topic.

        An object that headers of columnar values name is compared by columns, whatever the encoding
        of the connector; of column groups, the columns of the topic's group. Others are compared as
        values of rows; these do not name their object, so that all of the topic count. `counting`
        opens the display of a number of Kafka records or objects. Rows take 32 bytes of memory.
        Raises Misconfigured where the addresses name no object, and as decoding does.
        """
        ends = self.runtime.broker.end_offsets(topic)
        store = self.runtime.objects.store(config, revision)
        versions = {
            replace(version, version_id=None).uri: version
            for version in select_all(store, KeyScope.of(config), addresses)
        }
        if not versions:
            raise Misconfigured(f"there is no object below {addresses[0]}; check the address")
        with counting("reading", "Kafka record") as show:
            held = self._held(topic, ends, versions, show)
        expected, as_rows = _Digests(), False
        with counting("comparing", "object") as show:
            for done, (uri, version) in enumerate(versions.items()):
                show(done)
                groups = held.columns.get(uri)
                if groups is None and config.columnar and not len(held.rows):
                    groups = {"": None}
                as_rows |= groups is None
                for values in self._delivered(config, revision, version, topic, groups):
                    expected.add(values)
        found, unnamed = held.columnar, len(held.rows)
        if as_rows:
            found, unnamed = found.and_of(held.rows), 0
        missing, unexpected = _difference(expected, found)
        return Verification(
            topic=topic,
            objects=len(versions),
            expected=len(expected),
            found=len(found),
            missing=missing,
            unexpected=unexpected,
            others=held.others,
            unnamed=unnamed,
        )

    def _held(
        self,
        topic: str,
        ends: Mapping[int, int],
        uris: Collection[str],
        show: Callable[[int], object],
    ) -> _TopicRows:
        """Read the rows of a topic, those of columnar values only of the objects `uris`."""
        held, reader, done = _TopicRows(), ValueReader(keys=self.keys), 0
        for records in self._all(topic, ends):
            show(done)
            done += len(records)
            rows = [one.value for one in records if not is_columnar(one.headers)]
            held.rows.add(pa.array(rows, pa.large_binary()))
            of_objects = []
            for record in records:
                if is_columnar(record.headers):
                    count, uri = _rows_of(topic, record)
                    if uri in uris:
                        of_objects.append(record)
                    else:
                        held.others += count
            for batch in _batches(reader, topic, of_objects):
                if batch.facts is not None:
                    group = batch.facts.group
                    columns = tuple(batch.rows.schema.names) if group else None
                    held.columns.setdefault(batch.facts.object, {})[group] = columns
                    with located(batch.place):
                        held.columnar.add(_comparable(batch.rows))
        return held

    def _delivered(
        self,
        config: ConnectorConfig,
        revision: int,
        version: ObjectVersion,
        topic: str,
        groups: _Groups | None,
    ) -> Iterator[pa.Array]:
        """Yield the values of an object's rows; of columnar ones, those of `groups`, as JSON."""
        runtime = self.runtime
        if groups is None:
            config = replace(
                config, columnar_encoding=ROWS, columnar_groups=(), columnar_encryption_columns=()
            )
        else:
            groups = {name: _stated(config, topic, name) or groups[name] for name in groups}
            topic, config = _in_one_value(config, topic, next(iter(groups)))
        content = runtime.objects.recognised(config, revision, version)
        request = job_request(config, revision, version, "none", 1, content=content)
        if request.unfit:
            raise Permanent(request.unfit)
        job, extents = runtime.planner().dry_run(request)
        for extent in extents:
            with contain_defects(version.uri):
                opened = preview(
                    runtime, config, revision, extent, job.content, partitions=lambda _topic: 1
                )
                for chunk in opened.convert(extent, 0):
                    if chunk.bad and config.errors_tolerance != "all":
                        unit = opened.format.location_unit
                        raise CorruptRecord(describe(extent, chunk.bad[0], unit))
                    yield from _values(chunk, topic, groups)

    def _all(
        self, topic: str, ends: Mapping[int, int] | None = None
    ) -> Iterator[list[ConsumedRecord]]:
        """Yield the records of a topic from its beginning to `ends` (None: those of now)."""
        ends = self.runtime.broker.end_offsets(topic) if ends is None else ends
        return self._read(topic, dict.fromkeys(ends, 0), ends)

    def _read(
        self,
        topic: str,
        begin: Mapping[int, int],
        end: Mapping[int, int],
        *,
        follow: bool = False,
    ) -> Iterator[list[ConsumedRecord]]:
        group = f"{self.runtime.settings.app_id}.{self.runtime.random.getrandbits(64):x}.reader"
        return self.runtime.broker.read_from(topic, begin, end=end, group=group, follow=follow)


def _stated(config: ConnectorConfig, topic: str, group: str) -> tuple[str, ...] | None:
    """Return the columns that the connector's `columnar.groups` state for a group; None: none."""
    if not (group and config.columnar_groups):
        return None
    for one in config.columnar_groups:
        if one.name == group:
            named = (name for each in config.columnar_groups for name in each.columns)
            return (REST, *named) if one.columns == (REST,) else one.columns
    raise Misconfigured(
        f"topic {topic} holds the column group {group}, which columnar.groups of connector"
        f" {config.name} does not have; leave columnar.groups out, or correct them"
    )


def _in_one_value(config: ConnectorConfig, topic: str, group: str) -> tuple[str, ConnectorConfig]:
    """Return the topic without its group, and a connector of it with all columns in one value."""
    base = topic.removesuffix(f".{group}") if group else topic
    return base, replace(
        config,
        topic=base if config.topic == topic else config.topic,
        columnar_encoding=ARROW,  # as cheap as it can be
        columnar_compression="none",
        columnar_groups=(),
        columnar_encryption_columns=(),
        columnar_batch_bytes=1 << 30,
    )


def _values(chunk: ConvertedChunk, topic: str, groups: _Groups | None) -> Iterator[pa.Array]:
    """Yield values of rows; of columnar ones, the columns of groups as JSON (None: they are rows).

    Where rows go to several topics, only those of this one.
    """
    for records, _ in chunk.by_topic():
        if chunk.topics is not None and records.topic != topic:
            continue
        if groups is None:
            yield records.values
            continue
        for value, headers in zip(records.values.to_pylist(), records.headers or (), strict=True):
            facts = BatchFacts.of(headers)
            if facts is not None:
                rows = decode(value, facts)
                for columns in groups.values():
                    yield _comparable(_selected(rows, columns))


def _selected(rows: pa.RecordBatch, columns: Sequence[str] | None) -> pa.RecordBatch:
    """Return those columns that the rows have; after REST, all but these; None: all."""
    if columns is None:
        return rows
    if columns[0] == REST:
        return rows.select([name for name in rows.schema.names if name not in columns])
    return rows.select([name for name in columns if name in rows.schema.names])


def _difference(expected: _Digests, found: _Digests) -> tuple[int, int]:
    """Return how many rows are expected and not found, and the other way round."""
    (wanted, wanted_counts), (there, there_counts) = expected.counted(), found.counted()
    every, places = np.unique(np.concatenate([wanted, there]), return_inverse=True)
    balance = np.zeros(len(every), np.int64)
    np.add.at(balance, places[: len(wanted)], wanted_counts)
    np.add.at(balance, places[len(wanted) :], -there_counts)
    return int(balance[balance > 0].sum()), int(-balance[balance < 0].sum())


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


def _rows_of(topic: str, record: ConsumedRecord) -> tuple[int, str]:
    """Return how many rows a record has, and the object that its headers name."""
    headers = by_name(record.headers)
    if ENCODING not in headers:
        return int(record.value is not None), ""
    with located(place(topic, record.partition, record.offset)):
        facts = BatchFacts.of(record.headers)
    return (0, "") if facts is None else (facts.rows, facts.object)


def _batches(
    reader: ValueReader, topic: str, records: Sequence[ConsumedRecord]
) -> Iterator[ConsumedBatch]:
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


def _comparable(rows: pa.RecordBatch) -> pa.Array:
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
