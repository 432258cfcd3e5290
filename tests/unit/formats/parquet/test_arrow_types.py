"""Parquet types: exact values, or a refusal before the first record (trap T26)."""

import datetime as dt
import decimal
import uuid
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.laws.laws import chunks
from tests.laws.parquet_bytes import (
    BOOLEAN,
    BYTE_ARRAY,
    DECIMAL,
    ENUM,
    FIXED,
    INT32,
    INT64,
    INT96,
    JSON,
    LIST,
    LOGICAL_FLOAT16,
    MAP,
    MAP_KEY_VALUE,
    OPTIONAL,
    REPEATED,
    REQUIRED,
    UTF8,
    Column,
    Element,
    int96,
    one_column,
    parquet_file,
)
from tests.laws.parquet_cases import read_rows, written
from tests.support.golden import Golden

from extentflow.errors import UnsupportedType
from extentflow.formats import BadRecord, FormatOptions
from extentflow.formats.parquet.arrow_types import LARGEST_FIXED_BYTES
from extentflow.formats.parquet.footer import Footers
from extentflow.formats.parquet.parquet_format import Parquet, ParquetOptions
from extentflow.testing.stores import MemorySource

DAY_SECONDS = 86_400


def array(values: list[Any], data_type: pa.DataType) -> pa.Array:
    return pa.array([*values, None], data_type)


DECIMAL_76 = decimal.Decimal("9" * 74 + ".99")
STORED_AS_THEMSELVES = {
    "string_view": array(["a", "ä" * 30], pa.string_view()),
    "binary_view": array([b"\xff\x00", b"x" * 30], pa.binary_view()),
    "large_string": array(["a"], pa.large_string()),
    "uint8": array([0, 255], pa.uint8()),
    "uint16": array([0, 2**16 - 1], pa.uint16()),
    "uint32": array([0, 2**32 - 1], pa.uint32()),
    "uint64": array([0, 2**64 - 1], pa.uint64()),
    "int8": array([-128, 127], pa.int8()),
    "int64": array([-(2**63), 2**63 - 1], pa.int64()),
    "float16": array([1.5, float("inf")], pa.float16()),
    "float32": array([0.1], pa.float32()),
    "float64": array([0.1, -0.0], pa.float64()),
    "decimal32": array([decimal.Decimal("12345.67")], pa.decimal32(7, 2)),
    "decimal64": array([decimal.Decimal("-1.5")], pa.decimal64(18, 3)),
    "decimal128": array([decimal.Decimal("9" * 38)], pa.decimal128(38, 0)),
    "decimal256": array([DECIMAL_76, DECIMAL_76.copy_negate()], pa.decimal256(76, 2)),
    "time32": array([DAY_SECONDS * 1000 - 1], pa.time32("ms")),
    "time64us": array([DAY_SECONDS * 10**6 - 1], pa.time64("us")),
    "time64ns": array([DAY_SECONDS * 10**9 - 1], pa.time64("ns")),
    "timestamp-ms": array([-(2**53), 2**53], pa.timestamp("ms")),
    "timestamp-us": array([-(2**63), 2**63 - 1], pa.timestamp("us", "UTC")),
    "timestamp-ns": array([-(2**63), 2**63 - 1], pa.timestamp("ns", "Europe/Berlin")),
    "duration": array([-1, 2**62], pa.duration("ns")),
    "date32": array([-(2**31), 2**31 - 1], pa.date32()),
    "bool": array([True, False], pa.bool_()),
    "fixed-size-binary": array([b"abc"], pa.binary(3)),
    "null": pa.nulls(3),
    "dictionary": array(["a", "b", "a"], pa.string()).dictionary_encode(),
    "list": array([[1, None], []], pa.list_(pa.int32())),
    "large-list": array([[1, None], []], pa.large_list(pa.int32())),
    "list-view": array([[1, None], []], pa.list_view(pa.int32())),
    "fixed-size-list": array([[1, None]], pa.list_(pa.int32(), 2)),
    "map": array([[("k", None), ("l", 2)], []], pa.map_(pa.string(), pa.int32())),
    "struct": array(
        [{"a": None, "b": [{"c": "x"}]}],
        pa.struct({"a": pa.int8(), "b": pa.list_(pa.struct({"c": pa.string()}))}),
    ),
    "uuid": array([uuid.UUID(int=5).bytes], pa.uuid()),
    "json": array(['{"a":1}'], pa.json_()),
}


@pytest.mark.parametrize("name", sorted(STORED_AS_THEMSELVES))
@pytest.mark.parametrize("dictionary", [True, False])
def test_trap_t26_values_are_exact_in_every_type(name: str, dictionary: bool) -> None:  # noqa: FBT001
    values = STORED_AS_THEMSELVES[name]
    table = pa.table({"before": range(len(values)), "x": values})

    result, bad = read_rows(
        written(table, store_schema=True, use_dictionary=dictionary), batch_rows=2
    )

    assert bad == []
    assert result.column("x").type == values.type
    assert _plain(result.column("x")).equals(_plain(pa.chunked_array([values])))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without its dictionary or its extension, neither of which compares."""
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    if isinstance(column.type, pa.BaseExtensionType):
        return column.cast(column.type.storage_type)
    return column


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        (array([-5], pa.timestamp("s")), pa.timestamp("ms")),
        (array([5], pa.time32("s")), pa.time32("ms")),
        (array([DAY_SECONDS * 1000], pa.date64()), pa.date32()),
    ],
)
def test_trap_t26_a_type_that_parquet_lacks_keeps_its_values(
    values: pa.Array, stored: pa.DataType
) -> None:
    result, _ = read_rows(written(pa.table({"x": values}), store_schema=True))

    assert result.column("x").to_pylist() == values.cast(stored).to_pylist()


def test_trap_t26_another_writers_types_are_exact(tmp_path: Path) -> None:
    """Trap: values of rare Parquet types were rounded, shifted or dropped."""
    path = tmp_path / "duck.parquet"
    duckdb.sql(
        f"""copy (select uuid '00000000-0000-0000-0000-00000000000{{n}}' as u,
        timestamp_ns '2020-01-01 00:00:00.123456789' as ns, 18446744073709551615::ubigint as big,
        '99999999999999999999999999999999.999999'::decimal(38, 6) as d, [1, null, 3] as l,
        map {{'k': [1.5]}} as m, {{'a': 1, 'b': null}} as s, time '23:59:59.999999' as t
        ) to '{path}' (format parquet)""".replace("{n}", "7")
    )

    result, bad = read_rows(path.read_bytes())

    row = {name: result.column(name)[0] for name in result.column_names}
    assert bad == []
    assert row["u"].as_py() == uuid.UUID(int=7)
    assert row["ns"].value == 1577836800123456789
    assert row["big"].as_py() == 2**64 - 1
    assert row["d"].as_py() == decimal.Decimal("9" * 32 + ".999999")
    assert row["l"].as_py() == [1, None, 3]
    assert row["m"].as_py() == [("k", [decimal.Decimal("1.5")])]
    assert row["s"].as_py() == {"a": 1, "b": None}
    assert row["t"].as_py() == dt.time(23, 59, 59, 999999)


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def int96_table(values: list[dt.datetime | None], **options: Any) -> bytes:  # noqa: ANN401
    column = pa.array(values, pa.timestamp("us"))
    text = pa.array([str(value) for value in values], pa.string_view())
    table = pa.table({"n": range(len(values)), "t": column, "text": text})
    options = {"store_schema": True} | options
    return written(table, use_deprecated_int96_timestamps=True, **options)


FITTING = [
    at("1677-09-21 00:12:45"),
    at("1970-01-01 00:00:00.000001"),
    None,
    at("2262-04-11 23:47:15.999999"),
]


def test_trap_t26_int96_timestamps_are_exact() -> None:
    result, bad = read_rows(int96_table(FITTING))

    assert bad == []
    assert result.column("t").type == pa.timestamp("ns")
    assert result.column("t").cast(pa.timestamp("us")).to_pylist() == FITTING


def test_trap_t26_int96_nanoseconds_are_kept() -> None:
    nanoseconds = pa.table({"t": pa.array([1, -1, 2**63 - 2 * 10**9], pa.timestamp("ns"))})

    result, bad = read_rows(written(nanoseconds, use_deprecated_int96_timestamps=True))

    assert bad == []
    assert result.equals(nanoseconds)


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
@pytest.mark.parametrize("group_rows", [2, 100])
def test_trap_t26_int96_timestamps_out_of_range_are_bad_records(
    batch_rows: int, group_rows: int
) -> None:
    far = [at("0001-01-01"), at("9999-12-31"), at("1600-01-01")]
    values = [FITTING[0], far[0], None, far[1], far[2], FITTING[3], FITTING[1]]

    result, bad = read_rows(int96_table(values, row_group_size=group_rows), batch_rows)

    assert result.column("n").to_pylist() == [0, 2, 5, 6]
    assert result.column("text").to_pylist() == [str(values[row]) for row in (0, 2, 5, 6)]
    assert [record.location for record in bad] == [1, 3, 4]
    assert "INT96" in bad[0].reason


def test_trap_t26_int96_inside_lists_and_structs_is_checked() -> None:
    far, near = at("9999-01-01"), at("2020-01-01")
    nested = pa.list_(pa.struct({"t": pa.timestamp("us"), "n": pa.int8()}))
    rows = [[{"t": near, "n": 1}], None, [], [{"t": near, "n": 2}, {"t": far, "n": 3}], [None]]
    body = written(pa.table({"x": pa.array(rows, nested)}), use_deprecated_int96_timestamps=True)

    result, bad = read_rows(body, batch_rows=100)

    assert [record.location for record in bad] == [3]
    assert result.num_rows == 4


def test_trap_t26_sparks_int96_timestamps_are_microseconds_of_any_year() -> None:
    far = [at("0001-01-01"), at("9999-12-31 23:59:59.999999"), None]
    spark = pa.schema([("t", pa.timestamp("us"))], {"org.apache.spark.version": "4.0.0"})
    table = pa.table([pa.array(far, pa.timestamp("us"))], schema=spark)

    result, bad = read_rows(written(table, use_deprecated_int96_timestamps=True, store_schema=True))

    assert bad == []
    assert result.column("t").to_pylist() == far


def test_int96_columns_are_fetched_once_although_they_are_read_twice() -> None:
    values = [at("2020-01-01") + dt.timedelta(seconds=n) for n in range(20_000)]
    body = int96_table(list(values), row_group_size=9_000, data_page_size=4_096)
    source = MemorySource(body)
    fmt = Parquet(FormatOptions(batch_rows=500, window_bytes=30_000), Footers(), 0)

    rows = sum(chunk.batch.num_rows for chunk in chunks(fmt, source, 0, len(body)))

    assert rows == 20_000
    assert sum(end - start for start, end in source.reads) <= len(body) + 65_536


def _unparseable_rows(body: bytes) -> str:
    with pytest.raises(UnsupportedType) as caught:
        read_rows(body)
    return str(caught.value)


def test_trap_t26_two_columns_of_one_name_are_rejected() -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["same", "same"])

    assert "two columns 'same'; rename one of them" in _unparseable_rows(written(table))


def test_trap_t26_two_members_of_one_name_are_rejected() -> None:
    struct = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["m", "m"])

    assert "two columns 'x.m'" in _unparseable_rows(written(pa.table({"x": struct})))


def test_trap_t26_an_interval_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "interval.parquet"
    duckdb.sql(f"copy (select interval '3 months 2 days' as i) to '{path}' (format parquet)")

    assert "column 'i' is a Parquet INTERVAL" in _unparseable_rows(path.read_bytes())


# Thrift's compact protocol: version 1, a root without children, 3 rows, a row group of 3 rows.
NO_COLUMNS = bytes.fromhex("1502191c4806736368656d611500001606191c190c160016060000")


def test_rows_without_columns_are_rejected() -> None:
    body = b"PAR1" + NO_COLUMNS + len(NO_COLUMNS).to_bytes(4, "little") + b"PAR1"

    assert pq.read_metadata(pa.BufferReader(body)).num_rows == 3
    assert "3 rows but no columns" in _unparseable_rows(body)


# -- files that no writer of today makes, against DuckDB -------------------------------------------

DECIMALS = [123, None, -5]
LEGACY_LIST = [2, 2, 1, 0, 2], [0, 1, 0, 0, 0]


def signed(number: int | None, size: int) -> bytes | None:
    return None if number is None else number.to_bytes(size, "big", signed=True)


def decimal_file(
    physical: int, stored: list[Any], precision: int, length: int | None = None
) -> bytes:
    element = Element(
        "x", OPTIONAL, physical, length=length, converted=DECIMAL, scale=2, precision=precision
    )
    return one_column(element, stored)


def repeated(converted: int | None, name: str, members: int = 1) -> bytes:
    """Return lists in the layout of two levels: a repeated group that is the element."""
    outer = Element("x", OPTIONAL, children=1, converted=converted)
    group = Element(name, REPEATED, children=members)
    names = ["a", "b"][:members]
    leaves = [Element(each, OPTIONAL, INT32) for each in names]
    columns = [
        Column(["x", name, each], INT32, [1, 3], [3, 2, 1, 0, 3], LEGACY_LIST[1]) for each in names
    ]
    return parquet_file([outer, group, *leaves], columns, 4)


def list_of_int32(*elements: Element) -> bytes:
    column = Column([each.name for each in elements], INT32, [1, 2, 3], *LEGACY_LIST)
    return parquet_file(elements, [column], 4)


FOREIGN = {
    "decimal-int32": decimal_file(INT32, DECIMALS, 9),
    "decimal-int64": decimal_file(INT64, DECIMALS, 18),
    "decimal-fixed": decimal_file(FIXED, [signed(each, 5) for each in DECIMALS], 11, 5),
    "decimal-binary": decimal_file(BYTE_ARRAY, [signed(each, 3) for each in DECIMALS], 20),
    "enum": one_column(
        Element("x", OPTIONAL, BYTE_ARRAY, converted=ENUM), [b"red", None, b"\xc3\xa4"]
    ),
    "json": one_column(Element("x", OPTIONAL, BYTE_ARRAY, converted=JSON), [b'{"a":1}', None]),
    "half": one_column(
        Element("x", OPTIONAL, FIXED, length=2, logical=LOGICAL_FLOAT16), [b"\0\x3e", None]
    ),
    "uint8": one_column(Element("x", OPTIONAL, INT32, converted=11), [255, 0, None]),
    "uint32": one_column(Element("x", OPTIONAL, INT32, converted=13), [-1, 0, None]),
    "uint64": one_column(Element("x", OPTIONAL, INT64, converted=14), [-1, 0, None]),
    "boolean": one_column(Element("x", OPTIONAL, BOOLEAN), [True, None, False]),
    "int96": one_column(
        Element("x", OPTIONAL, INT96), [int96(0, 1000), None, int96(-90_000, 86_399_999_999_000)]
    ),
    "two-levels": list_of_int32(
        Element("x", OPTIONAL, children=1, converted=LIST), Element("element", REPEATED, INT32)
    ),
    "two-levels-array": repeated(LIST, "array", members=2),
    "two-levels-tuple": repeated(LIST, "x_tuple", members=2),
    "no-annotation": parquet_file(
        [Element("x", REPEATED, INT32)],
        [Column(["x"], INT32, [1, 2, 3], [1, 1, 0, 1], [0, 1, 0, 0])],
        3,
    ),
    "enum-in-list": parquet_file(
        [
            Element("x", OPTIONAL, children=1, converted=LIST),
            Element("list", REPEATED, children=1),
            Element("element", OPTIONAL, BYTE_ARRAY, converted=ENUM),
        ],
        [
            Column(
                ["x", "list", "element"], BYTE_ARRAY, [b"a", b"b"], [3, 2, 1, 0, 3], LEGACY_LIST[1]
            )
        ],
        4,
    ),
}


def duckdb_rows(body: bytes, tmp_path: Path) -> list[Any]:
    path = tmp_path / "foreign.parquet"
    path.write_bytes(body)
    return [value for (value,) in duckdb.read_parquet(str(path)).fetchall()]


@pytest.mark.parametrize("name", sorted(FOREIGN))
@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_trap_t26_types_and_layouts_of_other_writers_read_as_in_duckdb(
    name: str, batch_rows: int, tmp_path: Path
) -> None:
    result, bad = read_rows(FOREIGN[name], batch_rows)

    column = result.column("x")
    if column.type == pa.timestamp("ns"):
        column = column.cast(pa.timestamp("us"))
    assert bad == []
    assert column.to_pylist() == duckdb_rows(FOREIGN[name], tmp_path)


def map_file(annotation: int, inner: int | None = None) -> bytes:
    key = Element("key", REQUIRED, BYTE_ARRAY, converted=ENUM)
    group = Element("map", REPEATED, children=2, converted=inner)
    outer = Element("x", OPTIONAL, children=1, converted=annotation)
    keys = Column(
        ["x", "map", "key"], BYTE_ARRAY, [b"a", b"b", b"c"], [2, 2, 1, 0, 2], LEGACY_LIST[1]
    )
    values = Column(["x", "map", "value"], INT32, [5, 6], [3, 2, 1, 0, 3], LEGACY_LIST[1])
    return parquet_file([outer, group, key, Element("value", OPTIONAL, INT32)], [keys, values], 4)


@pytest.mark.parametrize(
    "body", [map_file(MAP), map_file(MAP, MAP_KEY_VALUE), map_file(MAP_KEY_VALUE)]
)
def test_trap_t26_maps_of_every_age_are_read(body: bytes) -> None:
    """DuckDB 2.0 refuses the last one, which Hive and old Spark write."""
    result, bad = read_rows(body)

    assert bad == []
    assert result.column("x").to_pylist() == [[("a", 5), ("b", None)], [], None, [("c", 6)]]


def test_trap_t26_a_struct_of_enums_keeps_its_nulls() -> None:
    outer = Element("x", OPTIONAL, children=2)
    leaves = [Element("e", OPTIONAL, BYTE_ARRAY, converted=ENUM), Element("n", OPTIONAL, INT32)]
    columns = [
        Column(["x", "e"], BYTE_ARRAY, [b"red"], [2, 1, 0]),
        Column(["x", "n"], INT32, [7], [1, 2, 0]),
    ]

    result, _ = read_rows(parquet_file([outer, *leaves], columns, 3), batch_rows=2)

    assert result.column("x").to_pylist() == [{"e": "red", "n": None}, {"e": None, "n": 7}, None]


@pytest.mark.parametrize("batch_rows", [1, 100])
def test_trap_t26_a_decimal_beyond_its_precision_is_a_bad_record(batch_rows: int) -> None:
    """DuckDB reads 21474836.47 as -0.01 here, and Arrow as a decimal(4, 2) of ten digits."""
    body = decimal_file(INT32, [1, 2**31 - 1, 9_999, -10_000], 4)

    result, bad = read_rows(body, batch_rows)

    assert [str(value) for value in result.column("x").to_pylist()] == ["0.01", "99.99"]
    assert [record.location for record in bad] == [1, 3]
    assert "more digits than the precision" in bad[0].reason


def test_a_group_without_members_takes_no_column() -> None:
    elements = [Element("empty", OPTIONAL), Element("e", REQUIRED, BYTE_ARRAY, converted=ENUM)]

    result, bad = read_rows(parquet_file(elements, [Column(["e"], BYTE_ARRAY, [b"a"])], 1))

    assert bad == []
    assert result.column("e").to_pylist() == ["a"]


# -- INT96 over its whole range --------------------------------------------------------------------

DAY_NANOSECONDS = DAY_SECONDS * 10**9
MICROSECOND = {"org_apache_spark_version": "3.5.0"}
FAR_DAYS = [-719_162, 2_932_896]  # 0001-01-01, 9999-12-31


def int96_file(values: list[bytes | None], **key_values: str) -> bytes:
    stored = [value for value in values if value is not None]
    column = Column(["x"], INT96, stored, [int(value is not None) for value in values])
    return parquet_file([Element("x", OPTIONAL, INT96)], [column], len(values), **key_values)


def read_with(unit: str | None, body: bytes) -> tuple[list[int | None], list[BadRecord]]:
    fmt = Parquet(FormatOptions(), Footers(), 0, ParquetOptions(int96_unit=unit))
    result = list(chunks(fmt, MemorySource(body), 0, len(body)))
    column = pa.Table.from_batches([chunk.batch for chunk in result]).column("x")
    return column.cast(pa.int64()).to_pylist(), [bad for chunk in result for bad in chunk.bad]


def test_arrow_wraps_int96_that_nanoseconds_do_not_hold() -> None:
    """What the second pass is for: Arrow returns another time, without an error."""
    body = int96_file([int96(FAR_DAYS[1], 0)])

    wrapped = pq.read_table(pa.BufferReader(body)).column("x")[0].value

    assert wrapped != FAR_DAYS[1] * DAY_NANOSECONDS
    assert wrapped == (FAR_DAYS[1] * DAY_NANOSECONDS + 2**63) % 2**64 - 2**63


def test_trap_t26_int96_in_microseconds_holds_any_year() -> None:
    body = int96_file(
        [int96(FAR_DAYS[0], 1_000), None, int96(FAR_DAYS[1], DAY_NANOSECONDS - 1_000)]
    )

    values, bad = read_with("us", body)

    assert bad == []
    day = DAY_SECONDS * 10**6
    assert values == [FAR_DAYS[0] * day + 1, None, (FAR_DAYS[1] + 1) * day - 1]


@pytest.mark.parametrize("days", [0, -1, *FAR_DAYS])
def test_trap_t26_int96_in_microseconds_is_never_rounded(days: int) -> None:
    values, bad = read_with("us", int96_file([int96(days, 2_001), int96(days, 2_000)]))

    assert values == [days * DAY_SECONDS * 10**6 + 2]
    assert [record.location for record in bad] == [0]
    assert "fraction of a microsecond" in bad[0].reason


def test_trap_t26_sparks_int96_beyond_microseconds_is_a_bad_record() -> None:
    """The range was not checked for files of Spark, and the value wrapped."""
    far = 2**63 // (DAY_SECONDS * 10**6) + 2
    body = int96_file([int96(far, 0), int96(-far, 0), int96(FAR_DAYS[1], 0)], **MICROSECOND)

    values, bad = read_with(None, body)

    assert values == [FAR_DAYS[1] * DAY_SECONDS * 10**6]
    assert [record.location for record in bad] == [0, 1]
    assert "290,000 years" in bad[0].reason


def test_trap_t26_int96_in_maps_is_checked() -> None:
    key = Element("key", REQUIRED, BYTE_ARRAY, converted=UTF8)
    group = Element("key_value", REPEATED, children=2)
    elements = [
        Element("x", OPTIONAL, children=1, converted=MAP),
        group,
        key,
        Element("value", OPTIONAL, INT96),
    ]
    keys = Column(["x", "key_value", "key"], BYTE_ARRAY, [b"a", b"b"], [2, 2], [0, 0])
    stored = [int96(0, 0), int96(FAR_DAYS[1], 0)]
    values = Column(["x", "key_value", "value"], INT96, stored, [3, 3], [0, 0])

    result, bad = read_rows(parquet_file(elements, [keys, values], 2))

    assert result.num_rows == 1
    assert [record.location for record in bad] == [1]


# -- record.max.bytes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_a_row_longer_than_the_limit_is_a_bad_record(kind: pa.DataType) -> None:
    texts = pa.array(["x" * length for length in (10, 5_000, 20, 900, 1_100)])
    table = pa.table({"x": texts.cast(kind), "n": range(5)})
    body = written(table, store_schema=True)
    fmt = Parquet(FormatOptions(max_record_bytes=1_000), Footers(), 0)

    result = list(chunks(fmt, MemorySource(body), 0, len(body)))

    assert [n for chunk in result for n in chunk.batch.column("n").to_pylist()] == [0, 2, 3]
    assert [bad.location for chunk in result for bad in chunk.bad] == [1, 4]
    assert "record.max.bytes=1000" in result[0].bad[0].reason


def test_elements_count_towards_the_limit_of_a_record() -> None:
    rows = [[1], list(range(1_000)), None, [2]]
    body = written(pa.table({"x": pa.array(rows, pa.list_(pa.int64()))}))
    fmt = Parquet(FormatOptions(max_record_bytes=1_000), Footers(), 0)

    (chunk,) = chunks(fmt, MemorySource(body), 0, len(body))

    assert list(chunk.locations) == [0, 2, 3]


def test_values_of_a_fixed_length_beyond_all_records_are_rejected(golden: Golden) -> None:
    """Trap: Arrow allocates the first value by the length in the footer, before it reads a page."""
    table = pa.table({"x": pa.nulls(1, pa.binary(LARGEST_FIXED_BYTES + 1))})

    golden(_unparseable_rows(written(table)))
