"""Deliver the bytes of objects: a whole object as one record, or chunks of equal size.

    object    0 ......................................... size
    whole     [ one record ...................................)
    chunks    [ 0 ...... )[ c ...... )[ 2c ..... )[ 3c .......)    the last one may be shorter
    extents   [0 ............. )[ ...................... size)     by the first byte of a chunk

A location is the byte offset of a chunk, so the headers `location` and `size` are enough to put an
object together again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from extentflow.config.specs import FormatCheck
from extentflow.config.table import key
from extentflow.config.types import SIZE, or_word
from extentflow.errors import Conflict, UnsupportedFormat
from extentflow.formats import Chunk, FormatOptions, FormatSpec
from extentflow.formats.lines import stream_windows
from extentflow.model import Extent, ObjectVersion
from extentflow.storage import RangeSource

_LARGEST_CHUNK_BYTES = 512 << 20
_SCHEMA = pa.schema([("value", pa.binary())])


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesOptions:
    """The keys `bytes.*`."""

    chunk_bytes: int | None = key(
        or_word("none", SIZE),
        "Cut objects into records of this size; without it, an object is one record. Headers"
        " `location` and `size` say where a chunk belongs.",
        shown="none",
    )


@dataclass(frozen=True, slots=True)
class RawBytes:
    """Bytes of any object, in the column `value`; an empty object has no record."""

    options: FormatOptions
    own: BytesOptions = BytesOptions()
    splittable: bool = field(default=True, init=False)
    location_unit: Literal["offset", "row"] = field(default="offset", init=False)
    extent_bytes: int | None = field(default=None, init=False)
    cut_version: int = field(default=1, init=False)

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield runs of whole chunks of up to `target_bytes`, one range without chunks.

        UnsupportedFormat for an object that is larger than a record may be.
        """
        size = source.version.size
        if not size:
            return
        chunk = self._chunk_bytes(source.version)
        step = max(1, target_bytes // chunk) * chunk
        for start in range(0, size, step):
            yield start, min(start + step, size)

    def schema(self, _source: RangeSource) -> pa.Schema:
        """Return the one column."""
        return _SCHEMA

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        """Yield the chunks whose first byte lies in the extent; see `Format.decode`."""
        size, chunk = source.version.size, self._chunk_bytes(source.version)
        if position % chunk and position != size:
            raise Conflict(
                f"{extent.uri}: decoding was to resume at byte {position}, where no chunk of"
                f" {chunk} bytes begins; was bytes.chunk.bytes changed?"
            )
        first = -(-max(extent.start, position) // chunk) * chunk
        count = max(1, min(self.options.window_bytes // chunk, self.options.batch_rows))
        starts = range(first, min(extent.end, size), chunk)
        for at in range(0, len(starts), count):
            group = starts[at : at + count]
            end = min(group[-1] + chunk, size)
            window = max(1, min(self.options.window_bytes, end - group[0]))
            body = b"".join(data for _, data in stream_windows(source, group[0], end, window))
            values = [body[start - group[0] : start - group[0] + chunk] for start in group]
            batch = pa.record_batch([pa.array(values, pa.binary())], schema=_SCHEMA)
            yield Chunk(batch, end, group)

    def _chunk_bytes(self, version: ObjectVersion) -> int:
        """Return the size of a chunk, the object's without chunks."""
        if self.options.compression != "none":
            raise UnsupportedFormat(
                f"{version.uri}: input.format=bytes delivers objects as they are, and decompresses"
                " none; set file.compression.type=none"
            )
        if self.own.chunk_bytes is not None:
            return self.own.chunk_bytes
        if version.size > self.options.max_record_bytes:
            raise UnsupportedFormat(
                f"{version.uri} has {version.size} bytes, a record has"
                f" {self.options.max_record_bytes} at most (record.max.bytes); set"
                " bytes.chunk.bytes to deliver it in chunks"
            )
        return max(1, version.size)


def _problems(check: FormatCheck) -> Iterator[str]:
    size = check.options.chunk_bytes
    if size is not None and not 1 <= size <= _LARGEST_CHUNK_BYTES:
        yield f"bytes.chunk.bytes={size}: write 1 to {_LARGEST_CHUNK_BYTES} bytes"


BYTES = FormatSpec(
    open=lambda options, own=BytesOptions(): RawBytes(options, own),
    options=BytesOptions,
    converters=("bytes",),
    raw=True,
    has_columns=False,
    opaque=True,
    problems=_problems,
)
