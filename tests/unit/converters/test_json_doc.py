"""docs/json.md says what the code does: every row's example is made, every type is in a row."""

import uuid
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from extentflow.converters.json_converter import envelope_converter
from extentflow.converters.json_encoding import json_converter

PAGE = Path(__file__).parents[3] / "docs" / "json.md"
MARCH = 826_678_923  # 1996-03-13T01:02:03Z


def lists(*kinds: pa.DataType) -> list[pa.Array]:
    return [pa.array([[1, None]], kind) for kind in kinds]


def numbers(value: object, *kinds: pa.DataType) -> list[pa.Array]:
    return [pa.array([value], kind) for kind in kinds]


FLOATS = [
    pa.array(np.array([value], kind))
    for value in (np.nan, np.inf, -np.inf)
    for kind in (np.float16, np.float32, np.float64)
]
EXAMPLES: dict[str, list[pa.Array]] = {
    "`null`": [pa.nulls(1)],
    "`bool`, `bool8`": [
        pa.array([True]),
        pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8())),
    ],
    "`int8` to `int64`, `uint8` to `uint64`": [pa.array([2**64 - 1], pa.uint64())],
    "`decimal32` to `decimal256`": numbers(
        Decimal("1.5"),
        *(pa.decimal32(5, 2), pa.decimal64(9, 2), pa.decimal128(15, 2), pa.decimal256(50, 2)),
    ),
    "`float16`, `float32`, `float64`": numbers(1e20, pa.float32(), pa.float64()),
    "`float*` NaN, infinities": FLOATS,
    "`string`, `large_string`, `string_view`, `json`": numbers(
        'say "hi"', pa.string(), pa.large_string(), pa.string_view(), pa.json_()
    ),
    "`binary`, `large_binary`, `binary_view`, `fixed_size_binary`": numbers(
        b"\xff\xfe", pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)
    ),
    "`uuid`": numbers(uuid.UUID(int=7).bytes, pa.uuid()),
    "`date32`, `date64`": [
        pa.array([19_782], pa.date32()),
        pa.array([19_782 * 86_400_000], pa.date64()),
    ],
    "`timestamp` without zone": [pa.array([MARCH * 1_000 + 4], pa.timestamp("ms"))],
    "`timestamp` with a zone": [
        pa.array([MARCH * 1_000_000 + 4], pa.timestamp("us", zone)) for zone in ("UTC", "+05:30")
    ],
    "`time32`, `time64`": [pa.array([86_399_000], pa.time32("ms"))],
    "`duration`": [pa.array([-90_500], pa.duration("ms"))],
    "`struct`": [pa.array([{"a": 1, "b": None}])],
    "`list`, `large_list`, `fixed_size_list`, `list_view`, `large_list_view`": lists(
        pa.list_(pa.int8()),
        pa.large_list(pa.int8()),
        pa.list_(pa.int8(), 2),
        pa.list_view(pa.int8()),
        pa.large_list_view(pa.int8()),
    ),
    "`map` with text keys": [pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8()))],
    "`map` with other keys": [pa.array([[(1, "a")]], pa.map_(pa.int8(), pa.string()))],
    "`dictionary`, `run_end_encoded`": [
        pa.array(["a"]).dictionary_encode(),
        pc.run_end_encode(pa.array(["a"])),
    ],
}


# The rows that only the table of envelopes has, or has other examples for.
ENVELOPES: dict[str, list[pa.Array]] = {
    "`int8` to `int64`": numbers(-1, pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    "`uint8`, `uint16`, `uint32`": numbers(255, pa.uint8(), pa.uint16(), pa.uint32()),
    "`uint64`": numbers(2**64 - 1, pa.uint64()),
    "`float16`, `float32`": [pa.array(np.array([0.5], kind)) for kind in (np.float16, np.float32)],
    "`float64`": numbers(1e20, pa.float64()),
    "`timestamp` with a zone": numbers(MARCH * 1_000_000 + 4_000, pa.timestamp("us", "+05:30")),
    "`map` with keys that are text or `uuid`": EXAMPLES["`map` with text keys"],
}
REPLACED = (
    "`int8` to `int64`, `uint8` to `uint64`",
    "`float16`, `float32`, `float64`",
    "`map` with text keys",
)
ENVELOPES = {row: made for row, made in EXAMPLES.items() if row not in REPLACED} | ENVELOPES


def documented(section: int = 0) -> dict[str, str]:
    """The rows of a section's table: type cell -> example cell, without its backticks."""
    text = PAGE.read_text().split("\n## ")[section]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]
    return {cells[0]: cells[-1].rstrip("|").strip().strip("`") for cells in rows}


@pytest.mark.parametrize("row", EXAMPLES)
def test_the_documented_example_is_what_is_written(row: str) -> None:
    example = documented()[row]

    for array in EXAMPLES[row]:
        batch = pa.record_batch({"v": array})
        assert json_converter(batch.schema)(batch)[0].as_py().decode() == f'{{"v":{example}}}'


@pytest.mark.parametrize("row", ENVELOPES)
def test_the_documented_example_is_what_an_envelope_has(row: str) -> None:
    example = documented(1)[row]

    for array in ENVELOPES[row]:
        batch = pa.record_batch({"v": array})
        envelope = envelope_converter(batch.schema)(batch)[0].as_py().decode()
        assert envelope.endswith(f'"payload":{{"v":{example}}}}}')


def test_every_documented_row_has_an_example_here() -> None:
    assert set(documented()) == set(EXAMPLES)
    assert set(documented(1)) == set(ENVELOPES)
