"""How much content of a compressed object no resume point divides, estimated from its head."""

import gzip
import random

import pyarrow as pa
import pytest
import zstandard

from extentflow.formats.compressed import compression
from extentflow.formats.compressed.compression import undivided_bytes

CONTENT = random.Random(1).randbytes(300_000).hex().encode()  # compresses to about a half
SKIPPABLE = (0x184D2A50).to_bytes(4, "little") + (12).to_bytes(4, "little") + b"x" * 12


def stream(content: bytes) -> bytes:
    """Compress as `zstd` does in a pipe: one frame, whose header states no size."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as compressed:
        compressed.write(content)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("size", [1, 200, 300, 70_000, len(CONTENT)])
@pytest.mark.parametrize("before", [b"", SKIPPABLE])
def test_the_header_of_a_frame_states_its_content(size: int, before: bytes) -> None:
    frame = zstandard.ZstdCompressor().compress(CONTENT[:size])

    assert undivided_bytes("zstd", before + frame[:100], 1 << 40) == size


def test_a_frame_without_a_size_is_estimated_from_its_head() -> None:
    frame = stream(CONTENT)
    head, size = frame[: len(frame) // 2], 10**12

    estimate = undivided_bytes("zstd", head, size)

    assert estimate / size == pytest.approx(len(CONTENT) / len(frame), rel=0.5)


def test_a_head_that_begins_with_repetition_says_nothing_about_the_rest() -> None:
    """Such objects were refused for functions, which can deliver them."""
    repeated = b"# a comment that is repeated\n" * (1 << 22)
    frame = stream(repeated + random.Random(2).randbytes(4 << 20))

    estimate = undivided_bytes("zstd", frame, 10**12)

    assert len(repeated) / len(frame) > 20
    assert estimate / 10**12 < 2


@pytest.mark.parametrize("before", [b"", SKIPPABLE])
def test_frames_that_end_in_the_head_divide_the_object(before: bytes) -> None:
    assert undivided_bytes("zstd", before + stream(CONTENT) + stream(CONTENT)[:50], 10**12) == 0


def test_gzip_is_divided_by_its_blocks_where_the_library_can_resume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed = gzip.compress(CONTENT)
    divided = undivided_bytes("gzip", packed[:100_000], 10**12)
    monkeypatch.setattr(compression, "can_resume", lambda _codec: False)

    undivided = undivided_bytes("gzip", packed[:100_000], 10**12)

    assert divided == 0
    assert undivided / 10**12 == pytest.approx(len(CONTENT) / len(packed), rel=0.2)


@pytest.mark.parametrize("head", [b"", b"\x28\xb5", b"no zstd at all", SKIPPABLE, SKIPPABLE[:6]])
def test_a_damaged_head_is_left_to_the_worker(head: bytes) -> None:
    assert undivided_bytes("zstd", head, 10**12) == 0
