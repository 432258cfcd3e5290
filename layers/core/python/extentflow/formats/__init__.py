"""Decode objects into Arrow batches: the `Format` port, its options and the registry.

The package plans extents, decodes them and reports bad records. Reading bytes belongs to `storage`,
turning batches into payloads to `converters`, and what happens to bad records to `delivery`.

Ownership law: a unit (text line, CSV record, row group) belongs to the extent that contains its
first byte. Therefore any partition of `[0, size)` yields every record exactly once.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol, runtime_checkable

import pyarrow as pa

from extentflow.arrays.batch_rows import no_rows, without_rows
from extentflow.config.specs import FORMATS, FormatSpec, Ranges
from extentflow.model import Extent
from extentflow.storage import RangeSource

__all__ = [
    "BATCH_BYTES",
    "FORMATS",
    "BadRecord",
    "Chunk",
    "Format",
    "FormatOptions",
    "FormatSpec",
    "RecordFormat",
    "SchemaFormat",
    "no_rows",
    "open_format",
    "row_factor",
    "without_rows",
]

# Of the columns of a batch, in formats that choose how many rows they decode at once.
BATCH_BYTES = 4 << 20
# A point's state holds 32 KiB of content, and decompression passes a GiB in a few seconds.
RESUME_EVERY_BYTES = 1 << 30
_LARGEST_POSITION = (1 << 63) - 1
_MOST_ROW_DIGITS = 9


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One record that could not be decoded.

    `raw` are its bytes in the object; None where it has none of its own, as in a corrupt row group.
    `location` is its byte offset or row ordinal in the object, as the format's `location_unit`
    states. `reason` is one readable line. `payload`: `raw` is the value that was to be sent,
    because the topic rejected the record. `row`: it was decoded, and rejected as a row of columns,
    so that decoding finds it again at `location`.
    """

    raw: bytes | None
    location: int
    reason: str
    payload: bool = False
    row: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of an extent.

    `batch` may be empty. `locations[i]` is the byte offset or row ordinal of row i. `next_position`
    is where decoding resumes after this chunk's records *and* bad records. `excluded` rows were
    not decoded, as `FormatOptions.excludes` allows.
    """

    batch: pa.RecordBatch
    next_position: int
    locations: Sequence[int]
    bad: tuple[BadRecord, ...] = ()
    excluded: int = 0


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """A place in a compressed object where decompression can start.

    From the byte `compressed` of the object on, with `state`, it yields the content from the offset
    `content` on.
    """

    content: int
    compressed: int
    state: bytes = b""


class ResumePoints:
    """The points of one call: the one to `start` at, and those that decompression passes.

    A thread that decompresses adds points and sets `content`, another one takes them. Points are
    at least `every_bytes` of content apart.
    """

    def __init__(
        self, start: ResumePoint | None = None, *, every_bytes: int = RESUME_EVERY_BYTES
    ) -> None:
        self.start = start
        self.every_bytes = every_bytes
        self.content = start.content if start else 0
        self._last = self.content
        self._passed: deque[ResumePoint] = deque()

    def discard_start(self) -> None:
        """Start at the beginning of the object: the point to start at cannot be used."""
        self.start = None
        self.content = self._last = 0

    def is_due(self, content: int) -> bool:
        """Whether a point at this offset is far enough behind the last one."""
        self.content = content
        return content - self._last >= self.every_bytes

    def add(self, point: ResumePoint) -> None:
        """Keep a point that decompression has passed."""
        self._last = point.content
        self._passed.append(point)

    def take(self, position: int) -> ResumePoint | None:
        """Return the last point at or before `position` that was not taken before."""
        found = None
        while self._passed and self._passed[0].content <= position:
            found = self._passed.popleft()
        return found


class Format(Protocol):
    """One object format. Stateless between calls, apart from caches of pinned, immutable facts."""

    @property
    def splittable(self) -> bool:
        """Whether an object may have more than one extent."""

    @property
    def location_unit(self) -> Literal["offset", "row"]:
        """The unit of `Chunk.locations` and `BadRecord.location`."""

    @property
    def extent_bytes(self) -> int | None:
        """The usual size of an extent, for formats with large units (Parquet: row groups).

        None: the object can be cut at any byte, and the planner derives the size from the object's.
        """

    @property
    def cut_version(self) -> int:
        """The version of `plan`, 1 at first; raise it with every change that cuts differently.

        A job keeps the version that began to cut its object, and no other continues it.
        """

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield ranges that partition `[0, size)`, in order; nothing for an empty object of lines.

        Arithmetic unless the format must read the object (Parquet: the footer). Called by planners
        and drivers; deterministic for one version and one target.

        Raises:
            UnsupportedFormat: the object's magic bytes show another format or compression.
            CorruptObject: the object cannot be planned (Parquet: bad footer).
        """

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        """Yield the extent's records in file order, from `position` on.

        `position` is 0 (nothing done yet) or a `next_position` of an earlier chunk of the same
        extent, decoded with any buffer sizes. Line formats: absolute byte offset (in the
        decompressed stream, where compressed). Columnar formats: row ordinal within the extent.
        Positions strictly increase from chunk to chunk. A decoder ends only at the boundary of its
        extent; every other condition raises.

        Raises:
            UnsupportedFormat, UnsupportedType: before the first record.
            CorruptObject: the bytes contradict the format and no single record is the cause.
            ObjectChanged, ObjectGone, StoreUnavailable, AccessDenied: from the source.
        """


class Unit(Protocol):
    """What a format cannot divide, at the bytes `[start, end)` of its object."""

    @property
    def start(self) -> int:
        """The first byte."""

    @property
    def end(self) -> int:
        """The byte behind the last one."""


def cut_at_units(units: Iterable[Unit], target_bytes: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield runs of consecutive units up to `target_bytes` that partition `[0, size)`.

    A cut is where a unit begins: elsewhere, an extent could be without units.
    """
    start = 0
    for _, unit in pairwise(units):
        if unit.end - start > target_bytes:
            yield start, unit.start
            start = unit.start
    yield start, size


@runtime_checkable
class ResumableFormat(Protocol):
    """A Format whose compressed objects can be decoded from a point within them."""

    def decode_from(
        self, source: RangeSource, extent: Extent, position: int, points: ResumePoints
    ) -> Iterator[Chunk]:
        """Yield as `Format.decode`; start at `points.start`, which is not behind `position`."""
        ...


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows as an object stores them: `value` is a Parquet file of them alone, of columns `schema`.

    `locations` and `next_position` as in `Chunk`.
    """

    value: bytes
    schema: pa.Schema
    locations: Sequence[int]
    next_position: int


@runtime_checkable
class StoredFormat(Protocol):
    """A Format whose rows can be passed on as they are stored, without decoding them."""

    def decode_stored(
        self,
        source: RangeSource,
        extent: Extent,
        position: int,
        *,
        most_bytes: int,
        codec: str | None,
    ) -> Iterator[Chunk | StoredRows]:
        """Yield as `Format.decode`, or rows as they are stored, where that takes `most_bytes`.

        `codec`: only rows that are compressed so; None: however they are. Their pages are complete
        and have the checksums that their writer stored; what is in them is not decoded, so that no
        row of them is found to be bad.
        """
        ...


@runtime_checkable
class SchemaFormat(Protocol):
    """A Format whose objects state their columns before their first record."""

    def schema(self, source: RangeSource) -> pa.Schema:
        """Return the schema of the batches that `decode` yields. Raises as `Format.plan`."""
        ...


@runtime_checkable
class RecordFormat(Protocol):
    """A Format whose records are bytes of their own, which can be decoded again without others."""

    def decode_record(
        self, source: RangeSource, extent: Extent, raw: bytes, location: int
    ) -> Chunk:
        """Return the chunk of one record with the bytes `raw`, as if they stood at `location`.

        `raw` are the bytes as they are in the object, without what ends a record. Reads of the
        object only what states how its records are decoded, such as a header. The chunk has one
        row, one bad record, or neither where `raw` is no record. Raises as `Format.decode`.
        """
        ...


@runtime_checkable
class DividingFormat(Protocol):
    """A Format that other options would divide into smaller records."""

    def how_to_divide(self, record: bytes) -> str:
        """Return the options that would divide a record which is too large; empty: there are none.

        Called for few records, so that it may parse them.
        """
        ...


@runtime_checkable
class InspectingFormat(Protocol):
    """A Format that reads an object at planning to decide how all its extents are decoded."""

    def inspect(self, source: RangeSource) -> str:
        """Return the facts that the job pins, as `FormatOptions.facts` of every decoder.

        Reads a bounded part of the object. Raises as `Format.decode`.
        """
        ...


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """What every format is opened with, beside its own options.

    `compression`: none, or one of `compression.CODECS` (line formats only). `batch_rows` and
    `window_bytes` bound memory, and tests set two bytes. `batch_bytes` is the size that Parquet and
    ORC aim at for the columns of a batch. `validate_text`: an invalid UTF-8 sequence makes a bad
    record (False where the bytes are passed through). `columns`: those that keys are made from, for
    formats that extract them (JSON lines). `select`: the columns that are needed, of which a format
    may decode others, too; empty: all. `charset`: Python's name of the character set (line formats
    only); None is UTF-8, or what a byte order mark says. `excludes`: whether rows whose columns lie
    within ranges are all dropped later, so that a format may count them without decoding. `facts`
    are what it found at planning. `overlap_bytes`: the content of an extent's frames or blocks that
    belongs to the extent before it. It is the same for all extents of an object, and no less than
    the end of a line.
    """

    compression: str = "none"
    facts: str = ""
    validate_text: bool = True
    columns: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    charset: str | None = None
    excludes: Callable[[Ranges], bool] | None = None
    max_record_bytes: int = 64 << 20
    window_bytes: int = 8 << 20
    batch_rows: int = 65_536
    batch_bytes: int = BATCH_BYTES
    overlap_bytes: int = 16 << 10


def open_format(name: str, options: FormatOptions, own: object = None) -> Format:
    """Return the format called `name`; `own` are options of that format (None: the defaults).

    Raises KeyError or Misconfigured as `Registry.get`.
    """
    spec = FORMATS.get(name)
    opened: Format = spec.open(options, spec.options() if own is None else own)
    return opened


def row_factor(size: int) -> int:
    """Return by how much a location multiplies a block's offset: a power of ten.

    This is for formats whose extents cannot count the rows before them. A location is the byte
    offset of a block times the factor, plus the row within the block. It is a position, too. The
    factor is 10^9 for objects up to 9.2 GB, less for larger ones: locations fit into 64 bits.
    """
    return int(10 ** min(_MOST_ROW_DIGITS, len(str(_LARGEST_POSITION // max(1, size))) - 1))
