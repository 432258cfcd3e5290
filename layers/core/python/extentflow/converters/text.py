"""The one text form of every scalar type, for converters that write text.

Owns: which Arrow types have a form, and what a converter may know about it beforehand. Refuses to
know: strings and bytes (utf8, codes), nesting, JSON's rules.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from extentflow.converters import codes, digits, moments
from extentflow.converters.buffers import fixed_width, reinterpreted, validity

# Decimals of so few digits are 64-bit integers in disguise.
INT64_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Ordinals:
    """How the values of a type are counted: neighbouring values have neighbouring integers.

    `of` maps an array to integers, None where it holds what cannot be counted so. `values` maps
    int64 back to an array of the type.
    """

    of: Callable[[pa.Array], pa.Array | None]
    values: Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class TextForm:
    """How one type is written: `prefix`, then what `render` returns, then `suffix`.

    `render` keeps nulls. `width` is the most bytes one rendered value can take. `number` is true
    where JSON writes the text without quotes. `ordinals` is given where values can be looked up,
    which is cheaper than rendering where they are few.
    """

    render: Callable[[pa.Array], pa.StringArray]
    width: int
    number: bool = False
    prefix: str = ""
    suffix: str = ""
    ordinals: Ordinals | None = None


def text_form(data_type: pa.DataType) -> TextForm | None:
    """Return the form of a type; None for strings, bytes, nested types and what has no text."""
    for recognises, form in _FORMS:
        if recognises(data_type):
            return form(data_type)
    return None


def complete(form: TextForm, array: pa.Array) -> pa.StringArray:
    """Return whole texts, prefix and suffix included; nulls stay."""
    text = form.render(array)
    if not form.prefix and not form.suffix:
        return text
    return pc.binary_join_element_wise(form.prefix, text, form.suffix, "")


def _truth(_: pa.DataType) -> TextForm:
    return TextForm(digits.integer, width=5, number=True)


def _integer(data_type: pa.DataType) -> TextForm:
    ordinals = None
    if not pa.types.is_uint64(data_type):
        ordinals = Ordinals(lambda array: array, lambda numbers: numbers.cast(data_type))
    return TextForm(digits.integer, width=20, number=True, ordinals=ordinals)


def _floating(_: pa.DataType) -> TextForm:
    return TextForm(digits.floating, width=32, number=True)


def _decimal(data_type: pa.DataType) -> TextForm:
    width = data_type.precision + abs(data_type.scale) + 3
    ordinals = None
    if pa.types.is_decimal128(data_type) and data_type.precision <= INT64_DIGITS:
        ordinals = Ordinals(_low_words, lambda words: _from_words(words, data_type))
    return TextForm(digits.decimal, width, number=True, ordinals=ordinals)


def _low_words(array: pa.Decimal128Array) -> pa.Int64Array | None:
    """Return the values as 64-bit words; None where one does not fit, whatever its type says."""
    words = fixed_width(array, np.dtype((np.int64, 2)))
    low, high = np.ascontiguousarray(words[:, 0]), words[:, 1]
    nulls = None if array.null_count == 0 else ~validity(array)
    wide = high != low >> 63
    if (wide if nulls is None else wide & ~nulls).any():
        return None
    return pa.array(low, mask=nulls)


def _from_words(words: pa.Int64Array, data_type: pa.DataType) -> pa.Decimal128Array:
    return reinterpreted(words.cast(moments.INT64_DECIMAL), data_type)


def _date(data_type: pa.DataType) -> TextForm:
    ordinals = None
    if pa.types.is_date32(data_type):
        ordinals = Ordinals(
            lambda array: reinterpreted(array, pa.int32()),
            lambda days: days.cast(pa.int32()).cast(pa.date32()),
        )
    return TextForm(moments.date, width=20, ordinals=ordinals)


def _timestamp(data_type: pa.DataType) -> TextForm:
    return TextForm(moments.timestamp, width=40, suffix="" if data_type.tz is None else "Z")


def _time(_: pa.DataType) -> TextForm:
    return TextForm(moments.time, width=18)


def _duration(_: pa.DataType) -> TextForm:
    return TextForm(moments.seconds, width=24, prefix="PT", suffix="S")


def _null(_: pa.DataType) -> TextForm:
    return TextForm(lambda array: pa.nulls(len(array), pa.string()), width=0)


def _uuid(_: pa.DataType) -> TextForm:
    return TextForm(lambda array: codes.uuid(array.storage), width=codes.UUID_CHARACTERS)


def _bool8(_: pa.DataType) -> TextForm:
    return TextForm(lambda array: digits.integer(array.cast(pa.bool_())), width=5, number=True)


_FORMS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], TextForm]], ...] = (
    (pa.types.is_null, _null),
    (pa.types.is_boolean, _truth),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _floating),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_time, _time),
    (pa.types.is_duration, _duration),
    (lambda data_type: isinstance(data_type, pa.UuidType), _uuid),
    (lambda data_type: isinstance(data_type, pa.Bool8Type), _bool8),
)
