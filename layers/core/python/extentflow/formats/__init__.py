"""Decode objects into Arrow batches: the `Format` port, its options and the registry.

The package plans extents, decodes them and reports bad records. Reading bytes belongs to `storage`,
turning batches into payloads to `converters`, and what happens to bad records to `delivery`.

Ownership law: a unit (text line, CSV record, row group) belongs to the extent that contains its
first byte. Therefore any partition of `[0, size)` yields every record exactly once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import pyarrow as pa

from extentflow.config.specs import FORMATS, FormatSpec
from extentflow.model import Extent
from extentflow.storage import RangeSource

__all__ = ["FORMATS", "BadRecord", "Chunk", "Format", "FormatOptions", "FormatSpec", "open_format"]


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One record that could not be decoded.

    `raw` are its bytes in the object (None where it has none of its own, as in a corrupt row
    group); `location` is its byte offset or row ordinal in the object, as the format's
    `location_unit` states; `reason` is one readable line.
    """

    raw: bytes | None
    location: int
    reason: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of an extent.

    `batch` may be empty. `locations[i]` is the byte offset or row ordinal of row i. `next_position`
    is where decoding resumes after this chunk's records *and* bad records.
    """

    batch: pa.RecordBatch
    next_position: int
    locations: Sequence[int]
    bad: tuple[BadRecord, ...] = ()


class Format(Protocol):
    """One object format. Stateless between calls, apart from caches of pinned, immutable facts."""

    @property
    def splittable(self) -> bool:
        """Whether an object may have more than one extent."""
        ...

    @property
    def location_unit(self) -> Literal["offset", "row"]:
        """The unit of `Chunk.locations` and `BadRecord.location`."""
        ...

    @property
    def extent_bytes(self) -> int | None:
        """The usual size of an extent, for formats with large units (Parquet: row groups).

        None: the object can be cut at any byte, and the planner derives the size from the object's.
        """
        ...

    @property
    def cut_version(self) -> int:
        """The version of `plan`, 1 at first; raise it with every change that cuts differently.

        A job keeps the version that began to cut its object, and no other continues it.
        """
        ...

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield ranges that partition `[0, size)`, in order; nothing for an empty object.

        Arithmetic unless the format must read the object (Parquet: the footer). Called by planners
        and drivers; deterministic for one version and one target.

        Raises:
            UnsupportedFormat: the object's magic bytes show another format or compression.
            CorruptObject: the object cannot be planned (Parquet: bad footer).
        """
        ...

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
        ...


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """What every format is opened with, beside its own options.

    `compression`: none, gzip or zstd (line formats only). `batch_rows` and `window_bytes` bound
    memory and are arguments so that tests can use two bytes. `validate_text`: an invalid UTF-8
    sequence makes a bad record (False where the bytes are passed through).
    `columns`: those that keys are made from, for formats that extract them (JSON lines).
    """

    compression: str = "none"
    validate_text: bool = True
    columns: tuple[str, ...] = ()
    max_record_bytes: int = 64 << 20
    window_bytes: int = 8 << 20
    batch_rows: int = 65_536


def open_format(name: str, options: FormatOptions, own: object = None) -> Format:
    """Return the format called `name`; `own` are options of that format (None: the defaults).

    Raises:
        KeyError: there is no format of that name; the connector's table reports it to the user.
        Misconfigured: the package that defines it cannot be loaded.
    """
    spec = FORMATS.get(name)
    opened: Format = spec.open(options, spec.options() if own is None else own)
    return opened
