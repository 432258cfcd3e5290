"""ORC by pyorc and pyarrow, read by pyorc."""

import datetime as dt
import io
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyorc
from tests.laws.orc_cases import by_pyarrow, by_pyorc
from tests.unit.formats.comparison.nasty import Nasty
from tests.unit.formats.comparison.parquet_files import FLOATS, NESTED, TEXTS, YEARS, scalars
from tests.unit.formats.comparison.values import Plain, of_object

NAIVE = [dt.datetime(1970, 1, 1), dt.datetime(2262, 4, 11), dt.datetime(1677, 10, 1), None]  # noqa: DTZ001
AWARE = [one if one is None else one.replace(tzinfo=dt.UTC) for one in NAIVE]
COLUMNS: Mapping[str, Sequence[Plain]] = {
    "tinyint": [-128, 127, None],
    "smallint": [-(2**15), 2**15 - 1, None],
    "int": [-(2**31), 2**31 - 1, None],
    "bigint": [-(2**63), 2**63 - 1, 0, None],
    "float": [0.5, -0.0, float("nan"), float("inf"), None],
    "double": FLOATS,
    "decimal(38,10)": [Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001"), None],
    "decimal(18,0)": [Decimal(10**18 - 1), Decimal(-1), None],
    "decimal(5,5)": [Decimal("0.99999"), Decimal("-0.00001"), None],
    "string": TEXTS,
    "varchar(5)": ["", "abcde", "é", None],
    "char(3)": ["abc", None],
    "binary": [b"", b"\xff\x00", None],
    "boolean": [True, False, None],
    "date": YEARS,
    "timestamp": NAIVE,
    "timestamp with local time zone": AWARE,
    "array<int>": [[1, None], [], None],
    "array<array<string>>": [[["a", None], None, []], [], None],
    "map<string,bigint>": [{"a": 1, "": None}, {}, None],
    "map<int,array<double>>": [{1: [0.5, None]}, {-1: []}, None],
    "struct<a:int,b:struct<c:string,d:array<date>>>": [
        {"a": 1, "b": {"c": "x", "d": [dt.date(1, 1, 1), None]}},
        {"a": None, "b": None},
        {"a": 2, "b": {"c": None, "d": None}},
        None,
    ],
}
SCHEMA = "struct<" + ",".join(f"c{number}:{kind}" for number, kind in enumerate(COLUMNS)) + ">"


def rows(count: int) -> list[dict[str, Plain]]:
    """Return rows of all columns."""
    return [
        {f"c{number}": values[row % len(values)] for number, values in enumerate(COLUMNS.values())}
        for row in range(count)
    ]


def in_pyorc(body: bytes, _folder: Path, schema: pa.Schema) -> Mapping[str, Sequence[Plain]]:
    """Return what pyorc reads."""
    found = list(pyorc.Reader(io.BytesIO(body), struct_repr=pyorc.StructRepr.DICT))
    return {one.name: [of_object(row[one.name], one.type) for row in found] for one in schema}


CODECS = ["NONE", "ZLIB", "SNAPPY", "LZ4", "ZSTD"]
FLAT = scalars().select(
    ["int8", "int64", "f64", "f32", "decimal128(38, 10)", "differs", "binary", "bool", "date"]
)
# pyarrow's writer loses text within structs that have nulls.
LISTS = NESTED.select(["list", "lists", "numbers", "texts"])

FILES = [
    *(
        Nasty(
            f"orc-{codec}",
            "orc",
            partial(by_pyorc, SCHEMA, rows(300), compression=pyorc.CompressionKind[codec]),
            in_pyorc,
        )
        for codec in CODECS
    ),
    Nasty(
        "orc-stripes",
        "orc",
        partial(by_pyorc, "struct<a:int,s:string>", [{"a": n, "s": f"{n}"} for n in range(5_000)]),
        in_pyorc,
    ),
    Nasty(
        "orc-dictionary",
        "orc",
        partial(
            by_pyorc,
            "struct<s:string>",
            [{"s": TEXTS[row % 7]} for row in range(2_000)],
            dict_key_size_threshold=1.0,
        ),
        in_pyorc,
    ),
    Nasty("orc-no-rows", "orc", partial(by_pyorc, SCHEMA, []), in_pyorc),
    *(
        Nasty(
            f"orc-pyarrow-{codec}-{name}",
            "orc",
            partial(by_pyarrow, table, compression=codec, stripe_size=1024, batch_size=16),
            in_pyorc,
        )
        for codec in ("uncompressed", "zlib", "zstd", "snappy", "lz4")
        for name, table in (("flat", FLAT), ("lists", LISTS))
    ),
]
