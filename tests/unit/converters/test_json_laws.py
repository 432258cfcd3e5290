"""Whatever the columns hold, `json` writes what a strict parser reads back as the same values."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

import hypothesis.strategies as st
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from tests.unit.converters.arrow_cases import SCALARS, Case, any_case, nullable

from extentflow.arrays.buffers import MAX_TEXT_BYTES
from extentflow.arrays.concat import concat_pieces
from extentflow.arrays.scalars import TextForm, text_form
from extentflow.converters.json_encoding import json_converter, scalar_writer


def strict(text: bytes) -> object:
    """Parse twice: by a strict parser, and by one that keeps digits and sees doubled names."""
    orjson.loads(text)
    return json.loads(
        text, parse_float=Decimal, parse_constant=pytest.fail, object_pairs_hook=unique
    )


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    assert len(members) == len(pairs)
    return members


def written(batch: pa.RecordBatch) -> list[object]:
    payloads = json_converter(batch.schema)(batch)
    assert payloads.null_count == 0
    return [strict(payload) for payload in payloads.to_pylist()]


def array_of(case: Case, values: list[Any]) -> pa.Array:
    return pa.array(values, case.type)


@pytest.mark.parametrize("case", SCALARS, ids=lambda case: str(case.type))
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_a_scalar_reads_back_as_its_value(case: Case, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | case.values, max_size=30))
    batch = pa.record_batch({"v": array_of(case, values)})

    objects = written(batch)

    assert [{"v": nullable(case).expected(value)} for value in values] == objects


BANDS = st.tuples(st.integers(-60, 60), st.integers(0, 12), st.integers(0, 80))
NUMBERS = pa.schema(
    {
        "day": pa.date32(),
        "count": pa.int64(),
        "price": pa.decimal128(15, 2),
        "nested": pa.struct({"day": pa.date32()}),
        "list": pa.list_(pa.int16()),
    }
)


@given(bands=st.lists(BANDS, min_size=1, max_size=6), data=st.data())
@settings(max_examples=25, deadline=None)
def test_texts_cached_from_one_batch_do_not_change_later_batches(
    bands: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    kept = json_converter(NUMBERS)
    for first, width, rows in bands:
        near = st.none() | st.integers(first, first + width)
        values = data.draw(st.lists(near, min_size=rows, max_size=rows))
        batch = numbers(values)

        assert kept(batch).equals(json_converter(NUMBERS)(batch))


def test_decimals_beyond_their_types_precision_are_written_as_stored() -> None:
    stored = np.array([[5, 0]] * 8 + [[5, 1], [-5, -1], [-5, 0]], dtype=np.int64)
    column = pa.Array.from_buffers(pa.decimal128(10, 2), len(stored), [None, pa.py_buffer(stored)])
    batch = pa.record_batch({"v": column})

    rows = json_converter(batch.schema)(batch).to_pylist()

    assert rows == [b'{"v":%s}' % text.encode() for text in column.cast(pa.string()).to_pylist()]


def test_cached_texts_keep_the_lead_of_their_column() -> None:
    number = scalar_writer(cast(TextForm, text_form(pa.int64())), MAX_TEXT_BYTES)
    column = pa.array([7] * 10)

    for lead in ("a", "b", "a"):
        rows = concat_pieces(number(column, lead), MAX_TEXT_BYTES)
        assert rows.to_pylist() == [f"{lead}7"] * 10


def numbers(values: list[int | None]) -> pa.RecordBatch:
    """Return a batch whose columns hold the same numbers, each in its way."""
    count = pa.array(values, pa.int64())
    days = count.cast(pa.int32()).cast(pa.date32())
    cents = [value if value is None else Decimal(value).scaleb(-2) for value in values]
    price = pa.array(cents, pa.decimal128(15, 2))
    lists = pa.array([[value, value] for value in values], pa.list_(pa.int16()))
    nested = pa.StructArray.from_arrays([days], names=["day"])
    return pa.record_batch([days, count, price, nested, lists], schema=NUMBERS)


@given(data=st.data(), cases=st.lists(any_case(), min_size=1, max_size=3))
@settings(max_examples=75, deadline=None)
def test_a_slice_of_nested_columns_reads_back_as_its_values(
    data: st.DataObject, cases: list[Case]
) -> None:
    rows = data.draw(st.integers(0, 8))
    columns = [
        data.draw(st.lists(st.none() | case.values, min_size=rows, max_size=rows)) for case in cases
    ]
    start, stop = sorted(data.draw(st.tuples(st.integers(0, rows), st.integers(0, rows))))
    names = [f"c{place}" for place in range(len(cases))]
    arrays = [array_of(case, values) for case, values in zip(cases, columns, strict=True)]
    batch = pa.record_batch(arrays, names=names).slice(start, stop - start)

    objects = written(batch)

    assert objects == [
        {
            name: nullable(case).expected(values[row])
            for name, case, values in zip(names, cases, columns, strict=True)
        }
        for row in range(start, stop)
    ]


@given(data=st.data(), limit=st.integers(60, 400))
@settings(max_examples=50, deadline=None)
def test_halving_changes_no_value(data: st.DataObject, limit: int) -> None:
    texts = data.draw(st.lists(st.none() | st.text(max_size=4), max_size=30))
    batch = pa.record_batch({"v": pa.array(texts, pa.string())})
    whole = json_converter(batch.schema)(batch)

    halved = json_converter(batch.schema, limit_bytes=limit)(batch)

    assert halved.to_pylist() == whole.to_pylist()


@pytest.mark.parametrize("encode", [pc.dictionary_encode, pc.run_end_encode])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_encoded_columns_read_as_plain_ones(
    encode: Callable[[pa.Array], pa.Array], data: st.DataObject
) -> None:
    texts = data.draw(st.lists(st.none() | st.sampled_from(['a"', "b", ""]), max_size=20))
    start = data.draw(st.integers(0, len(texts)))
    encoded = encode(pa.array(texts, pa.string())).slice(start)

    objects = written(pa.record_batch({"v": encoded}))

    assert objects == [{"v": text} for text in texts[start:]]
