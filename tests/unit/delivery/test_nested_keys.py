"""Keys, headers and selections of members within columns and within JSON lines."""

import pyarrow as pa
import pytest
from tests.support.chains import chain, convert
from tests.support.golden import Golden

from extentflow.config.parsing import parse, to_map
from extentflow.errors import Misconfigured, UnsupportedType

STRUCT = pa.struct([("id", pa.int64()), ("b", pa.struct([("c", pa.string())]))])
TABLE = pa.table(
    {
        "a": pa.array([{"id": 1, "b": {"c": "x"}}, None, {"id": 3, "b": None}], STRUCT),
        "n": [1, 2, 3],
    }
)
LINES = b'{"a":{"b":{"c":1.10}},"n":1}\n{"a.b.c":"flat","n":2}\n{"a":{"b":3},"n":3}\n'


@pytest.mark.parametrize("written", ["column:a.b.c", "path:$.a.b.c"])
def test_a_key_is_a_member_of_a_struct(written: str) -> None:
    assert convert(TABLE, {"message.key": written}).keys == [b"x", None, None]


def test_several_members_make_an_object_of_their_paths() -> None:
    made = convert(TABLE, {"message.key": "column:a.id,n"})

    assert made.keys == [b'{"a.id":1,"n":1}', b'{"a.id":null,"n":2}', b'{"a.id":3,"n":3}']


def test_the_key_of_a_json_line_is_a_member_as_written() -> None:
    made = convert(LINES, {"message.key": "path:$.a.b.c"}, "jsonl")

    assert made.keys == [b"1.10", b"flat"]
    ((at, why),) = made.bad
    assert at == LINES.index(b'{"a":{"b":3}')
    assert why.startswith("there is no member 'a.b.c'")


def test_headers_timestamps_selections_and_value_to_key_take_members() -> None:
    config = {
        "headers": "c=column:a.b.c",
        "message.timestamp": "column:a.id",
        "select": "n,a.id",
        **chain(k={"type": "ValueToKey", "fields": "n"}),
    }

    made = convert(TABLE, config)

    assert made.payloads[0] == b'{"n":1,"a.id":1}'
    assert (made.headers, made.timestamps) == ([{"c": b"x"}, {}, {}], [1, 0, 3])
    assert made.keys == [b"1", b"2", b"3"]


def test_a_member_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnsupportedType, match="there is no column 'a"):
        convert(TABLE, {"message.key": "column:a.nope"})


def test_a_path_is_one_of_names() -> None:
    whole = {"name": "c", "topic": "t", "aws.s3.bucket.name": "bucket"}

    assert to_map(parse({**whole, "message.key": "path:$.a.b"}))["message.key"] == "column:a.b"
    with pytest.raises(Misconfigured, match="path:"):
        parse({**whole, "message.key": "path:$.a[0]"})


# -- templates -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "keys"),
    [
        ("{n}", [b"1", b"2", b"3"]),
        ("${bucket}/${key}-{n}", [b"bucket/folder/key-1", b"bucket/folder/key-2"]),
        ("{a.id}:{n}", [b"1:1", None, b"3:3"]),
        ("{{$1}}{n}", [b"{$1}1", b"{$1}2"]),
        ("${version}${size}", [b"v10", b"v10"]),
    ],
)
@pytest.mark.parametrize("select", ["n,a", ""])
def test_a_template_joins_columns_and_facts(
    template: str, keys: list[bytes | None], select: str
) -> None:
    config = {"message.key": f"template:{template}"} | ({"select": select} if select else {})

    assert convert(TABLE, config).keys[: len(keys)] == keys


def test_a_template_of_json_members_keeps_their_text() -> None:
    made = convert(LINES, {"message.key": "template:<{a.b.c}>"}, "jsonl")

    assert made.keys == [b"<1.10>", b"<flat>"]


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("x", "is the same for all records"),
        ("{n", "write text, {column} and ${fact}"),
        ("", "write text, {column} and ${fact}"),
        ("${keys}", "no fact ${keys}; there are ${bucket}, ${key}"),
    ],
)
def test_a_template_that_cannot_be_read_says_why(template: str, complaint: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        convert(TABLE, {"message.key": f"template:{template}"})

    assert complaint in str(caught.value)


def test_a_template_and_value_to_key_exclude_each_other(golden: Golden) -> None:
    config = chain(k={"type": "ValueToKey", "fields": "n"}) | {"message.key": "template:{n}"}

    with golden.raises(Misconfigured):
        convert(TABLE, config)
