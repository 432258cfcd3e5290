"""Seekable zstd: cut at frames, and a table that lies is an error, never a wrong record."""

import io
import struct
from itertools import pairwise

import pytest
import zstandard
from pyzstd import SeekableZstdFile
from tests.laws.compression_cases import seek_table, seekable
from tests.laws.laws import decoded, extent_of
from tests.support.golden import Golden

from extentflow.errors import CorruptObject, ExtentflowError
from extentflow.formats import FormatOptions
from extentflow.formats.compressed.zstd_frames import FrameSource, FrameTable, has_table
from extentflow.formats.text.line_format import LineFormat
from extentflow.formats.text.text_format import open_text
from extentflow.testing.stores import MemorySource

LINES = [f"line {number} {number * 7919 % 100_003}" for number in range(60_000)]
BODY = "\n".join(LINES).encode()
PARTS = [b"ab\ncd\ne", b"f\nghi\n", b"jkl\nm"]
FRAMES = [zstandard.ZstdCompressor().compress(part) for part in PARTS]
SIZES = [(len(frame), len(part)) for frame, part in zip(FRAMES, PARTS, strict=True)]


def text(overlap_bytes: int = 16 << 10) -> LineFormat:
    return open_text(FormatOptions(compression="zstd-seekable", overlap_bytes=overlap_bytes))


def values(packed: bytes, *cuts: int, overlap_bytes: int = 1) -> list[str]:
    result = decoded(text(overlap_bytes), MemorySource(packed), (0, *cuts, len(packed)))
    return [row["value"] for row in result.rows]


def written(body: bytes, frame_bytes: int) -> bytes:
    """Return what pyzstd's writer makes of a body."""
    packed = io.BytesIO()
    with SeekableZstdFile(packed, "w", max_frame_content_size=frame_bytes) as file:
        file.write(body)
    return packed.getvalue()


@pytest.mark.parametrize("frame_bytes", [3_000, 50_000, 1 << 30])
def test_what_another_writer_makes_is_cut_anywhere(frame_bytes: int) -> None:
    packed = written(BODY, frame_bytes)

    assert values(packed, *range(999, len(packed), len(packed) // 9), overlap_bytes=500) == LINES


def test_plans_cut_at_frames() -> None:
    packed = written(BODY, 50_000)
    source = MemorySource(packed)

    cuts = list(text(10).plan(source, 40_000))

    table = FrameTable.read(source, 1)
    assert len(cuts) > 3
    assert {start for start, _ in cuts} < set(table.starts)
    assert cuts[-1][1] == len(packed)
    assert [*source.reads[:1]] == [(len(packed) - (64 << 10), len(packed))]


def test_an_extent_reads_its_frames_and_what_ends_its_last_record() -> None:
    packed = written(BODY * 3, 100_000)
    source = MemorySource(packed)
    fmt = text(1_000)
    cuts = [0, *(end for _, end in fmt.plan(source, len(packed) // 4))]
    source.reads.clear()

    for start, end in pairwise(cuts):
        before = len(source.reads)
        list(fmt.decode(source, extent_of(source, start, end), 0))
        of_extent = source.reads[before:]
        assert min(low for low, high in of_extent if high > 4096) >= start
        assert sum(high - low for low, high in of_extent) <= end - start + (200 << 10)


def test_locations_are_those_of_the_stream() -> None:
    packed = written(BODY, 3_000)
    whole = decoded(
        open_text(FormatOptions(compression="zstd")), MemorySource(packed), (0, len(packed))
    )

    cut = decoded(text(100), MemorySource(packed), (0, 5_000, 70_000, len(packed)))

    assert cut == whole


def test_large_tables_are_kept_as_groups_of_frames() -> None:
    part = b"x\n"
    frame = zstandard.ZstdCompressor().compress(part)
    count = 20_000
    packed = frame * count + seek_table([(len(frame), len(part))] * count)

    table = FrameTable.read(MemorySource(packed), 1_000)

    assert len(table.starts) <= len(packed) // 1_000 + 2
    assert (table.starts[-1], table.contents[-1]) == (len(frame) * count, 2 * count)
    assert values(packed, 100_000, 100_001, overlap_bytes=64) == ["x"] * count


def table_of(*sizes: tuple[int, int]) -> bytes:
    return b"".join(FRAMES) + seek_table(sizes)


(A, a), (B, b), (C, c) = SIZES
FOOTER_AT = -9

HOSTILE = {
    "frames-missing": table_of(*SIZES[:2]),
    "too-many-frames": table_of(*SIZES, (20, 20)),
    "sizes-too-large": table_of((A, a), (B + 1, b), (C, c)),
    "sizes-too-small": table_of((A, a), (B - 1, b), (C, c)),
    "content-without-bytes": table_of((A, a), (B, b), (0, 5), (C, c)),
    "no-frames": b"".join(FRAMES) + seek_table([]),
    "no-content": table_of((A, 0), (B, 0), (C, 0)),
    "huge-content": table_of((A, a), (B, 0xFFFFFFFF), (C, c)),
    "huge-count": table_of(*SIZES)[:FOOTER_AT] + struct.pack("<IBI", 0xFFFFFFFF, 0, 0x8F92EAB1),
    "count-beyond-the-object": table_of(*SIZES)[:FOOTER_AT]
    + struct.pack("<IBI", 1_000, 0, 0x8F92EAB1),
    "checksums-that-are-none": table_of(*SIZES)[:FOOTER_AT]
    + struct.pack("<IBI", 3, 0x80, 0x8F92EAB1),
    "another-frame": b"".join(FRAMES) + seek_table(SIZES).replace(b"\x5e\x2a", b"\x5f\x2a"),
    "only-the-last-of-two": table_of(*SIZES) + table_of(*SIZES),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_table_that_contradicts_the_object_is_an_error_at_planning(name: str) -> None:
    source = MemorySource(HOSTILE[name])

    with pytest.raises(CorruptObject, match=r"memory/object.*file\.compression\.split=false"):
        list(text(1).plan(source, 10))


LYING = {
    "content-moved": table_of((A, a + 1), (B, b - 1), (C, c)),
    "content-moved-back": table_of((A, a - 1), (B, b + 1), (C, c)),
    "bytes-moved": table_of((A + 1, a), (B - 1, b), (C, c)),
    "bytes-moved-back": table_of((A - 3, a), (B + 3, b), (C, c)),
    "frame-without-content": table_of((A, a), (B, 0), (C, c)),
    "first-without-content": table_of((A, 0), (B, b), (C, c)),
    "last-without-content": table_of((A, a), (B, b), (C, 0)),
    "more-content": table_of((A, a), (B, b), (C, c + 10)),
    "less-content": table_of((A, a), (B, b), (C, c - 1)),
    "less-content-in-the-middle": table_of((A, a), (B, b - 2), (C, c)),
    "two-frames-as-one": b"".join(FRAMES) + seek_table([(A + B, a + b - 1), (C, c + 1)]),
}


@pytest.mark.parametrize("name", LYING)
@pytest.mark.parametrize("overlap_bytes", [1, 2, 5, 100])
def test_a_table_that_lies_about_frames_fails_an_extent_of_every_partition(
    name: str, overlap_bytes: int
) -> None:
    """Only a lie about frames within a group, which is read as a whole, can change nothing."""
    packed = LYING[name]
    sound = b"".join(PARTS).decode().split("\n")
    for cuts in [(), *((cut,) for cut in range(1, len(packed), 2)), (A, A + B), (5, A + 5, A + B)]:
        failed, read = [], list[str]()
        for start, end in pairwise((0, *cuts, len(packed))):
            source = MemorySource(packed)
            try:
                read += [
                    row["value"] for row in decoded(text(overlap_bytes), source, (start, end)).rows
                ]
            except CorruptObject as exc:
                failed.append(str(exc))
        assert all("file.compression.split=false" in why for why in failed)
        assert failed or read == sound, cuts
        assert failed or 4 * overlap_bytes >= A


def test_frames_within_a_frame_are_not_read_as_records(golden: Golden) -> None:
    """A stored block holds whole frames; the table leads to them."""
    inner = zstandard.ZstdCompressor().compress(b"false\n")
    # A frame of one stored block, without checksum (RFC 8878, section 3.1.1).
    content = b"true\n" + inner
    stored = b"\x28\xb5\x2f\xfd\x20" + bytes([len(content)])
    stored += (len(content) << 3 | 1).to_bytes(3, "little") + content
    head = len(stored) - len(inner)
    packed = stored + seek_table([(head, 5), (len(inner), 6)])
    source = MemorySource(packed)

    with golden.raises(CorruptObject, match=r"file\.compression\.split=false"):
        list(text(1).decode(source, extent_of(source, 0, head), 0))


def test_a_damaged_frame_is_an_error_that_names_its_bytes(golden: Golden) -> None:
    parts = [BODY[at : at + 50_000] for at in range(0, len(BODY), 50_000)]
    packed = bytearray(seekable(parts, checksums=True))
    packed[len(packed) // 2] ^= 8

    with golden.raises(CorruptObject, match="split=false"):
        values(bytes(packed))


def test_every_flipped_bit_is_an_error_or_changes_nothing() -> None:
    packed = seekable(PARTS, checksums=True)
    sound = values(packed)
    for at in range(len(packed)):
        damaged = packed[:at] + bytes([packed[at] ^ 1]) + packed[at + 1 :]
        if not has_table(MemorySource(damaged)):
            continue
        try:
            read = values(damaged, 20, len(packed) // 2)
        except ExtentflowError:
            continue
        assert read == sound, at


def test_objects_without_a_table_are_not_seekable() -> None:
    for packed in (b"", b"x", b"".join(FRAMES), table_of(*SIZES) + FRAMES[0]):
        assert not has_table(MemorySource(packed))
    assert has_table(MemorySource(table_of(*SIZES)))


def test_a_frame_of_any_size_is_read_in_small_pieces() -> None:
    content = b"0123456789abcde\n" * (8 << 20)
    frame = zstandard.ZstdCompressor().compress(content)
    packed = frame + seek_table([(len(frame), len(content))])
    source = MemorySource(packed)
    frames = FrameSource(source, FrameTable.read(source, 1), len(frame))

    sizes = [len(one) for one in frames.stream(3, len(content) - 5, window_bytes=1 << 20)]

    assert sum(sizes) == len(content) - 8
    assert max(sizes) < 4 << 20
