"""Cast arrays exactly: a value that Arrow's safe cast would change is an error here.

text                -> Arrow's parser, without the texts that it misreads
decimal             -> float, by way of text: Arrow's own cast is not the nearest number
decimal             -> decimal of a larger scale, by way of text: Arrow's own cast wraps around
integer, float      -> decimal, by way of text: Arrow rounds floats, and asks an int64 for 19 digits
float64             -> float32, the nearest number, unless it is beyond the range
timestamp           -> date, unless it has a time of day
anything else       -> Arrow's safe cast
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from extentflow.arrays.buffers import null_mask
from extentflow.arrays.encodings import decoded, is_binary, is_text
from extentflow.arrays.scalars import DIGITS, SECONDS_PER_DAY, TextForm, complete_text, text_form
from extentflow.arrays.texts import misread_rows

ArrayFunction: TypeAlias = Callable[[pa.Array], pa.Array]

# 2037-01-01: until then, zone files list every change of an offset.
_LAST_TRANSITION = 2_114_380_800
# Offsets change at quarters of an hour. Rules repeat every 400 years, which serves years that
# Python does not have: from 9000 on.
_QUARTER = 900
_CYCLE = 146_097 * 86_400 // _QUARTER
_FAR = 221_845_392_000 // _QUARTER


def exact_cast(source: pa.DataType, target: pa.DataType) -> ArrayFunction:
    """Return the cast between two types, for `caster`.

    It raises ArrowInvalid if a value would change. Floats become the decimals that their shortest
    texts state; text is written as the converter `string` writes it. Raises
    ArrowNotImplementedError where there is no cast.
    """
    if types.is_dictionary(source):
        of_values = exact_cast(source.value_type, target)
        return lambda array: of_values(decoded(array))
    form = text_form(source)
    if target == pa.string() and form is not None:
        return partial(complete_text, form)
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

    It raises ArrowInvalid if a local time exceeds 64 bits, or for a zone that does not exist.
    """
    if array.type.tz is None:
        return array
    local = pc.local_timestamp(array)
    # Arrow wraps around, for example for the largest instant, which some writers call infinity.
    offsets = pc.subtract_checked(local.view(pa.int64()), array.view(pa.int64()))
    second = 10 ** DIGITS[array.type.unit]
    ticks = pc.fill_null(array.view(pa.int64()), 0).to_numpy()
    late = ticks >= _LAST_TRANSITION * second
    # "+02:00" has no rules.
    if not late.any() or array.type.tz[0] in "+-":
        return local
    found = offsets.fill_null(0).to_numpy().copy()
    found[late] = _ruled_offsets(array.type.tz, ticks[late] // second) * second
    local = pc.add_checked(array.view(pa.int64()), pa.array(found))
    return local.view(pa.timestamp(array.type.unit))


def _ruled_offsets(zone: str, seconds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the offsets of instants by the rule that the zone has for all time to come.

    Arrow knows the transitions that are listed, which end in 2037.
    """
    rules = ZoneInfo(zone)
    quarters = seconds // _QUARTER
    far = quarters >= _FAR
    quarters[far] = _CYCLE + quarters[far] % _CYCLE
    distinct, rows = np.unique(quarters, return_inverse=True)
    offsets = []
    for quarter in distinct.tolist():
        at = datetime.fromtimestamp(quarter * _QUARTER, UTC).astimezone(rules)
        offset = at.utcoffset()
        offsets.append(0 if offset is None else int(offset.total_seconds()))
    return np.array(offsets, np.int64)[rows]


def failing_rows(array: pa.Array, function: ArrayFunction) -> list[int]:
    """Return the rows for whose values alone `function` fails, by halving."""

    def failing(part: pa.Array, first: int) -> Iterator[int]:
        if not len(part):
            return
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
        # More digits behind the point can exceed the width, which Arrow does not always notice.
        is_wider = types.is_decimal(target) and target.scale > source.scale
        return bool(types.is_floating(target) or is_wider)
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


def whole_units(array: pa.TimestampArray, unit: str) -> pa.Int64Array:
    """Return the number of whole units since 1970, rounded down.

    Arrow's `floor_temporal` is garbage for years beyond 32767.
    """
    ticks = pc.fill_null(array.view(pa.int64()), 0).to_numpy()
    return pa.array(ticks // unit_ticks(unit, array.type.unit), mask=null_mask(array))


def unit_ticks(unit: str, of: str) -> int:
    """Return how many ticks of a unit a longer one has."""
    if unit == "day":
        return int(SECONDS_PER_DAY * 10 ** DIGITS[of])
    return int(10 ** (DIGITS[of] - DIGITS[unit]))
