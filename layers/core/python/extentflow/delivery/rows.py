"""Finds single rows of an object again, by their locations.

A location begins a row only under the options with which it was decoded, and those of a connector
change. So an extent is decoded from its start, and a row counts only where one is at the location:

    extent    | a | b | c | d | e |      dead letters of b and d, then of a
    decoded    ──────────>               up to d, and once more for a
"""

from bisect import bisect_left
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from extentflow.arrays.batch_rows import take_rows
from extentflow.delivery.pipeline import Pipeline
from extentflow.errors import CorruptRecord
from extentflow.formats import Chunk
from extentflow.model import Extent
from extentflow.wording import again_command

# Each keeps a chunk, which may be large: one of Arrow IPC is a record batch of the object.
MOST_OPEN, MOST_BYTES = 4, 64 << 20


@dataclass(slots=True)
class RowFinder:
    """Decodes extents again, and returns their rows. Must be closed.

    It keeps `most_open` extents open where the last row of each was found. Dead letters of an
    extent follow each other in its order, so one pass finds all of them. Fewer extents stay open
    where their chunks have more than `most_bytes`, but at least one.
    """

    most_open: int = MOST_OPEN
    most_bytes: int = MOST_BYTES
    _open: dict[Extent, "_OpenExtent"] = field(default_factory=dict)

    def find(self, pipeline: Pipeline, extent: Extent, location: int) -> Chunk:
        """Return the row of an extent at a location, or the bad record that it is now, as a chunk.

        CorruptRecord: no record begins there, or it is part of a row group or block that is bad as
        a whole. Raises as `Format.decode`.
        """
        opened = self._open.pop(extent, None)
        if opened is not None and not opened.has_ahead(location):
            opened.chunks.close()
            opened = None
        if opened is None:
            chunks = pipeline.format.decode(pipeline.source, extent, 0)
            opened = _OpenExtent(cast("Generator[Chunk]", chunks))
        try:
            found = opened.find(location)
        except BaseException:
            opened.chunks.close()
            raise
        self._open[extent] = opened  # the one that was used last is the last one
        while len(self._open) > 1 and (
            len(self._open) > self.most_open
            or sum(one.size_bytes for one in self._open.values()) > self.most_bytes
        ):
            self._open.pop(next(iter(self._open))).chunks.close()
        if found is None:
            unit = pipeline.format.location_unit
            command = again_command(extent.version.address, extent.connector)
            raise CorruptRecord(
                f"no record begins at {unit} {location} under the connector's configuration;"
                f" deliver the object again with {command}"
            )
        return found

    def close(self) -> None:
        """End the decoding of all extents."""
        while self._open:
            self._open.popitem()[1].chunks.close()


@dataclass(slots=True)
class _OpenExtent:
    """An extent that is decoded up to `chunk`; None before the first one.

    `passed` is the highest location before that chunk, which itself may have none.
    """

    chunks: Generator[Chunk]
    chunk: Chunk | None = None
    passed: int = -1

    @property
    def size_bytes(self) -> int:
        """The memory that its chunk keeps, of which the columns may be a part only."""
        if self.chunk is None:
            return 0
        bad = sum(len(one.raw or b"") for one in self.chunk.bad)
        return int(self.chunk.batch.get_total_buffer_size()) + bad

    def has_ahead(self, location: int) -> bool:
        """Whether the location is not before the current chunk."""
        return location > self.passed

    def find(self, location: int) -> Chunk | None:
        """Return the row at a location, or what is bad there, as a chunk; None: neither."""
        while self.chunk is None or (last := max(_locations(self.chunk), default=-1)) < location:
            following = next(self.chunks, None)
            if following is None:
                return None
            if self.chunk is not None:
                self.passed = max(self.passed, last)
            self.chunk = following
        chunk, rows = self.chunk, self.chunk.locations
        row = bisect_left(rows, location)
        if row < len(rows) and rows[row] == location:
            # A copy, because a slice would keep the whole chunk in memory.
            batch = take_rows(chunk.batch, np.array([row], np.int64))
            return replace(chunk, batch=batch, locations=[location], bad=(), excluded=0)
        bad = next((one for one in chunk.bad if one.location == location), None)
        if bad is None:
            return None
        # One row was asked for: others of a group that is bad as a whole have their own records.
        bad = bad if bad.raw is not None else replace(bad, row=True)
        return replace(chunk, batch=chunk.batch.slice(0, 0), locations=[], bad=(bad,), excluded=0)


def _locations(chunk: Chunk) -> Iterator[int]:
    """Yield the first and the last location of the rows, and those of the bad records."""
    if len(chunk.locations):
        yield int(chunk.locations[0])
        yield int(chunk.locations[-1])
    yield from (one.location for one in chunk.bad)
