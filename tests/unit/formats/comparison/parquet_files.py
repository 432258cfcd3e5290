"""Parquet by pyarrow and DuckDB, read by DuckDB."""

import datetime as dt
import io
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from tests.unit.formats.comparison.nasty import Nasty
from tests.unit.formats.comparison.values import Plain, of_array

ROWS = 60
# No extension is fetched.
SETTINGS: dict[str, Any] = {"threads": 1, "autoinstall_known_extensions": False}
TEXTS = ["", "a", None, "é€😀", "\x00", 'say "hi"\\', "\u2028\r\n\t", "x" * 2_000, "\ufeff", "NULL"]
YEARS = [
    dt.date(1, 1, 1),
    dt.date(1582, 10, 14),
    dt.date(1969, 12, 31),
    dt.date(9999, 12, 31),
    None,
]
SECONDS = [0, -1, 1, -62_135_596_800, 253_402_300_799, 951_782_400, None]
FLOATS = [
    0.0,
    -0.0,
    0.1,
    5e-324,
    1.7976931348623157e308,
    float("nan"),
    float("inf"),
    float("-inf"),
    None,
]
ZONES = [None, "UTC", "Asia/Kolkata", "America/New_York"]


def repeated(values: Sequence[Any], kind: pa.DataType | None = None, rows: int = ROWS) -> pa.Array:
    """Return rows that repeat the values."""
    return pa.array([values[row % len(values)] for row in range(rows)], kind)


def extremes(bits: int, *, signed: bool) -> list[int | None]:
    low = -(2 ** (bits - 1)) if signed else 0
    return [low, low + 2**bits - 1, 0, 1, None]


def scalars(rows: int = ROWS) -> pa.Table:
    """Return a column of every type that both know, with extremes and nulls."""
    columns: dict[str, pa.Array] = {}
    for bits in (8, 16, 32, 64):
        for prefix, signed in (("int", True), ("uint", False)):
            kind = getattr(pa, f"{prefix}{bits}")()
            columns[str(kind)] = repeated(extremes(bits, signed=signed), kind, rows)
    columns["f64"] = repeated(FLOATS, pa.float64(), rows)
    columns["f32"] = repeated([0.1, -0.0, 3.4e38, 1e-45, float("nan"), None], pa.float32(), rows)
    columns["f16"] = repeated([0.5, 65_504.0, -0.0, float("inf"), None], pa.float16(), rows)
    for precision, scale in ((5, 2), (9, 0), (18, 18), (28, 5), (38, 10), (38, 0)):
        most = Decimal((0, (9,) * precision, -scale))
        kind = pa.decimal128(precision, scale)
        columns[str(kind)] = repeated(
            [most, most.copy_negate(), Decimal((0, (0,), -scale)), None], kind, rows
        )
    columns["text"] = repeated(TEXTS, pa.string(), rows)
    columns["differs"] = pa.array([f"text {row * 7919}" for row in range(rows)])
    columns["binary"] = repeated([b"", b"\xff\x00", None, bytes(range(256))], pa.binary(), rows)
    columns["fixed"] = repeated([b"abc", None, b"\x00\xff\x00"], pa.binary(3), rows)
    columns["bool"] = repeated([True, None, False, True, True], pa.bool_(), rows)
    columns["nothing"] = pa.nulls(rows, pa.int32())
    columns["date"] = repeated(YEARS, pa.date32(), rows)
    columns["uuid"] = repeated([uuid.UUID(int=5).bytes, None, b"\xff" * 16], pa.uuid(), rows)
    columns["time-ms"] = repeated([0, 86_399_999, None], pa.time32("ms"), rows)
    columns["time-us"] = repeated([0, 86_399_999_999, None], pa.time64("us"), rows)
    columns["time-ns"] = repeated([0, 86_399_999_999_999, None], pa.time64("ns"), rows)
    for zone in ZONES:
        for unit, factor in (("s", 1), ("ms", 10**3), ("us", 10**6)):
            ticks = [None if second is None else second * factor for second in SECONDS]
            columns[f"{unit}-{zone}"] = repeated(ticks, pa.timestamp(unit, zone), rows)
        ticks = [0, -1, 1_700_000_000_123_456_789, -(2**62), 2**62, None]
        columns[f"ns-{zone}"] = repeated(ticks, pa.timestamp("ns", zone), rows)
    return pa.table(columns)


def deep(levels: int) -> tuple[pa.DataType, Any]:
    """Return a struct of lists of structs of … and a value of it."""
    kind: pa.DataType = pa.string()
    value: Any = "bottom"
    for level in range(levels):
        struct, inner = pa.struct({"a": kind, "b": pa.int8()}), {"a": value, "b": level}
        kind, value = pa.list_(struct), [inner, None, {"a": None, "b": None}]
    return kind, value


def nested(rows: int = ROWS) -> pa.Table:
    """Return nested columns with nulls and empty values at every level."""
    kind, value = deep(6)
    lists = [[1, None, -1], [], None, [2**31 - 1]]
    inner = pa.struct({"t": pa.timestamp("us", "UTC"), "d": pa.decimal128(10, 2), "s": pa.string()})
    structs = [
        {"t": -1, "d": Decimal("-1.50"), "s": ""},
        None,
        {"t": None, "d": None, "s": None},
        {"t": 253_402_300_799_999_999, "d": Decimal("99999999.99"), "s": "é"},
    ]
    entries = [[("k", None), ("", [1])], [], None, [("é", []), ("l", [None, 2])]]
    return pa.table(
        {
            "list": repeated(lists, pa.list_(pa.int32()), rows),
            "lists": repeated(
                [[[1], None, []], None, [], [[None]]], pa.list_(pa.list_(pa.int8())), rows
            ),
            "struct": repeated(structs, inner, rows),
            "structs": repeated([structs, None, [], structs[:1]], pa.list_(inner), rows),
            "map": repeated(entries, pa.map_(pa.string(), pa.list_(pa.int16())), rows),
            "numbers": repeated(
                [[(1, "a"), (-1, None)], None, []], pa.map_(pa.int32(), pa.string()), rows
            ),
            "deep": repeated([value, None, []], kind, rows),
            "texts": repeated([TEXTS, None, []], pa.list_(pa.string()), rows),
        }
    )


def by_pyarrow(table: pa.Table, **options: Any) -> Callable[[], bytes]:  # noqa: ANN401
    """Return what writes a table."""

    def write() -> bytes:
        out = io.BytesIO()
        pq.write_table(table, out, **options)
        return out.getvalue()

    return write


def by_duckdb(options: str, table: pa.Table) -> Callable[[], bytes]:
    """Return what writes a table with DuckDB."""

    def write() -> bytes:
        with TemporaryDirectory() as folder, duckdb.connect(config=SETTINGS) as base:
            path = Path(folder) / "file"
            base.register("rows", table)
            base.sql(f"COPY rows TO '{path}' (FORMAT parquet{options})")
            return path.read_bytes()

    return write


def in_duckdb(body: bytes, folder: Path, _schema: pa.Schema) -> Mapping[str, Sequence[Plain]]:
    """Return what DuckDB reads."""
    path = folder / "object.parquet"
    path.write_bytes(body)
    with duckdb.connect(config=SETTINGS) as base:
        table = base.read_parquet(str(path)).to_arrow_table()
    return {name: of_array(table[name]) for name in table.column_names}


SCALARS, NESTED = scalars(), nested()
# DuckDB's instants with a zone, and those of INT96, are of microseconds.
INT96 = pa.table({"a": pa.array([0, -1_000, 1_700_000_000_123_456_000, None], pa.timestamp("ns"))})
ENCODINGS = {
    "int32": "DELTA_BINARY_PACKED",
    "int64": "DELTA_BINARY_PACKED",
    "text": "DELTA_LENGTH_BYTE_ARRAY",
    "differs": "DELTA_BYTE_ARRAY",
    "f64": "BYTE_STREAM_SPLIT",
    "f32": "BYTE_STREAM_SPLIT",
    "bool": "RLE",
    "date": "PLAIN",
}


def variants() -> Iterator[tuple[str, pa.Table, dict[str, Any]]]:
    """Yield names, tables and options of pyarrow's writer."""
    for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4"):
        for version in ("1.0", "2.0"):
            options = {"compression": codec, "data_page_version": version, "row_group_size": 25}
            yield f"{codec}-{version}-scalars", SCALARS, options
            yield f"{codec}-{version}-nested", NESTED, options
    for dictionary in (True, False):
        options = {"use_dictionary": dictionary, "data_page_size": 64, "write_batch_size": 8}
        yield f"pages-{dictionary}-scalars", SCALARS, options
        yield f"pages-{dictionary}-nested", NESTED, {**options, "data_page_version": "2.0"}
    plain = {"use_dictionary": False, "column_encoding": ENCODINGS}
    yield "encodings", SCALARS.select([*ENCODINGS]), plain
    yield "encodings-2", SCALARS.select([*ENCODINGS]), {**plain, "data_page_version": "2.0"}
    yield "fallback", SCALARS.select(["text", "differs"]), {"dictionary_pagesize_limit": 16}
    yield "groups-of-one", NESTED.slice(0, 20), {"row_group_size": 1}
    yield "many-groups", SCALARS.select(["int64", "text", "date"]), {"row_group_size": 3}
    yield "checksums", NESTED, {"write_page_checksum": True, "write_page_index": True}
    yield "two-level-names", NESTED, {"use_compliant_nested_type": False}
    yield "no-arrow-schema", SCALARS.drop_columns(["f16"]), {"store_schema": False}
    yield "old-version", SCALARS.select(["int32", "text", "us-UTC"]), {"version": "1.0"}
    yield "decimals-as-integers", SCALARS, {"store_decimal_as_integer": True}
    yield "int96", INT96, {"use_deprecated_int96_timestamps": True}
    yield "no-rows", SCALARS.slice(0, 0), {}
    yield "sorted", SCALARS.sort_by("differs"), {"sorting_columns": [pq.SortingColumn(0)]}


# What DuckDB's writer keeps as it is.
PORTABLE = SCALARS.drop_columns(["f16", "nothing", *(f"ns-{zone}" for zone in ZONES if zone)])
FEW = ["int64", "text", "us-UTC"]
DUCK = {
    "": PORTABLE,
    ", CODEC 'zstd', ROW_GROUP_SIZE 2048": pa.concat_tables([PORTABLE.select(FEW)] * 50),
    ", PARQUET_VERSION v2": PORTABLE,
    ", PARQUET_VERSION v2, CODEC 'uncompressed'": NESTED,
    ", CODEC 'gzip'": NESTED,
    ", CODEC 'lz4_raw', DICTIONARY_SIZE_LIMIT 1": PORTABLE,
    ", CODEC 'brotli'": NESTED,
}

FILES = [
    *(
        Nasty(f"parquet-{name}", "parquet", by_pyarrow(table, **options), in_duckdb)
        for name, table, options in variants()
    ),
    *(
        Nasty(f"parquet-duckdb-{number}", "parquet", by_duckdb(options, table), in_duckdb)
        for number, (options, table) in enumerate(DUCK.items())
    ),
]
