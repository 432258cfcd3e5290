"""Target `avro`: object container files: schemas, blocks and codecs, whole and damaged."""

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache, partial
from random import Random
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import zstandard
from tests.fuzz.mutations import (
    INTERESTING,
    change_bytes,
    change_document,
    pack,
    unpack,
    write_json,
)
from tests.fuzz.objects import outcome_of, require_laws, sizes
from tests.fuzz.targets import Target
from tests.laws import avro_cases

from extentflow.formats import Format, FormatOptions
from extentflow.formats.avro.avro_format import Avro

_WHEN = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
_MARKER = avro_cases.MARKER
_ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
_FIXED = {"type": "fixed", "name": "F", "size": 3}
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
_WIDE = {"type": "fixed", "name": "W", "size": 20, "logicalType": "decimal", "precision": 40}
_NODE = {"type": "record", "name": "N", "fields": [{"name": "x", "type": ["null", "int"]}]}
_TYPES: tuple[tuple[Any, list[Any]], ...] = (
    ("null", [None]),
    ("boolean", [True, False]),
    ("int", [0, -1, 2**31 - 1]),
    ("long", [0, -(2**63), 2**63 - 1]),
    ("float", [1.5, float("nan")]),
    ("double", [0.1, -0.0]),
    ("bytes", [b"", b"\xff" * 70]),
    ("string", ["", "ü🙂", "x" * 70]),
    ({"type": "int", "logicalType": "date"}, [date(2026, 1, 2)]),
    ({"type": "int", "logicalType": "time-millis"}, [time(1, 2, 3)]),
    ({"type": "long", "logicalType": "time-micros"}, [time(23, 59, 59)]),
    ({"type": "long", "logicalType": "timestamp-millis"}, [_WHEN]),
    ({"type": "long", "logicalType": "timestamp-micros"}, [_WHEN]),
    ({"type": "string", "logicalType": "uuid"}, [UUID(int=7)]),
    (_DECIMAL, [Decimal("1.50"), Decimal("-9999999.99")]),
    (_WIDE, [Decimal(10**39)]),
    (_ENUM, ["A", "B"]),
    (_FIXED, [b"abc"]),
    (_NODE, [{"x": 1}, {"x": None}]),
    ({"type": "array", "items": "int"}, [[], [1, -2, 3]]),
    ({"type": "map", "values": ["null", "string"]}, [{}, {"a": None, "b": "x"}]),
    (["null", "long"], [None, 5]),
    (["null", "int", "string", _NODE], [None, 1, "x", {"x": 3}]),
    ({"type": "array", "items": {"type": "map", "values": "double"}}, [[], [{"a": 1.0}, {}]]),
)


def _snappy(data: bytes) -> bytes:
    packed: bytes = pa.Codec("snappy").compress(data, asbytes=True)
    return packed + zlib.crc32(data).to_bytes(4, "big")


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": lambda data: zlib.compress(data, wbits=-15),
    "snappy": _snappy,
    "zstandard": zstandard.ZstdCompressor().compress,
    "bzip2": bz2.compress,
    "xz": partial(lzma.compress, preset=0),
}


def _long(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _text(data: bytes) -> bytes:
    return _long(len(data)) + data


@dataclass(frozen=True, slots=True)
class File:
    """A file in parts: `blocks` are numbers of records, and their bytes before compression."""

    schema: str
    blocks: tuple[tuple[int, bytes], ...]
    codec: str = "null"

    def write(self) -> bytes:
        """Return the object."""
        schema = self.schema.encode("utf-8", "surrogatepass")
        members = _text(b"avro.schema") + _text(schema)
        members += _text(b"avro.codec") + _text(self.codec.encode())
        out = b"Obj\x01" + _long(2) + members + _long(0) + _MARKER
        for count, content in self.blocks:
            out += _long(count) + _text(_CODECS[self.codec](content)) + _MARKER
        return out


@cache
def seeds() -> tuple[File, ...]:
    """Return small files of every type, alone and as members of records."""
    found = []
    for kind, values in _TYPES:
        record = {"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]}
        # A record whose fields take no bytes has no limit; the library refuses it.
        found.append(_file(record, [{"v": value} for value in values * 3]))
        found.append(_file(kind, values * 2))
    names = [(f"c{at}", kind, values) for at, (kind, values) in enumerate(_TYPES[:15])]
    fields = [{"name": name, "type": kind} for name, kind, _ in names]
    rows = [{name: values[row % len(values)] for name, _, values in names} for row in range(4)]
    found += [_file({"type": "record", "name": "R", "fields": fields}, rows)] * 4
    return tuple(found)


def _file(schema: Any, rows: list[Any]) -> File:  # noqa: ANN401
    parsed = fastavro.parse_schema(schema)
    blocks = []
    for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
        out = io.BytesIO()
        for row in part:
            fastavro.schemaless_writer(out, parsed, row)
        blocks.append((len(part), out.getvalue()))
    return File(json.dumps(schema), tuple(blocks))


def _damaged(random: Random, file: File) -> File:
    at = random.randrange(len(file.blocks))
    count, content = file.blocks[at]
    match random.randrange(6):
        case 0 | 1:
            return replace(
                file, schema=write_json(change_document(random, json.loads(file.schema)))
            )
        case 2:
            near = count + random.choice((-1, 1, 7, -2 * count))
            count = random.choice((near, near, random.choice(INTERESTING)))
        case 3:
            bomb = random.choice(INTERESTING[:10])
            content = random.choice((bytes(max(0, bomb)), content * 20))
            count = random.choice((count, count * 20, bomb))
        case _:
            content = change_bytes(random, content, [other for _, other in file.blocks])
    blocks = (*file.blocks[:at], (count, content), *file.blocks[at + 1 :])
    return replace(file, blocks=blocks)


def _object(random: Random) -> bytes:
    file = replace(random.choice(seeds()), codec=random.choice(list(_CODECS)))
    drawn, whole = random.random(), True
    if drawn < 0.6:
        file, whole = _damaged(random, file), False
    data = file.write()
    if 0.5 < drawn < 0.9:
        data, whole = change_bytes(random, data, [seeds()[5].write()]), False
    given = {"whole": whole, "converter": random.choice(("json", "json", "string"))}
    return pack({**given, **sizes(random, data)}, data)


def _run_object(data: bytes) -> str:
    given, body = unpack(data)

    def opened(window: int, batch: int) -> Format:
        return Avro(FormatOptions(window_bytes=window, batch_rows=batch))

    found = require_laws(opened, body, given)
    if given["whole"] and found.error is None:
        rows = list(fastavro.reader(io.BytesIO(body)))
        assert len(found.values) + len(found.bad) == len(rows), "as many rows as fastavro reads"
    return outcome_of(found)


AVRO = Target("avro", 6, _object, _run_object)
