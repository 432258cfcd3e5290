"""A target for each codec: objects of lines and JSON, whole ones, damaged ones and hostile ones.

A codec with checksums never yields other content than was compressed: an object of which only bits
were flipped is either refused or has the records of the original.
"""

import bz2
import gzip
import zlib
from collections.abc import Callable
from functools import cache, partial
from random import Random
from typing import Any

import pyarrow as pa
import zstandard
from tests.fuzz.mutations import SNIPPETS, change_bytes, pack, unpack
from tests.fuzz.objects import deliver, outcome_of, require_laws, sizes
from tests.fuzz.targets import Target
from tests.laws import compression_cases

from extentflow.formats import Format, FormatOptions, open_format
from extentflow.testing.stores import MemorySource

_BODIES: dict[str, tuple[bytes, ...]] = {
    "text": (b"a line\nanother\n\nlast \xc3\xbc", b"x\r\ny\rz\n" * 30, b"", b"ok\n\xff\xfe\nok"),
    "csv": (b'id,name\n1,"a ""b""\n, c"\n2,\n3,x', b"n,s\n" + b"12345,abcdef\n" * 40),
    "jsonl": (b'{"id":1,"a":{"b":[1,2.50]}}\n{"id":"x"\n', b'{"n":1}\n' * 50),
    "json": (b'[{"a": 1},\n {"a": "]"}] {"b": [1, 2]}', b"[" + b"1," * 90 + b"2]"),
}
_BOMB_BYTES = (2 << 20, 8 << 20)
_BOMBS = 0.003  # of all inputs
# Where every writer stores checksums.
_CHECKED = ("gzip", "bzip2", "bzip2-blocks", "snappy", "bgzf")
# Packed as one object: a table or an end stands behind everything else.
_WHOLE = ("bgzf", "zstd-seekable")


def _bgzf(body: bytes) -> bytes:
    block_bytes = 37 if len(body) < _BOMB_BYTES[0] else 60_000
    return compression_cases.bgzf(body, lambda: block_bytes)[0]


def _bzip2_blocks(body: bytes) -> bytes:
    block_bytes = 41 if len(body) < _BOMB_BYTES[0] else 800_000
    return compression_cases.bzip2(body, lambda: block_bytes, 3)[0] or bz2.compress(b"")


def _seekable(body: bytes) -> bytes:
    frame_bytes = 53 if len(body) < _BOMB_BYTES[0] else 100_000
    return compression_cases.seekable(compression_cases.parts_of(body, lambda: frame_bytes))


def _lz4(body: bytes) -> bytes:
    packed: bytes = pa.Codec("lz4").compress(body, asbytes=True)
    return packed


_PACKERS: dict[str, tuple[Callable[[bytes], bytes], ...]] = {
    "gzip": (partial(gzip.compress, mtime=0),),
    "zstd": (
        zstandard.ZstdCompressor().compress,
        zstandard.ZstdCompressor(write_checksum=True).compress,
    ),
    "bzip2": (bz2.compress,),
    "lz4": (_lz4,),
    "snappy": (compression_cases.snappy,),
    "bgzf": (_bgzf,),
    "bzip2-blocks": (_bzip2_blocks,),
    "zstd-seekable": (_seekable,),
}
# Magic numbers and headers of others: what follows a stream, or stands in its place.
_PIECES = (
    *(b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh9", b"BZh91AY&SY", b"\x04\x22\x4d\x18"),
    *(b"\x02\x21\x4c\x18", b"\x50\x2a\x4d\x18\xff\xff\xff\xff", compression_cases.SNAPPY_START),
    *(compression_cases.SNAPPY_END, compression_cases.END_MARKER, b"\xfe\xff\xff\xff"),
    *SNIPPETS[:20],
)


def _flipped(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2))):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _bad_deflate(random: Random, body: bytes) -> bytes:
    """Return a block of BGZF whose sizes and checksum match content that another block has."""
    block = bytearray(compression_cases.block(body[:40]))
    other = zlib.compress(body[40:80])[2:-4]
    block[18 : 18 + len(other)] = other[: len(block) - 26]
    return bytes(block) + (compression_cases.END_MARKER if random.random() < 0.5 else b"")


@cache
def _seeds(codec: str) -> tuple[tuple[str, bytes, bytes], ...]:
    """Return formats, contents and objects: one stream, two of them, and behind an empty one."""
    found = []
    for name, bodies in _BODIES.items():
        for body in bodies:
            middle = len(body) // 3
            parts = ((body,), (body[:middle], body[middle:]), (b"", body))
            found += [
                (name, body, b"".join(map(packer, part)) if codec not in _WHOLE else packer(body))
                for packer in _PACKERS[codec]
                for part in parts
            ]
    return tuple(found)


@cache
def _bombs(codec: str) -> tuple[bytes, ...]:
    return tuple(packer(bytes(size)) for packer in _PACKERS[codec] for size in _BOMB_BYTES)


def _object(codec: str, random: Random) -> bytes:
    name, body, packed = random.choice(_seeds(codec))
    if random.random() < _BOMBS:
        body, packed = b"", random.choice(_bombs(codec))
    kind = random.choice(("whole", "flipped", "flipped", "changed", "changed", "changed"))
    if kind == "flipped" and packed:
        packed = _flipped(random, packed)
    elif kind == "changed" and codec == "bgzf" and random.random() < 0.1:
        packed = _bad_deflate(random, body)
    elif kind == "changed":
        packed = change_bytes(random, packed, [packed, *_PIECES])
    given: dict[str, Any] = {"format": name, "kind": kind, "content": body.decode("latin-1")}
    given |= {"converter": "json" if name == "csv" else "bytes", **sizes(random, packed)}
    # Content is longer than the object: small buffers would make thousands of steps.
    given["window"] = max(given["window"], 64 if body else 1 << 16)
    given["batch"] = max(given["batch"], 1 + len(body) // 100)
    return pack(given, packed)


def _run_object(codec: str, data: bytes) -> str:
    given, body = unpack(data)
    found = require_laws(partial(_opened, given["format"], codec), body, given)
    content = given["content"].encode("latin-1")
    checked = given["kind"] == "flipped" and codec in _CHECKED
    if content and found.error is None and (checked or given["kind"] == "whole"):
        plain = _opened(given["format"], "none", 1 << 20, 1_000)
        expected = deliver(plain, MemorySource(content), [0, len(content)], given["converter"])
        values = [value for _, value in found.values]
        assert values == [value for _, value in expected.values], "the original's records"
        assert [raw for _, raw in found.bad] == [raw for _, raw in expected.bad]
    # A seek table that states no content is refused.
    readable = given["kind"] == "whole" and (content or codec != "zstd-seekable")
    assert not readable or found.error is None, "a whole object is read"
    return outcome_of(found)


def _opened(name: str, codec: str, window: int, batch: int) -> Format:
    options = FormatOptions(compression=codec, window_bytes=window, batch_rows=batch)
    return open_format(name, options)


CODECS = tuple(
    Target(codec, 3, partial(_object, codec), partial(_run_object, codec)) for codec in _PACKERS
)
