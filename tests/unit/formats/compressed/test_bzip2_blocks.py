"""bzip2 by blocks: found at any bit, honest files exact, damage and planted blocks are errors."""

import bz2
import random
from itertools import pairwise

import pytest
from tests.laws.compression_cases import (
    BLOCK_MAGIC,
    END_MAGIC,
    block_bits,
    bzip2,
    bzip2_stream,
)
from tests.laws.laws import decoded, extent_of
from tests.support.golden import Golden

from extentflow.errors import Conflict, CorruptObject, UnsupportedFormat
from extentflow.formats import Chunk, FormatOptions
from extentflow.formats.compressed.bzip2_blocks import marks_in
from extentflow.formats.csv.csv_format import open_csv
from extentflow.formats.text.line_format import LineFormat
from extentflow.formats.text.text_format import open_text
from extentflow.testing.stores import MemorySource

LINES = [f"line {number} {number * 7919 % 1000}" for number in range(20_000)]
BODY = "\n".join(LINES).encode()


def text(overlap_bytes: int = 16 << 10, charset: str | None = None) -> LineFormat:
    return open_text(
        FormatOptions(compression="bzip2-blocks", overlap_bytes=overlap_bytes, charset=charset)
    )


def values(packed: bytes, *cuts: int, overlap_bytes: int = 100) -> list[str]:
    result = decoded(text(overlap_bytes), MemorySource(packed), (0, *cuts, len(packed)))
    return [row["value"] for row in result.rows]


def everywhere(packed: bytes, step: int) -> range:
    return range(step, len(packed), step)


@pytest.mark.parametrize("level", [1, 2, 5, 9])
def test_streams_of_every_level_are_cut_anywhere(level: int) -> None:
    packed = bz2.compress(BODY, level)

    assert values(packed, *everywhere(packed, len(packed) // 7)) == LINES


def test_the_streams_of_parallel_writers_are_cut_anywhere() -> None:
    parts = [BODY[at : at + 33_333] for at in range(0, len(BODY), 33_333)]
    packed = bz2.compress(b"") + b"".join(map(bz2.compress, parts)) + bz2.compress(b"") * 3

    assert values(packed, *everywhere(packed, 1_001)) == LINES


def test_an_extent_without_bytes_owns_nothing() -> None:
    packed = bz2.compress(BODY)

    assert values(packed, 0, 0, 100, 100, len(packed)) == LINES


def test_blocks_of_one_stream_begin_at_any_bit() -> None:
    parts = [BODY[at : at + 1_000] for at in range(0, 40_000, 1_000)]
    packed, begins = bzip2_stream(parts)

    assert {bit % 8 for bit in begins} == set(range(8))
    assert values(packed, *everywhere(packed, 50)) == b"".join(parts).decode().split("\n")


def test_an_extent_reads_little_more_than_its_blocks_and_the_next_one() -> None:
    body = random.Random(1).randbytes(3_000_000).replace(b"\n", b"-") + b"\nend\n"
    packed = bz2.compress(body, 1)
    cuts = [0, *range(1_000_000, len(packed), 1_000_000), len(packed)]

    for start, end in pairwise(cuts):
        source = MemorySource(packed)
        fmt = open_text(
            FormatOptions(compression="bzip2-blocks", window_bytes=1 << 20, validate_text=False)
        )
        list(fmt.decode(source, extent_of(source, start, end), 0))
        behind = sum(high - max(low, end) for low, high in source.reads if high > end)
        assert behind <= len(packed) - end
        assert all(high - low <= 1 << 20 for low, high in source.reads)


def test_blocks_before_an_extent_show_what_is_quoted() -> None:
    """The content of the extent fits both: a quoted field may hold all of its lines."""
    rows = [{"a": str(number), "b": f",\n{number * 7919:x},\n"} for number in range(12_000)]
    rows[4_000]["b"] = "".join(f"{number},\n" for number in range(20_000))
    body = "a,b\n" + "".join(f'{row["a"]},"{row["b"]}"\n' for row in rows)
    packed = b"".join(
        bz2.compress(body[at : at + 30_000].encode()) for at in range(0, len(body), 30_000)
    )
    source = MemorySource(packed)
    fmt = open_csv(FormatOptions(compression="bzip2-blocks"))

    result = decoded(fmt, source, (0, *everywhere(packed, 7_000), len(packed)))

    assert (result.rows, result.bad) == (rows, [])


def test_marks_are_found_at_every_bit_and_only_there() -> None:
    chance = random.Random(3)
    for bit in range(64):
        for mark, is_block in ((BLOCK_MAGIC, True), (END_MAGIC, False)):
            size = 160
            noise = chance.getrandbits(size)
            hole = ((1 << 48) - 1) << (size - 48 - bit)
            data = (noise & ~hole | mark << (size - 48 - bit)).to_bytes(size // 8, "big")

            assert marks_in(data) == [(bit, is_block)]
            assert marks_in(data[: (bit + 48) // 8]) == ([(bit, is_block)] if bit % 8 == 0 else [])


def test_no_two_marks_begin_in_one_byte() -> None:
    """So a byte names a block."""
    for first in (BLOCK_MAGIC, END_MAGIC):
        for second in (BLOCK_MAGIC, END_MAGIC):
            for shift in range(1, 8):
                assert first & ((1 << (48 - shift)) - 1) != second >> shift


def test_trap_t21_truncation_anywhere_is_an_error() -> None:
    packed, _ = bzip2(BODY[:3_000], lambda: 700, 2)
    ends = {
        end for end in range(1, len(packed)) if packed[end:].startswith(b"BZh")
    }  # looks complete
    for size in sorted(set(range(1, len(packed), 3)) - ends):
        with pytest.raises((CorruptObject, UnsupportedFormat), match="memory/object"):
            values(packed[:size], size // 2, size - 1)


@pytest.mark.parametrize("garbage", [b"x", b"\0" * 20, b"BZh", b"BZh9", b"BZh91AY&SY", b"BZh0" * 9])
def test_trap_t21_other_bytes_behind_the_last_stream_are_an_error(garbage: bytes) -> None:
    packed, _ = bzip2(BODY[:3_000], lambda: 700, 2)

    for cut in (1, len(packed) // 2, len(packed) - 1, len(packed) + len(garbage) - 1):
        with pytest.raises(CorruptObject, match=r"bzip2: .*file\.compression\.split=false"):
            values(packed + garbage, cut)


def test_a_flipped_bit_is_an_error_or_changes_nothing() -> None:
    packed, _ = bzip2(b"some text\nand more\nand the end\n" * 3, lambda: 20, 2)
    sound = values(packed)
    cuts = everywhere(packed, len(packed) // 4)
    for at in range(len(packed)):
        damaged = packed[:at] + bytes([packed[at] ^ 4]) + packed[at + 1 :]
        try:
            read = values(damaged, *cuts)
        except (CorruptObject, UnsupportedFormat):
            continue
        # The level of a stream, and bits that fill a byte.
        assert read == sound, at


def test_a_damaged_block_fails_the_extent_before_it_or_its_own(golden: Golden) -> None:
    """An extent that cannot decompress its first block takes the next one for it."""
    packed, begins = bzip2_stream([BODY[at : at + 2_000] for at in range(0, 20_000, 2_000)])
    bit = begins[4]
    at = (bit >> 3) + 200
    damaged = packed[:at] + bytes([packed[at] ^ 16]) + packed[at + 1 :]
    cut = (begins[3] >> 3) + 10

    with golden.raises(CorruptObject, match=f"byte {bit >> 3}"):
        chunks_of(damaged, 0, cut)


def chunks_of(packed: bytes, start: int, end: int, overlap_bytes: int = 100) -> list[Chunk]:
    source = MemorySource(packed)
    return list(text(overlap_bytes).decode(source, extent_of(source, start, end), 0))


def test_a_position_at_which_no_block_begins_is_an_error() -> None:
    packed = bz2.compress(BODY, 1)
    source = MemorySource(packed)
    for position in (5 << 26, (4 << 26) + 900_000, (len(packed) - 3) << 26):
        with pytest.raises(CorruptObject, match="decoding resumes"):
            list(text().decode(source, extent_of(source, 0, len(packed)), position))


def test_utf16_is_planned_as_one_extent_and_resumes() -> None:
    packed, _ = bzip2("\ufeffa\nbc\nd\n".encode("utf-16-le"), lambda: 3, 9)
    source = MemorySource(packed)
    fmt = text()

    assert list(fmt.plan(source, 10)) == [(0, len(packed))]
    assert values(packed) == ["a", "bc", "d"]
    extent = extent_of(source, 0, len(packed))
    one_by_one = open_text(FormatOptions(compression="bzip2-blocks", batch_rows=1))
    positions = [chunk.next_position for chunk in one_by_one.decode(source, extent, 0)]
    rest = [chunk.batch.num_rows for chunk in one_by_one.decode(source, extent, positions[0])]
    assert (len(positions), sum(rest)) == (3, 2)
    with pytest.raises(Conflict, match="one extent"):
        list(fmt.decode(source, extent_of(source, 0, 30), 0))


# -- blocks that hold other bits than their writer's -----------------------------------------------

# Of 21 symbols, those of runs and the end have the longest codes: any bits are symbols of others.
SYMBOLS = [19, 20, *range(1, 19), 20]
CODES = {
    **{"1" * ones + "0": ones + 2 for ones in range(18)},
    "1" * 18 + "0": 0,
    "1" * 19 + "0": 1,
    "1" * 20: 20,
}
IN_USE = [*range(97, 97 + 18), 10]


def crc_of(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ 0x04C11DB7 * (crc >> 31)) & 0xFFFFFFFF
    return crc ^ 0xFFFFFFFF


def symbols_of(bits: str) -> tuple[list[int], str]:
    """Return the symbols of bits, and the bits with what completes the last symbol."""
    symbols, code = [], ""
    for bit in bits:
        code += bit
        if code in CODES:
            symbols.append(CODES[code])
            code = ""
    while code:
        code, bits = code + "0", bits + "0"
        if code in CODES:
            symbols.append(CODES[code])
            code = ""
    assert not {0, 1, 20} & set(symbols)
    return symbols, bits


def content_of_symbols(symbols: list[int]) -> bytes:
    """Undo move-to-front, Burrows-Wheeler from row 0, and the first run-length code."""
    front, last = sorted(IN_USE), []
    for symbol in symbols:
        front.insert(0, front.pop(symbol - 1))
        last.append(front[0])
    order = sorted(range(len(last)), key=lambda at: last[at])
    at, column = order[0], []
    for _ in last:
        column.append(last[at])
        at = order[at]
    content, run = bytearray(), 0
    for byte in column:
        if run == 4:
            content += bytes([content[-1]]) * byte
            run = 0
        else:
            run = run + 1 if content and content[-1] == byte and run else 1
            content.append(byte)
    return bytes(content)


def block_of(bits: str) -> tuple[int, int, bytes]:
    """Return a block whose coded symbols are `bits`: a number, its size, and its content."""
    symbols, bits = symbols_of(bits)
    content = content_of_symbols(symbols)
    used = [
        f"{sum(32768 >> (byte & 15) for byte in IN_USE if byte >> 4 == row):016b}"
        for row in range(16)
    ]
    rows = "".join("1" if int(row, 2) else "0" for row in used)
    table, size = f"{SYMBOLS[0]:05b}", SYMBOLS[0]
    for wanted in SYMBOLS:
        table += ("10" if wanted > size else "11") * abs(wanted - size) + "0"
        size = wanted
    selectors = -(-(len(symbols) + 1) // 50)
    written = (
        f"{BLOCK_MAGIC:048b}{crc_of(content):032b}0{0:024b}{rows}"
        + "".join(row for row in used if int(row, 2))
        + f"{2:03b}{selectors:015b}"
        + "0" * selectors
        + table * 2
        + bits
        + "1" * 20
    )
    return int(written, 2), len(written), content


def stream_of(blocks: list[tuple[int, int]]) -> bytes:
    bits, checksum = f"{int.from_bytes(b'BZh9', 'big'):032b}", 0
    for block, size in blocks:
        bits += f"{block:0{size}b}"
        crc = block >> (size - 80) & 0xFFFFFFFF
        checksum = ((checksum << 1 | checksum >> 31) & 0xFFFFFFFF) ^ crc
    bits += f"{END_MAGIC:048b}{checksum:032b}"
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def noise(seed: int, size: int) -> str:
    return f"{random.Random(seed).getrandbits(size):0{size}b}"


def test_a_mark_within_a_block_by_chance_changes_nothing() -> None:
    planted = (
        noise(1, 400) + f"{BLOCK_MAGIC:048b}" + noise(2, 500) + f"{END_MAGIC:048b}" + noise(3, 300)
    )
    block, size, content = block_of(planted)
    first, last = block_bits(b"first\nblock"), block_bits(b"last\nblock")
    packed = stream_of([first, (block, size), last])
    assert len(marks_in(packed)) == 6
    assert bz2.decompress(packed) == b"first\nblock" + content + b"last\nblock"
    lines = [row.encode("latin-1") for row in bz2.decompress(packed).decode("latin-1").split("\n")]

    for cut in range(1, len(packed)):
        assert [one.encode("latin-1") for one in values(packed, cut, overlap_bytes=1)] == lines
    assert len(values(packed, *range(1, len(packed)), overlap_bytes=3)) == len(lines)


def test_a_block_within_another_one_fails_the_job() -> None:
    """A reader that begins between them reads the planted block; the owner of the outer fails."""
    inner, inner_size = block_bits(b"false\nrecord\n")
    planted = noise(1, 400) + f"{inner:0{inner_size}b}{BLOCK_MAGIC:048b}" + noise(2, 300)
    block, size, _ = block_of(planted)
    packed = stream_of([block_bits(b"first\n" * 9), (block, size), block_bits(b"last\nblock" * 9)])
    bz2.decompress(packed)
    outer = marks_in(packed)[1][0] >> 3

    for cut in range(1, len(packed) + 1):
        owner = (0, cut) if outer < cut else (cut, len(packed))
        with pytest.raises(CorruptObject, match="holds another one, at byte"):
            chunks_of(packed, *owner)
