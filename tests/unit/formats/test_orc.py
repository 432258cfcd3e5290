"""ORC types, damage and limits; pyorc and pyarrow write the files."""

import random
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyorc
import pytest
from tests.laws.laws import Decoded, decoded, extent_of
from tests.laws.orc_cases import LARGE, by_pyarrow, by_pyorc, joined

from extentflow.converters.json import json_converter
from extentflow.errors import (
    Conflict,
    CorruptObject,
    CorruptRecord,
    UnsupportedFormat,
    UnsupportedType,
)
from extentflow.formats import FORMATS, FormatOptions
from extentflow.formats.orc import Orc, parse_fields, read_tail, write_fields
from extentflow.testing.stores import MemorySource

FLAT = next(sample for sample in LARGE if sample.name == "flat")


def read(body: bytes, options: FormatOptions | None = None) -> Decoded:
    """Decode an object as one extent."""
    return decoded(Orc(options or FormatOptions()), MemorySource(body), (0, len(body)))


def plan(body: bytes, target_bytes: int = 1) -> list[tuple[int, int]]:
    return list(Orc(FormatOptions()).plan(MemorySource(body), target_bytes))


@pytest.mark.parametrize(
    ("orc_type", "arrow", "values"),
    [
        ("boolean", pa.bool_(), [True, None, False]),
        ("tinyint", pa.int8(), [-128, 127]),
        ("smallint", pa.int16(), [-(2**15), None]),
        ("int", pa.int32(), [2**31 - 1, 0]),
        ("bigint", pa.int64(), [-(2**63), 2**63 - 1]),
        ("float", pa.float32(), [1.5, None]),
        ("double", pa.float64(), [0.1, -1e300]),
        ("string", pa.string(), ["", "é😀", None]),
        ("varchar(3)", pa.string(), ["abc"]),
        ("binary", pa.binary(), [b"\xff\x00", b""]),
        ("date", pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
        ("decimal(20,5)", pa.decimal128(20, 5), [Decimal("12345.67891"), None]),
        ("decimal(38,0)", pa.decimal128(38, 0), [Decimal("9" * 38), Decimal(-1)]),
        ("timestamp", pa.timestamp("ns"), [datetime(1969, 12, 31, 23, 59, 58, 999999)]),  # noqa: DTZ001
        (
            "timestamp with local time zone",
            pa.timestamp("ns", "UTC"),
            [datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC)],
        ),
        ("array<int>", pa.list_(pa.int32()), [[1, None], [], None]),
        ("map<string,int>", pa.map_(pa.string(), pa.int32()), [{"a": 1}, {}]),
    ],
)
@pytest.mark.parametrize("compression", [pyorc.CompressionKind.NONE, pyorc.CompressionKind.ZLIB])
def test_every_type_is_exact(
    orc_type: str, arrow: pa.DataType, values: list[Any], compression: pyorc.CompressionKind
) -> None:
    body = by_pyorc(f"struct<c:{orc_type}>", [{"c": v} for v in values], compression=compression)

    rows = [row["c"] for row in read(body).rows]

    field = read_tail(MemorySource(body)).schema.field("c")
    assert str(field.type) == str(arrow)
    if pa.types.is_map(arrow):
        rows = [dict(row) for row in rows]
    assert rows == values


def test_a_timestamp_beyond_nanoseconds_is_not_delivered_wrong() -> None:
    body = by_pyorc("struct<t:timestamp>", [{"t": datetime(9999, 1, 1)}])  # noqa: DTZ001

    result = read(body)

    ((location, _, reason),) = result.bad
    assert (result.rows, location) == ([], 0)
    assert "out of range for nanosecond resolution" in reason


@pytest.mark.parametrize("compression", ["zlib", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(compression: str) -> None:
    table = pa.table({"n": range(5000), "s": [f"text {n}" for n in range(5000)]})

    result = read(by_pyarrow(table, compression=compression, stripe_size=1024))

    assert result.rows == table.to_pylist()


def test_stripes_that_are_larger_than_what_is_held_are_read_in_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("extentflow.formats.orc.LARGEST_HELD_BYTES", 0)

    assert read(FLAT.body).rows == FLAT.rows


def test_a_plan_cuts_where_stripes_begin() -> None:
    stripes = read_tail(MemorySource(FLAT.body)).stripes

    assert [start for start, _ in plan(FLAT.body)] == [0, *(s.start for s in stripes[1:])]
    assert plan(FLAT.body, 1 << 30) == [(0, len(FLAT.body))]
    assert plan(b"") == []


# -- refused before the first record ---------------------------------------------------------------


def test_other_objects_are_refused() -> None:
    with pytest.raises(UnsupportedFormat, match=r"is not an ORC file .*set input\.format"):
        plan(b"a,b\n1,2\n")
    with pytest.raises(UnsupportedFormat, match="begins as gzip"):
        plan(b"\x1f\x8b" + bytes(300))


@pytest.mark.parametrize("cut", [1, 10, 40, 100])
def test_a_truncated_object_is_corrupt(cut: int) -> None:
    with pytest.raises(CorruptObject, match=r"s3://memory/object\[0-\d+\) has an unreadable foote"):
        plan(FLAT.body[:-cut])


def test_two_columns_of_one_name_are_refused() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])

    with pytest.raises(UnsupportedType, match="two columns of one name"):
        plan(by_pyarrow(table))


def test_a_footer_that_contradicts_its_stripes_is_corrupt() -> None:
    plain = pyorc.CompressionKind.NONE
    body = by_pyorc("struct<a:int>", [{"a": 1}], compression=plain)
    postscript = body[-1 - body[-1] : -1]
    (length,) = (value for key, value in parse_fields(postscript) if key == 1)
    assert isinstance(length, int)
    at = len(body) - 1 - body[-1] - length
    fields = [
        (key, 7 if key == 6 else value) for key, value in parse_fields(body[at : at + length])
    ]
    broken = body[:at] + write_fields(fields) + body[at + length :]

    with pytest.raises(CorruptObject, match="states 7 rows, its stripes hold 1"):
        plan(broken)


# -- damage ----------------------------------------------------------------------------------------


def test_a_stripe_that_cannot_be_decoded_is_one_bad_record_and_the_next_is_delivered() -> None:
    rows = [{"s": f"text {n}"} for n in range(2000)]
    plain = pyorc.CompressionKind.NONE
    parts = [
        by_pyorc("struct<s:string>", part, compression=plain) for part in (rows[:1000], rows[1000:])
    ]
    body = bytearray(joined(parts))
    first, second = read_tail(MemorySource(bytes(body))).stripes
    # The stripe's footer, a protocol buffer.
    body[second.start - 40 : second.start] = b"\xff" * 40

    result = read(bytes(body))

    ((location, raw, reason),) = result.bad
    assert (location, raw) == (0, None)
    assert f"[{first.start}-{first.end}): rows 0-999 of stripe 0 are lost" in reason
    assert result.rows == rows[1000:]


def test_resuming_outside_the_extent_is_a_conflict() -> None:
    source = MemorySource(FLAT.body)

    with pytest.raises(Conflict, match="has 4000 rows, decoding was to resume at 4001"):
        list(Orc(FormatOptions()).decode(source, extent_of(source, 0, len(FLAT.body)), 4001))


def test_mutated_files_raise_typed_errors_only() -> None:
    chance = random.Random(11)
    bodies = [by_pyorc("struct<a:int,s:string>", [{"a": n, "s": str(n)} for n in range(50)])]
    bodies.append(by_pyarrow(pa.table({"l": [[1, 2], None, []] * 20}), compression="zstd"))
    for _ in range(400):
        body = bytearray(chance.choice(bodies))
        for _ in range(chance.choice([1, 1, 4])):
            body[chance.randrange(len(body))] = chance.randrange(256)
        source = MemorySource(bytes(body))
        with suppress(CorruptObject, UnsupportedFormat, UnsupportedType, CorruptRecord):
            for chunk in Orc(FormatOptions()).decode(source, extent_of(source, 0, len(body)), 0):
                json_converter(chunk.batch.schema)(chunk.batch)


def test_the_registered_format_recognises_its_objects() -> None:
    assert FORMATS.get("orc").extensions == ("orc",)
