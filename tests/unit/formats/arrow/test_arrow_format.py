"""Arrow IPC types, damage and limits; pyarrow writes the files."""

import random
import re
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from tests.laws.arrow_cases import (
    ONE_COLUMN,
    WIDE,
    growing,
    union_without_rows_within,
    written,
)
from tests.laws.laws import Decoded, decoded, extent_of
from tests.support.golden import Golden

from extentflow.arrays.valid_batches import LARGEST_UNPACKED_BYTES
from extentflow.converters.json_encoding import json_converter
from extentflow.errors import (
    Conflict,
    CorruptObject,
    CorruptRecord,
    UnsupportedFormat,
    UnsupportedType,
)
from extentflow.formats import FORMATS, FormatOptions, no_rows, row_factor
from extentflow.formats.arrow.arrow_format import ArrowIpc, read_footer
from extentflow.testing.stores import MemorySource

CODES = pa.dictionary(pa.int8(), pa.string())
FILE = written(WIDE, 250)
STREAM = written(WIDE, 250, stream=True)


def read(body: bytes) -> Decoded:
    """Decode an object as one extent."""
    source = MemorySource(body, window_bytes=1 << 20)
    return decoded(ArrowIpc(FormatOptions()), source, (0, len(body)))


def plan(body: bytes, target_bytes: int = 1) -> list[tuple[int, int]]:
    return list(ArrowIpc(FormatOptions()).plan(MemorySource(body), target_bytes))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None], pa.uint64()),
        pa.array(["x", None], pa.large_string()),
        pa.array(["x", "long enough for a buffer"], pa.string_view()),
        pa.array([[1], None, []], pa.list_(pa.int8())),
        pa.array([{"a": 1}, None]),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        # Trap: the index 0 of an empty dictionary, in rows that the struct makes null.
        pa.array([None, None], pa.struct([("d", CODES)])),
        pa.array([{"s": None}, None], pa.struct([("s", pa.struct([("d", CODES)]))])),
        pa.array([[{"d": None}, None], None], pa.list_(pa.struct([("d", CODES)]))),
        pa.array([None, [None, None]], pa.list_(CODES, 2)),
        pa.array([[("k", None)], None], pa.map_(pa.string(), pa.struct([("d", CODES)]))),
        pa.array([{"l": [None]}, None], pa.struct([("l", pa.list_(CODES))])),
        pa.array([1000, 1000, 2000]).cast(pa.timestamp("ns", "UTC")),
        pa.array([None, None], pa.null()),
    ],
    ids=lambda array: str(array.type),
)
def test_every_type_keeps_its_values(array: pa.Array, stream: bool) -> None:  # noqa: FBT001
    body = written(pa.table({"c": array}), 2, stream=stream)

    assert [row["c"] for row in read(body).rows] == array.to_pylist()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_dictionaries_that_grow_and_buffers_that_are_compressed_are_read(
    stream: bool,  # noqa: FBT001
    compression: str | None,
) -> None:
    options = {"emit_dictionary_deltas": True, "compression": compression}

    body = written(growing(), 10, stream=stream, **options)

    assert read(body).rows == growing().to_pylist()


def test_a_plan_cuts_files_where_batches_begin_and_streams_nowhere() -> None:
    batches = read_footer(MemorySource(FILE)).batches
    assert batches is not None

    assert [start for start, _ in plan(FILE)] == [0, *(batch.start for batch in batches[1:])]
    assert plan(STREAM) == [(0, len(STREAM))]


def test_an_extent_reads_its_batches_and_the_footer_only() -> None:
    batches = read_footer(MemorySource(FILE)).batches
    assert batches is not None
    source = MemorySource(FILE, window_bytes=1 << 20)
    fmt = ArrowIpc(FormatOptions())

    (chunk,) = fmt.decode(source, extent_of(source, batches[5].start, batches[6].start), 0)

    assert chunk.batch.to_pylist() == WIDE.slice(1250, 250).to_pylist()
    inside = sum(end - start for start, end in source.reads if end - start < 1 << 16)
    assert inside < 2 * (batches[5].end - batches[5].start)


# -- refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 10, 300])
def test_a_truncated_file_is_corrupt(cut: int, golden: Golden) -> None:
    with golden.raises(CorruptObject):
        plan(FILE[:-cut])


@pytest.mark.parametrize("cut", [9, 300, 4000])
def test_a_truncated_stream_is_corrupt(cut: int, golden: Golden) -> None:
    with golden.raises(CorruptObject):
        read(STREAM[:-cut])


def test_bytes_behind_a_stream_are_corrupt(golden: Golden) -> None:
    with golden.raises(CorruptObject):
        read(STREAM + b"more")


def test_other_objects_are_refused(golden: Golden) -> None:
    with pytest.raises(UnsupportedFormat, match="begins as gzip"):
        plan(b"\x1f\x8b" + bytes(300))
    with golden.raises(CorruptObject):
        read(b"a,b\n1,2\n")


def test_two_columns_of_one_name_are_refused(golden: Golden) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])

    for stream in (False, True):
        with golden.raises(UnsupportedType):
            read(written(table, 1, stream=stream))


def test_a_message_larger_than_the_limit_is_refused(
    monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr("extentflow.formats.arrow.arrow_format.LARGEST_MESSAGE_BYTES", 5000)

    with golden.raises(UnsupportedFormat, match="5000"):
        plan(FILE)
    with golden.raises(UnsupportedFormat, match="5000"):
        read(STREAM)


# -- damage ----------------------------------------------------------------------------------------


def test_a_batch_that_is_not_valid_is_one_bad_record_and_the_next_is_delivered() -> None:
    batches = read_footer(MemorySource(FILE)).batches
    assert batches is not None
    body = bytearray(FILE)
    # Text that is not UTF-8, in the third batch.
    at = body.index(b"text 501", batches[2].start)
    body[at] = 0xFF

    result = read(bytes(body))

    ((location, raw, reason),) = result.bad
    assert (location, raw) == (batches[2].start * row_factor(len(FILE)), None)
    where = f"s3://memory/object[{batches[2].start}-{batches[2].end})"
    assert reason.startswith(f"{where}: batch 2 is lost: ")
    assert result.rows == [*WIDE.slice(0, 500).to_pylist(), *WIDE.slice(750).to_pylist()]


def test_a_batch_of_a_stream_that_is_not_valid_is_one_bad_record() -> None:
    body = bytearray(STREAM)
    body[body.index(b"text 601")] = 0xFF

    result = read(bytes(body))

    assert len(result.bad) == 1
    assert len(result.rows) == 2750


def claiming(table: pa.Table, claimed: int, *, stream: bool) -> bytes:
    """Return an object whose first buffer of zeros, which is compressed, claims another size."""
    body = written(table, len(table), stream=stream, compression="zstd")
    frame = body.index(b"\x28\xb5\x2f\xfd")
    return body[: frame - 8] + claimed.to_bytes(8, "little") + body[frame:]


ZEROS = pa.table({"n": pa.array([0] * 1000, pa.int64())})
WORDS = pa.table({"d": pa.array(["a" * 500, "b" * 500]).dictionary_encode()})


@pytest.mark.parametrize("table", [ZEROS, WORDS], ids=["batch", "dictionary"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("claimed", [LARGEST_UNPACKED_BYTES, 1 << 62])
def test_what_unpacks_to_too_much_is_not_allocated(
    table: pa.Table,
    stream: bool,  # noqa: FBT001
    claimed: int,
) -> None:
    """Trap: Arrow allocated what a buffer claims, and filled it, if the object is a bomb."""
    body = claiming(table, claimed, stream=stream)
    reason = (
        f"it unpacks to {claimed // 1000}"[:-3] + r"\d+ bytes, extentflow reads up to 536870912"
    )

    if stream:
        with pytest.raises(CorruptObject, match=reason):
            read(body)
        return
    ((_, _, why),) = read(body).bad
    assert re.search(reason, why)


@pytest.mark.parametrize("stream", [False, True])
def test_views_of_the_same_text_do_not_amount_to_too_much(
    monkeypatch: pytest.MonkeyPatch,
    stream: bool,  # noqa: FBT001
) -> None:
    """Trap: a million views of one long text were written out by the first cast."""
    monkeypatch.setattr("extentflow.arrays.valid_batches.LARGEST_UNPACKED_BYTES", 1_000)
    once = pa.array(["x" * 200], pa.string_view())
    shared = pa.Array.from_buffers(
        pa.string_view(),
        6,
        [None, pa.py_buffer(once.buffers()[1].to_pybytes() * 6), *once.buffers()[2:]],
    )
    nested = pa.ListArray.from_arrays(pa.array([0, 2, 6], pa.int32()), shared)

    for column in (shared, nested):
        body = written(pa.table({"v": column}), 9, stream=stream)
        ((_, _, why),) = read(body).bad
        assert "its views are of 1200 bytes, extentflow reads up to 1000" in why


@pytest.mark.parametrize("stream", [False, True])
def test_a_view_in_a_null_row_is_checked(stream: bool) -> None:  # noqa: FBT001
    """Trap: Arrow's casts follow it, allocate gigabytes, or end the process."""
    column = pa.array(["y" * 40, None], pa.string_view())
    body = written(pa.table({"v": column}), 9, stream=stream)
    null = body.rindex(bytes(16))
    body = body[:null] + b"\xff\xff\xff\x3f" + body[null + 4 :]

    ((_, _, why),) = read(body).bad

    assert "is lost" in why


def test_dictionaries_that_are_too_large_together_are_refused() -> None:
    """Each of them is small enough."""
    names = ("a", "b")
    columns = {name: pa.array([name * 500, "x" * 500]).dictionary_encode() for name in names}
    body = written(pa.table(columns), 9, compression="zstd")
    half = (LARGEST_UNPACKED_BYTES // 2).to_bytes(8, "little")
    at = 0
    for _ in names:
        at = body.index(b"\x28\xb5\x2f\xfd", at + 1)
        body = body[: at - 8] + half + body[at:]

    ((_, _, why),) = read(body).bad
    assert "it unpacks to 5368" in why


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([("r", pa.run_end_encoded(pa.int32(), pa.int64()))]),
        pa.run_end_encoded(pa.int16(), pa.list_(pa.uuid())),
        pa.map_(pa.string(), pa.run_end_encoded(pa.int32(), pa.uuid())),
        pa.list_(pa.list_view(pa.struct([("u", pa.uuid()), ("d", pa.list_(pa.int8(), 2))]))),
        pa.dense_union([pa.field("a", pa.large_list(pa.int8()))]),
        pa.dictionary(pa.int8(), pa.string_view()),
    ],
    ids=str,
)
def test_every_type_has_a_batch_without_rows(kind: pa.DataType) -> None:
    schema = pa.schema([("c", kind)])

    empty = no_rows(schema)

    empty.validate(full=True)
    assert (empty.schema, empty.num_rows) == (schema, 0)
    assert empty.column(0).to_pylist() == []


def test_an_empty_list_can_be_joined_to_others() -> None:
    """Trap: Arrow reads the first offset of an empty list, too, and ends the process without."""
    (empty,) = no_rows(pa.schema([("c", pa.list_(pa.int8()))])).columns

    assert pa.concat_arrays([empty, pa.array([[1]], pa.list_(pa.int8()))]).to_pylist() == [[1]]


def test_a_union_that_takes_no_row_of_a_union_within_it_is_read() -> None:
    """Trap: Arrow's `nbytes` of such an array ends the process."""
    views = pa.array([[1], None], pa.list_view(pa.int8()))
    rows = pa.StructArray.from_arrays([union_without_rows_within(), views], ["u", "v"])
    table = pa.table({"s": rows})

    assert read(written(table, 2)).rows == table.to_pylist()


def test_a_lost_batch_of_nested_run_ends_is_one_bad_record() -> None:
    """Trap: Arrow's empty array of such a type is not valid, which raised an untyped error."""
    ends = pa.RunEndEncodedArray.from_arrays(pa.array([3], pa.int32()), pa.array([7]))
    table = pa.table({"s": pa.StructArray.from_arrays([ends], ["r"])})
    whole = written(table, 3)
    at = whole.index((3).to_bytes(8, "little") + (7).to_bytes(8, "little"))  # end and value

    result = read(whole[:at] + b"\xff" * 4 + whole[at + 4 :])

    assert result.rows == []
    assert len(result.bad) == 1


def test_a_union_that_is_not_valid_is_one_bad_record() -> None:
    """Trap: it has one child, as lists have, which raised an untyped error."""
    places = pa.array([2, 1, 0], pa.int32())  # they may not descend
    union = pa.UnionArray.from_dense(pa.array([0] * 3, pa.int8()), places, [pa.array([1, 2, 3])])

    result = read(written(pa.table({"u": union}), 3))

    assert result.rows == []
    assert len(result.bad) == 1


@pytest.mark.parametrize("kind", ["views", "runs"])
def test_lists_and_runs_that_show_a_value_too_often_are_one_bad_record(kind: str) -> None:
    rows, items = 600, 1 << 17
    stored = pa.array(range(items))
    starts, sizes = pa.array([0] * rows, pa.int32()), pa.array([items] * rows, pa.int32())
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([rows * items], pa.int32()), pa.array([1]))
    bounds = pa.array(range(0, rows * items + 1, items), pa.int32())
    column = {
        "views": pa.ListViewArray.from_arrays(starts, sizes, stored),
        "runs": pa.ListArray.from_arrays(bounds, runs),
    }[kind]

    result = read(written(pa.table({"c": column}), rows))

    ((_, _, reason),) = result.bad
    assert result.rows == []
    assert f"of {8 * rows * items} bytes, extentflow reads up to" in reason


def test_resuming_where_no_batch_begins_is_a_conflict(golden: Golden) -> None:
    source = MemorySource(FILE)
    extent = extent_of(source, 0, len(FILE))

    with golden.raises(Conflict, match="byte 77"):
        list(ArrowIpc(FormatOptions()).decode(source, extent, 77 * row_factor(len(FILE)) + 1))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", [b"outer", b"inner"])
def test_names_that_are_not_utf8_are_corrupt(name: bytes, stream: bool) -> None:  # noqa: FBT001
    body = written(pa.table({"outer": [{"inner": 1}]}), 1, stream=stream)

    with pytest.raises(CorruptObject, match="utf-8"):
        read(body.replace(name, b"\xff" + name[1:]))


def test_mutated_files_raise_typed_errors_only() -> None:
    chance = random.Random(5)
    options: list[dict[str, Any]] = [{}, {"compression": "zstd"}, {"stream": True}]
    deltas = {"emit_dictionary_deltas": True}
    tables = (ONE_COLUMN, growing())
    bodies = [written(table, 2, **one, **deltas) for table in tables for one in options]
    for _ in range(600):
        body = bytearray(chance.choice(bodies))
        for _ in range(chance.choice([1, 1, 4])):
            body[chance.randrange(len(body))] = chance.randrange(256)
        source = MemorySource(bytes(body), window_bytes=1 << 20)
        extent = extent_of(source, 0, len(body))
        with suppress(CorruptObject, UnsupportedFormat, UnsupportedType, CorruptRecord):
            for chunk in ArrowIpc(FormatOptions()).decode(source, extent, 0):
                json_converter(chunk.batch.schema)(chunk.batch)


def test_the_registered_format_recognises_its_objects() -> None:
    assert FORMATS.get("arrow").extensions == ("arrow", "arrows", "feather")
