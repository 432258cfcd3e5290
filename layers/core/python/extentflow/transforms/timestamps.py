"""The transform TimestampConverter: between instants, numbers, and texts of a pattern.

Tests: unit/transforms/test_columns.py
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from extentflow.arrays.buffers import Columns, corrupt_record
from extentflow.arrays.casts import (
    ArrayFunction,
    failing_rows,
    local_times,
    unit_ticks,
    whole_units,
)
from extentflow.arrays.encodings import decoded, is_text
from extentflow.arrays.scalars import DIGITS, FIRST_DAY, LAST_DAY
from extentflow.arrays.texts import mask_rows
from extentflow.config.column_lists import NAMES
from extentflow.config.specs import TransformSpec
from extentflow.config.table import key
from extentflow.config.types import Kind, choice
from extentflow.errors import UnsupportedType
from extentflow.transforms.columns import (
    BatchFunction,
    column_transform,
    each_or_bad,
    require_zone,
    shown_value,
    with_columns,
)

_PRECISIONS = {"seconds": "s", "milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
# Java's SimpleDateFormat: letters -> the pattern of the text, and the part of ISO 8601.
_LETTERS = {
    "yyyy": ("(?P<y>[0-9]{4})", "%Y"),
    "MM": ("(?P<mo>[0-9]{2})", "%m"),
    "dd": ("(?P<d>[0-9]{2})", "%d"),
    "HH": ("(?P<h>[0-9]{2})", "%H"),
    "mm": ("(?P<mi>[0-9]{2})", "%M"),
    "ss": ("(?P<s>[0-9]{2})", "%S"),
    "SSS": ("(?P<f>[0-9]{3})", ""),
    "XXX": ("(?P<x>Z|[+-][0-9]{2}:[0-9]{2})", "Z"),
}


@dataclass(frozen=True, slots=True)
class DatePattern:
    """A pattern of Java's SimpleDateFormat: how its text is read, and how it is written."""

    text: str
    reads: str
    writes: str


_WORD = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|.", re.DOTALL)


def _date_pattern(text: str) -> DatePattern:
    reads, writes = "", ""
    words = [match[0] for match in _WORD.finditer(text)]
    for at, word in enumerate(words):
        if word == "'":
            raise ValueError("a quote is not closed")
        if word.startswith("'") or not (word.isascii() and word.isalpha()):
            literal = word[1:-1].replace("''", "'") or "'" if word.startswith("'") else word
            reads, writes = reads + _escaped(literal), writes + literal.replace("%", "%%")
            continue
        if word not in _LETTERS:
            raise ValueError(
                f"cannot read {word!r}; write {', '.join(_LETTERS)}, and other letters"
                " in single quotes"
            )
        if word in words[:at]:
            raise ValueError(f"{word} occurs twice")
        if word == "SSS" and words[max(0, at - 2) : at] != ["ss", "."]:
            raise ValueError("write SSS after ss and a point: ss.SSS")
        pattern, writer = _LETTERS[word]
        # Arrow writes the fraction of a timestamp in milliseconds with its seconds.
        writes = writes.removesuffix(".") if word == "SSS" else writes + writer
        reads += pattern
    if not {"y", "mo", "d"} <= set(_groups(reads)):
        raise ValueError("a date has yyyy, MM and dd; write all three")
    return DatePattern(text, f"^{reads}$", writes)


def _escaped(text: str) -> str:
    return "".join(
        f"\\{each}" if each.isascii() and not (each.isalnum() or each == " ") else each
        for each in text
    )


def _groups(pattern: str) -> list[str]:
    return [part.partition(">")[0] for part in pattern.split("(?P<")[1:]]


_ISO = (("y", ""), ("mo", "-"), ("d", "-"), ("h", "T"), ("mi", ":"), ("s", ":"), ("f", "."))
_DEFAULTS = {"h": "00", "mi": "00", "s": "00", "f": "000"}
PATTERN: Kind[DatePattern] = Kind(_date_pattern, lambda pattern: pattern.text)
_TARGETS = ("string", "unix", "Date", "Time", "Timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampConverterOptions:
    """The keys of TimestampConverter."""

    field: tuple[str, ...] = key(NAMES, "The column; several with commas.", required=True)
    target_type: str = key(
        choice(_TARGETS),
        "`string`, `unix` (a number), `Date`, `Time` or `Timestamp` (milliseconds).",
        required=True,
    )
    format: DatePattern | None = key(
        PATTERN,
        "The pattern of text, as Java's SimpleDateFormat: yyyy MM dd HH mm ss SSS XXX"
        " and text in single quotes.",
        shown="needed where column or target is text",
    )
    unix_precision: str = key(
        choice(_PRECISIONS),
        "Of numbers: `seconds`, `milliseconds`, `microseconds` or `nanoseconds`.",
        default="milliseconds",
    )


def _timestamp_problem(options: TimestampConverterOptions) -> str | None:
    if options.target_type == "string" and options.format is None:
        return "target.type=string: needs a format; write one, such as yyyy-MM-dd HH:mm:ss"
    return None


def _timestamp_converter(schema: pa.Schema, options: TimestampConverterOptions) -> BatchFunction:
    functions = {}
    for at in Columns.select(schema, options.field).indices:
        column = schema.field(at)
        if options.target_type in {"Date", "Time"}:
            require_zone(column.name, column.type)
        read = _instant_reader(column, options)
        target, write = _instant_writer(options)
        functions[at] = (column.with_type(target), partial(_converted, read, write))
    return with_columns(schema, functions)


def _converted(read: ArrayFunction, write: ArrayFunction, array: pa.Array) -> pa.Array:
    return each_or_bad(read(array), write, "does not fit the target type")


def _instant_reader(column: pa.Field, options: TimestampConverterOptions) -> ArrayFunction:
    """Return the function from a column to instants: timestamps in UTC, or without a zone."""
    data_type, unit = column.type, _PRECISIONS[options.unix_precision]
    if types.is_dictionary(data_type):
        of_values = _instant_reader(column.with_type(data_type.value_type), options)
        return lambda array: of_values(decoded(array))
    if types.is_integer(data_type):
        whole = pa.timestamp(unit, "UTC")
        return lambda array: each_or_bad(
            array, lambda part: part.cast(pa.int64()).cast(whole), "is no instant"
        )
    if types.is_timestamp(data_type):
        return lambda array: array
    if types.is_date(data_type):
        return lambda array: array.cast(pa.timestamp("ms"))
    if is_text(data_type) and options.format is not None:
        pattern = options.format
        return lambda array: _parsed(array.cast(pa.string()), pattern)
    remedy = "set format" if is_text(data_type) else "cast it to int64 or timestamp first"
    raise UnsupportedType(f"column '{column.name}' has type {data_type}; {remedy}")


def _parsed(texts: pa.StringArray, pattern: DatePattern) -> pa.TimestampArray:
    found = pc.extract_regex(texts, pattern=pattern.reads)
    groups = _groups(pattern.reads)
    parts: list[pa.Array | str] = []
    for name, before in _ISO:
        parts += [before, found.field(name) if name in groups else _DEFAULTS[name]]
    parts.append(found.field("x") if "x" in groups else "Z")
    iso = pc.if_else(found.is_valid(), pc.binary_join_element_wise(*parts, ""), None)

    def instants(part: pa.StringArray) -> pa.TimestampArray:
        return part.cast(pa.timestamp("ms", "UTC"))

    unlike = mask_rows(pc.and_(found.is_null(), texts.is_valid()))
    with suppress(pa.ArrowInvalid):
        if not unlike:
            return instants(iso)
    complaint = f"is not written as {pattern.text}"
    wrong = [*unlike, *failing_rows(iso, instants)]
    raise corrupt_record({row: f"{shown_value(texts[row])} {complaint}" for row in wrong})


def _instant_writer(options: TimestampConverterOptions) -> tuple[pa.DataType, ArrayFunction]:
    unit = _PRECISIONS[options.unix_precision]
    match options.target_type:
        case "unix":
            return pa.int64(), lambda array: _in_unit(array, unit).view(pa.int64())
        case "Date":
            return (
                pa.date32(),
                lambda array: (
                    whole_units(local_times(array), "day").cast(pa.int32()).view(pa.date32())
                ),
            )
        case "Time":
            return pa.time32("ms"), _local_time
        case "Timestamp":
            target = pa.timestamp("ms", "UTC")
            return target, lambda array: _in_unit(array, "ms").view(target)
    pattern = options.format.writes if options.format else ""
    written = "ms" if options.format and "(?P<f>" in options.format.reads else "s"
    return pa.string(), lambda array: _text(_in_unit(array, written), pattern)


def _text(array: pa.TimestampArray, pattern: str) -> pa.StringArray:
    """Return instants in UTC; ArrowInvalid for years that four digits cannot state."""
    days = pc.min_max(whole_units(array, "day")).as_py()
    if days["min"] is not None and not FIRST_DAY <= days["min"] <= days["max"] <= LAST_DAY:
        raise pa.ArrowInvalid("a year is outside 0 to 9999")
    instants = array.view(pa.timestamp(array.type.unit, "UTC"))
    return pc.strftime(instants, format=pattern).cast(pa.string())


def _in_unit(array: pa.TimestampArray, unit: str) -> pa.TimestampArray:
    """Return instants rounded down to a unit."""
    target = pa.timestamp(unit, array.type.tz)
    if DIGITS[array.type.unit] <= DIGITS[unit]:
        return array.cast(target)
    return whole_units(array, unit).view(target)


def _local_time(array: pa.TimestampArray) -> pa.Array:
    """Return times of day in the zone of the column, rounded down to milliseconds."""
    local = _in_unit(local_times(array), "ms").view(pa.int64())
    days = whole_units(local.view(pa.timestamp("ms")), "day")
    return (
        pc.subtract(local, pc.multiply(days, unit_ticks("day", "ms")))
        .cast(pa.int32())
        .view(pa.time32("ms"))
    )


TIMESTAMP_CONVERTER = TransformSpec(
    open=column_transform(_timestamp_converter),
    options=TimestampConverterOptions,
    problem=_timestamp_problem,
)
