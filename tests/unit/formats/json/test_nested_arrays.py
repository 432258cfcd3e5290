"""Records are the elements of the array where `json.records.path` leads, and nothing is guessed."""

import gzip
import json
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.laws import Decoded, chunks, decoded

from extentflow.errors import CorruptObject
from extentflow.formats import FormatOptions
from extentflow.formats.json.json_format import JsonOptions, open_json
from extentflow.testing.stores import MemorySource

MIB = 1 << 20
SMALL = (1, 3, MIB)
DECOYS = (
    b'{"x": "\\"Records\\": [7]", "y": {"Records": [8]}, "z": [{"Records": [9]}],'
    b' "Records" :\n [1], "w": {"Records": [6]}}'
)
LEAVES = st.none() | st.booleans() | st.integers() | st.text('a"\\[]{},: é', max_size=4)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("data", "items", "x")), inner, max_size=3)
    ),
    max_leaves=8,
)


DATA = st.fixed_dictionaries({"items": VALUES | st.lists(VALUES)}, optional={"x": VALUES})
DOCUMENTS = st.fixed_dictionaries({"data": VALUES | DATA}, optional={"x": VALUES, "items": VALUES})


def read(body: bytes, *path: str, window_bytes: int = MIB, max_record_bytes: int = MIB) -> Decoded:
    options = FormatOptions(window_bytes=window_bytes, max_record_bytes=max_record_bytes)
    fmt = open_json(options, JsonOptions(records_path=path or ("Records",)))
    return decoded(fmt, MemorySource(body), (0, len(body)))


def values(result: Decoded) -> list[bytes]:
    return [row["value"] for row in result.rows]


@pytest.mark.parametrize("window_bytes", SMALL)
@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"Records": [{"a": 1}, [2], 3 ,"]"]}', [b'{"a": 1}', b"[2]", b"3", b'"]"']),
        (b'{"Records":[1]}{"Records":[]}\n{"Records":[2,3]}', [b"1", b"2", b"3"]),
        (b'[{"Records":[1]}, {"Records":[2]}]{"Records":[3]}[]', [b"1", b"2", b"3"]),
        (b'{"\\u0052ecords": [1]}', [b"1"]),
        (DECOYS, [b"1"]),
        (b'{"xRecords": [7], "Record": [8], "records": [9], "Records": [1]}', [b"1"]),
        (b'{"v": "Records", "Records": [1]}', [b"1"]),
        (b'{"Records": null}{"Records": []}{"Records": [ ]} ', []),
        (b'\xef\xbb\xbf{"Records": [1]}', [b"1"]),
        (b" \n", []),
    ],
    ids=lambda value: value[:24].decode("ascii", "replace") if isinstance(value, bytes) else "",
)  # fmt: skip
def test_the_elements_of_the_array_are_the_records(
    body: bytes, found: list[bytes], window_bytes: int
) -> None:
    result = read(body, window_bytes=window_bytes)

    assert values(result) == found
    assert not result.bad
    assert [body[at : at + len(one)] for at, one in zip(result.locations, found, strict=True)] == (
        found
    )


@pytest.mark.parametrize("window_bytes", SMALL)
def test_a_path_leads_through_objects(window_bytes: int) -> None:
    body = (
        b'{"meta": {"items": [7], "data": {"items": [8]}}, "items": [9],'
        b' "data": {"x": {"items": [6]}, "n": [1, 2], "items": [1, {"items": [5]}], "next": {}}}'
    )

    assert values(read(body, "data", "items", window_bytes=window_bytes)) == [
        b"1",
        b'{"items": [5]}',
    ]


@pytest.mark.parametrize("window_bytes", SMALL)
@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b'{"error": "throttled"}', "the document has no such member"),
        (b'{"data": {"Items": [1]}}', "the document has no such member"),
        (b'{"d": {"Items": [1, 2]}}', "no such member, but an array at d.Items; correct"),
        (b'{"data": null}', "data is null, not an object"),
        (b'{"data": [1]}', "data is an array, not an object"),
        (b'{"data": {"items": {"a": 1}}}', "data.items is an object, not an array"),
        (b'{"data": {"items": 7, "x": 1}}', "data.items is a single value, not an array"),
        (b'{"data": {"items": "[1]"}}', "data.items is a single value, not an array"),
        (b'{"data": {"x": 1}, "data": {"items": [1]}}', "the name 'data' of"),
        (b'{"data": {"x": nul, "items": [1]}}', "not one JSON value"),
        (b'{"data": {"x": 1 "items": [1]}}', "not one JSON value"),
        (b'{"data" {"items": [1]}}', "not one JSON value"),
        (b'7 {"data": {"items": [1]}}', "not one JSON value"),
        (b', {"data": {"items": [1]}}', "not one JSON value"),
    ],
)
def test_a_document_without_the_array_is_a_bad_record_and_others_are_read(
    document: bytes, reason: str, window_bytes: int
) -> None:
    good = b'{"data": {"items": [1]}}'

    result = read(good + document + good, "data", "items", window_bytes=window_bytes)

    assert values(result) == [b"1", b"1"]
    ((location, raw, why),) = result.bad
    assert (location, raw) == (len(good), None)
    assert reason in why


@pytest.mark.parametrize("window_bytes", SMALL)
def test_in_an_array_at_the_top_each_element_is_a_document(window_bytes: int) -> None:
    body = b'[{"Records": [1]}, 7, ,[{"Records": [9]}], {"Records": [2]} x, {"Records": [3]},]'

    with pytest.raises(CorruptObject, match="document at byte 43, around its records: not one"):
        read(body, window_bytes=window_bytes)

    result = read(body.replace(b"x", b" "), window_bytes=window_bytes)

    assert values(result) == [b"1", b"2", b"3"]
    assert [location for location, _, _ in result.bad] == [19, 22, 23, 80]


@pytest.mark.parametrize("window_bytes", SMALL)
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"Records": [1, 2', "element at byte 16 has no end"),
        (b'{"Records": [1, "2', "element at byte 16 has no end"),
        (b'{"Records": [1, 2]', "document or element at byte 0 has no end"),
        (b'{"Records": [1]} {"x', "document or element at byte 17 has no end"),
        (b'{"Records": [1}}', "the bracket at byte 14 closes nothing"),
        (b'{"Records": [1]}}', "the bracket at byte 16 closes nothing"),
        (b'[{"Records": [1]}}', "the bracket at byte 17 closes nothing"),
        (b'{"Records": [1], "Records": [2]}', "byte 0, around its records: the name 'Records' of"),
        (b'{"Records": [1], "Records": null}', "byte 0, around its records: the name 'Records' of"),
        (b'{"Records": [1] x}', "byte 0, around its records: not one JSON value"),
        (b'{"Records": [1], "x": 007}', "byte 0, around its records: not one JSON value"),
        (b'{"Records": [1]]', "byte 0, around its records: not one JSON value"),
    ],
)
def test_damage_behind_the_first_record_is_an_error(
    body: bytes, reason: str, window_bytes: int
) -> None:
    with pytest.raises(CorruptObject, match=reason) as raised:
        read(body, window_bytes=window_bytes)

    assert "memory/object" in str(raised.value)
    assert "repair the object" in str(raised.value)


@pytest.mark.parametrize("window_bytes", SMALL)
def test_bad_elements_have_their_places(window_bytes: int) -> None:
    body = b'{"Records": [1, nul, , {"a": "' + b"x" * 30 + b'"}, 2,]}'

    result = read(body, window_bytes=window_bytes, max_record_bytes=29)

    assert values(result) == [b"1", b"2"]
    bad = [(location, raw) for location, raw, _ in result.bad]
    assert bad == [(16, b"nul"), (21, None), (23, None), (66, None)]


def test_members_around_the_array_are_bounded() -> None:
    before = b'{"x": "' + b"x" * 50 + b'", "Records": [1]}{"Records": [2]}'
    behind = b'{"Records": [1], "x": "' + b"x" * 50 + b'"}'

    result = read(before, max_record_bytes=20)

    assert values(result) == [b"2"]
    ((location, _, why),) = result.bad
    assert location == 0
    assert "more than the 20 bytes" in why
    assert "record.max.bytes" in why
    with pytest.raises(CorruptObject, match="more than the 20 bytes"):
        read(behind, max_record_bytes=20)


@pytest.mark.parametrize("charset", ["utf-16", "utf-16-be"])
def test_documents_of_other_character_sets(charset: str) -> None:
    body = '{"é": 1, "Réc": [{"é": 1}]}'.encode(charset)
    fmt = open_json(FormatOptions(charset=charset), JsonOptions(records_path=("Réc",)))

    result = decoded(fmt, MemorySource(body), (0, len(body)))

    assert values(result) == ['{"é": 1}'.encode()]


def test_members_of_gzip_are_one_content() -> None:
    body = gzip.compress(b'{"Records": [1, ') + gzip.compress(b"2]}")
    fmt = open_json(FormatOptions(compression="gzip"), JsonOptions(records_path=("Records",)))

    assert values(decoded(fmt, MemorySource(body), (0, len(body)))) == [b"1", b"2"]


def reference(document: Any, path: tuple[str, ...]) -> list[Any] | None:  # noqa: ANN401 - JSON
    """Return the records of a document; None where it is a bad one."""
    for name in path:
        if not isinstance(document, dict) or name not in document:
            return None
        document = document[name]
    return [] if document is None else document if isinstance(document, list) else None


@given(
    st.lists(VALUES | DOCUMENTS, max_size=4),
    st.integers(1, 9),
    st.sampled_from([None, 1]),
    st.booleans(),
    st.sampled_from([("data", "items"), ("data",)]),
)
@settings(max_examples=75, deadline=None)
def test_records_are_what_python_finds(
    documents: list[Any],
    window_bytes: int,
    indent: int | None,
    in_array: bool,  # noqa: FBT001
    path: tuple[str, ...],
) -> None:
    if not in_array:  # only brackets end a document outside of an array
        documents = [one for one in documents if isinstance(one, dict)]
    texts = [json.dumps(one, indent=indent, ensure_ascii=bool(indent)) for one in documents]
    body = (f"[{','.join(texts)}]" if in_array else " ".join(texts)).encode()

    result = read(body, *path, window_bytes=window_bytes)

    expected = [reference(one, path) for one in documents]
    assert [json.loads(one) for one in values(result)] == [
        record for records in expected for record in records or []
    ]
    assert len(result.bad) == expected.count(None)


def test_a_large_array_takes_constant_memory() -> None:
    body = b'{"Records": [' + b'{"a": [1, 2, "text"], "b": "}"},\n' * 200_000 + b'1], "x": 1}'
    source = MemorySource(body)
    fmt = open_json(FormatOptions(window_bytes=MIB), JsonOptions(records_path=("Records",)))

    tracemalloc.start()
    rows = sum(chunk.batch.num_rows for chunk in chunks(fmt, source, 0, len(body)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert rows == 200_001
    assert peak < 32 * MIB


@pytest.mark.parametrize(
    "unit",
    [
        b'{"Records":[1]}',
        b'[{"Records":[]}]',
        b"[]",
        pytest.param(b"{},", marks=pytest.mark.variant),
        b'{"Records":[{}',
        b'"x",',
    ],
)
def test_hostile_content_ends_in_time(unit: bytes) -> None:
    body = unit * (MIB // 2 // len(unit))
    began = time.process_time()
    try:
        read(body, max_record_bytes=MIB // 8)
    except CorruptObject as exc:
        assert "memory/object" in str(exc)  # noqa: PT017

    assert time.process_time() - began < 10
