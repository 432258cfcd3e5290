"""Avro types, damage and limits; fastavro writes the files and reads what is compared."""

import io
import json
import random
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.avro_cases import MARKER, PAIR, WIDE, locations, wide_rows, written
from tests.laws.laws import Decoded, decoded, extent_of
from tests.support.golden import Golden

from extentflow.converters.json_encoding import json_converter
from extentflow.decoders.avro_writer_schema import DEEPEST
from extentflow.errors import (
    Conflict,
    CorruptObject,
    CorruptRecord,
    UnsupportedFormat,
    UnsupportedType,
)
from extentflow.formats import FORMATS, FormatOptions, row_factor
from extentflow.formats.avro.avro_format import CODECS, Avro
from extentflow.testing.stores import MemorySource


def read(body: bytes, options: FormatOptions | None = None) -> Decoded:
    """Decode an object as one extent."""
    return decoded(Avro(options or FormatOptions()), MemorySource(body), (0, len(body)))


def batch_of(body: bytes) -> pa.RecordBatch:
    """Return the first batch of an object."""
    source = MemorySource(body)
    extent = extent_of(source, 0, len(body))
    return next(Avro(FormatOptions()).decode(source, extent, 0)).batch


def column(avro_type: Any, values: list[Any]) -> pa.Array:  # noqa: ANN401 - JSON
    """Write a column with fastavro and read it."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "c", "type": avro_type}]}
    body = written(schema, [{"c": value} for value in values])
    array = batch_of(body).column(0)
    array.validate(full=True)
    return array


LONGS = [0, -1, 1, 63, -64, 64, 2**31, -(2**31), 2**55, 2**56 - 1, 2**62, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize(
    ("avro_type", "arrow", "values"),
    [
        ("boolean", pa.bool_(), [True, False]),
        ("int", pa.int32(), [0, -1, 2**31 - 1, -(2**31), 300]),
        ("long", pa.int64(), LONGS),
        ("long", pa.int64(), [1, 2, -3]),
        ("float", pa.float32(), [0.0, 1.5, -2.0, float("inf")]),
        ("double", pa.float64(), [0.1, -1e300, float("inf")]),
        ("bytes", pa.binary(), [b"", b"\xff\x00", b"x" * 300]),
        ("string", pa.string(), ["", "é😀", "x" * 20_000]),
        ("null", pa.null(), [None, None]),
    ],
)
def test_primitive_types_keep_every_value(
    avro_type: str, arrow: pa.DataType, values: list[Any]
) -> None:
    if avro_type == "null":
        avro_type, values = ["int", "null"], [None, 1]  # type: ignore[assignment]
        arrow = pa.int32()

    array = column(avro_type, values)

    assert array.type == arrow
    assert array.to_pylist() == values


DAY = datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("avro_type", "arrow", "values"),
    [
        ({"type": "int", "logicalType": "date"}, pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
        (
            {"type": "int", "logicalType": "time-millis"},
            pa.time32("ms"),
            [time(0), time(23, 59, 59, 999000)],
        ),
        (
            {"type": "long", "logicalType": "time-micros"},
            pa.time64("us"),
            [time(0), time(23, 59, 59, 999999)],
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            pa.timestamp("ms", "UTC"),
            [DAY.replace(microsecond=123000)],
        ),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC"), [DAY]),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            pa.timestamp("us"),
            [DAY.replace(tzinfo=None)],
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            pa.decimal128(9, 2),
            [Decimal("0.00"), Decimal("-1234567.89"), Decimal("1.28"), Decimal("-1.28")],
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 5},
            pa.decimal256(60, 5),
            [Decimal(f"{sign}{'9' * 55}.12345") for sign in ("", "-")],
        ),
        (
            {
                "type": "fixed",
                "name": "D",
                "size": 20,
                "logicalType": "decimal",
                "precision": 38,
                "scale": 38,
            },
            pa.decimal128(38, 38),
            [Decimal("0." + "1" * 38), Decimal("-0." + "9" * 38)],
        ),
        ({"type": "fixed", "name": "F", "size": 3}, pa.binary(3), [b"abc", b"\x00\xff1"]),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]},
            pa.dictionary(pa.int32(), pa.string()),
            ["B", "A", "C", "A"],
        ),
    ],
)
def test_logical_and_named_types_are_exact(
    avro_type: dict[str, Any], arrow: pa.DataType, values: list[Any]
) -> None:
    for kind, expected in ((avro_type, values), (["null", avro_type], [None, *values, None])):
        array = column(kind, expected)

        assert array.type == arrow
        assert array.to_pylist() == expected


def test_uuids_in_strings_are_text_and_in_bytes_uuids() -> None:
    values = [UUID(int=7), UUID(int=2**128 - 1)]
    fixed = {"type": "fixed", "name": "U", "size": 16}

    texts = column({"type": "string", "logicalType": "uuid"}, values)
    raw = _with_logical_type(fixed, "uuid", [value.bytes for value in values])

    assert texts.to_pylist() == [str(value) for value in values]
    assert raw.type == pa.uuid()
    assert raw.to_pylist() == values


def _with_logical_type(fixed: dict[str, Any], name: str, values: list[bytes]) -> pa.Array:
    # fastavro does not write every logical type: here it writes the storage of values and null.
    schema = ["null", {**fixed, "note": "x" * len(f'"logicalType": "{name}"')}]
    body = written(schema, [*values, None])
    array = batch_of(
        body.replace(
            json.dumps({"note": schema[1]["note"]})[1:-1].encode(),  # type: ignore[index]
            f'"logicalType": "{name}"'.ljust(len(json.dumps(schema[1]["note"])) + 8).encode(),  # type: ignore[index]
        )
    ).column(0)
    assert array[-1].as_py() is None
    return array.slice(0, len(values))


def test_timestamps_in_nanoseconds_and_unknown_logical_types_keep_their_numbers() -> None:
    nanos = column({"type": "long", "logicalType": "timestamp-nanos"}, [1, -(2**63) + 1])
    odd = column({"type": "long", "logicalType": "made-up"}, [7])

    assert nanos.type == pa.timestamp("ns", "UTC")
    assert nanos.cast(pa.int64()).to_pylist() == [1, -(2**63) + 1]
    assert odd.to_pylist() == [7]


def test_a_duration_is_months_days_and_milliseconds() -> None:
    raw = b"".join(part.to_bytes(4, "little") for part in (1, 2**32 - 1, 3))

    array = column(
        {"type": "fixed", "name": "T", "size": 12, "logicalType": "duration"}, [raw, bytes(12)]
    )

    assert array.to_pylist()[0] == {"months": 1, "days": 2**32 - 1, "milliseconds": 3}


def test_a_union_of_several_types_has_one_member_per_branch() -> None:
    kind = ["null", "int", "string", {"type": "array", "items": "int"}]

    array = column(kind, [1, "x", None, [2, 3], []])

    nothing = {"int": None, "string": None, "array": None}
    assert array.to_pylist() == [
        {**nothing, "int": 1},
        {**nothing, "string": "x"},
        None,
        {**nothing, "array": [2, 3]},
        {**nothing, "array": []},
    ]


def test_maps_and_nested_lists_are_read() -> None:
    values = [{"a": [1, None]}, {}, {"x": [], "y": [2, 3, 4]}]

    array = column({"type": "map", "values": {"type": "array", "items": ["null", "int"]}}, values)

    assert [dict(row) for row in array.to_pylist()] == values


def test_list_blocks_with_sizes_are_read() -> None:
    # Java writes a negative count and the size in bytes.
    schema = {"type": "array", "items": "int"}
    header = written(schema, [[5]], block_bytes=1)
    one = b"\x03\x04\x02\x04" + b"\x01\x02\x06" + b"\x00"  # -2, 2 bytes, 1 2; -1, 1 byte, 3; end
    start = header.index(MARKER) + 16
    body = header[:start] + bytes([2, 2 * len(one)]) + one + MARKER

    assert read(body).rows == [{"value": [1, 2, 3]}]


def test_types_are_found_by_name_and_namespace() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "int"}]}
    schema = {
        "type": "record",
        "name": "R",
        "namespace": "com.acme",
        "fields": [{"name": "a", "type": inner}, {"name": "b", "type": ["null", "com.acme.I"]}],
    }
    rows = [{"a": {"n": 1}, "b": {"n": 2}}, {"a": {"n": 3}, "b": None}]

    assert read(written(schema, rows)).rows == rows


SCALARS = st.sampled_from(["int", "long", "string", "bytes", "double", "boolean"])


def _schemas() -> st.SearchStrategy[Any]:
    def wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            st.builds(lambda kind: {"type": "array", "items": kind}, inner),
            st.builds(lambda kind: {"type": "map", "values": kind}, inner),
            st.builds(lambda kind: ["null", kind], inner.filter(lambda k: not isinstance(k, list))),
            st.lists(inner, min_size=1, max_size=4).map(
                lambda kinds: {
                    "type": "record",
                    "name": "X",
                    "fields": [{"name": f"f{n}", "type": kind} for n, kind in enumerate(kinds)],
                }
            ),
        )

    return st.recursive(SCALARS, wider, max_leaves=8)


def _named(schema: Any, names: Any) -> Any:  # noqa: ANN401 - JSON
    # Every record gets a name of its own.
    if isinstance(schema, list):
        return [_named(each, names) for each in schema]
    if isinstance(schema, dict):
        named = {key: _named(value, names) for key, value in schema.items() if key != "fields"}
        if "fields" in schema:
            named["name"] = f"X{next(names)}"
            named["fields"] = [
                {"name": each["name"], "type": _named(each["type"], names)}
                for each in schema["fields"]
            ]
        return named
    return schema


def _value(schema: Any, chance: random.Random) -> Any:  # noqa: ANN401 - JSON
    if isinstance(schema, list):
        return _value(chance.choice(schema), chance)
    if isinstance(schema, dict):
        if schema["type"] == "array":
            return [_value(schema["items"], chance) for _ in range(chance.choice([0, 0, 1, 3]))]
        if schema["type"] == "map":
            keys = [str(key) for key in range(chance.choice([0, 1, 2]))]
            return {key: _value(schema["values"], chance) for key in keys}
        return {each["name"]: _value(each["type"], chance) for each in schema["fields"]}
    of_type: dict[str, Callable[[], Any]] = {
        "null": lambda: None,
        "int": lambda: chance.getrandbits(chance.choice([3, 30])) - 5,
        "long": lambda: chance.getrandbits(chance.choice([3, 30, 63])) * chance.choice([1, -1]),
        "string": lambda: "é" * chance.choice([0, 1, 80]),
        "bytes": lambda: chance.randbytes(chance.choice([0, 1, 80])),
        "double": chance.random,
        "boolean": lambda: chance.random() < 0.5,
    }
    return of_type[schema]()


def _plain(schema: Any, value: Any) -> Any:  # noqa: ANN401 - JSON
    # Arrow's maps are lists of pairs.
    if isinstance(schema, list):
        return None if value is None else _plain(schema[1], value)
    if isinstance(schema, dict):
        if schema["type"] == "array":
            return [_plain(schema["items"], each) for each in value]
        if schema["type"] == "map":
            return [(key, _plain(schema["values"], each)) for key, each in value.items()]
        return {
            each["name"]: _plain(each["type"], value[each["name"]]) for each in schema["fields"]
        }
    return value


@given(schema=_schemas(), seed=st.integers(0, 1 << 30), blocks=st.sampled_from([1, 100, 1 << 20]))
@settings(max_examples=60, deadline=None)
def test_any_schema_yields_what_fastavro_reads(schema: Any, seed: int, blocks: int) -> None:  # noqa: ANN401
    counter = iter(range(1000))
    record = {
        "type": "record",
        "name": "Top",
        "fields": [{"name": "c", "type": _named(schema, counter)}, {"name": "end", "type": "int"}],
    }
    chance = random.Random(seed)
    rows = [_value(record, chance) for _ in range(chance.choice([1, 2, 40]))]
    body = written(record, rows, block_bytes=blocks)

    result = read(body)

    again = [_plain(record, row) for row in fastavro.reader(io.BytesIO(body))]
    assert result.rows == again
    assert result.locations == locations(body)


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"])
def test_every_codec_is_read(codec: str) -> None:
    rows = wide_rows(300)

    result = read(written(WIDE, rows, codec=codec, block_bytes=3000))

    assert result.rows == rows
    assert codec.encode() in CODECS


# -- refused before the first record ---------------------------------------------------------------


def with_schema(schema: Any, codec: str = "null") -> bytes:  # noqa: ANN401 - JSON
    """Return a header with a schema that no writer would take."""
    entries = [("avro.schema", json.dumps(schema)), ("avro.codec", codec)]
    out = io.BytesIO(b"Obj\x01")
    out.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(
        out,
        {"type": "map", "values": "bytes"},
        {key: value.encode() for key, value in entries},
    )
    return out.getvalue() + MARKER


def plan(body: bytes) -> list[tuple[int, int]]:
    return list(Avro(FormatOptions()).plan(MemorySource(body), 1000))


NODE: dict[str, Any] = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}


def _deep(levels: int) -> Any:  # noqa: ANN401 - JSON
    kind: Any = "int"
    for _ in range(levels):
        kind = {"type": "array", "items": kind}
    return kind


def _doubling(levels: int) -> dict[str, Any]:
    # Each record holds the previous one twice.
    kind: Any = "int"
    for level in range(levels):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"L{level - 1}"}]
        kind = {"type": "record", "name": f"L{level}", "fields": fields[: 2 if level else 1]}
    return dict(kind)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (NODE, "'next' has the type 'Node', which contains itself"),
        (_deep(DEEPEST + 1), "nested deeper than 64 types"),
        (_doubling(20), "has more than 10000 types"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 77},
            "a decimal of 77 digits, Arrow has 76",
        ),
        ({"type": "record", "name": "R", "fields": []}, "take no bytes"),
        ({"type": "array", "items": "null"}, "an array of items that take no bytes"),
    ],
)
def test_schemas_without_arrow_types_are_refused_at_planning(schema: Any, reason: str) -> None:  # noqa: ANN401
    with pytest.raises(UnsupportedType, match=reason) as caught:
        plan(with_schema(schema))

    assert str(caught.value).startswith("s3://memory/object")


@pytest.mark.parametrize(
    "schema",
    [
        "unknown",
        {"type": "record", "name": "R"},
        {"type": "record", "name": "R", "fields": [{"name": "a"}]},
        {"type": "enum", "name": "E", "symbols": ["A", "A"]},
        {"type": "fixed", "name": "F", "size": -1},
        [],
        ["int", "int"],
        {"type": ["int", "int"]},
        [{"type": ["int", "int"]}, "int"],
        7,
        {"type": "record", "fields": []},
    ],
)
def test_invalid_schemas_are_corrupt(schema: Any) -> None:  # noqa: ANN401 - JSON
    with pytest.raises(CorruptObject, match="invalid Avro schema"):
        plan(with_schema(schema))


def test_an_unknown_codec_is_refused_with_the_known_ones(golden: Golden) -> None:
    with golden.raises(UnsupportedFormat, match="'lz4'"):
        plan(with_schema("int", "lz4"))


def test_other_objects_are_refused(golden: Golden) -> None:
    with golden.raises(UnsupportedFormat, match=r"input\.format"):
        plan(b"a,b\n1,2\n")
    with pytest.raises(UnsupportedFormat, match=r"begins as gzip"):
        plan(b"\x1f\x8b" + bytes(300))


@pytest.mark.parametrize("cut", [5, 40, -1])
def test_a_truncated_header_is_corrupt(cut: int, golden: Golden) -> None:
    with golden.raises(CorruptObject):
        plan(with_schema("int")[:cut])


# -- damage and limits -----------------------------------------------------------------------------

ROWS = [{"n": n, "s": f"text {n}"} for n in range(40)]
MANY = [{"n": n, "s": f"text {n}"} for n in range(2000)]
BODY = written(PAIR, ROWS, block_bytes=60)
STARTS = [block.offset for block in fastavro.block_reader(io.BytesIO(BODY))]


@pytest.mark.parametrize("cut", [1, 16, 17, 30])
def test_a_truncated_object_is_corrupt(cut: int, golden: Golden) -> None:
    with golden.raises(CorruptObject):
        read(BODY[:-cut])


def test_damaged_blocks_hold_no_memory() -> None:
    """Trap: Arrow's `read` lost what it had allocated, the limit of a block, when it raised."""
    damaged = b"\x28\xb5\x2f\xfd\x20\x01\x0f\0\0a"
    tracemalloc.start()
    try:
        for _ in range(20):
            with pytest.raises(OSError, match="ZSTD"):
                CODECS[b"zstandard"](damaged, 1 << 20)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < 1 << 20


def test_a_damaged_marker_is_corrupt(golden: Golden) -> None:
    body = bytearray(BODY)
    body[STARTS[3] - 1] ^= 1

    with golden.raises(CorruptObject):
        read(bytes(body))


# -- markers within blocks -------------------------------------------------------------------------

BYTES = {"type": "record", "name": "R", "fields": [{"name": "c", "type": "bytes"}]}


def number(value: int) -> bytes:
    """Encode a number that is not negative."""
    bits, parts = value << 1, b""
    while bits > 0x7F:
        bits, parts = bits >> 7, parts + bytes([bits & 0x7F | 0x80])
    return parts + bytes([bits])


def block(values: list[bytes]) -> bytes:
    """Return a block without the marker behind it."""
    records = b"".join(number(len(value)) + value for value in values)
    return number(len(values)) + number(len(records)) + records


def marked(blocks: list[list[bytes]], marker: bytes) -> bytes:
    head = io.BytesIO()
    fastavro.writer(head, BYTES, [], sync_marker=marker)
    return head.getvalue() + b"".join(block(values) + marker for values in blocks)


def values_by(body: bytes, extent_bytes: int) -> list[bytes]:
    """Decode the extents that are planned with a size."""
    source, fmt = MemorySource(body), Avro(FormatOptions())
    result = [decoded(fmt, source, cut) for cut in fmt.plan(source, extent_bytes)]
    assert not any(part.bad for part in result)
    return [row["c"] for part in result for row in part.rows]


FALSE = block([b"false", b"records"])
INSIDE = {
    "a block that ends where the true one does": MARKER + FALSE,
    "blocks and more bytes": MARKER + FALSE + MARKER + FALSE + MARKER + b"z" * 9,
    "no block": MARKER + b"\xff" * 40,
    "a size beyond the object": MARKER + number(1) + number(1 << 40),
    "nothing": MARKER,
}


@pytest.mark.parametrize("inside", INSIDE)
def test_a_block_that_contains_the_marker_is_read_exactly_or_fails(inside: str) -> None:
    blocks = [[b"a", b"b" * 70, INSIDE[inside]], [b"c"], [b"d" * 40, INSIDE[inside], b"e"], [b"f"]]
    body, exact = marked(blocks, MARKER), 0

    for extent_bytes in range(1, len(body) + 1):
        with suppress(CorruptObject):
            assert values_by(body, extent_bytes) == [value for each in blocks for value in each]
            exact += 1

    assert 1 <= exact < len(body)


@pytest.mark.parametrize("marker", [bytes(16), b"ab" * 8, b"\x02\x04" * 8, b"0123456" * 2 + b"01"])
def test_an_object_whose_marker_is_not_random_is_one_extent(marker: bytes) -> None:
    blocks = [
        [b"a", marker * 3 + b"b", marker[1:]],
        [marker + block([b"x"])],
        [b"d" * 40],
        [marker],
    ]
    body = marked(blocks, marker)

    for extent_bytes in range(1, len(body) + 1):
        assert values_by(body, extent_bytes) == [value for each in blocks for value in each]


def test_a_block_that_contains_the_marker_is_reported_with_a_remedy(golden: Golden) -> None:
    blocks = [[b"a", MARKER + FALSE], [b"c" * 40]]
    body = marked(blocks, MARKER)

    with golden.raises(CorruptObject, match=f"{len(body)}"):
        values_by(body, body.index(FALSE))


def test_a_damaged_block_is_one_bad_record_and_the_others_are_delivered() -> None:
    body = bytearray(BODY)
    body[STARTS[2] + 3] = 0x0D  # the branch of the second field: -7

    result = read(bytes(body))

    ((location, raw, reason),) = result.bad
    assert (location, raw) == (STARTS[2] * row_factor(len(BODY)), None)
    assert f"s3://memory/object[{STARTS[2]}-{STARTS[3]}): an Avro block of" in reason
    lost = [row for row, at in zip(ROWS, locations(BODY), strict=True) if not _in_block(at, 2)]
    assert result.rows == lost


def _in_block(location: int, block: int) -> bool:
    return location // row_factor(len(BODY)) == STARTS[block]


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard", "bzip2", "xz"])
def test_content_that_cannot_be_decompressed_is_one_bad_record(codec: str) -> None:
    body = bytearray(written(PAIR, MANY, codec=codec, block_bytes=4000))
    blocks = [block.offset for block in fastavro.block_reader(io.BytesIO(bytes(body)))]
    middle = (blocks[1] + blocks[2] - 16) // 2
    body[middle : middle + 4] = bytes(byte ^ 0xFF for byte in body[middle : middle + 4])

    result = read(bytes(body))

    assert [location // row_factor(len(body)) for location, _, _ in result.bad] == [blocks[1]]
    assert 0 < len(result.rows) < len(MANY)


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard", "bzip2", "xz"])
def test_a_bomb_is_one_bad_record_in_bounded_memory(codec: str) -> None:
    body = written("string", ["x" * 20_000_000], codec=codec)

    tracemalloc.start()
    result = read(body, FormatOptions(max_record_bytes=1 << 20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    ((_, _, reason),) = result.bad
    assert "larger than 1048576 bytes" in reason
    assert peak < 16 << 20


def test_a_block_larger_than_the_limit_is_refused(golden: Golden) -> None:
    body = written("string", ["x" * 3000])

    with golden.raises(UnsupportedFormat, match="1000"):
        read(body, FormatOptions(max_record_bytes=1000))


def test_claimed_counts_do_not_take_memory(golden: Golden) -> None:
    header = written({"type": "array", "items": "int"}, [])
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    lists = header + bytes([2, 2 * len(huge)]) + huge + MARKER
    records = header + huge + bytes([2]) + b"\x00" + MARKER

    assert "more items than bytes" in read(lists).bad[0][2]
    with golden.raises(UnsupportedFormat):
        read(records)


def test_resuming_outside_the_extent_is_a_conflict() -> None:
    source = MemorySource(BODY)
    factor = row_factor(len(BODY))
    extent = extent_of(source, STARTS[3], len(BODY))

    for position in (STARTS[1] * factor, STARTS[3] * factor + 1000):
        with pytest.raises(Conflict):
            list(Avro(FormatOptions()).decode(source, extent, position))


@pytest.mark.parametrize("size", [1, 10**9, 9 * 10**9, 10**12, 50 * 2**40])
def test_every_location_fits_into_64_bits(size: int) -> None:
    factor = row_factor(size)

    assert (size + 1) * factor < 2**63
    assert factor >= 10**5


def test_mutated_files_raise_typed_errors_only() -> None:
    chance = random.Random(7)
    bodies = [
        written(WIDE, wide_rows(30), codec=codec, block_bytes=300) for codec in ("null", "deflate")
    ]
    for _ in range(200):
        body = bytearray(chance.choice(bodies))
        for _ in range(chance.choice([1, 1, 4])):
            body[chance.randrange(len(body))] = chance.randrange(256)
        with suppress(CorruptObject, UnsupportedFormat, UnsupportedType, CorruptRecord):
            source = MemorySource(bytes(body))
            for chunk in Avro(FormatOptions()).decode(source, extent_of(source, 0, len(body)), 0):
                # Text is checked by the converters.
                json_converter(chunk.batch.schema)(chunk.batch)


def test_the_registered_format_recognises_its_objects() -> None:
    assert FORMATS.get("avro").extensions == ("avro",)


@pytest.mark.parametrize(("stated", "lost"), [(2, 0), (1, 1), (0, 1)])
@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_block_whose_count_is_wrong_is_a_bad_record(stated: int, lost: int, codec: str) -> None:
    """Trap: a block that states no record was passed over, with the records in it."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}

    def block(count: int, content: bytes) -> bytes:
        packed = content if codec == "null" else zlib.compress(content, wbits=-15)
        return bytes([count << 1, len(packed) << 1]) + packed + MARKER

    body = with_schema(schema, codec) + block(stated, b"\x02\x04") + block(1, b"\x06")

    result = read(body)

    assert result.rows == [{"a": 1}, {"a": 2}, {"a": 3}][2 * lost :]
    assert len(result.bad) == lost


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2"])
def test_an_empty_block_is_none(codec: str) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}

    assert read(with_schema(schema, codec) + bytes([0, 0]) + MARKER).bad == []
