"""The converter `base64`: text becomes the bytes that it states, or its row is named."""

import base64
import random
from functools import partial

import pyarrow as pa
import pytest
from tests.support.golden import Golden

from extentflow.converters import open_converter
from extentflow.converters.raw import base64_converter
from extentflow.errors import CorruptRecord, UnsupportedType

TYPES = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
]
WRONG = "no base64 with padding (RFC 4648, section 4)"


def decoded(array: pa.Array) -> list[bytes | None]:
    batch = pa.record_batch({"v": array})
    found: list[bytes | None] = open_converter("base64", batch.schema)(batch).to_pylist()
    return found


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_bytes_of_every_length_come_back(kind: pa.DataType) -> None:
    generator = random.Random(7)
    values = [generator.randbytes(length) for length in range(70)] + [None, b"\xff" * 1_000, b""]
    texts = [None if value is None else base64.b64encode(value).decode() for value in values]
    array = pa.array(["cut!", *texts], pa.string()).cast(kind)[1:]

    assert decoded(array) == values


def test_decoding_agrees_with_the_standard_library() -> None:
    generator = random.Random(11)
    strict = partial(base64.b64decode, validate=True)
    for _ in range(2_000):
        text = "".join(generator.choice("AQZz9+/=-_ \n") for _ in range(generator.choice([4, 8])))
        try:
            expected = strict(text)
        except ValueError:
            expected = None
        if expected is not None and base64.b64encode(expected).decode() != text:
            expected = None  # bits behind the last byte, or more after padding
        if expected is None:
            with pytest.raises(CorruptRecord) as caught:
                decoded(pa.array(["QQ==", text, "QQ=="]))
            assert caught.value.rows == {1: WRONG}, text
        else:
            assert decoded(pa.array(["QQ==", text])) == [b"A", expected], text


@pytest.mark.parametrize(
    "text",
    ["QQ", "QQ=", "Q===", "====", "=QQ=", "QQ==QQ==", "QR==", "QQF=", "QQ=A", "é===", "a-_b"],
)
def test_trap_t23_other_text_is_a_bad_record(text: str) -> None:
    with pytest.raises(CorruptRecord) as caught:
        decoded(pa.array(["", text, None, "QQ=="]))

    assert caught.value.rows == {1: WRONG}


def test_what_stands_in_a_null_slot_does_not_count() -> None:
    data = pa.array(["QQ==", "abc", "Qg=="])
    validity = pa.py_buffer(bytes([0b101]))
    array = pa.Array.from_buffers(pa.string(), 3, [validity, *data.buffers()[1:]])

    assert decoded(array) == [b"A", None, b"B"]


def test_nothing_and_nulls_alone() -> None:
    assert decoded(pa.array([], pa.string())) == []
    assert decoded(pa.array([None, None], pa.string())) == [None, None]


def test_text_above_the_limit_is_decoded_in_halves() -> None:
    batch = pa.record_batch({"v": ["QQ=="] * 9})

    payloads = base64_converter(batch.schema, limit_bytes=8)(batch)

    assert (payloads.type, payloads.to_pylist()) == (pa.large_binary(), [b"A"] * 9)


def test_other_columns_are_refused_by_name(golden: Golden) -> None:
    with golden.raises(UnsupportedType, match="'n'.*int64.*base64"):
        open_converter("base64", pa.schema([("n", pa.int64())]))
    with pytest.raises(UnsupportedType, match="takes exactly one column"):
        open_converter("base64", pa.schema([("a", pa.string()), ("b", pa.string())]))
