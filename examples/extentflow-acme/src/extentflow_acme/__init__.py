"""Decode lines `name=value` into the columns `name` and `value`, and drop those without a value."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from extentflow.config.table import key
from extentflow.config.types import CHARACTER
from extentflow.formats import Chunk, FormatOptions, FormatSpec
from extentflow.formats.lines import LineBlock
from extentflow.formats.text.line_format import LineFormat, LineReader, lines_except, make_chunk
from extentflow.formats.text.object_head import ObjectHead


@dataclass(frozen=True, slots=True, kw_only=True)
class AcmeOptions:
    """The keys `acme.*` of a connector."""

    separator: str = key(CHARACTER, "The character between name and value.", default="=")


def open_acme(options: FormatOptions, own: AcmeOptions) -> LineFormat:
    """Return the format `acme`; a line without a separator is a bad record."""
    return LineFormat("acme", options, _PairDecoder(own.separator.encode()))


class _PairDecoder:
    def __init__(self, separator: bytes) -> None:
        self._separator = separator

    def reader(self, _head: ObjectHead) -> LineReader:
        return self._read_pairs

    def _read_pairs(self, block: LineBlock) -> Chunk:
        every = block.values().to_pylist()
        bad = {line: "no separator" for line, raw in enumerate(every) if self._separator not in raw}
        lines = lines_except(block, bad)
        pairs = [raw.partition(self._separator) for raw in block.values(lines).to_pylist()]
        names = pa.array([name.decode() for name, _, _ in pairs], pa.string())
        texts = pa.array([text.decode() for _, _, text in pairs], pa.string())
        batch = pa.record_batch([names, texts], names=["name", "value"])
        return make_chunk(block, batch, lines, bad)


FORMAT = FormatSpec(open=open_acme, options=AcmeOptions, extensions=("acme",))


def has_value(batch: pa.RecordBatch) -> pa.BooleanArray:
    """Return which rows to keep: the transform `acme_has_value`."""
    return pc.not_equal(batch["value"], "")
