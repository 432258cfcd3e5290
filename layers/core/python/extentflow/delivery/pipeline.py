"""One connector applied to one object version: bytes -> columns -> records, ready to send.

Owns: the order decode, convert, blame; saying where a converter's fault is. Refuses to know:
transactions, slots, what happens to bad records (the runner decides), which format, converter or
store is at work.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa

from extentflow.converters import Converter
from extentflow.errors import CorruptRecord, UnsupportedType
from extentflow.formats import BadRecord, Chunk, Format
from extentflow.model import Extent
from extentflow.sink import Records
from extentflow.storage import RangeSource

_VALUES = "values (value.converter)"
_KEYS = "keys (message.key, key.converter)"


@dataclass(frozen=True, slots=True)
class ConvertedChunk:
    """A chunk, converted: what to send, who is bad, where decoding goes on afterwards."""

    records: Records
    locations: Sequence[int]
    bad: tuple[BadRecord, ...]
    next_position: int

    @property
    def payload_bytes(self) -> int:
        """Bytes of keys and values, as they count towards `transaction.max.bytes`."""
        keys = self.records.keys
        return int(self.records.values.nbytes) + (0 if keys is None else int(keys.nbytes))


@dataclass(frozen=True, slots=True)
class Pipeline:
    """How one object's extents become records of `topic`.

    `value` and `key` build a converter for a schema; `key` None sends null keys. `partition` -1
    leaves the choice to the sink.
    """

    source: RangeSource
    format: Format
    topic: str
    value: Callable[[pa.Schema], Converter]
    key: Callable[[pa.Schema], Converter] | None = None
    partition: int = -1

    def prepare(self, extent: Extent, position: int) -> Generator[ConvertedChunk, None, None]:
        """Yield the extent's records from `position` on, converted. Raises as `Format.decode`."""
        converters: tuple[Converter, Converter | None] | None = None
        for chunk in self.format.decode(self.source, extent, position):
            if converters is None:
                schema = chunk.batch.schema
                converters = (
                    _built(self.value, schema, extent, _VALUES),
                    _built(self.key, schema, extent, _KEYS) if self.key else None,
                )
            yield self._convert(chunk, *converters)

    def _convert(self, chunk: Chunk, value: Converter, key: Converter | None) -> ConvertedChunk:
        """Convert a chunk, moving the rows that a converter blames to its bad records."""
        while True:
            blamed: dict[int, str] = {}
            values = _converted(value, chunk.batch, blamed)
            keys = None if key is None else _converted(key, chunk.batch, blamed)
            if not blamed:
                records = Records(self.topic, values, keys, partition=self.partition)
                return ConvertedChunk(records, chunk.locations, chunk.bad, chunk.next_position)
            chunk = _without(chunk, blamed)


def _built(
    build: Callable[[pa.Schema], Converter], schema: pa.Schema, extent: Extent, made: str
) -> Converter:
    """Return the converter for a schema; what it cannot make is told with object and connector."""
    with _located(extent, made):
        convert = build(schema)

    def located(batch: pa.RecordBatch) -> pa.BinaryArray | pa.LargeBinaryArray:
        with _located(extent, made):
            return convert(batch)

    return located


@contextmanager
def _located(extent: Extent, made: str) -> Iterator[None]:
    try:
        yield
    except UnsupportedType as exc:
        raise UnsupportedType(
            f"{extent.uri}: {made} of connector {extent.connector}: {exc}"
        ) from exc


def _converted(converter: Converter, batch: pa.RecordBatch, blamed: dict[int, str]) -> pa.Array:
    """Return the converted rows; where some are to blame, note them and return nothing usable."""
    try:
        return converter(batch)
    except CorruptRecord as exc:
        if not exc.rows:
            raise
        blamed.update(exc.rows)
        return pa.nulls(batch.num_rows, pa.binary())


def _without(chunk: Chunk, rows: Mapping[int, str]) -> Chunk:
    """Return the chunk with `rows` moved from its batch to its bad records.

    Put together from slices: Arrow's own filter does not know every type (string_view).
    """
    batch, locations = chunk.batch, chunk.locations
    bounds = [-1, *sorted(rows), batch.num_rows]
    kept = [(left + 1, right) for left, right in pairwise(bounds) if left + 1 < right]
    pieces = [batch.slice(start, end - start) for start, end in kept]
    bad = tuple(BadRecord(None, int(locations[row]), why) for row, why in rows.items())
    return replace(
        chunk,
        batch=pa.concat_batches(pieces) if pieces else batch.slice(0, 0),
        locations=[locations[row] for start, end in kept for row in range(start, end)],
        bad=tuple(sorted(chunk.bad + bad, key=lambda record: record.location)),
    )
