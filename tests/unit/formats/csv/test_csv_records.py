"""Records of CSV, compared with a reader that goes byte by byte, under any cut."""

import csv
import io
import random
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.laws.laws import decoded, extent_of

from extentflow.errors import CorruptObject
from extentflow.formats import FormatOptions
from extentflow.formats.csv.csv_format import CsvOptions, open_csv
from extentflow.formats.csv.csv_records import RecordCutter
from extentflow.formats.csv.csv_syntax import RecordSyntax, State
from extentflow.testing.stores import MemorySource

Records = list[tuple[int, bytes]]


def one_by_one(body: bytes, limit: int, escape: int = -1, comment: bytes | None = None) -> Records:
    """Return each record with its place, by the table at the top of `csv_syntax`."""
    found: Records = []
    at = 0
    while at < len(body):
        begins = "line" if comment and body.startswith(comment, at) else "field"
        end = _end_of_record(body, at, limit, escape, begins)
        found.append((at, body[at : min(end + 1, len(body))]))
        at = end + 1
    return found


def _end_of_record(body: bytes, at: int, limit: int, escape: int, state: str = "field") -> int:
    while at < len(body):
        byte = body[at : at + 1]
        if body[at] == escape:
            state, at = state if state in ("quoted", "line") else "plain", at + 2
            continue
        if byte == b'"' and state == "field" and not _opens(body, at, limit, escape):
            state = "line"
        elif byte == b"\n" and state != "quoted":
            return at
        elif state == "quoted":
            state = "closing" if byte == b'"' else "quoted"
        elif byte == b'"' and state in ("field", "closing"):
            state = "quoted"
        elif state != "line":
            state = "field" if byte == b"," else "plain"
        at += 1
    return len(body)


def _opens(body: bytes, quote: int, limit: int, escape: int) -> bool:
    at, broken = quote + 1, False
    while at < len(body):
        if body[at] == escape:
            at += 2
            continue
        if body[at : at + 1] == b'"':
            if body[at + 1 : at + 2] != b'"':
                return not broken or at - quote <= limit
            at += 1
        broken = broken or body[at : at + 1] == b"\n"
        at += 1
    return False


def cut_records(
    body: bytes, cuts: list[int], syntax: RecordSyntax, window: int, most: int = 1 << 20
) -> Records:
    """Return the records of all extents between `cuts`."""
    source, found = MemorySource(body), Records()
    cutter = RecordCutter(syntax)
    for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        extent = extent_of(source, start, end)
        for block in cutter.owned(source, extent, 0, window_bytes=window, max_record_bytes=most):
            begin = block.offset
            for stop in block.stops.tolist():
                found.append((begin, body[begin : block.offset + stop]))
                begin = block.offset + stop
    return found


SYNTAX = RecordSyntax(",", '"', None, 1 << 20)


@given(
    body=st.lists(st.sampled_from([b'"', b'""', b",", b"\n", b"a", b"\r\n", b'","', b'"\n"']))
    .map(b"".join)
    .filter(bool),
    limit=st.sampled_from([0, 3, 8, 1 << 20]),
    window=st.integers(2, 20),
    data=st.data(),
)
@settings(max_examples=200, deadline=None)
def test_any_cut_of_any_bytes_yields_the_same_records(
    body: bytes, limit: int, window: int, data: st.DataObject
) -> None:
    cuts = data.draw(st.sets(st.integers(1, max(1, len(body) - 1)), max_size=5))
    kept = sorted(cut for cut in cuts if cut < len(body))

    found = cut_records(body, kept, RecordSyntax(",", '"', None, limit), window)

    assert found == one_by_one(body, limit)


@given(
    body=st.lists(st.sampled_from([b'"', b",", b"\n", b"a", b"\\", b"\\\\"]), min_size=1).map(
        b"".join
    ),
    limit=st.sampled_from([0, 3, 1 << 20]),
    window=st.integers(2, 20),
    data=st.data(),
)
@settings(max_examples=300, deadline=None)
def test_any_cut_of_any_escapes_yields_the_same_records(
    body: bytes, limit: int, window: int, data: st.DataObject
) -> None:
    cuts = data.draw(st.sets(st.integers(1, max(1, len(body) - 1)), max_size=5))
    kept = sorted(cut for cut in cuts if cut < len(body))

    found = cut_records(body, kept, RecordSyntax(",", '"', "\\", limit), window)

    assert found == one_by_one(body, limit, ord("\\"))


@given(
    body=st.lists(
        st.sampled_from([b'"', b",", b"\n", b"/", b"//", b"\n//", b'//"\n', b"a", b"\\"]),
        min_size=1,
    ).map(b"".join),
    limit=st.sampled_from([0, 3, 1 << 20]),
    escape=st.sampled_from([None, "\\"]),
    window=st.integers(2, 20),
    data=st.data(),
)
@settings(max_examples=300, deadline=None)
def test_any_cut_of_any_comments_yields_the_same_records(
    body: bytes, limit: int, escape: str | None, window: int, data: st.DataObject
) -> None:
    cuts = data.draw(st.sets(st.integers(1, max(1, len(body) - 1)), max_size=5))
    kept = sorted(cut for cut in cuts if cut < len(body))
    syntax = RecordSyntax(",", '"', escape, limit, comment="//")

    found = cut_records(body, kept, syntax, window)

    assert found == one_by_one(body, limit, ord(escape) if escape else -1, b"//")


@given(
    body=st.lists(st.sampled_from([b'"', b'""', b",", b"\n", b"a", b"bcd", b"/"])).map(b"".join),
    final=st.booleans(),
    pieces=st.integers(1, 7),
)
@example(body=b',"\n"', pieces=1, final=False)
@settings(max_examples=200, deadline=None)
def test_following_a_record_in_pieces_finds_its_end(
    body: bytes, pieces: int, *, final: bool
) -> None:
    syntax = RecordSyntax(",", '"', None, 6, comment="//")
    state, at, known = State.RECORD, 0, 0
    while state is not State.ENDED and known < len(body):
        known = min(known + pieces, len(body))
        last = final and known == len(body)
        state, at = syntax.follow(body[:known], at, state, final=last)

    if state is State.ENDED:
        begins = "line" if body.startswith(b"//") else "field"
        assert at == _end_of_record(body, 0, 6, -1, begins)
    else:
        assert not final or not body


TEXTS = st.text(st.sampled_from('ab,"\n\r é'), max_size=12)


@given(
    table=st.lists(st.lists(TEXTS, min_size=2, max_size=2), min_size=1, max_size=30),
    ending=st.sampled_from(["\n", "\r\n"]),
    window=st.integers(4, 64),
    data=st.data(),
)
@settings(max_examples=75, deadline=None)
def test_what_python_writes_is_read_back_from_any_extents(
    table: list[list[str]], ending: str, window: int, data: st.DataObject
) -> None:
    out = io.StringIO()
    # All fields quoted, as Python leaves a CR unquoted where LF ends lines.
    writer = csv.writer(out, lineterminator=ending, quoting=csv.QUOTE_ALL)
    writer.writerows([["a", "b"], *table])
    body = out.getvalue().encode()
    cuts = sorted(data.draw(st.sets(st.integers(1, len(body) - 1), max_size=6)))
    fmt = open_csv(FormatOptions(window_bytes=window, batch_rows=3), CsvOptions(null=None))

    result = decoded(fmt, MemorySource(body), (0, *cuts, len(body)))

    assert [list(row.values()) for row in result.rows] == table
    assert result.bad == []


def _texts(chance: random.Random) -> Iterator[str]:
    words = ["a,b", 'say "hi"', "line\nline", "\r\n", "", '"', "1,2\n3,4\n", "é" * 9, "x" * 40]
    while True:
        yield "".join(chance.choice(words) for _ in range(chance.randrange(4)))


def test_python_duckdb_and_extents_agree_on_a_large_object(tmp_path: Path) -> None:
    chance = random.Random(5)
    texts = _texts(chance)
    table = [[str(number), next(texts), next(texts)] for number in range(20_000)]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([["id", "a", "b"], *table])
    body = out.getvalue().encode()
    path = tmp_path / "large.csv"
    path.write_bytes(body)
    fmt = open_csv(FormatOptions(window_bytes=10_000), CsvOptions(null=None))
    cuts = sorted(chance.sample(range(1, len(body)), 40))

    result = decoded(fmt, MemorySource(body), (0, *cuts, len(body)))

    found = [tuple(row.values()) for row in result.rows]
    assert found == [tuple(row) for row in table]
    relation = duckdb.read_csv(str(path), all_varchar=True, header=True, na_values="NULL")
    assert found == relation.fetchall()


# Reads


def test_an_extent_without_quotes_reads_little_before_and_behind_itself() -> None:
    body = b"a,b\n" + b"1,abcdefghijklmnopqrstuvwxyz\n" * 200_000
    source = MemorySource(body)

    decoded(open_csv(FormatOptions()), source, (2 << 20, 4 << 20))

    fetched = sum(end - start for start, end in source.reads)
    assert fetched <= (2 << 20) * 1.02 + 4096


def test_an_extent_with_quotes_in_every_record_reads_little_before_itself() -> None:
    body = b"a,b\n" + b'1,"abcdefghijk\nlmnopqrstuvwxyz"\n' * 200_000
    source = MemorySource(body)

    result = decoded(open_csv(FormatOptions()), source, (2 << 20, 4 << 20))

    fetched = sum(end - start for start, end in source.reads)
    assert fetched <= (2 << 20) * 1.02 + 4096
    assert len(result.rows) == pytest.approx((2 << 20) / 32, abs=1)


def test_rare_quotes_are_looked_for_before_the_extent() -> None:
    record = b"1,abcdefghijklmnopqrstuvwxyz\n"
    part = record * 7_000 + b'2,"a\nb"\n'
    body = b"a,b\n" + part * 30
    source = MemorySource(body)

    result = decoded(open_csv(FormatOptions()), source, (3 << 20, 5 << 20))

    fetched = sum(end - start for start, end in source.reads)
    assert fetched <= (2 << 20) + (1 << 20) + (64 << 10)
    assert {row["b"] for row in result.rows} == {"abcdefghijklmnopqrstuvwxyz", "a\nb"}


def test_an_extent_within_one_line_ends_without_keeping_it() -> None:
    body = b"a,b\n1," + b"x" * 50_000 + b"\n2,y\n"
    syntax = RecordSyntax(",", '"', None, 64)

    for cuts in ([20_000, 30_000], [49_000]):
        assert cut_records(body, cuts, syntax, 512, most=1_000)[-1][1] == b"2,y\n"


def test_an_unclear_start_behind_a_line_that_is_too_long_fails() -> None:
    body = b"a,b\n" + b"x" * 5_000 + b"\n" + b'",","\n"\n' * 100

    with pytest.raises(CorruptObject, match="starts within quotes"):
        cut_records(body, [3_000], RecordSyntax(",", '"', None, 64), 64, most=500)


def test_a_record_behind_escapes_that_may_be_escaped_is_found() -> None:
    body = b"\\\\\nb,\n"

    found = cut_records(body, [3], RecordSyntax(",", '"', "\\", 0), 2)

    assert found == [(0, body[:3]), (3, body[3:])]
