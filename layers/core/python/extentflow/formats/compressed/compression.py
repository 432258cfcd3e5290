"""Decompress streams in constant memory: gzip, zstd, bzip2, lz4, snappy; estimate their content.

Decompression can start at a `ResumePoint` that an earlier one has passed, for gzip and zstd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeAlias

from extentflow.config.connector import SPLIT_COMPRESSIONS
from extentflow.errors import CorruptObject
from extentflow.formats import ResumePoint, ResumePoints
from extentflow.formats.compressed import gzip_members
from extentflow.formats.compressed.frames import Corrupt, by_arrow, unbzip2, unsnappy
from extentflow.formats.compressed.gzip_members import gunzip, is_state
from extentflow.formats.compressed.zstd_groups import (
    FrameGroups,
    behind_skippable,
    stated_content,
    unzstd,
)

_PIECE_BYTES = 64 << 10
_SAMPLE_BYTES = 1 << 20
# Some seconds of decompression, where samples are all repetition.
_MOST_SAMPLED_BYTES = 8 << 30

_Codec: TypeAlias = Callable[[Iterator[bytes], int, Corrupt, ResumePoints | None], Iterator[bytes]]


def decompress(
    compressed: Iterable[bytes],
    codec: str,
    *,
    step_bytes: int,
    uri: str,
    points: ResumePoints | None = None,
) -> Iterator[bytes]:
    """Yield the content of `compressed` in order, in pieces of at least `step_bytes`.

    Only the last piece may be shorter, and no piece reaches twice `step_bytes`. `codec` is one
    of CODECS. With `points`, `compressed` begins at `points.start`, and the points that are
    passed are added. Errors of the input propagate unchanged.

    Raises:
        CorruptObject: truncated, damaged, or followed by other bytes; names `uri`.
    """

    def corrupt(reason: str) -> CorruptObject:
        return CorruptObject(f"{uri}: {codec}: {reason}; replace the object, then run it again")

    # Small pieces in, bounded steps out: a highly compressed object needs no more memory.
    pieces = (
        piece[start : start + _PIECE_BYTES]
        for piece in compressed
        for start in range(0, len(piece), _PIECE_BYTES)
    )
    gathered: list[bytes] = []
    size = 0
    for step in CODECS[codec](pieces, step_bytes, corrupt, points):
        gathered.append(step)
        size += len(step)
        if size >= step_bytes:
            yield b"".join(gathered)
            gathered, size = [], 0
    if size:
        yield b"".join(gathered)


def can_resume(codec: str) -> bool:
    """Whether this process can start at a point; others, with other libraries, save points, too."""
    return codec == "zstd" or (codec == "gzip" and gzip_members.zlib_library() is not None)


def is_usable(point: ResumePoint, codec: str, size: int) -> bool:
    """Whether decompression of an object of `size` bytes can start at a point that was stored."""
    if not (0 <= point.compressed <= size and point.content >= 0):
        return False
    return is_state(point.state) if codec == "gzip" else not point.state


# They yield the content in steps of at most `step_bytes`.
_STREAMS: dict[str, _Codec] = {
    "gzip": gunzip,
    "zstd": unzstd,
    # BGZF is gzip for those who read it from the start, such as the head of an object.
    "bgzf": lambda pieces, step, corrupt, _: gunzip(pieces, step, corrupt, None),
    "bzip2": lambda pieces, step, corrupt, _: unbzip2(pieces, step, corrupt),
    "lz4": lambda pieces, step, corrupt, _: by_arrow("lz4", pieces, step, corrupt),
    "snappy": lambda pieces, step, corrupt, _: unsnappy(pieces, step, corrupt),
}
# What `file.compression.split` makes of codecs: read from the start, the objects are the same.
CODECS = _STREAMS | {name: _STREAMS[codec] for codec, name in SPLIT_COMPRESSIONS.items()}
_STREAM_CODECS = {name: codec for codec, name in SPLIT_COMPRESSIONS.items()}


def stream_codec(codec: str) -> str:
    """Return the codec with which a connector names an object that is read by `codec`."""
    return _STREAM_CODECS.get(codec, codec)


def undivided_bytes(codec: str, head: bytes, size: int) -> int:
    """Return about how much content of an object precedes its first resume point.

    `head` are its first bytes of `size`. A zstd frame that ends in `head` counts nothing, and the
    header of a longer one may state the size of its content. Otherwise the median ratio of the
    head's MiBs decides, because one that is all repetition says nothing about the others.
    """
    if codec == "gzip" and can_resume(codec):
        return 0
    if codec == "zstd":
        head = behind_skippable(head)
        if stated := stated_content(head):
            return stated
        frames = FrameGroups(iter([head]), 0, 1)
        for _ in frames.group():
            if frames.read < len(head):
                return 0
    samples = [head[at : at + _SAMPLE_BYTES] for at in range(0, len(head), _SAMPLE_BYTES)]
    if len(samples) > 1 and len(samples[-1]) < _SAMPLE_BYTES:
        samples.pop()
    contents = sorted(_contents(codec, samples))
    typical = contents[(len(contents) - 1) // 2] if contents else 0
    return size * typical // max(1, min(len(head), _SAMPLE_BYTES))


def _contents(codec: str, samples: Sequence[bytes]) -> list[int]:
    """Return how much content each of consecutive samples has, of the first 8 GiB.

    Decompression reads a sample when it has passed the one before.
    """
    contents: list[int] = []

    def read() -> Iterator[bytes]:
        for sample in samples:
            contents.append(0)
            yield sample

    left = _MOST_SAMPLED_BYTES
    with suppress(CorruptObject):  # the samples are truncated; damage is the worker's to report
        for step in CODECS[codec](read(), _PIECE_BYTES, CorruptObject, None):
            contents[-1] += len(step)
            left -= len(step)
            if left <= 0:
                break
    return contents
