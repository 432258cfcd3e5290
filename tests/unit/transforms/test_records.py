"""Transforms of whole records, their predicates, and what they leave of chunks and positions."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from tests.support.chains import VERSION, chain, convert
from tests.support.golden import Golden

from extentflow.config.parsing import parse
from extentflow.config.specs import TRANSFORMS
from extentflow.errors import Misconfigured, UnsupportedType
from extentflow.plugins import Registry

TABLE = pa.table(
    {
        "id": pa.array(range(6), pa.int64()),
        "kind": pa.array(["a", "b", None, "a", "c", "b"], pa.string_view()),
        "n": pa.array([1.5, None, 3.0, 4.0, 5.0, 6.0]),
        "s": pa.array([{"x": at} for at in range(6)], pa.struct([("x", pa.int16())])),
        "flag": pa.array([True, False, None, True, False, True]),
    }
)


def kept(condition: str, *, negate: bool = True) -> list[int]:
    """The ids that a filter leaves; with `negate`, those for which the condition is true."""
    made = convert(
        TABLE,
        chain(
            f={"type": "Filter", "predicate": "p_1", "negate": str(negate).lower()},
            p_1={"type": "Condition", "condition": condition},
        ),
    )
    assert made.filtered == TABLE.num_rows - len(made.values)
    assert made.locations == [value["id"] for value in made.values]
    return [value["id"] for value in made.values]


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("id = 3", [3]),
        ("id <> 3 AND id > 1.5", [2, 4, 5]),
        ("kind = 'a'", [0, 3]),
        ("kind IN ('a', 'c')", [0, 3, 4]),
        ("kind NOT IN ('a', 'c')", [1, 5]),
        ("kind IS NULL", [2]),
        ("kind IS NOT NULL and not kind like '%a%'", [1, 4, 5]),
        ("n >= 4 or s.x = 0", [0, 3, 4, 5]),
        ("flag", [0, 3, 5]),
        ("flag = FALSE", [1, 4]),
        ('(id = 0 OR id = 1) AND "n" = 1.5', [0]),
        ("id = 99", []),
    ],
)
def test_a_condition_keeps_what_sql_would(condition: str, ids: list[int]) -> None:
    assert kept(condition) == ids


def test_filter_drops_what_its_predicate_matches() -> None:
    # A comparison with null is not true: the record stays, as Connect's does.
    assert kept("kind = 'a'", negate=False) == [1, 2, 4, 5]


def test_conditions_agree_with_another_implementation() -> None:
    duckdb = pytest.importorskip("duckdb")
    plain = TABLE.set_column(1, "kind", TABLE["kind"].cast(pa.string()))  # noqa: F841 - of SQL
    conditions = [
        "id > 2 AND (kind = 'a' OR n < 5)",
        "NOT (kind = 'a' OR n < 5)",
        "NOT kind IN ('a', 'b') OR flag",
        "n <> 3 AND kind <> 'b'",
        "NOT (n > 2 AND flag)",
    ]

    for condition in conditions:
        rows = duckdb.sql(f"SELECT id FROM plain WHERE {condition} ORDER BY id").fetchall()  # noqa: S608
        assert kept(condition) == [one for (one,) in rows], condition


@pytest.mark.parametrize(
    ("condition", "complaint"),
    [
        ("id >", "a number or 'text' is expected, not 'the end'"),
        ("id = 1 id = 2", "'id' is one too many"),
        ("(id = 1", ") is missing before 'the end'"),
        ("1 = id", "a column is expected, not '1'"),
        ("id ~ 1", "cannot read '~ 1'"),
        ("id NOT = 1", "write IN or LIKE after NOT"),
        ("NOT " * 101 + "flag", "is nested deeper than 100; write it with fewer NOT and ("),
        ("(" * 5_000, "is nested deeper than 100"),
    ],
)
def test_a_condition_that_cannot_be_read_is_a_problem_of_the_connector(
    condition: str, complaint: str
) -> None:
    with pytest.raises(Misconfigured) as caught:
        kept(condition)

    (problem,) = caught.value.problems
    assert problem.startswith("predicates.p_1.condition=")
    assert complaint in problem


@pytest.mark.parametrize(
    ("condition", "complaint"),
    [
        ("nope = 1", "there is no column 'nope'"),
        ("s.y = 1", "there is no column 's.y'"),
        ("id = 'x'", "column id has type int64 and cannot be compared with x"),
        ("id", "column id has type int64; compare it"),
        ("id LIKE 'x'", "LIKE compares text"),
        ("flag = 1", "cannot be compared with 1"),
    ],
)
def test_a_condition_that_does_not_fit_the_columns_is_refused(
    condition: str, complaint: str
) -> None:
    with pytest.raises(UnsupportedType, match=complaint):
        kept(condition)


@pytest.mark.parametrize(
    ("condition", "complaint"),
    [
        ("d = 'DE'", r"column d has type decimal128\(3, 1\) and cannot be compared with DE"),
        (f"d < {'9' * 80}", "cannot be compared with 999"),
        (f"d IN (1, {'9' * 80})", "cannot be compared with 999"),
    ],
)
def test_a_literal_that_arrow_does_not_compare_is_refused_before_the_first_record(
    condition: str, complaint: str
) -> None:
    table = pa.table({"d": pa.array([Decimal("10.5")], pa.decimal128(3, 1))})
    config = chain(
        f={"type": "Filter", "predicate": "p_1"},
        p_1={"type": "Condition", "condition": condition},
    )

    with pytest.raises(UnsupportedType, match=complaint):
        convert(table, config)


@pytest.mark.parametrize("pattern", ["(", "a{9999999999}", "(" * 5_000])
def test_a_pattern_that_cannot_be_compiled_is_a_problem_of_the_connector(pattern: str) -> None:
    with pytest.raises(Misconfigured, match="no regular expression"):
        convert(TABLE, chain(r={"type": "RegexRouter", "regex": pattern, "replacement": "x"}))


def test_lines_are_filtered_by_their_text() -> None:
    config = chain(
        f={"type": "Filter", "predicate": "p_1"},
        p_1={"type": "Condition", "condition": "value LIKE '%DEBUG%'"},
    )

    made = convert(b"x INFO\ny DEBUG\nz INFO\n", config, "text")

    assert (made.payloads, made.locations) == ([b"x INFO", b"z INFO"], [0, 15])
    assert made.chunks[-1].next_position == 22
    assert convert(b'{"a":"DEBUG"}\n{"a":1}\n', config, "jsonl").payloads == [b'{"a":1}']


def test_a_transform_with_a_predicate_changes_some_rows_in_place() -> None:
    config = chain(
        m={"type": "MaskField", "fields": "id", "predicate": "p_1"},
        p_1={"type": "Condition", "condition": "flag"},
    )

    assert [value["id"] for value in convert(TABLE, config).values] == [0, 1, 2, 0, 4, 0]


def test_a_predicate_cannot_change_the_columns_of_some_rows(golden: Golden) -> None:
    config = chain(
        m={"type": "ReplaceField", "exclude": "id", "predicate": "p_1"},
        p_1={"type": "Condition", "condition": "flag"},
    )

    with golden.raises(UnsupportedType):
        convert(TABLE, config)


@pytest.mark.parametrize(("pattern", "applied"), [("sour.*", True), ("our", False)])
def test_a_predicate_on_the_topic_holds_for_all_rows(pattern: str, applied: bool) -> None:  # noqa: FBT001
    config = chain(
        m={"type": "ReplaceField", "include": "id", "predicate": "p_1"},
        p_1={
            "type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
            "pattern": pattern,
        },
    )

    assert (convert(TABLE, config).values[1] == {"id": 1}) is applied


def test_tombstones_can_be_dropped() -> None:
    config = chain(
        e={"type": "ExtractField", "field": "kind"},
        f={"type": "Filter", "predicate": "p_1"},
        p_1={"type": "RecordIsTombstone"},
    )

    made = convert(TABLE, config | {"value.converter": "string"})

    assert made.payloads == [b"a", b"b", b"a", b"c", b"b"]


def test_value_to_key_makes_keys_of_columns_as_they_are_then() -> None:
    one = chain(
        c={"type": "ReplaceField", "renames": "id:key"},
        k={"type": "ValueToKey", "fields": "key"},
        d={"type": "ReplaceField", "include": "n"},
    )
    two = chain(
        k={"type": "org.apache.kafka.connect.transforms.ValueToKey", "fields": "id,kind"},
        c={"type": "ReplaceField$Key", "renames": "kind:k"},
    )

    assert convert(TABLE, one).keys[:2] == [b"0", b"1"]
    assert convert(TABLE, one).values[0] == {"n": 1.5}
    assert convert(TABLE, two).keys[2] == b'{"id":2,"k":null}'


def test_the_key_of_columns_is_chosen_before_transforms() -> None:
    config = chain(m={"type": "ReplaceField", "include": "n"})

    made = convert(TABLE, config | {"message.key": "column:id", "select": "n"})

    assert made.keys[:2] == [b"0", b"1"]
    assert made.values[0] == {"n": 1.5}


def test_the_objects_key_stays_the_key() -> None:
    config = chain(m={"type": "ReplaceField", "include": "n"}) | {"message.key": "object"}

    assert set(convert(TABLE, config).keys) == {b"folder/key"}


def test_insert_field_adds_facts_about_the_object() -> None:
    config = chain(
        i={
            "type": "InsertField",
            "static.field": "site",
            "static.value": "north",
            "topic.field": "topic",
            "offset.field": "row",
            "bucket.field": "bucket",
            "object.field": "object",
            "version.field": "version",
            "extent.field": "extent",
        }
    )

    value = convert(TABLE, config | {"select": "id"}).values[4]

    extent = value.pop("extent")
    assert extent.startswith("0-")
    assert value == {
        "id": 4,
        "site": "north",
        "topic": "source",
        "row": 4,
        "bucket": "bucket",
        "object": "folder/key",
        "version": "v1",
    }


def test_regex_router_decides_the_topic_before_and_during_delivery() -> None:
    route = {"type": "RegexRouter", "regex": "(s)(.*)", "replacement": "to-$2"}
    config = chain(r=route, i={"type": "InsertField", "topic.field": "topic"})

    made = convert(TABLE, config | {"select": "id"})

    assert made.topics == {"to-ource"}
    assert made.values[0] == {"id": 0, "topic": "to-ource"}
    whole = parse({"name": "c", "topic": "s-x", "aws.s3.bucket.name": "bucket", **config})
    assert (whole.template_topic(VERSION), whole.topic_for(VERSION)) == ("s-x", "to--x")


EXTRACT = {"type": "io.confluent.connect.transforms.ExtractTopic$Value", "field": "kind"}


def routed(table: pa.Table, config: dict[str, str]) -> list[tuple[str, list[int], list[int]]]:
    """Return the topics of a table's records, with their values and places in the object."""
    (chunk,) = convert(table, config).chunks
    found = []
    for records, places in chunk.by_topic():
        ids = [orjson.loads(value)["id"] for value in records.values.to_pylist()]
        found.append((records.topic, ids, [chunk.locations[place] for place in places]))
    return found


def test_a_value_names_the_topic_of_its_record() -> None:
    config = chain(t={**EXTRACT, "topics": "a,b,c", "skip.missing.or.null": "true"})

    assert routed(TABLE, {**config, "select": "id,kind"}) == [
        ("a", [0, 3], [0, 3]),
        ("b", [1, 5], [1, 5]),
        ("source", [2], [2]),
        ("c", [4], [4]),
    ]


def test_a_record_that_names_no_listed_topic_is_bad(golden: Golden) -> None:
    hostile = pa.table({"id": range(4), "kind": ["a", None, "extentflow.progress", "b" * 9_000]})

    made = convert(hostile, chain(t={**EXTRACT, "topics": "a"}))

    assert [at for at, _ in made.bad] == [1, 2, 3]
    reasons = [why for _, why in made.bad]
    golden(reasons[0])
    assert "transforms.t" in reasons[0]
    golden(reasons[1])
    assert "transforms.t" in reasons[1]
    assert len(reasons[2]) < 300
    assert routed(hostile, chain(t={**EXTRACT, "topics": "a"})) == [("a", [0], [0])]


def test_topics_follow_their_records_through_filters_and_predicates() -> None:
    config = chain(
        t={**EXTRACT, "topics": "a,b", "predicate": "p_1"},
        i={"type": "InsertField", "topic.field": "to"},
        f={"type": "Filter", "predicate": "p_2"},
        p_1={"type": "Condition", "condition": "kind IN ('a', 'b')"},
        p_2={"type": "Condition", "condition": "id IN (0, 4)"},
    )

    assert routed(TABLE, {**config, "select": "id,kind"}) == [
        ("b", [1, 5], [1, 5]),
        ("source", [2], [2]),
        ("a", [3], [3]),
    ]
    made = convert(TABLE, {**config, "select": "id,kind"})
    assert [value["to"] for value in made.values] == ["b", "source", "a", "b"]


def test_headers_and_keys_stay_with_their_records() -> None:
    config = {**chain(t={**EXTRACT, "topics": "a,b,c", "skip.missing.or.null": "true"})}
    config |= {"message.key": "column:id", "headers": "row=location,flag=column:flag"}

    (chunk,) = convert(TABLE, config).chunks

    for part in (chunk, *chunk.split(chunk.payload_bytes / 3)):
        for records, places in part.by_topic():
            wanted = [str(part.locations[place]).encode() for place in places]
            assert records.keys is not None
            assert records.keys.to_pylist() == wanted
            assert [dict(each)["row"] for each in records.headers or ()] == wanted
    flags = {dict(each).get("flag") for each in chunk.records.headers or ()}
    assert flags == {b"true", b"false", None}


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"t": {**EXTRACT, "topics": "a,__x!"}}, "'!' is no character of a topic name"),
        ({"t": {**EXTRACT, "topics": "extentflow.progress"}}, "extentflow's own"),
        (
            {
                "t": {**EXTRACT, "topics": "a"},
                "r": {"type": "RegexRouter", "regex": "a", "replacement": "b"},
            },
            r"transforms\.r: RegexRouter depends on the topic, which t \(ExtractTopic\)",
        ),
    ],
)
def test_routing_that_cannot_be_meant_is_refused(
    keys: dict[str, dict[str, str]], problem: str
) -> None:
    with pytest.raises(Misconfigured, match=problem):
        convert(TABLE, chain(**keys))


@pytest.mark.parametrize("other", [{"ordering": "object"}, {"message.partition": "column:n"}])
def test_partitions_of_one_topic_do_not_go_with_topics_of_values(other: dict[str, str]) -> None:
    with pytest.raises(Misconfigured, match="values name the topic"):
        convert(TABLE, chain(t={**EXTRACT, "topics": "a"}) | other)


def test_a_column_that_is_no_text_names_no_topic() -> None:
    with pytest.raises(UnsupportedType, match=r"t \(ExtractTopic\): column 'n' is double"):
        convert(TABLE, chain(t={**EXTRACT, "field": "n", "topics": "a"}))


def test_a_bad_row_of_a_later_step_is_named_by_its_place_in_the_object() -> None:
    config = chain(
        f={"type": "Filter", "predicate": "p_1"},
        c={"type": "Cast", "spec": "kind:int8"},
        p_1={"type": "Condition", "condition": "id < 3"},
    )

    made = convert(TABLE, config)

    assert [at for at, _ in made.bad] == [3, 4, 5]
    assert (made.values, made.filtered) == ([], 3)


def test_a_selection_is_the_value_in_its_order() -> None:
    made = convert(TABLE, {"select": "n,id"})

    assert made.payloads[0] == b'{"n":1.5,"id":0}'


def test_rows_of_every_type_can_be_dropped() -> None:
    views = pa.array([["a"], None, ["b", "c"]], pa.list_(pa.string_view()))
    table = pa.table(
        {"id": [0, 1, 2], "v": views, "t": pa.array(["x", None, "z"], pa.string_view())}
    )
    config = chain(
        f={"type": "Filter", "predicate": "p_1"},
        p_1={"type": "Condition", "condition": "id = 0"},
    )

    assert convert(table, config).values == [
        {"id": 1, "v": None, "t": None},
        {"id": 2, "v": ["b", "c"], "t": "z"},
    ]


# -- a user's own function -------------------------------------------------------------------------


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Registry[Any]:
    """Registered functions of a batch, for one test."""
    monkeypatch.setattr(TRANSFORMS, "_loaded", dict(TRANSFORMS._loaded))
    return TRANSFORMS


def test_a_function_returns_a_batch_or_the_rows_to_keep(functions: Registry[Any]) -> None:
    functions.register("id_only", lambda batch: batch.select(["id"]))
    functions.register(
        "even", lambda batch: pa.array([i % 2 == 0 for i in batch["id"].to_pylist()])
    )

    made = convert(TABLE, chain(a={"type": "id_only"}, b={"type": "even"}))

    assert made.values == [{"id": 0}, {"id": 2}, {"id": 4}]
    assert made.filtered == 3


def test_a_function_that_returns_other_rows_is_refused(functions: Registry[Any]) -> None:
    functions.register("half", lambda batch: batch.slice(0, len(batch) // 2))

    with pytest.raises(UnsupportedType, match="returned 3 rows for 6"):
        convert(TABLE, chain(a={"type": "half"}))


@pytest.mark.parametrize(
    ("name", "function", "problem"),
    [
        # from_pylist takes the columns from the first row: of no rows it makes none.
        (
            "rows",
            lambda batch: pa.RecordBatch.from_pylist(batch.select(["id"]).to_pylist()),
            "no columns",
        ),
        ("none", lambda batch: batch.select([]), "no columns"),
        (
            "names",
            lambda batch: batch.select(["id"]).rename_columns(["x" if batch else "y"]),
            "'y' int64 for one batch and 'x' int64",
        ),
    ],
)
def test_a_function_returns_the_same_columns_whatever_rows_there_are(
    functions: Registry[Any], name: str, function: Callable[[pa.RecordBatch], object], problem: str
) -> None:
    """Otherwise records would be empty, or have the names of other columns."""
    functions.register(name, function)

    with pytest.raises(UnsupportedType, match=problem):
        convert(TABLE, chain(a={"type": name}))


BACKSLASHES = pa.table({"id": [0, 1, 2, 3], "a": [r"C:\temp", "C:temp", "100%", "a\nb"]})


@pytest.mark.parametrize(
    ("pattern", "ids"),
    [
        (r"C:\temp", [0]),
        (r"C:\temp%", [0]),
        (r"C:\t_mp", [0]),
        ("C:%", [0, 1]),
        (r"100\%", [2]),
        ("%temp", [0, 1]),
        ("%:%", [0, 1]),
        ("a_b", [3]),
        ("", []),
        ("%", [0, 1, 2, 3]),
        ("_:%", [0, 1]),
    ],
)
def test_a_backslash_of_like_counts_before_wildcards_only(pattern: str, ids: list[int]) -> None:
    """Trap: the fast paths of Arrow's `match_like` disagree about it."""
    condition = {"type": "Condition", "condition": f"a LIKE '{pattern}'"}
    config = chain(f={"type": "Filter", "predicate": "p_1", "negate": "true"}, p_1=condition)

    for table in (BACKSLASHES, BACKSLASHES.set_column(1, "a", BACKSLASHES["a"].cast(pa.binary()))):
        assert convert(table, config).locations == ids
