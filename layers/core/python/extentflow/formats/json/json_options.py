"""The keys that `jsonl` and `json` share, and what follows from them.

Tests: unit/formats/json/test_json_format.py, unit/formats/json/test_jsonl_format.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from extentflow.config.column_lists import JSON_SCHEMA, Schema
from extentflow.config.specs import OF_COLUMNS, FormatCheck
from extentflow.config.table import key
from extentflow.config.types import choice, or_word
from extentflow.decoders.json_columns import ColumnReader, MemberColumns, blank_texts
from extentflow.decoders.json_inference import inferred_columns
from extentflow.formats import Chunk, Format, FormatOptions, FormatSpec
from extentflow.formats.inference import SAMPLE_WINDOW_BYTES, bounded, sampled_batches
from extentflow.formats.lines import LineBlock, invalid_utf8_lines
from extentflow.formats.text.line_format import LineReader, make_chunk
from extentflow.formats.text.object_head import ObjectHead
from extentflow.storage import RangeSource


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentOptions:
    """The keys `*.schema` and `*.unknown.members`; `schema` None is found at planning."""

    schema: Schema | None = key(
        or_word("infer", JSON_SCHEMA),
        "Columns for the members of objects: `name:type,…` as for `csv.schema`, also binary"
        " (base64), json (any value, as its text), struct<name:type,…>, list<type> and"
        " map<string,type>. `infer`: planning finds them in samples of each object. Needs"
        " `input.format`.",
        default=(),
        shown="documents as they are",
    )
    unknown_members: str = key(
        choice({"error", "ignore"}),
        "With a schema: a member without a column, at any depth, makes a bad record, or is left"
        " out.",
        default="error",
    )


class DocumentDecoder:
    """A LineDecoder of one JSON object per line: a column for each member that has one."""

    def __init__(self, name: str, options: FormatOptions, own: DocumentOptions) -> None:
        ignores = own.unknown_members == "ignore"
        members = MemberColumns.of(name, own.schema, options.facts, ignores=ignores)
        self._documents = ColumnReader(members)

    def reader(self, _head: ObjectHead) -> LineReader:
        """Return the reader; the start of an object says nothing."""
        return self.read

    def read(self, block: LineBlock) -> Chunk:
        """Return the records of `block`, whose lines are documents; blank ones are none."""
        blank = blank_texts(block.spans)
        bad = {line: why for line, why in invalid_utf8_lines(block).items() if line not in blank}
        (lines, batch), unfit = self._documents.read(block.spans, blank | bad.keys())
        return make_chunk(block, batch, lines, bad | unfit)


def to_sample(options: FormatOptions) -> FormatOptions:
    """Return how the documents in samples are read: as they are, in short steps."""
    return replace(options, window_bytes=SAMPLE_WINDOW_BYTES, columns=(), select=(), facts="")


def inspected(name: str, documents: Format, source: RangeSource) -> str:
    """Return the columns of the documents in samples of an object."""
    batches = sampled_batches(documents, source)
    found = (raw for batch in batches for raw in batch.column("value").to_pylist())
    facts = inferred_columns(found)
    what = f"{source.version.uri}: {name}.schema=infer"
    remedy = f"set {name}.schema, with json or map<string,type> for objects with many names"
    return bounded(facts, what, remedy)


def with_columns(spec: FormatSpec, own: DocumentOptions) -> FormatSpec:
    """Return the specification under options: with a schema, records are columns."""
    if own.schema == ():
        return spec
    return replace(
        spec, raw=False, converters=(*OF_COLUMNS, "string", "bytes", "base64"), remedy=""
    )


def schema_problems(name: str, check: FormatCheck) -> Iterator[str]:
    """Yield what is wrong with the schema of a format of documents."""
    own, schema = check.options, f"{name}.schema"
    if not check.sound(schema, "input.format"):
        return
    if own.schema == ():
        if own.unknown_members != "error":
            yield (
                f"{name}.unknown.members needs {schema}: without it, documents are delivered as"
                " they are; set both or none"
            )
        return
    if not check.chosen:
        yield (
            f"{schema} needs input.format={name}: the content of objects .json decides between json"
            " and jsonl, and one of the two would have no columns"
        )
    known = {column for column, _ in own.schema or ()}
    named = (one for one in check.key_columns if not known & {one, one.split(".")[0]})
    if known and check.sound("message.key") and (unknown := ", ".join(map(repr, named))):
        yield f"message.key: {schema} has no column {unknown}; write names from {schema}"
