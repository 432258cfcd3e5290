"""Decode, convert, blame: what becomes of chunks on their way to records."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Literal

import pyarrow as pa
import pytest
from tests.support.golden import Golden

from extentflow.converters import Converter
from extentflow.converters.raw import bytes_converter, string_converter
from extentflow.delivery.converted import ConvertedChunk
from extentflow.delivery.pipeline import Pipeline
from extentflow.errors import CorruptObject, CorruptRecord, UnsupportedType
from extentflow.formats import BadRecord, Chunk
from extentflow.kafka import Records
from extentflow.model import Extent, ObjectVersion
from extentflow.storage import RangeSource
from extentflow.testing.stores import MemorySource

EXTENT = Extent("job", 0, "c", ObjectVersion("bucket", "key", None, "etag", 100), 0, 100, "script")


def chunk(*values: bytes | None, start: int = 0, bad: Sequence[BadRecord] = ()) -> Chunk:
    places = range(start, start + 10 * len(values), 10)
    batch = pa.record_batch({"value": pa.array(values, pa.binary())})
    return Chunk(batch, start + 10 * len(values), list(places), tuple(bad))


@dataclass
class Scripted:
    """A format that yields what it was given."""

    chunks: Sequence[Chunk | Exception]
    asked: list[int] = field(default_factory=list)
    splittable: bool = True
    location_unit: Literal["offset", "row"] = "offset"
    extent_bytes: int | None = None
    cut_version = 1

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        raise NotImplementedError

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        assert (source.version.bucket, extent) == ("memory", EXTENT)
        self.asked.append(position)
        for each in self.chunks:
            if isinstance(each, Exception):
                raise each
            yield each


def passing(_schema: pa.Schema) -> Converter:
    return lambda batch: batch.column(0)


def upper(_schema: pa.Schema) -> Converter:
    return lambda batch: pa.array([v.as_py().upper() for v in batch.column(0)], pa.binary())


def blaming(rows: Mapping[bytes, str]) -> "Blaming":
    return Blaming(rows)


@dataclass
class Blaming:
    """A converter that refuses some values, each with a reason."""

    rows: Mapping[bytes, str]
    batches: list[int] = field(default_factory=list)

    def __call__(self, _schema: pa.Schema) -> Converter:
        return self._convert

    def _convert(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        self.batches.append(batch.num_rows)
        values = batch.column(0).to_pylist()
        found = {row: self.rows[value] for row, value in enumerate(values) if value in self.rows}
        if found:
            raise CorruptRecord("some rows cannot be converted", found)
        return batch.column(0)


def prepared(fmt: Scripted, value: object = passing, **more: object) -> list[ConvertedChunk]:
    pipeline = Pipeline(MemorySource(b""), fmt, "topic", value, **more)  # type: ignore[arg-type]
    return list(pipeline.convert(EXTENT, 0))


def test_records_carry_topic_values_locations_and_position() -> None:
    fmt = Scripted([chunk(b"a", b"b"), chunk(b"c", start=20)])

    first, second = prepared(fmt)

    assert first.records.topic == "topic"
    assert first.records.values.to_pylist() == [b"a", b"b"]
    assert (list(first.locations), first.next_position) == ([0, 10], 20)
    assert second.records.values.to_pylist() == [b"c"]
    assert (list(second.locations), second.next_position) == ([20], 30)


def test_decoding_begins_at_the_position() -> None:
    fmt = Scripted([])

    list(Pipeline(MemorySource(b""), fmt, "topic", passing).convert(EXTENT, 70))

    assert fmt.asked == [70]


def test_the_client_partitions_records_without_keys_unless_configured() -> None:
    (free,) = prepared(Scripted([chunk(b"a")]))
    (fixed,) = prepared(Scripted([chunk(b"a")]), partition=3)

    assert (free.records.keys, free.records.partition) == (None, -1)
    assert fixed.records.partition == 3


def test_keys_are_made_of_the_same_rows_as_values() -> None:
    (made,) = prepared(Scripted([chunk(b"a", b"b")]), key=upper)

    assert made.records.keys is not None
    assert made.records.keys.to_pylist() == [b"A", b"B"]


def test_keys_and_values_count_towards_the_payload() -> None:
    (without,) = prepared(Scripted([chunk(b"a" * 100)]))
    (keyed,) = prepared(Scripted([chunk(b"a" * 100)]), key=upper)

    assert without.payload_bytes >= 100
    assert keyed.payload_bytes >= without.payload_bytes + 100


def test_a_converter_is_built_once_per_extent() -> None:
    built: list[pa.Schema] = []

    def counting(schema: pa.Schema) -> Converter:
        built.append(schema)
        return passing(schema)

    prepared(Scripted([chunk(b"a"), chunk(b"b", start=10)]), counting)

    assert built == [pa.schema([("value", pa.binary())])]


def test_rows_that_cannot_be_converted_become_bad_records() -> None:
    value = blaming({b"x": "no x", b"y": "no y"})

    (made,) = prepared(Scripted([chunk(b"a", b"x", b"b", b"y")]), value)

    assert made.records.values.to_pylist() == [b"a", b"b"]
    assert list(made.locations) == [0, 20]
    assert made.bad == (
        BadRecord(None, 10, "no x", row=True),
        BadRecord(None, 30, "no y", row=True),
    )
    assert made.next_position == 40
    assert value.batches == [4, 2]


def test_bad_records_of_decoding_and_converting_stand_in_file_order() -> None:
    undecoded = [BadRecord(b"?", 5, "undecoded"), BadRecord(b"!", 25, "undecoded")]
    fmt = Scripted([chunk(b"a", b"x", b"b", bad=undecoded)])

    (made,) = prepared(fmt, blaming({b"x": "no x"}))

    assert [record.location for record in made.bad] == [5, 10, 25]


def test_a_chunk_without_convertible_rows_still_moves_the_position() -> None:
    (made,) = prepared(Scripted([chunk(b"x", b"x")]), blaming({b"x": "no x"}))

    assert len(made.records.values) == 0
    assert len(made.bad) == 2
    assert made.next_position == 20


def test_a_row_whose_key_cannot_be_made_is_bad_too() -> None:
    (made,) = prepared(Scripted([chunk(b"a", b"x")]), key=blaming({b"x": "no key"}))

    assert made.records.values.to_pylist() == [b"a"]
    assert made.bad == (BadRecord(None, 10, "no key", row=True),)


def test_a_row_bad_as_value_and_another_bad_as_key_are_both_blamed() -> None:
    fmt = Scripted([chunk(b"a", b"x", b"y", b"b")])

    (made,) = prepared(fmt, blaming({b"x": "no value"}), key=blaming({b"y": "no key"}))

    assert made.records.values.to_pylist() == [b"a", b"b"]
    assert made.bad == (
        BadRecord(None, 10, "no value", row=True),
        BadRecord(None, 20, "no key", row=True),
    )


def test_an_error_that_blames_no_row_is_raised() -> None:
    def failing(_schema: pa.Schema) -> Converter:
        def convert(batch: pa.RecordBatch) -> pa.BinaryArray:
            raise CorruptRecord(f"something is wrong in {batch.num_rows} rows")

        return convert

    with pytest.raises(CorruptRecord, match="something is wrong"):
        prepared(Scripted([chunk(b"a")]), failing)


def test_an_unsupported_type_is_raised_before_the_first_record() -> None:
    def refusing(_schema: pa.Schema) -> Converter:
        raise UnsupportedType("column value: no exact JSON")

    with pytest.raises(UnsupportedType):
        prepared(Scripted([chunk(b"a")]), refusing)


def no_such_column(schema: pa.Schema) -> Converter:
    return string_converter(schema, ["x"])


def test_a_missing_column_is_reported_with_object_and_key(golden: Golden) -> None:
    with pytest.raises(UnsupportedType) as caught:
        prepared(Scripted([chunk(b"a")]), key=no_such_column)

    golden(caught.value)
    assert "s3://bucket/key[0-100)" in str(caught.value)


def test_values_that_cannot_be_made_name_object_and_key(golden: Golden) -> None:
    with golden.raises(UnsupportedType, match=r"s3://bucket/key\[0-100\).*value\.conv"):
        prepared(Scripted([chunk(b"a")]), no_such_column)


def test_a_column_that_changes_its_type_is_reported_with_the_object(golden: Golden) -> None:
    texts = replace(chunk(start=10), batch=pa.record_batch({"value": pa.array(["text"])}))

    with golden.raises(UnsupportedType, match=r"s3://bucket/key\[0-100\)"):
        prepared(Scripted([chunk(b"a"), texts]), bytes_converter)


def test_trap_t08_a_decode_error_comes_through_behind_what_was_decoded() -> None:
    fmt = Scripted([chunk(b"a"), CorruptObject("damaged")])
    chunks = Pipeline(MemorySource(b""), fmt, "topic", passing).convert(EXTENT, 0)

    assert next(chunks).records.values.to_pylist() == [b"a"]
    with pytest.raises(CorruptObject, match="damaged"):
        next(chunks)


@pytest.mark.parametrize("most_bytes", [1, 7, 10, 29, 30, 31, float("inf")])
@pytest.mark.parametrize("shift", [0, -100])
def test_parts_of_a_chunk_are_its_records_with_their_positions(
    most_bytes: float, shift: int
) -> None:
    values, keys = pa.array([b"aaaa", b"bb", None, b"d" * 20], pa.binary()), pa.array([b"k"] * 4)
    records = Records("topic", values, keys.cast(pa.binary()), partition=3)
    chunk = ConvertedChunk(records, [100, 104, 106, 107], (), 127 + shift, shift)

    parts = list(chunk.split(most_bytes))

    assert [v for part in parts for v in part.records.values.to_pylist()] == values.to_pylist()
    assert sum(len(part.records.keys or ()) for part in parts) == len(values)
    assert [place for part in parts for place in part.locations] == [100, 104, 106, 107]
    starts = [int(part.locations[0]) + shift for part in parts[1:]]
    assert [part.next_position for part in parts] == [*starts, 127 + shift]
    assert {part.records.partition for part in parts} == {3}


@pytest.mark.parametrize("most_bytes", [1, 2, float("inf")])
def test_parts_of_a_chunk_count_the_dropped_rows_before_their_positions(most_bytes: float) -> None:
    records = Records("topic", pa.array([b"a", b"b", b"c"], pa.binary()))
    decoded = [10, 11, 12, 13, 14, 15, 16]
    chunk = ConvertedChunk(records, [11, 14, 15], (), 117, 100, filtered=5, decoded=decoded)

    parts = list(chunk.split(most_bytes))

    sums = list(accumulate(len(part.records.values) + part.filtered for part in parts))
    rows_before = [bisect_left(decoded, part.next_position - 100) for part in parts[:-1]]
    assert sums[:-1] == rows_before
    assert sums[-1] == 8  # the row group that the format excluded counts with the last part


def test_a_chunk_with_bad_records_stays_whole() -> None:
    values = pa.array([b"a", b"b"], pa.binary())
    bad = (BadRecord(b"!", 1, "bad"),)
    chunk = ConvertedChunk(Records("topic", values), [0, 2], bad, 3)

    assert list(chunk.split(1)) == [chunk]


@pytest.mark.parametrize("shift", [0, -100])
@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_parts_of_some_records_have_the_bad_ones_behind_them(most: int, shift: int) -> None:
    values = pa.array([b"a", b"b", b"c", b"d"], pa.binary())
    places = [100, 102, 103, 105, 106, 107, 109]
    bad = tuple(BadRecord(b"!", place, "bad") for place in (100, 103, 109))
    chunk = ConvertedChunk(
        Records("topic", values), [102, 105, 106, 107], bad, 110 + shift, position_shift=shift
    )

    parts = list(chunk.parts(lambda: most))

    assert max(part.units for part in parts) == most
    assert [v for part in parts for v in part.records.values.to_pylist()] == values.to_pylist()
    assert [one for part in parts for one in part.bad] == list(bad)
    assert parts[-1].next_position == 110 + shift
    for before, part in pairwise(parts):
        resumed = before.next_position - shift
        behind = [*part.locations, *(one.location for one in part.bad)]
        assert min(behind) == resumed
        assert resumed in places


def test_a_chunk_without_records_is_one_part() -> None:
    chunk = ConvertedChunk(
        Records("topic", pa.array([], pa.binary())), [], (BadRecord(b"!", 1, "bad"),), 3
    )

    assert list(chunk.parts(lambda: 1)) == [chunk]
