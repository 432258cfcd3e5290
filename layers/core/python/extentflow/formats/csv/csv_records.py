r"""Cut CSV into records: a quoted field may hold line breaks.

    state    quote     separator  LF           any other
    field    quoted    field      record ends  plain
    plain    plain*    field      record ends  plain
    quoted   closing   quoted     quoted       quoted
    closing  quoted    field      record ends  plain*      * the record is malformed

Every byte has a next state, so a malformed record ends like any other one. One rule is added: a
quote opens nothing, and its record ends with its line, if the field has a line break and no
closing quote within `multiline_bytes`, or no closing quote before the end of the object.

An extent's start lies within quotes or not. Bytes before it are read until both assumptions lead to
the same record, or until the rule above refutes one:

    object      ... x , " a \n b " , c \n d , " e " \n ...
    outside         . . .     |  bad       |            next record: d
    within quotes   . . . . .    . closed  |            next record: d
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property
from itertools import chain
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from extentflow.errors import CorruptObject, Misconfigured
from extentflow.formats import BadRecord
from extentflow.formats.blocks import BlockContent
from extentflow.formats.lines import (
    ASCII_END,
    Indexes,
    LineBlock,
    LineSyntax,
    Places,
    Window,
    place_of,
    stream_windows,
    without_returns,
)
from extentflow.formats.text.charsets import UTF_8, Charset
from extentflow.model import Extent
from extentflow.storage import RangeSource
from extentflow.storage.ranges import TAIL_BYTES, tail

_LF, _CR = 10, 13
_NEWLINE = b"\n"
_NOT_ASCII = 0xFF
# The bytes before an extent that are read at first, and how many more each time.
_BACK_BYTES = 16 << 10
_LEAST_BACK_BYTES = 1 << 10
_BACK_SHARE = 128
_BACK_GROWTH = 8
_AHEAD_BYTES = 64 << 10
_UNBOUNDED = 1 << 62
# More bytes are needed, behind or before those that are known.
_AHEAD, _BEFORE = -1, -2


class State(Enum):
    """Where a record continues.

    LONG is a quoted field without a line break that is too long to hold one, LINE the rest of the
    line of a quote that opens nothing.
    """

    FIELD = auto()
    PLAIN = auto()
    LONG = auto()
    LINE = auto()
    ENDED = auto()


class Quotes:
    """The unescaped quotes of a buffer, and where they contradict RFC 4180.

    `first` is the parity of the ordinals of opening quotes: 0 if the buffer's first quote opens.
    """

    def __init__(self, content: NDArray[np.uint8], syntax: RecordSyntax, *, final: bool) -> None:
        self._content, self._syntax, self._final = content, syntax, final
        self.ends = np.flatnonzero(content == _LF)
        self.places = np.flatnonzero(content == ord(syntax.quote))
        self._escaped = syntax.escaped(content)
        if self._escaped is not None:
            self.ends = self.ends[~self._escaped[self.ends]]
            self.places = self.places[~self._escaped[self.places]]
        counts = np.searchsorted(self.places, self.ends)
        self._is_odd = (counts & 1).astype(bool)

    def record_ends(self, first: int) -> Indexes:
        """Return the line ends that are not within quotes."""
        found: Indexes = self.ends[self._is_odd if first else ~self._is_odd]
        return found

    def wrong(self, first: int) -> Indexes:
        """Return the ordinals of quotes that are misplaced or open nothing."""
        opening, closing = self.places[first::2], self.places[first + 1 :: 2]
        found = [
            2 * np.flatnonzero(~self._may_open(opening)) + first,
            2 * np.flatnonzero(~self._may_close(closing)) + first + 1,
        ]
        unclosed = len(opening) > len(closing)
        within = not self._is_odd.all() if first else self._is_odd.any()
        may_be_long = within and len(self._content) > self._syntax.multiline_bytes
        if len(opening) and (may_be_long or (self._final and (within or unclosed))):
            found.append(2 * self._open_nothing(opening, closing) + first)
        wrong: Indexes = np.unique(np.concatenate(found)) if any(map(len, found)) else found[0]
        return wrong

    def _is_edge(self, content: NDArray[np.uint8]) -> NDArray[np.bool_]:
        edge: NDArray[np.bool_] = content == ord(self._syntax.separator)
        edge |= content == ord(self._syntax.quote)
        edge |= content == _LF
        return edge

    def _may_open(self, opening: Indexes) -> NDArray[np.bool_]:
        before = opening - 1
        may_open = self._is_edge(self._content[before])
        if self._escaped is not None:
            may_open &= ~self._escaped[before]
        may_open[:1] |= opening[:1] == 0
        return may_open

    def _may_close(self, closing: Indexes) -> NDArray[np.bool_]:
        last = len(self._content) - 1
        # Only the last quote can be the last byte; what is behind it is not read yet, or the end.
        behind = self._content[np.minimum(closing + 1, last)]
        may_close = self._is_edge(behind)
        returns = np.flatnonzero(behind == _CR)
        if len(returns):
            # CR LF ends a record. What follows a CR at the end of the buffer is not read yet.
            then = closing[returns] + 2
            may_close[returns] |= self._content[np.minimum(then, last)] == _LF
            may_close[returns] |= (then > last) & (not self._final)
        return may_close

    def _open_nothing(self, opening: Indexes, closing: Indexes) -> Indexes:
        """Return the ordinals of opening quotes whose fields are too long for their line breaks."""
        limit, size = self._syntax.multiline_bytes, len(self._content)
        unclosed = len(opening) > len(closing)
        if unclosed:
            # No byte of the buffer closes it.
            closing = np.append(closing, size + (limit if self._final else 0))
        # A pair of quotes within a field closes and opens.
        joined = opening[1:] == closing[:-1] + 1
        begins = np.flatnonzero(np.concatenate(([True], ~joined)))
        stops = closing[np.concatenate((~joined, [True]))]
        long = np.flatnonzero(stops - opening[begins] > limit)
        line_ends = [np.searchsorted(self.ends, edge[long]) for edge in (opening[begins], stops)]
        broken = line_ends[0] < line_ends[1]
        if unclosed and self._final:
            broken[-1] = True
        found: Indexes = begins[long[broken]]
        return found


@dataclass(frozen=True)
class RecordSyntax:
    """The ASCII characters of a dialect, and the longest quoted field that may hold line breaks.

    `split` and `follow` take one byte per code unit, see `text`.
    """

    separator: str
    quote: str
    escape: str | None
    multiline_bytes: int
    # None: LF or CR LF.
    line_end: str | None = None
    charset: Charset = UTF_8

    def within(self, charset: Charset) -> RecordSyntax:
        """Return the dialect in another character set; Misconfigured if it is ambiguous there."""
        used = {"separator": self.separator, "quote": self.quote, "escape": self.escape}
        for name, character in used.items():
            if character and charset.is_ambiguous(character.encode()):
                raise Misconfigured(
                    f"csv.{name}.char={character!r} can be within a character of {charset.codec};"
                    " convert the object to UTF-8"
                )
        return replace(self, charset=charset)

    @cached_property
    def lines(self) -> LineSyntax:
        """What ends a line in the object."""
        return self.charset.syntax(self.line_end)

    @cached_property
    def unit(self) -> int:
        """The size of a code unit in bytes."""
        return self.lines.unit

    @cached_property
    def newline(self) -> bytes:
        """The byte without which there is no line break."""
        return self.lines.delimiter.strip(b"\0")

    def text(self, data: bytes) -> bytes:
        """Return ASCII characters as themselves, and any other code unit as 0xFF.

        The end of a line is LF; where that is another character, LF is 0xFF.
        """
        if self.unit > 1:
            order = ">" if self.charset.codec.endswith("be") else "<"
            whole = data[: len(data) // self.unit * self.unit]
            units = np.frombuffer(whole, f"{order}u{self.unit}")
            data = np.where(units < ASCII_END, units, _NOT_ASCII).astype(np.uint8).tobytes()
        elif not (self.charset.ascii or self.charset.stateful):
            data = data.translate(self._table)
        return data if self.line_end is None else data.translate(self._line_ends)

    @cached_property
    def _line_ends(self) -> bytes:
        return bytes.maketrans(_NEWLINE + (self.line_end or "").encode(), b"\xff" + _NEWLINE)

    @cached_property
    def _table(self) -> bytes:
        characters = bytes(range(256)).decode(self.charset.codec, "replace")
        return bytes(min(ord(one), _NOT_ASCII) for one in characters)

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[bytes], ...]:
        separator, quote, escape = (
            re.escape(text).encode() for text in (self.separator, self.quote, self.escape or "")
        )
        pair = rb"|" + escape + rb"." if escape else b""

        def until(stops: bytes, pairs: bytes = b"") -> re.Pattern[bytes]:
            # Possessive quantifiers never backtrack, so that a long field costs linear time.
            return re.compile(
                rb"(?:[^" + stops + escape + rb"]++" + pairs + pair + rb")*+", re.DOTALL
            )

        pairs = rb"|" + quote + quote
        return (
            until(separator + b"\n"),
            until(quote, pairs),
            until(quote + b"\n", pairs),
            until(b"\n"),
        )

    def escaped(self, content: NDArray[np.uint8]) -> NDArray[np.bool_] | None:
        """Return the mask of escaped bytes; None if there are none."""
        if self.escape is None:
            return None
        escapes = np.flatnonzero(content == ord(self.escape))
        if not len(escapes):
            return None
        # In a run of escapes, every second one is escaped itself.
        begins = np.flatnonzero(np.diff(escapes, prepend=-2) != 1)
        runs = np.repeat(begins, np.diff(begins, append=len(escapes)))
        acting = escapes[(np.arange(len(escapes)) - runs) % 2 == 0]
        mask = np.zeros(len(content) + 1, bool)
        mask[acting + 1] = True
        return mask[:-1]

    def follow(self, data: bytes, at: int, state: State, *, final: bool) -> tuple[State, int]:
        """Follow one record from byte `at` of `data`, a field's start in the state FIELD.

        Returns ENDED and the place of its LF (the length of `data` if it ends with the object), or
        the state and byte to continue with when more bytes are there. `final`: there are no more.
        """
        quote, size = ord(self.quote), len(data)
        plain, _, long, line = self._patterns
        while True:
            if state is State.FIELD:
                if at == size and not final:
                    return state, at
                if at == size or data[at] != quote:
                    state = State.PLAIN
                    continue
                state, to = self._quoted(data, at, final=final)
                if state is State.FIELD:
                    return state, at
                at = to
            pattern = {State.PLAIN: plain, State.LONG: long, State.LINE: line}[state]
            to = self._matched(pattern, data, at)
            if to < size and data[to] == _LF:
                return State.ENDED, to
            if to < size and data[to] == ord(self.separator) and state is State.PLAIN:
                at, state = to + 1, State.FIELD
            elif to < size and data[to] == quote and (to + 1 < size or final):
                at, state = to + 1, State.PLAIN
            elif final:
                return State.ENDED, size
            else:
                return state, to

    def _quoted(self, data: bytes, at: int, *, final: bool) -> tuple[State, int]:
        """Return the state behind the quote at `at` and its field; FIELD if that is unknown yet."""
        _, quoted, _, line = self._patterns
        # The first byte that may be the closing quote.
        to = self._matched(quoted, data, at + 1)
        there = to < len(data) and data[to] == ord(self.quote) and (to + 1 < len(data) or final)
        broken = self._matched(line, data, at) < to
        if there and (not broken or to - at <= self.multiline_bytes):
            return State.PLAIN, to + 1
        if broken and (to - at > self.multiline_bytes or final):
            return State.LINE, at
        if final:
            return State.LINE, at
        if to - at > self.multiline_bytes:
            return State.LONG, to
        return State.FIELD, at

    def next_quote(self, data: bytes, at: int) -> int:
        """Return the first byte from `at` on, within quotes, that may be the closing one.

        More than `multiline_bytes` ahead, any byte.
        """
        most = min(len(data), at + self.multiline_bytes + 1)
        if self.quote.encode() not in data[at:most]:
            return most
        match = self._patterns[1].match(data, at)
        return match.end() if match else at

    def least_end(self, data: bytes, at: int, state: State) -> int:
        """Return where the record that `follow` has left at `at` ends at the earliest."""
        return self._matched(self._patterns[3], data, at) if state is State.FIELD else at

    @staticmethod
    def _matched(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
        match = pattern.match(data, at)
        return match.end() if match else at

    def split(self, data: bytes, *, final: bool) -> tuple[Indexes, Indexes]:
        """Return the ends of the records in `data`, and the ordinals of malformed ones.

        `data` begins with a record. An end is the place of an LF; `final` adds the end of `data`
        for a last record without one.
        """
        content = np.frombuffer(data, np.uint8)
        quotes = Quotes(content, self, final=final)
        malformed = np.empty(0, np.int64)
        if not len(quotes.places):
            ends = quotes.ends
        else:
            wrong = quotes.wrong(0)
            if len(wrong):
                ends, malformed = self._split_malformed(data, quotes, wrong, final=final)
            else:
                ends = quotes.record_ends(0)
        if final and (ends[-1] + 1 if len(ends) else 0) < len(data):
            ends = np.append(ends, len(data))
        return ends, malformed

    def _split_malformed(
        self, data: bytes, quotes: Quotes, wrong: Indexes, *, final: bool
    ) -> tuple[Indexes, Indexes]:
        found: list[Indexes] = []
        malformed: list[int] = []
        count = at = quote = 0
        ends = {0: quotes.record_ends(0)}
        wrongs = {0: wrong}
        while at < len(data):
            first = quote & 1
            if first not in ends:
                ends[first], wrongs[first] = quotes.record_ends(first), quotes.wrong(first)
            low = int(np.searchsorted(ends[first], at))
            next_wrong = int(np.searchsorted(wrongs[first], quote))
            if next_wrong == len(wrongs[first]):
                found.append(ends[first][low:])
                break
            place = quotes.places[wrongs[first][next_wrong]]
            good = ends[first][low : int(np.searchsorted(ends[first], place))]
            found.append(good)
            begin = int(good[-1]) + 1 if len(good) else at
            state, end = self.follow(data, begin, State.FIELD, final=final)
            if state is not State.ENDED:
                break
            found.append(np.array([end]))
            count += len(good) + 1
            malformed.append(count - 1)
            at = end + 1
            quote = int(np.searchsorted(quotes.places, at))
        return np.concatenate([*found, np.empty(0, np.int64)]), np.array(malformed, np.int64)


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
            windows = _windows(source, start, end, window_bytes)
        else:
            around = _RangeSurroundings(source, extent, window_bytes, self.syntax.unit)
            windows = _StartSearch(self.syntax, extent, around, max_record_bytes).windows()
        span = (start, end)
        yield from self.cut(windows, max_record_bytes=max_record_bytes, span=lambda: span)

    def owned_in_blocks(
        self, content: BlockContent, *, window_bytes: int, max_record_bytes: int
    ) -> Iterator[LineBlock]:
        """Yield the records that begin in the content of an extent's blocks."""
        around = _BlockSurroundings(content, window_bytes, self.syntax.lines.mark)
        if content.position or content.extent.start == 0:
            windows = content.windows(0, window_bytes=window_bytes, most_behind=_UNBOUNDED)
        else:
            search = _StartSearch(self.syntax, content.extent, around, max_record_bytes)
            windows = search.windows()
        yield from self.cut(
            windows, max_record_bytes=max_record_bytes, places=content.index, span=around.span
        )


def _windows(source: RangeSource, start: int, end: int, window_bytes: int) -> Iterator[Window]:
    """Yield `[start, end)` and then, on demand, what follows up to the end of the object."""
    yield from stream_windows(source, start, end, window_bytes)
    share = max(_LEAST_BACK_BYTES, (end - start) // _BACK_SHARE)
    first, most = min(TAIL_BYTES, window_bytes, share), max(TAIL_BYTES, window_bytes)
    for piece in tail(source, end, first_bytes=first, most_bytes=most):
        yield end, piece
        end += len(piece)


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
        end = _UNBOUNDED if self._span is None else self._span()[1]
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
        if len(ends):
            # The last record may end within a code unit.
            ends = np.where(ends < len(text), ends * syntax.unit + mark, len(data))
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
        state, at = self._followed(rest, mark, State.FIELD, final=False)
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
        start, end = (0, _UNBOUNDED) if self._span is None else self._span()
        if start <= location < end:
            none = np.empty(0, np.int64)
            reason = f"the record is longer than the {self._limit} bytes that are allowed"
            place, then = (place_of(self._places, at) for at in (location, next_position))
            bad = (BadRecord(raw=None, location=place, reason=reason),)
            yield LineBlock(location, np.empty(0, np.uint8), none, none, none, then, bad)

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


def _common_start(without: Indexes, within: Indexes, start: int) -> int:
    """Return the last start up to `start`, or the first one from it on, if it is in both."""
    last, also = (found[found <= start][-1:].tolist() for found in (without, within))
    if last and last == also:
        return int(last[0])
    first, also = (found[found >= start][:1].tolist() for found in (without, within))
    if first and first == also:
        return int(first[0])
    return _BEFORE if first and also else _AHEAD


class _Surroundings(Protocol):
    """The content of an extent, and what surrounds it."""

    @property
    def window_bytes(self) -> int: ...

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
class _RangeSurroundings:
    source: RangeSource
    extent: Extent
    window_bytes: int
    unit: int

    def span(self) -> tuple[int, int]:
        return self.extent.start, self.extent.end

    def windows(self, back: int) -> tuple[int, bool, Iterator[Window]]:
        begin = self._aligned(back)
        windows = _windows(self.source, begin, self.extent.end, self.window_bytes)
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
class _BlockSurroundings:
    content: BlockContent
    window_bytes: int
    mark: bytes

    def span(self) -> tuple[int, int]:
        return self.content.begin, self.content.end()

    def windows(self, back: int) -> tuple[int, bool, Iterator[Window]]:
        content = self.content
        windows = content.windows(back, window_bytes=self.window_bytes, most_behind=_UNBOUNDED)
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


class _StartSearch:
    """Finds a record's start that does not depend on whether the extent starts within quotes."""

    def __init__(
        self, syntax: RecordSyntax, extent: Extent, around: _Surroundings, max_record_bytes: int
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
            return _BEFORE if syntax.escape is not None and _NEWLINE in text else end * unit
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
            return data.find(_NEWLINE), -1
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
