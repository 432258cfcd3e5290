"""Decode lines `name=value` into the columns `name` and `value`."""

import pyarrow as pa
import pyarrow.compute as pc

from extentflow.formats import Chunk, FormatOptions
from extentflow.formats.line_format import (
    LineFormat,
    LineReader,
    ObjectHead,
    lines_except,
    make_chunk,
)
from extentflow.formats.lines import LineBlock


def open_acme(options: FormatOptions) -> LineFormat:
    """Return the format `acme`; a line without an equals sign is a bad record."""
    return LineFormat("acme", options, _PairDecoder())


class _PairDecoder:
    def reader(self, _opening: ObjectHead) -> LineReader:
        return _read_pairs


def _read_pairs(block: LineBlock) -> Chunk:
    has_sign = pc.match_substring(block.values(), b"=").to_pylist()
    bad = {line: "no equals sign" for line, found in enumerate(has_sign) if not found}
    lines = lines_except(block, bad)
    values = block.values(lines)
    split = pc.find_substring(values, b"=")
    rows = list(zip(values.to_pylist(), split.to_pylist(), strict=True))
    names = pa.array([row[:at].decode() for row, at in rows], pa.string())
    texts = pa.array([row[at + 1 :].decode() for row, at in rows], pa.string())
    batch = pa.record_batch([names, texts], names=["name", "value"])
    return make_chunk(block, batch, lines, bad)
