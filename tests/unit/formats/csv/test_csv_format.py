"""CSV: headers, fields, nulls, types, bad records, and what must be loud."""

import csv
import datetime as dt
import io
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise, product
from typing import Any, Literal

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.laws.laws import Decoded, decoded, extent_of
from tests.support.golden import Golden

from extentflow.config.column_lists import arrow_type
from extentflow.errors import CorruptObject, Misconfigured, UnsupportedFormat
from extentflow.formats import FormatOptions
from extentflow.formats.csv.csv_fields import Escape, Grammar, MalformedRecord, UnclosedQuote
from extentflow.formats.csv.csv_format import CsvOptions, open_csv
from extentflow.testing.stores import MemorySource

BOM = b"\xef\xbb\xbf"
WAY_OUT = "if the object has another character set, set character.set"
LINE = st.text(st.sampled_from('ab," \\\ré\x00\ufeff'), min_size=1, max_size=12)


def read(body: bytes, *cuts: int, **options: Any) -> Decoded:  # noqa: ANN401 - options vary
    own = {name[4:]: options.pop(name) for name in list(options) if name.startswith("csv_")}
    schema = tuple(own.pop("schema", {}).items())
    fmt = open_csv(FormatOptions(**options), CsvOptions(**{"null": None, "schema": schema, **own}))
    return decoded(fmt, MemorySource(body), (0, *cuts, len(body)))


def rows(body: bytes, **options: Any) -> list[list[Any]]:  # noqa: ANN401
    result = read(body, **options)
    assert result.bad == []
    return [list(row.values()) for row in result.rows]


def reasons(body: bytes, **options: Any) -> list[tuple[int, bytes | None, str]]:  # noqa: ANN401
    return read(body, **options).bad


# Headers and names


def test_names_come_from_the_header_in_every_extent() -> None:
    body = BOM + b'"the id",name\r\n1,a\r\n2,b\r\n'

    for cut in range(1, len(body)):
        assert read(body, cut).rows == [
            {"the id": "1", "name": "a"},
            {"the id": "2", "name": "b"},
        ]


def test_the_header_is_read_once_per_version_and_however_long_it_is() -> None:
    names = [f"column_{number:04}" for number in range(2000)]
    body = (",".join(names) + "\n" + ",".join("x" * 2000) + "\n").encode()
    source = MemorySource(body)
    fmt = open_csv(FormatOptions())

    for _ in range(3):
        result = decoded(fmt, source, (len(body) - 100, len(body)))
        assert result.rows == []
    result = decoded(fmt, source, (20_000, len(body)))

    assert list(result.rows[0]) == names
    assert [read for read in source.reads if read[0] == 0] == [(0, 264)]


def test_a_resumed_extent_does_not_take_the_header_for_a_record() -> None:
    source = MemorySource(b"a\n1\n2\n")
    fmt = open_csv(FormatOptions(batch_rows=1))
    extent = extent_of(source, 0, 6)

    positions = [chunk.next_position for chunk in fmt.decode(source, extent, 0)]
    resumed = [
        row for chunk in fmt.decode(source, extent, positions[1]) for row in chunk.batch.to_pylist()
    ]

    assert positions == [2, 4, 6]
    assert resumed == [{"a": "2"}]


def test_without_header_names_count_from_zero_by_the_first_record() -> None:
    body = b"1,x,\n2,y,z\n3\n"

    for cut in range(1, len(body)):
        result = read(body, cut, csv_header=False)

        assert result.rows == [
            {"c0": "1", "c1": "x", "c2": ""},
            {"c0": "2", "c1": "y", "c2": "z"},
        ]
        assert result.bad == [(11, b"3", "expected 3 fields, got 1")]


def test_without_header_names_come_from_the_schema() -> None:
    schema = {"id": "int64", "name": "string"}

    result = read(b"1,a\n", csv_header=False, csv_schema=schema)

    assert result.rows == [{"id": 1, "name": "a"}]


def test_a_header_that_contradicts_the_schema_is_rejected() -> None:
    with pytest.raises(UnsupportedFormat, match=r"'id', 'nam'.*'id', 'name'"):
        read(b"id,nam\n1,a\n", csv_schema={"id": "int64", "name": "string"})


def test_a_header_that_names_a_column_twice_is_rejected() -> None:
    with pytest.raises(UnsupportedFormat, match="'a' more than once"):
        read(b"a,b,a\n1,2,3\n")


@pytest.mark.parametrize(
    ("header", "names"),
    [
        (b"a,b,a", ["a", "b", "a_2"]),
        (b"a,a,a_2,a", ["a", "a_3", "a_2", "a_4"]),
        (b',"",x', ["c0", "c1", "x"]),
        (b",c0", ["c0_2", "c0"]),
        (b"a,b", ["a", "b"]),
    ],
)
def test_names_are_made_distinct_where_that_is_wanted(header: bytes, names: list[str]) -> None:
    result = read(header + b"\n" + b",".join([b"1"] * len(names)), csv_header_duplicates="rename")

    assert [list(row) for row in result.rows] == [names]


def test_quotes_within_unquoted_fields_are_text_where_that_is_wanted() -> None:
    body = b'a,b\n5" pipe,x "y" z\n "q",w"\n"1\n2","3"\n"x"y,1\n4,""\n'

    for cut in range(1, len(body)):
        result = read(body, cut, csv_lenient_quotes=True, window_bytes=6)

        assert [list(row.values()) for row in result.rows] == [
            ['5" pipe', 'x "y" z'],
            [' "q"', 'w"'],
            ["1\n2", "3"],
            ["4", ""],
        ]
        assert [raw for _, raw, _ in result.bad] == [b'"x"y,1']


@given(lines=st.lists(LINE, min_size=1, max_size=6))
@settings(max_examples=150, deadline=None)
def test_lenient_quotes_are_read_as_python_does(lines: list[str]) -> None:
    # Python's reader ends a record at any CR.
    kept = [line.replace("\r", "") for line in lines]
    body = "\n".join(["c0,c1", *kept, ""]).encode()
    records = [record for line in kept for record in csv.reader([line])]

    result = read(body, csv_lenient_quotes=True, csv_multiline_bytes=None, charset="utf-8")

    for row in result.rows:
        assert list(row.values()) in records


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (b'a,"b', "field 2 has no closing one"),
        (b'a,"b"c', "behind the closing quote of field 2"),
        (b"a,\xff", f"at byte 0, cannot be read: not UTF-8: .* at byte 2; {WAY_OUT}"),
        (b"a" * 50, "longer than the 40 bytes"),
    ],
)
def test_a_header_that_cannot_be_read_fails_the_object(header: bytes, problem: str) -> None:
    with pytest.raises(CorruptObject, match=problem):
        read(header + b"\n1,2\n", max_record_bytes=40)


@pytest.mark.parametrize("body", [b"\n\n", BOM, b"\r\n"])
def test_an_object_of_empty_lines_has_no_records(body: bytes) -> None:
    assert read(body).rows == []
    assert read(body, csv_header=False).rows == []


# Fields


def test_trap_t02_places_are_the_records_first_bytes() -> None:
    body = BOM + 'ä,b\n1,"😀,"\n\n"2",é\r\n3,4'.encode()

    result = read(body)

    assert [body[location : location + 3] for location in result.locations] == [
        b'1,"',
        b'"2"',
        b"3,4",
    ]


def test_spaces_stay_and_separators_differ() -> None:
    assert rows(b"a|b\n 1 | x\n", csv_separator="|") == [[" 1 ", " x"]]
    assert rows(b"a\tb\n'1\t1'\t'it''s'\n", csv_separator="\t", csv_quote="'") == [["1\t1", "it's"]]


@pytest.mark.parametrize(
    ("key", "columns"),
    [("in/a.tsv", 2), ("in/a.TSV.gz", 2), ("in/a.csv", 1), ("in/x.tsv/a.csv", 1), ("a", 1)],
)
def test_objects_with_the_extension_tsv_are_separated_by_tabs(key: str, columns: int) -> None:
    body = b'a\tb\n1\t"x\n"\n' if columns == 2 else b"a\tb\n1\t2\n"
    source = MemorySource(body)
    source.version = replace(source.version, key=key)

    result = decoded(open_csv(FormatOptions()), source, (0, len(body)))

    assert [len(row) for row in result.rows] == [columns]


@pytest.mark.parametrize("charset", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("line", ["sep=;\r\n", "sep=;\n", '"sep=;"\r\n', "SEP=;;; \n"])
def test_a_first_line_that_states_the_separator_is_no_header(line: str, charset: str) -> None:
    body = f'{line}Name;"a;b"\nM,x;"1\n2"\nN;3\n'.encode(charset)

    for cut in range(1, len(body)):
        assert read(body, cut).rows == [
            {"Name": "M,x", "a;b": "1\n2"},
            {"Name": "N", "a;b": "3"},
        ]


def test_a_line_that_states_the_separator_is_skipped_in_every_setting() -> None:
    schema = {"a": "int64", "b": "string"}

    assert rows(b"sep=;\na|b\n1|2\n", csv_separator="|") == [["1", "2"]]
    assert rows(b"sep=;\n1;x\n", csv_header=False, csv_schema=schema) == [[1, "x"]]
    assert rows(b"sep=\t\n1\tx\n", csv_header=False) == [["1", "x"]]
    assert rows(b"sep=\\t\na\tb\n1\tx\n") == [["1", "x"]]
    assert rows(b"sep=;\r1;x\r", csv_header=False, csv_line_end="cr") == [["1", "x"]]
    assert rows(b"sep=;") == rows(b"sep=;\n\n") == []
    assert list(read(b"sep=;x\n1\n").rows[0]) == ["sep=;x"]


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (b"sep=\na;b\n", "states a separator in another way"),
        (b"\n'sep=;'\na;b\n", "states a separator in another way"),
        (b"id\x01name\n", "control character, and is no header: set csv.separator.char"),
        (b"RCF\x06\x01", "control character, and is no header: set csv.separator.char"),
    ],
)
def test_a_first_record_that_holds_no_names_is_refused(header: bytes, problem: str) -> None:
    with pytest.raises(UnsupportedFormat, match=problem):
        read(header)
    assert rows(header, csv_header=False, charset="utf-8")


@pytest.mark.parametrize("line", ["sep=\xa7", "sep=\\"])
def test_a_stated_separator_that_cannot_be_one_is_refused(line: str) -> None:
    with pytest.raises(UnsupportedFormat, match="states the separator"):
        read(f"{line}\na\n1\n".encode(), csv_escape="\\")


def test_quotes_are_text_without_a_quote_character() -> None:
    body = b'id\ttags\n1\t5" pipe\n2\t"open\n3\t"a" b\r\n4\t""\n5\t"x\ry"\n6\t\n"'

    for cut in range(1, len(body)):
        found = read(body, cut, csv_separator="\t", csv_quote=None, csv_null="", window_bytes=3)
        tags = ['5" pipe', '"open', '"a" b', '""', None]
        assert [row["tags"] for row in found.rows] == tags
        assert [reason for _, _, reason in found.bad] == [
            "a carriage return in field 2, which is not quoted",
            "expected 2 fields, got 1",
        ]


def test_without_a_quote_character_an_escape_still_acts() -> None:
    body = b'a|b\n1\\|x|"y\\\nz\n\\"|\\\\\n'

    for cut in range(1, len(body)):
        assert read(body, cut, csv_separator="|", csv_quote=None, csv_escape="\\").rows == [
            {"a": "1|x", "b": '"y\nz'},
            {"a": '"', "b": "\\"},
        ]


@pytest.mark.parametrize(
    ("separator", "quote", "escape"),
    [
        ("\x01", None, None),
        ("\x01", '"', "\0"),
        ("\0", None, None),
        ("\0", "\x01", "\x02"),
        ("\0", '"', "\x01"),
        ("\x1f", "\0", None),
    ],
)
def test_control_characters_separate_quote_and_escape(
    separator: str, quote: str | None, escape: str | None
) -> None:
    other = "\x03\x02" if separator == "\0" and escape is None else "\x04"
    wrapped = f"{quote}{separator}\n{quote}" if quote else other
    pair = f"{escape}{separator}" if escape else other
    body = f"a{separator}b\n1,{separator}{other}\n{wrapped}{separator}{pair}\n".encode()

    result = read(body, 3, csv_separator=separator, csv_quote=quote, csv_escape=escape)

    assert result.rows == [
        {"a": "1,", "b": other},
        {"a": wrapped.strip(quote) if quote else other, "b": pair[-1] if escape else other},
    ]


@pytest.mark.parametrize(
    "charset", ["utf-8-sig", pytest.param("utf-16", marks=pytest.mark.variant)]
)
def test_lines_above_the_header_and_comments_are_no_records(charset: str) -> None:
    text = (
        'Title "of;the" ;list\n\n#1\nid;note\n# by;"an author\n1;"x\n#y"\n#\n ;\n'
        '2;#z\n"#3";"\n"\n# end "'
    )
    body = text.encode(charset)

    for cut in range(1, len(body)):
        assert read(
            body, cut, csv_separator=";", csv_skip_lines=2, csv_comment="#", window_bytes=3
        ).rows == [
            {"id": "1", "note": "x\n#y"},
            {"id": " ", "note": ""},
            {"id": "2", "note": "#z"},
            {"id": "#3", "note": "\n"},
        ]


def test_lines_are_skipped_without_a_header_too() -> None:
    schema = {"a": "int64", "b": "string"}
    body = b"#Version: 1.0\n#Fields: a b\n1\tx\n"
    tabs = {"csv_separator": "\t", "csv_header": False}

    for own in ({"csv_skip_lines": 2}, {"csv_comment": "#"}, {"csv_comment": "#Fields:"}):
        skipped = {**own, "csv_skip_lines": own.get("csv_skip_lines", 1)}
        assert rows(body, **tabs, csv_schema=schema, **skipped) == [[1, "x"]]
        assert rows(body, **tabs, **skipped) == [["1", "x"]]
    assert rows(body, **tabs, csv_schema=schema, csv_comment="#") == [[1, "x"]]


def test_skipped_lines_include_the_one_that_states_the_separator() -> None:
    assert read(b"sep=;\na;b\n1;2\n", csv_skip_lines=1).rows == [{"a": "1", "b": "2"}]


@pytest.mark.parametrize(("lines", "header"), [(3, True), (2, True), (3, False)])
def test_an_object_all_of_whose_lines_are_skipped_is_refused(
    golden: Golden, *, lines: int, header: bool
) -> None:
    """Trap: it was DONE with 0 records."""
    with golden.raises(UnsupportedFormat, match=rf"csv\.header\.skip\.lines={lines}"):
        read(b"a\n1\n", csv_skip_lines=lines, csv_header=header)


def test_lines_above_no_record_are_skipped() -> None:
    assert rows(b"", csv_skip_lines=3) == []
    assert rows(b"title\nid\n", csv_skip_lines=1) == []
    assert rows(b"title\n", csv_skip_lines=1, csv_header=False) == []


def test_a_quote_in_a_skipped_line_does_not_skip_the_header() -> None:
    with pytest.raises(CorruptObject, match=r"at byte 2 .* csv\.quote\.char=none"):
        read(b'x\n"Title\nid,"name"\n1,2\n', csv_skip_lines=2)
    assert read(b'"Title\nof ""two"""\nid\n1\n', csv_skip_lines=1).rows == [{"id": "1"}]
    assert read(b'"Title\nid\n1\n', csv_skip_lines=1).rows == [{"id": "1"}]


def test_a_skipped_line_that_is_too_long_is_named() -> None:
    with pytest.raises(CorruptObject, match="longer than the 4 bytes"):
        read(b"title\na\n1\n", csv_skip_lines=1, max_record_bytes=4)


def test_one_column_without_a_name_keeps_the_empty_name() -> None:
    assert read(b",b\n1,2\n").rows == [{"": "1", "b": "2"}]


def test_an_escaped_character_is_text() -> None:
    lines = (
        "a,b",
        r'x\,y,"say \"hi\" ""there"""',
        r'plain,"c:\\dir"',
        r"\"q,\n",
        "last,row",
    )
    body = "\n".join(lines).encode()

    assert rows(body, csv_escape="\\") == [
        ["x,y", 'say "hi" "there"'],
        ["plain", "c:\\dir"],
        ['"q', "n"],
        ["last", "row"],
    ]


def test_escapes_of_databases_have_their_meaning() -> None:
    body = (
        b"id\tnote\n1\tline1\\nline2\n2\t\\N\n3\t\n4\tback\\\\nslash\\\\\n5\ta\\\tb\\\nc\\td\n"
        b'6\t\\Nx\\0\\Z\\.\\b\\f\\v\\r\n7\t"quoted\\""\n8\tNULL\n9\t\\'
    )
    found = ["line1\nline2", None, "", "back\\nslash\\", "a\tb\nc\td", "Nx\0\x1a.\b\f\v\r"]
    own = {"csv_separator": "\t", "csv_escape": "\\", "csv_escape_mode": "c", "csv_null": "NULL"}

    for cut in range(1, len(body), 3):
        texts = read(body, cut, csv_quote=None, **own)
        quotes = read(body, cut, csv_lenient_quotes=True, **own)

        assert [row["note"] for row in texts.rows] == [*found, '"quoted""', None]
        assert [row["note"] for row in quotes.rows][:6] == found
        assert [reason for _, _, reason in texts.bad] == ["the object's end is escaped"]
    assert rows(b'a,b\n"\\N","x\\ty\\""\n', csv_escape="\\", csv_escape_mode="c") == [
        ["N", 'x\ty"']
    ]
    assert rows(b"a,b\n,\\N\n", csv_escape="\\", csv_escape_mode="c", csv_null="") == [["", None]]


@pytest.mark.parametrize("end", ["\\.\n", "\\.", "\\.\r\n\n"])
def test_the_line_that_ends_the_data_of_copy_is_no_record(end: str) -> None:
    body = f"a\n\\.x\n1\n{end}".encode()

    for cut in range(1, len(body)):
        found = read(body, cut, csv_escape="\\", csv_escape_mode="c", csv_quote=None)
        assert [row["a"] for row in found.rows] == [".x", "1"]
        assert found.bad == []
    assert len(rows(body, csv_escape="\\", csv_quote=None)) == len([".x", "1", "."])


@given(
    lines=st.lists(
        st.text(st.sampled_from('a\\nN,"é'), min_size=1, max_size=6), min_size=1, max_size=8
    ),
    mode=st.sampled_from(["plain", "c"]),
    quote=st.sampled_from(['"', None]),
)
@settings(max_examples=150, deadline=None)
def test_escapes_are_read_alike_in_columns_and_one_by_one(
    lines: list[str], mode: str, quote: str | None
) -> None:
    own = CsvOptions(header=False, escape="\\", escape_mode=mode, quote=quote, multiline_bytes=None)
    fmt = open_csv(FormatOptions(), replace(own, schema=(("a", "string"), ("b", "string"))))
    body = "\n".join([*lines, "last,row"]).encode()
    source = MemorySource(body)

    found = decoded(fmt, source, (0, len(body)))

    starts = sorted([*found.locations, *(place for place, _, _ in found.bad)])
    extent = extent_of(source, 0, len(body))
    alone = [
        fmt.decode_record(source, extent, body[start:end].removesuffix(b"\n"), start)
        for start, end in pairwise([*starts, len(body)])
    ]
    assert found.rows == [row for one in alone for row in one.batch.to_pylist()]
    assert [why for _, _, why in found.bad] == [bad.reason for one in alone for bad in one.bad]


def test_no_field_is_null_unless_a_null_is_named() -> None:
    assert rows(b'a,b\n,""\nNA,NULL\n') == [["", ""], ["NA", "NULL"]]


def test_only_the_unquoted_field_is_null() -> None:
    assert rows(b'a,b\n,""\n"",\n', csv_null="") == [[None, ""], ["", None]]
    assert rows(b'a,b\nNA,"NA"\n,x\n', csv_null="NA") == [[None, "NA"], ["", "x"]]
    assert rows(b'a,b\n\\N,x\n"\\N",y\n', csv_null="\\N", csv_escape="\\") == [
        [None, "x"],
        ["N", "y"],
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize("null", ["", "NULL", None])
@pytest.mark.parametrize("kind", ["string", "int64"])
@pytest.mark.parametrize(
    "last", ['"x",', ",", '"x","",', '"x",""', '"x,y",', '"x\ny",', '"",', '"x""y",NULL', "x,NULL"]
)
def test_the_last_record_needs_no_line_end(
    last: str, kind: Literal["string", "int64"], null: str | None, end: str
) -> None:
    body = end.join(["a,b", "1,2", '"q",3', last]).encode()
    options = {
        "csv_schema": {"a": "string", "b": kind},
        "csv_null": null,
        "csv_line_end": "cr" if end == "\r" else "lf",
    }

    ended, found = read(body + end.encode(), **options), read(body, **options)

    assert found.rows == ended.rows
    assert found.bad == ended.bad
    if null == "" and last == '"x",':
        assert found.rows[-1] == {"a": "x", "b": None}


def test_values_are_strings_without_a_schema() -> None:
    assert rows(b"a,b,c,d\n007,1.50,true,2020-01-01\n") == [["007", "1.50", "true", "2020-01-01"]]


def test_a_byte_order_mark_inside_the_object_is_text() -> None:
    body = b"a,b\n" + BOM + b"1,x\n" + BOM + b"2,y\n"

    for cut in range(1, len(body)):
        assert [row["a"] for row in read(body, cut).rows] == ["\ufeff1", "\ufeff2"]


# Bad records


def test_another_number_of_fields_makes_a_bad_record() -> None:
    body = b'a,b\n1,2\n1\n\n"x,y",2,3\n3,4\n'

    result = read(body)

    assert [list(row.values()) for row in result.rows] == [["1", "2"], ["3", "4"]]
    assert result.locations == [4, 21]
    assert result.bad == [
        (8, b"1", "expected 2 fields, got 1"),
        (11, b'"x,y",2,3', "expected 2 fields, got 3"),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'x"y",1', "a quote in field 1, which is not quoted"),
        (b'"x"y" ",1', "text behind the closing quote of field 1"),
        (b'1,"x"y', "text behind the closing quote of field 2"),
        (b'1, "x"', "a quote in field 2, which is not quoted"),
        (b"1,x\ry", "a carriage return in field 2, which is not quoted"),
        (b"1,x\r", "a carriage return in field 2, which is not quoted"),
        (b"1,\xff", f"not UTF-8: invalid start byte (0xff) at byte 10; {WAY_OUT}"),
        (b'1,"\r",3', "expected 2 fields, got 3"),
    ],
)
def test_misplaced_characters_make_a_bad_record(line: bytes, reason: str) -> None:
    body = b"a,b\n1,2\n" + line + b"\r\n3,4\n"

    result = read(body)

    assert [row["a"] for row in result.rows] == ["1", "3"]
    assert result.bad == [(8, line, reason)]


def test_bad_records_of_all_kinds_are_reported_in_order() -> None:
    body = b'n\n1\nx\n1,2\n"1"1\n\xff\n"\r"\n2\n'

    result = read(body, csv_schema={"n": "int64"})

    assert [row["n"] for row in result.rows] == [1, 2]
    assert [location for location, _, _ in result.bad] == [4, 6, 10, 15, 17]


# Records with line breaks


def test_trap_t06_a_cut_within_quotes_gives_no_other_rows() -> None:
    """Trap: a cut inside a quoted field gave wrong rows, and no error."""
    body = b'a,b\n1,x\n2,"one\ntwo,2\nthree"\n3,y\n'

    for cut in range(1, len(body)):
        result = read(body, cut, window_bytes=3)

        assert [list(row.values()) for row in result.rows] == [
            ["1", "x"],
            ["2", "one\ntwo,2\nthree"],
            ["3", "y"],
        ]
        assert (result.locations, result.bad) == ([4, 8, 28], [])


def test_trap_t06_no_extent_publishes_lines_of_a_quoted_text() -> None:
    """As extents within quoted text did, 67,408 lines of a file of 2.3 MB."""
    text = "".join(f"{number},line of a text\n" for number in range(1_500))
    fields = [["id", "text"], *([str(number), text] for number in range(70))]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(fields)
    body = out.getvalue().encode()

    result = read(body, *range(40_000, len(body), 40_000))

    assert [list(row.values()) for row in result.rows] == fields[1:]
    assert result.bad == []


def test_line_breaks_within_quotes_are_kept_as_they_are() -> None:
    assert rows(b'a,b\r\n"1\r\n2\n\n3\r4",x\r\n\r\ny,"\n"\r\n') == [
        ["1\r\n2\n\n3\r4", "x"],
        ["y", "\n"],
    ]


@pytest.mark.parametrize("charset", ["utf-16-be", "utf-32-le", "cp037", "cp1252", "shift_jis"])
def test_line_breaks_within_quotes_are_found_in_every_character_set(charset: str) -> None:
    text = 'a,b\n1,"x\n2,y\n"\r\n"q""\n","z,\n"\n3,5" \n4,"\n"\n5,w\n'
    body = text.encode(charset)

    for cut in range(1, len(body)):
        result = read(body, cut, charset=charset, window_bytes=5)

        assert [list(row.values()) for row in result.rows] == [
            ["1", "x\n2,y\n"],
            ['q"\n', "z,\n"],
            ["4", "\n"],
            ["5", "w"],
        ]
        assert [raw for _, raw, _ in result.bad] == ['3,5" '.encode(charset)]


def test_a_separator_that_can_be_within_a_character_is_refused(golden: Golden) -> None:
    with golden.raises(Misconfigured, match=r"csv\.separator\.char='\|'"):
        read(b"a|b\n1|2\n", csv_separator="|", charset="shift_jis")


@pytest.mark.parametrize("charset", ["utf-16", "utf-16-be", "utf-32", "utf-32-be"])
@pytest.mark.parametrize("lines", ["id,v\n", "id,v\n1,a\n2,b\n", 'id,v\n1,"a\nb"\n', "id,v\n1,a"])
def test_bytes_that_end_within_a_code_unit_are_never_dropped(charset: str, lines: str) -> None:
    """Trap: where a line ended before them, they were no part of any record."""
    body = lines.encode(charset)
    unit = 2 if "16" in charset else 4
    named = charset if charset.endswith("be") else None
    good = read(body, charset=named).rows

    for stray in range(1, unit):
        for cuts in ([], [len(body) - 1], [len(body) // 2], [len(body)]):
            found = read(body + b"x" * stray, *cuts, charset=named)
            bad = [raw for _, raw, _ in found.bad]

            assert [raw[-stray:] for raw in bad if raw] == [b"x" * stray]
            assert found.rows == good[: len(good) if lines.endswith("\n") else -1]


def test_a_header_may_hold_line_breaks() -> None:
    body = BOM + b'"the\nid","na\r\nme"\n1,x\n'

    for cut in range(1, len(body)):
        assert read(body, cut).rows == [{"the\nid": "1", "na\r\nme": "x"}]


@pytest.mark.parametrize(
    ("lines", "raw", "reason"),
    [
        (b'1,5" pipe\n', b'1,5" pipe', "a quote in field 2, which is not quoted"),
        (b'1,"x\n2"y\n', b'1,"x\n2"y', "text behind the closing quote of field 2"),
        (
            b'1,"x\n\xff\n"\n',
            b'1,"x\n\xff\n"',
            f"not UTF-8: invalid start byte (0xff) at byte 13; {WAY_OUT}",
        ),
        (b'"x\n2",3,4\n', b'"x\n2",3,4', "expected 2 fields, got 3"),
    ],
)
def test_a_malformed_record_is_bad_and_its_neighbours_are_not(
    lines: bytes, raw: bytes, reason: str
) -> None:
    body = b"a,b\n0,0\n" + lines + b'3,"3\n3"\n4,4\n'

    for cut in range(1, len(body)):
        result = read(body, cut, window_bytes=5)

        assert [row["a"] for row in result.rows] == ["0", "3", "4"]
        assert result.bad == [(8, raw, reason)]


@pytest.mark.parametrize("rest", [b"", b"2,y\n", b"2,y\n3,z", b'2,y\n3,""\n'])
def test_an_unclosed_quote_ends_with_its_line(rest: bytes) -> None:
    body = b'a,b\n0,0\n1,"x\n' + rest

    for cut in range(1, len(body)):
        result = read(body, cut, window_bytes=5)

        assert len(result.rows) == 1 + len(rest.splitlines())
        ((location, raw, reason),) = result.bad
        assert (location, raw) == (8, b'1,"x')
        assert reason == (
            "the quote that opens field 2 has no closing one (csv.multiline.max.bytes=1048576), so"
            " that the record ends with its line; where quotes are text, set csv.quote.char=none"
        )


def test_a_line_that_begins_like_a_byte_order_mark_may_have_an_unclosed_quote() -> None:
    """Its first character is U+F000 to U+FFFF, such as the full-width forms of Chinese text."""
    body = 'a,b\n\uff01,"x\n2,y\n'.encode()

    for cut in range(1, len(body)):
        result = read(body, cut, csv_multiline_bytes=None)

        assert [row["a"] for row in result.rows] == ["2"]
        assert [raw for _, raw, _ in result.bad] == ['\uff01,"x'.encode()]


def test_a_quoted_field_that_is_too_long_for_line_breaks_ends_with_its_line() -> None:
    long = b"x" * 30
    body = b'a,b\n1,"' + long + b'\nz"\n2,"' + long + b'"\n3,"\n"\n4,"' + long + b"\n5,6\n"

    for cut in range(1, len(body)):
        result = read(body, cut, csv_multiline_bytes=20, window_bytes=7)

        assert [row["a"] for row in result.rows] == ["2", "3", "5"]
        assert [raw for _, raw, _ in result.bad] == [b'1,"' + long, b'z"', b'4,"' + long]


def test_fields_without_line_breaks_are_found_as_lines_are() -> None:
    body = b'a,b\n0,0\n1,"x\n2,y\n"3","3"\n'

    result = read(body, csv_multiline_bytes=None)

    assert [row["a"] for row in result.rows] == ["0", "2", "3"]
    ((_, raw, reason),) = result.bad
    assert raw == b'1,"x'
    assert "csv.multiline.max.bytes=none" in reason


def test_an_escaped_line_break_is_part_of_its_field() -> None:
    body = b'a,b\n1,x\\\ny\n2,"\\\n\\"\n"\n3,\\\\\n'

    for cut in range(1, len(body)):
        result = read(body, cut, csv_escape="\\", window_bytes=4)

        assert [list(row.values()) for row in result.rows] == [
            ["1", "x\ny"],
            ["2", '\n"\n'],
            ["3", "\\"],
        ]


@pytest.mark.parametrize("window", [2, 1 << 20])
def test_a_record_that_is_too_long_is_bad_and_its_end_is_found(window: int) -> None:
    long = b'"' + b"x\n" * 30 + b'"'
    body = b"a,b\n1,2\n" + long + b"," + long + b"\n3,4\n5," + b"y" * 100 + b"\n6,7\n"

    for cut in range(1, len(body), 3):
        result = read(body, cut, window_bytes=window, max_record_bytes=70)

        assert [row["a"] for row in result.rows] == ["1", "3", "6"]
        assert [(location, raw) for location, raw, _ in result.bad] == [(8, None), (138, None)]
        assert "longer than the 70 bytes" in result.bad[0][2]


def test_bytes_that_do_not_show_what_is_quoted_fail_the_extent(golden: Golden) -> None:
    body = b"a,b\n" + b'",","\n"\n' * 500

    with golden.raises(CorruptObject, match="csv.multiline") as caught:
        read(body, 2_000, max_record_bytes=100, csv_multiline_bytes=100, window_bytes=64)

    assert "memory/object[2000-" in str(caught.value)
    assert len(read(body, 2_000).rows) == 500


# Types

TYPES = {
    "i": "int64",
    "f": "float64",
    "d": "decimal(5,2)",
    "day": "date",
    "at": "timestamp(us)",
    "utc": "timestamp(ms,UTC)",
    "b": "bool",
    "s": "string",
}


def test_fields_are_read_as_the_schema_says() -> None:
    body = b"-7,1e3,1.5,2020-02-29,2020-01-02 03:04:05.000006,2020-01-02T03:04:05+02:00,true,x\n"

    (row,) = read(body, csv_header=False, csv_schema=TYPES).rows

    assert row == {
        "i": -7,
        "f": 1000.0,
        "d": Decimal("1.50"),
        "day": dt.date(2020, 2, 29),
        "at": dt.datetime(2020, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001 - the type has no zone
        "utc": dt.datetime(2020, 1, 2, 1, 4, 5, tzinfo=dt.UTC),
        "b": True,
        "s": "x",
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("i", "1.0"),
        ("i", " 1"),
        ("i", "0x1F"),
        ("i", "9223372036854775808"),
        ("i", ""),
        ("f", "1,5"),
        ("f", "1e999"),
        ("f", "0x1p3"),
        ("d", "1.234"),
        ("d", "12345.67"),
        ("d", "NaN"),
        ("day", "2020-02-30"),
        ("day", "2020-2-3"),
        ("day", "2020-01-01T00:00:00"),
        ("at", "2020-01-01T00:00:00Z"),
        ("at", "2020-01-01 00:00:00.0000001"),
        ("utc", "2020-01-01 00:00:00"),
        ("b", "yes"),
    ],
)
def test_a_text_that_is_not_exactly_of_its_type_makes_a_bad_record(name: str, text: str) -> None:
    good = {"i": "1", "f": "1", "d": "1", "day": "2020-01-01", "at": "2020-01-01", "b": "0"}
    fine = good.get(name, "2020-01-01T00:00:00Z")
    lines = [f'"{value}",x' for value in (fine, text, fine, text)]
    body = ("v,s\n" + "\n".join(lines)).encode()

    result = read(body, csv_schema={"v": TYPES[name], "s": "string"})

    assert len(result.rows) == 2
    assert [location for location, _, _ in result.bad] == [
        body.index(lines[1].encode()),
        body.rindex(lines[3].encode()),
    ]
    assert result.bad[0][2] == f"column 'v': {text!r} is not a valid {arrow_type(TYPES[name])}"


def test_nulls_stay_null_in_typed_columns() -> None:
    body = b'i,s\n,x\n1,\n"",y\n'

    result = read(body, csv_null="", csv_schema={"i": "int64", "s": "string"})

    assert result.rows == [{"i": None, "s": "x"}, {"i": 1, "s": None}]
    assert [raw for _, raw, _ in result.bad] == [b'"",y']


def test_infinity_is_a_number_where_it_is_written_so() -> None:
    assert rows(b"f\ninf\n-Infinity\n", csv_schema={"f": "float64"}) == [
        [float("inf")],
        [float("-inf")],
    ]


def test_many_bad_values_are_all_found() -> None:
    body = b"n\n" + b"".join(b"%d\nx%d\n" % (number, number) for number in range(500))

    result = read(body, csv_schema={"n": "int64"})

    assert [row["n"] for row in result.rows] == list(range(500))
    assert [raw for _, raw, _ in result.bad] == [f"x{number}".encode() for number in range(500)]


# Equivalence

DIALECTS = st.sampled_from([(",", '"'), ("\t", "'"), (";", '"'), ("|", "%"), (" ", '"')])
FIELDS = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=8)
TRICKY = st.text(st.sampled_from("a,\"'; é\ufeff\r\x00\t|%"), max_size=6)


@given(
    dialect=DIALECTS,
    table=st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.lists(FIELDS | TRICKY, min_size=width, max_size=width), min_size=1, max_size=12
        )
    ),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    batch_rows=st.integers(1, 14),
)
@settings(deadline=None)
def test_what_python_writes_is_read_back(
    dialect: tuple[str, str],
    table: list[list[str]],
    quoting: Literal[0, 1],
    batch_rows: int,
) -> None:
    separator, quote = dialect
    out = io.StringIO()
    writer = csv.writer(
        out, delimiter=separator, quotechar=quote, quoting=quoting, lineterminator="\r\n"
    )
    writer.writerows(table)
    body = b"\r\n" + out.getvalue().encode()

    found = rows(
        body,
        csv_header=False,
        csv_separator=separator,
        csv_quote=quote,
        charset="utf-8",
        batch_rows=batch_rows,
        window_bytes=64,
    )

    assert found == table


def python_reads(line: str, *, escape: str | None = None) -> list[str] | None:
    """Return what Python's strict reader makes of one line, None where it refuses it."""
    reader = csv.reader([line], strict=True, escapechar=escape)
    try:
        found = list(reader)
    except csv.Error:
        return None
    return found[0] if len(found) == 1 else None


def judged(
    lines: list[str], *, escape: str | None, width: int
) -> tuple[list[list[str | None]], list[bytes]]:
    """Return what the grammar makes of lines: rows and bad records."""
    grammar = Grammar(",", '"', Escape(escape) if escape else None, ())
    good: list[list[str | None]] = []
    bad: list[bytes] = []
    for line in lines:
        try:
            fields = grammar.split(line)
        except MalformedRecord:
            fields = []
        if len(fields) == width:
            good.append(fields)
        else:
            bad.append(line.encode())
    return good, bad


def body_of(lines: list[str]) -> bytes:
    """Return lines below a header; with CR LF, so that a line may end with a CR of its own."""
    return "\r\n".join(["c0,c1", *lines, ""]).encode()


SHORT_LINES = [
    "".join(letters) for size in range(1, 7) for letters in product('a,"\r', repeat=size)
]


@given(lines=st.lists(LINE, min_size=1, max_size=12), escape=st.sampled_from([None, "\\"]))
@example(lines=['"a""b",c', "x\ry", '""', ' ""'], escape=None)
@settings(max_examples=200, deadline=None)
def test_the_fast_path_and_the_grammar_agree_on_any_lines(
    lines: list[str], escape: str | None
) -> None:
    good, bad = judged(lines, escape=escape, width=2)

    result = read(body_of(lines), csv_escape=escape, csv_multiline_bytes=None, charset="utf-8")

    assert [list(row.values()) for row in result.rows] == good
    assert [raw for _, raw, _ in result.bad] == bad


def test_the_grammar_and_python_agree_on_every_short_line() -> None:
    grammar = Grammar(",", '"', None, ())
    taken = 0

    for line in SHORT_LINES:
        try:
            fields = grammar.split(line)
        except UnclosedQuote:
            assert '"' in line
        except MalformedRecord:
            assert '"' in line or "\r" in line
        else:
            assert fields == python_reads(line)
            taken += 1

    assert taken > 500


def test_the_fast_path_and_the_grammar_agree_on_every_short_line() -> None:
    good, bad = judged(SHORT_LINES, escape=None, width=2)

    result = read(body_of(SHORT_LINES), csv_multiline_bytes=None)

    assert [list(row.values()) for row in result.rows] == good
    assert [raw for _, raw, _ in result.bad] == bad


@given(LINE)
@settings(max_examples=300, deadline=None)
def test_the_grammar_and_python_agree_about_escapes(line: str) -> None:
    assume("\\\r" not in line)  # where Python's reader sometimes misses the line's end
    grammar = Grammar(",", '"', Escape("\\"), ())

    try:
        fields = grammar.split(line)
    except MalformedRecord:
        return

    assert fields == python_reads(line, escape="\\")


# Ends of lines and of records


def test_lines_that_end_in_cr_alone_are_read_when_the_setting_says_so() -> None:
    body = b'a,b\r1,"x\ry"\r2,\n\r3,z'

    for cut in range(1, len(body)):
        result = read(body, cut, csv_line_end="cr")

        assert result.rows == [{"a": "1", "b": "x\ry"}, {"a": "3", "b": "z"}]
        assert result.bad == [(12, b"2,\n", "a line feed in field 2, which is not quoted")]


def test_a_header_with_cr_names_the_setting(golden: Golden) -> None:
    with golden.raises(CorruptObject, match=r"field 2.*csv\.line\.end=cr"):
        read(b"a,b\r1,2\r")


@pytest.mark.parametrize("charset", ["utf-16", "cp037", "latin-1"])
def test_cr_ends_lines_in_every_character_set(charset: str) -> None:
    body = 'a,b\r1,"é\r"\r2,\r'.encode(charset)
    fmt = open_csv(FormatOptions(charset=charset), CsvOptions(line_end="cr", null=None))

    for cut in range(1, len(body)):
        result = decoded(fmt, MemorySource(body), (0, cut, len(body)))

        assert result.rows == [{"a": "1", "b": "é\r"}, {"a": "2", "b": ""}]


def test_a_trailing_separator_is_one_more_field_unless_the_setting_says_otherwise() -> None:
    body = b"a,b\n1,2,\n3,4\n"

    assert [why for _, _, why in read(body).bad] == ["expected 2 fields, got 3"]
    assert read(body, csv_trailing_separator=True).rows == [
        {"a": "1", "b": "2"},
        {"a": "3", "b": "4"},
    ]
