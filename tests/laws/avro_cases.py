"""Avro files by fastavro's writer, against what fastavro's reader returns."""

import io
import random
from typing import Any

import fastavro
from tests.laws.laws import FormatCase, Sample

from extentflow.formats import row_factor
from extentflow.formats.avro.avro_format import Avro

MARKER = bytes(range(0xA0, 0xB0))


def written(
    schema: Any,  # noqa: ANN401 - as fastavro's
    rows: list[Any],
    *,
    codec: str = "null",
    block_bytes: int = 16_000,
) -> bytes:
    """Return an object container file; blocks end behind `block_bytes`."""
    out = io.BytesIO()
    fastavro.writer(out, schema, rows, codec=codec, sync_interval=block_bytes, sync_marker=MARKER)
    return out.getvalue()


def locations(body: bytes) -> list[int]:
    """Return the location of every row, from fastavro's list of blocks."""
    factor = row_factor(len(body))
    return [
        block.offset * factor + row
        for block in fastavro.block_reader(io.BytesIO(body))
        for row in range(block.num_records)
    ]


def sample(name: str, schema: Any, rows: list[Any], **options: Any) -> Sample:  # noqa: ANN401
    """Return a file of rows that read as they were written."""
    body = written(schema, rows, **options)
    values = rows if isinstance(schema, dict) else [{"value": row} for row in rows]
    return Sample(name, body, values, locations(body))


PAIR = {
    "type": "record",
    "name": "P",
    "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": ["null", "string"]}],
}
WIDE = {
    "type": "record",
    "name": "Wide",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "x", "type": "double"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "l", "type": {"type": "array", "items": ["null", "int"]}},
        {"name": "f", "type": {"type": "array", "items": "double"}},
        {
            "name": "r",
            "type": {
                "type": "record",
                "name": "Inner",
                "fields": [{"name": "b", "type": "boolean"}, {"name": "t", "type": "bytes"}],
            },
        },
        {"name": "o", "type": ["null", "Inner"]},
    ],
}


def wide_rows(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Return rows of WIDE whose sizes differ."""
    chance = random.Random(seed)

    def inner() -> dict[str, Any]:
        return {"b": chance.random() < 0.5, "t": chance.randbytes(chance.choice([0, 3, 200]))}

    return [
        {
            "n": chance.choice([0, -1, chance.getrandbits(63), -chance.getrandbits(20)]),
            "x": chance.random(),
            "s": chance.choice([None, "", "é€😀", "text " * chance.randrange(30)]),
            "l": [chance.choice([None, chance.getrandbits(30)]) for _ in range(number % 4)],
            "f": [chance.random() for _ in range(number % 3)],
            "r": inner(),
            "o": chance.choice([None, inner()]),
        }
        for number in range(count)
    ]


PAIRS = [{"n": n * 100 - 100, "s": None if n % 3 == 0 else "x" * n} for n in range(7)]
SMALL = [
    sample("blocks", PAIR, PAIRS, block_bytes=12),
    sample("one-block", PAIR, PAIRS[:3]),
    sample("no-record", "string", ["a", "", "ccc"], block_bytes=2),
    sample("marker-bytes", "bytes", [MARKER[:15], MARKER[1:], b""], block_bytes=2),
]
LARGE = [
    sample("wide", WIDE, wide_rows(3000), block_bytes=900),
    sample("deflate", WIDE, wide_rows(2000, 2), codec="deflate", block_bytes=4000),
    sample("one-block", WIDE, wide_rows(800, 3), block_bytes=1 << 30),
]
CODECS = [
    sample(codec, PAIR, PAIRS, codec=codec, block_bytes=12)
    for codec in ("deflate", "snappy", "zstandard", "bzip2", "xz")
]

CASES = [
    FormatCase("avro", Avro, SMALL, LARGE),
    FormatCase("avro-codecs", Avro, CODECS[:2]),
]
