"""Decode lines of text: one record per line in the column `value`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from extentflow.config.specs import NO_OPTIONS, NoOptions
from extentflow.formats import Chunk, FormatOptions, FormatSpec
from extentflow.formats.line_format import (
    LineFormat,
    LineReader,
    ObjectHead,
    lines_except,
    make_chunk,
)
from extentflow.formats.lines import LineBlock

__all__ = ["TEXT", "invalid_utf8_lines", "open_text"]

_ASCII_END = 0x80
_BINARY = pa.schema([("value", pa.binary())])
_STRING = pa.schema([("value", pa.string())])


def open_text(options: FormatOptions, _own: NoOptions = NO_OPTIONS) -> LineFormat:
    """Return the format `text`: one column, `value`; an empty line is an empty record.

    With `validate_text`, values are strings and a line that is not UTF-8 is a bad record; without
    it, values are binary and not checked.
    """
    return LineFormat("text", options, _TextDecoder(validate=options.validate_text))


TEXT = FormatSpec(
    open=open_text,
    extensions=("txt", "text", "log"),
    converters=("string", "bytes"),
    raw=True,
    has_columns=False,
)


class _TextDecoder:
    def __init__(self, *, validate: bool) -> None:
        self._validate = validate

    def reader(self, _read_head: ObjectHead) -> LineReader:
        return _strings if self._validate else _bytes


def _bytes(block: LineBlock) -> Chunk:
    return make_chunk(block, pa.record_batch([block.values()], schema=_BINARY), None, {})


def _strings(block: LineBlock) -> Chunk:
    bad = invalid_utf8_lines(block)
    lines = lines_except(block, bad)
    values = block.values(lines).view(pa.string())
    return make_chunk(block, pa.record_batch([values], schema=_STRING), lines, bad)


def invalid_utf8_lines(block: LineBlock) -> dict[int, str]:
    """Return the lines that are not UTF-8, each with its reason."""
    if not len(block) or block.data.max() < _ASCII_END or _is_utf8(block.data):
        return {}
    beyond_ascii = np.flatnonzero(block.data >= _ASCII_END)
    suspects = np.unique(np.searchsorted(block.starts, beyond_ascii, side="right") - 1)
    reasons = ((line, _decoding_error(block, line)) for line in suspects[suspects >= 0].tolist())
    return {line: reason for line, reason in reasons if reason}


def _is_utf8(data: NDArray[np.uint8]) -> bool:
    edges = pa.py_buffer(np.array([0, len(data)], np.int32))
    whole = pa.BinaryArray.from_buffers(pa.binary(), 1, [None, edges, pa.py_buffer(data)])
    try:
        whole.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _decoding_error(block: LineBlock, line: int) -> str:
    raw = block.raw(line)
    try:
        raw.decode()
    except UnicodeDecodeError as exc:
        location = block.location(line) + exc.start
        return f"not UTF-8: {exc.reason} (0x{raw[exc.start]:02x}) at byte {location}"
    return ""
