"""Shredded VARIANT: the specification's tables, files of Spark and DuckDB, and contradictions."""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.fuzz import thrift
from tests.fuzz.thrift import BINARY, LIST, STRUCT
from tests.laws.parquet_bytes import LOGICAL_VARIANT
from tests.laws.parquet_cases import read_rows, written
from tests.support.golden import Golden
from tests.unit.formats.parquet.test_variants import VALUES

from extentflow.errors import UnsupportedType
from extentflow.formats.parquet.variants import variant_json


def annotated(body: bytes, name: str = "v") -> bytes:
    """Return a file whose group `name` is a VARIANT, which pyarrow does not write."""
    start = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    footer, _ = thrift.read(body[start:-8])
    changed = []
    for number, (kind, value) in footer:
        if number == 2 and kind == LIST:
            value = [(STRUCT, _annotated(element, name)) for _, element in value]  # noqa: PLW2901
        # Without the Arrow schema, which does not say that it is one.
        if number == 5:
            continue
        changed.append((number, (kind, value)))
    made = thrift.write(changed)
    return body[:start] + made + struct.pack("<I", len(made)) + b"PAR1"


def _annotated(element: list[thrift.Field], name: str) -> list[thrift.Field]:
    if (4, (BINARY, name.encode())) not in element:
        return element
    kept = [each for each in element if each[0] < 10]
    return [*kept, (10, (STRUCT, [(LOGICAL_VARIANT, (STRUCT, []))]))]


def group(typed: pa.DataType | None, *, value: bool = True) -> pa.StructType:
    """Return the group of a shredded value."""
    members = [pa.field("value", pa.binary())] if value else []
    return pa.struct([*members, *([pa.field("typed_value", typed)] if typed else [])])


def members(**types: pa.DataType | None) -> pa.StructType:
    return pa.struct([pa.field(name, group(each), nullable=False) for name, each in types.items()])


def texts(
    typed: pa.DataType | None, rows: Sequence[Mapping[str, Any] | None]
) -> tuple[list[Any], Any]:
    """Return the texts of rows of `v`, and the bad records."""
    kind = pa.struct([pa.field("metadata", pa.binary(), nullable=False), *group(typed)])
    whole = [None if row is None else {"metadata": METADATA, **row} for row in rows]
    body = annotated(written(pa.table({"v": pa.array(whole, kind)})))
    found, bad = read_rows(body)
    assert found.column("v").type == pa.json_()
    return found.column("v").to_pylist(), bad


NAMES = ["event_type", "event_ts", "email", "error_msg", "click", "a"]
METADATA = (
    bytes([1, len(NAMES)])
    + bytes(sum(len(name) for name in NAMES[:at]) for at in range(len(NAMES) + 1))
    + "".join(NAMES).encode()
)


def text(of: str) -> bytes:
    return bytes([len(of) << 2 | 1]) + of.encode()


def object_of(name: str, value: bytes) -> bytes:
    return bytes([2, 1, NAMES.index(name), 0, len(value)]) + value


# -- the tables of the specification ---------------------------------------------------------------


def test_measurements() -> None:
    rows: list[dict[str, Any] | None] = [
        {"value": None, "typed_value": 34},
        {"value": b"\0", "typed_value": None},
        {"value": text("n/a"), "typed_value": None},
        {"value": None, "typed_value": 100},
        # A value is required: it is a null of VARIANT.
        {"value": None, "typed_value": None},
        None,
    ]

    assert texts(pa.int64(), rows) == (["34", "null", '"n/a"', "100", "null", None], [])


def test_tags() -> None:
    def tags(*names: str | None) -> dict[str, Any]:
        return {
            "typed_value": [{"typed_value": name} if name else {"value": b"\0"} for name in names]
        }

    rows = [
        tags("comedy", "drama"),
        tags("horror", None),
        tags("comedy", "drama", "romance"),
        {"value": b"\0"},
        tags(),
        {"typed_value": [{}]},
    ]

    found, bad = texts(pa.list_(pa.field("element", group(pa.string()), nullable=False)), rows)

    assert bad == []
    assert found == [
        '["comedy","drama"]',
        '["horror",null]',
        '["comedy","drama","romance"]',
        "null",
        "[]",
        "[null]",
    ]


EVENT = members(event_type=pa.string(), event_ts=pa.timestamp("us", "UTC"))


def event(
    value: bytes | None = None, *, is_object: bool = True, **fields: dict[str, Any]
) -> dict[str, Any]:
    missing: dict[str, Any] = {"event_type": {}, "event_ts": {}}
    return {"value": value, "typed_value": {**missing, **fields} if is_object else None}


def test_events() -> None:
    when = 1729794114937
    ts = {"typed_value": when}
    iso = '"1970-01-21T00:29:54.114937Z"'
    noop = {"typed_value": "noop"}
    rows = [
        event(event_type=noop, event_ts=ts),
        event(object_of("email", text("u@x.org")), event_type=noop, event_ts=ts),
        event(object_of("error_msg", text("malformed"))),
        event(text("malformed: not an object"), is_object=False),
        event(object_of("click", text("_button")), event_ts=ts),
        event(event_type={"value": b"\0"}, event_ts=ts),
        event(event_type=noop, event_ts={"value": text("2024-10-24")}),
        event(),
        event(b"\0", is_object=False),
        event(None, is_object=False),
    ]

    found, bad = texts(EVENT, rows)

    assert bad == []
    assert found == [
        f'{{"event_ts":{iso},"event_type":"noop"}}',
        f'{{"email":"u@x.org","event_ts":{iso},"event_type":"noop"}}',
        '{"error_msg":"malformed"}',
        '"malformed: not an object"',
        f'{{"click":"_button","event_ts":{iso}}}',
        f'{{"event_ts":{iso},"event_type":null}}',
        '{"event_ts":"2024-10-24","event_type":"noop"}',
        "{}",
        "null",
        "null",
    ]


def test_events_that_the_specification_calls_invalid_are_bad_records() -> None:
    login = object_of("event_type", text("login"))
    typed = {"typed_value": "login"}
    rows = [
        event(login, event_type=typed),
        event(event_type=typed),
        event(login, is_object=False),
        event(text("a")),
        event(b"\x02\0\0", is_object=False),
        event(event_type={"value": text("login"), "typed_value": "login"}),
        event(login),
    ]

    found, bad = texts(EVENT, rows)

    assert found == ['{"event_type":"login"}']
    assert [record.location for record in bad] == [0, 2, 3, 4, 5, 6]
    assert all("VARIANT" in record.reason for record in bad)


@pytest.mark.parametrize(
    ("typed", "row"),
    [
        (pa.int32(), {"value": b"\0", "typed_value": 1}),
        (pa.int32(), {"value": b"", "typed_value": None}),
        (pa.list_(group(pa.int8())), {"value": b"\0", "typed_value": []}),
        (pa.list_(group(pa.int8())), {"value": b"\x03\0\0", "typed_value": None}),
        (pa.list_(group(pa.int8())), {"typed_value": [{"value": b"\0", "typed_value": 1}]}),
        (members(a=None), {"value": b"", "typed_value": {"a": {}}}),
        (members(a=None), {"value": b"\xff", "typed_value": {"a": {}}}),
        (members(a=None), {"typed_value": {"a": {"value": b"\xf8"}}}),
        (pa.time64("us"), {"typed_value": -1}),
        (pa.timestamp("us"), {"typed_value": -(2**63)}),
    ],
)
def test_contradictions_are_bad_records_and_others_are_delivered(
    typed: pa.DataType, row: dict[str, Any]
) -> None:
    good = {"value": b"\x0c\x07"}

    found, bad = texts(typed, [good, row, good])

    assert found == ["7", "7"]
    assert [record.location for record in bad] == [1]
    assert "VARIANT" in bad[0].reason


# -- every type ------------------------------------------------------------------------------------


def primitive(kind: int, data: bytes) -> bytes:
    return bytes([kind << 2]) + data


def unscaled(number: int, scale: int, size: int) -> bytes:
    return bytes([scale]) + number.to_bytes(size, "little", signed=True)


def count(number: int, size: int = 8) -> bytes:
    return number.to_bytes(size, "little", signed=True)


DAY = date(2024, 2, 29)
WHEN = datetime(2020, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)
MICROS = 1_577_836_800_500_000
# UUIDs are among DuckDB's values: pyarrow makes no structs of them.
TYPES: list[tuple[pa.DataType, Any, bytes]] = [
    (pa.bool_(), True, primitive(1, b"")),
    (pa.bool_(), False, primitive(2, b"")),
    (pa.int8(), -5, primitive(3, count(-5, 1))),
    (pa.int16(), -500, primitive(4, count(-500, 2))),
    (pa.int32(), 70_000, primitive(5, count(70_000, 4))),
    (pa.int64(), -(2**63), primitive(6, count(-(2**63)))),
    (pa.float64(), 1e300, primitive(7, struct.pack("<d", 1e300))),
    (pa.float64(), math.nan, primitive(7, struct.pack("<d", math.nan))),
    (pa.float32(), 0.1, primitive(14, struct.pack("<f", 0.1))),
    (pa.decimal128(9, 2), Decimal("-0.05"), primitive(8, unscaled(-5, 2, 4))),
    (pa.decimal128(18, 4), Decimal("1.5000"), primitive(9, unscaled(15_000, 4, 8))),
    (pa.decimal128(38, 10), Decimal("1E-10"), primitive(10, unscaled(1, 10, 16))),
    (pa.date32(), DAY, primitive(11, count(19_782, 4))),
    (pa.timestamp("us", "UTC"), WHEN, primitive(12, count(MICROS))),
    (pa.timestamp("us"), WHEN.replace(tzinfo=None), primitive(13, count(MICROS))),
    (pa.timestamp("ns", "UTC"), MICROS * 1_000 + 7, primitive(18, count(MICROS * 1_000 + 7))),
    (pa.timestamp("ns"), -1, primitive(19, count(-1))),
    (pa.time64("us"), time(1, 2, 3, 400_000), primitive(17, count(3_723_400_000))),
    (pa.binary(), b"\xff\0", primitive(15, count(2, 4) + b"\xff\0")),
    (pa.string(), 'quote " and ü', primitive(16, count(14, 4) + 'quote " and ü'.encode())),
]


@pytest.mark.parametrize(("typed", "value", "encoded"), TYPES, ids=lambda each: str(each)[:24])
def test_a_shredded_value_has_the_text_that_it_has_encoded(
    typed: pa.DataType,
    value: Any,  # noqa: ANN401
    encoded: bytes,
) -> None:
    plain = variant_json(METADATA, encoded)
    rows: list[dict[str, Any] | None] = [{"typed_value": value}, {"value": encoded}, None]

    assert texts(typed, rows) == ([plain, plain, None], [])
    nested = [{"typed_value": {"a": row or {}}} for row in rows]
    whole = f'{{"a":{plain}}}'
    assert texts(members(a=typed), nested) == ([whole, whole, "{}"], [])


@pytest.mark.parametrize(
    "typed",
    [
        pa.uint32(),
        pa.float16(),
        pa.time32("ms"),
        pa.timestamp("ms"),
        pa.binary(4),
        pa.decimal256(50, 2),
        pa.map_(pa.string(), pa.int8()),
        pa.list_(pa.int8()),
        pa.struct([("a", pa.int8())]),
        pa.struct([("a", pa.struct([("other", pa.binary())]))]),
        members(a=pa.uint8()),
    ],
    ids=str,
)
def test_a_type_that_variant_does_not_have_is_refused_by_name(
    typed: pa.DataType, golden: Golden
) -> None:
    with golden.raises(UnsupportedType, match="'v.*'"):
        texts(typed, [{"typed_value": None}])


def test_members_of_a_group_are_found_by_name_and_value_may_be_left_out() -> None:
    kind = pa.struct(
        [
            pa.field("typed_value", members(a=pa.int8())),
            pa.field("metadata", pa.binary(), nullable=False),
        ]
    )
    rows = [{"metadata": METADATA, "typed_value": {"a": {"typed_value": 1}}}]
    table = pa.table({"v": pa.array(rows, kind), "behind": ["x"]})

    found, bad = read_rows(annotated(written(table)))

    assert bad == []
    assert found.to_pylist() == [{"v": '{"a":1}', "behind": "x"}]


def test_shredded_values_in_lists_are_read() -> None:
    kind = pa.struct([pa.field("metadata", pa.binary(), nullable=False), *group(pa.int8())])
    rows = [
        [{"metadata": METADATA, "typed_value": 1}, None],
        None,
        [{"metadata": METADATA, "value": text("x")}],
    ]
    table = pa.table({"l": pa.array(rows, pa.list_(pa.field("element", kind)))})

    found, bad = read_rows(annotated(written(table), "element"))

    assert bad == []
    assert found.column("l").to_pylist() == [["1", None], None, ['"x"']]


def test_names_that_would_be_in_every_text_are_bounded() -> None:
    typed = members(**{f"{at:04}" + "n" * 1_000: pa.int8() for at in range(300)})

    with pytest.raises(UnsupportedType, match="names of more than"):
        texts(typed, [{"typed_value": None}])


# -- other writers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", [sql for sql, _ in VALUES])
def test_files_of_duckdb_have_the_same_text_shredded_or_not(sql: str, tmp_path: Path) -> None:
    found: list[list[Any]] = []
    for options in ("format parquet", "format parquet, shredding {'v': 'VARIANT'}"):
        path = tmp_path / f"{len(found)}.parquet"
        rows = f"(1, ({sql})::variant), (2, null), (3, ({sql})::variant)"
        duckdb.execute(f"copy (from (values {rows}) t(n, v)) to '{path}' ({options})")
        result, bad = read_rows(path.read_bytes())
        assert bad == []
        found.append(result.column("v").to_pylist())

    assert found[0] == found[1]


def test_mixed_rows_of_duckdb_have_the_values_that_duckdb_reads(tmp_path: Path) -> None:
    path = tmp_path / "mixed.parquet"
    docs = [
        {"a": 1, "b": "x", "c": [1, 2]},
        {"a": 2, "b": None, "d": {"e": 1, "f": [{"g": 1}]}},
        {"a": "text", "c": []},
        {"c": [3, "x", None]},
        {},
        [1, 2],
        5,
        "s",
    ]
    rows = ", ".join(f"('{json.dumps(doc)}'::json::variant)" for doc in docs * 40)
    duckdb.execute(f"copy (from (values {rows}, (null)) t(v)) to '{path}' (format parquet)")

    result, bad = read_rows(path.read_bytes())

    assert bad == []
    found = [text and json.loads(text) for text in result.column("v").to_pylist()]
    assert found == [*docs * 40, None]


SPARKS = [
    {"a": 1, "b": "x", "c": [1, 2, 3], "d": {"e": 1.5, "f": True}},
    {"a": "text", "b": None, "z": 9},
    {},
    [1, 2],
    None,
    5,
    "s",
    {"c": [1, "x", None, {"q": 1}], "d": {"e": "no", "g": 2}},
    {"c": {"h": 1}, "d": 7},
    {"a": 99999999999, "b": "é\n"},
    "(null)",
    {"a": 2, "t": 1},
    {"d": {}},
    {"c": []},
    {"a": 1.25, "d": {"e": 3}},
    {"a": -3, "b": "", "d": {"e": 0.1, "f": False}},
]


@pytest.mark.parametrize("kind", ["object", "deep", "dec"])
def test_files_of_spark_have_the_values_that_spark_wrote(kind: str) -> None:
    """Spark 4.0 shredded them by a schema for its tests; it leaves out the annotation."""
    body = (Path(__file__).parent / "files" / f"variant-{kind}.parquet").read_bytes()

    result, bad = read_rows(annotated(body))

    assert bad == []
    assert result.column("i").to_pylist() == list(range(len(SPARKS)))
    texts_found = result.column("v").to_pylist()
    assert texts_found[10] is None
    found = ["(null)" if text is None else json.loads(text) for text in texts_found]
    assert found == SPARKS
