"""Cast arrays exactly: a value that Arrow's safe cast would change is an error here.

text                -> Arrow's parser, without the texts that it misreads
decimal             -> float, by way of text: Arrow's own cast is not the nearest number
integer, float      -> decimal, by way of text: Arrow rounds floats, and asks an int64 for 19 digits
float64             -> float32, the nearest number, unless it is beyond the range
timestamp           -> date, unless it has a time of day
anything else       -> Arrow's safe cast
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from extentflow.converters.encodings import is_binary, is_text
from extentflow.converters.scalars import TextForm, complete_text, text_form
from extentflow.converters.texts import misread_rows

ArrayFunction: TypeAlias = Callable[[pa.Array], pa.Array]


def exact_cast(source: pa.DataType, target: pa.DataType) -> ArrayFunction:
    """Return the cast between two types, for `caster`.

    It raises ArrowInvalid if a value would change. Floats become the decimals that their shortest
    texts state. Raises ArrowNotImplementedError where there is no cast.
    """
    if types.is_dictionary(source):
        of_values = exact_cast(source.value_type, target)
        return lambda array: of_values(array.dictionary_decode())
    if isinstance(source, pa.BaseExtensionType):
        of_storage = exact_cast(source.storage_type, target)
        return lambda array: of_storage(array.storage)
    cast = _between(source, target)
    cast(pa.array([], source))
    return cast


def exact_scalar(text: str, target: pa.DataType) -> pa.Scalar:
    """Return the value that a text states. Raises as `exact_cast` and its function."""
    return exact_cast(pa.string(), target)(pa.array([text]))[0]


def local_times(array: pa.TimestampArray) -> pa.TimestampArray:
    """Return instants as times of their column's zone, without a zone.

    It raises ArrowInvalid if a local time exceeds 64 bits.
    """
    if array.type.tz is None:
        return array
    local = pc.local_timestamp(array)
    # Arrow wraps around, for example for the largest instant, which some writers call infinity.
    pc.subtract_checked(local.view(pa.int64()), array.view(pa.int64()))
    return local


def failing_rows(array: pa.Array, function: ArrayFunction) -> list[int]:
    """Return the rows for whose values alone `function` fails, by halving."""

    def failing(part: pa.Array, first: int) -> Iterator[int]:
        try:
            function(part)
        except (pa.ArrowInvalid, OverflowError):
            if len(part) == 1:
                yield first
                return
            middle = len(part) // 2
            yield from failing(part.slice(0, middle), first)
            yield from failing(part.slice(middle), first + middle)

    return list(failing(array, 0))


def _between(source: pa.DataType, target: pa.DataType) -> ArrayFunction:
    form = text_form(source)
    if form is not None and _is_by_text(source, target):
        return lambda array: _by_text(form, array, target)
    # Bytes of one length are ids or digests, no text.
    if is_text(source) or (is_binary(source) and not types.is_fixed_size_binary(source)):
        return lambda array: _parsed(array.cast(pa.string()), target)
    if types.is_floating(source) and types.is_floating(target):
        return lambda array: _narrowed(array, target)
    if types.is_timestamp(source) and types.is_date(target):
        return lambda array: _dated(array, target)
    return lambda array: array.cast(target)


def _is_by_text(source: pa.DataType, target: pa.DataType) -> bool:
    if types.is_decimal(source):
        return bool(types.is_floating(target))
    number = types.is_integer(source) or types.is_floating(source)
    return bool(number and types.is_decimal(target))


def _by_text(form: TextForm, array: pa.Array, target: pa.DataType) -> pa.Array:
    return _parsed(complete_text(form, array), target)


def _parsed(texts: pa.StringArray, target: pa.DataType) -> pa.Array:
    values = texts.cast(target)
    if target != pa.string() and misread_rows(texts, values):
        raise pa.ArrowInvalid(f"a text is no {target}")
    return values


def _narrowed(array: pa.Array, target: pa.DataType) -> pa.Array:
    values = array.cast(target)
    if pc.any(pc.and_(pc.is_inf(values), pc.is_finite(array))).as_py():
        raise pa.ArrowInvalid(f"a number is out of range of {target}")
    return values


def _dated(array: pa.Array, target: pa.DataType) -> pa.Array:
    local = local_times(array)
    dates = local.cast(target)
    if not dates.cast(local.type).equals(local):
        raise pa.ArrowInvalid("a timestamp has a time of day")
    return dates
