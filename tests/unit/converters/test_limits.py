"""A batch whose text passes 32-bit offsets is converted in halves."""

import pyarrow as pa
import pytest

from extentflow.converters.json_encoding import json_converter
from extentflow.converters.raw import bytes_converter, string_converter
from extentflow.errors import CorruptRecord

LIMIT = 100
WORDS = ["one", None, 'two"', "three", "four", "five", "six", "seven"] * 4


COLUMNS = {
    "text": pa.array(WORDS),
    "views": pa.array(WORDS, pa.string_view()),
    "large": pa.array(WORDS, pa.large_string()),
    "escapes": pa.array(["\0" * 10] * 10),
    "bytes": pa.array([b"0123456789"] * 10),
    "numbers": pa.array([2**60] * 10),
    "looked up": pa.array([1, 2, None] * 10),
    "lists": pa.array([["one", "two"], [], None] * 10),
    "dictionary": pa.array(WORDS).dictionary_encode(),
    "structs": pa.array([{"a": "one"}, None] * 10),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_halves_give_the_same_values_behind_wide_offsets(name: str) -> None:
    batch = pa.record_batch({"v": COLUMNS[name]})
    whole = json_converter(batch.schema)(batch)

    halved = json_converter(batch.schema, limit_bytes=LIMIT)(batch)

    assert whole.type == pa.binary()
    assert halved.type == pa.large_binary()
    assert halved.to_pylist() == whole.to_pylist()


def test_bad_rows_of_both_halves_are_reported_by_their_rows() -> None:
    values = [b"a" * 20] * 10
    values[1] = values[8] = b"\xff"
    binary = pa.array(values, pa.binary())
    text = pa.Array.from_buffers(pa.string(), len(binary), binary.buffers())
    batch = pa.record_batch({"v": text})

    with pytest.raises(CorruptRecord) as caught:
        json_converter(batch.schema, limit_bytes=LIMIT)(batch)

    assert list(caught.value.rows) == [1, 8]


def test_only_the_row_that_exceeds_the_limit_is_reported() -> None:
    batch = pa.record_batch({"v": pa.array(["a", "b" * 200, "c"])})

    with pytest.raises(CorruptRecord) as caught:
        json_converter(batch.schema, limit_bytes=LIMIT)(batch)

    assert list(caught.value.rows) == [1]


def test_text_and_bytes_are_halved_too() -> None:
    views = pa.record_batch({"v": pa.array(WORDS, pa.string_view())})
    numbers = pa.record_batch({"v": pa.array([2**60, None] * 10)})

    text = string_converter(views.schema, limit_bytes=LIMIT)(views)
    raw = bytes_converter(views.schema, limit_bytes=LIMIT)(views)
    digits = string_converter(numbers.schema, limit_bytes=LIMIT)(numbers)

    assert text.type == raw.type == digits.type == pa.large_binary()
    assert text.cast(pa.large_string()).to_pylist() == WORDS
    assert raw.cast(pa.large_string()).to_pylist() == WORDS
    assert digits.to_pylist() == [str(2**60).encode(), None] * 10
