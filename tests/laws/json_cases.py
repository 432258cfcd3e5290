"""JSON documents of several layouts, against Python's json module."""

import gzip
import json
import random
from datetime import date
from functools import partial

from tests.laws.laws import FormatCase, Sample
from tests.laws.line_cases import _packed

from extentflow.config.column_lists import JSON_SCHEMA
from extentflow.formats import Format, FormatOptions
from extentflow.formats.json.json_format import JsonOptions, open_json

BOM = b"\xef\xbb\xbf"


def sample(name: str, body: str, *documents: str, bad: tuple[int, ...] = ()) -> Sample:
    """Return what should be found; each document stands behind the one before it."""
    raw, at, locations = body.encode(), 0, []
    for document in documents:
        at = raw.index(document.encode(), at)
        locations.append(at)
        at += len(document.encode())
    rows = [{"value": document.encode()} for document in documents]
    return Sample(name, raw, rows, locations, bad)


STRINGS = [r'{"a": "}]\"{"}', r'{"b\\": "\\\\"}', r'{"c": "\\\"[,"}', '{"é": "😀"}']
BACKSLASHES = ['{"a":"' + "\\\\" * 40 + '"}', '"' + "\\\\" * 21 + '\\""']
PRETTY = json.dumps({"a": [1, {"b": "c, d"}], "e": {}}, indent=2)
LONG = '{"a":"' + "x" * 30 + '"}'
PAGE = '{"n": {"items": [9]}, "data": {"x": "[", "items": [%s], "y": [0]}}'
SMALL = [
    sample("one", '{"a": 1}', '{"a": 1}'),
    sample("concatenated", '{"a":1}{"a":2} \n\t {"a":3}\n', '{"a":1}', '{"a":2}', '{"a":3}'),
    sample("pretty", f"{PRETTY}\n{PRETTY}\n", PRETTY, PRETTY),
    sample("array", '[1, "a,]", [2], {"b":4} , null]', "1", '"a,]"', "[2]", '{"b":4}', "null"),
    sample("arrays", '[1]\n[ ]\n[[2],[3]]{"a":[1,2]}', "1", "[2]", "[3]", '{"a":[1,2]}'),
    sample("strings", "\n".join(STRINGS), *STRINGS),
    sample("strings-in-array", "[" + ",".join(STRINGS) + "]", *STRINGS),
    sample("scalar", " 12345678901234567890.10e3 ", "12345678901234567890.10e3"),
    sample("blank", " \n\t\r\n"),
    sample("empty-array", "[]"),
    sample("invalid", '{"a":1}{"a":}[1,nul,3][4]', '{"a":1}', "1", "3", "4", bad=(7, 16)),
    sample("missing-elements", "[,1,,2,]", "1", "2", bad=(1, 4, 7)),
    sample("spaces", "[" + " " * 50 + "1" + " " * 50 + ", 2]", "1", "2"),
    sample("backslashes", BACKSLASHES[0] + "[" + BACKSLASHES[1] + "]", *BACKSLASHES),
]  # fmt: skip


def _large(seed: int, *, array: bool) -> Sample:
    chance = random.Random(seed)
    texts = ["x", 'a "quote"', "\\", '\\\\"', "[{,}]", "é😀", "long" * 100, "\n"]
    documents = [
        json.dumps(
            {"n": number, "t": chance.choices(texts, k=3), "d": {"e": [number, None]}},
            indent=chance.choice([None, 1, 4]),
            ensure_ascii=chance.random() < 0.5,
        )
        for number in range(1200)
    ]
    if array:
        return sample("array", "[" + ",\n ".join(documents) + "]", *documents)
    return sample(
        "documents", "".join(one + chance.choice(["", "\n", "  "]) for one in documents), *documents
    )


def open_columns(options: FormatOptions) -> Format:
    return open_json(
        options, JsonOptions(schema=JSON_SCHEMA.read("a:int64,b:struct<c:list<date>>"))
    )


COLUMNS_BODY = b'[{"a":1,\n "b":{"c":["2026-01-31"]}}, 7 ,{"a":1.5},,{}]\n{"a":3}{"d":4} {"a":5.0}'
COLUMNS = Sample(
    "columns",
    COLUMNS_BODY,
    [
        {"a": 1, "b": {"c": [date(2026, 1, 31)]}},
        {"a": None, "b": None},
        {"a": 3, "b": None},
        {"a": 5, "b": None},
    ],
    [COLUMNS_BODY.index(one) for one in (b'{"a":1', b"{}", b'{"a":3}', b'{"a":5')],
    [COLUMNS_BODY.index(b"7"), COLUMNS_BODY.index(b'{"a":1.5'), 50, COLUMNS_BODY.index(b'{"d"')],
)


RECORDS_PATH = JsonOptions(records_path=("data", "items"))
TEXTS = [r'{"a": "}]\"{"}', '{"items": [7]}', "[1, [2]]", '"]"', "null", LONG]
NESTED = [
    sample("document", '{"items": 3, "data": {"items": [' + " ,\n".join(TEXTS) + "]}}", *TEXTS),
    sample("pages", PAGE % 1 + PAGE % 2 + "\n" + '{"data":{"items":null}}' + PAGE % 3, *"123"),
    sample("array", f"[{PAGE % 1}, {PAGE % 2}] {PAGE % 3}", *"123"),
    sample(
        "bad",
        PAGE % 1 + '{"data":{}}' + PAGE % "nul,,2" + "[7,]",
        *"12",
        bad=(65, 127, 131, 147, 149),
    ),
]  # fmt: skip


AROUND = JsonOptions(records_path=("data", "items"), records_around=("n", "data.x"))
AROUND_ELEMENTS = '{"a": 1}, {}, 7, { } , {"a":nul}, {"n": 2}, {"b": {"n": "\\u0041"}}'
AROUND_BODY = (
    PAGE % AROUND_ELEMENTS + '{"data":{"items":[1]}}' + (PAGE % '{"c": 3}').replace("[9]", "[8]")
)
AROUND_STARTS = [
    AROUND_BODY.index(one)
    for one in ('{"a": 1', "{}", "{ }", '{"b"', '{"c"', "7", '{"a":nul', '{"n": 2', '{"data":{')
]
AROUND_PAGES = Sample(
    "pages",
    AROUND_BODY.encode(),
    [
        {"value": one}
        for one in (
            b'{"n":{"items":[9]},"data.x":"[","a": 1}',
            b'{"n":{"items":[9]},"data.x":"["}',
            b'{"n":{"items":[9]},"data.x":"[" }',
            b'{"n":{"items":[9]},"data.x":"[","b": {"n": "\\u0041"}}',
            b'{"n":{"items":[8]},"data.x":"[","c": 3}',
        )
    ],
    AROUND_STARTS[:5],
    AROUND_STARTS[5:],
)


def _nested(seed: int) -> Sample:
    chance = random.Random(seed)
    body, records = "", []
    for size in (0, 1, 900, 3):
        page = [
            json.dumps({"n": chance.random(), "items": ["]"]}, indent=chance.choice([None, 1]))
            for _ in range(size)
        ]
        body += PAGE % ", ".join(page)
        records += page
    return sample("pages", body, *records)


CASES = [
    FormatCase("json-around", partial(open_json, own=AROUND), [AROUND_PAGES]),
    FormatCase("json-nested", partial(open_json, own=RECORDS_PATH), NESTED, [_nested(1)]),
    FormatCase("json-columns", open_columns, [COLUMNS]),
    FormatCase("json", open_json, SMALL, [_large(1, array=False), _large(2, array=True)]),
    FormatCase(
        "json-whole-arrays",
        partial(open_json, own=JsonOptions(elements=False)),
        [
            sample("arrays", "[1, 2]\n[]{}[[3]]", "[1, 2]", "[]", "{}", "[[3]]"),
            sample("strings", "[" + ",".join(STRINGS) + "]", "[" + ",".join(STRINGS) + "]"),
        ],
    ),
    FormatCase(
        "json-utf16",
        open_json,
        [
            Sample(
                "marked",
                '\ufeff[{"é": 1}, 2]'.encode("utf-16-le"),
                [{"value": '{"é": 1}'.encode()}, {"value": b"2"}],
                [4, 15],
            )
        ],
    ),
    FormatCase(
        "json-mark",
        open_json,
        [Sample("mark", BOM + b'{"a":1}', [{"value": b'{"a":1}'}], [3]), Sample("only", BOM, [])],
    ),
    FormatCase(
        "json-gzip",
        open_json,
        [_packed(one, gzip.compress(one.body)) for one in SMALL[:6]],
        options=FormatOptions(compression="gzip"),
    ),
    FormatCase(
        "json-too-long",
        open_json,
        [
            sample("long", '{"a":1}' + LONG + "[1, " + LONG + "]", '{"a":1}', "1", bad=(7, 49)),
        ],
        options=FormatOptions(max_record_bytes=20),
    ),
]  # fmt: skip
