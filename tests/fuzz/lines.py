"""Targets `text`, `csv`, `jsonl` and `compressed`: line formats, and resume points within them."""

import gzip
import json
import zlib
from collections.abc import Sequence
from functools import cache, partial
from random import Random
from typing import Any

import pyarrow as pa
from tests.fuzz.mutations import SNIPPETS, any_value, change_bytes, pack, unpack, write_json
from tests.fuzz.objects import Cases, outcome_of, require_laws, sizes
from tests.fuzz.targets import TRIED, Target
from tests.laws import line_cases
from tests.laws.laws import Decoded, extent_of

from extentflow.config.parsing import connector_table
from extentflow.delivery.resume import POINTS, PointLog
from extentflow.formats import (
    FORMATS,
    Format,
    FormatOptions,
    ResumableFormat,
    ResumePoints,
    open_format,
)
from extentflow.testing.stores import MemorySource

_CSV = (
    b'id,name,price\n1,"a ""b"", c",1.50\n2,,\n3,"x",-0\n4,\xc3\xbc \xf0\x9f\x99\x82,1e3\n',
    b"\xef\xbb\xbfid;a\r\n1;2\r\n\r\n3;4",
    b"1,2,3\n4,5,6\n7,8,9\n" * 5,
    b'id,seen\n1,2026-01-02 03:04:05\n2,"2026-01-02T03:04:05Z"\n',
    b"a|b\nx\\|y|'q''r'\n",
)
_JSONL = (
    b'{"id":1,"a":{"b":[1,2.50,null]}}\n{"id":"x","a":"\\ud83d\\ude42"}\n \n{"id":null,"a":1.10}\n',
    b'{"id":12345678901234567890123,"a":true}\r\n[1,2]\n"text"\n',
)
_TEXT = (b"a line\nanother\n\nlast \xc3\xbc", b"x\r\ny\rz\n" * 8, b"\xef\xbb\xbfone\ntwo\n", b"")
_BODIES = {"csv": _CSV, "jsonl": _JSONL, "text": _TEXT}
_OWN: dict[str, Sequence[dict[str, str]]] = {
    "csv": (
        {},
        {},
        {"csv.header": "false"},
        {"csv.separator.char": ";"},
        {"csv.separator.char": "|", "csv.quote.char": "'", "csv.escape.char": "\\"},
        {"csv.escape.char": "\\"},
        {"csv.null": "\\N"},
        {"csv.escape.char": "\\", "csv.escape.mode": "c"},
        {"csv.schema": "id:int64,name:string,price:decimal(9,2)"},
        {"csv.schema": "a:int8,b:float32,c:bool", "csv.header": "false"},
        {"csv.schema": "id:uint64,seen:timestamp(us,UTC)"},
        {"csv.schema": "x:float64,y:date,z:string", "csv.header": "false"},
        {"csv.lenient.quotes": "true", "csv.header.duplicates": "rename"},
        {"csv.multiline.max.bytes": "none"},
        {"csv.quote.char": "none", "csv.separator.char": "\\0", "csv.escape.char": "\\"},
        {"csv.header.skip.lines": "1", "csv.comment.prefix": "#"},
        {"csv.multiline.max.bytes": "16", "csv.line.end": "cr"},
    ),
    "jsonl": ({}, {}, {"jsonl.validate": "false"}),
    "text": ({}, {}, {"text.delimiter": ";"}, {"text.delimiter": "\r\n"}),
}


_CASES = {
    name: Cases.of([case for case in line_cases.CASES if case.name.partition("-")[0] == name])
    for name in _OWN
}
_SHARE_OF_CASES = 0.2
_CHARSETS = (
    *(None, None, None, None, "utf-8", "ascii", "cp1252", "cp500", "utf-16", "utf-16-le"),
    *("utf-32-be", "shift_jis", "gb18030", "big5", "utf-7", "iso2022_jp"),
)


def _json_lines(random: Random) -> bytes:
    members = {"id": any_value(random), "a": any_value(random)}
    lines = [write_json({**members, "n": number}) for number in range(random.choice((1, 3)))]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _body(random: Random, name: str) -> bytes:
    if name == "jsonl" and random.random() < 0.4:
        return _json_lines(random)
    return random.choice(_BODIES[name])


def _parameters(random: Random, name: str) -> dict[str, Any]:
    columns = ("id", "a")[: random.randrange(3)] if name == "jsonl" else ()
    return {
        "format": name,
        "own": random.choice(_OWN[name]),
        "columns": columns,
        "validate": random.random() < 0.7,
        "record": random.choice((5, 40, 1 << 20, 1 << 20)),
        "compression": "none",
        "charset": random.choice(_CHARSETS),
        # Of JSON lines, columns that keys are made from, too.
        "converter": "bytes" if name == "text" else "json",
    }


def _line_object(name: str, random: Random) -> bytes:
    if random.random() < _SHARE_OF_CASES:
        return _CASES[name].draw(random, converter="bytes" if name == "text" else "json")
    body = _body(random, name)
    if random.random() < 0.9:
        others = [*_BODIES[name], *SNIPPETS]
        body = change_bytes(random, body, others)[: 8 << 10]
    parameters = _parameters(random, name)
    if parameters["charset"] and random.random() < 0.7:
        body = body.decode("utf-8", "replace").encode(parameters["charset"], "replace")
    return pack({**parameters, **sizes(random, body)}, body)


def _opened(given: dict[str, Any], window: int, batch: int) -> Format:
    own = _own(given["format"], tuple(given["own"].items()))
    options = FormatOptions(
        compression=given["compression"],
        charset=given.get("charset"),
        validate_text=given["validate"],
        columns=tuple(given["columns"]),
        max_record_bytes=given["record"],
        window_bytes=window,
        batch_rows=batch,
    )
    return open_format(given["format"], options, own)


@cache
def _own(name: str, written: tuple[tuple[str, str], ...]) -> object:
    table = connector_table({"input.format": name})
    return table.make(FORMATS.get(name).options, table.read(dict(written)), part=f"{name}.")


def _run_line_object(name: str, data: bytes) -> str:
    given, body = unpack(data)
    if "case" in given:
        _, _, found = _CASES[name].run(data)
        return outcome_of(found)
    return outcome_of(require_laws(partial(_opened, given), body, given))


TEXT, CSV, JSONL = (
    Target(name, 4, partial(_line_object, name), partial(_run_line_object, name))
    for name in ("text", "csv", "jsonl")
)

# -- compressed ------------------------------------------------------------------------------------

_EVERY_BYTES = 300


def _zstd(body: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd").compress(body, asbytes=True)
    return packed


_SKIPPABLE = b"\x50\x2a\x4d\x18\x03\0\0\0abc"


def _bytes_of(random: Random, codec: str, body: bytes) -> bytes:
    middle = random.randrange(len(body) + 1)
    pieces = random.choice(((body,), (body[:middle], body[middle:])))
    if codec == "zstd":
        return random.choice((b"", b"", _SKIPPABLE)) + b"".join(map(_zstd, pieces))
    return b"".join(_gzip_member(random, piece) for piece in pieces) + random.choice((b"", b"\0\0"))


def _gzip_member(random: Random, body: bytes) -> bytes:
    if random.random() < 0.5:
        return gzip.compress(body, mtime=0)
    # Several deflate blocks, so that points lie between them.
    packer = zlib.compressobj(wbits=31)
    step = max(1, len(body) // 4)
    parts = [
        packer.compress(body[at : at + step]) + packer.flush(zlib.Z_FULL_FLUSH)
        for at in range(0, len(body), step)
    ]
    return b"".join(parts) + packer.flush()


def _compressed_object(random: Random) -> bytes:
    codec = random.choice(("gzip", "zstd"))
    name = random.choice(("text", "text", "jsonl", "csv"))
    body = _body(random, name) * random.choice((1, 20, 40))
    batch = 1_000 if len(body) > 1_000 else 3
    if random.random() < 0.02:
        body = bytes(random.choice((2 << 20, 8 << 20)))  # a bomb
    packed = _bytes_of(random, codec, body)
    if random.random() < 0.6:
        packed = change_bytes(random, packed, [_SKIPPABLE, packed])
    given = {**_parameters(random, name), **sizes(random, body), "compression": codec, "note": {}}
    given["window"] = max(64, given["window"], len(body) // 16)
    given["batch"] = max(batch, given["batch"])
    if random.random() < 0.5:
        given["note"] = _note(random)
    return pack(given, packed)


def _note(random: Random) -> dict[str, Any]:
    """Return what is changed of a stored resume point."""
    name = random.choice(("content", "compressed", "state"))
    value = any_value(random)
    return {name: value if isinstance(value, str) else json.dumps(random.choice((0, -1, 7, 10**9)))}


class _Notes:
    def __init__(self) -> None:
        self.facts: dict[str, str] = {}

    def recall(self, name: str) -> dict[str, str] | None:  # noqa: ARG002 - there is one
        return self.facts or None

    def remember(
        self,
        name: str,  # noqa: ARG002
        facts: Any,  # noqa: ANN401
        *,
        keep_seconds: float | None = None,  # noqa: ARG002
    ) -> None:
        self.facts = dict(facts)


def _run_compressed(data: bytes) -> str:
    given, body = unpack(data)
    source = MemorySource(body)
    fmt = _opened(given, given["window"], given["batch"])
    assert isinstance(fmt, ResumableFormat)
    extent = extent_of(source, 0, len(body))
    points = ResumePoints(every_bytes=_EVERY_BYTES)
    whole, ends = Decoded(), [0]
    TRIED.decodes += 1
    for chunk in fmt.decode_from(source, extent, 0, points):
        whole.add(chunk)
        ends.append(chunk.next_position)
    notes = _Notes()
    position = ends[len(ends) // 2]
    point = points.take(position)
    if point is None or not position:
        return "decompressed"
    POINTS.write(notes, "", point)
    expected = [row for row, at in zip(whole.rows, whole.locations, strict=True) if at >= position]
    assert _resumed(fmt, source, notes, position) == expected, "the same from a point on"
    if not given["note"]:
        return "resumed"
    notes.facts |= given["note"]
    _resumed(fmt, source, notes, position)
    return "resumed from a damaged point"


def _resumed(fmt: ResumableFormat, source: MemorySource, notes: _Notes, position: int) -> list[Any]:
    extent = extent_of(source, 0, source.version.size)
    log = PointLog.open(notes, extent, position)
    rest = Decoded()
    TRIED.decodes += 1
    for chunk in fmt.decode_from(source, extent, position, log.points):
        rest.add(chunk)
    return rest.rows


COMPRESSED = Target("compressed", 5, _compressed_object, _run_compressed)
