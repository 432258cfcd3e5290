"""How bytes become Arrow batches: the Format port and the registry.

Owns: the contract of the ownership law, the registry. Refuses to know: stores, engines, Kafka.

The ownership law: a unit (text line, CSV record, row group) belongs to the extent that holds its
first byte. Hence any partition of `[0, size)` yields every record exactly once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa

from extentflow.model import Extent
from extentflow.storage import RangeSource

__all__ = ["BadRecord", "Chunk", "Format", "FormatOptions", "names", "open_format", "register"]


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One record that could not be decoded.

    `raw` are its bytes in the object (None where it has none of its own, as in a corrupt row
    group); `place` is its byte offset or row ordinal, as the format's `place` says; `reason` is
    one readable line.
    """

    raw: bytes | None
    place: int
    reason: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of an extent.

    `batch` may be empty. `places[i]` is the place (byte offset or row ordinal in the object) of
    row i. `next_position` is where decoding resumes after this chunk's records *and* bad records.
    """

    batch: pa.RecordBatch
    next_position: int
    places: Sequence[int]
    bad: tuple[BadRecord, ...] = ()


class Format(Protocol):
    """One object format. Stateless between calls, apart from caches of pinned, immutable facts."""

    @property
    def splittable(self) -> bool:
        """Whether an object may have more than one extent."""
        ...

    @property
    def place(self) -> Literal["offset", "row"]:
        """What `Chunk.places` and `BadRecord.place` count."""
        ...

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield ranges that partition `[0, size)`, in order; nothing for an empty object.

        Arithmetic unless the format must look (Parquet: the footer). Called by planners and
        drivers; deterministic for one version and one target.

        Raises:
            UnsupportedFormat: the object's magic bytes show another format or compression.
            CorruptObject: the object cannot be planned (Parquet: bad footer).
        """
        ...

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        """Yield the extent's records in file order, from `position` on.

        `position` is 0 (nothing done yet) or a `next_position` of an earlier chunk of the same
        extent, decoded with whatever buffer sizes. Line formats: absolute byte offset (in the
        decompressed stream, where compressed). Columnar formats: row ordinal within the extent.
        Positions strictly grow from chunk to chunk. A decoder ends only at its extent's boundary;
        everything else raises.

        Raises:
            UnsupportedFormat, UnsupportedType: before the first record.
            CorruptObject: the bytes contradict the format and no record can be blamed for it.
            ObjectChanged, ObjectGone, StoreUnavailable, AccessDenied: from the source.
        """
        ...


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """What a connector says about decoding; each format reads the fields that concern it.

    `compression`: none, gzip or zstd (line formats only). `batch_bytes` and `window_bytes` bound
    memory and are arguments so that tests can use two bytes. `validate_text`: an invalid UTF-8
    sequence makes a bad record (False where the bytes are passed through).
    `columns`: JSON members that a key needs from JSON lines; a line without them is bad.
    `csv_schema`: column name -> Arrow type, in file order; empty means names from the header and
    strings.
    """

    compression: str = "none"
    validate_text: bool = True
    jsonl_validate: bool = True
    columns: tuple[str, ...] = ()
    csv_separator: str = ","
    csv_quote: str = '"'
    csv_escape: str | None = None
    csv_header: bool = True
    csv_null: str | None = None
    csv_schema: Mapping[str, Any] | None = None
    max_record_bytes: int = 64 << 20
    window_bytes: int = 8 << 20
    batch_rows: int = 65_536


_registry: dict[str, Callable[[FormatOptions], Format]] = {}


def register(name: str, factory: Callable[[FormatOptions], Format]) -> None:
    """Add a format under the name that `input.format` uses; the last registration wins."""
    _registry[name] = factory


def names() -> list[str]:
    """Return the registered names, sorted."""
    return sorted(_registry)


def open_format(name: str, options: FormatOptions) -> Format:
    """Return the format called `name`.

    Raises:
        KeyError: no such format is registered; `connectors` reports that to the user.
    """
    return _registry[name](options)
