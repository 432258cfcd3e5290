"""Cut CSV into blocks of records, of which an extent owns those that begin in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from extentflow.arrays.spans import Indexes
from extentflow.formats import BadRecord
from extentflow.formats.blocks import BlockContent
from extentflow.formats.csv.csv_starts import (
    UNBOUNDED,
    BlockSurroundings,
    RangeSurroundings,
    StartSearch,
    windows_from,
)
from extentflow.formats.csv.csv_syntax import RecordSyntax, State
from extentflow.formats.lines import LineBlock, Places, Window, no_lines, place_of, without_returns
from extentflow.model import Extent
from extentflow.storage import RangeSource


@dataclass(frozen=True, slots=True)
class RecordCutter:
    """Cuts content into blocks of whole records, which take the place of lines."""

    syntax: RecordSyntax

    def cut(
        self,
        windows: Iterator[Window],
        *,
        max_record_bytes: int,
        places: Places | None = None,
        span: Callable[[], tuple[int, int]] | None = None,
    ) -> Iterator[LineBlock]:
        """Yield the records that begin in `span()`; None: up to the end of the content.

        The end of a span may be unknown, and then larger, before the window that reaches it.
        Contiguous `windows` begin with a record and are read no further than necessary. A longer
        record than `max_record_bytes` becomes a bad record without bytes, in a block of its own.
        """
        pending = _PendingBytes(self.syntax, max_record_bytes, span, places=places)
        for offset, window in windows:
            yield from pending.add(offset, window)
            if pending.done:
                return
        yield from pending.finish()

    def owned(
        self,
        source: RangeSource,
        extent: Extent,
        position: int,
        *,
        window_bytes: int,
        max_record_bytes: int,
    ) -> Iterator[LineBlock]:
        """Yield the records that begin in `extent`, from `position` on; see `Format.decode`."""
        start, end = extent.start, extent.end
        if position >= end:
            return
        if position > start or start == 0:
            start = max(position, start)
            windows = windows_from(source, start, end, window_bytes)
        else:
            around = RangeSurroundings(source, extent, window_bytes, self.syntax.unit)
            windows = StartSearch(self.syntax, extent, around, max_record_bytes).windows()
        span = (start, end)
        yield from self.cut(windows, max_record_bytes=max_record_bytes, span=lambda: span)

    def owned_in_blocks(
        self, content: BlockContent, *, window_bytes: int, max_record_bytes: int
    ) -> Iterator[LineBlock]:
        """Yield the records that begin in the content of an extent's blocks."""
        around = BlockSurroundings(content, window_bytes, self.syntax.lines.mark)
        if content.position or content.extent.start == 0:
            windows = content.windows(0, window_bytes=window_bytes, most_behind=UNBOUNDED)
        else:
            search = StartSearch(self.syntax, content.extent, around, max_record_bytes)
            windows = search.windows()
        yield from self.cut(
            windows, max_record_bytes=max_record_bytes, places=content.index, span=around.span
        )


class _PendingBytes:
    """The bytes of records that have not ended yet."""

    def __init__(
        self,
        syntax: RecordSyntax,
        max_record_bytes: int,
        span: Callable[[], tuple[int, int]] | None,
        *,
        places: Places | None,
    ) -> None:
        self._syntax, self._limit, self._places = syntax, max_record_bytes, places
        self._span = span
        self._begin = -1  # of the first record
        self._kept = 0  # the offset of the first byte in `pieces`
        self._pieces: list[bytes] = []
        self._size = self._wait = 0
        # Of a record that is too long, whose bytes are dropped.
        self._state: State | None = None
        self.done = False

    def add(self, offset: int, window: bytes) -> Iterator[LineBlock]:
        """Add the next window; yield the records that are complete."""
        if self._begin < 0:
            self._begin = self._kept = offset
        self._pieces.append(window)
        self._size += len(window)
        behind = offset + len(window)
        end = UNBOUNDED if self._span is None else self._span()[1]
        at_end = end <= behind
        # Joined and searched again when it has doubled, so that a long record costs linear time.
        waited = self._size >= self._wait and self._syntax.newline in window
        if self._size > self._limit or at_end or waited:
            yield from self._search(final=False)
        if at_end and self._begin >= end:
            self.done = True
        elif at_end and self._state is not None:
            yield from self._too_long(self._begin, behind)
            self.done = True

    def finish(self) -> Iterator[LineBlock]:
        """Yield the last records, at the end of the content."""
        if self._size or self._state is not None:
            yield from self._search(final=True)

    def _search(self, *, final: bool) -> Iterator[LineBlock]:
        syntax = self._syntax
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        if self._state is not None:
            self._state, at = self._followed(data, 0, self._state, final=final)
            if self._state is not State.ENDED:
                self._keep(data, at)
                return
            stop = min(at + syntax.unit, len(data))
            yield from self._too_long(self._begin, self._kept + stop)
            self._state = None
            self._keep(data, stop)
            self._begin = self._kept
            data = data[stop:]
        marked = self._begin == 0 and data.startswith(syntax.lines.mark)
        mark = len(syntax.lines.mark) if marked else 0
        text = syntax.text(data[mark:] if mark else data)
        ends, malformed = syntax.split(text, final=final)
        # The last record may end within a code unit, or have no other bytes.
        ends = np.where(ends < len(text), ends * syntax.unit + mark, len(data))
        if final and (int(ends[-1]) + syntax.unit if len(ends) else mark) < len(data):
            ends = np.append(ends, len(data))
        if len(ends):
            block = self._block(data, ends, malformed, mark)
            self._keep(data, int(block.stops[-1]))
            self._begin, mark = self._kept, 0
            yield from self._blocks(block, ends)
        else:
            self._keep(data, 0)
        if self._size > self._limit:
            self._drop_long(mark)

    def _drop_long(self, mark: int) -> None:
        """Drop the bytes of the pending record if it is too long, wherever it ends."""
        rest, unit = b"".join(self._pieces), self._syntax.unit
        state, at = self._followed(rest, mark, State.RECORD, final=False)
        if self._syntax.least_end(self._syntax.text(rest), at // unit, state) * unit > self._limit:
            self._state = state
            self._keep(rest, at)

    def _followed(self, data: bytes, at: int, state: State, *, final: bool) -> tuple[State, int]:
        text, unit = self._syntax.text(data), self._syntax.unit
        state, to = self._syntax.follow(text, at // unit, state, final=final)
        return state, len(data) if final and to == len(text) else to * unit

    def _keep(self, data: bytes, at: int) -> None:
        self._kept += at
        self._pieces = [data[at:]] if at < len(data) else []
        self._size = len(data) - at
        self._wait = 2 * self._size

    def _blocks(self, block: LineBlock, ends: Indexes) -> Iterator[LineBlock]:
        """Yield the owned records of a block, those that are too long in blocks of their own."""
        begins = np.concatenate((np.zeros(1, np.int64), block.stops[:-1]))
        low, high = 0, len(begins)
        if self._span is not None:
            # Where a record begins decides; a byte order mark belongs to the first one.
            bounds = [bound - block.offset for bound in self._span()]
            low, high = np.searchsorted(begins, bounds).tolist()
        for record in np.flatnonzero(ends - begins > self._limit).tolist():
            if low <= record < high:
                if record > low:
                    yield block.part(low, record)
                where = block.offset + int(begins[record])
                yield from self._too_long(where, block.offset + int(block.stops[record]))
                low = record + 1
        if low < high:
            yield block if high - low == len(block) else block.part(low, high)

    def _too_long(self, location: int, next_position: int) -> Iterator[LineBlock]:
        start, end = (0, UNBOUNDED) if self._span is None else self._span()
        if start <= location < end:
            reason = f"the record is longer than the {self._limit} bytes that are allowed"
            place, then = (place_of(self._places, at) for at in (location, next_position))
            yield no_lines(location, then, BadRecord(raw=None, location=place, reason=reason))

    def _block(self, data: bytes, ends: Indexes, malformed: Indexes, mark: int) -> LineBlock:
        lines, content = self._syntax.lines, np.frombuffer(data, np.uint8)
        stops = np.minimum(ends + lines.unit, len(content))
        irregular = np.zeros(len(ends), bool)
        irregular[malformed] = True
        return LineBlock(
            self._begin,
            content[: stops[-1]],
            np.concatenate((np.full(1, mark, np.int64), stops[:-1])),
            without_returns(content, ends, lines),
            stops,
            place_of(self._places, self._begin + int(stops[-1])),
            places=self._places,
            irregular=irregular,
        )
