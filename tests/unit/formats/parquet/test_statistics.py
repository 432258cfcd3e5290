"""Pruning by statistics never changes which rows are delivered, whatever was written by whom."""

import datetime as dt
import io
import math
import os
import string
import struct
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.parquet_bytes import (
    BOOLEAN,
    BYTE_ARRAY,
    DOUBLE,
    FIXED,
    FLOAT,
    INT32,
    INT64,
    INT96,
    REPEATED,
    REQUIRED,
    UTF8,
    Column,
    Element,
    int96,
    one_column,
    parquet_file,
)
from tests.unit.formats.parquet.test_parquet_filter import connector, read

SIGNS = ["=", "<>", "<", "<=", ">", ">="]
TEXTS = st.text(
    st.sampled_from([*string.ascii_lowercase[:3], "é", "\U0010ffff", "\x00"]), max_size=4
)
LONG = TEXTS.map(lambda text: "aé" * 40 + text)
DAYS = st.dates()
TIMES = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2250, 1, 1))  # noqa: DTZ001


def _integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.one_of(st.sampled_from([low, high, high // 2 + 1, 0, 1]), st.integers(low, high))


def _floats(width: int) -> st.SearchStrategy[float]:
    chosen = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, 1.5])
    return st.one_of(chosen, st.floats(width=width))  # type: ignore[arg-type]


def _text(value: object) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _number(value: float) -> str:
    return f"{Decimal(value):f}" if math.isfinite(value) else "1"


# By name: type, values, and how a value is written in a condition.
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], Any]] = {
    **{f"int{n}": (getattr(pa, f"int{n}")(), _integers(n), str) for n in (8, 16, 32, 64)},
    **{
        f"uint{n}": (getattr(pa, f"uint{n}")(), _integers(n, signed=False), str)
        for n in (8, 16, 32, 64)
    },
    "half": (pa.float16(), _floats(16), _number),
    "float": (pa.float32(), _floats(32), _number),
    "double": (pa.float64(), _floats(64), _number),
    "bool": (pa.bool_(), st.booleans(), str),
    "text": (pa.string(), TEXTS, _text),
    "long-text": (pa.string(), LONG, _text),
    "large-text": (pa.large_string(), TEXTS, _text),
    "text-view": (pa.string_view(), TEXTS, _text),
    "coded": (pa.dictionary(pa.int32(), pa.string()), TEXTS, _text),
    "decimal": (
        pa.decimal128(9, 2),
        st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2)),
        str,
    ),
    "wide-decimal": (
        pa.decimal128(30, 0),
        st.integers(-(10**29), 10**29).map(Decimal),
        lambda value: f"{value:f}",
    ),
    "day": (pa.date32(), DAYS, _text),
    **{
        f"time-{unit}{zone or ''}": (
            pa.timestamp(unit, zone),
            TIMES.map(lambda at: at.replace(microsecond=0)),
            _text,
        )
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "UTC", "America/New_York")
    },
}
WRITERS = st.fixed_dictionaries(
    {
        "row_group_size": st.integers(1, 6) | st.just(14),
        "write_page_index": st.booleans(),
        "data_page_size": st.sampled_from([1, 1 << 20]),
        "write_batch_size": st.integers(1, 4),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "version": st.sampled_from(["1.0", "2.4", "2.6"]),
        "store_schema": st.booleans(),
        "use_dictionary": st.booleans(),
        "use_deprecated_int96_timestamps": st.sampled_from([False, False, True]),
    }
)


@st.composite
def _cases(draw: st.DrawFn) -> tuple[bytes, str]:
    kind, values, write = KINDS[draw(st.sampled_from(sorted(KINDS)))]
    stored = draw(st.lists(st.none() | values, min_size=1, max_size=14))
    if draw(st.booleans()):
        stored.sort(key=lambda value: (value is None, str(value)))
    array = pa.array(stored, kind.value_type if pa.types.is_dictionary(kind) else kind)
    file = io.BytesIO()
    table = pa.table({"row": range(len(stored)), "x": array.cast(kind)})
    pq.write_table(table, file, **draw(WRITERS))
    near = [value for value in stored if value is not None]
    literals = st.one_of(st.sampled_from(near), values) if near else values

    def comparison() -> str:
        one = draw(st.sampled_from(["x IS NULL", "x IS NOT NULL", "IN", "NOT IN", *SIGNS]))
        if one.endswith("IN"):
            return f"x {one} ({write(draw(literals))}, {write(draw(literals))})"
        return one if one.endswith("NULL") else f"x {one} {write(draw(literals))}"

    first = comparison()
    joined = draw(st.sampled_from(["", "", "NOT", "AND", "OR"]))
    if joined == "NOT":
        return file.getvalue(), f"NOT ({first})"
    return file.getvalue(), f"{first} {joined} {comparison()}" if joined else first


def _result(body: bytes, config: dict[str, str], *, prune: bool) -> object:
    try:
        return read(body, config, prune=prune, gap_bytes=0).facts
    except Exception as exc:  # noqa: BLE001 - what is refused is refused alike
        return type(exc), str(exc)


@given(_cases(), st.booleans())
@settings(max_examples=80, deadline=None)
def test_pruning_never_changes_what_is_delivered_of_any_type(
    case: tuple[bytes, str],
    negate: bool,  # noqa: FBT001
) -> None:
    body, condition = case
    config = connector(condition, negate=negate)

    assert _result(body, config, prune=True) == _result(body, config, prune=False)


# -- files of DuckDB -------------------------------------------------------------------------------

GROUP_ROWS = 2_048
DUCKDB_COLUMNS = """
    n as row, (n % 100)::tinyint as i, (n * 1000003)::ubigint as u, (n // 30)::utinyint as small,
    case when n % 11 = 0 or n < 3000 then null else n // 5 end as often,
    ('é' || lpad((n // 2)::varchar, 6, '0')) as s, (n / 8)::decimal(9, 3) as d,
    date '0001-01-01' + (n // 4)::integer as day, timestamp '1600-01-01' + interval (n) hour as t,
    timestamp_ns '2000-01-01' as ns, (n % 3000 > 2000) as b, {'m': n} as st
"""
DUCKDB_CONDITIONS = [
    "u > 6000006003",
    "u = 1000003",
    "small > 200",
    "NOT small < 180",
    "often IS NULL",
    "often IS NOT NULL AND often < 700",
    "s >= 'é002000' AND s < 'é002010'",
    "NOT s < 'é003'",
    "d = 5.125",
    "day > '0001-05-01' OR day < '0001-01-03'",
    "t < '1600-02-01 00:00:00'",
    "ns = '2000-01-01 00:00:00'",
    "ns > '2000-01-01 00:00:00'",
    "b AND often > 100",
    "NOT b",
    "row IN (5, 6000, 100000)",
    "row NOT IN (5) AND row < 2048",
]


def test_files_of_duckdb_have_the_rows_that_duckdb_finds(tmp_path: Path) -> None:
    path = tmp_path / "duck.parquet"
    table = duckdb.sql(f"select {DUCKDB_COLUMNS} from range(6200) numbers(n)")  # noqa: S608
    assert table is not None
    table.write_parquet(str(path), row_group_size=GROUP_ROWS)
    body, saved = path.read_bytes(), 0
    assert pq.read_metadata(path).num_row_groups >= 3

    for condition in DUCKDB_CONDITIONS:
        found = read(body, connector(condition))

        wanted = duckdb.read_parquet(str(path)).filter(condition).order("row").project("row")
        rows = [each["row"] for each in found.made.values]
        assert rows == [row for (row,) in wanted.fetchall()], condition
        saved += found.made.filtered > GROUP_ROWS and len(found.reads) < 4
    assert saved


# -- statistics that lie ---------------------------------------------------------------------------


def _long(value: int) -> bytes:
    return struct.pack("<q", value)


def _int(value: int) -> bytes:
    return struct.pack("<i", value)


TEXT = Element("x", REQUIRED, BYTE_ARRAY, converted=UTF8)
LONG_INTEGER = Element("x", REQUIRED, INT64)
SIGNED_ORDER = [b"ab", "aé".encode(), b"b"]
CONTRADICTIONS: dict[str, tuple[bytes, Sequence[str]]] = {
    "inverted": (
        one_column(LONG_INTEGER, [5, 6], statistics=(_long(6), _long(5), 0)),
        ["x = 5", "x > 5", "x < 6"],
    ),
    "only-least": (
        one_column(TEXT, [b"abc", b"b"], statistics=(b"abc", None, 0)),
        ["x = 'b'", "x > 'abc'"],
    ),
    "only-greatest": (
        one_column(LONG_INTEGER, [-5, 6], statistics=(None, _long(6), 0)),
        ["x = -5", "x < 0"],
    ),
    "signed-order-of-old-writers": (
        one_column(TEXT, SIGNED_ORDER, statistics=("aé".encode(), b"b", 0), deprecated=True),
        ["x = 'ab'", "x < 'aé'"],
    ),
    "unsigned-by-old-writers": (
        one_column(
            Element("x", REQUIRED, INT64, converted=14),
            [-1, 1],
            statistics=(_long(-1), _long(1), 0),
            deprecated=True,
        ),
        ["x = 1", "x > 1"],
    ),
    "wider-than-its-type": (
        one_column(
            Element("x", REQUIRED, INT32, converted=15),
            [1, 100],
            statistics=(_int(-300), _int(300), 0),
        ),
        ["x = 100", "x > 1"],
    ),
    "int96": (
        one_column(
            Element("x", REQUIRED, INT96),
            [int96(0, 0), int96(9_000, 0)],
            statistics=(int96(9_000, 0), int96(0, 0), 0),
        ),
        ["x > '1980-01-01 00:00:00'", "x < '1980-01-01 00:00:00'"],
    ),
    "negative-count-of-nulls": (
        one_column(Element("x", 1, INT64), [5, None], statistics=(_long(5), _long(5), -1)),
        ["x IS NULL", "x = 5", "x IS NOT NULL"],
    ),
    "empty-lists-counted-as-nulls": (
        parquet_file(
            [Element("x", REPEATED, INT32)],
            [Column(["x"], INT32, [], [0, 0], [0, 0], statistics=(None, None, 2))],
            2,
        ),
        ["x IS NULL", "x IS NOT NULL"],
    ),
    "text-cut-off-within-a-character": (
        one_column(TEXT, [b"ab", "aé".encode()], statistics=(b"ab", b"a\xc3", 0)),
        ["x = 'aé'", "x > 'ab'"],
    ),
}


@pytest.mark.parametrize("negate", [True, False])
@pytest.mark.parametrize("name", sorted(CONTRADICTIONS))
def test_statistics_that_cannot_be_right_exclude_nothing(name: str, negate: bool) -> None:  # noqa: FBT001
    """Trap: ranges with the least value above the greatest excluded every row."""
    body, conditions = CONTRADICTIONS[name]

    for condition in conditions:
        config = connector(condition, negate=negate)
        assert _result(body, config, prune=True) == _result(body, config, prune=False), condition


def test_the_statistics_of_these_tests_are_read() -> None:
    """Trap: without the orders of columns, Arrow ignored all statistics that tests had written."""
    body = one_column(LONG_INTEGER, [5, 6], statistics=(_long(5), _long(6), 0))

    assert len(read(body, connector("x > 6")).reads) == 2


PHYSICAL: dict[str, tuple[Element, list[Any]]] = {
    "boolean": (Element("x", REQUIRED, BOOLEAN), [True, False]),
    "int32": (Element("x", REQUIRED, INT32), [5, 6]),
    "int64": (LONG_INTEGER, [5, 6]),
    "float": (Element("x", REQUIRED, FLOAT), [5.0, 6.0]),
    "double": (Element("x", REQUIRED, DOUBLE), [5.0, 6.0]),
    "int96": (Element("x", REQUIRED, INT96), [int96(0, 0), int96(0, 1)]),
    "fixed": (Element("x", REQUIRED, FIXED, length=9), [b"a" * 9, b"b" * 9]),
}


@pytest.mark.parametrize("low", [b"", b"abc", b"x" * 20])
@pytest.mark.parametrize("name", sorted(PHYSICAL))
def test_statistics_of_another_length_do_not_end_the_process(name: str, low: bytes) -> None:
    """Trap: Arrow read them with an exception that nothing catches (SIGABRT)."""
    element, values = PHYSICAL[name]
    body = one_column(element, values, statistics=(low, low, 0))
    child = os.fork()
    if not child:
        read(body, connector("x IS NULL"))
        os._exit(0)

    assert os.waitpid(child, 0)[1] == 0
