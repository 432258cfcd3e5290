r"""Find the first CSV record of an extent, whose start lies within quotes or not.

Bytes before the extent are read until both assumptions lead to the same record, or until a rule of
`csv_syntax` refutes one:

    object      ... x , " a \n b " , c \n d , " e " \n ...
    outside         . . .     |  bad       |            next record: d
    within quotes   . . . . .    . closed  |            next record: d

Tests: unit/formats/csv/test_csv_records.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np

from extentflow.arrays.spans import Indexes
from extentflow.errors import CorruptObject
from extentflow.formats.blocks import BlockContent
from extentflow.formats.csv.csv_syntax import NEWLINE, RecordSyntax, State
from extentflow.formats.lines import Window, stream_windows
from extentflow.model import Extent
from extentflow.storage import RangeSource
from extentflow.storage.ranges import TAIL_BYTES, tail

# The bytes before an extent that are read at first, and how many more each time.
_BACK_BYTES = 16 << 10
_LEAST_BACK_BYTES = 1 << 10
_BACK_SHARE = 128
_BACK_GROWTH = 8
_AHEAD_BYTES = 64 << 10
UNBOUNDED = 1 << 62
# More bytes are needed, behind or before those that are known.
_AHEAD, _BEFORE = -1, -2


def windows_from(source: RangeSource, start: int, end: int, window_bytes: int) -> Iterator[Window]:
    """Yield `[start, end)` and then, on demand, what follows up to the end of the object."""
    yield from stream_windows(source, start, end, window_bytes)
    share = max(_LEAST_BACK_BYTES, (end - start) // _BACK_SHARE)
    first, most = min(TAIL_BYTES, window_bytes, share), max(TAIL_BYTES, window_bytes)
    for piece in tail(source, end, first_bytes=first, most_bytes=most):
        yield end, piece
        end += len(piece)


def _common_start(without: Indexes, within: Indexes, start: int) -> int:
    """Return the last start up to `start`, or the first one from it on, if it is in both."""
    last, also = (found[found <= start][-1:].tolist() for found in (without, within))
    if last and last == also:
        return int(last[0])
    first, also = (found[found >= start][:1].tolist() for found in (without, within))
    if first and first == also:
        return int(first[0])
    return _BEFORE if first and also else _AHEAD


class Surroundings(Protocol):
    """The content of an extent, and what surrounds it."""

    @property
    def window_bytes(self) -> int:
        """The size of the windows."""

    def span(self) -> tuple[int, int]:
        """Return the offsets of the extent's content; see `RecordCutter.cut`."""

    def windows(self, back: int) -> tuple[int, bool, Iterator[Window]]:
        """Return windows from about `back` bytes before the extent, if there are so many, on.

        Also the offset where they begin, and whether that is the content's start.
        """

    def further_back(self, begin: int, back: int) -> tuple[bytes, bool]:
        """Return what precedes offset `begin`, up to about `back` bytes before the extent.

        Also whether it begins with the content's start.
        """


@dataclass(frozen=True)
class RangeSurroundings:
    """The surroundings of an extent of bytes."""

    source: RangeSource
    extent: Extent
    window_bytes: int
    unit: int

    def span(self) -> tuple[int, int]:
        return self.extent.start, self.extent.end

    def windows(self, back: int) -> tuple[int, bool, Iterator[Window]]:
        begin = self._aligned(back)
        windows = windows_from(self.source, begin, self.extent.end, self.window_bytes)
        return begin, begin == 0, windows

    def further_back(self, begin: int, back: int) -> tuple[bytes, bool]:
        before = self._aligned(back)
        if before >= begin:
            return b"", False
        pieces = stream_windows(self.source, before, begin, self.window_bytes)
        return b"".join(piece for _, piece in pieces), before == 0

    def _aligned(self, back: int) -> int:
        return max(0, (self.extent.start - back) // self.unit * self.unit)


@dataclass(frozen=True)
class BlockSurroundings:
    """The surroundings of an extent of compressed blocks."""

    content: BlockContent
    window_bytes: int
    mark: bytes

    def span(self) -> tuple[int, int]:
        return self.content.begin, self.content.end()

    def windows(self, back: int) -> tuple[int, bool, Iterator[Window]]:
        content = self.content
        windows = content.windows(back, window_bytes=self.window_bytes, most_behind=UNBOUNDED)
        found = next(windows, None)
        if found is None:
            return content.begin, False, iter(())
        begin, window = found
        marked = content.is_whole and window.startswith(self.mark)
        skipped = len(self.mark) if marked and content.has_context else 0
        found = (begin + skipped, window[skipped:])
        return found[0], content.is_whole, chain([found], windows)

    def further_back(self, begin: int, back: int) -> tuple[bytes, bool]:
        found, whole = self.content.before(begin, back)
        # Where a byte order mark is not at offset 0, it would be part of the first field.
        return found.removeprefix(self.mark) if whole else found, whole


class StartSearch:
    """Finds a record's start that does not depend on whether the extent starts within quotes."""

    def __init__(
        self, syntax: RecordSyntax, extent: Extent, around: Surroundings, max_record_bytes: int
    ) -> None:
        self._syntax, self._extent, self._around = syntax, extent, around
        self._most_back = max_record_bytes + 2 * syntax.multiline_bytes
        share = max(_LEAST_BACK_BYTES, (extent.end - extent.start) // _BACK_SHARE)
        self._back = min(_BACK_BYTES, share, max(2, around.window_bytes))

    def windows(self) -> Iterator[Window]:
        """Yield windows that begin with a record at or before the first one of the extent.

        Nothing if no record begins in the extent. CorruptObject if the bytes do not show which of
        them are quoted.
        """
        begin, at_start, windows = self._around.windows(self._back)
        if at_start:
            yield from windows
            return
        data, final, back = b"", False, self._back
        while True:
            found = self._agreed(data, begin, final=final)
            if found == _AHEAD:
                if self._syntax.newline not in data and len(data) > self._most_back:
                    dropped = len(data) // self._syntax.unit * self._syntax.unit
                    begin, data = begin + dropped, data[dropped:]
                more = next(windows, None)
                data, final = (data, True) if more is None else (data + more[1], False)
            elif found >= 0:
                if begin + found < self._around.span()[1]:
                    yield begin + found, data[found:]
                    yield from windows
                return
            else:
                back = min(back * _BACK_GROWTH, self._most_back)
                more_before, at_start = self._further_back(begin, back)
                begin, data = begin - len(more_before), more_before + data
                if at_start:
                    yield begin, data
                    yield from windows
                    return

    def _further_back(self, begin: int, back: int) -> tuple[bytes, bool]:
        start, _ = self._around.span()
        found, at_start = b"", False
        if begin <= start:
            found, at_start = self._around.further_back(begin, back)
        if not found and not at_start:
            raise CorruptObject(
                f"{self._extent.uri}: {abs(start - begin)} bytes do not show whether the extent"
                " starts within quotes; set csv.multiline.max.bytes=none if no field holds line"
                " breaks, or extent.bytes to at least the object's size"
            )
        return found, at_start

    def _agreed(self, data: bytes, begin: int, *, final: bool) -> int:
        """Return where a record begins that both assumptions lead to, as `_AHEAD` or `_BEFORE`.

        At or behind the extent's end, if it owns no record.
        """
        syntax, unit = self._syntax, self._syntax.unit
        text = syntax.text(data)
        # A record begins with a code unit.
        start, end = (-((begin - bound) // unit) for bound in self._around.span())
        newline, unclear = self._first_newline(text)
        is_unclear = unclear > 0 and unclear >= start
        if newline < 0 and len(text) < end and not (final or is_unclear):
            return _AHEAD
        if newline < 0 or is_unclear:
            return _BEFORE if syntax.escape is not None and NEWLINE in text else end * unit
        # The first byte that may close a quoted field which holds the line end at `newline`.
        closing = syntax.next_quote(text, newline + 1)
        if closing - newline > syntax.multiline_bytes or (closing == len(text) and final):
            return (newline + 1) * unit
        if closing + 1 >= len(text) and not final:
            return _AHEAD
        view = text[: max(start, closing) + _AHEAD_BYTES]
        last = final and len(view) == len(text)
        without = self._starts(view, newline + 1, final=last)
        within = self._starts_behind(view, closing, final=last)
        found = _common_start(without, within, start)
        if found < 0 and (final or len(view) < len(text)):
            return _BEFORE
        return found * unit if found >= 0 else found

    def _first_newline(self, data: bytes) -> tuple[int, int]:
        """Return the first LF that is not escaped, and where one ends that may be escaped; or -1.

        One at the start of `data`, perhaps behind escapes, may be escaped by what precedes it.
        """
        if self._syntax.escape is None:
            return data.find(NEWLINE), -1
        escape = re.escape(self._syntax.escape).encode()
        clear = re.search(rb"(?<=[^%b])(?:%b%b)*\n" % (escape, escape, escape), data)
        unclear = re.match(rb"%b*\n" % escape, data)
        return clear.end() - 1 if clear else -1, unclear.end() if unclear else -1

    def _starts(self, data: bytes, begin: int, *, final: bool) -> Indexes:
        ends, _ = self._syntax.split(data[begin:], final=final)
        return np.concatenate((np.array([begin]), ends + 1 + begin))

    def _starts_behind(self, data: bytes, closing: int, *, final: bool) -> Indexes:
        state, end = self._syntax.follow(data, closing + 1, State.PLAIN, final=final)
        if state is not State.ENDED:
            return np.empty(0, np.int64)
        return self._starts(data, min(end + 1, len(data)), final=final)
