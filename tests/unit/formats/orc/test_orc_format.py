"""ORC types, damage and limits; pyorc and pyarrow write the files."""

import random
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyorc
import pytest
import zstandard
from tests.laws.laws import Decoded, decoded, extent_of
from tests.laws.orc_cases import LARGE, by_pyarrow, by_pyorc, joined
from tests.support.golden import Golden

from extentflow.converters.json_encoding import json_converter
from extentflow.errors import (
    Conflict,
    CorruptObject,
    CorruptRecord,
    UnsupportedFormat,
    UnsupportedType,
)
from extentflow.formats import FORMATS, FormatOptions
from extentflow.formats.orc.orc_format import Orc, last_decodable, read_tail
from extentflow.formats.orc.orc_metadata import (
    LARGEST_DICTIONARY,
    Fields,
    check_chunks,
    pack_message,
    parse_fields,
    unpack_message,
    write_fields,
)
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
    monkeypatch.setattr("extentflow.formats.orc.orc_format.LARGEST_HELD_BYTES", 0)

    assert read(FLAT.body).rows == FLAT.rows


def test_a_plan_cuts_where_stripes_begin() -> None:
    stripes = read_tail(MemorySource(FLAT.body)).stripes

    assert [start for start, _ in plan(FLAT.body)] == [0, *(s.start for s in stripes[1:])]
    assert plan(FLAT.body, 1 << 30) == [(0, len(FLAT.body))]


# -- refused before the first record ---------------------------------------------------------------


def test_other_objects_are_refused(golden: Golden) -> None:
    with golden.raises(UnsupportedFormat, match=r"input\.format"):
        plan(b"a,b\n1,2\n")
    with pytest.raises(UnsupportedFormat, match="begins as gzip"):
        plan(b"\x1f\x8b" + bytes(300))


@pytest.mark.parametrize("cut", [1, 10, 40, 100])
def test_a_truncated_object_is_corrupt(cut: int, golden: Golden) -> None:
    with golden.raises(CorruptObject):
        plan(FLAT.body[:-cut])


@pytest.mark.parametrize("folder", ["delta_0000002_0000002", "delete_delta_0000003_0000003"])
def test_changes_of_a_transactional_table_are_refused(folder: str, golden: Golden) -> None:
    change = (
        "struct<operation:int,originalTransaction:bigint,bucket:int,rowId:bigint,"
        "currentTransaction:bigint,row:struct<id:int>>"
    )
    body = by_pyorc(change, [(2, 1, 0, 0, 3, None)], struct_repr=pyorc.StructRepr.TUPLE)
    source = MemorySource(body)

    source.version = replace(source.version, key=f"t/{folder}/bucket_00000")
    with golden.raises(UnsupportedFormat, match="transactional table of Hive"):
        decoded(Orc(FormatOptions()), source, (0, len(body)))
    # A compaction applies deletes.
    source.version = replace(source.version, key="t/base_0000003/bucket_00000")
    assert decoded(Orc(FormatOptions()), source, (0, len(body))).rows
    # The folder itself was given as the address of local files.
    source.version = replace(source.version, bucket="/lake/t/base_0000003", key="bucket_00000")
    assert decoded(Orc(FormatOptions()), source, (0, len(body))).rows


def test_two_columns_of_one_name_are_refused(golden: Golden) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])

    with golden.raises(UnsupportedType):
        plan(by_pyarrow(table))


def test_a_footer_that_contradicts_its_stripes_is_corrupt(golden: Golden) -> None:
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

    with golden.raises(CorruptObject):
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


def one_stripe(kind: str, rows: list[Any]) -> bytes:
    """Return a file of one stripe that is not compressed."""
    options = {"compression": pyorc.CompressionKind.NONE, "stripe_size": 1 << 20}
    return by_pyorc(f"struct<c:{kind}>", rows, **options)


def with_other_footers(
    body: bytes,
    *,
    stripe: Callable[[Fields], Fields] = lambda fields: fields,
    file: Callable[[Fields], Fields] = lambda fields: fields,
) -> bytes:
    """Return a file of one stripe with other fields in the stripe's footer and in the file's."""
    tail = read_tail(MemorySource(body))
    (only,) = tail.stripes
    place = dict(parse_fields(only.message))
    at = only.end - int(place[4])
    inner = write_fields(stripe(parse_fields(body[at : only.end])))
    place[4] = len(inner)
    message = write_fields(sorted(place.items()))
    fields = [(key, message if key == 3 else value) for key, value in tail.footer]
    footer = write_fields(file(fields))
    kept = [(key, value) for key, value in tail.postscript if key not in (1, 5)]
    postscript = write_fields([(1, len(footer)), (5, 0), *kept])
    return body[:at] + inner + footer + postscript + bytes([len(postscript)])


def with_stream(kind: int, column: int, length: int) -> Callable[[Fields], Fields]:
    """Return a change of a stripe's footer: the length of a stream, which is added if new."""

    def change(fields: Fields) -> Fields:
        stream = write_fields([(1, kind), (2, column), (3, length)])
        prefix = write_fields([(1, kind), (2, column)])
        is_it = [key == 1 and bytes(value).startswith(prefix) for key, value in fields]
        if not any(is_it):
            return [*fields, (1, stream)]
        return [(1, stream) if it else field for it, field in zip(is_it, fields, strict=True)]

    return change


def with_type(column: int, message: Fields) -> Callable[[Fields], Fields]:
    """Return a change of a file's footer: another type of a column, which may be a new one."""

    def change(fields: Fields) -> Fields:
        types = [value for key, value in fields if key == 4]
        types[column:] = [write_fields(message), *types[column + 1 :]]
        return [*(field for field in fields if field[0] != 4), *((4, one) for one in types)]

    return change


def without_last_bytes(rows: list[Any], missing: int) -> bytes:
    """Return a stripe of texts whose bytes end early; a Bloom filter, not read, has the rest."""
    size = sum(len(row["c"]) for row in rows)
    sizes = {1: size - missing, 8: missing}
    data, rest = (write_fields([(1, kind), (2, 1), (3, sizes[kind])]) for kind in sizes)

    def shorter(fields: Fields) -> Fields:
        changed = with_stream(1, 1, size - missing)(fields)
        at = changed.index((1, data)) + 1
        return [*changed[:at], (1, rest), *changed[at:]]

    return with_other_footers(one_stripe("string", rows), stripe=shorter)


@pytest.mark.parametrize("missing", [40, 100, 200])
def test_the_rows_before_the_batch_that_fails_are_delivered_every_time(missing: int) -> None:
    """Arrow drops a varying number of them, because it reads ahead."""
    rows = [{"c": f"text {n}"} for n in range(64)]
    body = without_last_bytes(rows, missing)
    options = FormatOptions(batch_rows=4)

    results = [read(body, options) for _ in range(20)]

    decoded_rows = (64 - missing // 7) // 4 * 4
    ((location, _, reason),) = results[0].bad
    assert location == pytest.approx(decoded_rows, abs=4)
    assert location % 4 == 0
    assert results[0].rows == rows[:location]
    assert f"rows {location}-63 of stripe 0 are lost" in reason
    assert all(result == results[0] for result in results)


ROWS = [{"c": f"text {n}"} for n in range(9)]


def test_the_search_for_the_last_decodable_rows_ends_at_every_place_of_damage() -> None:
    found = {
        # The places of damage between two steps are alike: one of each, and the borders.
        (rows, step, damaged): search(rows, step, damaged)
        for step in (1, 3, 1_024)
        for rows in range(1, 100 if step < 1_024 else 5_001)
        for damaged in (
            range(rows)
            if step < 1_024
            else {*range(0, rows, step), *range(step - 1, rows, step), rows - 1}
        )
    }

    assert len(found) > 20_000
    wrong = [
        case
        for case, rows in found.items()
        if rows % case[1] or not rows <= case[2] < rows + case[1]
    ]
    assert not wrong


def search(rows: int, step: int, damaged: int) -> int:
    """Return the result of a search in a stripe whose row `damaged` cannot be decoded."""
    calls = 0

    def decodes(count: int) -> bool:
        nonlocal calls
        calls += 1
        assert calls <= rows.bit_length(), f"no end: {rows} rows, steps of {step}, {damaged}"
        return count <= damaged

    return last_decodable(0, rows, step, decodes)


@pytest.mark.parametrize("rows", [1_025, 1_200, 2_047, 2_500])
def test_a_stripe_of_steps_and_a_part_of_one_loses_its_last_rows_only(rows: int) -> None:
    body = without_last_bytes(texts := [{"c": f"text {n}"} for n in range(rows)], 1)

    result = read(body)

    ((location, _, reason),) = result.bad
    assert location == rows // 1_024 * 1_024
    assert result.rows == texts[:location]
    assert f"rows {location}-{rows - 1} of stripe 0 are lost" in reason


@pytest.mark.parametrize(
    ("stripe", "reason"),
    [
        (with_stream(2, 1, (1 << 64) - 1), "its streams do not have the length of the stripe"),
        (with_stream(1, 1, 5), "its streams do not have the length of the stripe"),
        (with_stream(1 << 32, 1, 1), "a stream of kind 4294967296 of column 1"),
        (lambda fields: [*fields, (3, b"../../../dev/zero")], "its time zone is '../../../dev/ze"),
        (
            lambda fields: [*fields, (2, write_fields([(1, 3), (2, LARGEST_DICTIONARY + 1)]))],
            "it claims a dictionary of 33554433 entries",
        ),
        (lambda _: [(1, b"\x08")], "its footer is damaged: a number that does not end"),
    ],
)
def test_a_stripe_footer_that_arrow_must_not_read_is_lost_rows(
    stripe: Callable[[Fields], Fields], reason: str, golden: Golden
) -> None:
    body = with_other_footers(one_stripe("string", ROWS), stripe=stripe)

    ((location, _, why),) = read(body).bad

    assert location == 0
    golden(why)
    assert "0-8" in why
    assert reason in why


def test_null_keys_of_maps_are_lost_rows_and_do_not_end_the_process(golden: Golden) -> None:
    """The file is valid, and Arrow aborts."""
    body = one_stripe("map<string,int>", [{"c": {"a": 1}}, {"c": {None: 2}}])

    ((_, _, why),) = read(body).bad

    golden(why)
    assert "column 2" in why


def test_unions_are_refused_because_nulls_end_the_process(golden: Golden) -> None:
    body = one_stripe("array<uniontype<int,string>>", [{"c": [1, "x", None]}])

    with golden.raises(UnsupportedType, match="s3://memory/object.*'c'"):
        plan(body)


@pytest.mark.parametrize(
    ("column", "message", "reason"),
    [
        (1, [(1, 14), (5, 39), (6, 2)], r"type 1 is a decimal\(39,2\)"),
        (1, [(1, 14), (5, 9), (6, 10)], r"type 1 is a decimal\(9,10\)"),
        (1, [(1, 12)], "type 1 is a struct without members"),
        (1, [(1, 99)], "type 1 is of an unknown kind, 99"),
        (1, [(1, 10), (2, 2)], "type 2 is missing"),
        (2, [(1, 3)], "type 2 is not a part of the schema"),
    ],
)
def test_types_that_arrow_must_not_read_are_corrupt(
    column: int, message: Fields, reason: str
) -> None:
    # Arrow checks links and kinds itself, in other words.
    body = with_other_footers(one_stripe("string", ROWS), file=with_type(column, message))

    with pytest.raises(CorruptObject, match=rf"has an unreadable footer: .*({reason}|not exists)"):
        plan(body)


def test_types_that_are_nested_too_deep_are_corrupt(golden: Golden) -> None:
    body = one_stripe("array<" * 70 + "int" + ">" * 70, [])

    with golden.raises(CorruptObject):
        plan(body)


def test_chunks_of_more_bytes_than_their_header_can_say_are_corrupt(golden: Golden) -> None:
    body = one_stripe("int", [{"c": 1}])
    length = body[-1]
    kept = [field for field in parse_fields(body[-1 - length : -1]) if field[0] not in (2, 3)]
    postscript = write_fields([*kept, (2, 1), (3, 1 << 40)])

    with golden.raises(CorruptObject, match="1099511627776"):
        plan(body[: -1 - length] + postscript + bytes([len(postscript)]))


@pytest.mark.parametrize("kind", [1, 2, 4, 5])
@pytest.mark.parametrize("size", [0, 1, 14, 300, 5_000])
def test_messages_are_unpacked_with_every_codec(kind: int, size: int) -> None:
    message = (b"abcd" * size)[:size] + bytes(random.Random(size).randbytes(size))
    codec = {2: "snappy", 4: "lz4_raw", 5: "zstd"}.get(kind)
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(message) + packer.flush()
    if codec:
        packed = pa.compress(message, codec=codec, asbytes=True)
    stored = (len(packed) << 1).to_bytes(3, "little") + packed + b"\x05\0\0xy"

    assert unpack_message(stored, kind, 1 << 16) == message + b"xy"


def chunk(content: bytes, *, original: bool = False) -> bytes:
    return (len(content) << 1 | original).to_bytes(3, "little") + content


@pytest.mark.parametrize(
    ("kind", "empty"),
    [
        (1, chunk(b"\x03\0")),
        (1, chunk(b"\0\0\0\xff\xff" * 9 + b"\x03\0")),
        (1, chunk(b"")),
        (2, chunk(b"\0")),
        (4, chunk(b"\0")),
        (5, chunk(zstandard.compress(b""))),
        (5, chunk(zstandard.ZstdCompressor(write_content_size=False).compress(b""))),
        (5, chunk(b"\x50\x2a\x4d\x18\3\0\0\0abc" + zstandard.compress(b""))),
        (5, chunk(b"", original=True)),
    ],
)
def test_chunks_without_content_are_found(kind: int, empty: bytes, golden: Golden) -> None:
    codec = {2: "snappy", 4: "lz4_raw"}.get(kind)
    small = b"a"
    packed = {1: zlib.compress(small, wbits=-15), 5: zstandard.compress(b"a" * 300)}.get(kind)
    others = chunk(small, original=True)
    others += chunk(packed or pa.compress(small, codec=codec, asbytes=True))

    lengths = [2 * len(others), 0, len(others)]
    assert check_chunks(others * 3, lengths, kind) == lengths
    behind = [len(others + 2 * empty), len(others), len(empty)]
    assert check_chunks(others + 2 * empty + others + empty, behind, kind) == [
        len(others),
        len(others),
        0,
    ]
    with golden.raises(ValueError, match=f"byte {len(others)}"):
        check_chunks(others + empty + others, [len(others), len(empty + others)], kind)


@pytest.mark.parametrize("streams", [b"\x0b\0\0abc", b"\x0a\0\0\xff\xff\xff\xff\xff"])
@pytest.mark.parametrize("kind", [1, 2, 4, 5])
def test_chunks_that_cannot_be_unpacked_are_left_to_arrow(streams: bytes, kind: int) -> None:
    check_chunks(streams, [len(streams)], kind)


def test_a_chunk_without_content_is_lost_rows_and_no_other_memory() -> None:
    """Trap: Arrow read on behind the chunk, and delivered what it found as values."""
    rows = [{"c": 1.5 * n} for n in range(9)]
    body = by_pyorc("struct<c:double>", rows, compression=pyorc.CompressionKind.ZSTD)
    (stripe,) = read_tail(MemorySource(body)).stripes
    content = body.index(b"\x28\xb5\x2f\xfd", stripe.start)

    result = read(body[: content - 3] + bytes(3) + body[content:])

    ((_, _, reason),) = result.bad
    assert result.rows == []
    assert f"the chunk at byte {content - 3 - stripe.start} of its streams is empty" in reason


@pytest.mark.parametrize("codec", ["ZLIB", "SNAPPY", "LZ4", "ZSTD"])
@pytest.mark.parametrize("values", [[None], [1.5, None, -2.0]])
def test_a_stream_may_end_with_an_empty_chunk(codec: str, values: list[float | None]) -> None:
    """Some writers of Hive's end the values of a column so that has nothing but nulls."""
    rows = [{"c": value} for value in values]
    compression = getattr(pyorc.CompressionKind, codec)
    body = by_pyorc("struct<c:double>", rows, compression=compression)

    changed = with_empty_chunk(body, {"ZLIB": 1, "SNAPPY": 2, "LZ4": 4, "ZSTD": 5}[codec])

    assert read(changed).bad == []
    assert read(changed).rows == rows


def with_empty_chunk(body: bytes, codec: int) -> bytes:
    """Return a file of one stripe with an empty chunk behind its last stream, of values."""
    tail = read_tail(MemorySource(body))
    (stripe,) = tail.stripes
    _, index, data, stored = (
        next(value for key, value in parse_fields(stripe.message) if key == number)
        for number in range(1, 5)
    )
    at = stripe.end - int(stored)
    fields = parse_fields(unpack_message(body[at : stripe.end], codec, 1 << 18))
    last = max(place for place, (key, _) in enumerate(fields) if key == 1)
    stream = parse_fields(bytes(fields[last][1]))
    if dict(stream)[1] == 1:
        grown = [(key, int(value) + 3 if key == 3 else value) for key, value in stream]
        fields[last] = (1, write_fields(grown))
    else:  # without values
        fields.insert(last + 1, (1, write_fields([(1, 1), (2, 1), (3, 3)])))
    footer = pack_message(write_fields(fields), codec, 1 << 18)
    message = write_fields(
        [(1, stripe.start), (2, int(index)), (3, int(data) + 3), (4, len(footer)), (5, stripe.rows)]
    )
    whole = [(key, message if key == 3 else value) for key, value in tail.footer]
    file_footer = pack_message(write_fields(whole), codec, 1 << 18)
    kept = [(key, value) for key, value in tail.postscript if key not in (1, 5)]
    postscript = write_fields([(1, len(file_footer)), (5, 0), *kept])
    ends = file_footer + postscript + bytes([len(postscript)])
    return body[:at] + bytes(3) + footer + ends


@pytest.mark.parametrize(("codec", "name"), [(3, "LZO"), (6, "Brotli"), (9, "codec 9")])
def test_codecs_that_are_not_read_are_refused_by_name(
    codec: int, name: str, golden: Golden
) -> None:
    body = bytearray(by_pyorc("struct<c:int>", [{"c": 1}]))
    postscript = bytes(body[-1 - body[-1] : -1])
    fields = [(key, codec if key == 2 else value) for key, value in parse_fields(postscript)]
    changed = write_fields(fields)

    with golden.raises(UnsupportedFormat, match=name):
        plan(bytes(body[: -1 - len(postscript)]) + changed + bytes([len(changed)]))


@pytest.mark.parametrize("kind", ["int", "array<int>"])
def test_a_root_that_is_no_struct_has_no_columns(kind: str, golden: Golden) -> None:
    with golden.raises(UnsupportedType, match="root"):
        plan(by_pyorc(kind, [[1]] if "<" in kind else [1]))


DECODE = """
import sys
from pathlib import Path
from extentflow.formats import FormatOptions
from extentflow.formats.orc.orc_format import Orc
from extentflow.model import Extent
from extentflow.testing.stores import MemorySource
source = MemorySource(Path(sys.argv[1]).read_bytes())
extent = Extent("job", 0, "connector", source.version, 0, source.version.size, "orc")
print(sum(chunk.batch.num_rows for chunk in Orc(FormatOptions()).decode(source, extent, 0)))
"""


def test_damaged_lengths_of_values_end_the_process_as_documented(tmp_path: Path) -> None:
    """Only reading the streams twice would find them; a worker that dies uses up an attempt."""
    body = one_stripe("string", [{"c": "x" * n} for n in range(1, 11)])
    lengths = b"\xc0\x09\x01\x02"
    assert body.count(lengths) == 1
    path = tmp_path / "object.orc"
    # Each length is 64 less than the one before.
    path.write_bytes(body.replace(lengths, b"\xc0\x09\x01\x7f"))

    ended = subprocess.run([sys.executable, "-c", DECODE, str(path)], check=False)

    assert ended.returncode == -signal.SIGSEGV, "update docs/formats.md: Arrow has become safer"


def test_resuming_outside_the_extent_is_a_conflict(golden: Golden) -> None:
    source = MemorySource(FLAT.body)

    with golden.raises(Conflict, match="4000.*4001"):
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
