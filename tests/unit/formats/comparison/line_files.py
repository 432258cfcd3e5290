"""Text, CSV, JSON and bytes, read by Python's codecs, csv and json, and by DuckDB."""

import csv
import io
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import cramjam
import duckdb
import pyarrow as pa
from tests.laws.compression_cases import bgzf
from tests.unit.formats.comparison.nasty import Nasty
from tests.unit.formats.comparison.parquet_files import SETTINGS
from tests.unit.formats.comparison.values import Plain, of_array
from tests.unit.formats.text.test_charsets import CHARSETS

from extentflow.config.column_lists import SCHEMA
from extentflow.formats import FormatOptions
from extentflow.formats.bytes_format import BytesOptions
from extentflow.formats.csv.csv_format import CsvOptions
from extentflow.formats.json.json_format import JsonOptions

Columns = Mapping[str, Sequence[Plain]]
# Of every script that some character set has.
POOL = "aZ09 ,;\"'\\\téßÿŁőğΩжя№שםعربไทยあソ表示日本語ｱ中文國한국어☃€“—😀𠀋\ufffd"


def whole(body: bytes) -> Callable[[], bytes]:
    return lambda: body


# -- text in every character set -------------------------------------------------------------------


def encodable(codec: str) -> str:
    """Return the characters that a character set has."""

    def exists(character: str) -> bool:
        try:
            return character.encode(codec).decode(codec) == character
        except UnicodeError:
            return False

    return "".join(filter(exists, POOL))


def text_in(codec: str, rows: int = 40) -> bytes:
    """Return lines of random characters, the last one without an end."""
    chance, known = random.Random(codec), encodable(codec)
    lines = ["".join(chance.choices(known, k=chance.randrange(40))) for _ in range(rows)]
    return "\n".join([*lines, "", "end"]).encode(codec)


def lines_in(codec: str, body: bytes, _folder: Path, _schema: pa.Schema) -> Columns:
    """Return what Python decodes."""
    return {"value": body.decode(codec).split("\n")}


def texts() -> Iterator[Nasty]:
    for codec in CHARSETS:
        if (body := text_in(codec)).decode(codec):
            read, options = partial(lines_in, codec), FormatOptions(charset=codec)
            yield Nasty(f"text-{codec}", "text", whole(body), read, options)
    for codec in ("utf-16", "utf-32", "utf-8-sig"):
        body = text_in(codec)
        yield Nasty(f"text-marked-{codec}", "text", whole(body), partial(lines_in, codec))


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: bytes(cramjam.gzip.compress(body)),
    "zstd": lambda body: bytes(cramjam.zstd.compress(body)),
    "bzip2": lambda body: bytes(cramjam.bzip2.compress(body)),
    "lz4": lambda body: bytes(cramjam.lz4.compress(body)),
    "snappy": lambda body: bytes(cramjam.snappy.compress(body)),
    "bgzf": lambda body: bgzf(body, lambda: 301)[0],
}


def packed() -> Iterator[Nasty]:
    """Yield text in every compression; none of them is written by the code that unpacks it."""
    for name, pack in PACKERS.items():
        body = text_in("utf-8", 300)

        def write(body: bytes = body, pack: Callable[[bytes], bytes] = pack) -> bytes:
            return pack(body)

        def read(_packed: bytes, folder: Path, schema: pa.Schema, body: bytes = body) -> Columns:
            return lines_in("utf-8", body, folder, schema)

        yield Nasty(f"text-{name}", "text", write, read, FormatOptions(compression=name))


# -- CSV -------------------------------------------------------------------------------------------

FIELDS = [
    "",
    "a",
    "a,b",
    'say "hi"',
    "line\nbreak",
    "two\r\nlines",
    "é😀",
    " lead",
    "trail ",
    "NULL",
]
FIELDS += ["\\", "\t", ";|", "'", "\ufeff", "\u2028", '"', '""', "\n", "x" * 3_000, "0", "1,2\n3,4"]
HEADER = ["id", "näme", "a b", "x,y"]


def table_of_fields(rows: int = 150) -> list[list[str]]:
    """Return rows that have every field in every place."""
    found = cycle(FIELDS)
    return [[str(row), *islice(found, len(HEADER) - 1)] for row in range(rows)]


def csv_body(dialect: dict[str, Any], codec: str = "utf-8") -> bytes:
    """Return the rows as Python's csv module writes them."""
    out = io.StringIO()
    csv.writer(out, **dialect).writerows([HEADER, *table_of_fields()])
    return out.getvalue().encode(codec)


def in_csv(dialect: dict[str, Any], codec: str, body: bytes, _: Path, __: pa.Schema) -> Columns:
    """Return what Python's csv module reads."""
    given = {name: text for name, text in dialect.items() if name != "lineterminator"}
    text = io.StringIO(body.decode(codec), newline="")
    header, *rows = [row for row in csv.reader(text, strict=True, **given) if row]
    return {name: [row[place] for row in rows] for place, name in enumerate(header)}


def in_duckdb(
    options: str, body: bytes, folder: Path, _schema: pa.Schema
) -> Mapping[str, Sequence[Plain]]:
    """Return what DuckDB reads."""
    path = folder / "object.csv"
    path.write_bytes(body)
    with duckdb.connect(config=SETTINGS) as base:
        query = f"SELECT * FROM read_csv('{path}', header=true{options})"  # noqa: S608 - the test's
        found = base.sql(query).to_arrow_table()
    return {name: of_array(found[name]) for name in found.column_names}


ALL = {"quoting": csv.QUOTE_ALL}
DIALECTS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "lf": ({"lineterminator": "\n"}, "utf-8", {}),
    "crlf": ({}, "utf-8", {}),
    "quoted": (ALL, "utf-8", {}),
    "tabs": ({"delimiter": "\t"}, "utf-8", {"separator": "\t"}),
    "semicolons": ({"delimiter": ";", **ALL}, "utf-8", {"separator": ";"}),
    "bars": ({"delimiter": "|"}, "utf-8", {"separator": "|"}),
    "apostrophes": ({"quotechar": "'"}, "utf-8", {"quote": "'"}),
    "escapes": (
        {"escapechar": "\\", "doublequote": False, **ALL},
        "utf-8",
        {"escape": "\\"},
    ),
    "utf-16": ({}, "utf-16", {}),
    "utf-8-sig": (ALL, "utf-8-sig", {}),
    "gb18030": ({}, "gb18030", {}),
    "utf-16-le": ({}, "utf-16-le", {}),
}
MOST, LEAST = "9999999999999999999999999999.9999999999", "0.0000000001"
LAST = "9999-12-31 23:59:59.999999"
TYPED = "\n".join(
    [
        "i,u,f,d,b,day,at,text",
        f"-9223372036854775808,0,0.1,{MOST},true,0001-01-01,0001-01-01 00:00:00,a",
        f'9223372036854775807,18446744073709551615,-1e308,-{LEAST},false,9999-12-31,{LAST},"b,c"',
        ",,,,,,,",
        '0,1,5e-324,0,true,1969-12-31,1969-12-31 23:59:59.999999,"é\n"',
    ]
)
TYPES = "i:int64,u:uint64,f:float64,d:decimal(38,10),b:bool,day:date,at:timestamp(us),text:string"
DUCK_TYPES = (
    ", columns={'i':'BIGINT','u':'UBIGINT','f':'DOUBLE','d':'DECIMAL(38,10)','b':'BOOLEAN',"
)
DUCK_TYPES += "'day':'DATE','at':'TIMESTAMP','text':'VARCHAR'}"


def csvs() -> Iterator[Nasty]:
    for name, (dialect, codec, own) in DIALECTS.items():
        charset = None if codec in ("utf-16", "utf-8-sig", "utf-8") else codec
        yield Nasty(
            f"csv-{name}",
            "csv",
            partial(csv_body, dialect, codec),
            partial(in_csv, dialect, codec),
            FormatOptions(charset=charset),
            CsvOptions(null=None, **own),
        )
    strings = f", all_varchar=true, quote='\"', delim=',', nullstr='{chr(1)}', max_line_size=100000"
    yield Nasty(
        "csv-in-duckdb",
        "csv",
        partial(csv_body, ALL),
        partial(in_duckdb, strings),
        own=CsvOptions(null=None),
    )
    yield Nasty(
        "csv-typed-in-duckdb",
        "csv",
        TYPED.encode,
        partial(in_duckdb, DUCK_TYPES),
        own=CsvOptions(schema=SCHEMA.read(TYPES)),
    )


# -- JSON ------------------------------------------------------------------------------------------

DEEP = "[" * 200 + "1" + "]" * 200
DOCUMENTS = [
    "{}", "[]", "null", "true", '""', "0", "-0", "1.50", "1E308", "-1e-400", "18446744073709551616",
    '{"a":1,"a":2}', '{"":{"":[]}}', r'"\ud83d\ude00\u0000\/"', '"é😀\u2028"', DEEP,
    '{"n":' * 50 + "null" + "}" * 50, '{ "a" : [ 1 , "b]}" , { } ] }', r'["\\","\"",",","]"]',
]  # fmt: skip


def json_lines(codec: str, body: bytes, _folder: Path, _schema: pa.Schema) -> Columns:
    """Return the lines that Python's json module reads."""
    lines = [line.strip(" \t\r") for line in body.decode(codec).split("\n")]
    for line in filter(None, lines):
        json.loads(line)
    return {"value": [line.encode() for line in lines if line]}


def json_documents(codec: str, body: bytes, _folder: Path, _schema: pa.Schema) -> Columns:
    """Return the documents that Python's json module finds, one behind the other."""
    text, at, found = body.decode(codec), 0, []
    decoder = json.JSONDecoder()
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        _, end = decoder.raw_decode(text, at)
        found.append(text[at:end].encode())
        at = end
    return {"value": found}


def json_elements(_body: bytes, _folder: Path, _schema: pa.Schema) -> Columns:
    """Return the documents of which an array was written."""
    return {"value": [document.encode() for document in DOCUMENTS]}


def jsons() -> Iterator[Nasty]:
    lines = "\r\n".join([*DOCUMENTS, "", " \t", *DOCUMENTS])
    for codec in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
        body = lines.encode(codec)
        yield Nasty(f"jsonl-{codec}", "jsonl", whole(body), partial(json_lines, codec))
    for codec in ("cp1252", "cp500", "shift_jis"):
        body = json.dumps({"a": encodable(codec)}, ensure_ascii=False).encode(codec)
        options, read = FormatOptions(charset=codec), partial(json_lines, codec)
        yield Nasty(f"jsonl-{codec}", "jsonl", whole(body), read, options)
    # Documents that are neither objects nor arrays end nowhere but in an array.
    closed = [document for document in DOCUMENTS if document.startswith(("{", "["))]
    own = JsonOptions(elements=False)
    for codec in ("utf-8", "utf-16"):
        for name, between in (("lines", "\n"), ("spaces", " \t\r\n\n ")):
            body = between.join(closed).encode(codec)
            read = partial(json_documents, codec)
            yield Nasty(f"json-{codec}-{name}", "json", whole(body), read, own=own)
    for name, between in (("array", ","), ("pretty", " ,\n  ")):
        body = f"[{between.join(DOCUMENTS)}]".encode()
        yield Nasty(f"json-{name}", "json", whole(body), json_elements)


# -- bytes -----------------------------------------------------------------------------------------


def in_chunks(size: int, body: bytes, _folder: Path, _schema: pa.Schema) -> Columns:
    """Return the chunks of a body."""
    return {"value": [body[at : at + size] for at in range(0, len(body), size)]}


NOISE = random.Random(1).randbytes(5_000)
RAW = [
    Nasty(
        f"bytes-{size}",
        "bytes",
        whole(NOISE),
        partial(in_chunks, size),
        own=BytesOptions(chunk_bytes=size),
    )
    for size in (1, 7, 4_096)
]

FILES = [*texts(), *packed(), *csvs(), *jsons(), *RAW]
