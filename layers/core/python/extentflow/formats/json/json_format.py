"""Decode JSON documents of any layout: pretty-printed, concatenated, or elements of arrays.

    {"a": 1}            {"a":    [                    cut at the bracket that closes a document,
    {"a": 2}              1}       {"a": 1},          or, within an array at the top, at its commas
                        {"a":2}    {"a": 2} ]

A record is a document: its bytes as they are, or columns of its members. An object is one extent,
because only its start tells what is within a string. Quotes, escapes and depths are found by numpy,
a MiB at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from extentflow.arrays.spans import Indexes
from extentflow.config.table import key
from extentflow.config.types import BOOLEAN
from extentflow.errors import Conflict, CorruptObject, Misconfigured
from extentflow.formats import BadRecord, Chunk, FormatOptions, FormatSpec, magic
from extentflow.formats.compressed.compression import CODECS, decompress
from extentflow.formats.json.json_options import (
    DocumentDecoder,
    DocumentOptions,
    inspected,
    schema_problems,
    to_sample,
    with_columns,
)
from extentflow.formats.json.jsonl_format import JsonlOptions, JsonReader, json_reader
from extentflow.formats.lines import BOM, LineBlock, no_lines, one_record, stream_windows
from extentflow.formats.text.charsets import UTF_8, Charset, decoded_windows
from extentflow.formats.text.object_head import ObjectHead
from extentflow.model import Extent
from extentflow.storage import RangeSource

_SLICE_BYTES = 1 << 20
_QUOTE, _BACKSLASH, _COMMA, _CLOSES_LATER = 34, 92, 44, 2
_ARRAY, _ARRAY_END, _OBJECT_END = ord("["), ord("]"), ord("}")
_IS_EVENT = np.isin(np.arange(256), list(b'"[]{},'))
_DEPTH = np.zeros(256, np.int64)
_DEPTH[list(b"[{")], _DEPTH[list(b"]}")] = 1, -1
_IS_BLANK = np.isin(np.arange(256), list(b" \t\r\n"))
# Longer runs of backslashes or whitespace are counted in another way.
_SHORT_RUN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonOptions(DocumentOptions):
    """The keys `json.*`."""

    elements: bool = key(
        BOOLEAN,
        "true: the elements of an array at the top are the records. false: the whole array is one.",
        default=True,
    )


def open_json(options: FormatOptions, own: JsonOptions = JsonOptions()) -> JsonDocuments:
    """Return the format `json`, whose columns are those of `jsonl`."""
    return (InferringDocuments if own.schema is None else JsonDocuments)(options, own)


class JsonDocuments:
    """The format `json`; positions are offsets in the content."""

    splittable = False
    location_unit: Literal["offset", "row"] = "offset"
    extent_bytes: int | None = None
    cut_version: int = 1

    def __init__(self, options: FormatOptions, own: JsonOptions, *, validate: bool = True) -> None:
        if options.compression not in ("none", *CODECS):
            raise Misconfigured(f"file.compression.type={options.compression} is unknown")
        self._options = options
        self._own = own
        self._elements = own.elements
        self._reader: JsonReader | DocumentDecoder = (
            json_reader(options, JsonlOptions(validate=validate))
            if own.schema == ()
            else DocumentDecoder("json", options, own)
        )

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield the whole object, if it is not empty."""
        del target_bytes
        if self._options.compression != "none":
            magic.require_bytes(source.version, self._options.compression)
        if source.version.size:
            yield 0, source.version.size

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        """Yield the documents from `position` on; what precedes it is only scanned."""
        if (extent.start, extent.end) != (0, source.version.size):
            raise Conflict(f"{extent.uri}: an object of JSON documents has one extent")
        cutter = _Cutter(extent.uri, self._elements, self._options.max_record_bytes)
        charset = ObjectHead(source, "json", self._options).charset
        for window in self._windows(source, extent.uri, charset):
            for start in range(0, len(window), _SLICE_BYTES):
                blocks = cutter.blocks(window[start : start + _SLICE_BYTES])
                yield from self._chunks(blocks, position, charset)
        yield from self._chunks(cutter.end(), position, charset)

    def decode_record(
        self, source: RangeSource, extent: Extent, raw: bytes, location: int
    ) -> Chunk:
        """Return the chunk of one document in UTF-8; see `formats.RecordFormat`."""
        del source, extent
        return self._reader.read(one_record(raw, location))

    def _chunks(
        self, blocks: Iterator[LineBlock], position: int, charset: Charset
    ) -> Iterator[Chunk]:
        for found in blocks:
            block = found if charset == UTF_8 else replace(found, charset=charset.codec)
            if block.next_position <= position:
                continue
            for part in block.parts(self._options.batch_rows):
                rest = _from_position(part, position) if position else part
                if rest is not None:
                    yield self._reader.read(rest)

    def _windows(self, source: RangeSource, uri: str, charset: Charset) -> Iterator[bytes]:
        """Yield the content as UTF-8; a byte order mark becomes blanks."""
        step, codec = self._options.window_bytes, self._options.compression
        content = (window for _, window in stream_windows(source, 0, source.version.size, step))
        if codec != "none":
            content = decompress(content, codec, step_bytes=step, uri=uri)  # type: ignore[assignment]
        if charset != UTF_8:
            windows = decoded_windows(content, charset, source.version.uri)
            content = (window for _, window in windows)
        first = b""
        while len(first) < len(BOM) and (window := next(content, b"")):
            first += window
        yield b"   " + first[len(BOM) :] if first.startswith(BOM) else first
        yield from content


class InferringDocuments(JsonDocuments):
    """The format `json` with columns that `inspect` finds at planning."""

    def inspect(self, source: RangeSource) -> str:
        """Return the columns in the first content of the object."""
        own = replace(self._own, schema=())
        documents = JsonDocuments(to_sample(self._options), own, validate=False)
        return inspected("json", documents, source)


def _from_position(block: LineBlock, position: int) -> LineBlock | None:
    """Return the part of a block that begins at or behind `position`, if there is any."""
    bad = tuple(bad for bad in block.bad if bad.location >= position)
    done = int(np.searchsorted(block.offsets(), position))
    if done == len(block):
        return no_lines(block.next_position, block.next_position, *bad) if bad else None
    rest = block if done == 0 else block.part(done, len(block))
    return replace(rest, bad=bad)


class _Scanner:
    """Finds where documents and elements end; the state is that behind the bytes seen so far."""

    def __init__(self, *, elements: bool) -> None:
        self._elements = elements
        self._escaped = False
        self._outer = 0
        self.in_string = False
        self.depth = 0

    @property
    def in_array(self) -> bool:
        """Whether the last document begun is an array of records."""
        return self._elements and self._outer == _ARRAY

    def cuts(self, data: NDArray[np.uint8]) -> tuple[Indexes, NDArray[np.uint8]]:
        """Return the places of the characters that end something at the top, and these.

        Raises ValueError, with the place, for a bracket that closes nothing.
        """
        events = np.flatnonzero(_IS_EVENT[data])
        chars = data[events]
        is_quote = chars == _QUOTE
        is_quote[is_quote] = ~self._escaped_quotes(data, events[is_quote])
        strings = (np.cumsum(is_quote) + self.in_string) & 1
        self._escaped = self._ends_escaped(data)
        if not len(events):
            return events, chars
        self.in_string = bool(strings[-1])
        outside = (strings == 0) & (chars != _QUOTE)
        places, chars = events[outside], chars[outside]
        if not len(places):
            return places, chars
        steps = _DEPTH[chars]
        depths = np.cumsum(steps) + self.depth
        opened = np.maximum.accumulate(
            np.where((steps > 0) & (depths == 1), np.arange(len(places)), -1)
        )
        outer = np.where(opened >= 0, chars[opened], self._outer)
        closes = (steps < 0) & (depths == 0)
        wrong = (depths < 0) | (closes & (chars != outer + _CLOSES_LATER))
        if wrong.any():
            raise ValueError(int(places[np.argmax(wrong)]))
        self.depth, self._outer = int(depths[-1]), int(outer[-1])
        if self._elements:
            closes |= (outer == _ARRAY) & (depths == 1) & ((chars == _ARRAY) | (chars == _COMMA))
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


class _Cutter:
    """Turns content into blocks of documents, of which the last one may not have ended yet."""

    def __init__(self, uri: str, elements: bool, max_bytes: int) -> None:  # noqa: FBT001
        self._uri = uri
        self._elements = elements
        self._max_bytes = max_bytes
        self._scanner = _Scanner(elements=elements)
        self._pieces: list[bytes] = []
        self._size = 0
        self._start = 0
        self._before = 0  # the character of the last cut

    def blocks(self, window: bytes) -> Iterator[LineBlock]:
        """Yield the documents that end in `window`."""
        at = self._start + self._size
        try:
            cuts, chars = self._scanner.cuts(np.frombuffer(window, np.uint8))
        except ValueError as exc:
            raise CorruptObject(
                f"{self._uri}: the bracket at byte {at + exc.args[0]} closes nothing that is open;"
                " repair the object, or read lines with input.format=jsonl"
            ) from exc
        if len(cuts):
            stop = int(cuts[-1]) + 1
            dropped = self._size > self._max_bytes
            data = b"".join((*([] if dropped else self._pieces), window[:stop]))
            lost = at + stop - self._start - len(data)  # bytes of a document that is too long
            yield self._block(data, lost, cuts + (len(data) - stop), chars)
            self._start, self._size, self._before = at + stop, 0, int(chars[-1])
            self._pieces = []
            window = window[stop:]
        if not self._size:  # blanks before a document are none of it
            blanks = len(window)
            window = window.lstrip(b" \t\r\n")
            self._start += blanks - len(window)
        self._size += len(window)
        self._pieces.append(window)
        if self._size > self._max_bytes:
            self._pieces.clear()

    def end(self) -> Iterator[LineBlock]:
        """Yield what follows the last document. CorruptObject if a document has no end."""
        if self._scanner.depth or self._scanner.in_string:
            raise CorruptObject(
                f"{self._uri}: the document or element at byte {self._start} has no end: the object"
                " is truncated, or a quote or bracket is missing; repair the object"
            )
        rest = b"".join(self._pieces)
        if self._size:
            end = np.array([len(rest)])
            lost = self._size - len(rest)
            yield self._block(rest, lost, end, np.array([_OBJECT_END], np.uint8), shift=0)

    def _block(
        self, data: bytes, lost: int, cuts: Indexes, chars: NDArray[np.uint8], shift: int = 1
    ) -> LineBlock:
        content = np.frombuffer(data, np.uint8)
        offset = self._start + lost
        before = np.concatenate(([self._before], chars[:-1]))
        # A closing bracket belongs to its document, unless the array is no record.
        whole = (chars == _OBJECT_END) | ((chars == _ARRAY_END) & (not self._elements))
        stops = cuts + shift
        starts = np.concatenate((np.zeros(1, np.int64), stops[:-1]))
        ends = np.where(whole, stops, cuts)
        starts, ends = _trimmed(content, starts, ends)
        empty = starts >= ends
        missing = empty & ((chars == _COMMA) | ((chars == _ARRAY_END) & (before == _COMMA)))
        too_long = ends - starts > self._max_bytes
        begins = offset + starts
        if lost:  # the beginning of the first one was dropped, because it is too long
            too_long[0], missing[0], begins[0] = True, False, self._start
        reasons = (
            (missing, "an element of the array is missing"),
            (too_long, f"longer than the {self._max_bytes} bytes that are allowed for one record"),
        )
        bad = [
            BadRecord(None, int(begins[line]), why)
            for lines, why in reasons
            for line in np.flatnonzero(lines).tolist()
        ]
        kept = ~(empty | too_long)
        return LineBlock(
            offset,
            content,
            starts[kept],
            ends[kept],
            stops[kept],
            offset + len(data),
            tuple(sorted(bad, key=lambda one: one.location)),
        )


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


JSON = FormatSpec(
    open=open_json,
    options=JsonOptions,
    extensions=("json",),
    converters=("json", "string", "bytes"),
    raw=True,
    problems=partial(schema_problems, "json"),
    under=with_columns,
    remedy="; for columns, set input.format=json and json.schema=infer, or name them",
)
