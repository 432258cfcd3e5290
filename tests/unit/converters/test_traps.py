"""T26 and T27: what other connectors deliver wrong, delivered right or refused."""

import datetime as dt
import io
import json
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.golden import Golden

from extentflow.converters.json_encoding import json_converter
from extentflow.errors import CorruptRecord, UnsupportedType

NANOSECONDS = 1_700_000_000_123_456_789


def through_parquet(table: pa.Table, **options: Any) -> list[str]:  # noqa: ANN401 - pyarrow's
    """Write and read a file, as the Parquet format does; return each row's JSON."""
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    reader = pq.ParquetFile(io.BytesIO(file.getvalue()), arrow_extensions_enabled=True)
    convert = json_converter(reader.schema_arrow)
    return [row.decode() for batch in reader.iter_batches() for row in convert(batch).to_pylist()]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([2**64 - 1, 0], pa.uint64()), ["18446744073709551615", "0"]),
        (pa.array([2**32 - 1], pa.uint32()), ["4294967295"]),
        (pa.array([255], pa.uint8()), ["255"]),
        (
            pa.array([NANOSECONDS, -1], pa.timestamp("ns", "UTC")),
            ['"2023-11-14T22:13:20.123456789Z"', '"1969-12-31T23:59:59.999999999Z"'],
        ),
        (pa.array([Decimal("-1.50"), Decimal(0)], pa.decimal128(15, 2)), ["-1.50", "0.00"]),
        (pa.array([Decimal(10**60 + 1)], pa.decimal256(76, 0)), ["1" + "0" * 59 + "1"]),
        (pa.array([Decimal("1E-30")], pa.decimal128(38, 30)), ["0." + "0" * 29 + "1"]),
        (pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)]), ['"0001-01-01"', '"9999-12-31"']),
        (pa.array(["é", None, 'a"'], pa.string_view()), ['"é"', "null", '"a\\""']),
        (pa.array([uuid.UUID(int=5).bytes, None], pa.uuid()), [f'"{uuid.UUID(int=5)}"', "null"]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_trap_t26_parquet_values_are_exact(array: pa.Array, expected: list[str]) -> None:
    rows = through_parquet(pa.table({"v": array}))

    assert rows == [f'{{"v":{text}}}' for text in expected]


def test_trap_t26_int96_timestamps_keep_their_nanoseconds() -> None:
    table = pa.table({"v": pa.array([NANOSECONDS, None], pa.timestamp("ns"))})

    rows = through_parquet(table, use_deprecated_int96_timestamps=True)

    assert rows == ['{"v":"2023-11-14T22:13:20.123456789"}', '{"v":null}']


def test_trap_t26_nulls_at_every_level_of_nesting_are_kept() -> None:
    event = pa.struct({"tags": pa.map_(pa.string(), pa.list_(pa.decimal128(5, 1)))})
    values: list[Any] = [
        None,
        [],
        [None],
        [{"tags": None}],
        [{"tags": []}],
        [{"tags": [("a", None), ("b", []), ("c", [None, Decimal("0.5")])]}, None],
    ]

    rows = through_parquet(pa.table({"v": pa.array(values, pa.list_(event))}))

    assert rows == [
        '{"v":null}',
        '{"v":[]}',
        '{"v":[null]}',
        '{"v":[{"tags":null}]}',
        '{"v":[{"tags":{}}]}',
        '{"v":[{"tags":{"a":null,"b":[],"c":[null,0.5]}},null]}',
    ]


def test_trap_t26_a_type_without_exact_json_is_rejected_at_the_start(golden: Golden) -> None:
    schema = pa.schema({"id": pa.int64(), "every": pa.list_(pa.month_day_nano_interval())})

    with golden.raises(UnsupportedType, match=r"'every\[\]'.*month_day_nano_interval"):
        json_converter(schema)


def written(array: pa.Array) -> list[bytes]:
    batch = pa.record_batch({"v": array})
    rows: list[bytes] = json_converter(batch.schema)(batch).to_pylist()
    return rows


@pytest.mark.parametrize("width", [np.float16, np.float32, np.float64])
def test_trap_t27_what_is_no_number_is_null(width: type) -> None:
    values: Any = np.array([np.nan, np.inf, -np.inf, -0.0, 1.5], width)

    rows = written(pa.array(values))

    assert rows == [b'{"v":null}'] * 3 + [b'{"v":-0}', b'{"v":1.5}']


@pytest.mark.parametrize("width", [np.float16, np.float32, np.float64])
def test_trap_t27_floats_are_as_short_as_their_width_allows(width: type) -> None:
    values: Any = np.array([0.1, 1 / 3, 2.0], width)

    rows = written(pa.array(values))

    shortest = [np.format_float_positional(value, unique=True, trim="-") for value in values]
    assert rows == [f'{{"v":{text}}}'.encode() for text in shortest]


def test_trap_t27_every_control_character_survives_a_strict_parser() -> None:
    """Trap: the JSON output was not valid JSON."""
    texts = [chr(code) * 2 for code in range(0x80)]

    rows = written(pa.array(texts))

    assert [orjson.loads(row)["v"] for row in rows] == texts


def test_trap_t27_lone_surrogates_are_bad_rows_not_bad_json() -> None:
    binary = pa.array([b"fine", b"\xed\xa0\xbd", b"\xed\xb8\x80"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), len(binary), binary.buffers())

    with pytest.raises(CorruptRecord) as caught:
        written(text)

    assert list(caught.value.rows) == [1, 2]


def test_trap_t27_very_large_integers_keep_every_digit() -> None:
    integers = [2**53 + 1, -(2**63), 2**63 - 1]
    decimals = [10**75 + 7, -(10**75) - 7]

    rows = written(pa.array(integers, pa.int64()))
    rows += written(pa.array([Decimal(value) for value in decimals], pa.decimal256(76, 0)))

    assert [json.loads(row)["v"] for row in rows] == [*integers, *decimals]
