"""Transforms of headers, by Connect's names, and where they stand among other keys."""

import pyarrow as pa
import pytest
from tests.support.chains import Converted, chain, convert
from tests.support.golden import Golden

from extentflow.errors import Misconfigured, UnsupportedType
from extentflow.kafka.record_headers import Headers

ENTRIES = pa.map_(pa.string(), pa.binary())
TABLE = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "kind": ["a", None, "c"],
        "raw": pa.array([b"\xff", b"", None]),
        "headers": pa.array([[("t", b"1"), ("u", None)], [], [("t", b"2"), ("t", b"3")]], ENTRIES),
    }
)
SELECTED = {"select": "id,kind,raw"}
CONNECT = "org.apache.kafka.connect.transforms."


def listed(made: Converted) -> list[Headers]:
    return [list(each) for chunk in made.chunks for each in chunk.records.headers or ()]


def test_columns_become_headers_and_nulls_null_headers() -> None:
    step = {"type": f"{CONNECT}HeaderFrom$Value", "fields": "kind,raw", "headers": "k,r"}

    made = convert(TABLE, SELECTED | chain(h={**step, "operation": "copy"}))

    assert listed(made) == [
        [("k", b"a"), ("r", b"\xff")],
        [("k", None), ("r", b"")],
        [("k", b"c"), ("r", None)],
    ]
    assert made.values[0] == {"id": 1, "kind": "a", "raw": "/w=="}


def test_moved_columns_leave_the_value() -> None:
    step = {"type": "HeaderFrom", "fields": "kind,raw", "headers": "k,r", "operation": "move"}

    made = convert(TABLE, SELECTED | chain(h=step))

    assert made.values == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert listed(made)[0] == [("k", b"a"), ("r", b"\xff")]


def test_columns_of_the_key_become_headers() -> None:
    step = {"type": "HeaderFrom$Key", "fields": "id", "headers": "i", "operation": "move"}

    made = convert(TABLE, {"message.key": "column:id,kind", **SELECTED} | chain(h=step))

    assert made.keys == [b"a", None, b"c"]
    assert listed(made) == [[("i", b"1")], [("i", b"2")], [("i", b"3")]]


def test_steps_see_the_headers_of_the_connector_and_of_steps_before_them() -> None:
    config = {
        **SELECTED,
        "message.headers": "column:headers",
        "headers": "site=text:north,k=column:kind",
        **chain(
            d={"type": "DropHeaders", "headers": "u,k"},
            i={"type": f"{CONNECT}InsertHeader", "header": "t", "value.literal": " x "},
            e={"type": "DropHeaders", "headers": "site"},
        ),
    }

    made = convert(TABLE, config)

    assert listed(made) == [
        [("t", b"1"), ("t", b" x ")],
        [("t", b" x ")],
        [("t", b"2"), ("t", b"3"), ("t", b" x ")],
    ]


def test_a_predicate_selects_records_by_their_headers() -> None:
    config = {
        **SELECTED,
        "message.headers": "column:headers",
        **chain(
            i={"type": "InsertHeader", "header": "n", "value.literal": "y", "predicate": "p_h"},
            f={"type": "Filter", "predicate": "p_u"},
            p_h={"type": f"{CONNECT}predicates.HasHeaderKey", "name": "t"},
            p_u={"type": "HasHeaderKey", "name": "u"},
        ),
    }

    made = convert(TABLE, config)

    assert listed(made) == [[], [("t", b"2"), ("t", b"3"), ("n", b"y")]]
    assert made.filtered == 1


def test_headers_follow_their_records_through_filters_and_bad_records() -> None:
    table = pa.table({"id": range(6), "n": ["0", "1", "x", "3", "4", "5"]})
    config = chain(
        h={"type": "HeaderFrom", "fields": "id", "headers": "i", "operation": "copy"},
        c={"type": "Cast", "spec": "n:int8"},
        f={"type": "Filter", "predicate": "p_4"},
        p_4={"type": "Condition", "condition": "n = 4"},
    )

    made = convert(table, config)

    assert listed(made) == [[("i", text)] for text in (b"0", b"1", b"3", b"5")]
    assert [location for location, _ in made.bad] == [2]


def test_a_value_that_has_no_text_is_a_bad_record() -> None:
    table = pa.table({"id": [1, 2], "t": pa.array([1, -5], pa.int32()).view(pa.time32("s"))})
    step = {"type": "HeaderFrom", "fields": "t", "headers": "t", "operation": "copy"}

    made = convert(table, {"select": "id,t"} | chain(h=step))

    assert listed(made) == [[("t", b"00:00:01.000")]]
    assert made.bad[0][1].startswith("transforms.h (HeaderFrom): column 't': ")


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (
            {"type": "HeaderFrom", "fields": "id", "headers": "a,b", "operation": "copy"},
            "transforms.h: fields has 1 names and headers 2; write one header for each field",
        ),
        (
            {"type": "HeaderFrom", "fields": "id", "headers": "a", "operation": "keep"},
            "transforms.h.operation='keep': write copy or move",
        ),
        (
            {"type": "InsertHeader$Key", "header": "a", "value.literal": "b"},
            "transforms.h.type=InsertHeader$Key: works on values only; write InsertHeader",
        ),
        ({"type": "DropHeaders"}, "transforms.h.headers: missing"),
        ({"type": "SetSchemaMetadata$Value"}, "value.converter.record.name"),
        ({"type": f"{CONNECT}TimestampRouter"}, "write ExtractTopic with the list of topics"),
    ],
)
def test_what_cannot_be_is_a_problem_of_the_connector(step: dict[str, str], problem: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        convert(TABLE, chain(h=step))

    (found,) = caught.value.problems
    assert problem in found


@pytest.mark.parametrize(
    ("fields", "operation", "complaint"),
    [
        ("nope", "copy", "there is no column 'nope'"),
        ("headers", "copy", "has no text form"),
        ("id,kind,raw,headers", "move", "has no text form"),
        ("id,kind,raw", "move", "it moves all columns"),
    ],
)
def test_columns_that_do_not_fit_are_refused(fields: str, operation: str, complaint: str) -> None:
    names = ",".join("abcd"[: fields.count(",") + 1])
    step = {"type": "HeaderFrom", "fields": fields, "headers": names, "operation": operation}
    select = {} if "headers" in fields else SELECTED

    with pytest.raises(UnsupportedType, match=complaint):
        convert(TABLE, select | chain(h=step))


def test_moving_columns_of_some_records_only_is_refused(golden: Golden) -> None:
    step = {"type": "HeaderFrom", "fields": "kind", "headers": "k", "operation": "move"}
    some = {"type": "Condition", "condition": "id = 1"}

    with golden.raises(UnsupportedType):
        convert(TABLE, SELECTED | chain(h={**step, "predicate": "p_1"}, p_1=some))
