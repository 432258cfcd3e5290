"""Thrift's compact protocol, both ways."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.thrift import FIXED_BYTES, Fixed, Kind, Writer, decode, varint


def test_a_footer_of_pyarrow_is_written_as_it_was_read() -> None:
    sink = io.BytesIO()
    columns = {f"column {number}": [1.5, None, -2.0] for number in range(20)}
    pq.write_table(pa.table(columns), sink, sorting_columns=[pq.SortingColumn(0)])
    length = int.from_bytes(sink.getvalue()[-8:-4], "little")
    footer = sink.getvalue()[-8 - length : -8]

    writer = Writer()
    writer.struct(decode(footer))

    assert bytes(writer.data) == footer


def test_distant_fields_and_negative_integers_are_decoded() -> None:
    fields = {1: (Kind.I64, -3), 17: (Kind.I32, 0), 300: (Kind.TRUE, True)}
    writer = Writer()

    writer.struct(fields)

    assert decode(bytes(writer.data)) == fields


def test_the_place_of_a_fixed_integer_is_known() -> None:
    writer = Writer()

    writer.struct({1: (Kind.I64, -3), 2: (Kind.I64, Fixed(9)), 20: (Kind.BINARY, b"end")})

    ((place, value),) = writer.fixed
    assert value == 9
    assert writer.data[place : place + FIXED_BYTES] == bytes(FIXED_BYTES)


@pytest.mark.parametrize(
    ("value", "written"), [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")]
)
def test_numbers_take_as_many_bytes_as_they_need(value: int, written: bytes) -> None:
    assert varint(value) == written
