"""Find brackets and commas of JSON documents, and make blocks of what stands between them.

Quotes, escapes and depths are found by numpy. A scanner knows what is within a string only if it
has seen everything from the start of the content on.

Tests: unit/formats/json/test_json_format.py
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from extentflow.arrays.spans import Indexes
from extentflow.errors import CorruptObject
from extentflow.formats import BadRecord
from extentflow.formats.lines import LineBlock

COMMA, ARRAY, ARRAY_END, OBJECT, OBJECT_END = b",[]{}"
BLANKS = b" \t\r\n"
MISSING_ELEMENT = "an element of the array is missing"
_QUOTE, _BACKSLASH, _CLOSES_LATER = 34, 92, 2
_IS_EVENT = np.isin(np.arange(256), list(b'"[]{},'))
_DEPTH = np.zeros(256, np.int64)
_DEPTH[list(b"[{")], _DEPTH[list(b"]}")] = 1, -1
_IS_BLANK = np.isin(np.arange(256), list(BLANKS))
# Longer runs of backslashes or whitespace are counted in another way.
_SHORT_RUN = 8


@dataclass(frozen=True, slots=True)
class Structure:
    """Brackets and commas: their places, what each adds to the depth, and the depth behind it."""

    places: Indexes
    chars: NDArray[np.uint8]
    steps: NDArray[np.int64]
    depths: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pieces:
    """Records or elements as slices of `content`, which is at byte `offset` of the object.

    `gaps`: one that is empty is missing. `lost`: where the first one begins, if its beginning was
    dropped, because it is too long.
    """

    offset: int
    content: NDArray[np.uint8]
    starts: Indexes
    ends: Indexes
    stops: Indexes
    gaps: NDArray[np.bool_]
    lost: int | None = None

    def block(self, max_bytes: int) -> LineBlock:
        """Return the block of those that are there, with `max_bytes` at most; others are bad."""
        starts, ends = _trimmed(self.content, self.starts, self.ends)
        empty = starts >= ends
        missing = empty & self.gaps
        too_long = ends - starts > max_bytes
        begins = self.offset + starts
        if self.lost is not None:
            too_long[0], missing[0], begins[0] = True, False, self.lost
        reasons = (
            (missing, MISSING_ELEMENT),
            (too_long, f"longer than the {max_bytes} bytes that are allowed for one record"),
        )
        bad = [
            BadRecord(None, int(begins[line]), why)
            for lines, why in reasons
            for line in np.flatnonzero(lines).tolist()
        ]
        kept = ~(empty | too_long)
        return LineBlock(
            self.offset,
            self.content,
            starts[kept],
            ends[kept],
            self.stops[kept],
            self.offset + len(self.content),
            tuple(sorted(bad, key=lambda one: one.location)),
        )


class Scanner:
    """Finds where documents and elements end; the state is that behind the bytes seen so far."""

    def __init__(self, *, elements: bool) -> None:
        self._elements = elements
        self._escaped = False
        self._outer = 0
        self.in_string = False
        self.depth = 0

    def structure(self, data: NDArray[np.uint8]) -> Structure:
        """Return the brackets and commas outside of strings, with the depths behind them."""
        events = np.flatnonzero(_IS_EVENT[data])
        chars = data[events]
        is_quote = chars == _QUOTE
        is_quote[is_quote] = ~self._escaped_quotes(data, events[is_quote])
        strings = (np.cumsum(is_quote) + self.in_string) & 1
        self._escaped = self._ends_escaped(data)
        if len(events):
            self.in_string = bool(strings[-1])
        outside = (strings == 0) & (chars != _QUOTE)
        places, chars = events[outside], chars[outside]
        steps = _DEPTH[chars]
        depths = np.cumsum(steps) + self.depth
        if len(places):
            self.depth = int(depths[-1])
        return Structure(places, chars, steps, depths)

    def cuts(self, data: NDArray[np.uint8]) -> tuple[Indexes, NDArray[np.uint8]]:
        """Return the places of the characters that end something at the top, and these.

        Raises ValueError, with the place, for a bracket that closes nothing.
        """
        found = self.structure(data)
        places, chars, steps, depths = found.places, found.chars, found.steps, found.depths
        if not len(places):
            return places, chars
        opened = np.maximum.accumulate(
            np.where((steps > 0) & (depths == 1), np.arange(len(places)), -1)
        )
        outer = np.where(opened >= 0, chars[opened], self._outer)
        closes = (steps < 0) & (depths == 0)
        wrong = (depths < 0) | (closes & (chars != outer + _CLOSES_LATER))
        if wrong.any():
            raise ValueError(int(places[np.argmax(wrong)]))
        self._outer = int(outer[-1])
        if self._elements:
            closes |= (outer == ARRAY) & (depths == 1) & ((chars == ARRAY) | (chars == COMMA))
            # An inner array that opens has another depth; one that closes at 1 is no cut.
        return places[closes], chars[closes]

    def _escaped_quotes(self, data: NDArray[np.uint8], quotes: Indexes) -> NDArray[np.bool_]:
        """Return which quotes follow an odd number of backslashes."""
        escaped = np.zeros(len(quotes), bool)
        alive, at = np.arange(len(quotes)), quotes - 1
        for _ in range(_SHORT_RUN):
            before = at < 0
            escaped[alive[before]] ^= self._escaped
            going = ~before
            going[going] = data[at[going]] == _BACKSLASH
            alive, at = alive[going], at[going] - 1
            if not len(alive):
                return escaped
            escaped[alive] ^= True
        places = np.where(data == _BACKSLASH, -1, np.arange(len(data)))
        last = np.maximum.accumulate(places)[np.maximum(quotes - 1, 0)]
        last[quotes == 0] = -1
        odd = (quotes - 1 - last) % 2 == 1
        return np.asarray(np.where(last < 0, odd ^ self._escaped, odd), bool)

    def _ends_escaped(self, data: NDArray[np.uint8]) -> bool:
        if data[-1] != _BACKSLASH:
            return False
        others = np.flatnonzero(data != _BACKSLASH)
        run = len(data) - 1 - int(others[-1]) if len(others) else len(data)
        return bool(run % 2) ^ (self._escaped and not len(others))


def _trimmed(content: NDArray[np.uint8], starts: Indexes, ends: Indexes) -> tuple[Indexes, Indexes]:
    """Return the slices without the whitespace around them."""
    starts, ends = starts.copy(), ends.copy()
    for edges, step, place in ((starts, 1, 0), (ends, -1, -1)):
        going = np.flatnonzero(starts < ends)
        for _ in range(_SHORT_RUN):
            going = going[_IS_BLANK[content[edges[going] + place]]]
            edges[going] += step
            going = going[starts[going] < ends[going]]
            if not len(going):
                break
        for line in going.tolist():
            text = content[starts[line] : ends[line]].tobytes()
            if step > 0:
                starts[line] = ends[line] - len(text.lstrip(b" \t\r\n"))
            else:
                ends[line] = starts[line] + len(text.rstrip(b" \t\r\n"))
    return starts, ends


def closes_nothing(uri: str, place: int) -> CorruptObject:
    """Return the error for a bracket at byte `place` that closes nothing."""
    return CorruptObject(
        f"{uri}: the bracket at byte {place} closes nothing that is open; repair the object, or"
        " read lines with input.format=jsonl"
    )


def has_no_end(uri: str, start: int) -> CorruptObject:
    """Return the error for content that ends within what begins at byte `start`."""
    return CorruptObject(
        f"{uri}: the document or element at byte {start} has no end: the object is truncated, or a"
        " quote or bracket is missing; repair the object"
    )
