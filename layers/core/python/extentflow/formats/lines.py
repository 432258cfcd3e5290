r"""Split the byte range of an extent into delimiter-terminated lines.

    object   a a a \n b b b b \n c c c \n
    extents  [0 ........ 7)[7 ......... 14)
    owned     a       b              c      b starts at 4: first extent, although it ends later

A byte order mark belongs to the line after it, so that byte 0 owns that line. A delimiter is found
only where a code unit begins, counted from the object's start (UTF-16: every second byte).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise, starmap
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from extentflow.arrays.spans import Indexes, Spans, slices
from extentflow.errors import StoreUnavailable
from extentflow.formats import BadRecord
from extentflow.model import Extent
from extentflow.storage import RangeSource
from extentflow.storage.ranges import TAIL_BYTES, tail

Window = tuple[int, bytes]

BOM = b"\xef\xbb\xbf"
MOST_LINES = 5 << 18
# Bounds of the first read behind an extent: 1/128 of the extent, but at least 1 KiB.
_LEAST_TAIL_BYTES = 1024
_TAIL_SHARE = 128


@dataclass(frozen=True, slots=True)
class LineSyntax:
    """The bytes that end a line: `delimiter`, and `returns` before it, where there are such.

    `unit` is the size of a code unit; it divides the length of the delimiter, and no end of the
    delimiter is its beginning, so that occurrences never overlap. `mark` is the byte order mark.
    """

    delimiter: bytes = b"\n"
    unit: int = 1
    returns: bytes = b"\r"
    mark: bytes = BOM

    def positions(self, content: NDArray[np.uint8]) -> Indexes:
        """Return where delimiters begin in `content`, which begins with a code unit."""
        units = content[: len(content) // self.unit * self.unit].view(f"<u{self.unit}")
        first, *others = np.frombuffer(self.delimiter, units.dtype)
        found = np.flatnonzero(units == first)
        for place, other in enumerate(others, 1):
            found = found[found + place < len(units)]
            found = found[units[found + place] == other]
        return found * self.unit if self.unit > 1 else found

    def span(self, window: bytes, least: int = 0) -> tuple[int, int]:
        """Return where the first delimiter that ends at or after `least` ends, and the last one.

        (0, 0) if there is none.
        """
        size = len(self.delimiter)
        if self.unit == 1:
            first = window.find(self.delimiter, max(0, least - size))
            return (first + size, window.rfind(self.delimiter) + size) if first >= 0 else (0, 0)
        ends = self.positions(np.frombuffer(window, np.uint8)) + size
        ends = ends[np.searchsorted(ends, least) :]
        return (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)

    def partial_bytes(self, window: bytes) -> int:
        """Return how many last bytes of `window` may be the beginning of a delimiter."""
        rest = len(window) % self.unit
        end = len(window) - rest
        for size in range(len(self.delimiter) - self.unit, 0, -self.unit):
            if window[max(0, end - size) : end] == self.delimiter[:size]:
                return size + rest
        return rest


UTF_8_LINES = LineSyntax()


class Places(Protocol):
    """Maps offsets of decompressed content to the positions that resume there; monotonic."""

    def place(self, offset: int) -> int:
        """Return the position of one offset."""
        ...

    def places(self, offsets: Indexes) -> Indexes:
        """Return the positions of ascending offsets, each within a line."""
        ...


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Consecutive lines as slices of one buffer.

    `data[0]` is byte `offset` of the object. Line i is `data[starts[i]:ends[i]]`, without its
    terminator (LF or CR LF); the next line starts after the terminator, at `stops[i]`.
    `next_position` is where decoding resumes after this block. `bad` are lines that are too long.
    `irregular` marks lines that their cutter found malformed (None: it does not look).

    Lines of another `charset` are UTF-8 here; then `original` has the same lines as they are in the
    object, and only its offsets are those of the object. With `places`, positions are not offsets
    either: use `location`, `stop` and `offsets`.
    """

    offset: int
    data: NDArray[np.uint8]
    starts: Indexes
    ends: Indexes
    stops: Indexes
    next_position: int
    bad: tuple[BadRecord, ...] = ()
    original: LineBlock | None = None
    charset: str = "UTF-8"
    places: Places | None = None
    irregular: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def spans(self) -> Spans:
        """The lines alone, for what does not depend on where they are."""
        return Spans(self.data, self.starts, self.ends)

    def raw(self, line: int) -> bytes:
        """Return the bytes of one line, as UTF-8."""
        return self.data[self.starts[line] : self.ends[line]].tobytes()

    def object_bytes(self, line: int) -> bytes:
        """Return the bytes of one line as they are in the object."""
        return (self.original or self).raw(line)

    def location(self, line: int) -> int:
        """Return the byte offset of one line in the object."""
        block = self.original or self
        return place_of(block.places, block.offset + int(block.starts[line]))

    def stop(self, line: int) -> int:
        """Return the byte offset in the object behind one line and its terminator."""
        block = self.original or self
        return place_of(block.places, block.offset + int(block.stops[line]))

    def locations(self, lines: Indexes | None = None) -> Sequence[int]:
        """Return the byte offsets of `lines` (ascending; None: all) as a view of int64."""
        return self.offsets(lines).data

    def offsets(self, lines: Indexes | None = None) -> Indexes:
        """Return the byte offsets of `lines` (ascending; None: all) in the object."""
        block = self.original or self
        offsets = (block.starts if lines is None else block.starts[lines]) + block.offset
        return offsets if block.places is None else block.places.places(offsets)

    def values(self, lines: Indexes | None = None) -> pa.BinaryArray:
        """Return `lines` (ascending; None: all) as an Arrow array: one copy, no Python objects."""
        chosen = slice(None) if lines is None else lines
        return slices(self.data, self.starts[chosen], self.ends[chosen])

    def text(self, lines: Indexes) -> NDArray[np.uint8]:
        """Return `lines` (ascending, at least one) with their terminators, concatenated."""
        gaps = np.flatnonzero(np.diff(lines) != 1) + 1
        if not len(gaps):
            return self.data[self.starts[lines[0]] : self.stops[lines[-1]]]
        # Lines that follow each other are copied as one slice.
        edges = ((self.starts[run[0]], self.stops[run[-1]]) for run in np.split(lines, gaps))
        return np.concatenate([self.data[start:stop] for start, stop in edges])

    def parts(self, lines: int) -> Iterator[LineBlock]:
        """Return blocks of nearly equal size with at most `lines` lines each."""
        count = -(-len(self) // lines)
        if count <= 1:
            return iter((self,))
        return starmap(self.part, pairwise(len(self) * part // count for part in range(count + 1)))

    def part(self, first: int, last: int) -> LineBlock:
        """Return the block of lines `[first, last)`, at least one, and of the bad ones there."""
        low = int(self.stops[first - 1]) if first else 0
        high = int(self.stops[last - 1])
        # A bad record behind the part's last line is behind its position, where decoding resumes.
        bad, position = self.bad, self.next_position
        if first and bad:
            bad = tuple(one for one in bad if one.location >= self.stop(first - 1))
        if last < len(self):
            position = self.stop(last - 1)
            bad = tuple(one for one in bad if one.location < position)
        return LineBlock(
            offset=self.offset + low,
            data=self.data[low:high],
            starts=self.starts[first:last] - low,
            ends=self.ends[first:last] - low,
            stops=self.stops[first:last] - low,
            next_position=position,
            bad=bad,
            places=self.places,
            irregular=None if self.irregular is None else self.irregular[first:last],
        )


def one_record(text: bytes, location: int, *, original: bytes | None = None) -> LineBlock:
    """Return the block of one record of UTF-8 at `location`; `original`: its bytes in the object.

    It counts as irregular, so that it is read exactly.
    """
    ends = np.array([len(text)], np.int64)
    block = LineBlock(
        offset=location,
        data=np.frombuffer(text, np.uint8),
        starts=np.zeros(1, np.int64),
        ends=ends,
        stops=ends,
        next_position=location + len(text if original is None else original),
        irregular=np.ones(1, np.bool_),
    )
    return block if original is None else replace(block, original=one_record(original, location))


def no_lines(offset: int, next_position: int, *bad: BadRecord) -> LineBlock:
    """Return a block without lines, but perhaps of bad ones."""
    none = np.empty(0, np.int64)
    return LineBlock(offset, np.empty(0, np.uint8), none, none, none, next_position, bad)


def place_of(places: Places | None, offset: int) -> int:
    """Return the position of an offset in the content."""
    return offset if places is None else places.place(offset)


def owned_windows(
    source: RangeSource,
    extent: Extent,
    position: int,
    *,
    window_bytes: int,
    max_line_bytes: int,
    syntax: LineSyntax = UTF_8_LINES,
) -> Iterator[Window]:
    """Yield the bytes of the lines whose first byte lies in `extent`, from `position` on.

    Windows are contiguous and carry their byte offset. An extent that does not start at 0 begins
    after the first delimiter that ends at or after `start`. Reads beyond `end` only to finish the
    last line: at first 64 KiB (less for small extents, at most a window), then doubling, up to
    `max_line_bytes`.
    StoreUnavailable if the source ends early without an error.
    """
    # A resume position is the start of a line. The start of an extent is one only if a delimiter
    # precedes it, so reading begins before it and continues behind the first delimiter.
    start, end = extent.start, extent.end
    if position > start or start == 0:
        owned = stream_windows(source, max(position, start), end, window_bytes)
    else:
        before = max(0, start - len(syntax.delimiter))
        before = -(-before // syntax.unit) * syntax.unit
        owned = behind_delimiter(stream_windows(source, before, end, window_bytes), syntax, start)
    first = next(owned, None)
    if first is None:
        return
    share = max(_LEAST_TAIL_BYTES, (end - start) // _TAIL_SHARE)
    sizes = (min(TAIL_BYTES, window_bytes, share), max(TAIL_BYTES, window_bytes))
    behind = _tail_windows(source, end, sizes, max_line_bytes)
    # No variable may hold a window any longer than its consumer: it is freed for the next one.
    windows = chain(iter([first]), owned, behind)
    del first
    yield from until_end(windows, syntax, lambda: end)


def until_end(
    windows: Iterable[Window], syntax: LineSyntax, end: Callable[[], int]
) -> Iterator[Window]:
    """Yield windows up to the first delimiter that ends at or behind `end()`.

    The line that begins there belongs to the next extent.
    """
    for offset, window in whole_delimiters(windows, syntax):
        if offset + len(window) >= end():
            stop, _ = syntax.span(window, max(0, end() - offset))
            if stop:
                yield offset, window[:stop]
                return
        yield offset, window


def _tail_windows(
    source: RangeSource, end: int, sizes: tuple[int, int], max_line_bytes: int
) -> Iterator[Window]:
    at = end
    for piece in tail(source, at, first_bytes=sizes[0], most_bytes=sizes[1]):
        yield at, piece
        at += len(piece)
        # `cut_lines` reports a line that is too long; its end is not needed for that.
        if at - end > max_line_bytes:
            return


def whole_delimiters(windows: Iterable[Window], syntax: LineSyntax) -> Iterator[Window]:
    """Yield the same bytes in windows that begin with a code unit and never divide a delimiter.

    The first window must begin with a code unit.
    """
    if len(syntax.delimiter) == 1:
        return iter(windows)
    return _whole_delimiters(windows, syntax)


def _whole_delimiters(windows: Iterable[Window], syntax: LineSyntax) -> Iterator[Window]:
    held = b""
    for start, piece in windows:
        offset, window = start - len(held), held + piece if held else piece
        rest = syntax.partial_bytes(window)
        held = window[len(window) - rest :] if rest else b""
        if rest < len(window):
            yield offset, window[: len(window) - rest] if rest else window
        end = offset + len(window)
    if held:
        yield end - len(held), held


def stream_windows(
    source: RangeSource, start: int, end: int, window_bytes: int
) -> Iterator[Window]:
    """Yield `[start, end)` in windows with their offsets; StoreUnavailable if it ends early."""
    if start >= end:
        return
    at = start
    for window in source.stream(start, end, window_bytes=window_bytes):
        if window:
            yield at, window
        at += len(window)
    # Never the end of the data: the missing bytes may contain records.
    if at != end:
        raise StoreUnavailable(
            f"{source.version.uri}[{start}-{end}): the stream ended at byte {at}; try again"
        )


def behind_delimiter(windows: Iterator[Window], syntax: LineSyntax, least: int) -> Iterator[Window]:
    """Yield what follows the first delimiter that ends at or after the byte `least`."""
    windows = whole_delimiters(windows, syntax)
    for offset, window in windows:
        behind, _ = syntax.span(window, max(0, least - offset))
        if behind:
            if behind < len(window):
                yield offset + behind, window[behind:]
            yield from windows


def cut_lines(
    windows: Iterable[Window],
    *,
    max_line_bytes: int,
    syntax: LineSyntax = UTF_8_LINES,
    places: Places | None = None,
) -> Iterator[LineBlock]:
    """Cut contiguous windows into blocks of whole lines; a final unterminated line counts.

    A block is one window plus the start of its first line, so a window and `max_line_bytes` bound
    memory. A line longer than `max_line_bytes` (without its delimiter) becomes a bad record without
    bytes, in a block of its own.
    """
    cutter = _Cutter(max_line_bytes, syntax, places)
    # The start of a line without its delimiter; its bytes are dropped once it is too long.
    start = size = 0
    pieces: list[bytes] = []
    for offset, window in whole_delimiters(windows, syntax):
        if not size:
            start = offset
        first, behind = syntax.span(window)
        if behind:
            done = 0
            if size + first - len(syntax.delimiter) > max_line_bytes:
                done = first
                yield cutter.too_long(start, offset + done)
                start, pieces = offset + done, []
            if done < behind:
                data = b"".join((*pieces, memoryview(window)[done:behind]))
                yield from cutter.blocks(start, data)
            start, size, pieces = offset + behind, 0, []
        size += len(window) - behind
        pieces.append(window[behind:])
        if size > max_line_bytes:
            pieces.clear()
    if size > max_line_bytes:
        yield cutter.too_long(start, start + size)
    elif size:
        yield from cutter.blocks(start, b"".join(pieces))


def line_edges(
    content: NDArray[np.uint8], syntax: LineSyntax, found: Indexes | None = None
) -> tuple[Indexes, Indexes, Indexes]:
    """Return where the lines of `content` (not empty) begin and end, and where the next begin.

    `found` are the positions of its delimiters, where they are known.
    """
    size = len(syntax.delimiter)
    ends = syntax.positions(content) if found is None else found
    # The last line of the object may lack its delimiter.
    if not len(ends) or ends[-1] != len(content) - size:
        ends = np.append(ends, len(content))
    begins = np.concatenate((np.zeros(1, np.int64), ends[:-1] + size))
    return begins, ends, np.minimum(ends + size, len(content))


def without_returns(content: NDArray[np.uint8], ends: Indexes, syntax: LineSyntax) -> Indexes:
    """Return where lines end before the CR that belongs to their terminator."""
    size = len(syntax.returns)
    if not size or len(content) < size:
        return ends
    # A CR belongs to the terminator only before an LF; elsewhere it is content.
    found = (ends >= size) & (ends < len(content))
    for place, byte in enumerate(syntax.returns):
        found &= content[ends + (place - size)] == byte
    return np.where(found, ends - size, ends)


@dataclass(frozen=True, slots=True)
class _Cutter:
    """Cuts whole lines that follow each other into blocks of at most MOST_LINES."""

    max_line_bytes: int
    syntax: LineSyntax
    places: Places | None

    def blocks(self, offset: int, data: bytes) -> Iterator[LineBlock]:
        syntax = self.syntax
        if offset == 0 and data == syntax.mark:
            return  # a mark without a line behind it
        content = np.frombuffer(data, np.uint8)
        every, size = syntax.positions(content), len(syntax.delimiter)
        # Many short lines take more memory than their bytes: a few arrays of 8 bytes for each.
        for first in range(0, max(1, len(every)), MOST_LINES):
            low = int(every[first - 1]) + size if first else 0
            last = first + MOST_LINES
            high = int(every[last - 1]) + size if last < len(every) else len(data)
            found = every[first:last] - low if first else every[:last]
            mark = len(syntax.mark) if offset + low == 0 and data.startswith(syntax.mark) else 0
            yield from self._checked(offset + low, content[low:high], found, mark)

    def _checked(
        self, offset: int, content: NDArray[np.uint8], found: Indexes, mark: int
    ) -> Iterator[LineBlock]:
        begins, ends, stops = line_edges(content, self.syntax, found)
        starts = begins.copy()
        starts[0] = mark
        next_position = place_of(self.places, offset + len(content))
        trimmed = without_returns(content, ends, self.syntax)
        block = LineBlock(
            offset, content, starts, trimmed, stops, next_position, places=self.places
        )
        first = 0
        for line in np.flatnonzero(ends - begins > self.max_line_bytes).tolist():
            if line > first:
                yield block.part(first, line)
            yield self.too_long(offset + int(begins[line]), offset + int(stops[line]))
            first = line + 1
        if first < len(block):
            yield block.part(first, len(block))

    def too_long(self, start: int, stop: int) -> LineBlock:
        limit = self.max_line_bytes
        reason = f"the line is longer than the {limit} bytes that are allowed for one record"
        bad = BadRecord(raw=None, location=place_of(self.places, start), reason=reason)
        return no_lines(start, place_of(self.places, stop), bad)


def invalid_utf8_lines(block: LineBlock) -> dict[int, str]:
    """Return the lines that are no text in the object's character set, with their reasons."""
    return {line: _why_invalid(block, line) for line in block.spans.not_utf8()}


def _why_invalid(block: LineBlock, line: int) -> str:
    raw = block.object_bytes(line)
    why = "half of a surrogate pair"
    try:
        raw.decode(block.charset if block.original else "utf-8")
    except UnicodeDecodeError as exc:
        location = block.location(line) + exc.start
        why = f"{exc.reason} (0x{raw[exc.start : exc.start + 1].hex()}) at byte {location}"
        if block.original is None and block.charset != "UTF-8":
            # The stream was decoded before it was cut: `raw` holds a mark instead of the bytes.
            why = f"invalid bytes, in the content at byte {location}"
    other = "if the object has another character set, set character.set"
    return f"not {block.charset}: {why}; {other}"
