"""A connector applied to an object: converted columns, and who is to blame when that fails."""

from collections.abc import Callable, Collection

import pyarrow as pa
import pytest
from tests.support.world import Bytewise

from extentflow.converters import Converter
from extentflow.errors import CorruptRecord
from extentflow.formats import Chunk
from extentflow.pipeline import Pipeline, Prepared
from extentflow.testing.stores import MemorySource

VALUES = ["a", "b", "c", "d", "e"]


def blaming(texts: Collection[str]) -> Callable[[pa.Schema], Converter]:
    """A converter to whom `texts` are bad."""

    def convert(batch: pa.RecordBatch) -> pa.BinaryArray:
        values = batch.column(0).to_pylist()
        rows = {row: f"{text} is bad" for row, text in enumerate(values) if text in texts}
        if rows:
            raise CorruptRecord("bad rows", rows)
        return pa.array([text.encode() for text in values], pa.binary())

    return lambda _schema: convert


def prepared(
    value: Callable[[pa.Schema], Converter], key: Callable[[pa.Schema], Converter] | None = None
) -> Prepared:
    batch = pa.record_batch({"v": pa.array(VALUES, pa.string_view())})
    pipeline = Pipeline(MemorySource(b""), Bytewise(), "topic", value, key)
    chunk = Chunk(batch, 50, range(10, 15))
    converters = value(batch.schema), key(batch.schema) if key else None
    return pipeline._convert(chunk, *converters)


def test_what_nobody_blames_is_sent() -> None:
    found = prepared(blaming(()))

    assert found.records.values.to_pylist() == [b"a", b"b", b"c", b"d", b"e"]
    assert found.bad == ()


@pytest.mark.parametrize("bad", ["a", "c", "e", "ab", "bd", "abcde"])
def test_rows_that_a_converter_blames_become_bad_records_at_their_place(bad: str) -> None:
    found = prepared(blaming(bad))

    assert found.records.values.to_pylist() == [v.encode() for v in VALUES if v not in bad]
    assert [record.place for record in found.bad] == [10 + VALUES.index(v) for v in bad]
    assert list(found.places) == [10 + i for i, v in enumerate(VALUES) if v not in bad]
    assert found.next_position == 50


def test_value_and_key_may_blame_different_rows() -> None:
    found = prepared(blaming("b"), blaming("d"))

    assert found.records.values.to_pylist() == [b"a", b"c", b"e"]
    assert found.records.keys is not None
    assert found.records.keys.to_pylist() == [b"a", b"c", b"e"]
    assert [(record.place, record.reason) for record in found.bad] == [
        (11, "b is bad"),
        (13, "d is bad"),
    ]


def test_a_converter_that_names_no_row_fails_the_chunk() -> None:
    def convert(_batch: pa.RecordBatch) -> pa.BinaryArray:
        raise CorruptRecord("something is wrong")

    with pytest.raises(CorruptRecord, match="something is wrong"):
        prepared(lambda _schema: convert)
