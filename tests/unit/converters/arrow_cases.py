"""Arrow types with random values, and the JSON that each value must become.

Expectations are computed from Python values alone: nothing here calls a converter or an Arrow cast.
A case's `expected` maps one value to what a strict parser must return: numbers of decimals as
`Decimal` or int, floats as a `FloatWriter` that compares by width, everything else as it is.
"""

import base64
import datetime as dt
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa

DAYS_PER_400_YEARS = 146_097
UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


@dataclass(frozen=True)
class Case:
    type: pa.DataType
    values: st.SearchStrategy[Any]
    expected: Callable[[Any], Any]


@dataclass(frozen=True)
class FloatWriter:
    """Equal to any number that rounds to the same float of this width."""

    value: Any

    def __eq__(self, other: object) -> bool:
        if not np.isfinite(self.value):
            return other is None
        return isinstance(other, int | Decimal) and type(self.value)(str(other)) == self.value

    __hash__ = None  # type: ignore[assignment]


def same(value: object) -> object:
    return value


def day(days: int) -> str:
    """The proleptic Gregorian calendar repeats every 400 years; Python knows 1 to 9999."""
    cycles, rest = divmod(days + dt.date(1970, 1, 1).toordinal() - 1, DAYS_PER_400_YEARS)
    date = dt.date.fromordinal(rest + 1)
    year = date.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{date:%m-%d}"


def clock(unit: str, ticks: int) -> str:
    digits = UNITS[unit]
    seconds, fraction = divmod(ticks, 10**digits)
    point = f".{fraction:0{digits}d}" if digits else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{point}"


def instant(unit: str, zone: str, ticks: int) -> str:
    days, rest = divmod(ticks, 86_400 * 10 ** UNITS[unit])
    return f"{day(days)}T{clock(unit, rest)}{zone}"


def duration(unit: str, ticks: int) -> str:
    digits = UNITS[unit]
    seconds, fraction = divmod(abs(ticks), 10**digits)
    point = f".{fraction:0{digits}d}" if digits else ""
    return f"PT{'-' if ticks < 0 else ''}{seconds}{point}S"


def number(value: Decimal) -> Decimal | int:
    return value if value.as_tuple().exponent != 0 else int(value)


def bits(width: int, *, signed: bool) -> st.SearchStrategy[int]:
    low = -(2 ** (width - 1)) if signed else 0
    high = 2 ** (width - 1) - 1 if signed else 2**width - 1
    # Small ranges too: converters look values up where there are few.
    return st.integers(low, high) | st.integers(0, 3) | st.sampled_from([low, high])


def integers() -> list[Case]:
    widths = (8, 16, 32, 64)
    signed = [Case(getattr(pa, f"int{w}")(), bits(w, signed=True), same) for w in widths]
    return signed + [Case(getattr(pa, f"uint{w}")(), bits(w, signed=False), same) for w in widths]


def floats() -> list[Case]:
    kinds = ((pa.float16(), 16, np.float16), (pa.float32(), 32, np.float32))
    narrow = [
        Case(kind, st.floats(width=width).map(make), FloatWriter)  # type: ignore[arg-type]
        for kind, width, make in kinds
    ]
    return [*narrow, Case(pa.float64(), st.floats(), lambda value: FloatWriter(np.float64(value)))]


def decimal(kind: pa.DataType) -> Case:
    most = 10**kind.precision - 1
    unscaled = st.integers(-most, most) | st.integers(-99, 99)

    def value(digits: int) -> Decimal:
        shown = Decimal(digits * 10 ** max(0, -kind.scale))
        sign, figures, _ = shown.as_tuple()
        return Decimal((sign, figures, min(0, -kind.scale)))

    return Case(kind, unscaled.map(value), number)


def decimals() -> list[Case]:
    kinds = [pa.decimal32(7, 2), pa.decimal64(18, 9), pa.decimal128(15, 2), pa.decimal128(38, 0)]
    kinds += [pa.decimal128(38, 38), pa.decimal128(10, -3), pa.decimal256(76, 20)]
    return [decimal(kind) for kind in kinds]


def whole_seconds(tick: int, seconds: int) -> int:
    return seconds * tick % 2**62


def moments() -> list[Case]:
    int64, int32 = bits(64, signed=True), bits(32, signed=True)
    near = st.integers(-(10**10), 10**11)
    cases = [Case(pa.date32(), int32 | st.integers(0, 9), day)]
    whole = st.integers(-(10**11), 10**11).map(lambda days: days * 86_400_000)
    cases.append(Case(pa.date64(), whole, lambda value: day(value // 86_400_000)))
    for unit, digits in UNITS.items():
        tick = 10**digits
        ticks = int64 | near | near.map(partial(whole_seconds, tick))
        cases += [
            Case(pa.timestamp(unit), ticks, partial(instant, unit, "")),
            Case(pa.timestamp(unit, "Asia/Kolkata"), ticks, partial(instant, unit, "Z")),
            Case(pa.duration(unit), int64, partial(duration, unit)),
        ]
        times = pa.time32 if digits <= 3 else pa.time64
        cases.append(Case(times(unit), st.integers(0, 86_400 * tick - 1), partial(clock, unit)))
    return cases


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def texts_and_bytes() -> list[Case]:
    awkward = st.text(st.sampled_from('a"\\\x00\x1f\n\t/\x7fé€😀\u2028'), max_size=6)
    text = st.text(max_size=20) | awkward
    kinds = (pa.string(), pa.large_string(), pa.string_view())
    binaries = (pa.binary(), pa.large_binary(), pa.binary_view())
    return [
        *(Case(kind, text, same) for kind in kinds),
        *(Case(kind, st.binary(max_size=40), encoded) for kind in binaries),
        Case(pa.binary(7), st.binary(min_size=7, max_size=7), encoded),
        Case(
            pa.uuid(),
            st.binary(min_size=16, max_size=16),
            lambda value: str(uuid.UUID(bytes=value)),
        ),
    ]


SCALARS = [
    Case(pa.bool_(), st.booleans(), same),
    Case(pa.null(), st.none(), same),
    Case(pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", '"', ""]), same),
    *integers(),
    *floats(),
    *decimals(),
    *moments(),
    *texts_and_bytes(),
]


def nullable(case: Case) -> Case:
    return Case(
        case.type,
        st.none() | case.values,
        lambda value: None if value is None else case.expected(value),
    )


def listed(case: Case, kind: Callable[[pa.DataType], pa.DataType]) -> Case:
    item = nullable(case)
    return Case(
        kind(case.type),
        st.lists(item.values, max_size=4),
        lambda values: [item.expected(value) for value in values],
    )


def fixed(case: Case) -> Case:
    item = nullable(case)
    return Case(
        pa.list_(case.type, 2),
        st.lists(item.values, min_size=2, max_size=2),
        lambda values: [item.expected(value) for value in values],
    )


def struct(members: dict[str, Case]) -> Case:
    items = {name: nullable(case) for name, case in members.items()}
    return Case(
        pa.struct([(name, case.type) for name, case in members.items()]),
        st.fixed_dictionaries({name: case.values for name, case in items.items()}),
        lambda value: {name: case.expected(value[name]) for name, case in items.items()},
    )


def named_map(case: Case) -> Case:
    item = nullable(case)
    return Case(
        pa.map_(pa.string(), case.type),
        st.dictionaries(st.text(max_size=3), item.values, max_size=3).map(
            lambda entries: list(entries.items())
        ),
        lambda entries: {key: item.expected(value) for key, value in entries},
    )


def other_map(case: Case) -> Case:
    item = nullable(case)
    return Case(
        pa.map_(pa.int16(), case.type),
        st.lists(st.tuples(bits(16, signed=True), item.values), max_size=3),
        lambda entries: [{"key": key, "value": item.expected(value)} for key, value in entries],
    )


def nested(inner: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    kinds = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]
    names = st.sampled_from(["a", "b", 'say "hi"', "back\\slash", "né\n"])
    return st.one_of(
        st.builds(listed, inner, st.sampled_from(kinds)),
        st.builds(fixed, inner),
        st.builds(struct, st.dictionaries(names, inner, max_size=3)),
        st.builds(named_map, inner),
        st.builds(other_map, inner),
    )


def any_case() -> st.SearchStrategy[Case]:
    # pa.array() cannot nest extension types; test_json_nested builds those by hand.
    plain = [case for case in SCALARS if not isinstance(case.type, pa.BaseExtensionType)]
    return st.recursive(st.sampled_from(plain), nested, max_leaves=4)
