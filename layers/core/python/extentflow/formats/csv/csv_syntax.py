"""Find where CSV records end: a quoted field may hold line breaks.

    state    quote     separator  LF           any other
    field    quoted    field      record ends  plain
    plain    plain*    field      record ends  plain
    quoted   closing   quoted     quoted       quoted
    closing  quoted    field      record ends  plain*      * the record is malformed

Every byte has a next state, so a malformed record ends like any other one.

A record that begins with the prefix of comments has no quotes, and ends with its line.

One rule is added: some quotes open nothing, and their record ends with its line. These are quotes
without a closing one before the object's end. So are quotes of a field with a line break that has
no closing quote within `multiline_bytes`.

Tests: unit/formats/csv/test_csv_records.py
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from extentflow.arrays.spans import ASCII_END, Indexes
from extentflow.errors import Misconfigured
from extentflow.formats.lines import LineSyntax
from extentflow.formats.text.charsets import UTF_8, Charset

_LF, _CR = 10, 13
NEWLINE = b"\n"
_NOT_ASCII = 0xFF
_NO_BYTE = -1


class State(Enum):
    """Where a record continues.

    RECORD is its start, where a comment may begin, and FIELD the start of a field. LONG is a quoted
    field without a line break that is too long to hold one. LINE is the rest of a comment, or of
    the line of a quote that opens nothing.
    """

    RECORD = auto()
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
        self.places = np.flatnonzero(content == _code(syntax.quote))
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
        if self._syntax.comment:
            found.append(self._in_comments(first))
        unclosed = len(opening) > len(closing)
        within = not self._is_odd.all() if first else self._is_odd.any()
        may_be_long = within and len(self._content) > self._syntax.multiline_bytes
        if len(opening) and (may_be_long or (self._final and (within or unclosed))):
            found.append(2 * self._open_nothing(opening, closing) + first)
        wrong: Indexes = np.unique(np.concatenate(found)) if any(map(len, found)) else found[0]
        return wrong

    def _in_comments(self, first: int) -> Indexes:
        """Return the ordinals of the first quotes of comments."""
        starts = self.record_ends(first) + 1
        # The buffer begins with a record, in which no quote precedes.
        starts = np.concatenate((np.zeros(1 - first, np.int64), starts))
        starts = begin_with(self._content, starts, (self._syntax.comment or "").encode())
        quotes = np.searchsorted(self.places, starts)
        behind = np.append(self.ends, len(self._content))[np.searchsorted(self.ends, starts)]
        found: Indexes = quotes[np.append(self.places, len(self._content))[quotes] < behind]
        return found

    def _is_edge(self, content: NDArray[np.uint8]) -> NDArray[np.bool_]:
        edge: NDArray[np.bool_] = content == ord(self._syntax.separator)
        edge |= content == _code(self._syntax.quote)
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


def _code(quote: str | None) -> int:
    """Return the byte of a quote; that of no text without one."""
    return _NO_BYTE if quote is None else ord(quote)


def begin_with(content: NDArray[np.uint8], places: Indexes, prefix: bytes) -> Indexes:
    """Return those of the ascending `places` where `prefix` stands in `content`."""
    for at, byte in enumerate(prefix):
        places = places[: np.searchsorted(places, len(content) - at)]
        places = places[content[places + at] == byte]
    return places


@dataclass(frozen=True)
class RecordSyntax:
    """The ASCII characters of a dialect, and the longest quoted field that may hold line breaks.

    `split` and `follow` take one byte per code unit, see `text`.
    """

    separator: str
    # None: a quote is text, and no field holds line breaks.
    quote: str | None
    escape: str | None
    multiline_bytes: int
    # None: LF or CR LF.
    line_end: str | None = None
    charset: Charset = UTF_8
    # What begins a comment.
    comment: str | None = None

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
        return bytes.maketrans(NEWLINE + (self.line_end or "").encode(), b"\xff" + NEWLINE)

    @cached_property
    def _table(self) -> bytes:
        characters = bytes(range(256)).decode(self.charset.codec, "replace")
        return bytes(min(ord(one), _NOT_ASCII) for one in characters)

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[bytes], ...]:
        separator, quote, escape = (
            re.escape(text or "").encode() for text in (self.separator, self.quote, self.escape)
        )
        pair = rb"|" + escape + rb"." if escape else b""

        def until(stops: bytes, pairs: bytes = b"") -> re.Pattern[bytes]:
            # Possessive quantifiers never backtrack, so that a long field costs linear time.
            return re.compile(
                rb"(?:[^" + stops + escape + rb"]++" + pairs + pair + rb")*+", re.DOTALL
            )

        pairs = rb"|" + quote + quote if quote else b""
        return (
            until(separator + b"\n"),
            # Not used without a quote.
            until(quote or b"\n", pairs),
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
        """Follow one record from byte `at` of `data`: its start in the state RECORD.

        Returns ENDED and the place of its LF, which is the length of `data` if it ends with the
        object. Otherwise returns the state and byte to continue with when more bytes are there.
        `final`: there are no more.
        """
        quote, size = _code(self.quote), len(data)
        plain, _, long, line = self._patterns
        state = self._begun(data, at, final=final) if state is State.RECORD else state
        while state is not State.RECORD:
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
        return state, at

    def _begun(self, data: bytes, at: int, *, final: bool) -> State:
        """Return LINE for a comment at `at`, else FIELD; RECORD if that is unknown yet."""
        prefix = (self.comment or "").encode()
        begin = data[at : at + len(prefix)]
        if begin != prefix:
            return State.FIELD if final or not prefix.startswith(begin) else State.RECORD
        return State.LINE if prefix else State.FIELD

    def _quoted(self, data: bytes, at: int, *, final: bool) -> tuple[State, int]:
        """Return the state behind the quote at `at` and its field; FIELD if that is unknown yet."""
        _, quoted, _, line = self._patterns
        # The first byte that may be the closing quote.
        to = self._matched(quoted, data, at + 1)
        there = to < len(data) and data[to] == _code(self.quote) and (to + 1 < len(data) or final)
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
        if self.quote is None or self.quote.encode() not in data[at:most]:
            return most
        match = self._patterns[1].match(data, at)
        return match.end() if match else at

    def least_end(self, data: bytes, at: int, state: State) -> int:
        """Return where the record that `follow` has left at `at` ends at the earliest."""
        unread = state in (State.RECORD, State.FIELD)
        return self._matched(self._patterns[3], data, at) if unread else at

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
            state, end = self.follow(data, begin, State.RECORD, final=final)
            if state is not State.ENDED:
                break
            found.append(np.array([end]))
            count += len(good) + 1
            malformed.append(count - 1)
            at = end + 1
            quote = int(np.searchsorted(quotes.places, at))
        return np.concatenate([*found, np.empty(0, np.int64)]), np.array(malformed, np.int64)
