"""Keys of columnar values: groups of columns, and which other keys exclude them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.golden import Golden

from extentflow.config.columnar import (
    ARROW_COMPRESSIONS,
    COMPRESSIONS,
    ENCODINGS,
    GROUPS,
    REST,
    ColumnGroup,
)
from extentflow.config.connector import ConnectorConfig
from extentflow.config.parsing import parse, to_map
from extentflow.errors import Misconfigured

ORDERS = {"name": "orders", "topic": "orders", "aws.s3.bucket.name": "lake"}
COLUMNAR = {**ORDERS, "columnar.encoding": "parquet"}
CHAIN = {
    "transforms": "h",
    "transforms.h.type": "InsertHeader",
    "transforms.h.header": "a",
    "transforms.h.value.literal": "b",
}

GROUP_NAMES = st.from_regex(r"[A-Za-z0-9._-]{1,12}", fullmatch=True)
# Semicolons are in the names of columns of other tests.
COLUMN_NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=";"), min_size=1, max_size=8
).filter(lambda name: name != REST)


def problems(**changes: str) -> tuple[str, ...]:
    """Return what is wrong with a columnar connector with changes; `__` stands for a dot."""
    changed = {name.replace("__", "."): text for name, text in changes.items()}
    with pytest.raises(Misconfigured) as caught:
        parse({**COLUMNAR, **changed})
    return caught.value.problems


# -- columnar.groups -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: x", [("a", ("x",))]),
        ("a:x,y;b:z", [("a", ("x", "y")), ("b", ("z",))]),
        (
            " prices : id , price ; texts: text ; ",
            [("prices", ("id", "price")), ("texts", ("text",))],
        ),
        ("a: id; b: id; rest: *", [("a", ("id",)), ("b", ("id",)), ("rest", ("*",))]),
        ("a.b-c_1: x", [("a.b-c_1", ("x",))]),
        ('a: "x, y", z', [("a", ("x, y", "z"))]),
        ('a: "x; b: y"; c: z', [("a", ("x; b: y",)), ("c", ("z",))]),
        ('a: "say ""hi""; x:y"', [("a", ('say "hi"; x:y',))]),
        ('a: "x:y"; b: *', [("a", ("x:y",)), ("b", ("*",))]),
        ("a: x y", [("a", ("x y",))]),
    ],
)
def test_groups_are_read_with_their_columns(
    text: str, expected: list[tuple[str, tuple[str, ...]]]
) -> None:
    assert GROUPS.read(text) == tuple(ColumnGroup(name, columns) for name, columns in expected)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("", "write group: column"),
        (";", "write group: column"),
        ("a", "write group: column"),
        ("a b: x", "write group: column"),
        ("ä: x", "write group: column"),
        ('a: "x', "write group: column"),
        ("a: x;; b: y", "cannot read '; b: y'"),
        ("a:", "write name,name"),
        ("a: x,", "write name,name"),
        ("a: x: y", "put names with , or : in"),
        ("a: x, x", "names 'x' more than once"),
        ("a: x; b: y; a: z", "names the group a more than once"),
        ("a: x, *", "has no other columns"),
        ("a: *; b: *", r"two groups of \*"),
    ],
)
def test_groups_that_cannot_be_read_are_refused_with_the_remedy(text: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        GROUPS.read(text)


@given(
    st.dictionaries(
        GROUP_NAMES,
        st.just((REST,)) | st.lists(COLUMN_NAMES, min_size=1, max_size=4, unique=True).map(tuple),
        min_size=1,
        max_size=4,
    ).filter(lambda groups: [*groups.values()].count((REST,)) <= 1)
)
def test_groups_are_written_as_they_are_read(groups: dict[str, tuple[str, ...]]) -> None:
    made = tuple(ColumnGroup(name, columns) for name, columns in groups.items())

    assert GROUPS.read(GROUPS.write(made)) == made


def test_the_topic_of_a_group_follows_that_of_the_records() -> None:
    assert ColumnGroup("prices", ("id",)).topic("orders") == "orders.prices"


# -- what keys allow -------------------------------------------------------------------------------


def test_values_hold_one_row_unless_an_encoding_is_named() -> None:
    assert not parse(ORDERS).columnar
    assert not parse({**ORDERS, "columnar.encoding": "none"}).columnar
    assert parse(COLUMNAR).columnar


def test_an_encoding_needs_no_other_key() -> None:
    config = parse(COLUMNAR)

    assert config.columnar_batch_bytes == 1 << 20
    assert config.columnar_groups == ()
    assert config.columnar_passthrough


def test_every_key_reaches_its_field_and_is_written_back() -> None:
    keys = {
        **COLUMNAR,
        "columnar.encoding.compression": "gzip",
        "columnar.batch.bytes": "2MiB",
        "columnar.groups": 'prices: id,"a, b"; rest: *',
        "columnar.passthrough": "false",
        "columnar.encryption.columns": 'card,"a, b"',
        "columnar.encryption.key": "arn:aws:kms:eu-west-1:111122223333:key/1-2",
        "columnar.encryption.key.list": "${env:KEYS}",
    }

    config = parse(keys)

    assert config == ConnectorConfig(
        name="orders",
        topic="orders",
        s3_bucket="lake",
        columnar_encoding="parquet",
        columnar_compression="gzip",
        columnar_batch_bytes=2 << 20,
        columnar_groups=(ColumnGroup("prices", ("id", "a, b")), ColumnGroup("rest", (REST,))),
        columnar_passthrough=False,
        columnar_encryption_columns=("card", "a, b"),
        columnar_encryption_key="arn:aws:kms:eu-west-1:111122223333:key/1-2",
        columnar_encryption_key_list="${env:KEYS}",
    )
    assert to_map(config) == keys
    assert parse(to_map(config)) == config


def test_defaults_are_not_written() -> None:
    assert to_map(parse({**COLUMNAR, "columnar.batch.bytes": "1MiB"})) == COLUMNAR
    assert to_map(parse({**ORDERS, "columnar.encoding": "none"})) == ORDERS


@pytest.mark.parametrize("encoding", ENCODINGS[1:])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_each_encoding_has_its_compressions(encoding: str, compression: str) -> None:
    keys = {
        **ORDERS,
        "columnar.encoding": encoding,
        "columnar.encoding.compression": compression,
    }

    if encoding == "parquet" or compression in ARROW_COMPRESSIONS:
        assert parse(keys).columnar_compression == compression
        return
    with pytest.raises(Misconfigured) as caught:
        parse(keys)
    (problem,) = caught.value.problems
    assert problem.startswith(f"columnar.encoding.compression={compression}: not with columnar")
    assert problem.endswith("write none, lz4 or zstd")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("columnar.encoding.compression", "lz4"),
        ("columnar.batch.bytes", "1KiB"),
        ("columnar.groups", "a: *"),
        ("columnar.passthrough", "false"),
    ],
)
def test_keys_of_columnar_values_apply_only_with_an_encoding(
    key: str, text: str, golden: Golden
) -> None:
    with pytest.raises(Misconfigured) as caught:
        parse({**ORDERS, key: text})

    (problem,) = caught.value.problems
    golden(problem)
    assert key in problem
    assert problem.endswith(f"columnar.encoding is none: remove {key}")


def test_row_groups_pass_through_only_as_parquet(golden: Golden) -> None:
    (problem,) = problems(columnar__encoding="arrow", columnar__passthrough="true")

    golden(problem)
    assert "columnar.encoding" in problem


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"value.converter": "json"}, "value.converter: {0} makes the values; remove one of"),
        (
            {"headers": "f=key,a=column:x,b=location"},
            "headers: a, b: differs from row to row; a record of {0} has many rows; remove it",
        ),
        ({"message.headers": "column:h"}, "message.headers, transforms: make headers of rows"),
        (CHAIN, "message.headers, transforms: make headers of rows, and a record of {0} has"),
        (
            {"message.timestamp": "column:at"},
            "message.timestamp: differs from row to row, and a record of {0} has many rows; write",
        ),
        (
            {"message.key": "column:id", "producer.partitioner": "consistent_random"},
            "producer.partitioner=consistent_random: with {0}, keys choose partitions as Java's",
        ),
        ({"input.format": "jsonl"}, "{0} needs columns, jsonl passes records on as they are;"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
@pytest.mark.parametrize("encoding", ["parquet", "arrow"])
def test_what_single_rows_have_is_refused_with_the_remedy(
    changes: dict[str, str], expected: str, encoding: str
) -> None:
    with pytest.raises(Misconfigured) as caught:
        parse({**COLUMNAR, **changes, "columnar.encoding": encoding})

    (problem,) = caught.value.problems
    assert problem.startswith(expected.format(f"columnar.encoding={encoding}"))
    assert "remove" in problem


def test_problems_of_several_keys_are_reported_together() -> None:
    found = problems(
        columnar__encoding="arrow",
        columnar__encoding__compression="snappy",
        value__converter="json",
        message__timestamp="column:at",
    )

    keys = [problem.split(":")[0].split("=")[0] for problem in found]
    assert keys == ["value.converter", "columnar.encoding.compression", "message.timestamp"]


def test_an_unknown_encoding_is_the_only_problem(golden: Golden) -> None:
    found = problems(columnar__encoding="orc", value__converter="json")

    golden(*found)


@pytest.mark.parametrize(
    "changes",
    [
        {"message.timestamp": "last_modified"},
        {"headers": "f=key,t=text:x"},
        {"message.key": "column:id"},
        {"message.key": "column:id", "producer.partitioner": "murmur2"},
        {"message.key": "column:id", "producer.partitioner": "murmur2_random"},
        {"producer.partitioner": "random"},
        {"message.partition": "column:p"},
        {"input.format": "jsonl", "jsonl.schema": "id:int64"},
        {"input.format": "parquet"},
    ],
    ids=str,
)
def test_what_all_records_of_an_object_share_is_allowed(changes: dict[str, str]) -> None:
    config = parse({**COLUMNAR, **changes})

    assert config.columnar
    assert parse(to_map(config)) == config


def test_records_are_written_to_the_topics_of_the_groups_only() -> None:
    config = parse({**COLUMNAR, "columnar.groups": "a: id; b: *"})

    assert config.written_topics("orders") == ("orders.a", "orders.b")
    assert replace(config, columnar_groups=()).written_topics("orders") == ("orders",)


def test_bad_records_do_not_go_to_the_topic_of_a_group() -> None:
    tolerant = {"errors__tolerance": "all", "errors__deadletterqueue__topic__name": "orders.a"}

    (problem,) = problems(columnar__groups="a: id; b: *", **tolerant)

    assert "is a topic of the good records" in problem


# -- encrypted columns -----------------------------------------------------------------------------


def test_encrypted_columns_need_a_key_and_keys_need_columns(golden: Golden) -> None:
    columns = {"columnar.encryption.columns": "card"}

    (missing,) = problems(**columns)
    golden(missing)
    assert "columnar.encryption.key" in missing
    assert problems(**columns, columnar__encryption__key__list="${env:K}")[0].startswith(
        "columnar.encryption.key: missing"
    )
    key, keys = problems(columnar__encryption__key="k", columnar__encryption__key__list="${env:K}")
    golden(key)
    assert "columnar.encryption.key" in key
    golden(keys)
    assert "columnar.encryption.key.list" in keys


def test_master_keys_are_never_written_down() -> None:
    (problem,) = problems(
        columnar__encryption__columns="card",
        columnar__encryption__key="k",
        columnar__encryption__key__list="k:MTIzNDU2Nzg5MDEyMzQ1Ng==",
    )

    assert "a secret is not written down" in problem
    assert "MTIz" not in problem


@pytest.mark.parametrize("key", ["cards-2026", "alias", "1-2", "key/1234"])
def test_without_a_list_the_key_must_be_one_of_kms(key: str) -> None:
    (problem,) = problems(columnar__encryption__columns="card", columnar__encryption__key=key)

    assert problem.startswith(f"columnar.encryption.key={key!r}: is no ARN, id or alias/NAME")
    assert "set columnar.encryption.key.list" in problem


@pytest.mark.parametrize(
    "key",
    [
        "arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
        "1234abcd-12ab-34cd-56ef-1234567890ab",
        "mrk-1234abcd12ab34cd56ef1234567890ab",
        "alias/cards",
    ],
)
def test_keys_of_kms_need_no_list(key: str) -> None:
    encrypted = {"columnar.encryption.columns": "card", "columnar.encryption.key": key}

    assert parse({**COLUMNAR, **encrypted}).columnar_encryption_key == key


@pytest.mark.parametrize("key", ["a b", "a,b", "a;b", 'a"b', "ä", "%3A"])
def test_ids_of_master_keys_have_no_separators(key: str) -> None:
    (problem,) = problems(columnar__encryption__columns="card", columnar__encryption__key=key)

    assert problem.startswith("columnar.encryption.key=")
