"""Decode JSON documents of any layout: pretty-printed, concatenated, or elements of arrays.

    {"a": 1}            {"a":    [                    cut at the bracket that closes a document,
    {"a": 2}              1}       {"a": 1},          or, within an array at the top, at its commas
                        {"a":2}    {"a": 2} ]

A record is a document: its bytes as they are, or columns of its members. With `json.records.path`
it is an element of an array within documents, which `nested_arrays` cuts. An object is one extent,
because only its start tells what is within a string.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from extentflow.arrays.spans import Indexes
from extentflow.config.column_lists import MEMBER_PATH, NAMES
from extentflow.config.specs import FormatCheck
from extentflow.config.table import key
from extentflow.config.types import BOOLEAN
from extentflow.errors import Conflict, Misconfigured
from extentflow.formats import Chunk, FormatOptions, FormatSpec, magic
from extentflow.formats.compressed.compression import CODECS, decompress
from extentflow.formats.json.document_scanner import (
    ARRAY_END,
    BLANKS,
    COMMA,
    OBJECT_END,
    Pieces,
    Scanner,
    closes_nothing,
    has_no_end,
)
from extentflow.formats.json.json_options import (
    DocumentDecoder,
    DocumentOptions,
    inspected,
    schema_problems,
    to_sample,
    with_columns,
)
from extentflow.formats.json.jsonl_format import JsonlOptions, JsonReader, json_reader
from extentflow.formats.json.members_around import parts, with_members
from extentflow.formats.json.nested_arrays import NestedCutter, array_within
from extentflow.formats.lines import BOM, LineBlock, no_lines, one_record, stream_windows
from extentflow.formats.text.charsets import UTF_8, Charset, decoded_windows
from extentflow.formats.text.object_head import ObjectHead
from extentflow.model import Extent
from extentflow.storage import RangeSource

_SLICE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonOptions(DocumentOptions):
    """The keys `json.*`."""

    elements: bool = key(
        BOOLEAN,
        "true: the elements of an array at the top are the records. false: the whole array is one.",
        default=True,
    )
    records_path: tuple[str, ...] = key(
        MEMBER_PATH,
        "The path to an array within each document, whose elements are the records: `Records`,"
        ' `data.items`, `data."a.b"`. Needs `input.format`.',
        default=(),
        shown="none",
    )
    records_around: tuple[str, ...] = key(
        NAMES,
        "Members of a document that are added to each of its records: `account,meta.id`. They must"
        " stand before the array of `json.records.path`.",
        default=(),
        shown="none",
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
        most = self._options.max_record_bytes
        own = self._own
        cutter = (
            NestedCutter(extent.uri, own.records_path, most, own.records_around)
            if own.records_path
            else _Cutter(extent.uri, self._elements, most)
        )
        charset = ObjectHead(source, "json", self._options).charset
        for window in self._windows(source, extent.uri, charset):
            for start in range(0, len(window), _SLICE_BYTES):
                blocks = cutter.blocks(window[start : start + _SLICE_BYTES])
                yield from self._chunks(cutter, blocks, position, charset)
        yield from self._chunks(cutter, cutter.end(), position, charset)

    def decode_record(
        self, source: RangeSource, extent: Extent, raw: bytes, location: int
    ) -> Chunk:
        """Return the chunk of one document in UTF-8; see `formats.RecordFormat`."""
        del source, extent
        return self._reader.read(one_record(raw, location))

    def how_to_divide(self, record: bytes) -> str:
        """Return the path to an array within a document; see `formats.DividingFormat`."""
        path = "" if self._own.records_path else array_within(record)
        return path and f"set json.records.path={path}: each element becomes a record"

    def _chunks(
        self,
        cutter: NestedCutter | _Cutter,
        blocks: Iterator[LineBlock],
        position: int,
        charset: Charset,
    ) -> Iterator[Chunk]:
        around, rows = self._own.records_around, self._options.batch_rows
        for found in blocks:
            block = found if charset == UTF_8 else replace(found, charset=charset.codec)
            if block.next_position <= position:
                continue
            arrays = cutter.arrays if around and isinstance(cutter, NestedCutter) else ()
            for part in parts(block, arrays, rows) if arrays else block.parts(rows):
                rest = _from_position(part, position) if position else part
                if rest is not None:
                    whole = with_members(rest, arrays, around) if arrays else rest
                    yield self._reader.read(whole)

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


class _Cutter:
    """Turns content into blocks of documents, of which the last one may not have ended yet."""

    def __init__(self, uri: str, elements: bool, max_bytes: int) -> None:  # noqa: FBT001
        self._uri = uri
        self._elements = elements
        self._max_bytes = max_bytes
        self._scanner = Scanner(elements=elements)
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
            raise closes_nothing(self._uri, at + exc.args[0]) from exc
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
            window = window.lstrip(BLANKS)
            self._start += blanks - len(window)
        self._size += len(window)
        self._pieces.append(window)
        if self._size > self._max_bytes:
            self._pieces.clear()

    def end(self) -> Iterator[LineBlock]:
        """Yield what follows the last document. CorruptObject if a document has no end."""
        if self._scanner.depth or self._scanner.in_string:
            raise has_no_end(self._uri, self._start)
        rest = b"".join(self._pieces)
        if self._size:
            end = np.array([len(rest)])
            lost = self._size - len(rest)
            yield self._block(rest, lost, end, np.array([OBJECT_END], np.uint8), shift=0)

    def _block(
        self, data: bytes, lost: int, cuts: Indexes, chars: NDArray[np.uint8], shift: int = 1
    ) -> LineBlock:
        before = np.concatenate(([self._before], chars[:-1]))
        # A closing bracket belongs to its document, unless the array is no record.
        whole = (chars == OBJECT_END) | ((chars == ARRAY_END) & (not self._elements))
        stops = cuts + shift
        return Pieces(
            offset=self._start + lost,
            content=np.frombuffer(data, np.uint8),
            starts=np.concatenate((np.zeros(1, np.int64), stops[:-1])),
            ends=np.where(whole, stops, cuts),
            stops=stops,
            gaps=(chars == COMMA) | ((chars == ARRAY_END) & (before == COMMA)),
            lost=self._start if lost else None,
        ).block(self._max_bytes)


def _problems(check: FormatCheck) -> Iterator[str]:
    yield from schema_problems("json", check)
    if not check.sound("json.records.path", "json.records.around", "json.elements"):
        return
    path, around = check.options.records_path, check.options.records_around
    if around and not path:
        yield "json.records.around needs json.records.path; set both or none"
    whole, ends = ".".join(path), {end - 1 for end in accumulate(len(name) + 1 for name in path)}
    if holding := sorted(one for one in around if len(one) in ends and whole.startswith(one)):
        yield (
            f"json.records.around: {holding[0]!r} holds the records; write members beside them, as"
            " in json.records.path=data.items with json.records.around=data.total"
        )
    if not path:
        return
    if not check.options.elements:
        yield (
            "json.elements=false delivers whole documents, and json.records.path their records;"
            " remove one of the two"
        )
    if check.sound("input.format") and not check.chosen:
        yield (
            "json.records.path needs input.format=json: a document in one line would be delivered"
            " whole, as jsonl"
        )


JSON = FormatSpec(
    open=open_json,
    options=JsonOptions,
    extensions=("json",),
    converters=("json", "string", "bytes"),
    raw=True,
    problems=_problems,
    under=with_columns,
    remedy="; for columns, set input.format=json and json.schema=infer, or name them",
)
