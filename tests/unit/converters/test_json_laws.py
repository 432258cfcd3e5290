"""Whatever the columns hold, `json` writes what a strict parser reads back as the same values."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from tests.unit.converters.arrow_cases import SCALARS, Case, any_case, nullable

from extentflow.converters.json import json_converter


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
@settings(max_examples=25, deadline=None)
def test_a_scalar_reads_back_as_its_value(case: Case, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | case.values, max_size=30))
    batch = pa.record_batch({"v": array_of(case, values)})

    objects = written(batch)

    assert [{"v": nullable(case).expected(value)} for value in values] == objects


@given(data=st.data(), cases=st.lists(any_case(), min_size=1, max_size=3))
@settings(max_examples=150, deadline=None)
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
