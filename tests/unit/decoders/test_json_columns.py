r"""`jsonl.schema` and `json.schema`: values are exact or bad records, on both paths."""

import base64
import datetime as dt
import json
import re
import tracemalloc
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.laws import Decoded, decoded, extent_of
from tests.support.golden import Golden

from extentflow.arrays.spans import Spans
from extentflow.config.column_lists import JSON_SCHEMA, json_type
from extentflow.decoders.json_columns import ColumnReader, MemberColumns, UnfitDocument
from extentflow.errors import UnsupportedFormat
from extentflow.formats import Format, FormatOptions, InspectingFormat
from extentflow.formats.json.json_format import JsonOptions, open_json
from extentflow.formats.json.jsonl_format import JsonlOptions, open_jsonl
from extentflow.testing.stores import MemorySource

EVENING = dt.datetime(2026, 1, 31, 23, 59, 59, 500_000, tzinfo=dt.UTC)
# So many lines are read by Arrow, not one by one.
MANY = 20


def lines_format(
    schema: str | None, *, unknown: str = "error", facts: str = "", batch_rows: int = 65_536
) -> Format:
    # Named, because random bytes may have zeros as UTF-16 has them.
    options = FormatOptions(charset="UTF-8", facts=facts, batch_rows=batch_rows)
    columns = None if schema is None else JSON_SCHEMA.read(schema)
    return open_jsonl(options, JsonlOptions(schema=columns, unknown_members=unknown))


def read(body: bytes, schema: str | None, **options: Any) -> Decoded:  # noqa: ANN401
    return decoded(lines_format(schema, **options), MemorySource(body), (0, len(body)))


def read_alike(line: bytes, schema: str | None, **options: Any) -> Decoded:  # noqa: ANN401
    """Read a line alone, and among others, of which Arrow reads a block; both agree."""
    alone = read(line, schema, **options)
    body = b"\n".join([line] * MANY) + b"\n"

    among = read(body, schema, **options)

    assert among.rows == alone.rows * MANY
    assert [(raw, why) for _, raw, why in among.bad] == [
        (raw, why) for _, raw, why in alone.bad
    ] * MANY
    return alone


def value(line: bytes | str, of: str, **options: Any) -> Any:  # noqa: ANN401
    raw = line.encode() if isinstance(line, str) else line
    result = read_alike(b'{"a":' + raw + b"}", f"a:{of}", **options)
    assert not result.bad, result.bad
    return result.rows[0]["a"]


def reason(line: bytes | str, of: str, **options: Any) -> str:  # noqa: ANN401
    raw = line.encode() if isinstance(line, str) else line
    result = read_alike(b'{"a":' + raw + b"}", f"a:{of}", **options)
    assert not result.rows, result.rows
    return result.bad[0][2]


@pytest.mark.parametrize(
    ("raw", "of", "found"),
    [
        ("-128", "int8", -128),
        ("18446744073709551615", "uint64", 2**64 - 1),
        ("9223372036854775807", "int64", 2**63 - 1),
        ("-0", "int64", 0),
        ("1.0", "int64", 1),
        ("1e3", "int64", 1000),
        ("1.50e1", "int16", 15),
        ("0e-999", "int64", 0),
        ("1.5", "float64", 1.5),
        ("5e-324", "float64", 5e-324),
        ("1e-999", "float64", 0.0),
        ("0.1", "float32", float(np.float32(0.1))),
        ("16777217", "float32", 16777216.0),
        ("7.038531e-26", "float32", 7.038530691851209e-26),  # not rounded twice
        ("1.50", "decimal(9,2)", Decimal("1.50")),
        ("1.5000", "decimal(9,2)", Decimal("1.50")),
        ("1e2", "decimal(9,2)", Decimal("100.00")),
        ("-0", "decimal(9,2)", Decimal("0.00")),
        ('"1.25"', "decimal(9,2)", Decimal("1.25")),
        ('"1E+2"', "decimal(9,2)", Decimal("100.00")),
        ("9" * 38, "decimal(38,0)", Decimal("9" * 38)),
        ("0." + "9" * 38, "decimal(38,38)", Decimal("0." + "9" * 38)),
        ("0." + "0" * 60, "decimal(9,2)", Decimal("0.00")),
        ("12345678901234567890.12345678901234567", "decimal(38,17)",
         Decimal("12345678901234567890.12345678901234567")),
        ("true", "bool", True),
        ('"2026-01-31"', "date", dt.date(2026, 1, 31)),
        ('"2026-01-31 23:59:59.5"', "timestamp(ms)", EVENING.replace(tzinfo=None)),
        ('"2026-01-31T23:59:59.500000Z"', "timestamp(us,UTC)", EVENING),
        ('"2026-02-01T01:59:59.5+02:00"', "timestamp(us,UTC)", EVENING),
        ('"AAEC/w=="', "binary", b"\0\1\2\xff"),
        ('""', "binary", b""),
        ('"\\u00e9\\ud83d\\ude00\\u0000"', "string", "é😀\0"),
        ('"NaN Infinity 1e5"', "string", "NaN Infinity 1e5"),
        ("null", "struct<x:int64>", None),
        ('{"x":1}', "struct<x:int64,y:list<string>>", {"x": 1, "y": None}),
        ("{}", "struct<x:int64>", {"x": None}),
        ("[1,null,3]", "list<int64>", [1, None, 3]),
        ("[]", "list<int64>", []),
        ('[{"d":"2026-01-31"},null,{}]', "list<struct<d:date>>",
         [{"d": dt.date(2026, 1, 31)}, None, {"d": None}]),
        ('[["AA=="],null,[]]', "list<list<binary>>", [[b"\0"], None, []]),
        ('{"b":1,"a":null}', "map<string,int64>", [("b", 1), ("a", None)]),
        ('{"k":[{"d":"2026-01-31"}]}', "map<string,list<struct<d:date>>>",
         [("k", [{"d": dt.date(2026, 1, 31)}])]),
        ('{ "b" : [1.10, "\\u00e9", true, {"":null}, 1e999] }', "json",
         '{"b":[1.10,"é",true,{"":null},1e999]}'),
        ('"x"', "json", '"x"'),
        ("12345678901234567890.10", "json", "12345678901234567890.10"),
        ("null", "json", None),
    ],
)  # fmt: skip
def test_values_are_exact(raw: str, of: str, found: object) -> None:
    assert value(raw, of) == found


@pytest.mark.parametrize(
    ("raw", "of", "why"),
    [
        ("128", "int8", "128 is not a valid int8"),
        ("-1", "uint8", "-1 is not a valid uint8"),
        ("1.5", "int64", "1.5 is not a valid int64"),
        ("9223372036854775808", "int64", "9223372036854775808 is not a valid int64"),
        ("1e999999999999999999", "int64", "1e999999999999999999 is not a valid int64"),
        ("1e-999999999999999999999", "int64", "is not a valid int64"),
        ("1" * 5000, "int64", "1... is not a valid int64"),
        ('"7"', "int64", "'7' is not a valid int64"),
        ("true", "int64", "true is not a valid int64"),
        ('"1.5"', "float64", "'1.5' is not a valid double"),
        ("1e400", "float64", "1e400 is not a valid double"),
        ("1e39", "float32", "1e39 is not a valid float"),
        ("1.255", "decimal(9,2)", "1.255 is not a valid decimal128(9, 2)"),
        ("12345678", "decimal(9,2)", "12345678 is not a valid decimal128(9, 2)"),
        ("9" * 39, "decimal(38,0)", "is not a valid decimal128(38, 0)"),
        ("9" * 76, "decimal(38,10)", "is not a valid decimal128(38, 10)"),
        ("9" * 70, "decimal(38,30)", "is not a valid decimal128(38, 30)"),
        ("1e70", "decimal(38,30)", "1e70 is not a valid decimal128(38, 30)"),
        ("1e-70", "decimal(38,30)", "1e-70 is not a valid decimal128(38, 30)"),
        ('"9e75"', "decimal(38,30)", "'9e75' is not a valid decimal128(38, 30)"),
        ('""', "decimal(9,2)", "'' is not a valid decimal128(9, 2)"),
        ('" 1"', "decimal(9,2)", "' 1' is not a valid decimal128(9, 2)"),
        ("1", "bool", "1 is not a valid bool"),
        ('"true"', "bool", "'true' is not a valid bool"),
        ("5", "string", "5 is not a valid string"),
        ("{}", "string", "an object is not a valid string"),
        ("[]", "string", "an array is not a valid string"),
        ("20260131", "date", "20260131 is not a valid date32[day]"),
        ('"2026-02-30"', "date", "'2026-02-30' is not a valid date32[day]"),
        ('"2026-01-31T00:00:00Z"', "timestamp(us)", "is not a valid timestamp[us]"),
        ('"AAE"', "binary", "no base64"),
        ('"A A="', "binary", "no base64"),
        ('"é"', "binary", "no base64"),
        ("[]", "struct<x:int64>", "an array is no object"),
        ("{}", "list<int64>", "an object is no array"),
        ("[]", "map<string,int64>", "an array is no object"),
    ],
)
def test_a_value_that_its_type_cannot_represent_is_a_bad_record(
    raw: str, of: str, why: str
) -> None:
    found = reason(raw, of)

    assert found.startswith("member 'a': ")
    assert why in found


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"a":007}', "not one JSON value"),
        (b'{"a":NaN}', "not one JSON value: NaN is no number of JSON"),
        (b'{"a":-Infinity}', "not one JSON value: -Infinity is no number of JSON"),
        (b'{"a":1,}', "not one JSON value"),
        (b'{"a":1}{"a":2}', "not one JSON value: Extra data"),
        (b'{"a":1} x', "not one JSON value: Extra data"),
        (b'{"a":1}\0', "not one JSON value: Extra data"),
        (b'{"a":', "not one JSON value"),
        (b'{,"a":1}', "not one JSON value"),
        (b'{"b":"\\ud800"}', "not one JSON value: a string holds half of a surrogate pair"),
        (b'{"b":"\\udc00\\ud800"}', "not one JSON value: a string holds half of a surrogate pair"),
        (b'{"b":"x\x01"}', "not one JSON value: Invalid control character"),
        (b'{"a":1,"a":2}', "member 'a': stands more than once in its object"),
        (b'{"a":null,"\\u0061":null}', "member 'a': stands more than once in its object"),
        (b'{"c":{"x":1,"x":1}}', "member 'c.x': stands more than once in its object"),
        (b'{"d":1}', "member 'd': no column has this name; add it to jsonl.schema, or set"),
        (b'{"c":{"y":1}}', "member 'c.y': no column has this name"),
        (b'{"e":[{"x":1},{"x":1.5}]}', "member 'e[1].x': 1.5 is not a valid int64"),
        (b"[1]", "an array is no object"),
        (b"7", "7 is no object"),
        (b"null", "null is no object"),
        (b'"\xff"', "not UTF-8: invalid start byte"),
        (b'\xef\xbb\xbf{"a":1}', "not one JSON value"),
        (b"[" * 501 + b"]" * 501, "not one JSON value: nested deeper than 500 levels"),
        (b"[" * 100_000, "not one JSON value: nested deeper than 500 levels"),
    ],
)
def test_a_line_that_is_no_object_of_the_schema_is_a_bad_record(line: bytes, why: str) -> None:
    schema = "a:int64,b:string,c:struct<x:int64>,e:list<struct<x:int64>>"
    good = b'{"a":1}\n' * MANY

    result = read(good + line + b"\n" + good, schema)

    assert len(result.rows) == 2 * MANY
    ((location, raw, found),) = result.bad
    assert (location, raw) == (len(good), line)
    assert found.startswith(why)


def test_a_document_of_several_lines_is_never_taken_for_one() -> None:
    """Arrow reads as many rows as there are lines, none of which is a document."""
    body = b'{"a":1}{"a":2}\n{"a":\n3}\n' * MANY

    result = read(body, "a:int64")

    assert not result.rows
    assert len(result.bad) == 3 * MANY


@pytest.mark.parametrize(
    "body",
    [
        b'{"b":[\n{"a":1}]}\n{"a":2}{"a":3}\n',
        b'{"a":1,"b":{"c":\n{"a":1}}}{"a":2}\n{}\n',
    ],
)
def test_ignored_members_do_not_hide_where_documents_end(body: bytes) -> None:
    result = read(body * MANY, "a:int64", unknown="ignore")

    assert [location for location, _, _ in result.bad][:2] == [0, body.index(b"\n") + 1]
    assert all(row == {"a": None} for row in result.rows)


@pytest.mark.parametrize(
    "member",
    [
        b'"x":1e999',
        b'"x":{"a":5,"a":6}',
        b'"x":1,"x":2',
        b'"x":"NaN"',
        b'"x":' + b"[" * 499 + b"]" * 499,
        b'"x":"' + b"[" * 2000 + b'"',
    ],
)
def test_members_without_a_column_can_be_ignored(member: bytes) -> None:
    line = b'{"a":1,' + member + b',"c":{"y":2,"z":3}}'

    result = read_alike(line, "a:int64,c:struct<y:int64>", unknown="ignore")

    assert result.rows == [{"a": 1, "c": {"y": 2}}]


@pytest.mark.parametrize(
    "member", [b'"x":NaN', b'"x":"\\ud800"', b'"x":' + b"[" * 500 + b"]" * 500]
)
def test_what_is_ignored_must_be_json(member: bytes) -> None:
    result = read_alike(b'{"a":1,' + member + b"}", "a:int64", unknown="ignore")

    assert not result.rows


def test_missing_members_and_nulls_are_null_and_blank_lines_no_records() -> None:
    body = b'{"a":1}\n\n  \n{"a":null}\r\n{}\n { "a" : 2 } \n'

    result = read(body * MANY, "a:int64")

    assert result.rows == [{"a": 1}, {"a": None}, {"a": None}, {"a": 2}] * MANY
    assert result.bad == []


def test_columns_stand_in_the_order_of_the_schema_with_its_types() -> None:
    schema = "b:decimal(9,2),a:list<struct<x:date,y:json>>,c:map<string,binary>"

    fmt = lines_format(schema)
    source = MemorySource(b'{"a":[],"b":1}\n')
    (chunk,) = fmt.decode(source, extent_of(source, 0, 15), 0)

    assert chunk.batch.schema == pa.schema(
        [
            ("b", pa.decimal128(9, 2)),
            ("a", pa.list_(pa.struct([("x", pa.date32()), ("y", pa.string())]))),
            ("c", pa.map_(pa.string(), pa.binary())),
        ]
    )
    chunk.batch.validate(full=True)


def test_one_bad_record_does_not_touch_its_neighbours() -> None:
    lines = [b'{"a":%d,"t":"2026-01-31"}' % number for number in range(5000)]
    lines[1234] = b'{"a":1.5}'
    lines[4321] = b'{"t":"yesterday"}'

    result = read(b"\n".join(lines), "a:int64,t:date")

    assert [row["a"] for row in result.rows] == [
        number for number in range(5000) if number not in (1234, 4321)
    ]
    assert [raw for _, raw, _ in result.bad] == [lines[1234], lines[4321]]


def test_elements_and_pretty_documents_have_columns() -> None:
    body = b'[{"a":1,\n"b":{"c":[1,\n2]}},{"a":2.0}, 7]\n{"a":3}{"a":4\n}' + b'{"a":5}' * MANY
    columns = JSON_SCHEMA.read("a:int64,b:struct<c:list<int64>>")

    fmt = open_json(FormatOptions(), JsonOptions(schema=columns))
    result = decoded(fmt, MemorySource(body), (0, len(body)))

    assert [row["a"] for row in result.rows] == [1, 2, 3, 4] + [5] * MANY
    assert result.rows[0]["b"] == {"c": [1, 2]}
    assert [(raw, why) for _, raw, why in result.bad] == [(b"7", "7 is no object")]


def inspected(body: bytes, fmt: Format | None = None) -> str:
    fmt = fmt or lines_format(None)
    assert isinstance(fmt, InspectingFormat)
    return fmt.inspect(MemorySource(body))


@pytest.mark.parametrize(
    ("values", "of"),
    [
        (["1", "-5"], "int64"),
        (["9223372036854775808", "1"], "decimal(38,0)"),
        (["1" * 39], "json"),
        (["1", "1.5"], "float64"),
        (["1.50", "2.25"], "float64"),
        (["1e3"], "float64"),
        (["0.30000000000000004"], "float64"),
        (["0.300000000000000041", "1"], "decimal(38,18)"),
        (["9007199254740993", "1.5"], "decimal(38,1)"),
        (["1e400"], "json"),
        (["1e-400"], "json"),
        (["true", "false"], "bool"),
        (["true", "1"], "json"),
        (['"x"', "1"], "json"),
        (['"1"', '"2"'], "string"),
        (['"true"'], "string"),
        (['"2026-01-31"'], "date"),
        (['"2026-01-31"', '"2026-01-31T23:59:59"'], "timestamp(us)"),
        (['"2026-01-31T23:59:59.5Z"'], "timestamp(us,UTC)"),
        (['"2026-01-31"', '"n/a"'], "string"),
        (["null", "null"], "string"),
        (["null", "1"], "int64"),
        (["[1,2]", "[]", "[null,3.5]"], "list<float64>"),
        (["[]"], "list<string>"),
        (["[1]", "{}"], "json"),
        (["{}"], "json"),
        (['{"x":1}', '{"y":"a, b"}', "null"], "struct<x:int64,y:string>"),
        (['[{"x":1},{"x":1.5,"y:z":[]}]'], 'list<struct<x:float64,"y:z":list<string>>>'),
    ],
)
def test_the_types_that_planning_finds(values: list[str], of: str) -> None:
    body = "\n".join(f'{{"a":{one}}}' for one in values).encode()

    facts = inspected(body)

    assert facts == f"a:{of}"
    assert not read(body, None, facts=facts).bad


def test_planning_finds_the_types_of_documents_of_any_layout() -> None:
    body = b'[{"a": 1,\n "b": [{"c": "2026-01-31"}]}, {"a": null}, 5, nul]'
    fmt = open_json(FormatOptions(), JsonOptions(schema=None))

    assert inspected(body, fmt) == "a:int64,b:list<struct<c:date>>"


def test_a_later_value_that_contradicts_the_samples_is_bad_and_says_what_to_do(
    golden: Golden,
) -> None:
    facts = inspected(b'{"a":1,"b":1.5}\n')
    good = b'{"a":1,"b":1.5}\n' * MANY

    result = read(good + b'{"a":1.5}\n{"c":1}\n' + good, None, facts=facts)

    assert len(result.rows) == 2 * MANY
    first, second = (why for _, _, why in result.bad)
    golden(first)
    assert "'a'" in first
    assert second.startswith("member 'c': no column has this name")


@pytest.mark.parametrize(
    ("raw", "rounded"),
    [
        ("0.1", False),
        ("0.30000000000000004", False),
        ("-0.30000000000000004", False),
        ("0.300000000000000041", True),
        ("9007199254740993", True),
        ("9007199254740992", False),
        ("123456789012345678901234567890", True),
        ("1.5e300", False),
        ("1e-400", True),
        ("1.2345678901234568e-10", False),
        ("1.23456789012345678e-10", True),
        ("0." + "0" * 400 + "1", True),
        ("1e22", False),
    ],
)
def test_floats_that_planning_found_are_not_rounded(raw: str, rounded: bool) -> None:  # noqa: FBT001
    result = read_alike(b'{"a":' + raw.encode() + b"}", None, facts="a:float64")

    assert [row["a"] for row in result.rows] == ([] if rounded else [float(raw)])


def test_without_the_facts_of_a_job_nothing_is_decoded(golden: Golden) -> None:
    with golden.raises(UnsupportedFormat):
        read(b'{"a":1}\n', None)


def test_an_object_with_too_many_names_is_refused_at_planning(golden: Golden) -> None:
    names = ",".join(f'"{number:0100}":1' for number in range(3000))

    with golden.raises(UnsupportedFormat, match=r"jsonl\.schema=infer"):
        inspected(b"{" + names.encode() + b"}")


TYPES = [
    *("int8", "int64", "uint64", "float64", "float32", "bool", "string", "date", "binary"),
    *("decimal(9,2)", "decimal(38,0)", "decimal(38,30)", "timestamp(us,UTC)", "timestamp(ms)"),
    *("list<int64>", "list<decimal(9,2)>", "struct<x:int64,y:float64>", "list<struct<x:date>>"),
    *("json", "map<string,int64>"),
]
NUMBERS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?", fullmatch=True
)
TEXTS = st.sampled_from(
    ["", "x", "é😀", "\0", "2026-01-31", "2026-01-31 01:02:03.5", "2026-01-31T00:00:00Z", "AAEC",
     "1.5", "1e5", "9" * 76, "NaN", '"', "\\", "[[", "1e-3", "2026-02-30"]
)  # fmt: skip
VALUES = st.recursive(
    NUMBERS
    | st.sampled_from(["null", "true", "NaN", "1e999", "-0", "0.1", "1e400", "12.50", "7", "007"])
    | TEXTS.map(json.dumps)
    | TEXTS.map(lambda text: json.dumps(text, ensure_ascii=False)),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: f"[{','.join(each)}]")
        | st.lists(st.tuples(st.sampled_from(["x", "y", "a", "\\u0078"]), inner), max_size=3).map(
            lambda each: "{" + " , ".join(f'"{name}":{one}' for name, one in each) + "}"
        )
    ),
    max_leaves=4,
)


class Refused(Exception):  # noqa: N818 - an outcome
    pass


class Raw(str):
    __slots__ = ()


class Pairs(list[Any]):
    __slots__ = ()


def refuse(word: str) -> None:
    raise Refused(word)


def expected(line: str, schema: pa.Schema, *, ignore: bool) -> dict[str, Any]:
    """Return the row of a line, by the definition."""
    try:
        document = json.loads(
            line,
            parse_int=Raw,
            parse_float=Raw,
            parse_constant=refuse,
            object_pairs_hook=Pairs,
        )
    except ValueError as exc:
        raise Refused from exc
    return wanted_struct(document, pa.struct(list(schema)), ignore=ignore)


def wanted_struct(value: object, of: pa.DataType, *, ignore: bool) -> dict[str, Any]:
    if not isinstance(value, Pairs):
        raise Refused
    names = [name for name, _ in value if of.get_field_index(name) >= 0]
    if len(set(names)) < len(names) or (len(names) < len(value) and not ignore):
        raise Refused
    members = dict(value)
    return {one.name: wanted(members.get(one.name), one.type, ignore=ignore) for one in of}


def wanted(value: Any, of: pa.DataType, *, ignore: bool) -> Any:  # noqa: ANN401, C901, PLR0911, PLR0912
    text = isinstance(value, str) and not isinstance(value, Raw)
    number = isinstance(value, Raw)
    if value is None:
        return None
    if pa.types.is_struct(of):
        return wanted_struct(value, of, ignore=ignore)
    if isinstance(of, pa.JsonType):
        return compact(value)
    if pa.types.is_map(of):
        if not isinstance(value, Pairs) or len({name for name, _ in value}) < len(value):
            raise Refused
        return [(name, wanted(one, of.item_type, ignore=ignore)) for name, one in value]
    if isinstance(value, list):
        if not pa.types.is_list(of) or isinstance(value, Pairs):
            raise Refused
        return [wanted(one, of.value_type, ignore=ignore) for one in value]
    if pa.types.is_boolean(of) and isinstance(value, bool):
        return value
    if pa.types.is_string(of) and text:
        return value
    if pa.types.is_integer(of) and number:
        exact = Decimal(value)
        info = np.iinfo(of.to_pandas_dtype())
        if not exact:  # with any exponent
            return 0
        if abs(exact.adjusted()) < 60 and exact == int(exact) and info.min <= exact <= info.max:
            return int(exact)
    if pa.types.is_decimal(of) and isinstance(value, str):
        return wanted_decimal(value, of)
    if pa.types.is_floating(of) and number:
        found = nearest_float32(value) if of == pa.float32() else float(value)
        if abs(found) != float("inf"):
            return found
    try:
        if pa.types.is_binary(of) and text:
            return base64.b64decode(value, validate=True)
        if pa.types.is_date(of) and text:
            return dt.date.fromisoformat(value) if len(value) == 10 else refuse(value)
        if pa.types.is_timestamp(of) and text and value[:4].isdigit():
            found_time = dt.datetime.fromisoformat(value)
            if (
                len(value) >= 10
                and (of.tz is None or len(value) > 10)
                and bool(of.tz) == bool(found_time.tzinfo)
            ):
                return found_time
            if of.tz and len(value) == 10:
                raise Refused
    except ValueError as exc:
        raise Refused from exc
    raise Refused


def wanted_decimal(text: str, of: pa.DataType) -> Decimal:
    try:
        exact = Decimal(text) if re.fullmatch(r"[-+0-9.eE]+", text) else None
    except InvalidOperation:
        exact = None
    if exact is not None and not exact:
        return Decimal(0)
    if exact is None or not -1000 < exact.adjusted() < 1000:
        raise Refused
    whole, _, fraction = f"{exact:f}".lstrip("-").partition(".")
    digits = len(whole.lstrip("0")), len(fraction.rstrip("0"))
    if digits[0] > of.precision - of.scale or digits[1] > of.scale:
        raise Refused
    return exact


def nearest_float32(number: str) -> float:
    near = np.float32(float(number))
    if not np.isfinite(near):
        return float(near)
    down, up = (np.nextafter(near, np.float32(end)) for end in (-np.inf, np.inf))
    finite = [one for one in (near, down, up) if np.isfinite(one)]
    exact = Fraction(Decimal(number))

    def distance(one: np.float32) -> tuple[Fraction, int]:
        # Ties go to the even one, whose last bit is 0.
        return abs(Fraction(float(one)) - exact), int(one.view(np.uint32)) & 1

    return float(min(finite, key=distance))


def compact(value: object) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, Pairs):
        inner = (json.dumps(name, ensure_ascii=False) + ":" + compact(one) for name, one in value)
        return "{" + ",".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(compact, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


@given(
    st.lists(st.sampled_from(TYPES), min_size=1, max_size=3),
    st.lists(
        st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d"]), VALUES), max_size=3),
        min_size=1,
        max_size=8,
    ),
    st.booleans(),
    st.sampled_from([1, MANY]),
)
@settings(max_examples=60, deadline=None)
def test_both_paths_decode_what_the_definition_says(
    types: list[str],
    documents: list[list[tuple[str, str]]],
    ignore: bool,  # noqa: FBT001
    times: int,
) -> None:
    written = ",".join(f"{name}:{of}" for name, of in zip("abc", types, strict=False))
    schema = pa.schema([(name, json_type(of)) for name, of in JSON_SCHEMA.read(written)])
    lines = ["{" + ",".join(f'"{name}":{one}' for name, one in each) + "}" for each in documents]
    rows, bad = [], []
    for line in lines * times:
        try:
            rows.append(expected(line, schema, ignore=ignore))
        except Refused:
            bad.append(line.encode())

    result = read(
        "\n".join(lines * times).encode(), written, unknown="ignore" if ignore else "error"
    )

    assert result.rows == rows
    assert [raw for _, raw, _ in result.bad] == bad


def test_memory_is_bounded_whatever_the_object_s_size() -> None:
    body = b'{"a":1,"b":["text"],"c":{"d":1.5}}\n' * 200_000
    options = FormatOptions(window_bytes=1 << 20)
    columns = JSON_SCHEMA.read("a:int64,b:list<string>,c:struct<d:float64>")
    fmt = open_jsonl(options, JsonlOptions(schema=columns))
    source = MemorySource(body)

    tracemalloc.start()
    before = pa.total_allocated_bytes()
    most = rows = 0
    for chunk in fmt.decode(source, extent_of(source, 0, len(body)), 0):
        rows += chunk.batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert rows == 200_000
    assert peak < 32 << 20
    assert most < 64 << 20


@pytest.mark.parametrize(
    ("texts", "row", "why"),
    [
        ([b'{"a":1}', b""], 1, "only whitespace"),
        ([b""], 0, "only whitespace"),
        ([b'{"a":1}', b" \n", b"7"], 1, "only whitespace"),
        ([b'{"a":1}', b"7", b" "], 1, "7 is no object"),
        ([b'{"a":"\xff"}', b"7"], 0, "not UTF-8"),
    ],
)
def test_the_first_document_without_a_row_is_named(texts: list[bytes], row: int, why: str) -> None:
    columns = MemberColumns.of("json", JSON_SCHEMA.read("a:int64"), "", ignores=False)

    with pytest.raises(UnfitDocument, match=why) as caught:
        ColumnReader(columns).read_all(Spans.of(texts))

    assert caught.value.row == row
