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
from tests.laws.parquet_cases import written

from extentflow.errors import UnsupportedType
from extentflow.formats import BadRecord, FormatOptions
from extentflow.formats.parquet import Parquet
from extentflow.formats.parquet_footer import Footers
from extentflow.testing.stores import MemorySource

DAY_SECONDS = 86_400


def read(body: bytes, batch_rows: int = 3) -> tuple[pa.Table, list[BadRecord]]:
    fmt = Parquet(FormatOptions(batch_rows=batch_rows), Footers(), 0)
    result = list(chunks(fmt, MemorySource(body), 0, len(body)))
    bad = [record for chunk in result for record in chunk.bad]
    return pa.Table.from_batches([chunk.batch for chunk in result]), bad


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

    result, bad = read(written(table, store_schema=True, use_dictionary=dictionary), batch_rows=2)

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
    result, _ = read(written(pa.table({"x": values}), store_schema=True))

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

    result, bad = read(path.read_bytes())

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


def int96(values: list[dt.datetime | None], **options: Any) -> bytes:  # noqa: ANN401
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
    result, bad = read(int96(FITTING))

    assert bad == []
    assert result.column("t").type == pa.timestamp("ns")
    assert result.column("t").cast(pa.timestamp("us")).to_pylist() == FITTING


def test_trap_t26_int96_nanoseconds_are_kept() -> None:
    nanoseconds = pa.table({"t": pa.array([1, -1, 2**63 - 2 * 10**9], pa.timestamp("ns"))})

    result, bad = read(written(nanoseconds, use_deprecated_int96_timestamps=True))

    assert bad == []
    assert result.equals(nanoseconds)


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
@pytest.mark.parametrize("group_rows", [2, 100])
def test_trap_t26_int96_timestamps_out_of_range_are_bad_records(
    batch_rows: int, group_rows: int
) -> None:
    far = [at("0001-01-01"), at("9999-12-31"), at("1600-01-01")]
    values = [FITTING[0], far[0], None, far[1], far[2], FITTING[3], FITTING[1]]

    result, bad = read(int96(values, row_group_size=group_rows), batch_rows)

    assert result.column("n").to_pylist() == [0, 2, 5, 6]
    assert result.column("text").to_pylist() == [str(values[row]) for row in (0, 2, 5, 6)]
    assert [record.location for record in bad] == [1, 3, 4]
    assert "INT96" in bad[0].reason


def test_trap_t26_int96_inside_lists_and_structs_is_checked() -> None:
    far, near = at("9999-01-01"), at("2020-01-01")
    nested = pa.list_(pa.struct({"t": pa.timestamp("us"), "n": pa.int8()}))
    rows = [[{"t": near, "n": 1}], None, [], [{"t": near, "n": 2}, {"t": far, "n": 3}], [None]]
    body = written(pa.table({"x": pa.array(rows, nested)}), use_deprecated_int96_timestamps=True)

    result, bad = read(body, batch_rows=100)

    assert [record.location for record in bad] == [3]
    assert result.num_rows == 4


def test_trap_t26_sparks_int96_timestamps_are_microseconds_of_any_year() -> None:
    far = [at("0001-01-01"), at("9999-12-31 23:59:59.999999"), None]
    spark = pa.schema([("t", pa.timestamp("us"))], {"org.apache.spark.version": "4.0.0"})
    table = pa.table([pa.array(far, pa.timestamp("us"))], schema=spark)

    result, bad = read(written(table, use_deprecated_int96_timestamps=True, store_schema=True))

    assert bad == []
    assert result.column("t").to_pylist() == far


def test_int96_columns_are_fetched_once_although_they_are_read_twice() -> None:
    values = [at("2020-01-01") + dt.timedelta(seconds=n) for n in range(20_000)]
    body = int96(list(values), row_group_size=9_000, data_page_size=4_096)
    source = MemorySource(body)
    fmt = Parquet(FormatOptions(batch_rows=500, window_bytes=30_000), Footers(), 0)

    rows = sum(chunk.batch.num_rows for chunk in chunks(fmt, source, 0, len(body)))

    assert rows == 20_000
    assert sum(end - start for start, end in source.reads) <= len(body) + 65_536


def _unparseable_rows(body: bytes) -> str:
    with pytest.raises(UnsupportedType) as caught:
        read(body)
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
