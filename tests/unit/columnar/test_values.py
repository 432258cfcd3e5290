"""Values of batches: every type that an encoding holds comes back as it was."""

import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.golden import Golden
from tests.unit.converters.arrow_cases import SCALARS, Case, nullable

from extentflow.columnar import ENCODINGS, BatchFacts
from extentflow.columnar.schemas import identity, plain
from extentflow.columnar.values import decode, encoder, to_plain
from extentflow.config.columnar import ARROW_COMPRESSIONS, COMPRESSIONS
from extentflow.errors import CorruptRecord, Misconfigured, UnsupportedType

WAYS = [("parquet", each) for each in COMPRESSIONS] + [
    ("arrow", each) for each in ARROW_COMPRESSIONS
]
LEAST, MOST = -(2**63), 2**63 - 1
UNITS = ("ms", "us", "ns")
JSON = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}', None, "[]"]))
UUIDS = pa.ExtensionArray.from_storage(
    pa.uuid(),
    pa.array([uuid.UUID(int=1).bytes, None, uuid.UUID(int=2**128 - 1).bytes], pa.binary(16)),
)
NAN, INF = float("nan"), float("inf")
DEEP = pa.struct(
    [
        ("l", pa.list_(pa.struct([("t", pa.timestamp("s", "UTC")), ("v", pa.string_view())]))),
        ("m", pa.map_(pa.string_view(), pa.list_(pa.decimal128(38, 2)))),
    ]
)
ARRAYS = [
    pa.nulls(2),
    pa.array([True, None, False]),
    pa.array([0, None, 255], pa.uint8()),
    pa.array([LEAST, None, MOST], pa.int64()),
    pa.array([0, 2**64 - 1, None], pa.uint64()),
    pa.array([np.float16(1.5), None, np.float16(NAN)], pa.float16()),
    pa.array([NAN, None, INF, -INF, -0.0, 5e-324, 1.7e308], pa.float64()),
    pa.array([NAN, None, -INF, 1e-45], pa.float32()),
    pa.array([Decimal(10**38 - 1), None, Decimal(1 - 10**38)], pa.decimal128(38, 0)),
    pa.array([Decimal(f"0.{'9' * 38}"), None], pa.decimal128(38, 38)),
    pa.array([Decimal(10**76 - 1), None, Decimal(-1)], pa.decimal256(76, 0)),
    pa.array([Decimal("-12345.67"), None], pa.decimal32(7, 2)),
    pa.array([Decimal("12345.67"), None], pa.decimal64(18, 2)),
    *(pa.array([LEAST, None, MOST, 0], pa.timestamp(each)) for each in UNITS),
    *(pa.array([LEAST, None, MOST, 1], pa.timestamp(each, "Europe/Berlin")) for each in UNITS),
    pa.array([1, None], pa.timestamp("us", "+02:00")),
    pa.array([-1, None, 10**12], pa.timestamp("s")),
    pa.array([-(2**31), None, 2**31 - 1], pa.date32()),
    pa.array([-86_400_000, None, 86_400_000], pa.date64()),
    pa.array([0, None, 86_399], pa.time32("s")),
    pa.array([0, None, 86_399_999_999_999], pa.time64("ns")),
    *(pa.array([LEAST, None, MOST], pa.duration(each)) for each in ("s", *UNITS)),
    pa.array(["", None, "a\x00b", "ä€😀", "x" * 10_000]),
    pa.array(["", None, "large"], pa.large_string()),
    pa.array(["", None, "longer than twelve bytes"], pa.string_view()),
    pa.array([b"", None, b"\x00\xff"], pa.binary()),
    pa.array([b"", None, b"longer than twelve bytes"], pa.binary_view()),
    pa.array([b"", None, b"\xff"], pa.large_binary()),
    pa.array([b"abcd", None, b"\x00" * 4], pa.binary(4)),
    pa.array([[], None, [1, None], [2]], pa.list_(pa.int64())),
    pa.array([[[], None, ["", None]], None, []], pa.large_list(pa.list_(pa.string_view()))),
    pa.array([[1, 2], None, [None, 3]], pa.list_(pa.int16(), 2)),
    pa.array([[1], None, []], pa.list_(pa.field("item", pa.int64(), nullable=False))),
    pa.array([[("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int64())),
    pa.array([[(1, [b""])], None], pa.map_(pa.int32(), pa.list_(pa.binary()))),
    pa.array([{"a": 1, "b": ""}, None, {"a": None, "b": None}]),
    pa.array(
        [
            {"l": [{"t": -1, "v": ""}, None], "m": [("k", [Decimal("1.25"), None])]},
            None,
            {"l": None, "m": []},
        ],
        DEEP,
    ),
    pa.array(["a", None, "", "a"]).dictionary_encode(),
    pa.array(["a", None, "b"], pa.dictionary(pa.int8(), pa.string())),
    pa.array([b"a", None, b""], pa.dictionary(pa.int16(), pa.binary())),
    JSON,
    UUIDS,
    pa.StructArray.from_arrays([JSON, UUIDS], ["j", "u"]),
    pa.ListArray.from_arrays([0, 2, 2, 3], UUIDS),
]


def facts(encoding: str, rows: int) -> BatchFacts:
    return BatchFacts(
        encoding=encoding,
        rows=rows,
        schema="0" * 16,
        batch="job-0-0",
        object="s3://b/k",
        version="v",
        extent="0-1",
        first=0,
        last=rows - 1,
        unit="row",
    )


def batch_of(**columns: pa.Array | Sequence[Any]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            name: values if isinstance(values, pa.Array) else pa.array(values)
            for name, values in columns.items()
        }
    )


def value_of(batch: pa.RecordBatch, encoding: str, compression: str = "none") -> pa.Buffer:
    schema = plain(batch.schema)
    encode, rows = encoder(encoding, compression, schema), to_plain(batch, schema)
    encode.observe(rows)
    return encode(rows)


def assert_comes_back(batch: pa.RecordBatch, encoding: str, compression: str = "none") -> None:
    schema = plain(batch.schema)
    expected = to_plain(batch, schema)

    found = decode(value_of(batch, encoding, compression), facts(encoding, batch.num_rows))

    found.validate(full=True)
    assert found.schema.equals(schema, check_metadata=True)
    assert identity(found.schema) == identity(schema)
    for one, other in zip(found.columns, expected.columns, strict=True):
        # NaN differs from itself.
        assert one.equals(other) or shown(one) == shown(other)


def shown(array: pa.Array) -> str:
    return str(array.to_string(window=10**6, container_window=10**6))


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.type))
@pytest.mark.parametrize(("encoding", "compression"), [("parquet", "zstd"), ("arrow", "none")])
def test_every_type_comes_back_as_it_was(array: pa.Array, encoding: str, compression: str) -> None:
    assert_comes_back(batch_of(c=array), encoding, compression)


@pytest.mark.parametrize(("encoding", "compression"), WAYS)
def test_columns_come_back_from_every_compression(encoding: str, compression: str) -> None:
    rows = max(map(len, ARRAYS))
    padded = [pa.concat_arrays([each, pa.nulls(rows - len(each), each.type)]) for each in ARRAYS]

    assert_comes_back(
        pa.record_batch({f"c{at}": each for at, each in enumerate(padded)}), encoding, compression
    )


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.type))
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_values_that_repeat_come_back(array: pa.Array, encoding: str) -> None:
    """From enough rows on, encodings look for columns that repeat their values."""
    batch = to_plain(batch_of(c=array), plain(batch_of(c=array).schema))

    repeated = batch.take(pa.array([row % batch.num_rows for row in range(3_000)]))

    assert_comes_back(repeated, encoding, "zstd")
    assert_comes_back(repeated.slice(100, 2_900), encoding, "zstd")


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.type))
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_slice_of_rows_comes_back_without_the_others(array: pa.Array, encoding: str) -> None:
    batch = batch_of(c=array)

    assert_comes_back(batch.slice(1, 1), encoding)
    assert_comes_back(batch.slice(batch.num_rows - 1), encoding)


@pytest.mark.parametrize("case", SCALARS, ids=lambda case: str(case.type))
@settings(max_examples=20)
@given(data=st.data())
def test_random_values_come_back_as_they_were(case: Case, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(nullable(case).values, min_size=1, max_size=20))
    encoding, compression = data.draw(st.sampled_from(WAYS))
    # Parquet has no decimals in thousands.
    assume(encoding == "arrow" or getattr(case.type, "scale", 0) >= 0)
    kind, values = case.type, [*drawn, None]
    if isinstance(kind, pa.BaseExtensionType):
        array = pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    else:
        array = pa.array(values, kind)
    batch = batch_of(c=array)
    try:
        to_plain(batch, plain(batch.schema))
    except CorruptRecord as exc:
        good = [row not in exc.rows for row in range(batch.num_rows)]
        batch = batch.filter(pa.array(good))

    assert_comes_back(batch, encoding, compression)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_parquet_values_are_files_of_one_row_group_with_that_compression(compression: str) -> None:
    batch = batch_of(n=list(range(50_000)), t=["same text"] * 50_000)

    value = value_of(batch, "parquet", compression)

    file = pq.ParquetFile(pa.BufferReader(value))
    group = file.metadata.row_group(0)
    assert value.to_pybytes()[:4] == value.to_pybytes()[-4:] == b"PAR1"
    assert (file.num_row_groups, group.num_rows) == (1, 50_000)
    written = "UNCOMPRESSED" if compression == "none" else compression.upper()
    assert {group.column(at).compression for at in range(2)} == {written}


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_arrow_values_are_smaller_where_they_are_compressed(compression: str) -> None:
    batch = batch_of(t=["same text"] * 5_000)

    sizes = [value_of(batch, "arrow", each).size for each in ("none", compression)]

    assert sizes[1] < sizes[0] / 2


def test_arrow_values_are_streams_of_one_batch() -> None:
    value = value_of(batch_of(n=list(range(5_000))), "arrow")

    with pa.ipc.open_stream(value) as stream:
        assert [each.num_rows for each in stream] == [5_000]


def test_wide_columns_that_repeat_their_values_have_dictionaries_in_arrow() -> None:
    rows = range(3_000)
    batch = batch_of(
        flag=["a" if row % 2 else None for row in rows],
        price=pa.array([Decimal(row % 9) for row in rows], pa.decimal128(15, 2)),
        city=[f"city {row % 60 + (row > 2_000) * row}" for row in rows],
        text=[f"text {row}" for row in rows],
        day=[row % 5 for row in rows],
    )
    encode = encoder("arrow", "none", plain(batch.schema))

    encode.observe(batch)
    values = [encode(each) for each in (batch, batch.slice(0, 100))]

    large, after = map(stored_types, values)
    assert (
        large
        == after
        == [
            "dictionary<values=string, indices=int8, ordered=0>",
            "dictionary<values=decimal128(15, 2), indices=int8, ordered=0>",
            "dictionary<values=string, indices=int32, ordered=0>",
            "string",
            "int64",
        ]
    )
    assert decode(values[1], facts("arrow", 100)) == batch.slice(0, 100)


def test_indices_that_became_wider_stay_so() -> None:
    few = batch_of(t=[f"{row % (60 if row < 300 else 128)}" for row in range(3_000)])
    many = batch_of(t=[f"{row % (60 if row < 300 else 129)}" for row in range(3_000)])
    encode = encoder("arrow", "none", few.schema)
    encode.observe(few)

    found = [
        (stored_types(encode(each)), decode(encode(each), facts("arrow", 3_000)) == each)
        for each in (few, many, few)
    ]

    narrow, wide = (
        f"dictionary<values=string, indices={kind}, ordered=0>" for kind in ("int8", "int32")
    )
    assert found == [([narrow], True), ([wide], True), ([wide], True)]


def stored_types(value: pa.Buffer) -> list[str]:
    with pa.ipc.open_stream(value) as stream:
        return [str(each.type) for each in stream.schema]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_values_are_read_from_bytes_and_from_buffers(encoding: str) -> None:
    batch = batch_of(n=[1, 2])
    value = value_of(batch, encoding)

    assert decode(value, facts(encoding, 2)) == batch
    assert decode(value.to_pybytes(), facts(encoding, 2)) == batch


# -- a selection of columns ------------------------------------------------------------------------

NESTED = batch_of(
    a=[{"b": 1, "c": "x"}, None],
    **{"a.b": [5, 6], "": ["e", "f"]},
    l=[[1, None], []],
    m=pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    "columns",
    [
        ["a"],
        ["a.b"],
        ["a.b", "a"],
        ["a", "a.b"],
        ["l"],
        ["m", "l"],
        [""],
        NESTED.schema.names[::-1],
    ],
    ids=str,
)
def test_columns_are_read_alone_and_in_the_order_asked_for(
    encoding: str, columns: list[str]
) -> None:
    found = decode(value_of(NESTED, encoding), facts(encoding, 2), columns)

    assert found.schema.names == columns
    assert found.to_pylist() == NESTED.select(columns).to_pylist()


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", ["b", "A", "a.c", "l.list.element", "element"])
def test_a_column_that_a_value_lacks_is_named(encoding: str, name: str, golden: Golden) -> None:
    with golden.raises(Misconfigured, match=f"column {name}.*a.b"):
        decode(value_of(NESTED, encoding), facts(encoding, 2), ["a", name])


# -- what encodings cannot hold --------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        pa.month_day_nano_interval(),
        pa.struct([]),
        pa.dense_union([pa.field("a", pa.int64())]),
        pa.list_(pa.month_day_nano_interval()),
    ],
    ids=str,
)
def test_a_type_that_parquet_lacks_is_reported_with_its_column(
    kind: pa.DataType, golden: Golden
) -> None:
    schema = pa.schema([("good", pa.int64()), ("bad one", kind), ("other", pa.string())])

    with golden.raises(UnsupportedType, match="column bad") as caught:
        encoder("parquet", "none", plain(schema))

    assert "use a Cast transform" in str(caught.value)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_names_that_occur_twice_are_reported(encoding: str) -> None:
    schema = pa.schema([("b", pa.int64()), ("a", pa.int64()), ("a", pa.string()), ("b", pa.null())])

    with pytest.raises(UnsupportedType, match=r"several columns a, b: .*rename them"):
        encoder(encoding, "none", schema)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_value_has_at_least_one_column(encoding: str) -> None:
    with pytest.raises(UnsupportedType, match="there are no columns"):
        encoder(encoding, "none", pa.schema([]))
