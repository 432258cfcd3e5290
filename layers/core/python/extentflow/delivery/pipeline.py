"""One connector applied to one object version: bytes -> columns -> records, ready to send.

    decode ──> Chunk ──select, transforms──> Rows ──converters────> Records, one per row
                                                  └──ColumnValues──> or one per batch of rows

A row that a transform or a converter rejects becomes a bad record, and its chunk is transformed and
converted again without it. A row that a transform drops is counted, and nothing else.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from extentflow.arrays.batch_rows import no_rows, take_rows, without_rows
from extentflow.arrays.buffers import Columns
from extentflow.background import BackgroundCall
from extentflow.converters import Converter
from extentflow.delivery.acceptance import Acceptance, places_by_topic
from extentflow.delivery.attributes import Attributes, BoundAttributes
from extentflow.delivery.columnvalues import BoundColumnValues, ColumnValues, Cuts, RowBatch
from extentflow.delivery.converted import ConvertedChunk
from extentflow.errors import (
    CorruptRecord,
    IncompatibleSchema,
    NotOffered,
    RegistryUnavailable,
    UnsupportedType,
)
from extentflow.formats import (
    BadRecord,
    Chunk,
    DividingFormat,
    Format,
    RecordFormat,
    ResumableFormat,
    ResumePoints,
    SchemaFormat,
    StoredFormat,
    StoredRows,
)
from extentflow.kafka import Records, RejectedRecord
from extentflow.kafka.record_headers import HeaderColumns, HeaderLists, Headers
from extentflow.model import Extent
from extentflow.storage import RangeSource
from extentflow.transforms import Chain, Rows
from extentflow.wording import again_command

_Headers: TypeAlias = HeaderColumns | HeaderLists | None
_Attributes: TypeAlias = tuple[_Headers, pa.Int64Array | None, pa.Int32Array | None]
# Chunks that are encoded at once, beside the one that is decoded.
ENCODERS = 2
_VALUES = "values (value.converter)"
_KEYS = "keys (message.key, key.converter)"
_ATTRIBUTES = "headers, message.headers, message.timestamp and message.partition"
_STEPS = "columns (select, transforms)"
_COLUMNS = "values (columnar.encoding, columnar.groups)"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Converts the extents of one object to records of `topic`.

    `value` and `key` create a converter for a schema; `key` None means null keys. `columns` makes
    the records instead, and keys choose partitions only. `partition` -1
    lets the sink choose. `chain` opens the transforms of one extent; None: there are none. They
    begin with the key of the columns `key_columns`, the value of `select` (empty: all) and the
    topic `source_topic`; `fixed_key` makes the key where no columns are chosen for it. `attributes`
    are made of the decoded columns. `columns_from` says how records of this format get columns.
    """

    source: RangeSource
    format: Format
    topic: str
    value: Callable[[pa.Schema], Converter]
    key: Callable[[pa.Schema], Converter] | None = None
    partition: int = -1
    chain: Callable[[], Chain] | None = None
    key_columns: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    source_topic: str = ""
    fixed_key: Callable[[pa.Schema], Converter] | None = None
    attributes: Attributes | None = None
    columns: ColumnValues | None = None
    acceptance: Acceptance | None = None
    rejected: Mapping[int, str] = field(default_factory=dict)
    columns_from: str = ""

    @property
    def resumable(self) -> bool:
        """Whether decoding can start at a `ResumePoint`: the object is one compressed stream."""
        return isinstance(self.format, ResumableFormat) and not self.format.splittable

    def convert(
        self, extent: Extent, position: int, points: ResumePoints | None = None
    ) -> Generator[ConvertedChunk, None, None]:
        """Yield the extent's converted chunks from `position` on. Raises as `Format.decode`.

        `points` only if `resumable`.
        """
        conversion: _Conversion | None = None
        chunks: Iterator[Chunk | StoredRows]
        if points is not None and isinstance(self.format, ResumableFormat):
            chunks = self.format.decode_from(self.source, extent, position, points)
        elif (passing := self._passing(extent)) is not None:
            conversion = passing
            chunks = self._stored(extent, position, conversion.most_stored_bytes)
        else:
            chunks = self.format.decode(self.source, extent, position)
        calls = self._calls(extent, chunks, conversion)
        if self._encodes_ahead:
            yield from _ahead(calls)
        else:
            yield from (call() for call in calls)

    def _calls(
        self,
        extent: Extent,
        chunks: Iterator[Chunk | StoredRows],
        conversion: "_Conversion | None",
    ) -> Iterator[Callable[[], ConvertedChunk]]:
        """Yield the conversion of each chunk."""
        for chunk in chunks:
            if isinstance(chunk, StoredRows):
                if not isinstance(conversion, _ColumnConversion):
                    raise TypeError("rows as they are stored are no values of single rows")
                yield partial(conversion.pass_through, chunk)
            else:
                if conversion is None:
                    conversion = _Conversion.open(self, extent, chunk.batch)
                yield partial(self._convert, chunk, conversion)

    @property
    def _encodes_ahead(self) -> bool:
        """Whether values are encoded on threads: columns cost more than decoding does.

        Not where transforms, keys or encryption keep something from one chunk to the next.
        """
        columns = self.columns
        alone = self.chain is None and self.key is None
        return columns is not None and alone and columns.encryption is None

    def _passing(self, extent: Extent) -> "_ColumnConversion | None":
        """Return the conversion of rows that go into values as an object stores them.

        None: they do not, or something changes them.
        """
        columns, attributes = self.columns, self.attributes
        by_row = attributes is not None and attributes.partition is not None
        changed = self.chain is not None or self.key is not None or by_row or bool(self.rejected)
        if columns is None or not columns.passes or columns.groups or changed:
            return None
        if columns.encryption is not None:  # their columns are plain
            return None
        if not isinstance(self.format, SchemaFormat) or not isinstance(self.format, StoredFormat):
            return None
        opened = _Conversion.open(self, extent, no_rows(self.format.schema(self.source)))
        if not isinstance(opened, _ColumnConversion) or opened.is_refused:
            return None  # decoded, so that each row becomes a bad record
        return opened

    def _stored(
        self, extent: Extent, position: int, most_bytes: int
    ) -> Iterator[Chunk | StoredRows]:
        if self.columns is None or not isinstance(self.format, StoredFormat):
            raise TypeError("nothing is passed on as it is stored")
        return self.format.decode_stored(
            self.source, extent, position, most_bytes=most_bytes, codec=self.columns.codec
        )

    def convert_record(self, extent: Extent, raw: bytes, location: int) -> ConvertedChunk:
        """Return the chunk of one record with the bytes `raw`, as if they stood at `location`.

        Raises NotOffered for a format whose records have no bytes of their own, else as `convert`.
        """
        if not isinstance(self.format, RecordFormat):
            raise NotOffered(
                f"{extent.uri}: records of {extent.format} have no bytes of their own to decode;"
                " correct the object, or deliver it again with"
                f" {again_command(extent.version.address, extent.connector)}"
            )
        return self.convert_chunk(
            extent, self.format.decode_record(self.source, extent, raw, location)
        )

    def convert_chunk(self, extent: Extent, chunk: Chunk) -> ConvertedChunk:
        """Return what one chunk of an extent becomes. Raises as `convert`."""
        return self._convert(chunk, _Conversion.open(self, extent, chunk.batch))

    def first_bad(
        self, extent: Extent, reject: Callable[[Records], Sequence[RejectedRecord]]
    ) -> BadRecord | None:
        """Return the first bad record of an extent's first chunk. Raises as `convert`.

        `reject` returns the records that a producer rejects. Where the format states its columns,
        nothing is decoded, and nothing is returned; `acceptance` gets the time of the object.
        """
        if isinstance(self.format, SchemaFormat):
            opened = _Conversion.open(self, extent, no_rows(self.format.schema(self.source)))
            bound = opened.attributes
            if self.acceptance is not None and bound is not None and bound.last_modified:
                times = pa.array([bound.last_modified], pa.int64())
                self.acceptance.refused(self.topic, times, None, 0)
            return None
        with closing(self.convert(extent, 0)) as chunks:
            first = next(chunks, None)
        return None if first is None else next(iter(first.bad_with(reject(first.records))), None)

    def _convert(self, chunk: Chunk, conversion: "_Conversion") -> ConvertedChunk:
        """Convert a chunk; move the rows that are rejected to its bad records."""
        rejected = {
            row: self.rejected[place]
            for row, place in enumerate(chunk.locations if self.rejected else ())
            if place in self.rejected
        }
        if rejected:
            chunk = _move_to_bad(chunk, rejected)
        # Again after a rejection: the good rows need keys and values of the same length.
        while True:
            rejected = {}
            made = conversion.convert(chunk, rejected)
            if made is not None:
                break
            chunk = _move_to_bad(chunk, rejected)
        locations = made.locations
        shift, filtered = 0, chunk.excluded + len(chunk.locations) - len(locations)
        if self.format.location_unit == "row" and len(chunk.locations):
            # A position counts rows of the extent, a location those of the object.
            last = max(chunk.locations[-1], *(one.location for one in chunk.bad), 0)
            shift = chunk.next_position - int(last) - 1
        return ConvertedChunk(
            made.records,
            locations,
            chunk.bad,
            chunk.next_position,
            shift,
            filtered,
            decoded=chunk.locations if filtered else (),
            topics=made.topics,
            cuts=made.cuts,
            how_to_divide=self.format.how_to_divide
            if isinstance(self.format, DividingFormat)
            else None,
        )


@dataclass(frozen=True, slots=True)
class _Made:
    """The records of a chunk, as `ConvertedChunk` has them."""

    records: Records
    locations: Sequence[int]
    topics: pa.StringArray | None
    cuts: Cuts | None = None


@dataclass(frozen=True, slots=True)
class _PreparedRows:
    """Rows of a chunk behind the transforms, with keys and attributes. `topics`: of each row."""

    batch: pa.RecordBatch
    locations: Sequence[int]
    topic: str
    topics: pa.StringArray | None
    keys: pa.Array | None
    attributes: _Attributes


@dataclass(frozen=True, slots=True)
class _Conversion(ABC):
    """The transforms and converters of one extent, opened with its first schema."""

    pipeline: Pipeline
    extent: Extent
    key: Converter | None
    attributes: BoundAttributes | None
    chain: Chain | None

    @staticmethod
    def open(pipeline: Pipeline, extent: Extent, first: pa.RecordBatch) -> "_Conversion":
        """Open all of it, before the first record.

        Raises UnsupportedType, and for a converter with a registry as `open_converter`.
        """
        schema, key_schema, build = first.schema, first.schema, pipeline.key
        attributes = None
        if pipeline.attributes is not None:
            with _located(extent, _ATTRIBUTES):
                attributes = pipeline.attributes.bind(first.schema, extent)
        chain = None if pipeline.chain is None else pipeline.chain()
        if chain is not None:
            # No rows pass through the chain first, so that it shows the columns that it makes.
            nothing = Chunk(first.slice(0, 0), 0, ())
            with _located(extent, _STEPS, pipeline.columns_from):
                rows = chain(_rows(pipeline, extent, nothing, attributes))
            schema, key_schema = rows.values.schema, rows.values.schema
            if rows.keys is not None:
                key_schema = rows.keys.schema
            else:
                build = pipeline.fixed_key
        if pipeline.columns is not None:
            with _located(extent, _COLUMNS):
                unit = pipeline.format.location_unit
                columns = pipeline.columns.bind(schema, extent, unit, pipeline.topic)
            key = _create_converter(build, key_schema, extent, _KEYS) if build else None
            return _ColumnConversion(pipeline, extent, key, attributes, chain, columns)
        value = _create_converter(pipeline.value, schema, extent, _VALUES)
        key = _create_converter(build, key_schema, extent, _KEYS) if build else None
        return _RowConversion(pipeline, extent, key, attributes, chain, value)

    def convert(self, chunk: Chunk, rejected: dict[int, str]) -> _Made | None:
        """Return the payloads of a chunk; None if rows are `rejected`, by their ordinals in it."""
        topic, rows, batch, key_batch = self.pipeline.topic, None, chunk.batch, chunk.batch
        if self.chain is not None:
            try:
                with _located(self.extent, _STEPS):
                    rows = self.chain(_rows(self.pipeline, self.extent, chunk, self.attributes))
            except CorruptRecord as exc:
                if not exc.rows:
                    raise
                rejected.update(exc.rows)
                return None
            topic, batch = rows.topic, rows.values
            key_batch = rows.values if rows.keys is None else rows.keys
        locations: Sequence[int] = chunk.locations
        topics = None
        if rows is not None:
            if len(rows.locations) < len(locations):
                locations = rows.locations.tolist()
            topics = None if rows.topics is None else rows.topics.fill_null(topic)
        found: dict[int, str] = {}
        keys = None if self.key is None else _convert_rows(self.key, key_batch, found)
        attributes = self._attributes(chunk, rows, found)
        prepared = _PreparedRows(batch, locations, topic, topics, keys, attributes)
        made = self._made(prepared, found)
        if found:
            places = found if rows is None else rows.ordinals[list(found)].tolist()
            rejected.update(zip(places, found.values(), strict=True))
        return made

    @abstractmethod
    def _made(self, rows: _PreparedRows, found: dict[int, str]) -> _Made | None:
        """Return the records of rows; None where there are any in `found`, to which it may add."""

    def _attributes(self, chunk: Chunk, rows: Rows | None, found: dict[int, str]) -> _Attributes:
        """Return headers, timestamps and partitions; add rows without these to `found`."""
        if self.attributes is None:
            return None, None, None
        batch, locations = chunk.batch, chunk.locations
        if rows is not None and len(rows.ordinals) < batch.num_rows:
            batch, locations = take_rows(batch, rows.ordinals), rows.locations.tolist()
        try:
            headers, times, places = self.attributes(batch, locations)
        except CorruptRecord as exc:
            if not exc.rows:
                raise
            found.update(exc.rows)
            return None, None, None
        changed = None if rows is None else rows.headers
        return headers if changed is None else changed, times, places


@dataclass(frozen=True, slots=True)
class _RowConversion(_Conversion):
    """A record for each row."""

    value: Converter

    def _made(self, rows: _PreparedRows, found: dict[int, str]) -> _Made | None:
        values = _convert_rows(self.value, rows.batch, found)
        headers, timestamps, partitions = rows.attributes
        if not found:
            found.update(self._refused(rows, timestamps))
        if found:
            return None
        records = Records(
            rows.topic,
            values,
            rows.keys,
            headers=headers,
            partition=self.pipeline.partition,
            timestamps=timestamps,
            partitions=partitions,
        )
        return _Made(records, rows.locations, rows.topics)

    def _refused(self, rows: _PreparedRows, times: pa.Int64Array | None) -> Mapping[int, str]:
        """Return the rows that their topics refuse."""
        acceptance, count = self.pipeline.acceptance, len(rows.locations)
        if acceptance is None:
            return {}
        found: dict[int, str] = {}
        for topic, places in places_by_topic(rows.topic, rows.topics, count).items():
            if places is None:
                return acceptance.refused(topic, times, rows.keys, count)
            own_times = None if times is None else times.take(places)
            own_keys = None if rows.keys is None else rows.keys.take(places)
            refused = acceptance.refused(topic, own_times, own_keys, len(places))
            found |= {int(places[at]): why for at, why in refused.items()}
        return found


@dataclass(frozen=True, slots=True)
class _ColumnConversion(_Conversion):
    """A record for a batch of rows; all have the same headers and timestamp (`config.parsing`)."""

    value: BoundColumnValues

    def _made(self, rows: _PreparedRows, found: dict[int, str]) -> _Made | None:
        if found:
            return None
        headers, time = self._shared()
        found.update(self._refused(rows, time))
        if found:
            return None
        batch = RowBatch(
            columns=rows.batch,
            locations=rows.locations,
            topic=rows.topic,
            topics=rows.topics,
            keys=rows.keys,
            partitions=rows.attributes[2],
            partition=self.pipeline.partition,
            headers=headers,
            timestamp=time,
        )
        try:
            with _located(self.extent, _COLUMNS):
                records, topics, cuts = self.value(batch)
        except CorruptRecord as exc:
            if not exc.rows:
                raise
            found.update(exc.rows)
            return None
        return _Made(records, rows.locations, topics, cuts)

    @property
    def is_refused(self) -> bool:
        """Whether topics refuse the timestamp of all records."""
        return bool(self._why_refused(self.pipeline.topic, self._shared()[1]))

    def _refused(self, rows: _PreparedRows, time: int | None) -> Mapping[int, str]:
        """Return the rows whose topics refuse the timestamp of their records."""
        found: dict[int, str] = {}
        count = len(rows.locations)
        for topic, places in places_by_topic(rows.topic, rows.topics, count).items():
            if why := self._why_refused(topic, time):
                found |= dict.fromkeys(range(count) if places is None else places.tolist(), why)
        return found

    def _why_refused(self, topic: str, time: int | None) -> str:
        acceptance = self.pipeline.acceptance
        if acceptance is None or time is None:
            return ""
        times = pa.array([time], pa.int64())
        for group in self.value.groups:
            # Keys choose partitions only: no record has one.
            if why := acceptance.refused(group.topic(topic), times, None, 0):
                return why[0]
        return ""

    @property
    def most_stored_bytes(self) -> int:
        """The most bytes of a value that is passed on as it is stored."""
        headers, _ = self._shared()
        return self.value.most_bytes(headers)

    def pass_through(self, stored: StoredRows) -> ConvertedChunk:
        """Return rows as they are stored as one record."""
        headers, time = self._shared()
        records = self.value.stored(
            stored, self.pipeline.topic, self.pipeline.partition, headers, timestamp=time
        )
        rows = len(stored.locations)
        shift = stored.next_position - int(stored.locations[-1]) - 1
        cuts = [(1, rows)]
        return ConvertedChunk(records, stored.locations, (), stored.next_position, shift, cuts=cuts)

    def _shared(self) -> tuple[Headers, int | None]:
        """Return headers and timestamp of records."""
        if self.attributes is None:
            return (), None
        nothing = pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))
        # Partitions are those of rows.
        shared = replace(self.attributes, of=replace(self.attributes.of, partition=None))
        headers, times, _ = shared(nothing, [0])
        return () if headers is None else headers[0], None if times is None else times[0].as_py()


def _ahead(
    calls: Iterator[Callable[[], ConvertedChunk]],
) -> Generator[ConvertedChunk, None, None]:
    """Yield what calls return, in order; some of them run on threads while the next is made."""
    waiting: deque[BackgroundCall[ConvertedChunk]] = deque()
    failed: Exception | None = None
    try:
        while True:
            try:
                call = next(calls, None)
            except Exception as exc:  # noqa: BLE001 - raised below, behind what precedes it
                call, failed = None, exc
            if call is not None:
                waiting.append(BackgroundCall(call, "extentflow-encode"))
            while waiting and (call is None or len(waiting) > ENCODERS or waiting[0].wait(0)):
                yield waiting.popleft().result()
            if failed is not None:
                raise failed
            if call is None:
                return
    finally:
        for running in waiting:
            running.wait()


def _rows(
    pipeline: Pipeline, extent: Extent, chunk: Chunk, attributes: BoundAttributes | None
) -> Rows:
    """Return the rows of a chunk as the chain gets them: what is selected, key and headers."""
    batch, select, key_columns = chunk.batch, pipeline.select, pipeline.key_columns
    return Rows(
        values=_selected(batch, select) if select else batch,
        keys=_selected(batch, key_columns) if key_columns else None,
        locations=np.asarray(chunk.locations, np.int64),
        ordinals=np.arange(batch.num_rows),
        extent=extent,
        topic=pipeline.source_topic or pipeline.topic,
        headers=None if attributes is None else attributes.lists_for_chain(batch, chunk.locations),
    )


def _selected(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    return Columns.select(batch.schema, names, nested=True).batch(batch)


def _create_converter(
    build: Callable[[pa.Schema], Converter], schema: pa.Schema, extent: Extent, part: str
) -> Converter:
    """Create a converter whose errors name the object and the connector."""
    with _located(extent, part):
        convert = build(schema)

    def located(batch: pa.RecordBatch) -> pa.BinaryArray | pa.LargeBinaryArray:
        with _located(extent, part):
            return convert(batch)

    return located


@contextmanager
def _located(extent: Extent, part: str, remedy: str = "") -> Iterator[None]:
    try:
        yield
    except (UnsupportedType, IncompatibleSchema, RegistryUnavailable) as exc:
        where = f"{extent.uri}: {part} of connector {extent.connector}"
        raise type(exc)(f"{where}: {exc}{remedy}") from exc


def _convert_rows(
    converter: Converter, batch: pa.RecordBatch, rejected: dict[int, str]
) -> pa.Array:
    """Return the converted rows; if it rejects rows, add these to `rejected` and return nulls."""
    try:
        return converter(batch)
    except CorruptRecord as exc:
        if not exc.rows:
            raise
        rejected.update(exc.rows)
        return pa.nulls(batch.num_rows, pa.binary())


def _move_to_bad(chunk: Chunk, rows: Mapping[int, str]) -> Chunk:
    """Return the chunk with `rows` moved from its batch to its bad records."""
    locations = chunk.locations
    bad = tuple(BadRecord(None, int(locations[row]), why, row=True) for row, why in rows.items())
    return replace(
        chunk,
        batch=without_rows(chunk.batch, rows),
        locations=[each for row, each in enumerate(locations) if row not in rows],
        bad=tuple(sorted(chunk.bad + bad, key=lambda record: record.location)),
    )
