r"""JSON lines: what is a record, what is valid, the members that keys need."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.laws import Decoded, decoded
from tests.support.golden import Golden

from extentflow.errors import Misconfigured
from extentflow.formats import FormatOptions
from extentflow.formats.json.jsonl_format import JsonlOptions, open_jsonl
from extentflow.testing.stores import MemorySource

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def read(body: bytes, *columns: str, validate: bool = True) -> Decoded:
    # Named, because random bytes may have zeros as UTF-16 has them.
    options = FormatOptions(columns=columns, charset="UTF-8")
    fmt = open_jsonl(options, JsonlOptions(validate=validate))
    return decoded(fmt, MemorySource(body), (0, len(body)))


def column(body: bytes, name: str, *, validate: bool = True) -> list[str | None]:
    return [row[name] for row in read(body, name, validate=validate).rows]


def test_values_are_the_lines_bytes_unchanged() -> None:
    body = b'{"b": 1.50,  "a":"\\u00e9"}\r\n  [1 ,2]\t\n'

    result = read(body)

    assert result.rows == [{"value": b'{"b": 1.50,  "a":"\\u00e9"}'}, {"value": b"  [1 ,2]\t"}]


def test_lines_of_whitespace_are_no_records() -> None:
    result = read(b"\n \t \n\r\n1\n\r\r\n  \n")

    assert result.rows == [{"value": b"1"}]
    assert result.locations == [7]
    assert result.bad == []


@pytest.mark.parametrize("columns", [(), ("a",)])
def test_a_line_that_is_not_utf_8_is_bad_and_its_reason_names_the_way_out(
    columns: tuple[str, ...],
) -> None:
    result = read(b'{"a":"\xc3\xa4"}\n{"a":"caf\xe9"}\n{"a":1}\n', *columns)

    assert len(result.rows) == 2
    reason = "not UTF-8: invalid continuation byte (0xe9) at byte 20"
    way_out = "if the object has another character set, set character.set"
    assert result.bad == [(11, b'{"a":"caf\xe9"}', f"{reason}; {way_out}")]


@pytest.mark.parametrize(
    "line",
    [
        b"NaN",
        b"-Infinity",
        b"01",
        b"1.",
        b".5",
        b"+1",
        b"[1,]",
        b'{"a":1,}',
        b"{'a':1}",
        b"1 2",
        b'{"a":1}{"b":2}',
        b'"\x01"',
        b'"\\x41"',
        b"\xef\xbb\xbf1",
        b"nul",
        b'{"a"',
        b'"\\ud800"',
        b"1e999",
        b"[" * 1100 + b"]" * 1100,
    ],
)
def test_a_line_that_is_not_one_strict_value_is_bad(line: bytes) -> None:
    result = read(b"1\n" + line + b"\n2\n")

    assert [row["value"] for row in result.rows] == [b"1", b"2"]
    assert [(location, raw) for location, raw, _ in result.bad] == [(2, line)]
    assert result.bad[0][2].startswith("not one JSON value: ")


def test_without_validation_lines_pass_unread() -> None:
    result = read(b"{\n\n\xff\n", validate=False)

    assert [row["value"] for row in result.rows] == [b"{", b"\xff"]
    assert result.bad == []


def test_members_become_columns_as_they_stand_in_the_line() -> None:
    lines = [
        b'{"id":"x"}',
        b'{"id":7}',
        b'{"id": 1.10}',
        b'{"id": -0}',
        b'{"id": 12345678901234567890123}',
        b'{"id": 1E+2 }',
        b'{"id": [1, {"a b" : "c , d"} , "\\"}" ] }',
        b'{"id": true}',
        b'{"id": null}',
        b'{"id": 1.5, "id": 2.50}',
        b'{"\\u0069d": 1.0}',
        b'{"id": "\\u00e9"}',
    ]

    found = column(b"\n".join(lines), "id")

    assert found == [
        "x",
        "7",
        "1.10",
        "-0",
        "12345678901234567890123",
        "1E+2",
        '[1,{"a b":"c , d"},"\\"}"]',
        "true",
        None,
        "2.50",
        "1.0",
        "é",
    ]


def test_members_need_valid_lines_even_without_validation() -> None:
    result = read(b'{"id":1}\n{"id":\n{"id":2}', "id", validate=False)

    assert result.rows == [
        {"value": b'{"id":1}', "id": "1"},
        {"value": b'{"id":2}', "id": "2"},
    ]
    assert [location for location, _, _ in result.bad] == [9]


def test_several_members_follow_the_value_in_the_requested_order() -> None:
    result = read(b'{"a":"1","b":"2"}', "b", "a")

    assert [list(row) for row in result.rows] == [["value", "b", "a"]]
    assert result.rows[0]["b"] == "2"


def test_a_line_without_the_member_is_bad_and_one_where_it_is_null_is_not(golden: Golden) -> None:
    result = read(b'{"id":1}\n{"di":2}\n{"id":null}\n{"in":{"id":4}}\n{}', "id")

    assert [row["id"] for row in result.rows] == ["1", None]
    assert [(location, raw) for location, raw, _ in result.bad] == [
        (9, b'{"di":2}'),
        (30, b'{"in":{"id":4}}'),
        (46, b"{}"),
    ]
    (reason,) = {reason for _, _, reason in result.bad}
    golden(reason)
    assert "'id'" in reason


@pytest.mark.parametrize("line", [b"[1]", b'"id"', b"7", b"null", b"true"])
def test_a_line_that_is_no_object_has_no_members(line: bytes) -> None:
    result = read(line, "id")

    ((_, raw, reason),) = result.bad
    assert (result.rows, raw) == ([], line)
    assert reason.startswith("there is no member 'id'")


def test_all_missing_members_are_named(golden: Golden) -> None:
    result = read(b'{"b":1}', "a", "b", "c d")

    ((_, _, reason),) = result.bad
    assert reason.startswith("there are no members 'a', 'c d', which")
    golden(reason)
    assert '"a":null' in reason


def test_a_member_called_value_cannot_be_a_column() -> None:
    with pytest.raises(Misconfigured, match="'value'"):
        open_jsonl(FormatOptions(columns=("value",)))


@given(st.dictionaries(st.text(), VALUES, max_size=4), st.sampled_from([None, 1, 3]))
def test_a_member_s_text_reads_as_the_member(document: dict[str, Any], indent: int | None) -> None:
    line = json.dumps(document, indent=indent).replace("\n", "\t").encode()
    names = [name for name in document if name != "value"]

    for name in names:
        wanted = document[name]
        (text,) = column(line, name)

        if wanted is None or isinstance(wanted, str):
            assert text == wanted
        else:
            assert text is not None
            assert json.loads(text) == wanted
            assert len(text) <= len(json.dumps(wanted, separators=(",", ":")))


@given(st.lists(VALUES | st.binary(max_size=8), max_size=20))
def test_lines_are_valid_or_bad_as_python_s_json_says(values: list[Any]) -> None:
    def require_signature(word: str) -> None:
        raise ValueError(word)

    def valid(line: bytes) -> bool:
        try:
            json.loads(line.decode(), parse_constant=require_signature)
        except ValueError:
            return False
        return True

    lines = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    lines = [line for line in lines if line.strip(b" \t\r") and not set(line) & {10, 13}]

    result = read(b'{"first":1}\n' + b"\n".join(lines))

    assert [row["value"] for row in result.rows][1:] == [line for line in lines if valid(line)]
    assert [raw for _, raw, _ in result.bad] == [line for line in lines if not valid(line)]
