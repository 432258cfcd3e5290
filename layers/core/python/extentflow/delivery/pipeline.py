"""One connector applied to one object version: bytes -> columns -> records, ready to send."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa

from extentflow.converters import Converter
from extentflow.errors import CorruptRecord, UnsupportedType
from extentflow.formats import BadRecord, Chunk, Format, ResumableFormat, ResumePoints
from extentflow.model import Extent
from extentflow.sink import Records
from extentflow.storage import RangeSource

_VALUES = "values (value.converter)"
_KEYS = "keys (message.key, key.converter)"


@dataclass(frozen=True, slots=True)
class ConvertedChunk:
    """The records of a chunk, their locations, its bad records, and the position behind it.

    The position before a record is its location plus `position_shift`.
    """

    records: Records
    locations: Sequence[int]
    bad: tuple[BadRecord, ...]
    next_position: int
    position_shift: int = 0

    @property
    def payload_bytes(self) -> int:
        """Bytes of keys and values, which count towards `transaction.max.bytes`."""
        keys = self.records.keys
        return int(self.records.values.nbytes) + (0 if keys is None else int(keys.nbytes))

    def split(self, most_bytes: float) -> Iterator["ConvertedChunk"]:
        """Yield the chunk in parts of about `most_bytes`; whole if it has bad records."""
        records, count = self.records, len(self.records.values)
        step = max(1, int(count * min(1.0, most_bytes / max(1, self.payload_bytes))))
        if step >= count or self.bad:
            yield self
            return
        for start in range(0, count, step):
            end = min(start + step, count)
            values = records.values.slice(start, end - start)
            keys = records.keys and records.keys.slice(start, end - start)
            last = end == count
            yield replace(
                self,
                records=replace(records, values=values, keys=keys),
                locations=self.locations[start:end],
                next_position=self.next_position
                if last
                else int(self.locations[end]) + self.position_shift,
            )


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Converts the extents of one object to records of `topic`.

    `value` and `key` create a converter for a schema; `key` None means null keys. `partition` -1
    lets the sink choose.
    """

    source: RangeSource
    format: Format
    topic: str
    value: Callable[[pa.Schema], Converter]
    key: Callable[[pa.Schema], Converter] | None = None
    partition: int = -1

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
        converters: tuple[Converter, Converter | None] | None = None
        if points is not None and isinstance(self.format, ResumableFormat):
            chunks = self.format.decode_from(self.source, extent, position, points)
        else:
            chunks = self.format.decode(self.source, extent, position)
        for chunk in chunks:
            if converters is None:
                schema = chunk.batch.schema
                converters = (
                    _create_converter(self.value, schema, extent, _VALUES),
                    _create_converter(self.key, schema, extent, _KEYS) if self.key else None,
                )
            yield self._convert(chunk, *converters)

    def _convert(self, chunk: Chunk, value: Converter, key: Converter | None) -> ConvertedChunk:
        """Convert a chunk; move the rows that a converter rejects to its bad records."""
        # Again after a rejection: the good rows need keys and values of the same length.
        while True:
            rejected: dict[int, str] = {}
            values = _convert_rows(value, chunk.batch, rejected)
            keys = None if key is None else _convert_rows(key, chunk.batch, rejected)
            if not rejected:
                records = Records(self.topic, values, keys, partition=self.partition)
                shift, locations = 0, chunk.locations
                if self.format.location_unit == "row" and len(locations):
                    # A position counts rows of the extent, a location those of the object.
                    shift = chunk.next_position - int(locations[-1]) - 1
                return ConvertedChunk(records, locations, chunk.bad, chunk.next_position, shift)
            chunk = _move_to_bad(chunk, rejected)


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
def _located(extent: Extent, part: str) -> Iterator[None]:
    try:
        yield
    except UnsupportedType as exc:
        where = f"{extent.uri}: {part} of connector {extent.connector}"
        raise UnsupportedType(f"{where}: {exc}") from exc


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
    batch, locations = chunk.batch, chunk.locations
    bounds = [-1, *sorted(rows), batch.num_rows]
    kept = [(left + 1, right) for left, right in pairwise(bounds) if left + 1 < right]
    # Slices, because Arrow's filter kernel does not support every type (string_view).
    slices = [batch.slice(start, end - start) for start, end in kept]
    bad = tuple(BadRecord(None, int(locations[row]), why) for row, why in rows.items())
    return replace(
        chunk,
        batch=pa.concat_batches(slices) if slices else batch.slice(0, 0),
        locations=[locations[row] for start, end in kept for row in range(start, end)],
        bad=tuple(sorted(chunk.bad + bad, key=lambda record: record.location)),
    )
