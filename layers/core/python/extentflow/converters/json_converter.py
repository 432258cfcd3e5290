"""The converter `json`: rows as JSON objects, bare or in the envelope of Connect's JsonConverter.

    {"schema":{"type":"struct","fields":[...],"optional":false},"payload":{"id":1,"day":19781}}

The schema is the same in all rows, a constant in front of the payload. docs/json.md has the tables
of types. In the payload, values are those of JsonConverter, so that Connect reads every value as it
is; a value that Connect's type cannot hold is a bad record.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from extentflow.arrays.buffers import (
    MAX_TEXT_BYTES,
    Payloads,
    RowErrors,
    convert_in_halves,
    null_mask,
    reinterpreted,
)
from extentflow.arrays.encodings import base64
from extentflow.arrays.interleave import big_endian, join_rows
from extentflow.arrays.layouts import ConvertedColumns
from extentflow.arrays.nested import require_values
from extentflow.arrays.numbers import signed_words
from extentflow.arrays.scalars import DIGITS, SECONDS_PER_DAY, Forms, TextForm, text_form
from extentflow.config.envelope import NUMERIC, JsonOptions, json_problems
from extentflow.config.specs import ConverterSpec
from extentflow.converters import Converter, Destination
from extentflow.converters.connect_schema import connect_form, connect_schema, is_connect_string
from extentflow.converters.json_encoding import Dialect, json_converter, json_rows
from extentflow.converters.row_writers import EVERY_ROW, reject

MS_DIGITS = DIGITS["ms"]
MS_PER_DAY = SECONDS_PER_DAY * 10**MS_DIGITS
INT32, INT64 = np.iinfo(np.int32), np.iinfo(np.int64)
# Of an integer of 64 bits.
NUMBER_CHARACTERS = 20


def open_json(
    schema: pa.Schema,
    columns: Sequence[str] | None,
    options: JsonOptions,
    _destination: Destination | None,
) -> Converter:
    """Return the converter of `columns` (None: all) to JSON, with its schema or without."""
    if options.schemas:
        return envelope_converter(schema, columns, decimals=options.decimals)
    return json_converter(schema, columns)


def envelope_converter(
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    *,
    decimals: str | None = None,
    limit_bytes: int = MAX_TEXT_BYTES,
) -> Converter:
    """Return the converter of `columns` (None: all) to one envelope per row, never null.

    UnsupportedType names a column without an exact form, its type and what to do.
    """
    chosen = ConvertedColumns.select(schema, columns)
    forms = _numeric_form if decimals == NUMERIC else _base64_form(limit_bytes)
    dialect = Dialect(limit_bytes, forms, is_connect_string, pairs=True)
    text = json.dumps(connect_schema(chosen.fields), ensure_ascii=False, separators=(",", ":"))
    write = json_rows(chosen, dialect, f'{{"schema":{text},"payload":', "}")

    def convert(batch: pa.RecordBatch) -> Payloads:
        with RowErrors() as errors:
            with errors.collect():
                require_values(chosen.fields, chosen.of(batch))
            with errors.collect():
                made = write(batch)
        return made

    return partial(convert_in_halves, convert)


def _base64_form(limit_bytes: int) -> Forms:
    """Return the forms of scalars where decimals are the bytes of their unscaled values."""

    def form(data_type: pa.DataType) -> TextForm | None:
        if not types.is_decimal(data_type) and not types.is_uint64(data_type):
            return _numeric_form(data_type)
        usual = text_form(data_type)
        render = partial(_unscaled, limit_bytes)
        return usual and replace(usual, render=render, number=False)

    return form


def _unscaled(limit_bytes: int, array: pa.Array) -> pa.StringArray:
    data = join_rows(big_endian(*signed_words(array)), len(array), limit_bytes)
    return pc.if_else(pc.is_valid(array), base64(data, limit_bytes), None)


def _numeric_form(data_type: pa.DataType) -> TextForm | None:
    """Return the forms of scalars where decimals are numbers."""
    usual = connect_form(data_type)
    number = next((build for recognises, build in _NUMBERS if recognises(data_type)), None)
    if usual is None or number is None:
        return usual

    def render(array: pa.Array) -> pa.StringArray:
        return number(array).cast(pa.string())

    return TextForm(render, NUMBER_CHARACTERS, number=True, ordinals=usual.ordinals)


def _days(array: pa.Array) -> pa.Array:
    if types.is_date32(array.type):
        return reinterpreted(array, pa.int32())
    days, rest = np.divmod(_int64s(array), MS_PER_DAY)
    with RowErrors() as errors:
        with errors.collect():
            reject(array, EVERY_ROW, rest != 0, "a date64 with a time of day")
        with errors.collect():
            beyond = (days < INT32.min) | (days > INT32.max)
            reject(array, EVERY_ROW, beyond, "a date beyond Connect's Date")
    return pa.array(days, mask=null_mask(array))


def _times(array: pa.Array) -> pa.Array:
    unit = array.type.unit
    ticks = _int64s(array)
    per_day = SECONDS_PER_DAY * 10 ** DIGITS[unit]
    with RowErrors() as errors:
        with errors.collect():
            odd = (ticks < 0) | (ticks >= per_day)
            reject(array, EVERY_ROW, odd, f"not a time of day, counted in {unit}")
        with errors.collect():
            made = _milliseconds(array, ticks, "Time")
    return made


def _timestamps(array: pa.Array) -> pa.Array:
    # Arrow counts in UTC whatever the zone is, as Connect does.
    if array.type.unit == "ms":
        return reinterpreted(array, pa.int64())
    return _milliseconds(array, _int64s(array), "Timestamp")


def _milliseconds(array: pa.Array, ticks: NDArray[np.int64], connect_type: str) -> pa.Array:
    """Return ticks of the array's unit as milliseconds; CorruptRecord for what has none."""
    digits = DIGITS[array.type.unit]
    if digits < MS_DIGITS:
        factor = 10 ** (MS_DIGITS - digits)
        beyond = (ticks > INT64.max // factor) | (ticks < -(INT64.max // factor))
        reject(array, EVERY_ROW, beyond, f"an instant beyond Connect's {connect_type}")
        return pa.array(ticks * factor, mask=null_mask(array))
    ticks, rest = np.divmod(ticks, 10 ** (digits - MS_DIGITS))
    reason = f"a fraction of a millisecond, and Connect's {connect_type} counts milliseconds"
    reject(array, EVERY_ROW, rest != 0, reason)
    return pa.array(ticks, mask=null_mask(array))


def _int64s(array: pa.Array) -> NDArray[np.int64]:
    """Return the ticks of dates, times or timestamps; null slots are 0."""
    of_width = pa.int32() if array.type.bit_width == INT32.bits else pa.int64()
    ticks = pc.fill_null(reinterpreted(array, of_width), 0)
    found: NDArray[np.int64] = ticks.cast(pa.int64()).to_numpy()
    return found


_NUMBERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...] = (
    (types.is_date, _days),
    (types.is_time, _times),
    (types.is_timestamp, _timestamps),
    (types.is_duration, lambda array: reinterpreted(array, pa.int64())),
)

JSON = ConverterSpec(
    open=open_json,
    options=JsonOptions,
    problems=json_problems,
    takes_lines=lambda options: not options.schemas,
)
