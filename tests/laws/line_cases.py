"""Text, JSON lines and CSV, plain and compressed, against Python's own readers."""

import csv
import gzip
import io
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal

import zstandard
from tests.laws.laws import FormatCase, Sample

from extentflow.config.column_lists import JSON_SCHEMA
from extentflow.formats import Format, FormatOptions
from extentflow.formats.csv.csv_format import CsvOptions, open_csv
from extentflow.formats.json.jsonl_format import JsonlOptions, open_jsonl
from extentflow.formats.text.text_format import open_text

BOM = b"\xef\xbb\xbf"

BODIES = {
    "one-line": b"abc\n",
    "no-newline-at-the-end": b"ab\ncd",
    "one-byte": b"x",
    "one-newline": b"\n",
    "newlines-only": b"\n\n\n",
    "empty-lines": b"\na\n\n\nb\n\n",
    "crlf": b"a\r\nbc\r\n\r\nd\r\n",
    "mixed-ends": b"a\nb\r\nc\r",
    "returns-inside": b"a\rb\r\r\n\rc\n",
    "bom": BOM + b"ab\ncd\n",
    "bom-no-newline": BOM + b"ab",
    "bom-crlf": BOM + b"\r\nx\r\n",
    "bom-only": BOM,
    "bom-inside": b"a\n" + BOM + b"b\n",
    "utf8": "é€😀\nß\n😀😀\n\u2028x\x85y\n".encode(),
    "not-utf8": b"ok\n\xff\xfe\nok\n\xc3\n\xed\xa0\x80\n",
    "long-line": b"a\n" + b"b" * 70 + b"\nc\n",
}


def lines_of(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield every line with its byte offset, by the definition."""
    location = 0
    for piece in body.split(b"\n"):
        end = location + len(piece)
        ended = end < len(body)
        line = piece.removesuffix(b"\r") if ended else piece
        mark = len(BOM) if location == 0 and line.startswith(BOM) else 0
        if ended or len(line) > mark:
            yield location + mark, line[mark:]
        location = end + 1


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def text_sample(name: str, body: bytes) -> Sample:
    """Return what `text` with validation should find."""
    lines = list(lines_of(body))
    good = [(location, line.decode()) for location, line in lines if _is_utf8(line)]
    return Sample(
        name,
        body,
        rows=[{"value": line} for _, line in good],
        locations=[location for location, _ in good],
        bad=[location for location, line in lines if not _is_utf8(line)],
    )


def raw_sample(name: str, body: bytes) -> Sample:
    """Return what `text` without validation should find."""
    lines = list(lines_of(body))
    return Sample(
        name, body, rows=[{"value": line} for _, line in lines], locations=[at for at, _ in lines]
    )


def _is_json(line: bytes) -> bool:
    def require_signature(word: str) -> None:
        raise ValueError(word)

    try:
        json.loads(line.decode(), parse_constant=require_signature)
    except ValueError:
        return False
    return True


def jsonl_sample(name: str, body: bytes) -> Sample:
    """Return what `jsonl` with validation should find."""
    lines = [(location, line) for location, line in lines_of(body) if line.strip(b" \t\r")]
    good = [(location, line) for location, line in lines if _is_json(line)]
    return Sample(
        name,
        body,
        rows=[{"value": line} for _, line in good],
        locations=[location for location, _ in good],
        bad=[location for location, line in lines if not _is_json(line)],
    )


def csv_sample(name: str, body: bytes) -> Sample:
    """Return what Python's csv module reads, in its strict mode; bodies have no bad records."""
    at = len(BOM) if body.startswith(BOM) else 0

    def lines() -> Iterator[str]:
        nonlocal at
        for line in io.StringIO(body.decode("utf-8-sig"), newline="\n"):
            at += len(line.encode())
            yield line

    reader = csv.reader(lines(), strict=True)
    found: list[tuple[int, list[str]]] = []
    while True:
        location, record = at, next(reader, None)
        if record is None:
            break
        if record:
            found.append((location, record))
    (_, header), *records = found
    rows = [dict(zip(header, record, strict=True)) for _, record in records]
    return Sample(name, body, rows, [location for location, _ in records])


JSON_BODIES = {
    "values": b'{"a":1}\n[1, 2]\n"x"\n1.50\ntrue\nnull\n',
    "blank-lines": b'\n  \n{"a":1}\n\t\r\n  {"a" : 2}  \n \n',
    "no-newline-at-the-end": b'{"a":1}\n{"b":2}',
    "bad-lines": b'{"a":1}\n{"a":}\nNaN\n{"a":1} 2\n"\xff"\n{"a":2}\n{',
    "bom": BOM + b'{"a":1}\r\n{"b":"\xc3\xa9"}\r\n',
}

CSV_BODIES = {
    "plain": b"id,name\n1,a\n2,b\n",
    "no-newline-at-the-end": b"id,name\n1,a\n2,b",
    "header-only": b"id,name\n",
    "header-without-newline": b"id,name",
    "bom-crlf": BOM + b'id,name\r\n1,"a,b"\r\n2,""\r\n',
    "quotes": b'id,"na,me"\n"1","say ""hi"""\n2,""""\n3,"a,,b"\n',
    "empty-lines": b"\n\nid,name\n\n1,a\n\r\n\n2,b\n\n",
    "return-inside-quotes": b'id,name\n1,"a\rb"\n2,c\n3,"\r"\n',
    "utf8": "id,näme\n1,😀\n2,\u2028\n\ufeff3,\ufeff\n".encode(),
    "one-column": b'v\na\n""\n" "\n \n',
    "empty-fields": b"a,b,c\n,,\n,x,\n",
    "line-breaks": b'a,b\n1,"x\n2,y\n"\n"\n\n""3\r\n",z\r\n4,w',
    "only-quotes": b'a,b\n"",""\n"\n",","\n"""","""\n"\n',
    "header-of-two-lines": BOM + b'"a\nb",c\n1,"\n"\n',
}


def _large_text(seed: int) -> bytes:
    chance = random.Random(seed)
    words = ["a", "", "line", "é" * 40, "😀", "x" * 500, "tab\there"]
    return "".join(
        f"{number} {chance.choice(words)}{chance.choice(['', chr(13)])}\n" for number in range(3000)
    ).encode()


def _large_csv(seed: int) -> bytes:
    chance = random.Random(seed)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(["id", "text", "other"])
    words = [
        "a",
        "",
        'say "hi"',
        "a,b",
        "1,2,3\n4,5,6\n",
        "é" * 30,
        "\ufeff",
        "x" * 300,
        '"',
        '""',
        ",",
        "a\rb",
    ]
    writer.writerows([number, chance.choice(words), chance.choice(words)] for number in range(2000))
    return out.getvalue().encode()


def _large_jsonl(seed: int) -> bytes:
    chance = random.Random(seed)
    values = [1, 1.5, "é", None, {"a": [1, 2]}, "x" * 300]
    lines = (json.dumps({"n": number, "v": chance.choice(values)}) for number in range(2000))
    return ("\n".join(chance.choice([line, f" {line}", "", "{bad"]) for line in lines)).encode()


def _members(body: bytes) -> bytes:
    half = body.find(b"\n", len(body) // 2) + 1
    return gzip.compress(body[:half]) + gzip.compress(b"") + gzip.compress(body[half:]) + bytes(3)


def _frames(body: bytes) -> bytes:
    half = len(body) // 3
    codec = zstandard.ZstdCompressor(write_checksum=True)
    skippable = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    return codec.compress(body[:half]) + skippable + codec.compress(body[half:])


def _packed(sample: Sample, body: bytes) -> Sample:
    return Sample(sample.name, body, sample.rows, sample.locations, sample.bad)


TEXT = [text_sample(name, body) for name, body in BODIES.items()]
CSV = [csv_sample(name, body) for name, body in CSV_BODIES.items()]
FEW_TEXTS = [sample for sample in TEXT if sample.name in ("crlf", "bom", "not-utf8", "long-line")]
LARGE_TEXT = text_sample("random", _large_text(1))
LARGE_CSV = csv_sample("random", _large_csv(2))
LARGE_LF_CSV = csv_sample("random-lf", _large_csv(5).replace(b"\r\n", b"\n").replace(b"\r", b" "))


def open_without_null(options: FormatOptions) -> Format:
    return open_csv(options, CsvOptions(null=None))


INFERRED_CSV = Sample(
    "typed",
    b'id,"a:b"\r\n1,x\r\n\r\n007,y\r\n,"1\n2"\n-3,"7"\nz,\n',
    [{"id": 1, "a:b": "x"}, {"id": None, "a:b": "1\n2"}, {"id": -3, "a:b": "7"}],
    [10, 24, 31],
    [17, 38],
)


def with_returns(sample: Sample) -> Sample:
    """Return the sample with CR for LF, within quotes, too."""

    def text(value: str) -> str:
        return value.replace("\n", "\r")

    rows = [{text(name): text(value) for name, value in row.items()} for row in sample.rows]
    return replace(sample, body=sample.body.replace(b"\n", b"\r"), rows=rows)


TRAILING_CSV = Sample(
    "trailing",
    b'a|b|\r\n1|x|\r\n2|"y\n"|""\n3|z\n4|\n|5\r\n||\n6|w|v\n7|u||\n8\n',
    [
        {"a": "1", "b": "x"},
        {"a": "2", "b": "y\n"},
        {"a": "3", "b": "z"},
        {"a": "4", "b": None},
        {"a": None, "b": "5"},
        {"a": None, "b": None},
    ],
    [6, 12, 22, 26, 29, 33],
    [36, 42, 48],
)

COMMENTED_CSV = Sample(
    "comments",
    b'the;"title"\r\n\n#"\na;b\r\n#,"\n1;"x\n#y"\r\n##"\n2;#\n#,"',
    [{"a": "1", "b": "x\n#y"}, {"a": "2", "b": "#"}],
    [26, 40],
)


def _commented(sample: Sample, seed: int) -> Sample:
    """Return the sample with comments in some places where records begin."""
    chance = random.Random(seed)
    body, places, at = b"", [], 0
    assert sample.locations is not None
    for place in sample.locations:
        comment = chance.choice([b"", b"", b"#\n", b'#",\r\n', b'#a,"b\n', b'# "\n#""\n'])
        body += sample.body[at:place] + comment
        places.append(len(body))
        at = place
    return replace(sample, body=body + sample.body[at:], locations=places)


UNQUOTED_CSV = Sample(
    "quotes-are-text",
    b'a\0"b\r\n"\0x"y\n1\\\n2\0"3\\\0\n"\0\\"\n\n\x01\0\\tb',
    [
        {"a": '"', '"b': 'x"y'},
        {"a": "1\n2", '"b': '"3\0'},
        {"a": '"', '"b': '"'},
        {"a": "\x01", '"b': "\tb"},
    ],
    [6, 12, 22, 28],
)


STATED_SEPARATOR_CSV = Sample(
    "stated-separator",
    BOM + b'sep=;\r\na;b\r\n1,0;"x\n;"\r\n2;y',
    [{"a": "1,0", "b": "x\n;"}, {"a": "2", "b": "y"}],
    [15, 26],
)


def open_unquoted(options: FormatOptions) -> Format:
    own = CsvOptions(separator="\0", quote=None, escape="\\", escape_mode="c")
    return open_csv(options, own)


def open_with_comments(options: FormatOptions) -> Format:
    return open_csv(options, CsvOptions(null=None, separator=";", skip_lines=2, comment="#"))


def open_with_many_comments(options: FormatOptions) -> Format:
    return open_csv(options, CsvOptions(null=None, comment="#"))


def open_with_trailing(options: FormatOptions) -> Format:
    return open_csv(options, CsvOptions(separator="|", trailing_separator=True))


def open_with_returns(options: FormatOptions) -> Format:
    return open_csv(options, CsvOptions(null=None, line_end="cr"))


def open_inferred(options: FormatOptions) -> Format:
    pinned = replace(options, facts='id:int64,"a:b":string')
    return open_csv(pinned, CsvOptions(schema=None))


def open_columns(options: FormatOptions) -> Format:
    schema = JSON_SCHEMA.read("n:int64,v:struct<d:date,l:list<decimal(9,2)>>,m:map<string,json>")
    return open_jsonl(options, JsonlOptions(schema=schema))


def open_inferred_columns(options: FormatOptions) -> Format:
    pinned = replace(options, facts="n:int64,v:struct<d:date,l:list<float64>>,t:string")
    return open_jsonl(pinned, JsonlOptions(schema=None, unknown_members="ignore"))


JSON_COLUMNS_BODY = (
    BOM + b'{"n":1,"v":{"d":"2026-01-31","l":[1.50,null]}}\r\n \n{"n":1.5}\n{"m":{"k":[1.10]}}\n'
    b'{"n":"1"}\n[]\n{}\n{"x":1}\n{"v":{"d":"no"}}\n{"n":2}{"n":3}\n{"n":4}'
)
JSON_COLUMNS = Sample(
    "columns",
    JSON_COLUMNS_BODY,
    [
        {"n": 1, "v": {"d": date(2026, 1, 31), "l": [Decimal("1.50"), None]}, "m": None},
        {"n": None, "v": None, "m": [("k", "[1.10]")]},
        {"n": None, "v": None, "m": None},
        {"n": 4, "v": None, "m": None},
    ],
    [JSON_COLUMNS_BODY.index(one) for one in (b'{"n":1,', b'{"m"', b"{}", b'{"n":4')],
    [
        JSON_COLUMNS_BODY.index(one)
        for one in (b'{"n":1.5', b'{"n":"1', b"[]\n", b'{"x"', b'{"v":{"d":"no', b'{"n":2')
    ],
)


def _large_columns(seed: int) -> Sample:
    chance = random.Random(seed)
    values = [None, {}, {"d": "2026-01-31"}, {"l": [1.25, None]}, {"l": [0.1] * 9, "x": [[[]]]}]
    lines, rows, places, bad, at = [], [], [], [], 0
    for number in range(2000):
        value = chance.choice(values)
        line = json.dumps({"n": number, "t": "é" * chance.randrange(4), "v": value, "y": {}})
        if chance.random() < 0.01:
            line = chance.choice(["{", '{"n":1.5}', '{"v":{"l":[9007199254740993]}}', "[]"])
            bad.append(at)
        else:
            text = json.loads(line)["t"]
            struct = None
            if value is not None:
                day = date(2026, 1, 31) if "d" in value else None
                struct = {"d": day, "l": value.get("l")}
            rows.append({"n": number, "v": struct, "t": text})
            places.append(at)
        lines.append(line)
        at += len(line.encode()) + 1
    return Sample("random", "\n".join(lines).encode(), rows, places, bad)


CASES = [
    FormatCase("jsonl-columns", open_columns, [JSON_COLUMNS]),
    FormatCase("jsonl-inferred", open_inferred_columns, [], [_large_columns(7)]),
    FormatCase("text", open_text, TEXT, [LARGE_TEXT]),
    FormatCase(
        "text-unvalidated",
        open_text,
        [raw_sample(name, body) for name, body in BODIES.items()],
        options=FormatOptions(validate_text=False),
    ),
    FormatCase(
        "jsonl",
        open_jsonl,
        [jsonl_sample(name, body) for name, body in JSON_BODIES.items()],
        [jsonl_sample("random", _large_jsonl(3))],
    ),
    FormatCase("csv", open_without_null, [*CSV, STATED_SEPARATOR_CSV], [LARGE_CSV]),
    FormatCase("csv-comments", open_with_comments, [COMMENTED_CSV]),
    FormatCase("csv-comments-random", open_with_many_comments, [], [_commented(LARGE_CSV, 8)]),
    FormatCase("csv-unquoted", open_unquoted, [UNQUOTED_CSV]),
    FormatCase("csv-inferred", open_inferred, [INFERRED_CSV]),
    FormatCase("csv-trailing", open_with_trailing, [TRAILING_CSV]),
    FormatCase(
        "csv-cr",
        open_with_returns,
        [with_returns(sample) for sample in CSV if b"\r" not in sample.body],
        [with_returns(LARGE_LF_CSV)],
    ),
    FormatCase(
        "text-gzip",
        open_text,
        [_packed(sample, _members(sample.body)) for sample in FEW_TEXTS],
        [_packed(LARGE_TEXT, _members(LARGE_TEXT.body))],
        options=FormatOptions(compression="gzip"),
    ),
    FormatCase(
        "text-zstd",
        open_text,
        [_packed(sample, _frames(sample.body)) for sample in FEW_TEXTS],
        [_packed(LARGE_TEXT, _frames(LARGE_TEXT.body))],
        options=FormatOptions(compression="zstd"),
    ),
    FormatCase(
        "csv-gzip",
        open_without_null,
        [_packed(sample, _members(sample.body)) for sample in CSV if sample.name != "one-column"],
        [_packed(LARGE_CSV, _members(LARGE_CSV.body))],
        options=FormatOptions(compression="gzip"),
    ),
]
