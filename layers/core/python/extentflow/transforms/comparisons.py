"""Compare a column with literals: for rows, and for what is known about rows within ranges.

Comparisons with a null are neither true nor false, as in SQL.

Tests: unit/transforms/test_records.py
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from extentflow.arrays.buffers import Columns
from extentflow.arrays.casts import exact_scalar
from extentflow.arrays.encodings import decoded
from extentflow.arrays.layouts import require_known
from extentflow.config.specs import ColumnRange, Ranges
from extentflow.errors import UnsupportedType

Mask: TypeAlias = Callable[[pa.RecordBatch], pa.BooleanArray]
# From a schema, so that an unsupported comparison shows before the first record.
Bind: TypeAlias = Callable[[pa.Schema], Mask]

COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
Literal: TypeAlias = str | Decimal | bool
# What a condition may be for a row: True, False, or None for a null.
Outcomes: TypeAlias = frozenset[bool | None]
ANY: Outcomes = frozenset({True, False, None})


@dataclass(frozen=True, slots=True)
class Expression:
    """A condition or a part of one, and its outcomes for rows whose columns lie within ranges."""

    bind: Bind
    outcomes: Callable[[Ranges], Outcomes]


def match_null(name: str) -> Expression:
    """Return the condition that a column is null."""
    return Expression(partial(_is_null, name), partial(_null_outcomes, name))


def match_true(name: str) -> Expression:
    """Return the condition that a boolean column is true."""
    outcomes = partial(_compared_outcomes, name, "=", True)  # noqa: FBT003
    return Expression(partial(_is_true, name), outcomes)


def compare_literal(name: str, sign: str, literal: Literal) -> Expression:
    """Return the comparison of a column with a literal by one of COMPARE."""
    bind = partial(_compared, name, COMPARE[sign], literal)
    return Expression(bind, partial(_compared_outcomes, name, sign, literal))


def match_list(name: str, literals: list[Literal]) -> Expression:
    """Return the condition that a column equals one of several literals."""
    return Expression(partial(_is_in, name, literals), _in_outcomes(name, literals))


def match_pattern(name: str, pattern: Literal) -> Expression:
    """Return the condition that a column has a pattern of LIKE."""
    return Expression(partial(_is_like, name, pattern), partial(_some_outcomes, name))


def combined(parts: Iterable[Outcomes], *, decisive: bool) -> Outcomes:
    """Return the outcomes of all parts together, as if they were independent of each other."""

    def kleene(left: bool | None, right: bool | None) -> bool | None:  # noqa: FBT001
        if decisive in (left, right):
            return decisive
        return None if None in (left, right) else not decisive

    found: Outcomes = frozenset({not decisive})
    for part in parts:
        found = frozenset(kleene(left, right) for left, right in product(found, part))
    return found


# The opposite of a comparison, for values that are neither null nor NaN.
_OPPOSITES = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "=": "<>", "<>": "=", "!=": "="}


def _null_outcomes(name: str, ranges: Ranges) -> Outcomes:
    known = _range(name, ranges)
    if known is None:
        return frozenset({True, False})
    return frozenset([True] * known.has_nulls + [False] * known.has_values)


def _some_outcomes(name: str, ranges: Ranges) -> Outcomes:
    known = _range(name, ranges)
    return ANY if known is None or known.has_values else frozenset({None})


def _in_outcomes(name: str, literals: list[Literal]) -> Callable[[Ranges], Outcomes]:
    # Formats ask for every page: literals become scalars once.
    arrays: dict[pa.DataType, pa.Array | None] = {}

    def outcomes(ranges: Ranges) -> Outcomes:
        known = _range(name, ranges)
        if known is None or (known.has_values and (known.low is None or known.high is None)):
            return ANY
        if not known.has_values:
            return frozenset([None] * known.has_nulls)
        data_type = known.low.type
        if data_type not in arrays:
            arrays[data_type] = _one_array([_scalar(name, each, data_type) for each in literals])
        values = arrays[data_type]
        if values is None:
            found = (_compared_outcomes(name, "=", literal, ranges) for literal in literals)
            return combined(found, decisive=True)
        from_low = pc.less_equal(known.low, values)
        to_high = pc.greater_equal(known.high, values)
        is_all = pc.and_(pc.equal(known.low, values), pc.equal(known.high, values))
        is_certain = pc.any(is_all).as_py() and not types.is_floating(data_type)
        is_possible = [True] * bool(pc.any(pc.and_(from_low, to_high)).as_py())
        return frozenset([*is_possible, *[False] * (not is_certain), *[None] * known.has_nulls])

    return outcomes


def _one_array(scalars: list[pa.Scalar]) -> pa.Array | None:
    """Return scalars of one type as an array; None if their types differ."""
    if len({str(scalar.type) for scalar in scalars}) > 1:
        return None
    return pa.concat_arrays([pa.repeat(scalar, 1) for scalar in scalars])


def _compared_outcomes(name: str, sign: str, literal: Literal, ranges: Ranges) -> Outcomes:
    known = _range(name, ranges)
    if known is None or (known.has_values and (known.low is None or known.high is None)):
        return ANY
    found: list[bool | None] = [None] * known.has_nulls
    if known.has_values:
        scalar = _scalar(name, literal, known.low.type)
        # NaN, which no range counts, compares as unequal to every value.
        has_nan = types.is_floating(known.low.type)
        found += [True] * (_is_possible(sign, known, scalar) or (has_nan and sign in ("<>", "!=")))
        found += [False] * (_is_possible(_OPPOSITES[sign], known, scalar) or has_nan)
    return frozenset(found)


def _is_possible(sign: str, known: ColumnRange, scalar: pa.Scalar) -> bool:
    """Whether a value of a range compares so with a literal."""

    def holds(end: pa.Scalar, comparison: str) -> bool:
        return bool(COMPARE[comparison](end, scalar).as_py())

    match sign:
        case "<" | "<=":
            return holds(known.low, sign)
        case ">" | ">=":
            return holds(known.high, sign)
        case "=":
            return holds(known.low, "<=") and holds(known.high, ">=")
    return not (holds(known.low, "=") and holds(known.high, "="))


def _range(name: str, ranges: Ranges) -> ColumnRange | None:
    """Return what is known about a column; nothing about members of structs."""
    if name.startswith('"'):
        return ranges(name[1:-1].replace('""', '"'))
    return None if "." in name else ranges(name)


def _is_null(name: str, schema: pa.Schema) -> Mask:
    column, _ = _column(name, schema)
    return lambda batch: column(batch).is_null()


def _is_true(name: str, schema: pa.Schema) -> Mask:
    column, data_type = _column(name, schema)
    if not types.is_boolean(data_type):
        literal = "1" if _is_number(data_type) or types.is_decimal(data_type) else "'x'"
        raise UnsupportedType(
            f"column {name} has type {data_type}; compare it, as in {name} = {literal}"
        )
    return column


def _compared(
    name: str, compare: Callable[..., pa.BooleanArray], literal: Literal, schema: pa.Schema
) -> Mask:
    column, data_type = _column(name, schema)
    scalar = _comparable(name, literal, data_type, compare)
    return lambda batch: compare(column(batch), scalar)


def _is_in(name: str, literals: list[Literal], schema: pa.Schema) -> Mask:
    column, data_type = _column(name, schema)
    equal = [_comparable(name, literal, data_type, pc.equal) for literal in literals]

    def mask(batch: pa.RecordBatch) -> pa.BooleanArray:
        array = column(batch)
        first, *rest = (pc.equal(array, one) for one in equal)
        for other in rest:
            first = pc.or_kleene(first, other)
        return first

    return mask


_WILDCARDS = {"%": ".*", "_": "."}


def _is_like(name: str, literal: Literal, schema: pa.Schema) -> Mask:
    column, data_type = _column(name, schema)
    textual = types.is_string(data_type) or types.is_binary(data_type)
    if not textual or not isinstance(literal, str):
        raise UnsupportedType(f"column {name} has type {data_type}; LIKE compares text")
    # Arrow's `match_like` treats backslashes as its fast paths happen to.
    whole = _like_regex(literal)
    plain = literal.strip("%")
    if not set(plain) & set("%_\\"):
        starts, ends = literal.startswith("%"), literal.endswith("%")
        match (starts, ends):
            case (True, True):
                return lambda batch: pc.match_substring(column(batch), plain)
            case (False, True):
                return lambda batch: pc.starts_with(column(batch), plain)
            case (True, False):
                return lambda batch: pc.ends_with(column(batch), plain)
    return lambda batch: pc.match_substring_regex(column(batch), whole)


def _like_regex(pattern: str) -> str:
    """Return a pattern of LIKE in RE2's syntax; a backslash counts before % and _ only."""
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == "\\" and pattern[at + 1 : at + 2] in ("%", "_"):
            at += 1
            letter = pattern[at]
        elif letter in _WILDCARDS:
            parts.append(_WILDCARDS[letter])
            at += 1
            continue
        parts.append(rf"\x{{{ord(letter):x}}}" if letter.isascii() else letter)
        at += 1
    return rf"(?s)\A{''.join(parts)}\z"


def _column(name: str, schema: pa.Schema) -> tuple[Mask, pa.DataType]:
    """Return a column, or a member of a struct, in a type that Arrow compares, and that type."""
    whole = name[1:-1].replace('""', '"') if name.startswith('"') else name
    chosen = Columns.select(schema, [whole], nested=not name.startswith('"'))
    require_known(chosen.fields[0], whole)
    data_type = chosen.fields[0].type
    plain = data_type.value_type if types.is_dictionary(data_type) else data_type
    plain = pa.string() if _is_text_of_another_layout(plain) else plain
    if types.is_dictionary(data_type) and types.is_nested(plain):
        raise UnsupportedType(
            f"column {name} has type {data_type}, for which there are no conditions"
        )
    plain = pa.binary() if types.is_binary_view(plain) else plain

    def column(batch: pa.RecordBatch) -> pa.Array:
        (array,) = chosen.of(batch)
        if array.type != plain and types.is_dictionary(array.type):
            array = decoded(array)
        return array if array.type == plain else array.cast(plain)

    return column, plain


def _is_text_of_another_layout(data_type: pa.DataType) -> bool:
    return bool(types.is_string_view(data_type) or types.is_large_string(data_type))


def _comparable(
    name: str, literal: Literal, data_type: pa.DataType, compare: Callable[..., pa.BooleanArray]
) -> pa.Scalar:
    """Return a literal as a scalar that Arrow compares with the column."""
    scalar = _scalar(name, literal, data_type)
    try:
        compare(pa.nulls(1, data_type), scalar)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise UnsupportedType(_unlike(name, data_type, literal)) from exc
    return scalar


def _scalar(name: str, literal: Literal, data_type: pa.DataType) -> pa.Scalar:
    """Return a literal as the type of the column; a number with a fraction stays exact."""
    fraction = isinstance(literal, Decimal) and literal != literal.to_integral_value()
    try:
        if types.is_decimal(data_type) or (fraction and types.is_integer(data_type)):
            numeric: Any = Decimal(literal) if not isinstance(literal, bool) else literal
            if isinstance(numeric, Decimal):
                return pa.scalar(numeric)
        if isinstance(literal, Decimal):
            if types.is_boolean(data_type) or not _is_number(data_type):
                raise UnsupportedType(_unlike(name, data_type, literal))
            if types.is_integer(data_type):
                return pa.scalar(int(literal), data_type)
            return pa.scalar(float(literal) if fraction else int(literal)).cast(data_type)
        if isinstance(literal, bool) and not types.is_boolean(data_type):
            raise UnsupportedType(_unlike(name, data_type, literal))
        if isinstance(literal, str):
            return exact_scalar(literal, data_type)
        return pa.scalar(literal).cast(data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ArithmeticError) as exc:
        raise UnsupportedType(_unlike(name, data_type, literal)) from exc


def _is_number(data_type: pa.DataType) -> bool:
    return bool(types.is_integer(data_type) or types.is_floating(data_type))


def _unlike(name: str, data_type: pa.DataType, literal: Literal) -> str:
    return (
        f"column {name} has type {data_type} and cannot be compared with {literal!s}; write another"
        " literal, change the column with the transform Cast, or give its type (csv.schema)"
    )
