"""Compressed objects: every member and frame, loud truncation, bounded memory, honest faults."""

import bz2
import gzip
import tracemalloc
import zlib
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.compression_cases import SNAPPY_END, SNAPPY_START, snappy
from tests.laws.laws import FailsOnce, decoded, extent_of
from tests.support.golden import Golden

from extentflow.errors import (
    Conflict,
    CorruptObject,
    ObjectChanged,
    StoreUnavailable,
    UnsupportedFormat,
)
from extentflow.formats import FormatOptions
from extentflow.formats.compressed.compression import decompress
from extentflow.formats.text.line_format import LineFormat
from extentflow.formats.text.text_format import open_text
from extentflow.testing.stores import MemorySource

MIB = 1 << 20
LINES = [f"line {number}" for number in range(200)]
BODY = "\n".join(LINES).encode()


def zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(body)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstd,
    "bzip2": bz2.compress,
    "lz4": lambda body: pa.Codec("lz4").compress(body, asbytes=True),
    "snappy": lambda body: snappy(body)[: -len(SNAPPY_END)],
}
codecs = pytest.mark.parametrize("codec", sorted(PACKERS))


def text(codec: str, window_bytes: int = MIB) -> LineFormat:
    return open_text(FormatOptions(compression=codec, window_bytes=window_bytes))


def unpacked(pieces: Iterator[bytes], codec: str, step_bytes: int = 64) -> Iterator[bytes]:
    return decompress(pieces, codec, step_bytes=step_bytes, uri="s3://bucket/key[0-9)")


def values(packed: bytes, codec: str, window_bytes: int = MIB) -> list[str]:
    result = decoded(text(codec, window_bytes), MemorySource(packed), (0, len(packed)))
    return [row["value"] for row in result.rows]


def in_pieces(body: bytes, size: int) -> Iterator[bytes]:
    return (body[at : at + size] for at in range(0, len(body), size))


@codecs
@pytest.mark.parametrize("window_bytes", [2, 100, MIB])
def test_trap_t21_every_member_and_frame_is_read(codec: str, window_bytes: int) -> None:
    """Trap: only the first gzip member or zstd frame was read."""
    pack = PACKERS[codec]
    packed = pack(BODY[:500]) + pack(b"") + pack(BODY[500:501]) + pack(BODY[501:])

    assert values(packed, codec, window_bytes) == LINES


@codecs
def test_trap_t21_truncation_anywhere_is_an_error_and_never_the_end(codec: str) -> None:
    pack = PACKERS[codec]
    first = pack(BODY[:500])
    packed = first + pack(BODY[500:])

    # Whole members are whole objects, and so are whole chunks of snappy.
    whole = {len(first), len(SNAPPY_START), len(first) + len(SNAPPY_START)}
    for size in range(len(SNAPPY_START), len(packed)):
        if size == len(first) or (codec == "snappy" and size in whole):
            continue
        with pytest.raises(CorruptObject, match=r"memory/object.*runcated"):
            values(packed[:size], codec)


@codecs
def test_trap_t21_large_content_of_many_members_is_complete(codec: str) -> None:
    count, size = 40, 5_000
    members = [PACKERS[codec](b"%06d\n" % number * size) for number in range(count)]

    content = b"".join(unpacked(iter(members), codec, MIB))

    assert len(content) == count * size * 7
    assert content[-7:] == b"000039\n"


@codecs
@pytest.mark.parametrize("garbage", [b"garbage", b"\x1f", b"(", b"\n", b"\0\0x"])
def test_bytes_behind_the_last_member_are_an_error(codec: str, garbage: bytes) -> None:
    with pytest.raises(CorruptObject, match=codec):
        values(PACKERS[codec](BODY) + garbage, codec)


@pytest.mark.parametrize("window_bytes", [2, MIB])
def test_zeros_behind_gzip_members_are_padding(window_bytes: int) -> None:
    packed = gzip.compress(BODY[:500]) + bytes(600) + gzip.compress(BODY[500:]) + bytes(100_000)

    assert values(packed, "gzip", window_bytes) == LINES


@pytest.mark.parametrize("codec", ["gzip", "zstd", "bzip2", "snappy"])  # lz4 as packed has no sums
def test_damaged_bytes_are_an_error(codec: str) -> None:
    packed = PACKERS[codec](BODY)

    for location in range(len(packed) - 8, len(packed)):
        damaged = packed[:location] + bytes([packed[location] ^ 0xFF]) + packed[location + 1 :]
        with pytest.raises(CorruptObject, match="memory/object"):
            values(damaged, codec)


@codecs
def test_a_fault_of_the_source_passes_through_unchanged(codec: str) -> None:
    packed = PACKERS[codec](BODY)
    fault = ObjectChanged("replaced")

    with pytest.raises(ObjectChanged) as caught:
        decoded(text(codec, 50), FailsOnce(packed, 4, fault), (0, len(packed)))

    assert caught.value is fault


def test_an_operating_system_s_fault_is_not_taken_for_damage() -> None:
    def pieces() -> Iterator[bytes]:
        yield zstd(BODY)[:10]
        raise ConnectionResetError("reset")

    with pytest.raises(ConnectionResetError):
        list(unpacked(pieces(), "zstd"))


@codecs
def test_a_highly_compressed_object_needs_no_more_memory(codec: str) -> None:
    size = (8 if codec == "snappy" else 32) * MIB  # its checksums take time
    packed = PACKERS[codec](bytes(size)) * 2

    tracemalloc.start()
    total = sum(map(len, unpacked(iter([packed]), codec, MIB)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert total == 2 * size
    assert peak < 8 * MIB


@codecs
@given(
    members=st.lists(st.binary(max_size=300), min_size=1, max_size=4),
    piece=st.integers(1, 40),
    step=st.integers(1, 100),
)
@settings(deadline=None, max_examples=60)
def test_content_is_the_same_in_any_pieces_and_steps(
    codec: str, members: list[bytes], piece: int, step: int
) -> None:
    packed = b"".join(map(PACKERS[codec], members))

    pieces = list(unpacked(in_pieces(packed, piece), codec, step))

    assert b"".join(pieces) == b"".join(members)
    assert all(step <= len(each) < 2 * step for each in pieces[:-1])


def test_gzip_members_may_be_stored_uncompressed_and_carry_names() -> None:
    stored = zlib.compressobj(0, wbits=16 + zlib.MAX_WBITS)
    header = b"\x1f\x8b\x08\x08" + bytes(6) + b"name.txt\0"
    named = header + gzip.compress(BODY[100:], mtime=0)[10:]

    packed = stored.compress(BODY[:100]) + stored.flush() + named

    assert values(packed, "gzip", 3) == LINES


@codecs
def test_a_position_is_a_place_in_the_content(codec: str, golden: Golden) -> None:
    packed = PACKERS[codec](BODY)
    source = MemorySource(packed)
    extent = extent_of(source, 0, len(packed))
    at = BODY.index(b"line 150")

    chunks = list(text(codec).decode(source, extent, at))

    assert [row["value"] for chunk in chunks for row in chunk.batch.to_pylist()] == LINES[150:]
    assert chunks[0].locations[0] == at
    assert list(text(codec).decode(source, extent, len(BODY))) == []
    with golden.raises(CorruptObject, match=f"{len(BODY)}"):
        list(text(codec).decode(source, extent, len(BODY) + 1))


@codecs
def test_a_compressed_object_is_one_extent(codec: str) -> None:
    source = MemorySource(PACKERS[codec](BODY))
    fmt = text(codec)
    size = source.version.size

    assert not fmt.splittable
    assert list(fmt.plan(source, 10)) == [(0, size)]
    with pytest.raises(Conflict, match="has one extent"):
        list(fmt.decode(source, extent_of(source, 0, size - 1), 0))


@codecs
def test_an_object_that_is_not_compressed_is_rejected(codec: str, golden: Golden) -> None:
    with golden.raises(UnsupportedFormat, match=r"file\.compression\.type=none"):
        values(b"plain text\n", codec)


def test_a_frame_that_wants_too_large_a_window_is_an_error() -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=29, enable_ldm=True)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()

    with pytest.raises(CorruptObject, match="too much memory"):
        values(packer.compress(BODY) + packer.flush(), "zstd")


@codecs
def test_a_stream_that_ends_early_is_the_source_s_fault(codec: str) -> None:
    class Short(MemorySource):
        def stream(
            self, start: int, end: int, *, window_bytes: int | None = None
        ) -> Iterator[bytes]:
            return super().stream(start, end - 1, window_bytes=window_bytes)

    packed = PACKERS[codec](BODY)

    with pytest.raises(StoreUnavailable):
        decoded(text(codec), Short(packed), (0, len(packed)))
