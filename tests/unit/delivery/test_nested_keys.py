"""Keys, headers and selections of members within columns and within JSON lines."""

import pyarrow as pa
import pytest
from tests.support.chains import chain, convert

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
    with pytest.raises(Misconfigured, match="or path:"):
        parse({**whole, "message.key": "path:$.a[0]"})
