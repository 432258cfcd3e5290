"""Records of backups are restored as they were: key, value, headers, timestamp, partition."""

from typing import Any

import orjson
import pyarrow as pa
import pytest
from tests.support.backups import BACKUPS, RESTORE
from tests.support.chains import Converted, convert
from tests.support.golden import Golden

from extentflow.config.parsing import parse
from extentflow.errors import Misconfigured, UnsupportedType
from extentflow.kafka.record_headers import Headers

BASE = {"name": "c", "topic": "t", "aws.s3.bucket.name": "bucket"}
ENTRY = pa.struct([("key", pa.string()), ("value", pa.binary())])


def listed(made: Converted) -> list[Headers]:
    return [list(each) for chunk in made.chunks for each in chunk.records.headers or ()]


@pytest.mark.parametrize("name", BACKUPS)
def test_a_backup_is_restored_byte_by_byte(name: str) -> None:
    backup = BACKUPS[name]

    made = convert(backup.write(), backup.config, backup.format)

    originals = backup.originals
    assert made.bad == []
    assert made.payloads == [one.value for one in originals]
    assert made.keys == [one.key for one in originals]
    assert listed(made) == [list(one.headers) for one in originals]
    assert made.timestamps == [one.timestamp for one in originals]
    if "message.partition" in backup.config:
        assert made.partitions == [one.partition for one in originals]


def headers_of(column: pa.Array, **config: str) -> Converted:
    table = pa.table({"id": range(len(column)), "headers": column})
    return convert(table, {"select": "id", "message.headers": "column:headers", **config})


def test_headers_of_the_column_come_before_those_of_the_connector() -> None:
    column = pa.array([[{"key": "a", "value": b"1"}], []], pa.list_(ENTRY))

    made = headers_of(column, headers="site=text:north,a=column:id")

    more = [("site", b"north")]
    assert listed(made) == [[("a", b"1"), *more, ("a", b"0")], [*more, ("a", b"1")]]


@pytest.mark.parametrize(
    "data_type",
    [pa.list_(ENTRY), pa.large_list(ENTRY), pa.map_(pa.string(), pa.binary())],
    ids=["list", "large_list", "map"],
)
def test_lists_and_maps_with_nulls_keep_each_row_its_headers(data_type: pa.DataType) -> None:
    rows: list[Any] = [None, [("a", b"1"), ("a", None)], [], [("b", b"")], None]
    if not pa.types.is_map(data_type):
        rows = [row and [{"key": k, "value": v} for k, v in row] for row in rows]

    made = headers_of(pa.array(rows, data_type))

    expected = [[], [("a", b"1"), ("a", None)], [], [("b", b"")], []]
    assert listed(made) == expected


def test_members_of_a_struct_are_headers_and_null_ones_are_none() -> None:
    rows = [{"a": "x", "n": 5}, {"a": None, "n": None}, None]

    made = headers_of(pa.array(rows, pa.struct([("a", pa.string()), ("n", pa.int64())])))

    assert listed(made) == [[("a", b"x"), ("n", b"5")], [], []]


def test_a_column_of_nulls_holds_no_headers() -> None:
    assert listed(headers_of(pa.nulls(2))) == [[], []]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[{"key":"a","value":"b"},{"value":null,"key":"a"}]', [("a", b"b"), ("a", None)]),
        (' {"a":"b","n":1.10,"a":null}', [("a", b"b"), ("n", b"1.10"), ("a", None)]),
        ('{"o":{"x": [1e400, "\\u00fc", null]}}', [("o", b'{"x":[1e400,"\xc3\xbc",null]}')]),
        ('{"t":true}', [("t", b"true")]),
        ("YQ==:/w==;Yg==:;", [("a", b"\xff"), ("b", b"")]),
        ("", []),
        ("[]", []),
    ],
)
def test_text_states_headers_as_json_or_as_aivens_connectors_do(
    text: str, expected: list[tuple[str, bytes | None]]
) -> None:
    assert listed(headers_of(pa.array([text]))) == [expected]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a:b", "no headers as"),
        ("YQ==;", "a header is no name:value in base64"),
        ("YQ=:YQ==;", "a header is no base64"),
        ("/w==:YQ==;", "no headers: 'utf-8' codec"),
        ('{"a":', "no headers: "),
        ('[{"key":"a"}]', "a header is no {"),
        ('[{"key":1,"value":"a"}]', "a header is no {"),
        ('[["a","b"]]', "a header is no {"),
        ('["a"]', "a header is no {"),
        ('[{"key":"\\ud800","value":"a"}]', "no headers: 'utf-8' codec"),
        ('[{"key":"a","value":"\\ud800"}]', "no headers: 'utf-8' codec"),
        ('[{"key":"a","value":NaN}]', "NaN is no JSON"),
        ('[{"key":"a","value":' + "[" * 100_000, "no headers: "),
    ],
)
def test_trap_t23_text_that_states_no_headers_is_a_bad_record(text: str, reason: str) -> None:
    made = headers_of(pa.array(["[]", text, '{"b":"c"}']))

    assert listed(made) == [[], [("b", b"c")]]
    ((location, why),) = made.bad
    assert (location, why.startswith(f"message.headers: {reason}")) == (1, True), why


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([None], "a header without a name"),
        ([{"key": None, "value": b"x"}], "a header without a name"),
        ([{"key": "a", "value": b"x"}, {"key": None, "value": None}], "a header without a name"),
    ],
)
def test_a_header_without_a_name_is_a_bad_record(row: list[object], reason: str) -> None:
    rows = [[{"key": "a", "value": b"1"}], row, [{"key": "b", "value": b"2"}]]

    made = headers_of(pa.array(rows, pa.list_(ENTRY)))

    assert listed(made) == [[("a", b"1")], [("b", b"2")]]
    assert made.bad == [(1, f"message.headers: {reason}")]


@pytest.mark.parametrize(
    "data_type",
    [
        pa.int64(),
        pa.list_(pa.string()),
        pa.list_(pa.struct([("key", pa.string())])),
        pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])),
        pa.map_(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_a_column_that_holds_no_headers_is_refused_by_name(
    data_type: pa.DataType, golden: Golden
) -> None:
    with golden.raises(UnsupportedType, match=r"message\.headers=column:headers"):
        headers_of(pa.nulls(1, data_type))


def test_a_bad_value_of_a_header_names_its_record() -> None:
    rows = [[("a", "YQ==")], [("b", "x"), ("c", "YQ==")], []]

    made = headers_of(
        pa.array(rows, pa.map_(pa.string(), pa.string())), **{"header.converter": "base64"}
    )

    assert listed(made) == [[("a", b"a")], []]
    reason = "message.headers: no base64 with padding (RFC 4648, section 4)"
    assert made.bad == [(1, reason)]


def test_headers_of_binary_columns_are_their_bytes() -> None:
    table = pa.table({"id": [1, 2], "b": pa.array([b"\xff", None])})

    made = convert(table, {"headers": "b=column:b,i=column:id"})

    assert listed(made) == [[("b", b"\xff"), ("i", b"1")], [("i", b"2")]]


def test_headers_keep_to_their_records_when_others_are_dropped_or_bad() -> None:
    rows = [[("n", str(at).encode())] * at for at in range(6)]
    table = pa.table(
        {
            "id": range(6),
            "b": ["YQ==", "YQ==", "?", "YQ==", "YQ==", "YQ=="],
            "headers": pa.array(rows, pa.map_(pa.string(), pa.binary())),
        }
    )
    config = {
        "select": "id",
        "message.headers": "column:headers",
        "message.key": "column:b",
        "key.converter": "base64",
        "transforms": "f",
        "transforms.f.type": "Filter",
        "transforms.f.predicate": "p",
        "predicates": "p",
        "predicates.p.type": "Condition",
        "predicates.p.condition": "id = 1 OR id = 4",
    }

    made = convert(table, config)

    assert [location for location, _ in made.bad] == [2]
    assert listed(made) == [rows[0], rows[3], rows[5]]


# -- values within documents -----------------------------------------------------------------------


def of_lines(*documents: object, **config: str) -> Converted:
    lines = b"\n".join(each if type(each) is bytes else orjson.dumps(each) for each in documents)
    return convert(lines, config, "jsonl")


def test_a_member_of_json_lines_is_the_value() -> None:
    documents = [
        {"value": "text", "k": "a"},
        {"value": {"x": 1.5, "y": None}, "k": "b"},
        {"value": None, "k": "c"},
        {"value": "", "k": None},
        b'{"value": [1.10, 12345678901234567890123], "k": "d"}',
    ]

    made = of_lines(*documents, select="value", **{"message.key": "column:k"})

    assert made.payloads == [
        b"text",
        b'{"x":1.5,"y":null}',
        None,
        b"",
        b"[1.10,12345678901234567890123]",
    ]
    assert made.keys == [b"a", b"b", b"c", None, b"d"]


def test_a_member_within_a_member_is_the_value() -> None:
    made = of_lines({"a": {"b": "x"}}, {"a": {}}, select="a.b")

    assert made.payloads == [b"x"]
    assert [location for location, _ in made.bad] == [16]


def test_transforms_see_the_member() -> None:
    made = of_lines(
        {"value": "a", "k": 1},
        {"value": "b", "k": 2},
        select="value",
        transforms="f",
        predicates="p",
        **{
            "transforms.f.type": "Filter",
            "transforms.f.predicate": "p",
            "predicates.p.type": "Condition",
            "predicates.p.condition": "value = 'a'",
        },
    )

    assert made.payloads == [b"b"]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"select": "a,b"}, "select names several members of jsonl; the value is one: name it"),
        ({"select": "a", "value.converter": "json"}, "value.converter=json cannot make values of"),
        ({"value.converter": "base64"}, "value.converter=base64 cannot make values of jsonl"),
        ({"select": "a", "jsonl.validate": "false"}, "jsonl.validate=false: lines pass through"),
    ],
)
def test_what_cannot_be_made_of_documents_is_a_problem(
    config: dict[str, str], problem: str
) -> None:
    with pytest.raises(Misconfigured) as caught:
        parse({**BASE, "input.format": "jsonl", **config})

    (found,) = caught.value.problems
    assert found.startswith(problem)


def test_lines_of_base64_are_their_bytes() -> None:
    made = convert(b"AAE=\n?\n\xff\n/w==", {"value.converter": "base64"}, "text")

    assert made.payloads == [b"\0\1", b"\xff"]
    assert [location for location, _ in made.bad] == [5, 7]


def test_lines_of_base64_that_pass_a_filter_are_their_bytes() -> None:
    config = {
        "value.converter": "base64",
        "transforms": "f",
        "transforms.f.type": "Filter",
        "transforms.f.predicate": "p",
        "predicates": "p",
        "predicates.p.type": "Condition",
        "predicates.p.condition": "value = 'QQ=='",
    }

    assert convert(b"QQ==\nQg==", config, "text").payloads == [b"B"]


# -- instants --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2024-01-01T00:00:00Z", 1_704_067_200_000),
        ("2024-01-01T00:00:00.5Z", 1_704_067_200_500),
        ("2024-01-01T01:00:00.123999999+01:00", 1_704_067_200_123),
        ("1704067200123", 1_704_067_200_123),
        (None, 0),
    ],
)
def test_timestamps_are_read_from_text(text: str | None, milliseconds: int) -> None:
    table = pa.table({"at": pa.array(["5", text, "2024-01-01T00:00:00Z"], pa.string())})

    made = convert(table, {"message.timestamp": "column:at"})

    assert made.timestamps == [5, milliseconds, 1_704_067_200_000]


def test_text_that_states_no_instant_is_a_bad_record() -> None:
    texts = ["2024-01-01T00:00:00", "2024-01-01", "x", "99999999999999999999", "7"]

    made = convert(pa.table({"at": texts}), {"message.timestamp": "column:at"})

    assert made.timestamps == [7]
    assert [location for location, _ in made.bad] == [0, 1, 2, 3]


def test_another_converter_of_headers_is_refused(golden: Golden) -> None:
    with golden.raises(Misconfigured, match=r"header\.converter=.*base64"):
        parse({**BASE, **RESTORE, "header.converter": "avro"})
