"""Compressed lines: codecs of one extent, and those that are cut: BGZF, bzip2, seekable zstd."""

import bz2
import random
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial

import pyarrow as pa
import zstandard
from tests.laws.charset_cases import csv_in
from tests.laws.laws import FormatCase, Sample
from tests.laws.line_cases import (
    CSV,
    FEW_TEXTS,
    JSON_BODIES,
    LARGE_CSV,
    LARGE_TEXT,
    STATED_SEPARATOR_CSV,
    _packed,
    jsonl_sample,
    open_without_null,
    text_sample,
)

from extentflow.formats import FormatOptions
from extentflow.formats.json.jsonl_format import open_jsonl
from extentflow.formats.text.text_format import TextOptions, open_text

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


def _placed(sample: Sample, packed: bytes, places: list[int], name: str) -> Sample:
    assert sample.locations is not None
    return Sample(
        name or sample.name,
        packed,
        sample.rows,
        [places[at] for at in sample.locations],
        [places[at] for at in sample.bad or ()],
    )


def blocked(sample: Sample, sizes: Callable[[], int], name: str = "", level: int = 6) -> Sample:
    return _placed(sample, *bgzf(sample.body, sizes, level), name)


BLOCK_MAGIC, END_MAGIC = 0x314159265359, 0x177245385090


def block_bits(content: bytes, level: int = 9) -> tuple[int, int]:
    """Return the one block of a stream that Python's bz2 writes, as a number, and its bits."""
    stream = int.from_bytes(bz2.compress(content, level), "big")
    size = 8 * len(bz2.compress(content, level)) - 32
    body = stream & ((1 << size) - 1)
    for padding in range(8):
        if body >> (padding + 32) & ((1 << 48) - 1) == END_MAGIC:
            return body >> (padding + 80), size - padding - 80
    raise AssertionError("the stream has no end")


def bzip2_stream(contents: Iterable[bytes], level: int = 9) -> tuple[bytes, list[int]]:
    """Return a stream with a block for each content, and the bit where each begins."""
    bits, size, checksum = int.from_bytes(b"BZh%d" % level, "big"), 32, 0
    begins = []
    for content in contents:
        begins.append(size)
        block, length = block_bits(content, level)
        bits, size = bits << length | block, size + length
        crc = block >> (length - 80) & 0xFFFFFFFF
        checksum = ((checksum << 1 | checksum >> 31) & 0xFFFFFFFF) ^ crc
    bits, size = (bits << 48 | END_MAGIC) << 32 | checksum, size + 80
    padding = -size % 8
    return (bits << padding).to_bytes((size + padding) // 8, "big"), begins


def parts_of(body: bytes, sizes: Callable[[], int]) -> list[bytes]:
    """Return `body` in parts, none of them empty."""
    parts, at = [], 0
    while at < len(body):
        parts.append(body[at : at + max(1, sizes())])
        at += len(parts[-1])
    return parts


def bzip2(body: bytes, sizes: Callable[[], int], most: int) -> tuple[bytes, list[int]]:
    """Return streams of up to `most` blocks each, an empty one between, and the places of bytes."""
    packed, places = b"", []
    parts = parts_of(body, sizes)
    for start in range(0, len(parts), most):
        group = parts[start : start + most]
        stream, begins = bzip2_stream(group)
        for content, bit in zip(group, begins, strict=True):
            byte = len(packed) + (bit >> 3)
            places += [byte << 26 | place for place in range(len(content))]
        packed += stream
        if start % 3 == 0:
            packed += bz2.compress(b"")
    assert bz2.decompress(packed) == body
    return packed, places


def in_bzip2(sample: Sample, sizes: Callable[[], int], most: int = 3, name: str = "") -> Sample:
    packed, places = bzip2(sample.body, sizes, most)
    return _placed(sample, packed, places, name)


def seek_table(frames: Iterable[tuple[int, int]], checksums: Iterable[int] | None = None) -> bytes:
    """Return the table of frames with these sizes and sizes of content."""
    entries = [struct.pack("<II", *one) for one in frames]
    if checksums is not None:
        entries = [a + struct.pack("<I", b) for a, b in zip(entries, checksums, strict=True)]
    footer = struct.pack("<IBI", len(entries), 0x80 if checksums is not None else 0, 0x8F92EAB1)
    body = b"".join(entries) + footer
    return struct.pack("<II", 0x184D2A5E, len(body)) + body


def seekable(parts: Iterable[bytes], *, checksums: bool = False) -> bytes:
    """Return a frame for each part, some of them empty, and their table."""
    packed, sizes = b"", list[tuple[int, int]]()
    for part in parts:
        frame = zstandard.ZstdCompressor(write_checksum=checksums).compress(part)
        packed, sizes = packed + frame, [*sizes, (len(frame), len(part))]
    return packed + seek_table(sizes, [7] * len(sizes) if checksums else None)


def in_seekable(sample: Sample, sizes: Callable[[], int], name: str = "") -> Sample:
    parts = [b"", *parts_of(sample.body, sizes), b"", b""]
    packed = seekable(parts, checksums=len(parts) % 2 == 0)
    return replace(sample, name=name or sample.name, body=packed)


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


SEVERAL_LINES = [one for one in CSV if one.name in ("line-breaks", "only-quotes")]


def cut_streams() -> Iterator[FormatCase]:
    """Yield bzip2 and seekable zstd, with overlaps of less than a line, and of several blocks."""
    latin = Sample("latin", b"\xe9a\n\xff", [{"value": "éa"}, {"value": "ÿ"}], [0, 3])
    marked = text_sample("mark", b"\xef\xbb\xbfab\nc")
    for codec, pack in (("zstd-seekable", in_seekable), ("bzip2-blocks", in_bzip2)):
        case = partial(FormatCase, windows=(2, 64, 1 << 20), batches=(1, 65_536))
        least, most = (FormatOptions(compression=codec, overlap_bytes=size) for size in (1, 20))
        yield case(
            f"text-{codec}",
            open_text,
            [
                pack(SHORT, lambda: 3, name="threes"),
                pack(SHORT, random_sizes(1, 9), name="random"),
                pack(marked, lambda: 2),
            ],
            [pack(LARGE_TEXT, random_sizes(2, 9000))],
            options=least,
        )
        yield case(f"text-{codec}-overlap", open_text, [pack(SHORT, lambda: 3)], options=most)
        yield case(
            f"csv-{codec}",
            open_without_null,
            [
                pack(SEVERAL_LINES[0], random_sizes(4, 20)),
                pack(SEVERAL_LINES[1], lambda: 9),
            ],
            [pack(LARGE_CSV, random_sizes(5, 3000))],
            options=least,
        )
        yield case(
            f"csv-{codec}-overlap",
            open_without_null,
            [pack(SEVERAL_LINES[0], lambda: 9)],
            [pack(LARGE_CSV, random_sizes(6, 3000))],
            options=replace(most, overlap_bytes=100),
        )
        yield case(
            f"jsonl-{codec}",
            open_jsonl,
            [pack(jsonl_sample("bad-lines", JSON_BODIES["bad-lines"]), lambda: 9)],
            options=least,
        )
        yield case(
            f"text-{codec}-delimiter",
            partial(open_text, own=TextOptions(delimiter="#;")),
            [pack(DELIMITED, lambda: 2)],
            options=replace(least, overlap_bytes=2),
        )
        yield case(
            f"text-{codec}-latin",
            open_text,
            [pack(latin, lambda: 2)],
            options=replace(least, charset="iso8859-1"),
        )
    yield FormatCase(
        "csv-zstd-seekable-utf16",
        open_without_null,
        [in_seekable(csv_in("utf-16-le", b"\xff\xfe"), lambda: 15)],
        options=FormatOptions(compression="zstd-seekable", overlap_bytes=3),
    )


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
    *cut_streams(),
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
            *(blocked(sample, lambda: 8) for sample in (*CSV, STATED_SEPARATOR_CSV)),
            *(blocked(one, random_sizes(4, 4)) for one in CSV if b'"' in one.body),
        ],
        [blocked(LARGE_CSV, random_sizes(3, 20_000)), blocked(LARGE_CSV, random_sizes(5, 400))],
        options=FormatOptions(compression="bgzf"),
    ),
]
