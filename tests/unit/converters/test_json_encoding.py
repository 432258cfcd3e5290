"""Strings and bytes inside JSON: escaping, base64, and bytes that are not the text they claim."""

import base64

import numpy as np
import orjson
import pyarrow as pa
import pytest

from extentflow.arrays.buffers import MAX_TEXT_BYTES
from extentflow.converters.json_encoding import Dialect, _writer, json_converter
from extentflow.errors import CorruptRecord


def payloads(**columns: pa.Array) -> list[bytes]:
    batch = pa.record_batch(columns)
    rows: list[bytes] = json_converter(batch.schema)(batch).to_pylist()
    return rows


def claimed_text(values: list[bytes | None]) -> pa.StringArray:
    """A string array as a bad producer writes it: its bytes are never looked at."""
    binary = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(binary), binary.buffers())


def test_every_control_character_quote_and_backslash_is_escaped() -> None:
    text = "".join(map(chr, range(0x20))) + '"\\'

    (row,) = payloads(v=pa.array([text]))

    assert row == (
        rb'{"v":"\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000b\f\r\u000e\u000f'
        rb"\u0010\u0011\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001a\u001b\u001c\u001d"
        rb'\u001e\u001f\"\\"}'
    )


def test_everything_else_stays_utf8() -> None:
    text = "\x7f\u0080é€\u2028\ufffe😀/'"

    (row,) = payloads(v=pa.array([text]))

    assert row == b'{"v":"' + text.encode() + b'"}'


def test_text_without_escapes_is_not_copied_before_the_join() -> None:
    plain = pa.array(["nothing to do", "here"])
    write = _writer(pa.string(), "v", Dialect(MAX_TEXT_BYTES))

    (piece,) = write(plain, ",")

    assert (piece.lead, piece.tail) == (',"', '"')
    assert piece.text.buffers()[2].address == plain.buffers()[2].address


def test_column_and_member_names_are_escaped() -> None:
    name = 'say "hi"\n\\ é'

    (row,) = payloads(**{name: pa.array([{name: 1}])})

    assert orjson.loads(row) == {name: {name: 1}}


def test_escapes_stay_in_their_rows_beside_nulls_and_empty_text() -> None:
    text = ['"', None, "", "\\\\", "plain", None, "\n"]

    rows = payloads(v=pa.array(text).slice(1))

    assert [orjson.loads(row)["v"] for row in rows] == text[1:]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_bytes_of_every_length_become_padded_base64(kind: pa.DataType) -> None:
    values = [bytes(range(250, 256))[:length] for length in range(6)]

    rows = payloads(v=pa.array([b"skipped", None, *values], kind).slice(1))

    assert [orjson.loads(row)["v"] for row in rows] == [
        None,
        *(base64.b64encode(value).decode() for value in values),
    ]


def test_a_value_that_is_not_utf8_is_reported_by_row_and_byte() -> None:
    text = claimed_text([b"fine", b"caf\xe9", None, b"\xff"])

    with pytest.raises(CorruptRecord) as caught:
        payloads(v=text)

    assert caught.value.rows == {
        1: "v: byte 0xe9 at 3 is not valid UTF-8",
        3: "v: byte 0xff at 0 is not valid UTF-8",
    }


def test_halves_of_a_character_in_two_rows_are_two_bad_rows() -> None:
    text = claimed_text([b"caf\xc3", b"\xa9"])

    with pytest.raises(CorruptRecord) as caught:
        payloads(v=text)

    assert list(caught.value.rows) == [0, 1]


def test_surrogates_and_overlong_forms_are_not_utf8() -> None:
    text = claimed_text([b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", "😀".encode()])

    with pytest.raises(CorruptRecord) as caught:
        payloads(v=text)

    assert list(caught.value.rows) == [0, 1, 2]


def test_rows_outside_a_slice_are_not_checked() -> None:
    text = claimed_text([b"\xff", "é".encode(), b"\xff"]).slice(1, 1)

    assert payloads(v=text) == ['{"v":"é"}'.encode()]


def test_string_views_are_checked_too() -> None:
    views = pa.array([b"ok", b"\xff", b"long enough to live outside \xe9"], pa.binary_view())
    text = pa.Array.from_buffers(pa.string_view(), 3, views.buffers())

    with pytest.raises(CorruptRecord) as caught:
        payloads(v=text)

    assert list(caught.value.rows) == [1, 2]


def test_bad_rows_of_all_columns_are_found_at_once() -> None:
    left, right = claimed_text([b"\xff", b"a", b"b"]), claimed_text([b"\xff", b"a", b"\xfe"])

    with pytest.raises(CorruptRecord) as caught:
        payloads(left=left, right=right)

    assert caught.value.rows == {
        0: "left: byte 0xff at 0 is not valid UTF-8",
        2: "right: byte 0xfe at 0 is not valid UTF-8",
    }


def test_bytes_under_a_null_are_not_checked() -> None:
    binary = pa.array([b"\xff", b"ok"], pa.binary())
    valid = pa.py_buffer(b"\x02")
    text = pa.Array.from_buffers(pa.string(), 2, [valid, *binary.buffers()[1:]])

    assert payloads(v=text) == [b'{"v":null}', b'{"v":"ok"}']


def test_bad_values_inside_nested_types_are_reported_by_row() -> None:
    bad = claimed_text([b"a", b"b", b"\xff", b"c"])
    struct = pa.StructArray.from_arrays([bad], ["s"])
    lists = pa.ListArray.from_arrays(pa.array([0, 0, 2, 2, 4], pa.int32()), struct)
    keys = pa.MapArray.from_arrays(pa.array([0, 1, 1, 3, 4], pa.int32()), bad, bad)

    with pytest.raises(CorruptRecord) as in_list:
        payloads(v=lists)
    with pytest.raises(CorruptRecord) as in_map:
        payloads(v=keys)

    assert in_list.value.rows == {3: "v: item: s: byte 0xff at 0 is not valid UTF-8"}
    assert list(in_map.value.rows) == [2]


def test_a_bad_dictionary_entry_makes_the_rows_that_use_it_bad() -> None:
    entries = claimed_text([b"a", b"\xff", b"c"])
    used = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1], pa.int8()), entries)
    unused = pa.DictionaryArray.from_arrays(pa.array([0, 2, None], pa.int8()), entries)

    with pytest.raises(CorruptRecord) as caught:
        payloads(v=used)
    rows = payloads(v=unused)

    assert list(caught.value.rows) == [1, 3]
    assert rows == [b'{"v":"a"}', b'{"v":"c"}', b'{"v":null}']


def test_without_the_reported_rows_the_batch_converts() -> None:
    bad = claimed_text([b"a", b"\xff", b"c"])
    times = pa.array(np.array([0, 1, 86_400]), pa.int32()).cast(pa.time32("s"))
    batch = pa.record_batch({"t": times, "v": bad})
    convert = json_converter(batch.schema)

    with pytest.raises(CorruptRecord) as caught:
        convert(batch)
    good = [row for row in range(3) if row not in caught.value.rows]

    assert caught.value.rows[2] == "t: not a time of day, counted in s"
    assert convert(batch.take(good)).to_pylist() == [b'{"t":"00:00:00","v":"a"}']
