"""BGZF: blocks are found from any byte, and damage, truncation and ambiguity are errors."""

import gzip
from contextlib import suppress

import pytest
from tests.laws.compression_cases import END_MARKER, bgzf, block
from tests.laws.laws import decoded, extent_of
from tests.support.golden import Golden

from extentflow.errors import CorruptObject, UnsupportedFormat
from extentflow.formats import FormatOptions
from extentflow.formats.compressed.bgzf import MOST_BLOCK_BYTES, first_block
from extentflow.formats.text.text_format import open_text
from extentflow.testing.stores import MemorySource

LINES = [f"line {number}" for number in range(30_000)]
BODY = "\n".join(LINES).encode()
PACKED, _ = bgzf(BODY, lambda: 40_000)


def values(packed: bytes, *cuts: int, charset: str | None = None) -> list[str]:
    fmt = open_text(FormatOptions(compression="bgzf", charset=charset))
    result = decoded(fmt, MemorySource(packed), (0, *cuts, len(packed)))
    return [row["value"] for row in result.rows]


def test_its_content_is_what_gzip_reads() -> None:
    assert gzip.decompress(PACKED) == BODY
    assert values(PACKED) == LINES
    assert values(PACKED, *range(1000, len(PACKED), 1000)) == LINES


def test_extents_of_a_cut_object_read_little_more_than_their_own_bytes() -> None:
    packed, _ = bgzf(BODY * 12, lambda: 60_000)
    source = MemorySource(packed)
    fmt = open_text(FormatOptions(compression="bgzf"))
    cuts = [0, *(end for _, end in fmt.plan(source, len(packed) // 4))]

    result = decoded(fmt, source, cuts)

    assert len(cuts) > 4
    assert len(result.rows) == 12 * (len(LINES) - 1) + 1
    most = len(packed) + len(cuts) * (4 * MOST_BLOCK_BYTES)
    assert sum(end - start for start, end in source.reads) <= most


@pytest.mark.parametrize("size", [1, 20, 30, 40_000, len(PACKED) - 29, len(PACKED) - 1])
def test_trap_t21_truncation_is_an_error(size: int) -> None:
    with pytest.raises((CorruptObject, UnsupportedFormat), match="memory/object"):
        values(PACKED[:size])


def test_trap_t21_a_missing_end_marker_is_truncation(golden: Golden) -> None:
    with golden.raises(CorruptObject):
        values(PACKED.removesuffix(END_MARKER))


# Without a time: workers of pytest-xdist must collect the same names.
@pytest.mark.parametrize(
    "garbage", [b"x", b"\0" * 20, b"\x1f\x8b\x08\x04", gzip.compress(b"x", mtime=0)]
)
def test_trap_t21_other_bytes_behind_the_last_block_are_an_error(garbage: bytes) -> None:
    with pytest.raises(CorruptObject, match="bgzf"):
        values(PACKED + garbage)


def test_a_flipped_bit_is_an_error_or_changes_nothing_that_is_read() -> None:
    packed, _ = bgzf(b"some text\nand more\n", lambda: 10)
    for at in range(len(packed)):
        damaged = packed[:at] + bytes([packed[at] ^ 4]) + packed[at + 1 :]
        try:
            read = values(damaged)
        except (CorruptObject, UnsupportedFormat):
            continue
        assert read == ["some text", "and more"], at


def test_plain_gzip_is_refused_with_the_setting_that_reads_it(golden: Golden) -> None:
    with golden.raises(CorruptObject, match=r"file\.compression\.type=gzip"):
        values(gzip.compress(BODY))


def test_utf16_is_refused_with_the_setting_that_reads_it(golden: Golden) -> None:
    packed, _ = bgzf("\ufeffa\n".encode("utf-16-le"), lambda: 100)

    with golden.raises(UnsupportedFormat, match=r"file\.compression\.type=gzip"):
        values(packed)


def test_blocks_that_can_begin_at_several_places_are_an_error_never_a_guess() -> None:
    inner = block(b"inner\n", level=0, extra=b"")
    # Stored content whose blocks jump over the headers between the outer ones.
    outer: list[bytes] = []
    for _ in range(400):
        padding = b"XX" + (31).to_bytes(2, "little") + bytes(31)
        outer.append(block(inner + block(b"", level=0, extra=padding), level=0))
    packed = b"".join(outer) + END_MARKER

    sound = {*range(0, len(packed), len(outer[0])), len(packed) - len(END_MARKER)}
    for start in range(100, len(packed) - 200, 3001):
        with suppress(CorruptObject):
            assert first_block(MemorySource(packed), start, 1)[0] in sound


def test_content_before_empty_blocks_is_found() -> None:
    packed = block(b"a\nb") + block(b"") * 4000 + block(b"c\nd\n") + END_MARKER
    start = len(packed) - 60

    assert first_block(MemorySource(packed), start, 1)[1] == b"b"
    assert values(packed, 10, start - 50_000, start) == ["a", "bc", "d"]


def test_a_position_within_a_block_that_does_not_exist_is_an_error(golden: Golden) -> None:
    packed, _ = bgzf(b"a\nb\n", lambda: 2)
    source = MemorySource(packed)
    fmt = open_text(FormatOptions(compression="bgzf"))

    with golden.raises(CorruptObject):
        list(fmt.decode(source, extent_of(source, 0, len(packed)), 7))
