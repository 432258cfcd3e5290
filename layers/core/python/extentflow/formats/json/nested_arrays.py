"""Cut JSON documents into the elements of one array within each of them: `json.records.path`.

    {"n": 1, "data": {"items": [{"a": 1}, {"a": 2}], "next": null}}     data.items: two records

A path leads through members of objects, so that depths alone say where an array's commas are. They
are found by numpy; Python only follows the members around the path. What is outside of the array is
kept until its document ends, and must be JSON.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import orjson
from numpy.typing import NDArray

from extentflow.arrays.spans import Indexes
from extentflow.config.column_lists import written_path
from extentflow.errors import CorruptObject
from extentflow.formats import BadRecord
from extentflow.formats.json.document_scanner import (
    ARRAY,
    ARRAY_END,
    BLANKS,
    COMMA,
    MISSING_ELEMENT,
    OBJECT,
    Pieces,
    Scanner,
    Structure,
    closes_nothing,
    has_no_end,
)
from extentflow.formats.json.members_around import members_text
from extentflow.formats.lines import LineBlock, no_lines

_KEY = "json.records.path"
_MEMBER = re.compile(rb'[ \t\r\n]*("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
# No object of the document is open.
_NO_LEVEL = -1
_SEARCHED_LEVELS = 4


class NestedCutter:
    """Turns content into blocks of elements; the last document and element may not have ended."""

    def __init__(
        self, uri: str, path: Sequence[str], max_bytes: int, around: Sequence[str] = ()
    ) -> None:
        """`around`: the members of documents of which `arrays` has the text for each array."""
        self._uri = uri
        self._path = path
        self._max_bytes = max_bytes
        self._scanner = Scanner(elements=False)
        self._read = 0  # content before the window
        self._base = 0  # 1 within an array of documents at the top
        self._is_behind_comma = False
        self.arrays: list[tuple[int, bytes]] = []  # of the last window, with where they begin
        self._around = around
        self._document = _Document(path, max_bytes, around)
        self._taken = 0  # where the part of the window begins that the document does not have
        self._in_array = False
        self._element = 0  # where an element begins in the window
        self._before = ARRAY  # the character of the cut before it
        # Of an element that began before the window: its bytes, unless they are too many.
        self._start = self._size = 0
        self._pieces: list[bytes] = []

    def blocks(self, window: bytes) -> Iterator[LineBlock]:
        """Yield the elements that end in `window`, and the documents there that have none."""
        found = _Found(self._scanner.structure(np.frombuffer(window, np.uint8)), self._in_array)
        if (found.structure.depths < 0).any():
            place = found.structure.places[np.argmax(found.structure.depths < 0)]
            raise closes_nothing(self._uri, self._read + int(place))
        self._taken = self._element = at = 0
        del self.arrays[:-1]
        while at < len(found.structure.places):
            at = self._cut(found, at) if self._in_array else self._follow(window, found, at)
        if not self._in_array:
            self._take(window, len(window))
        block = self._block(window, found)
        if self._in_array:
            self._carry(window[self._element :], self._read + self._element)
        self._read += len(window)
        if block is not None:
            yield block

    def end(self) -> Iterator[LineBlock]:
        """Yield what follows the last document. CorruptObject if a document has no end."""
        if self._scanner.depth or self._scanner.in_string:
            start = self._start if self._in_array else self._document.start
            raise has_no_end(self._uri, self._read if start is None else start)
        if bad := self._finished():
            yield no_lines(bad.location, self._read, bad)

    def _cut(self, found: _Found, at: int) -> int:
        """Add the elements from an event within the array on; return the event behind it."""
        places, chars = found.structure.places, found.structure.chars
        depths = found.depths(self._base, len(self._path))
        stops = depths.closing[np.searchsorted(depths.closing, at) :][:1]
        first, last = np.searchsorted(depths.commas, (at, stops[0] if len(stops) else len(places)))
        cuts = np.concatenate((depths.commas[first:last], stops))
        if len(cuts):
            found.add(places[cuts], chars[cuts], self._element, self._before)
            self._element, self._before = int(places[cuts[-1]]) + 1, int(chars[cuts[-1]])
        if not len(stops):
            return len(places)
        end = int(places[stops[0]])
        if chars[stops[0]] != ARRAY_END:
            raise closes_nothing(self._uri, self._read + end)
        self._in_array, self._taken = False, end
        return int(stops[0]) + 1

    def _follow(self, window: bytes, found: _Found, at: int) -> int:
        """Follow a document from an event on; return the event behind the last one needed."""
        depths = found.depths(self._base, len(self._path))
        places, chars, steps = found.structure.places, found.structure.chars, found.structure.steps
        for event in range(bisect_left(depths.around, at), len(depths.around)):
            index = depths.around[event]
            place, char, step = int(places[index]), int(chars[index]), int(steps[index])
            level = depths.inner[event] - self._base  # 0: what the document itself is in
            if level <= 0 and self._is_at_top(char, level):
                self._at_top(window, found, place, char)
                return index + 1
            document = self._document
            if step < 0 and level == document.level:
                self._take(window, place)
                document.close()
            elif level == document.level + 1 and step >= 0:
                self._take(window, place)
                if document.enters(char):
                    self._enter(window, place)
                    return index + 1
            if document.entered and document.problem:
                raise self._corrupt()
            if step < 0 and level == self._base == 0:
                self._take(window, place + 1)
                self._finish(found, place + 1)
        return len(places)

    def _is_at_top(self, char: int, level: int) -> bool:
        """Whether a character belongs to an array of documents at the top."""
        if self._base:
            return level < 0 or char == COMMA
        return char == ARRAY

    def _at_top(self, window: bytes, found: _Found, place: int, char: int) -> None:
        if char not in (ARRAY, ARRAY_END, COMMA):
            raise closes_nothing(self._uri, self._read + place)
        self._take(window, place)
        missing = self._base and (char == COMMA or self._is_behind_comma)
        if missing and self._document.is_blank:
            found.bad.append(BadRecord(None, self._read + place, MISSING_ELEMENT))
        self._finish(found, place + 1)
        self._base = int(char != ARRAY_END)
        self._is_behind_comma = char == COMMA

    def _enter(self, window: bytes, place: int) -> None:
        self._take(window, place + 1)
        self._in_array, self._element, self._before = True, place + 1, ARRAY
        self.arrays.append((self._read + place, self._document.members))

    def _take(self, window: bytes, stop: int) -> None:
        self._document.take(window[self._taken : stop], self._read + self._taken)
        self._taken = stop

    def _finish(self, found: _Found, stop: int) -> None:
        if bad := self._finished():
            found.bad.append(bad)
        found.done, self._taken = self._read + stop, stop

    def _finished(self) -> BadRecord | None:
        """Begin the next document; return the last one if it has no records. Or CorruptObject."""
        document = self._document
        document.finish()
        if document.problem and document.entered:
            raise self._corrupt()
        self._document = _Document(self._path, self._max_bytes, self._around)
        if not document.problem or document.start is None:
            return None
        return BadRecord(None, document.start, document.problem)

    def _corrupt(self) -> CorruptObject:
        document = self._document
        return CorruptObject(
            f"{self._uri}: the document at byte {document.start}, around its records:"
            f" {document.problem}; repair the object"
        )

    def _block(self, window: bytes, found: _Found) -> LineBlock | None:
        bad = tuple(found.bad)
        if not found.starts:
            return no_lines(bad[0].location, found.done, *bad) if bad else None
        starts, ends = np.concatenate(found.starts), np.concatenate(found.ends)
        is_lost = found.continues and self._size > self._max_bytes
        kept = b"".join(self._pieces) if found.continues else b""
        low, high = int(starts[0]), int(ends[-1]) + 1
        shift = len(kept) - low
        starts += shift
        starts[0] = 0
        block = Pieces(
            offset=self._read - shift,
            content=np.frombuffer(b"".join((kept, memoryview(window)[low:high])), np.uint8),
            starts=starts,
            ends=ends + shift,
            stops=ends + (shift + 1),
            gaps=np.concatenate(found.gaps),
            lost=self._start if is_lost else None,
        ).block(self._max_bytes)
        self._pieces, self._size = [], 0
        if not bad:
            return block
        bad = tuple(sorted((*block.bad, *bad), key=lambda one: one.location))
        return replace(block, bad=bad, next_position=max(block.next_position, found.done))

    def _carry(self, rest: bytes, start: int) -> None:
        if not self._size:  # blanks before an element are none of it
            blanks = len(rest)
            rest = rest.lstrip(BLANKS)
            self._start = start + blanks - len(rest)
        self._size += len(rest)
        self._pieces.append(rest)
        if self._size > self._max_bytes:
            self._pieces.clear()


class _Document:
    """A document that has not ended: its text outside of the array, and how far the path is open.

    `level` names of the path are open. `problem`: why its records cannot be found.
    """

    def __init__(self, path: Sequence[str], max_bytes: int, around: Sequence[str]) -> None:
        self._path = path
        self._around = around
        self.members = b""
        self._max_bytes = max_bytes
        self._text = bytearray()
        self._member: int | None = None  # where one begins; None: its value is dealt with
        self._seen = [False] * len(path)
        self._is_null = self._is_too_long = False
        self.start: int | None = None
        self.level = _NO_LEVEL
        self.entered = False
        self.problem = ""

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing but whitespace."""
        return self.start is None

    def take(self, content: bytes, start: int) -> None:
        """Add content that begins at byte `start`."""
        if self.start is None:
            size = len(content)
            content = content.lstrip(BLANKS)
            if not content:
                return
            self.start = start + size - len(content)
        if self._is_too_long:
            return
        self._text += content
        if len(self._text) > self._max_bytes:
            self._is_too_long, self.level = True, _NO_LEVEL
            self._text.clear()
            self.problem = (
                f"the members outside of {self._shown} have more than the {self._max_bytes} bytes"
                " that are allowed for one record; raise record.max.bytes"
            )

    def enters(self, char: int) -> bool:
        """Go behind a comma or an opening bracket in the open object, before which all was taken.

        Return whether it opens the array. The bracket of the document itself opens its object.
        """
        if self._is_too_long:
            return False
        behind = len(self._text) + 1
        if self.level == _NO_LEVEL:
            if char == OBJECT and self.is_blank:
                self.level, self._member = 0, behind
            return False
        if char == COMMA:
            self._pass_value()
            self._member = behind
            return False
        value = self._value_of_name()
        self._member = None
        return value == b"" and self._opens(char, behind)

    def close(self) -> None:
        """Leave the innermost open object, before whose bracket all was taken."""
        self._pass_value()
        self._member = None
        self.level -= 1

    def finish(self) -> None:
        """Require JSON with the array, or null in its place; else `problem` says what is wrong."""
        if self._is_too_long or self.is_blank:
            return
        try:
            value = orjson.loads(self._text)
        except orjson.JSONDecodeError as exc:
            self.problem = f"not one JSON value: {exc}"
            return
        if not (self.problem or self.entered or self._is_null):
            what = "has no such member" if isinstance(value, dict) else "is no object"
            if other := _longest_array(value):
                what += f", but an array at {other}"
            self.problem = f"{_KEY}={self._shown}: the document {what}; {_WAY_OUT}"

    @property
    def _shown(self) -> str:
        return written_path(self._path)

    def _value_of_name(self) -> bytes | None:
        """Return the text behind the current member's name, if that is the next one of the path."""
        if self._member is None or self._is_too_long:
            return None
        match = _MEMBER.match(self._text, self._member)
        if match is None or not _is_name(match[1], self._path[self.level]):
            return None
        if self._seen[self.level] and not self.problem:
            self.problem = (
                f"the name {self._path[self.level]!r} of {_KEY}={self._shown} stands twice in an"
                " object, and readers of JSON take one or the other"
            )
        self._seen[self.level] = True
        return bytes(self._text[match.end() :].rstrip(BLANKS))

    def _pass_value(self) -> None:
        """Go behind a value without brackets, if the current member has one."""
        value = self._value_of_name()
        if value is None:
            return
        if value == b"null" and self.level == len(self._path) - 1:
            self._is_null = True
        else:
            self._leads_to("null" if value == b"null" else "a single value")

    def _opens(self, char: int, behind: int) -> bool:
        if self.level < len(self._path) - 1:
            if char == OBJECT:
                self.level, self._member = self.level + 1, behind
                self._seen[self.level] = False
            else:
                self._leads_to("an array")
        elif char == OBJECT:
            self._leads_to("an object")
        elif not self.problem:
            return self._enter()
        return False

    def _enter(self) -> bool:
        text = bytes(self._text + b"[]" + b"}" * len(self._path))
        try:
            orjson.loads(text)
        except orjson.JSONDecodeError as exc:
            self.problem = f"not one JSON value: {exc}"
            return False
        try:
            self.members = members_text(self._around, text) if self._around else b""
        except ValueError as exc:
            self.problem = str(exc)
            return False
        self.entered = True
        return True

    def _leads_to(self, what: str) -> None:
        name = written_path(self._path[: self.level + 1])
        wanted = "an array" if self.level == len(self._path) - 1 else "an object"
        self.problem = self.problem or (
            f"{_KEY}={self._shown}: {name} is {what}, not {wanted}; {_WAY_OUT}"
        )


def array_within(text: bytes) -> str:
    """Return the path to the array with the most elements within an object; empty: it has none."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ""
    return _longest_array(document) if isinstance(document, dict) else ""


def _longest_array(value: object) -> str:
    _, path = max(_arrays(value, (), _SEARCHED_LEVELS), default=(0, ()))
    return written_path(path)


def _arrays(
    value: object, path: tuple[str, ...], levels: int
) -> Iterator[tuple[int, tuple[str, ...]]]:
    if isinstance(value, list) and len(value) > 1:
        yield len(value), path
    elif isinstance(value, dict) and levels:
        for name, member in value.items():
            yield from _arrays(member, (*path, name), levels - 1)


_WAY_OUT = f"correct {_KEY}, or tolerate such documents as bad records"


def _is_name(written: bytes, name: str) -> bool:
    """Whether a JSON string is a name, whatever is escaped in it."""
    if b"\\" not in written:
        return written[1:-1] == name.encode()
    try:
        return bool(json.loads(written) == name)
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class _Depths:
    """What counts in a window for documents at one depth, as indexes of its structure.

    `around` are the places outside of arrays, with the depth that each is in; `commas` and
    `closing` those of an array where the path leads.
    """

    around: Sequence[int]
    inner: Sequence[int]
    commas: Indexes
    closing: Indexes


@dataclass
class _Found:
    """What a window has: its structure, elements, whose places are in the window, and bad records.

    `continues`: the first element began before the window. `done` is where the last document ended.
    """

    structure: Structure
    continues: bool
    starts: list[Indexes] = field(default_factory=list)
    ends: list[Indexes] = field(default_factory=list)
    gaps: list[NDArray[np.bool_]] = field(default_factory=list)
    bad: list[BadRecord] = field(default_factory=list)
    done: int = 0
    _depths: dict[int, _Depths] = field(default_factory=dict)

    def depths(self, base: int, names: int) -> _Depths:
        """Return what counts for documents at depth `base`, in which `names` lead to an array."""
        if base not in self._depths:
            structure = self.structure
            inner = structure.depths - (structure.steps > 0)
            around = np.flatnonzero(inner <= base + names)
            of_array = structure.depths == base + names + 1
            self._depths[base] = _Depths(
                around.tolist(),
                inner[around].tolist(),
                np.flatnonzero(of_array & (structure.chars == COMMA)),
                np.flatnonzero((structure.depths == base + names) & (structure.steps < 0)),
            )
        return self._depths[base]

    def add(self, cuts: Indexes, chars: NDArray[np.uint8], start: int, before: int) -> None:
        """Add the elements before `cuts`, of which the first one begins at `start`."""
        previous = np.concatenate(([before], chars[:-1]))
        self.starts.append(np.concatenate(([start], cuts[:-1] + 1)))
        self.ends.append(cuts)
        self.gaps.append((chars == COMMA) | ((chars == ARRAY_END) & (previous == COMMA)))
