"""Compressed objects as one stream of content, in constant memory.

Owns: gzip (RFC 1952, every member) and zstd (RFC 8878, every frame), truncation, trailing bytes.
Refuses to know: what the content means, where bytes come from.

Input goes into the decoders in small pieces and output comes out in bounded steps, so that a
highly compressed object needs no more memory than any other. A fault of the input passes through
unchanged; the end of the input inside a member or frame is an error, never the end of the content.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterable, Iterator
from typing import Protocol

import pyarrow as pa

from extentflow.errors import CorruptObject

__all__ = ["CODECS", "decompressed"]

_PIECE_BYTES = 64 << 10
_GZIP_MEMBER = 16 + zlib.MAX_WBITS


class _Codec(Protocol):
    def __call__(self, pieces: Iterator[bytes], step_bytes: int) -> Iterator[bytes]:
        """Yield the content in steps of at most `step_bytes`. Raises _Broken."""
        ...


class _Broken(Exception):  # noqa: N818 - never leaves this module
    """What is wrong with the compressed bytes, in words."""


def decompressed(
    compressed: Iterable[bytes], codec: str, *, step_bytes: int, uri: str
) -> Iterator[bytes]:
    """Yield the content of `compressed`, in order, in pieces of at least `step_bytes`.

    The last piece may be shorter; none reaches two steps. `codec` is one of CODECS.

    Raises:
        CorruptObject: truncated, damaged, or followed by other bytes; names `uri`.
    """
    gathered: list[bytes] = []
    size = 0
    try:
        for piece in CODECS[codec](_small(compressed), step_bytes):
            gathered.append(piece)
            size += len(piece)
            if size >= step_bytes:
                yield b"".join(gathered)
                gathered, size = [], 0
    except _Broken as exc:
        raise CorruptObject(
            f"{uri}: {codec}: {exc}; replace the object, then run its address again"
        ) from exc
    if size:
        yield b"".join(gathered)


def _small(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), _PIECE_BYTES):
            yield piece[start : start + _PIECE_BYTES]


def _gunzipped(pieces: Iterator[bytes], step_bytes: int) -> Iterator[bytes]:
    rest = next(pieces, b"")
    while rest:
        behind = yield from _member(rest, pieces, step_bytes)
        rest = _behind_padding(behind, pieces)


def _member(rest: bytes, pieces: Iterator[bytes], step_bytes: int) -> Generator[bytes, None, bytes]:
    """Yield one member's content; return what of the input was read beyond it."""
    member = zlib.decompressobj(_GZIP_MEMBER)
    while not member.eof:
        step = _inflated(member, rest, step_bytes)
        if step:
            yield step
        rest = member.unconsumed_tail
        if not rest and not member.eof:
            rest = next(pieces, b"")
            if not rest:
                raise _Broken("truncated: the last member has no end")
    return member.unused_data


def _inflated(member: zlib._Decompress, data: bytes, step_bytes: int) -> bytes:
    try:
        return member.decompress(data, step_bytes)
    except zlib.error as exc:
        raise _Broken(f"damaged, or other bytes stand behind the last member: {exc}") from exc


def _behind_padding(rest: bytes, pieces: Iterator[bytes]) -> bytes:
    """Skip the zeros that tapes and gzip(1) allow behind a member."""
    while not (behind := rest.lstrip(b"\0")):
        rest = next(pieces, b"")
        if not rest:
            break
    return behind


class _Readable:
    """Pieces of bytes as the file that Arrow reads from. `reading`: a fault is the input's own."""

    closed = False

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.reading = False
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int) -> bytes:
        if not self._rest:
            self.reading = True
            self._rest = next(self._pieces, b"")
            self.reading = False
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece


def _unzstd(pieces: Iterator[bytes], step_bytes: int) -> Iterator[bytes]:
    readable = _Readable(pieces)
    stream = pa.CompressedInputStream(pa.PythonFile(readable, mode="r"), "zstd")
    while step := _read(stream, readable, step_bytes):
        yield step


def _read(stream: pa.CompressedInputStream, readable: _Readable, step_bytes: int) -> bytes:
    try:
        return bytes(stream.read(step_bytes))
    except OSError as exc:
        if readable.reading:
            raise
        raise _Broken(str(exc)) from exc  # Arrow's words for a damaged or truncated frame


CODECS: dict[str, _Codec] = {"gzip": _gunzipped, "zstd": _unzstd}
