"""JSON documents: structure that is broken is an error, values are exact, memory is bounded."""

import json
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.laws import Decoded, decoded, extent_of
from tests.support.golden import Golden

from extentflow.errors import CorruptObject
from extentflow.formats import FormatOptions
from extentflow.formats.json.json_format import JsonOptions, open_json
from extentflow.testing.stores import MemorySource

MIB = 1 << 20
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)


def read(body: bytes, *, window_bytes: int = MIB, elements: bool = True) -> Decoded:
    fmt = open_json(FormatOptions(window_bytes=window_bytes), JsonOptions(elements=elements))
    return decoded(fmt, MemorySource(body), (0, len(body)))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"a": 1} {"a": [1', "the document or element at byte 9 has no end"),
        (b'[{"a": 1}, {"a": 2}', "the document or element at byte 11 has no end"),
        (b"[1, 2", "the document or element at byte 4 has no end"),
        (b'{"a": "}', "the document or element at byte 0 has no end"),
        (b'{"a": 1}} {"a": 2}', "the bracket at byte 8 closes nothing that is open"),
        (b"[1, 2}", "the bracket at byte 5 closes nothing that is open"),
    ],
)
@pytest.mark.parametrize("window_bytes", [1, 3, MIB])
def test_broken_structure_is_an_error_and_never_the_end(
    body: bytes, reason: str, window_bytes: int
) -> None:
    with pytest.raises(CorruptObject, match=reason):
        read(body, window_bytes=window_bytes)


def test_trap_t27_numbers_and_texts_are_the_object_s_bytes() -> None:
    texts = [b"1.10", b"123456789012345678901234567890", b"-0", b'"\\u00e9"', b"1e2"]

    result = read(b"[" + b" , ".join(texts) + b"]")

    assert [row["value"] for row in result.rows] == texts


def test_a_document_that_is_no_json_is_a_bad_record_with_its_bytes() -> None:
    result = read(b'{"a":1}{"a" 2}{"a":3}x')

    assert [row["value"] for row in result.rows] == [b'{"a":1}', b'{"a":3}']
    assert [(location, raw) for location, raw, _ in result.bad] == [(7, b'{"a" 2}'), (21, b"x")]


@pytest.mark.parametrize(
    ("charset", "wrong", "reason"),
    [
        (None, b"caf\xe9", "not UTF-8: invalid continuation byte (0xe9) at byte 22"),
        ("cp1252", b"\x81", "not cp1252: invalid bytes, in the content at byte 19"),
    ],
)
def test_a_document_that_is_no_text_is_bad_and_its_reason_names_the_way_out(
    charset: str | None, wrong: bytes, reason: str, golden: Golden
) -> None:
    body = b'[{"a": "x"}, {"a":"' + wrong + b'"}, {"a": 2}]'
    fmt = open_json(FormatOptions(charset=charset), JsonOptions())

    result = decoded(fmt, MemorySource(body), (0, len(body)))

    assert [row["value"] for row in result.rows] == [b'{"a": "x"}', b'{"a": 2}']
    ((location, _, why),) = result.bad
    assert location == 13
    golden(why)
    assert reason in why


@pytest.mark.parametrize("batch_rows", [1, 2])
def test_a_position_between_two_records_has_all_bad_ones_before_it_and_none_behind(
    batch_rows: int,
) -> None:
    body = b'{"a":1}{"a":"long, too long"}[1,,2,{"a":"long, too long"}]'
    fmt = open_json(FormatOptions(batch_rows=batch_rows, max_record_bytes=10), JsonOptions())
    source = MemorySource(body)

    chunks = list(fmt.decode(source, extent_of(source, 0, len(body)), 0))

    assert [bad.location for chunk in chunks for bad in chunk.bad] == [7, 32, 35]
    positions = [0, *(chunk.next_position for chunk in chunks)]
    for (start, end), chunk in zip(pairwise(positions), chunks, strict=True):
        places = [*chunk.locations, *(bad.location for bad in chunk.bad)]
        assert all(start <= place < end for place in places)


def test_bad_records_of_a_chunk_are_in_the_order_of_the_object() -> None:
    body = b'{"a":nul}{"a":"long, too long"}{"b":nul}'
    fmt = open_json(FormatOptions(max_record_bytes=10), JsonOptions())
    source = MemorySource(body)

    (chunk,) = fmt.decode(source, extent_of(source, 0, len(body)), 0)

    assert [bad.location for bad in chunk.bad] == [0, 9, 31]


def test_keys_are_columns_as_in_json_lines() -> None:
    body = b'[{"id": 1.50, "a": {"id": 2}}, {"a": 1}]'
    fmt = open_json(FormatOptions(columns=("id",)), JsonOptions())

    result = decoded(fmt, MemorySource(body), (0, len(body)))

    assert [row["id"] for row in result.rows] == ["1.50"]
    assert [location for location, _, _ in result.bad] == [31]


@given(st.lists(VALUES, max_size=8), st.integers(1, 9), st.sampled_from([None, 1]), st.booleans())
@settings(max_examples=75, deadline=None)
def test_elements_are_what_python_reads(
    values: list[object],
    window_bytes: int,
    indent: int | None,
    ascii_only: bool,  # noqa: FBT001
) -> None:
    body = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode()

    result = read(body, window_bytes=window_bytes)

    assert [json.loads(row["value"]) for row in result.rows] == json.loads(body)
    assert not result.bad


def test_a_large_array_takes_constant_memory() -> None:
    body = b"[" + b'{"a": [1, 2, "text"], "b": "}"},\n' * 200_000 + b"1]"
    source = MemorySource(body)
    fmt = open_json(FormatOptions(window_bytes=MIB), JsonOptions())

    tracemalloc.start()
    rows = sum(
        chunk.batch.num_rows for chunk in fmt.decode(source, extent_of(source, 0, len(body)), 0)
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert rows == 200_001
    assert peak < 32 * MIB


@pytest.mark.parametrize("byte", [b'"', b"\\", b"[", b" ", b",", b"{", b'\\"'])
def test_hostile_content_ends_in_time(byte: bytes) -> None:
    many = byte * (MIB // 4)
    for body in (b"[" + many, b'["' + many, many + b'"'):
        fmt = open_json(FormatOptions(max_record_bytes=MIB // 8), JsonOptions())
        try:
            decoded(fmt, MemorySource(body), (0, len(body)))
        except CorruptObject as exc:
            assert "memory/object" in str(exc)  # noqa: PT017
