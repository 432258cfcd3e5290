"""Decode CSV (RFC 4180), whose quoted fields may hold line breaks.

record  -- empty, or before the first record ------------> no record
        -- not UTF-8 ------------------------------------> bad record
        -- malformed (`csv_syntax`), a CR inside, an
           escape, a byte order mark --------------------> Grammar, record by record
        -- any other: Arrow and Grammar agree -----------> Arrow's reader, all at once
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import PurePosixPath
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray

from extentflow.arrays.batch_rows import Table, merge_tables
from extentflow.arrays.spans import Indexes
from extentflow.arrays.texts import cast_texts
from extentflow.config.column_lists import SCHEMA, Schema, arrow_type
from extentflow.config.specs import OF_COLUMNS, FormatCheck
from extentflow.config.table import key
from extentflow.config.types import (
    BOOLEAN,
    CHARACTER,
    EXACT,
    PREFIX,
    SIZE,
    choice,
    or_word,
    whole,
)
from extentflow.decoders.text_types import inferred_types, read_types
from extentflow.errors import CorruptObject, UnsupportedFormat
from extentflow.formats import Chunk, FormatOptions, FormatSpec
from extentflow.formats.csv.csv_fields import (
    C_MEANINGS,
    Escape,
    Grammar,
    MalformedRecord,
    UnclosedQuote,
)
from extentflow.formats.csv.csv_records import RecordCutter
from extentflow.formats.csv.csv_syntax import RecordSyntax, begin_with
from extentflow.formats.inference import SAMPLE_WINDOW_BYTES, bounded, sampled_batches
from extentflow.formats.lines import BOM, LineBlock, invalid_utf8_lines
from extentflow.formats.text.line_format import LineFormat, LineReader, make_chunk
from extentflow.formats.text.object_head import BGZF, ObjectHead, too_few_lines
from extentflow.storage import RangeSource
from extentflow.wording import again_command

T = TypeVar("T")
_LF, _CR, _NUL = 10, 13, "\0"
# Control characters but tabs and line breaks: binary content, or separators.
_UNLIKE_NAMES = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f]")
_SHOWN = 60  # how much of a name that is none a message shows
_SEPARATOR_LINE = re.compile(r"(?i)[\s'\"]*sep=\W{0,3}\s*\Z")


class CsvRowReader:
    """The LineReader of one object version; `begin` is the offset after the header."""

    def __init__(
        self, uri: str, options: CsvOptions, schema: pa.Schema, begin: int, *, inferred: bool
    ) -> None:
        self._uri = uri
        self._inferred = inferred
        self._options = options
        self._grammar = _grammar(options, options.nulls)
        self._schema = schema
        self._texts = pa.schema([(name, pa.string()) for name in schema.names])
        self._begin = begin

    def __call__(self, block: LineBlock) -> Chunk:
        """Return the block's rows."""
        records = _has_record(block, self._options) & (block.offsets() >= self._begin)
        bad = {line: why for line, why in invalid_utf8_lines(block).items() if records[line]}
        records[list(bad)] = False
        irregular = records & _irregular_lines(block, self._options)
        fast, unended = self._parse_with_arrow(block, np.flatnonzero(records & ~irregular), bad)
        irregular[unended] = True
        exact = self._parse_with_grammar(block, np.flatnonzero(irregular), bad)
        lines, batch = self._cast_columns(merge_tables([fast, exact]), bad)
        return make_chunk(block, batch, lines, bad)

    def _parse_with_arrow(
        self, block: LineBlock, lines: Indexes, bad: dict[int, str]
    ) -> tuple[Table, list[int]]:
        """Return the rows of `lines`, and those without the separator that ends most of them."""
        if not len(lines):
            return (lines, pa.RecordBatch.from_pylist([], schema=self._texts)), []
        trailing = self._options.trailing_separator
        wrong: dict[int, int] = {}

        # Arrow reports the rows with another number of fields and leaves them out.
        def skip(row: arrow_csv.InvalidRow) -> str:
            # Arrow counts rows from 1.
            wrong[row.number - 1] = row.actual_columns
            return "skip"

        columns = _read_csv(block.text(lines), self._options, len(self._texts) + trailing, skip)
        rows = np.delete(lines, list(wrong))
        # One row more or less would give every later record the offset of another one.
        if any(len(column) != len(rows) for column in columns):
            raise CorruptObject(
                f"{self._uri}: Arrow read a different number of records than the {len(lines)} lines"
                f" that begin at byte {block.location(int(lines[0]))}; please report this object"
            )
        unended: list[int] = []
        for row, fields in wrong.items():
            line = int(lines[row])
            if trailing and fields == len(self._texts):
                unended.append(line)
            else:
                bad[line] = self._wrong_count(fields)
        if not trailing:
            return (rows, pa.record_batch(columns, schema=self._texts)), unended
        texts = pa.record_batch(columns[:-1], schema=self._texts)
        ended = pc.fill_null(pc.equal(columns[-1], ""), fill_value=True)
        kept = ended.to_numpy(zero_copy_only=False)
        bad.update((int(line), self._wrong_count(len(columns))) for line in rows[~kept])
        return (rows[kept], texts.filter(ended)), unended

    def _parse_with_grammar(self, block: LineBlock, lines: Indexes, bad: dict[int, str]) -> Table:
        rows: dict[int, list[str | None]] = {}
        for line in lines.tolist():
            try:
                fields = self._grammar.split(block.raw(line).decode())
                if self._options.trailing_separator and len(fields) == len(self._texts) + 1:
                    fields = _without_trailing(fields)
            except MalformedRecord as exc:
                bad[line] = _described(exc, self._options)
            else:
                if len(fields) == len(self._texts):
                    rows[line] = fields
                else:
                    bad[line] = self._wrong_count(len(fields))
        indices = range(len(self._texts))
        columns = [pa.array([row[i] for row in rows.values()], pa.string()) for i in indices]
        return np.fromiter(rows, np.int64), pa.record_batch(columns, schema=self._texts)

    def _wrong_count(self, count: int) -> str:
        return f"expected {len(self._texts)} fields, got {count}"

    def _cast_columns(self, table: Table, bad: dict[int, str]) -> Table:
        lines, texts = table
        columns: list[pa.Array] = []
        refused: dict[int, str] = {}
        origin = _INFERRED if self._inferred else ""
        for column, wanted in zip(texts.columns, self._schema, strict=True):
            values, reasons = cast_texts(column, wanted.type, inferred=self._inferred)
            columns.append(values)
            for row, reason in reasons.items():
                refused.setdefault(row, f"column {wanted.name!r}: {reason}{origin}")
        batch = pa.record_batch(columns, schema=self._schema)
        if not refused:
            return lines, batch
        # A row with a bad value leaves all columns.
        bad.update((int(lines[row]), reason) for row, reason in refused.items())
        rows = np.delete(np.arange(len(lines)), list(refused))
        return lines[rows], batch.take(pa.array(rows))


_INFERRED = (
    ", which csv.schema=infer found in samples of the object; set csv.schema to the facts that"
    " `extentflow plan -c NAME --json` shows, or `run ADDRESS --topic` with --dry-run --json, with"
    " a wider type, and deliver the object again"
)


def _grammar(own: CsvOptions, nulls: Collection[str] = ()) -> Grammar:
    stray = "\n" if own.delimiter else "\r"
    of = (own.separator or ",", own.quote, own.escaping, nulls)
    return Grammar(*of, lenient=own.lenient_quotes, stray=stray)


def _without_trailing(fields: list[T]) -> list[T]:
    """Return the fields before a last one that is empty."""
    return fields[:-1] if len(fields) > 1 and not fields[-1] else fields


def _described(exc: MalformedRecord, own: CsvOptions) -> str:
    if not isinstance(exc, UnclosedQuote):
        return str(exc)
    limit = "none" if own.multiline_bytes is None else own.multiline_bytes
    return (
        f"{exc} (csv.multiline.max.bytes={limit}), so that the record ends with its line; where"
        " quotes are text, set csv.quote.char=none"
    )


def _arrow_separator(own: CsvOptions) -> str:
    """Return the separator for Arrow, which takes no zero; the lines that hold it are irregular."""
    if own.separator != _NUL:
        return own.separator or ","
    return "\x01" if own.quote != "\x01" else "\x02"


def _read_csv(
    text: NDArray[np.uint8],
    own: CsvOptions,
    columns: int,
    skip: Callable[[arrow_csv.InvalidRow], str],
) -> list[pa.StringArray]:
    """Return the columns of `text` as strings; call `skip` for rows with another field count.

    `text` must be valid UTF-8, without escapes in lines with quotes, and of the characters that end
    fields and lines.
    """
    names = [str(column) for column in range(columns)]
    end = _CR if own.delimiter else _LF
    if text[-1] != end:
        # At the end of its input, Arrow takes an empty field behind a quoted one for quoted.
        text = np.append(text, np.uint8(end))
    if own.separator == _NUL:
        text = np.where(text == 0, ord(_arrow_separator(own)), text).astype(np.uint8)
    table = arrow_csv.read_csv(
        pa.BufferReader(pa.py_buffer(text)),
        read_options=arrow_csv.ReadOptions(
            use_threads=False, block_size=len(text) + 1, column_names=names
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=_arrow_separator(own),
            quote_char=own.quote if own.quote not in (None, _NUL) else False,
            double_quote=True,
            escape_char=False,
            newlines_in_values=own.quote is not None,
            ignore_empty_lines=True,
            invalid_row_handler=skip,
        ),
        # UTF-8 was checked per line before; a quoted field is never null, also if it is empty.
        convert_options=arrow_csv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(names, pa.string()),
            null_values=own.nulls,
            strings_can_be_null=bool(own.nulls),
            quoted_strings_can_be_null=False,
        ),
    )
    return [_without_escapes(column.combine_chunks(), own.escaping) for column in table.columns]


def _without_escapes(column: pa.StringArray, escape: Escape | None) -> pa.StringArray:
    if escape is None:
        return column
    escaped = pc.fill_null(pc.match_substring(column, escape.character), fill_value=False)
    if not escaped.true_count:
        return column
    texts = [escape.replaced(text) for text in column.filter(escaped).to_pylist()]
    return pc.replace_with_mask(column, escaped, pa.array(texts, pa.string()))


def _has_record(block: LineBlock, own: CsvOptions) -> NDArray[np.bool_]:
    """Return the mask of lines that are not empty, and no comments or end of COPY's data."""
    records: NDArray[np.bool_] = block.ends > block.starts
    if own.escape_mode == "c":
        # The line that ends the data of PostgreSQL's COPY.
        end = f"{own.escape}.".encode()
        begun = np.searchsorted(block.starts, begin_with(block.data, block.starts, end))
        records[[line for line in begun.tolist() if block.raw(line).rstrip(b"\r\n") == end]] = False
    if own.comment is not None:
        comments = begin_with(block.data, block.starts, own.comment.encode())
        records[np.searchsorted(block.starts, comments)] = False
    return records


def _holds(block: LineBlock, character: str) -> NDArray[np.bool_]:
    """Return the mask of lines that hold a character."""
    holds = np.zeros(len(block), bool)
    holds[block.spans.at(np.flatnonzero(block.data == ord(character)))] = True
    return holds


def _irregular_lines(block: LineBlock, own: CsvOptions) -> NDArray[np.bool_]:
    """Return the mask of lines that only the grammar can decide."""
    data = block.data
    irregular = np.zeros(len(block), bool) if block.irregular is None else block.irregular.copy()
    # Arrow drops a byte order mark at the start of its input, which may be any line here.
    for line in np.flatnonzero(data[block.starts] == BOM[0]).tolist():
        irregular[line] |= block.raw(line).startswith(BOM)
    if own.delimiter:
        irregular[block.spans.at(np.flatnonzero(data == _LF))] = True
    # Arrow ends a row at a CR without LF, too.
    elif (is_return := data == _CR).any():
        returns = np.flatnonzero(is_return)
        inside = returns[data[np.minimum(returns + 1, len(data) - 1)] != _LF]
        irregular[block.spans.at(inside)] = True
    if own.separator == _NUL:
        irregular |= _holds(block, _arrow_separator(own))
    if own.quote == _NUL:
        irregular |= _holds(block, _NUL)
    if own.escape is not None:
        escapes = np.flatnonzero(data == ord(own.escape))
        # Arrow finds the ends of fields and lines where none of these is escaped.
        ends = [ord(one) for one in (own.separator or ",", own.quote, "\n", "\r") if one]
        is_end = np.isin(data[np.minimum(escapes + 1, len(data) - 1)], ends)
        irregular[block.spans.at(escapes[is_end | (escapes == len(data) - 1)])] = True
        if own.quote is not None:
            irregular |= _holds(block, own.escape) & _holds(block, own.quote)
    return irregular


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """The keys `csv.*`; `null` None: no field is null."""

    separator: str | None = key(
        or_word("auto", CHARACTER),
        r"One ASCII character; `\t` is a tab, and `\x01` the ^A of Hive. `auto`: what a first line"
        " such as `sep=;` states, else a tab for objects `.tsv`, and a comma for others.",
        name="separator.char",
        shown="auto",
    )
    quote: str | None = key(
        or_word("none", CHARACTER),
        "One ASCII character; doubled inside a quoted field it stands for itself. `none`: quotes"
        " are text, and a record is a line.",
        default='"',
        name="quote.char",
    )
    escape: str | None = key(
        or_word("none", CHARACTER),
        "One ASCII character after which the next one is plain text, or `none`. See"
        " `csv.escape.mode` for exports of databases.",
        name="escape.char",
    )
    escape_mode: str = key(
        choice({"plain", "c"}),
        r"`c`: `\n`, `\t`, `\r`, `\b`, `\f`, `\v`, `\0` and `\Z` are control characters, as in"
        r" PostgreSQL's COPY, MySQL and Hive. The unquoted field `\N` is null, and an empty one is"
        r" not. `plain`: `\n` is `n`.",
        default="plain",
        name="escape.mode",
    )
    line_end: str = key(
        choice({"lf", "cr"}),
        "What ends a line: `lf`, also behind a CR, or `cr` alone.",
        default="lf",
        name="line.end",
    )
    header: bool = key(
        BOOLEAN,
        "Whether the first record holds names; else `csv.schema`'s, or c0, c1, …",
        default=True,
    )
    skip_lines: int = key(
        whole(0, 10_000),
        "Lines to skip above the header, or above the first record. Empty lines and a line such as"
        " `sep=;` count; a record of several lines counts as one.",
        default=0,
        name="header.skip.lines",
    )
    comment: str | None = key(
        or_word("none", PREFIX),
        "What begins a line that is no record, such as `#`, or `none`. Within quotes, it begins"
        " none.",
        name="comment.prefix",
    )
    null: str | None = key(
        EXACT, "The unquoted field that means null; by default the empty one.", default=""
    )
    header_duplicates: str = key(
        choice({"refuse", "rename"}),
        "For a header that names a column twice, or not at all. `rename`: `a`, `a_2`, `a_3`; a"
        " column without a name is `c0`, `c1`, … by its place. `refuse` accepts one column without"
        " a name, and calls it by the empty text.",
        default="refuse",
        name="header.duplicates",
    )
    lenient_quotes: bool = key(
        BOOLEAN,
        "true: a quote within a field that does not begin with one is text, as DuckDB and Excel"
        " read it. false: its record is bad.",
        default=False,
        name="lenient.quotes",
    )
    trailing_separator: bool = key(
        BOOLEAN,
        "true: a separator behind the last field begins no further one, in the header and in"
        " records. false: it does.",
        default=False,
        name="trailing.separator",
    )
    multiline_bytes: int | None = key(
        or_word("none", SIZE),
        "The longest quoted field that may hold line breaks. A longer one is a bad record that ends"
        " with its line. `none`: no field holds line breaks.",
        default=1 << 20,
        name="multiline.max.bytes",
    )
    schema: Schema | None = key(
        or_word("infer", SCHEMA),
        "`name:type,…` in file order; names that contain `,` or `:` in double quotes."
        " Types: string, bool, int8 to int64, uint8 to uint64, float32, float64, date,"
        " decimal(precision,scale), timestamp(s, ms, us or ns[,zone]). `infer`: planning finds the"
        " types in samples of each object.",
        default=(),
        shown="every value a string",
    )

    @property
    def delimiter(self) -> str | None:
        """What ends a line; None: LF or CR LF."""
        return "\r" if self.line_end == "cr" else None

    @property
    def escaping(self) -> Escape | None:
        """What an escape makes of the next character; None: there are no escapes."""
        if self.escape is None:
            return None
        return Escape(self.escape, C_MEANINGS if self.escape_mode == "c" else {})

    @property
    def nulls(self) -> list[str]:
        """The unquoted fields that mean null."""
        if self.escape_mode == "c":
            return [f"{self.escape}N", *([self.null] if self.null else [])]
        return [] if self.null is None else [self.null]


def _stated_separator(own: CsvOptions, head: ObjectHead) -> str | None:
    """Return the separator of a first line such as `sep=;`, which Excel reads; None without it."""
    end = "\r" if own.delimiter else "\r?\n"
    # Programs that save the file again end this line with separators, as every line.
    stated = r"(\\t|[^\r\n\"])"
    line = re.match(
        rf"""(?i:(?:sep={stated}|"sep={stated}"))(?:\1|\2| )*(?:{end}|\Z)""", head.beginning
    )
    return line and (line[1] or line[2]).replace("\\t", "\t")


def _of_object(own: CsvOptions, head: ObjectHead) -> CsvOptions:
    """Return the options with the separator that `auto` means for an object.

    UnsupportedFormat if its first line states one that has another meaning, or is not ASCII.
    """
    if own.separator:
        return own
    is_tsv = ".tsv" in PurePosixPath(head.version.key.lower()).suffixes[-2:]
    separator = _stated_separator(own, head) or ("\t" if is_tsv else ",")
    used = (own.quote, own.escape, (own.comment or "")[:1])
    if not separator.isascii() or separator in used:
        raise UnsupportedFormat(
            f"{head.version.uri}: its first line states the separator {separator!r}, which is not"
            " ASCII, or begins a quote, an escape or a comment; set csv.separator.char to what"
            " separates its fields"
        )
    return replace(own, separator=separator)


def open_csv(options: FormatOptions, own: CsvOptions = CsvOptions()) -> LineFormat:
    """Return the format `csv`: one column per field; an empty line is not a record.

    Names come from the header, from `schema` (which the header must match), or are c0, c1, ... for
    the fields of the object's first record.
    A first line such as `sep=;` is skipped. Values are strings, or have the type in `schema`;
    with None, the type in `options.facts`, which `inspect` finds. A record with another number of
    fields, a value that its type cannot represent exactly, a misplaced quote or carriage return, or
    invalid UTF-8 is a bad record. A quoted field of up to `multiline_bytes` may hold line breaks.
    """

    def cutter(head: ObjectHead) -> RecordCutter:
        of = _of_object(own, head)
        characters = (of.separator or ",", of.quote, of.escape)
        most = of.multiline_bytes if of.quote else None
        syntax = RecordSyntax(*characters, most or 0, of.delimiter, comment=of.comment)
        return RecordCutter(syntax.within(head.charset))

    if own.separator == _NUL and options.charset is None:
        # Zeros are no sign of UTF-16 then.
        options = replace(options, charset="utf-8")
    if own.schema is None:
        return InferringCsv(options, own, cutter)
    return CsvFormat(options, own, cutter)


class CsvFormat(LineFormat):
    """The format `csv`."""

    def __init__(
        self, options: FormatOptions, own: CsvOptions, cutter: Callable[[ObjectHead], RecordCutter]
    ) -> None:
        """Types are those of `own.schema`; with None, of `options.facts`."""
        super().__init__(
            "csv",
            options,
            _CsvDecoder(own, options.facts),
            delimiter=own.delimiter,
            cutter=cutter,
            # Version 1 cut records at every line break; version 2 did not cut BGZF.
            cut_version=3 if options.compression == BGZF else 2,
        )
        self._own = own


class InferringCsv(CsvFormat):
    """The format `csv` with types that `inspect` finds at planning."""

    def inspect(self, source: RangeSource) -> str:
        """Return the types in samples; of an object that is not cut, in its first content."""
        options = replace(self._options, window_bytes=SAMPLE_WINDOW_BYTES, facts="")
        texts = open_csv(options, replace(self._own, schema=()))
        batches = list(sampled_batches(texts, source))
        if not batches:
            return ""
        what = f"{source.version.uri}: csv.schema=infer of {len(batches[0].schema)} columns"
        remedy = "leave csv.schema out, and cast columns by a transform"
        return bounded(inferred_types(pa.Table.from_batches(batches)), what, remedy)


def _problems(check: FormatCheck) -> Iterator[str]:
    own = check.options
    used = [one for one in (own.separator or ",", own.quote, own.escape) if one]
    sound = check.sound("csv.separator.char", "csv.quote.char", "csv.escape.char")
    if sound and len(set(used)) < len(used):
        yield (
            "csv.separator.char, csv.quote.char and csv.escape.char: two are the same character;"
            " choose different ones (a doubled quote needs no escape character)"
        )
    if own.escape_mode == "c" and own.escape is None and check.sound("csv.escape.char"):
        yield r"csv.escape.mode=c: set csv.escape.char, to \ for exports of databases"
    sound = check.sound("csv.comment.prefix")
    if sound and own.comment is not None and own.comment[0] in used:
        yield (
            f"csv.comment.prefix={own.comment} begins as a separator, quote or escape does; choose"
            " a different one"
        )
    known = {name for name, _ in own.schema or ()}
    unknown = ", ".join(repr(name) for name in check.key_columns if name not in known)
    sound = check.sound("input.format", "csv.schema", "message.key")
    if sound and check.chosen and known and unknown:
        yield f"message.key: csv.schema has no column {unknown}; write names from csv.schema"


CSV = FormatSpec(
    open=open_csv,
    splits_compressed=True,
    options=CsvOptions,
    extensions=("csv", "tsv"),
    converters=(*OF_COLUMNS, "string", "bytes", "base64"),
    problems=_problems,
)


class _CsvDecoder:
    def __init__(self, options: CsvOptions, facts: str = "") -> None:
        self._options = options
        self._facts = facts
        self._schema = {name: arrow_type(written) for name, written in options.schema or ()}

    def reader(self, head: ObjectHead) -> LineReader:
        uri, own = head.version.uri, _of_object(self._options, head)
        names, begin = list(self._schema), 0
        above = max(own.skip_lines, _stated_separator(own, head) is not None)
        if own.header or not names or above:
            first, begin, behind = self._first_record(head, own, above)
            if own.header:
                names, begin = self._column_names(uri, first), behind
            elif not names:
                names = [f"c{ordinal}" for ordinal in range(len(first))]
        schema = pa.schema([(name, self._schema.get(name, pa.string())) for name in names])
        inferred = self._options.schema is None
        if inferred:
            schema = self._inferred_schema(uri, names)
        return CsvRowReader(uri, own, schema, begin, inferred=inferred)

    def _inferred_schema(self, uri: str, names: list[str]) -> pa.Schema:
        columns = read_types(self._facts)
        if [name for name, _ in columns] != names:
            raise UnsupportedFormat(
                f"{uri}: csv.schema=infer: the job holds no types for the object's columns, because"
                f" planning could not read them; deliver it with {again_command()}"
            )
        return pa.schema(columns)

    def _first_record(
        self, head: ObjectHead, own: CsvOptions, above: int
    ) -> tuple[list[str], int, int]:
        """Return the fields of the first record behind `above` lines, and two offsets.

        They are those behind the lines above, and behind the record. Without a record, or where its
        fields are not needed, there are no fields. UnsupportedFormat where there are fewer lines,
        or the header would be one of them.
        """
        left, begin = above, 0
        for block in head.lines():
            taken = min(left, len(block))
            if taken:
                _require_ended(head, own, block, taken)
                left, begin = left - taken, block.stop(taken - 1)
            if not left and not own.header and self._schema:
                return [], begin, begin
            lines = np.flatnonzero(_has_record(block, own))
            lines = lines[np.searchsorted(lines, taken) :]
            if len(lines):
                line = int(lines[0])
                return self._fields(head, own, block, line), begin, block.stop(line)
            if block.bad:
                raise CorruptObject(f"{head.version.uri}: {block.bad[0].reason}")
        # An empty object has no record anyway.
        if own.skip_lines and left < above and (left or own.header):
            setting = f"csv.header.skip.lines={own.skip_lines}"
            expected = "the header" if own.header else "the first record"
            raise too_few_lines(head.version.uri, above - left, setting, above=expected)
        return [], begin, begin

    def _fields(self, head: ObjectHead, own: CsvOptions, block: LineBlock, line: int) -> list[str]:
        grammar = _grammar(own)
        problem = invalid_utf8_lines(block).get(line)
        if problem is None:
            try:
                # A name is never null.
                names = [field or "" for field in grammar.split(block.raw(line).decode())]
                return _without_trailing(names) if own.trailing_separator else names
            except MalformedRecord as exc:
                problem = _described(exc, own)
        where = f"{head.version.uri}: the first record, at byte {block.location(line)}"
        is_lined = own.delimiter is None and b"\r" in block.raw(line)
        advice = "; if carriage returns end its lines, set csv.line.end=cr" if is_lined else ""
        raise CorruptObject(f"{where}, cannot be read: {problem}{advice}")

    def _column_names(self, uri: str, header: list[str]) -> list[str]:
        # Columns are matched by position; a header in another order would swap them silently.
        expected = list(self._schema)
        if not header:
            return expected
        if unlike := next((name for name in header if _UNLIKE_NAMES.search(name)), None):
            raise UnsupportedFormat(
                f"{uri}: the first record, {unlike[:_SHOWN]!r}, holds a control character, and is"
                " no header: set csv.separator.char to what separates the fields (such as \\x01),"
                " or input.format to the object's format"
            )
        if _SEPARATOR_LINE.match(header[0]):
            raise UnsupportedFormat(
                f"{uri}: the first record, {header[0]!r}, states a separator in another way than"
                " `sep=;`; set csv.header.skip.lines to skip it, and csv.separator.char"
            )
        where = f"{uri}: the header names"
        advice = (
            "set csv.header.skip.lines if lines stand above the header, csv.header=false if the"
            " first line is a record"
        )
        names, wanted = ", ".join(map(repr, header)), ", ".join(map(repr, expected))
        if expected and header != expected:
            raise UnsupportedFormat(
                f"{where} {names}, csv.schema {wanted}; make them equal, {advice}"
            )
        if self._options.header_duplicates == "rename":
            return _distinct(header)
        if repeated := sorted({name for name in header if header.count(name) > 1}):
            names = ", ".join(map(repr, repeated))
            raise UnsupportedFormat(
                f"{where} {names} more than once; {advice}, or csv.header.duplicates=rename"
            )
        return header


def _require_ended(head: ObjectHead, own: CsvOptions, block: LineBlock, lines: int) -> None:
    """Refuse lines above the header whose malformed quotes would skip the header, too."""
    malformed = np.zeros(0, bool) if block.irregular is None else block.irregular[:lines]
    for line in np.flatnonzero(malformed).tolist():
        if (own.delimiter or "\n").encode() in block.raw(line):
            raise CorruptObject(
                f"{head.version.uri}: the line above the header at byte {block.location(line)} has"
                " a quote that is closed in another line; remove it, or set csv.quote.char=none if"
                " quotes are text"
            )


def _distinct(header: list[str]) -> list[str]:
    """Return distinct names; the first column of a name keeps it."""
    taken = {name for name in header if name}
    found: list[str] = []
    for ordinal, name in enumerate(header):
        wanted = name or f"c{ordinal}"
        if not name or name in found:
            numbered = (f"{wanted}_{number}" for number in count(2))
            wanted = next(one for one in chain([wanted], numbered) if one not in taken)
        taken.add(wanted)
        found.append(wanted)
    return found
