"""Members before the array are added to its records exactly, or a record is a bad one."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.laws import Decoded, chunks, decoded, extent_of

from extentflow.config.column_lists import JSON_SCHEMA
from extentflow.formats import FormatOptions, InspectingFormat
from extentflow.formats.json.json_format import JsonOptions, open_json
from extentflow.testing.stores import MemorySource

MIB = 1 << 20
OWN = JsonOptions(records_path=("items",), records_around=("n",))
MEMBERS = st.dictionaries(
    st.sampled_from(("a", "n", "/", "é")),
    st.none() | st.integers() | st.text('"\\n[{,é', max_size=3) | st.lists(st.integers()),
    max_size=3,
)


def read(body: bytes, own: JsonOptions = OWN, **options: Any) -> Decoded:  # noqa: ANN401 - sizes
    fmt = open_json(FormatOptions(**options), own)
    return decoded(fmt, MemorySource(body), (0, len(body)))


def test_members_stand_first_as_they_are_written() -> None:
    body = b'{"m": {"id": 1.50, "x": []}, "n" : null, "items": [{"a": 1}, {}], "late": 1}'
    own = JsonOptions(records_path=("items",), records_around=("m.id", "n"))

    result = read(body, own)

    assert [row["value"] for row in result.rows] == [
        b'{"m.id":1.50,"n":null,"a": 1}',
        b'{"m.id":1.50,"n":null}',
    ]
    assert result.locations == [body.index(b'{"a"'), body.index(b"{}")]


def test_a_document_without_the_member_before_its_array_is_a_bad_record() -> None:
    body = b'{"items": [{"a": 1}], "n": 1}{"n": 2, "items": [{}]}'

    result = read(body)

    assert [row["value"] for row in result.rows] == [b'{"n":2}']
    ((location, raw, why),) = result.bad
    assert (location, raw) == (0, None)
    assert "the document has no member 'n' before the array" in why
    assert "remove the name from json.records.around" in why


@pytest.mark.parametrize(
    ("element", "reason"),
    [
        (b"7", "only objects can have members added"),
        (b'{"n": 1}', "the record has a member 'n' of its own"),
        (b'{"\\u006e": 1}', "the record has a member 'n' of its own"),
        (b'{"a": "\xff"}', "not UTF-8: invalid start byte (0xff) at byte 26"),
    ],
)
def test_an_element_that_cannot_have_the_member_is_a_bad_record(
    element: bytes, reason: str
) -> None:
    result = read(b'{"n": 1, "items": [' + element + b', {"a": 2}]}')

    assert [row["value"] for row in result.rows] == [b'{"n":1,"a": 2}']
    ((location, raw, why),) = result.bad
    assert (location, raw) == (19, None)
    assert reason in why


def test_a_bad_record_has_the_members_so_that_it_can_be_delivered_again() -> None:
    body = b'{"n": 1, "items": [{"a": nul}]}'
    source = MemorySource(body)
    fmt = open_json(FormatOptions(), OWN)

    ((location, raw, _),) = decoded(fmt, source, (0, len(body))).bad

    assert (location, raw) == (19, b'{"n":1,"a": nul}')
    again = fmt.decode_record(
        source, extent_of(source, 0, len(body)), b'{"n":1,"a": null}', location
    )
    assert again.batch.to_pylist() == [{"value": b'{"n":1,"a": null}'}]


def test_members_are_columns_with_a_schema_and_keys_without() -> None:
    body = b'{"n": "x", "items": [{"a": 1}, {"a": 2}]}'
    typed = JsonOptions(
        schema=JSON_SCHEMA.read("n:string,a:int64"),
        records_path=("items",),
        records_around=("n",),
    )

    assert read(body, typed).rows == [{"n": "x", "a": 1}, {"n": "x", "a": 2}]
    assert [row["n"] for row in read(body, columns=("n",)).rows] == ["x", "x"]


def test_planning_infers_columns_of_members_and_elements() -> None:
    body = b'{"n": "x", "items": [{"a": 1}, {"a": 2}], "late": [1]}'
    own = JsonOptions(schema=None, records_path=("items",), records_around=("n",))
    fmt = open_json(FormatOptions(), own)
    assert isinstance(fmt, InspectingFormat)

    facts = fmt.inspect(MemorySource(body))

    assert facts == "n:string,a:int64"
    assert read(body, own, facts=facts).rows == [{"n": "x", "a": 1}, {"n": "x", "a": 2}]


def test_elements_are_not_divided_further() -> None:
    element = b'{"items": [1, 2, 3]}'

    assert open_json(FormatOptions(), OWN).how_to_divide(element) == ""
    assert "json.records.path=items:" in open_json(FormatOptions()).how_to_divide(element)


@given(
    st.lists(st.tuples(MEMBERS, st.lists(MEMBERS | st.integers(), max_size=4)), max_size=3),
    st.integers(1, 9),
    st.sampled_from((1, 2, 65_536)),
    st.sampled_from(("n", "/", "é")),
    st.booleans(),
)
@settings(max_examples=50, deadline=None)
def test_records_are_what_python_makes(
    pages: list[tuple[dict[str, Any], list[Any]]],
    window_bytes: int,
    batch_rows: int,
    name: str,
    ascii_only: bool,  # noqa: FBT001
) -> None:
    documents = [{**members, "items": items} for members, items in pages]
    body = "\n".join(json.dumps(one, ensure_ascii=ascii_only) for one in documents).encode()
    own = JsonOptions(records_path=("items",), records_around=(name,))

    result = read(body, own, window_bytes=window_bytes, batch_rows=batch_rows)

    fits = [
        {name: members[name], **one}
        for members, items in pages
        for one in items
        if name in members and isinstance(one, dict) and name not in one
    ]
    assert [json.loads(row["value"]) for row in result.rows] == fits
    every = sum(len(items) if name in members else 1 for members, items in pages)
    assert len(result.rows) + len(result.bad) == every


def test_long_members_before_many_records_take_little_memory() -> None:
    body = b'{"n": "' + b"x" * MIB + b'", "items": [' + b"{}," * 200 + b"{}]}"
    fmt = open_json(FormatOptions(window_bytes=MIB), OWN)
    source = MemorySource(body)

    tracemalloc.start()
    rows = 0
    for chunk in chunks(fmt, source, 0, len(body)):
        rows += chunk.batch.num_rows
        assert chunk.batch.nbytes <= 17 * MIB
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert rows == 201
    assert peak < 96 * MIB
