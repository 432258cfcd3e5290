"""Traps that concern objects, for every registered format: tested here, or why one cannot occur."""

import bz2
import gzip
import io
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from tests.laws.arrow_cases import written as arrow_file
from tests.laws.avro_cases import written as avro_file
from tests.laws.laws import decoded
from tests.laws.orc_cases import by_pyarrow as orc_file
from tests.support.object_delivery import TOLERANT, Outcome, deliver

from extentflow.config.parsing import connector_table, parse
from extentflow.errors import Misconfigured
from extentflow.formats import FORMATS, FormatOptions, open_format
from extentflow.model import JobState
from extentflow.testing.stores import MemorySource

BUILT_IN = [name for name in FORMATS.names() if FORMATS.is_built_in(name)]
CONNECTOR = {"name": "c", "topic": "t", "aws.s3.bucket.name": "shop"}
Rows = list[dict[str, Any]]


# -- objects of every format -----------------------------------------------------------------------


def csv_object(rows: Rows) -> bytes:
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    return "\n".join(lines).encode()


def avro_object(rows: Rows) -> bytes:
    kinds = {str: "string", int: "long", float: "double"}
    fields = [{"name": name, "type": kinds[type(value)]} for name, value in rows[0].items()]
    return avro_file({"type": "record", "name": "R", "fields": fields}, rows, block_bytes=1)


def parquet_object(rows: Rows) -> bytes:
    out = io.BytesIO()
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    pq.write_table(pa.Table.from_pylist(rows), out, row_group_size=1, **plain)
    return out.getvalue()


# Each row is an object of one or several members; formats without columns hold its JSON.
WRITERS: Mapping[str, Callable[[Rows], bytes]] = {
    "arrow": lambda rows: arrow_file(pa.Table.from_pylist(rows), 1),
    "avro": avro_object,
    "bytes": lambda rows: as_json(rows[0]),
    "csv": csv_object,
    "json": lambda rows: b"[" + b",".join(map(as_json, rows)) + b"]",
    "jsonl": lambda rows: b"\n".join(map(as_json, rows)),
    "orc": lambda rows: orc_file(pa.Table.from_pylist(rows), compression="uncompressed"),
    "parquet": parquet_object,
    "text": lambda rows: b"\n".join(map(as_json, rows)),
}


def as_json(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode()


def delivered_rows(outcome: Outcome) -> Rows:
    return [orjson.loads(value) for value in outcome.values]


LINES = ("csv", "json", "jsonl", "text")
COLUMNS = ("arrow", "avro", "orc", "parquet")
# The formats in which a trap cannot occur, with the reason.
EXEMPT: Mapping[str, Mapping[str, str]] = {
    "t02": {"bytes": "a chunk is bytes of the object, and holds no text"},
    "t03": dict.fromkeys((*COLUMNS, "bytes"), "text has one encoding, or none"),
    "t04": dict.fromkeys((*COLUMNS, "bytes"), "no record is found by a delimiter"),
    "t06": {
        **dict.fromkeys((*COLUMNS, "bytes"), "no record is found by a delimiter"),
        **dict.fromkeys(("jsonl", "text"), "a record holds no delimiter"),
        "json": "an object is one extent",
    },
    "t20": {},
    "t21": {"bytes": "an object is delivered as it is, with its compression"},
    "t23": {},
    "t26": {
        **dict.fromkeys(("json", "jsonl", "text", "bytes"), "values are passed on as they are"),
        "csv": "values are text, or refused where they do not fit csv.schema",
    },
    "t27": dict.fromkeys(("text", "bytes"), "values are passed on as they are, not as JSON"),
    "t28": {},
}


@pytest.mark.parametrize("trap", EXEMPT)
def test_every_trap_is_tested_on_every_registered_format_or_cannot_occur(trap: str) -> None:
    functions = [item for name, item in globals().items() if name.startswith(f"test_trap_{trap}_")]
    tried = {
        name
        for function in functions
        for mark in function.pytestmark
        if mark.args[0] == "name"
        for name in mark.args[1]
    }

    assert functions
    assert tried | set(EXEMPT[trap]) == set(BUILT_IN)
    assert tried & set(EXEMPT[trap]) == set()


# -- T2: places are bytes, and what is no text is reported -----------------------------------------


@pytest.mark.parametrize("name", LINES)
def test_trap_t02_places_are_bytes_behind_a_mark_and_four_byte_characters(name: str) -> None:
    mark, rows = "\ufeff".encode(), [{"a": "😀é"}, {"a": "ZZ"}, {"a": "x"}]
    body = mark + WRITERS[name](rows).replace(b"ZZ", b"\xff\xfe")
    raw = b"\xff\xfe" if name == "csv" else b'{"a": "\xff\xfe"}'

    result = decoded(open_format(name, FormatOptions()), MemorySource(body), (0, len(body)))

    assert len(result.rows) == 2
    ((bad, stored, _),) = result.bad
    assert stored == raw
    assert bad == body.index(raw)
    last = b"x" if name == "csv" else b'{"a": "x"}'
    assert result.locations[-1] == body.index(last)


@pytest.mark.parametrize("name", COLUMNS)
def test_trap_t02_text_that_is_none_is_never_delivered(name: str) -> None:
    body = WRITERS[name]([{"a": "good"}, {"a": "ZZ"}, {"a": "😀"}]).replace(b"ZZ", b"\xff\xfe")

    strict = deliver({f"a.{name}": body})
    tolerant = deliver({f"a.{name}": body}, **TOLERANT)

    assert strict.states == {f"a.{name}": JobState.FAILED}
    assert "UTF-8" in strict.reasons or "UTF8" in strict.reasons
    assert tolerant.states == {f"a.{name}": JobState.DONE}
    assert len(tolerant.dead) >= 1
    assert all(row in ({"a": "good"}, {"a": "😀"}) for row in delivered_rows(tolerant))


# -- T3, T4, T6: byte orders, delimiters at buffer edges, cuts within quotes -----------------------


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_trap_t03_every_extent_has_the_byte_order_of_the_object(name: str, codec: str) -> None:
    rows = [{"a": "\u0a0a"}, {"a": "b"}, {"a": "\u0d0a😀"}]
    body = ("\ufeff" + WRITERS[name](rows).decode()).encode(codec)

    outcome = deliver({"in/a": body}, input__format=name, extent__bytes="3")

    assert delivered_rows(outcome) == rows


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("window", [2, 3, 5])
@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "utf-32-be"])
def test_trap_t04_a_delimiter_is_found_at_every_buffer_edge(
    name: str, window: int, codec: str
) -> None:
    text = WRITERS[name]([{"a": "x" * size} for size in (1, 2, 3, 7)]).decode()
    body = text.replace("\n", "\r\n").encode(codec)
    options = FormatOptions(charset=codec, window_bytes=window, batch_rows=1)

    result = decoded(open_format(name, options), MemorySource(body), (0, len(body)))

    assert len(result.rows) == 4
    assert result.bad == []
    assert not any("\r" in str(row) for row in result.rows)


@pytest.mark.parametrize("name", ["csv"])
def test_trap_t06_cuts_within_quotes_add_no_record(name: str) -> None:
    body = b'a,b\n1,"x\n2,y\n3,z\n"\n4,"\n5,w\n"\n'

    outcome = deliver({f"in/a.{name}": body}, extent__bytes="3")

    expected = [{"a": "1", "b": "x\n2,y\n3,z\n"}, {"a": "4", "b": "\n5,w\n"}]
    assert delivered_rows(outcome) == expected


# -- T20: odd keys ---------------------------------------------------------------------------------


BROKEN = {"bytes": bytes(2_000), "csv": b"a\n\xff", "json": b"{", "jsonl": b"{", "text": b"\xff"}


@pytest.mark.parametrize("name", BUILT_IN)
def test_trap_t20_an_odd_key_is_exact_in_jobs_and_messages(name: str) -> None:
    key = f"in/a+b %2C,ü=1 & c😀.{name}"
    limit = {"record__max__bytes": "1KiB"} if name == "bytes" else {}

    outcome = deliver({key: WRITERS[name]([{"a": 1}])}, input__format=name)
    wrong = deliver({key: BROKEN.get(name, b"")}, input__format=name, **limit)

    assert outcome.states == {key: JobState.DONE}
    assert len(outcome.values) == 1
    assert wrong.states == {key: JobState.FAILED}
    assert f"s3://shop/{key}" in wrong.reasons


# -- T21: truncation, members and frames -----------------------------------------------------------

PACKERS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    "bzip2": bz2.compress,
}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("codec", PACKERS)
def test_trap_t21_all_members_are_read_and_truncation_is_an_error(name: str, codec: str) -> None:
    rows = [{"a": str(row)} for row in range(50)]
    body, pack = WRITERS[name](rows), PACKERS[codec]
    packed = pack(body[:100]) + pack(b"") + pack(body[100:])
    settings = {"input__format": name, "file__compression__type": codec}

    outcome = deliver({"in/a": packed}, **settings)

    assert delivered_rows(outcome) == rows
    for missing in (1, 5, len(packed) // 2):
        cut = deliver({"in/a": packed[:-missing]}, **settings)
        assert cut.states == {"in/a": JobState.FAILED}, missing
        assert "in/a" in cut.reasons


@pytest.mark.parametrize("name", COLUMNS)
def test_trap_t21_a_truncated_object_is_never_done(name: str) -> None:
    body = WRITERS[name]([{"a": str(row)} for row in range(5)])

    for size in range(1, len(body), max(1, len(body) // 40)):
        cut = deliver({"in/a": body[:size]}, input__format=name)
        # docs/formats.md: Avro has no end mark.
        is_whole = name == "avro" and body[:size].endswith(bytes(range(0xA0, 0xB0)))
        assert is_whole or cut.states != {"in/a": JobState.DONE}, size
        assert is_whole or cut.reasons


# -- T23: options ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUILT_IN)
def test_trap_t23_no_option_of_a_format_is_ignored(name: str) -> None:
    with pytest.raises(Misconfigured, match=rf"{name}\.no\.such\.key"):
        parse({**CONNECTOR, "input.format": name, f"{name}.no.such.key": "1"})

    other = "text" if name != "text" else "csv"
    for key in (one for one in connector_table() if one.name.startswith(f"{name}.")):
        given = {**CONNECTOR, "input.format": other, key.name: "true"}
        with pytest.raises(Misconfigured) as caught:
            parse(given)
        assert any(problem.startswith(key.name) for problem in caught.value.problems)


# -- T26, T27: exact values, valid JSON ------------------------------------------------------------


@pytest.mark.parametrize("name", COLUMNS)
def test_trap_t26_values_are_exact(name: str) -> None:
    """test_comparison.py has every type of every format; these are read by a JSON parser."""
    rows = [{"a": 2**63 - 1, "b": 0.1, "c": "é"}, {"a": -(2**63), "b": -0.0, "c": ""}]

    outcome = deliver({"in/a": WRITERS[name](rows)}, input__format=name)

    assert [json.loads(value) for value in outcome.values] == rows
    assert b'"b":-0,' in outcome.values[1]


CONTROLS = "".join(map(chr, range(0x20))) + '"\\/\x7f\u2028😀'


@pytest.mark.parametrize("name", COLUMNS)
def test_trap_t27_json_of_columns_is_valid(name: str) -> None:
    numbers = [math.nan, math.inf, -math.inf, 1e308, 5e-324]
    rows = [{"n": number, "t": CONTROLS} for number in numbers]

    outcome = deliver({"in/a": WRITERS[name](rows)}, input__format=name)

    expected = [number if math.isfinite(number) else None for number in numbers]
    assert [row["n"] for row in delivered_rows(outcome)] == expected
    assert {row["t"] for row in delivered_rows(outcome)} == {CONTROLS}


@pytest.mark.parametrize("name", ["csv"])
def test_trap_t27_json_of_fields_is_valid(name: str) -> None:
    quoted = '"' + CONTROLS.replace('"', '""') + '"'
    body = f"n,t\nNaN,{quoted}\n-inf,{quoted}\n".encode()

    outcome = deliver({"in/a": body}, input__format=name, csv__schema="n:float64,t:string")

    assert delivered_rows(outcome) == [{"n": None, "t": CONTROLS}] * 2


@pytest.mark.parametrize("name", ["json", "jsonl"])
def test_trap_t27_what_is_no_json_is_never_passed_on(name: str) -> None:
    wrong = [b"NaN", b"Infinity", b'"\x01"', rb'"\ud800"', b"1e400", b"01", b"{'a': 1}"]
    between = b"," if name == "json" else b"\n"
    body = between.join([b"12345678901234567890123", *wrong, b"1.10"])

    outcome = deliver(
        {"in/a": b"[" + body + b"]" if name == "json" else body}, input__format=name, **TOLERANT
    )

    assert outcome.values == [b"12345678901234567890123", b"1.10"]
    assert outcome.dead == wrong


# -- T28: records that are too large ---------------------------------------------------------------


@pytest.mark.parametrize("name", BUILT_IN)
def test_trap_t28_a_record_too_large_for_the_topic_stops_no_other(name: str) -> None:
    large = "x" * 1_100_000
    rows = [{"a": "first"}, {"a": large}, {"a": "last"}]
    files = {"in/a": WRITERS[name](rows)}
    if name == "bytes":
        files = {f"in/{place}": WRITERS[name]([row]) for place, row in enumerate(rows)}

    outcome = deliver(files, input__format=name, **TOLERANT)

    assert delivered_rows(outcome) == [rows[0], rows[2]]
    assert len(outcome.dead) == 1
    assert set(outcome.states.values()) == {JobState.DONE}
