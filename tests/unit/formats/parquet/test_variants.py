"""VARIANT: JSON of DuckDB's files and of the specification's encodings; damage is typed."""

import random
from pathlib import Path

import duckdb
import orjson
import pyarrow as pa
import pytest
from tests.laws.parquet_bytes import (
    BYTE_ARRAY,
    ENUM,
    INT32,
    LIST,
    LOGICAL_VARIANT,
    OPTIONAL,
    REPEATED,
    REQUIRED,
    Column,
    Element,
    parquet_file,
)
from tests.laws.parquet_cases import read_rows
from tests.support.golden import Golden

from extentflow.arrays.buffers import Columns
from extentflow.converters.json_encoding import json_converter
from extentflow.errors import UnsupportedType
from extentflow.formats.parquet.variants import variant_json

# A value in SQL, and its JSON; None: as in DuckDB.
VALUES: list[tuple[str, str | None]] = [
    ("1", None),
    ("-9223372036854775808", None),
    ("'text'", None),
    (f"'{'ä' * 40}'", None),
    ("'quote \" and \\ and \n'", None),
    ("true", None),
    ("false", None),
    ("1.50::decimal(9, 2)", None),
    ("'-0.05'::decimal(9, 2)", "-0.05"),
    ("'99999999999999999999999999.99'::decimal(38, 2)", None),
    ("1.5::double", None),
    ("1e300::double", "1e+300"),
    ("'nan'::double", "null"),
    ("0.1::float", "0.1"),
    ("date '2024-02-29'", None),
    ("date '12345-01-02'", '"+12345-01-02"'),
    ("time '01:02:03.4'", '"01:02:03.400000"'),
    ("timestamp '2020-01-01 00:00:00.5'", '"2020-01-01T00:00:00.500000"'),
    ("timestamptz '2020-01-01 00:00:00.5+01'", '"2019-12-31T23:00:00.500000Z"'),
    ("timestamp_ns '2020-01-01 00:00:00.123456789'", '"2020-01-01T00:00:00.123456789"'),
    ("uuid '00000000-0000-0000-0000-000000000007'", None),
    ("'\\xFF\\x00'::blob", '"/wA="'),
    ("[]", None),
    ("[1, null, 3]", None),
    ("range(300)", None),
    ("{'a': {'b': [true, null]}, 'z': 1}", None),
    ("map {'k': 'v'}", None),
]


def test_values_are_those_of_duckdb(tmp_path: Path) -> None:
    path = str(tmp_path / "variant.parquet")
    rows = ", ".join(f"({at}, ({sql})::variant)" for at, (sql, _) in enumerate(VALUES))
    options = "format parquet, shredding {'v': 'VARIANT'}"
    duckdb.execute("set timezone = 'UTC'")
    duckdb.execute(f"copy (from (values {rows}, (99, null)) t(n, v)) to '{path}' ({options})")
    found = duckdb.read_parquet(path).project("v::json::varchar").fetchall()

    result, bad = read_rows(Path(path).read_bytes())

    assert bad == []
    assert result.column("v").type == pa.json_()
    wanted = [ours or theirs for (_, ours), (theirs,) in zip(VALUES, found[:-1], strict=True)]
    assert result.column("v").to_pylist() == [*wanted, None]


EMPTY = b"\x01\0\0"


def variant(values: list[bytes]) -> bytes:
    group = Element("v", OPTIONAL, children=2, logical=LOGICAL_VARIANT)
    members = [Element("value", REQUIRED, BYTE_ARRAY), Element("metadata", REQUIRED, BYTE_ARRAY)]
    columns = [
        Column(["v", "value"], BYTE_ARRAY, values, [1] * len(values)),
        Column(["v", "metadata"], BYTE_ARRAY, [EMPTY] * len(values), [1] * len(values)),
    ]
    return parquet_file([group, *members], columns, len(values))


def test_a_damaged_value_is_a_bad_record_and_the_others_are_delivered() -> None:
    values = [b"\x0c\x05", b"\x10\x05", b"", b"\x0c\x07", b"\xf8", b"\x05x"]

    result, bad = read_rows(variant(values))

    assert result.column("v").to_pylist() == ["5", "7", '"x"']
    assert [record.location for record in bad] == [1, 2, 4]
    assert all("VARIANT" in record.reason for record in bad)


def test_a_member_of_a_variant_is_no_column(golden: Golden) -> None:
    result, bad = read_rows(variant([b"\x0c\x05"]), select=("v.value",))

    assert result.column("v").to_pylist() == ["5"]
    assert bad == []
    with golden.raises(UnsupportedType, match=r"'v\.value'.*'v'"):
        Columns.select(result.schema, ("v.value",), nested=True)


@pytest.mark.parametrize(("name", "value"), [("s.x", 7), ("s.e", "red")])
def test_a_member_beside_an_enum_is_selected(name: str, value: object) -> None:
    elements = [
        Element("s", OPTIONAL, children=2),
        Element("x", REQUIRED, INT32),
        Element("e", REQUIRED, BYTE_ARRAY, converted=ENUM),
    ]
    columns = [Column(["s", "x"], INT32, [7], [1]), Column(["s", "e"], BYTE_ARRAY, [b"red"], [1])]

    result, bad = read_rows(parquet_file(elements, columns, 1), select=(name,))

    assert bad == []
    (batch,) = result.to_batches()
    chosen = Columns.select(batch.schema, (name,), nested=True).batch(batch)
    assert chosen.to_pylist() == [{name: value}]


def test_the_converter_json_writes_text_as_for_columns_of_json() -> None:
    result, _ = read_rows(variant([b"\x05x"]))

    (batch,) = result.to_batches()

    assert json_converter(batch.schema)(batch).to_pylist() == [b'{"v":"\\"x\\""}']


def test_a_damaged_value_in_a_list_is_a_bad_record() -> None:
    elements = [
        Element("l", OPTIONAL, children=1, converted=LIST),
        Element("list", REPEATED, children=1),
        Element("element", OPTIONAL, children=2, logical=LOGICAL_VARIANT),
        Element("metadata", REQUIRED, BYTE_ARRAY),
        Element("value", REQUIRED, BYTE_ARRAY),
    ]
    definition, repetition = [3, 2, 1, 3, 0, 3], [0, 1, 0, 0, 0, 0]
    path = ["l", "list", "element"]
    columns = [
        Column([*path, "metadata"], BYTE_ARRAY, [EMPTY] * 3, definition, repetition),
        Column([*path, "value"], BYTE_ARRAY, [b"\x05x", b"\x10", b"\0"], definition, repetition),
    ]

    result, bad = read_rows(parquet_file(elements, columns, 5))

    assert result.column("l").to_pylist() == [['"x"', None], [], None, ["null"]]
    assert [record.location for record in bad] == [2]


def test_a_struct_that_is_no_variant_stays_one() -> None:
    """Its members have the same names, and its name ends as pyarrow prints a VARIANT."""
    group = Element("v (Variant(1))", OPTIONAL, children=2)
    members = [Element("metadata", REQUIRED, INT32), Element("value", REQUIRED, INT32)]
    columns = [Column([group.name, each.name], INT32, [7], [1]) for each in members]

    result, bad = read_rows(parquet_file([group, *members], columns, 1))

    assert bad == []
    assert result.column(0).to_pylist() == [{"metadata": 7, "value": 7}]


def test_nesting_is_bounded() -> None:
    value = b"\0"
    for _ in range(2_000):
        offsets = (0).to_bytes(4, "little") + len(value).to_bytes(4, "little")
        value = b"\x0f\x01" + offsets + value

    with pytest.raises(ValueError, match="levels"):
        variant_json(EMPTY, value)


def test_an_array_that_contains_itself_many_times_is_bounded() -> None:
    """Offsets may overlap: a few bytes must not become gigabytes of text."""
    value = b"\x0c\x05"
    for _ in range(12):
        value = b"\x0f\xff" + b"\0" * 4 * 255 + len(value).to_bytes(4, "little") + value

    with pytest.raises(ValueError, match="VARIANT"):
        variant_json(EMPTY, value)


@pytest.mark.parametrize("seed", range(4))
def test_any_damage_gives_json_or_a_value_error(seed: int) -> None:
    chance = random.Random(seed)
    metadata = b"\x01\x02\0\x01\x02ab"
    value = b"\x02\x02\x00\x01\x00\x05\x07\x05abcd\x0c\x05"
    for _ in range(2_000):
        damaged = bytearray(metadata + value)
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        cut = chance.randrange(len(metadata), len(damaged) + 1)
        try:
            text = variant_json(
                bytes(damaged[: len(metadata)]), bytes(damaged[len(metadata) : cut])
            )
        except ValueError:
            continue

        orjson.loads(text)
