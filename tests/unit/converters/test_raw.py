"""`string` and `bytes`: one column becomes the payload as it is."""

import datetime as dt
import uuid
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from extentflow.converters.json_encoding import json_converter
from extentflow.converters.raw import bytes_converter, string_converter
from extentflow.errors import CorruptRecord, UnsupportedType

TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
BINARIES = [pa.binary(), pa.large_binary(), pa.binary_view()]


def batch_of(array: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"v": array})


@pytest.mark.parametrize("kind", [*TEXTS, *BINARIES])
def test_bytes_pass_through_unread(kind: pa.DataType) -> None:
    values = [b"skipped", b"a\xff", None, b"", b"long enough to live outside of a view"]
    array = pa.array(values, pa.binary())
    if kind not in BINARIES:
        array = pa.Array.from_buffers(pa.string(), len(array), array.buffers())
    batch = batch_of(array.cast(kind)).slice(1)

    payloads = bytes_converter(batch.schema)(batch)

    assert payloads.to_pylist() == values[1:]


@pytest.mark.parametrize("convert", [bytes_converter, string_converter])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_contiguous_text_is_not_copied(convert: object, kind: pa.DataType) -> None:
    assert callable(convert)
    batch = batch_of(pa.array(["one", "é"], kind))

    payloads = convert(batch.schema)(batch)

    assert payloads.buffers()[2].address == batch.column(0).buffers()[2].address


def test_fixed_size_bytes_keep_their_width() -> None:
    batch = batch_of(pa.array([b"ab", None, b"cd"], pa.binary(2)).slice(1))

    assert bytes_converter(batch.schema)(batch).to_pylist() == [None, b"cd"]


@pytest.mark.parametrize("kind", TEXTS)
def test_text_becomes_utf8_and_null_a_tombstone(kind: pa.DataType) -> None:
    batch = batch_of(pa.array(["skipped", 'say "é"\n', None, ""], kind).slice(1))

    payloads = string_converter(batch.schema)(batch)

    assert payloads.to_pylist() == ['say "é"\n'.encode(), None, b""]


@pytest.mark.parametrize("kind", TEXTS)
def test_text_that_is_not_utf8_is_reported_by_row(kind: pa.DataType) -> None:
    binary = pa.array([b"ok", b"\xff"], pa.binary())
    batch = batch_of(pa.Array.from_buffers(pa.string(), 2, binary.buffers()).cast(kind))

    with pytest.raises(CorruptRecord) as caught:
        string_converter(batch.schema)(batch)

    assert caught.value.rows == {1: "byte 0xff at 0 is not valid UTF-8"}


SCALARS = {
    "true": pa.array([True, None]),
    "-128": pa.array([-128, None], pa.int8()),
    "18446744073709551615": pa.array([2**64 - 1, None], pa.uint64()),
    "1.50": pa.array([Decimal("1.50"), None], pa.decimal128(15, 2)),
    "1e+20": pa.array([1e20, None], pa.float64()),
    "2024-02-29": pa.array([dt.date(2024, 2, 29), None]),
    "1970-01-01T00:00:00.000001Z": pa.array([1, None], pa.timestamp("us", "Europe/Berlin")),
    "23:59:59": pa.array([86_399, None], pa.int32()).cast(pa.time32("s")),
    "PT-0.001S": pa.array([-1, None], pa.duration("ms")),
    "00000000-0000-0000-0000-000000000007": pa.array([uuid.UUID(int=7).bytes, None], pa.uuid()),
}


@pytest.mark.parametrize("text", SCALARS)
def test_scalars_read_as_json_writes_them_without_quotes(text: str) -> None:
    batch = batch_of(SCALARS[text])

    payloads = string_converter(batch.schema)(batch)
    in_json = json_converter(batch.schema)(batch)

    assert payloads.to_pylist() == [text.encode(), None]
    assert in_json[0].as_py().decode().replace('"', "") == f"{{v:{text}}}"


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_what_is_no_number_never_becomes_a_tombstone(kind: pa.DataType) -> None:
    values = np.array([np.nan, np.inf, -np.inf, 1.5], kind.to_pandas_dtype())
    batch = batch_of(pa.array(values, kind))

    payloads = string_converter(batch.schema)(batch)

    assert payloads.to_pylist() == [b"NaN", b"Infinity", b"-Infinity", b"1.5"]


def test_the_column_is_chosen_by_name() -> None:
    batch = pa.record_batch({"a": pa.array([1]), "b": pa.array(["x"])})

    assert string_converter(batch.schema, ["b"])(batch).to_pylist() == [b"x"]
    assert bytes_converter(batch.schema, ["b"])(batch).to_pylist() == [b"x"]
    assert string_converter(batch.schema, ["a"])(batch).to_pylist() == [b"1"]


@pytest.mark.parametrize("make", [bytes_converter, string_converter])
def test_more_than_one_column_is_rejected_with_a_remedy(make: object) -> None:
    assert callable(make)
    schema = pa.schema({"a": pa.string(), "b": pa.string()})

    with pytest.raises(UnsupportedType, match=r"exactly one column.*2 \('a', 'b'\).*'json'"):
        make(schema)
    with pytest.raises(UnsupportedType, match=r"exactly one column.*0 \(none\)"):
        make(schema, [])


def test_types_without_text_are_rejected_with_a_remedy() -> None:
    nested = pa.schema({"c": pa.list_(pa.int8())})
    binary = pa.schema({"c": pa.binary()})
    number = pa.schema({"c": pa.int8()})

    with pytest.raises(UnsupportedType, match=r"'c' has type list<.*'json'"):
        string_converter(nested)
    with pytest.raises(UnsupportedType, match=r"'c' has type binary.*'bytes'"):
        string_converter(binary)
    with pytest.raises(UnsupportedType, match=r"'c' has type int8.*'string'"):
        bytes_converter(number)


def test_an_empty_batch_gives_an_empty_array() -> None:
    batch = batch_of(pa.array([], pa.string_view()))

    assert string_converter(batch.schema)(batch).to_pylist() == []
    assert bytes_converter(batch.schema)(batch).to_pylist() == []
