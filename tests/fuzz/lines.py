"""Targets `lines` and `compressed`: objects of line formats, and resume points within them."""

import gzip
import json
import zlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pyarrow as pa
from tests.fuzz.mutations import SNIPPETS, any_value, change_bytes, pack, unpack, write_json
from tests.fuzz.targets import Target
from tests.laws.laws import Decoded, decoded, extent_of

from extentflow.config.parsing import connector_table
from extentflow.converters import open_converter
from extentflow.delivery.pipeline import Pipeline
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
    b"1,2,3\n4,5,6\n7,8,9\n" * 20,
    b'id,seen\n1,2026-01-02 03:04:05\n2,"2026-01-02T03:04:05Z"\n',
    b"a|b\nx\\|y|'q''r'\n",
)
_JSONL = (
    b'{"id":1,"a":{"b":[1,2.50,null]}}\n{"id":"x","a":"\\ud83d\\ude42"}\n \n{"id":null,"a":1.10}\n',
    b'{"id":12345678901234567890123,"a":true}\r\n[1,2]\n"text"\n',
)
_TEXT = (b"a line\nanother\n\nlast \xc3\xbc", b"x\r\ny\rz\n" * 30, b"\xef\xbb\xbfone\ntwo\n", b"")
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
        {"csv.schema": "id:int64,name:string,price:decimal(9,2)"},
        {"csv.schema": "a:int8,b:float32,c:bool", "csv.header": "false"},
        {"csv.schema": "id:uint64,seen:timestamp(us,UTC)"},
        {"csv.schema": "x:float64,y:date,z:string", "csv.header": "false"},
    ),
    "jsonl": ({}, {}, {"jsonl.validate": "false"}),
    "text": ({}, {}, {"text.delimiter": ";"}, {"text.delimiter": "\r\n"}),
}


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
        "window": random.choice((1, 2, 3, 7, 64, 1 << 16)),
        "batch": random.choice((1, 2, 3, 1_000)),
        "record": random.choice((5, 40, 1 << 20, 1 << 20)),
        "cuts": sorted(random.random() for _ in range(random.randrange(4))),
        "compression": "none",
        "charset": random.choice(_CHARSETS),
    }


def _line_object(random: Random) -> bytes:
    name = random.choice(("csv", "csv", "jsonl", "text"))
    body = _body(random, name)
    if random.random() < 0.9:
        others = [*_BODIES[name], *SNIPPETS]
        body = change_bytes(random, body, others)[: 8 << 10]
    parameters = _parameters(random, name)
    if parameters["charset"] and random.random() < 0.7:
        body = body.decode("utf-8", "replace").encode(parameters["charset"], "replace")
    # Windows of a byte are for objects of a few lines.
    if len(body) > 150:
        parameters["window"] = max(64, parameters["window"])
        parameters["batch"] = max(3, parameters["batch"])
    return pack(parameters, body)


def _opened(given: dict[str, Any], *, window: int, batch: int) -> Format:
    name = given["format"]
    table = connector_table({"input.format": name})
    own: Any = table.make(FORMATS.get(name).options, table.read(given["own"]), part=f"{name}.")
    options = FormatOptions(
        compression=given["compression"],
        charset=given.get("charset"),
        validate_text=given["validate"],
        columns=tuple(given["columns"]),
        max_record_bytes=given["record"],
        window_bytes=window,
        batch_rows=batch,
    )
    return open_format(name, options, own)


def convert_all(fmt: Format, source: MemorySource, converter: str) -> int:
    """Convert every record of the object, as `delivery` does; return how many there are."""
    values: Callable[[pa.Schema], Any] = lambda schema: open_converter(converter, schema)  # noqa: E731
    pipeline = Pipeline(source, fmt, "topic", values)
    count = 0
    for start, end in fmt.plan(source, 1 << 20):
        for chunk in pipeline.convert(extent_of(source, start, end), 0):
            assert len(chunk.records.values) == len(chunk.locations)
            count += len(chunk.records.values)
    return count


def _run_line_object(data: bytes) -> str:
    given, body = unpack(data)
    source = MemorySource(body)
    fmt = _opened(given, window=1 << 16, batch=1_000)
    whole = decoded(fmt, source, (0, len(body)))
    cuts = [0, *(int(share * len(body)) for share in given["cuts"]), len(body)]
    cuts = cuts if fmt.splittable else [0, len(body)]
    small = _opened(given, window=given["window"], batch=given["batch"])
    assert decoded(small, source, cuts) == whole, "any partition yields the same records"
    assert whole.locations == sorted(set(whole.locations)), "locations increase"
    if whole.locations:
        _require_resumable(small, source, whole, given["cuts"])
    converter = "json" if given["format"] == "csv" else "bytes"
    if given["format"] != "jsonl":
        convert_all(fmt, source, converter)
    return f"{'records' if whole.rows else 'nothing'}{', bad ones' if whole.bad else ''}"


def _require_resumable(
    fmt: Format, source: MemorySource, whole: Decoded, cuts: Sequence[float]
) -> None:
    index = int((cuts[0] if cuts else 0.5) * len(whole.locations))
    position = whole.locations[min(index, len(whole.locations) - 1)]
    size, rest = source.version.size, Decoded()
    for chunk in fmt.decode(source, extent_of(source, 0, size), position):
        rest.add(chunk)
    expected = [row for row, at in zip(whole.rows, whole.locations, strict=True) if at >= position]
    assert rest.rows == expected, "decoding resumes at a record"


LINES = Target("lines", 8, _line_object, _run_line_object)

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
    given = _parameters(random, name) | {"compression": codec, "note": {}}
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
    fmt = _opened(given, window=given["window"], batch=given["batch"])
    assert isinstance(fmt, ResumableFormat)
    extent = extent_of(source, 0, len(body))
    points = ResumePoints(every_bytes=_EVERY_BYTES)
    whole, ends = Decoded(), [0]
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
    for chunk in fmt.decode_from(source, extent, position, log.points):
        rest.add(chunk)
    return rest.rows


COMPRESSED = Target("compressed", 5, _compressed_object, _run_compressed)
