"""Compressed lines: codecs of one extent, and BGZF, which is cut at any byte."""

import bz2
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial

import pyarrow as pa
from tests.laws.laws import FormatCase, Sample
from tests.laws.line_cases import (
    CSV,
    FEW_TEXTS,
    LARGE_CSV,
    LARGE_TEXT,
    _packed,
    open_without_null,
    text_sample,
)

from extentflow.formats import FormatOptions
from extentflow.formats.line_format import TextOptions, open_text

END_MARKER = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")

SNAPPY_START, SNAPPY_END = b"\xff\x06\0\0sNaPpY", b"\xfe\x03\0\0abc\x80\0\0\0"


def block(content: bytes, level: int = 6, extra: bytes = b"") -> bytes:
    """Return one block of BGZF, as the SAM specification has it (section 4.1)."""
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    deflated = packer.compress(content) + packer.flush()
    size = 12 + len(extra) + 6 + len(deflated) + 8
    header = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff" + struct.pack("<H", len(extra) + 6)
    subfield = extra + b"BC\x02\0" + struct.pack("<H", size - 1)
    return header + subfield + deflated + struct.pack("<II", zlib.crc32(content), len(content))


def bgzf(body: bytes, sizes: Callable[[], int], level: int = 6) -> tuple[bytes, list[int]]:
    """Return the blocks of `body`, and the virtual offset of each of its bytes."""
    packed, places, at = b"", [], 0
    while at < len(body):
        content = body[at : at + sizes()]
        places += [len(packed) << 16 | place for place in range(len(content))]
        packed += block(content, level)
        at += len(content)
    return packed + END_MARKER, places


def blocked(sample: Sample, sizes: Callable[[], int], name: str = "", level: int = 6) -> Sample:
    packed, places = bgzf(sample.body, sizes, level)
    assert sample.locations is not None
    return Sample(
        name or sample.name,
        packed,
        sample.rows,
        [places[at] for at in sample.locations],
        [places[at] for at in sample.bad or ()],
    )


def random_sizes(seed: int, most: int) -> Callable[[], int]:
    chance = random.Random(seed)
    return lambda: chance.choice((0, 1, 2, chance.randrange(1, most)))


def many(body: bytes, pack: Callable[[bytes], bytes]) -> bytes:
    """Pack in three parts, one of them empty."""
    half = len(body) // 2
    return pack(body[:half]) + pack(b"") + pack(body[half:])


@cache
def crc32c(content: bytes) -> int:
    """Return the CRC-32C, bit by bit, masked as in the framing format of snappy."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 * (crc & 1))
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def snappy(body: bytes) -> bytes:
    """Return frames of snappy, every third one not compressed, and chunks to skip."""
    packed = SNAPPY_START
    for number, start in enumerate(range(0, len(body), 50_000)):
        content = body[start : start + 50_000]
        kind = 1 if number % 3 == 2 else 0
        chunk = content if kind else pa.Codec("snappy").compress(content, asbytes=True)
        chunk = struct.pack("<I", crc32c(content)) + chunk
        packed += struct.pack("<I", kind | len(chunk) << 8) + chunk
    return packed + SNAPPY_END


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "bzip2": bz2.compress,
    "lz4": lambda body: pa.Codec("lz4").compress(body, asbytes=True),
    "snappy": snappy,
}


def streams() -> Iterator[FormatCase]:
    for codec, pack in PACKERS.items():
        yield FormatCase(
            f"text-{codec}",
            open_text,
            [_packed(sample, many(sample.body, pack)) for sample in FEW_TEXTS],
            [_packed(LARGE_TEXT, many(LARGE_TEXT.body, pack))],
            options=FormatOptions(compression=codec),
        )


SHORT = text_sample("short", b"ab\ncd\n\r\ne\xff\n\nxyz")
NESTED = text_sample("nested", b"x\n" + bgzf(b"abc\nde\n" * 3, lambda: 7)[0].replace(b"\r", b"."))
DELIMITED = Sample("delimited", b"a#;;b;#c#;", [{"value": text} for text in ("a", ";b;#c")], [0, 3])

CASES = [
    *streams(),
    FormatCase(
        "text-bgzf",
        open_text,
        [
            blocked(SHORT, lambda: 3, "threes"),
            blocked(SHORT, lambda: 1, "ones"),
            blocked(SHORT, random_sizes(1, 5), "with-empty-blocks"),
            # What lies within a stored block looks like a block.
            blocked(NESTED, lambda: 60, level=0),
        ],
        [blocked(LARGE_TEXT, random_sizes(2, 9000))],
        options=FormatOptions(compression="bgzf"),
    ),
    FormatCase(
        "text-bgzf-delimiter",
        partial(open_text, own=TextOptions(delimiter="#;")),
        [blocked(DELIMITED, lambda: 1, "ones"), blocked(DELIMITED, lambda: 2, "twos")],
        options=FormatOptions(compression="bgzf"),
    ),
    FormatCase(
        "text-bgzf-latin",
        open_text,
        [
            blocked(
                Sample("latin", b"\xe9a\n\xff", [{"value": "éa"}, {"value": "ÿ"}], [0, 3]),
                lambda: 2,
            )
        ],
        options=FormatOptions(compression="bgzf", charset="iso8859-1"),
    ),
    FormatCase(
        "csv-bgzf",
        open_without_null,
        [
            *(blocked(sample, lambda: 8) for sample in CSV),
            *(blocked(one, random_sizes(4, 4)) for one in CSV if b'"' in one.body),
        ],
        [blocked(LARGE_CSV, random_sizes(3, 20_000)), blocked(LARGE_CSV, random_sizes(5, 400))],
        options=FormatOptions(compression="bgzf"),
    ),
]
