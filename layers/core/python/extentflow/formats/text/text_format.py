"""Decode text, one record per line in the column `value`: the smallest `LineDecoder`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from extentflow.config.table import key
from extentflow.config.types import DELIMITER, or_word, whole
from extentflow.errors import CorruptObject
from extentflow.formats import Chunk, FormatOptions, FormatSpec
from extentflow.formats.lines import LineBlock, invalid_utf8_lines
from extentflow.formats.text.line_format import LineFormat, LineReader, lines_except, make_chunk
from extentflow.formats.text.object_head import ObjectHead, too_few_lines

_BINARY = pa.schema([("value", pa.binary())])
_STRING = pa.schema([("value", pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """The keys `text.*`."""

    delimiter: str | None = key(
        or_word("newline", DELIMITER),
        r"What ends a record; `newline` is LF or CR LF. Its end is not its beginning (`|~;`, not"
        r" `|~|`): several in a row could be cut anywhere. Escapes: `\n`, `\r`, `\t`, `\0`, `\\`,"
        r" `\x1e`, `\u2028`.",
        shown="newline",
    )
    header_lines: int = key(whole(0, 10_000), "Lines at an object's start to skip.", default=0)


def open_text(options: FormatOptions, own: TextOptions = TextOptions()) -> LineFormat:
    """Return the format `text`: one column, `value`; an empty line is an empty record.

    With `validate_text`, values are strings and a line that is no text is a bad record; without it,
    values are binary, as in the object, and not checked.
    """
    decoder = _TextDecoder(validate=options.validate_text, header_lines=own.header_lines)
    return LineFormat(
        "text", options, decoder, delimiter=own.delimiter, as_utf8=options.validate_text
    )


class _TextDecoder:
    def __init__(self, *, validate: bool, header_lines: int) -> None:
        self._validate = validate
        self._header_lines = header_lines

    def reader(self, head: ObjectHead) -> LineReader:
        return partial(self._read, _offset_behind(head, self._header_lines))

    def _read(self, begin: int, block: LineBlock) -> Chunk:
        header: set[int] = set()
        if begin and (not len(block) or block.location(0) < begin):
            header = set(np.flatnonzero(block.offsets() < begin).tolist())
            block = replace(block, bad=tuple(bad for bad in block.bad if bad.location >= begin))
        bad = invalid_utf8_lines(block) if self._validate else {}
        bad = {line: reason for line, reason in bad.items() if line not in header}
        lines = lines_except(block, bad.keys() | header)
        values = block.values(lines)
        if not self._validate:
            return make_chunk(block, pa.record_batch([values], schema=_BINARY), lines, bad)
        # A view, as the bytes are known to be UTF-8: a cast would validate them again.
        batch = pa.record_batch([values.view(pa.string())], schema=_STRING)
        return make_chunk(block, batch, lines, bad)


def _offset_behind(head: ObjectHead, lines: int) -> int:
    """Return the offset behind the first `lines` lines.

    UnsupportedFormat where an object has fewer; an empty object has no record anyway.
    """
    left = lines
    for block in head.lines() if lines else ():
        if block.bad:
            where = f"{head.version.uri}: a line of the header, at byte {block.bad[0].location}"
            raise CorruptObject(f"{where}: {block.bad[0].reason}; set record.max.bytes")
        if left <= len(block):
            return block.stop(left - 1)
        left -= len(block)
    if left < lines:
        setting = f"text.header.lines={lines}"
        raise too_few_lines(head.version.uri, lines - left, setting, above="the first record")
    return 0


TEXT = FormatSpec(
    open=open_text,
    splits_compressed=True,
    options=TextOptions,
    extensions=("txt", "text", "log"),
    converters=("string", "bytes", "base64"),
    raw=True,
    has_columns=False,
)
