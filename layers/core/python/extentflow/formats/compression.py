"""Decompress gzip (RFC 1952) and zstd (RFC 8878) objects as one stream in constant memory.

Input enters the decoders in small pieces and output leaves them in bounded steps, so that a highly
compressed object needs no more memory than any other.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterable, Iterator
from typing import Protocol

import pyarrow as pa

from extentflow.errors import CorruptObject

__all__ = ["CODECS", "decompress"]

_PIECE_BYTES = 64 << 10
_GZIP_MEMBER = 16 + zlib.MAX_WBITS


class _Codec(Protocol):
    def __call__(self, pieces: Iterator[bytes], step_bytes: int) -> Iterator[bytes]:
        """Yield the content in steps of at most `step_bytes`. Raises _StreamError."""
        ...


class _StreamError(Exception):
    """The reason why the compressed bytes are invalid."""


def decompress(
    compressed: Iterable[bytes], codec: str, *, step_bytes: int, uri: str
) -> Iterator[bytes]:
    """Yield the content of `compressed` in order, in pieces of at least `step_bytes`.

    Only the last piece may be shorter, and no piece reaches twice `step_bytes`. `codec` is a key of
    CODECS. Errors of the input propagate unchanged.

    Raises:
        CorruptObject: truncated, damaged, or followed by other bytes; names `uri`.
    """
    gathered: list[bytes] = []
    size = 0
    try:
        for piece in CODECS[codec](_split_input(compressed), step_bytes):
            gathered.append(piece)
            size += len(piece)
            if size >= step_bytes:
                yield b"".join(gathered)
                gathered, size = [], 0
    except _StreamError as exc:
        raise CorruptObject(
            f"{uri}: {codec}: {exc}; replace the object, then run it again"
        ) from exc
    if size:
        yield b"".join(gathered)


def _split_input(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), _PIECE_BYTES):
            yield piece[start : start + _PIECE_BYTES]


def _gunzip(pieces: Iterator[bytes], step_bytes: int) -> Iterator[bytes]:
    rest = next(pieces, b"")
    while rest:
        behind = yield from _member(rest, pieces, step_bytes)
        rest = _skip_padding(behind, pieces)


def _member(rest: bytes, pieces: Iterator[bytes], step_bytes: int) -> Generator[bytes, None, bytes]:
    """Yield the content of one member; return the input that follows it."""
    member = zlib.decompressobj(_GZIP_MEMBER)
    while not member.eof:
        step = _inflate(member, rest, step_bytes)
        if step:
            yield step
        rest = member.unconsumed_tail
        if not rest and not member.eof:
            rest = next(pieces, b"")
            if not rest:
                raise _StreamError("truncated: the last member has no end")
    return member.unused_data


def _inflate(member: zlib._Decompress, data: bytes, step_bytes: int) -> bytes:
    try:
        return member.decompress(data, step_bytes)
    except zlib.error as exc:
        raise _StreamError(f"damaged, or other bytes follow the last member: {exc}") from exc


def _skip_padding(rest: bytes, pieces: Iterator[bytes]) -> bytes:
    """Skip the zero bytes that gzip(1) and tapes allow after a member."""
    while not (behind := rest.lstrip(b"\0")):
        rest = next(pieces, b"")
        if not rest:
            break
    return behind


class _Readable:
    """A file for Arrow over pieces of bytes; `reading` is True while the input is read."""

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

    def close(self) -> None:
        # Arrow calls it when the stream is destroyed and prints an error if it does not exist.
        pass


def _decompress_zstd(pieces: Iterator[bytes], step_bytes: int) -> Iterator[bytes]:
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
        raise _StreamError(str(exc)) from exc  # Arrow's message for a damaged or truncated frame


CODECS: dict[str, _Codec] = {"gzip": _gunzip, "zstd": _decompress_zstd}
