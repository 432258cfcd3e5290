"""Lines of text, one record each.

Owns: the column `value`, the UTF-8 check. Refuses to know: where lines begin and end.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from extentflow.formats import Chunk, FormatOptions
from extentflow.formats.lines import LineBlock
from extentflow.formats.linewise import LineFormat, LineReader, Opening, chunk, without

__all__ = ["not_utf8", "open_text"]

_ASCII_END = 0x80
_BINARY = pa.schema([("value", pa.binary())])
_STRING = pa.schema([("value", pa.string())])


def open_text(options: FormatOptions) -> LineFormat:
    """Return the format `text`: one column, `value`; an empty line is an empty record.

    With `validate_text` the values are strings, and a line that is not UTF-8 is a bad record;
    without it they are binary, whatever they hold.
    """
    return LineFormat("text", options, _Text(validate=options.validate_text))


class _Text:
    def __init__(self, *, validate: bool) -> None:
        self._validate = validate

    def reader(self, _opening: Opening) -> LineReader:
        return _strings if self._validate else _bytes


def _bytes(block: LineBlock) -> Chunk:
    return chunk(block, pa.record_batch([block.values()], schema=_BINARY), None, {})


def _strings(block: LineBlock) -> Chunk:
    bad = not_utf8(block)
    lines = without(block, bad)
    values = block.values(lines).view(pa.string())
    return chunk(block, pa.record_batch([values], schema=_STRING), lines, bad)


def not_utf8(block: LineBlock) -> dict[int, str]:
    """Return the lines that are not UTF-8, each with its reason.

    The whole block is checked at once: no character spans an LF, so it is valid when its lines
    are. Only where it is not, lines with bytes beyond ASCII are looked at one by one.
    """
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
        place = block.place(line) + exc.start
        return f"not UTF-8: {exc.reason} (0x{raw[exc.start]:02x}) at byte {place}"
    return ""
