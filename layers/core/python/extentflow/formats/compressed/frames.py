"""Decompress streams of bzip2 and of Arrow's codecs, and frames of snappy, in constant memory.

Snappy is its framing format: a stream identifier, then chunks of at most 64 KiB of content, each
with a masked CRC-32C. Hadoop's and Kafka's own framings of snappy are others.

Tests: unit/formats/compressed/test_compression.py
"""

from __future__ import annotations

import bz2
import functools
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from extentflow.errors import CorruptObject

Corrupt = Callable[[str], CorruptObject]

_STREAM = b"\xff\x06\x00\x00sNaPpY"
_HEADER_BYTES, _CHECKSUM_BYTES = 4, 4
_CHUNK_BYTES = 64 << 10
_COMPRESSED, _PLAIN, _FIRST_SKIPPABLE, _IDENTIFIER = 0x00, 0x01, 0x80, 0xFF
_POLYNOMIAL = 0x82F63B78
_MASK = 0xFFFFFFFF
_ROW_BYTES = 64


def unbzip2(pieces: Iterator[bytes], step_bytes: int, corrupt: Corrupt) -> Iterator[bytes]:
    """Yield the content of all streams in steps of at most `step_bytes`."""
    rest = next(pieces, b"")
    while rest:
        stream = bz2.BZ2Decompressor()
        while not stream.eof:
            if stream.needs_input and not rest:
                rest = next(pieces, b"")
                if not rest:
                    raise corrupt("truncated: the last stream has no end")
            try:
                step = stream.decompress(rest, step_bytes)
            except OSError as exc:
                raise corrupt(f"damaged, or other bytes follow the last stream: {exc}") from exc
            rest = b""
            if step:
                yield step
        rest = stream.unused_data or next(pieces, b"")


class _Reader:
    def __init__(self, pieces: Iterator[bytes], corrupt: Corrupt) -> None:
        self._pieces = pieces
        self._corrupt = corrupt
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes, or nothing at the end of the object."""
        found = [self._rest]
        missing = size - len(self._rest)
        while missing > 0 and (piece := next(self._pieces, b"")):
            found.append(piece)
            missing -= len(piece)
        data = b"".join(found)
        if missing > 0 and data:
            raise self._corrupt("truncated: the last chunk has no end")
        self._rest = data[size:]
        return data[:size]

    def require(self, size: int) -> bytes:
        """Return exactly `size` bytes."""
        data = self.read(size)
        if len(data) < size:
            raise self._corrupt("truncated: the last chunk has no end")
        return data

    def skip(self, size: int) -> None:
        """Read `size` bytes and drop them."""
        for start in range(0, size, _CHUNK_BYTES):
            self.require(min(_CHUNK_BYTES, size - start))


def unsnappy(pieces: Iterator[bytes], step_bytes: int, corrupt: Corrupt) -> Iterator[bytes]:
    """Yield the content of all chunks in steps of at most `step_bytes`."""
    reader = _Reader(pieces, corrupt)
    while header := reader.read(_HEADER_BYTES):
        kind, size = header[0], int.from_bytes(header[1:], "little")
        if kind == _IDENTIFIER:
            if size != len(_STREAM) - _HEADER_BYTES or header + reader.require(size) != _STREAM:
                raise corrupt("damaged: no stream identifier")
        elif kind >= _FIRST_SKIPPABLE:
            reader.skip(size)
        elif kind > _PLAIN:
            raise corrupt(f"damaged, or other bytes follow: no chunk has the type {kind:#04x}")
        else:
            content = _content(kind, reader.require(size), corrupt)
            yield from (content[at : at + step_bytes] for at in range(0, len(content), step_bytes))


def _content(kind: int, body: bytes, corrupt: Corrupt) -> bytes:
    if len(body) < _CHECKSUM_BYTES:
        raise corrupt("truncated: the last chunk has no end")
    content = body[_CHECKSUM_BYTES:]
    if kind == _COMPRESSED:
        content = _uncompressed(content, corrupt)
    if masked_crc32c(content) != int.from_bytes(body[:_CHECKSUM_BYTES], "little"):
        raise corrupt("damaged: the checksum of a chunk does not match its content")
    return content


def _uncompressed(chunk: bytes, corrupt: Corrupt) -> bytes:
    # The size comes first, seven bits a byte, the lowest first.
    size = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(chunk[:3]))
    head = next((place for place, byte in enumerate(chunk[:3]) if byte < _FIRST_SKIPPABLE), None)
    if head is not None:
        size &= (1 << 7 * (head + 1)) - 1
    if head is None or size > _CHUNK_BYTES:
        raise corrupt("damaged: a chunk has more than 64 KiB of content")
    try:
        return bytes(pa.Codec("snappy").decompress(chunk, size, asbytes=True))
    except (OSError, pa.ArrowInvalid) as exc:
        raise corrupt(f"damaged: {exc}") from exc


def masked_crc32c(content: bytes) -> int:
    """Return the CRC-32C of `content` (RFC 3720), masked as in snappy frames."""
    crc = _crc32c(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _MASK


def _crc32c(content: bytes) -> int:
    # A CRC is linear: rows of 64 bytes are computed side by side, then joined two by two. Zeros
    # before the content change nothing while the register is zero, so the first row is padded.
    table = _table()
    padding = -len(content) % _ROW_BYTES
    data = np.frombuffer(bytes(padding) + content, np.uint8).reshape(-1, _ROW_BYTES)
    crcs = np.zeros(len(data), np.uint32)
    for column in np.ascontiguousarray(data.T):
        crcs = table[(crcs ^ column) & 0xFF] ^ (crcs >> np.uint32(8))
    level = 0
    while len(crcs) > 1:
        if len(crcs) % 2:
            crcs = np.concatenate((np.zeros(1, np.uint32), crcs))
        crcs = _shifted(crcs[0::2], level) ^ crcs[1::2]
        level += 1
    # The register begins with ones, which pass through all bytes.
    initial = _MASK
    for power in range(len(content).bit_length()):
        if len(content) >> power & 1:
            initial = int(_shift_bytes(np.array([initial], np.uint32), power)[0])
    return (int(crcs[0]) if len(crcs) else 0) ^ initial ^ _MASK


@functools.cache
def _table() -> NDArray[np.uint32]:
    crcs = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crcs = (crcs >> np.uint32(1)) ^ np.where(crcs & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    return crcs


def _shifted(crcs: NDArray[np.uint32], level: int) -> NDArray[np.uint32]:
    """Return the CRCs after `64 << level` zero bytes."""
    return _shift_bytes(crcs, 6 + level)


def _shift_bytes(crcs: NDArray[np.uint32], power: int) -> NDArray[np.uint32]:
    """Return the CRCs after `1 << power` zero bytes."""
    tables = _shift_tables(power)
    result = tables[0][crcs & 0xFF]
    for place in (1, 2, 3):
        result ^= tables[place][crcs >> np.uint32(8 * place) & 0xFF]
    return np.asarray(result, np.uint32)


@functools.cache
def _shift_tables(power: int) -> list[NDArray[np.uint32]]:
    values = [np.arange(256, dtype=np.uint32) << np.uint32(8 * place) for place in range(4)]
    if power == 0:
        table = _table()
        return [table[one & 0xFF] ^ (one >> np.uint32(8)) for one in values]
    return [_shift_bytes(_shift_bytes(one, power - 1), power - 1) for one in values]


class _PiecesFile:
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


def by_arrow(
    codec: str, pieces: Iterator[bytes], step_bytes: int, corrupt: Corrupt
) -> Iterator[bytes]:
    """Yield what Arrow decompresses in steps of at most `step_bytes`."""
    readable = _PiecesFile(pieces)
    stream = pa.CompressedInputStream(pa.PythonFile(readable, mode="r"), codec)
    while True:
        try:
            # `read` loses the memory that it has allocated when it raises.
            step = stream.read_buffer(step_bytes).to_pybytes()
        except OSError as exc:
            # An OSError of the input, such as a reset connection, passes through Arrow unchanged.
            if readable.reading:
                raise
            # Arrow's message for a damaged or truncated frame.
            raise corrupt(str(exc)) from exc
        if not step:
            return
        yield step
