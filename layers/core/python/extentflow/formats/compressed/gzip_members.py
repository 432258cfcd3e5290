"""Decompress gzip (RFC 1952), also from the end of a deflate block within a member.

The state of a point holds the content before it, and checksum and size of the member so far. It
also holds the bits of its last byte that belong to the next block.

Tests: unit/formats/compressed/test_resume_points.py
"""

from __future__ import annotations

import ctypes
import functools
import logging
import struct
import zlib
from collections.abc import Iterator
from contextlib import closing

from extentflow.formats import ResumePoint, ResumePoints
from extentflow.formats.compressed.frames import Corrupt

log = logging.getLogger(__name__)

_WINDOW_BYTES = 32 << 10
# zlib reads the header and trailer of gzip if 16 is added to the size of the window.
_GZIP_MEMBER = 16 + zlib.MAX_WBITS
_TRAILER = struct.Struct("<II")
# Unused bits and their value, checksum and size of the member so far; the window follows. Stored in
# the ledger: another layout needs another prefix in `delivery.resume`.
_STATE = struct.Struct("<BBII")
# Values of zlib.h: results and flushes of `inflate`, and the bits of `data_type` after it.
_OK, _STREAM_END, _MEM_ERROR, _BUF_ERROR = 0, 1, -4, -5
_NO_FLUSH, _BLOCK = 0, 5
_UNUSED_BITS, _LAST_BLOCK, _BLOCK_END = 7, 64, 128


def is_state(state: bytes) -> bool:
    """Whether bytes are the state of a point within a member."""
    if not _STATE.size <= len(state) <= _STATE.size + _WINDOW_BYTES:
        return False
    bits, value = state[:2]
    # A byte has at most seven bits that belong to the next block.
    return bits <= _UNUSED_BITS and value < 1 << bits


def gunzip(
    pieces: Iterator[bytes], step_bytes: int, corrupt: Corrupt, points: ResumePoints | None
) -> Iterator[bytes]:
    """Yield the content of all members in steps of at most `step_bytes`."""
    library = zlib_library() if points is not None else None
    if points is not None and library is not None:
        yield from gunzip_with_points(library, pieces, step_bytes, corrupt, points)
        return
    rest = next(pieces, b"")
    # A gzip file is a series of members (RFC 1952, section 2.2); zlib decodes one at a time.
    while rest:
        member = zlib.decompressobj(_GZIP_MEMBER)
        while not member.eof:
            try:
                step = member.decompress(rest, step_bytes)
            except zlib.error as exc:
                raise corrupt(f"damaged, or other bytes follow the last member: {exc}") from exc
            if step:
                yield step
            rest = member.unconsumed_tail
            if not rest and not member.eof:
                rest = _next(pieces, corrupt)
        rest = _after_padding(member.unused_data, pieces)


def _next(pieces: Iterator[bytes], corrupt: Corrupt) -> bytes:
    """Return the next piece; otherwise a truncated object would look like a shorter one."""
    piece = next(pieces, b"")
    if not piece:
        raise corrupt("truncated: the last member has no end")
    return piece


def _after_padding(rest: bytes, pieces: Iterator[bytes]) -> bytes:
    """Return what follows a member; gzip(1) and tapes allow zeros there."""
    rest = rest.lstrip(b"\0")
    while not rest and (piece := next(pieces, b"")):
        rest = piece.lstrip(b"\0")
    return rest


class _ZStream(ctypes.Structure):
    """z_stream of zlib.h."""

    _fields_ = (
        ("next_in", ctypes.c_void_p),
        ("avail_in", ctypes.c_uint),
        ("total_in", ctypes.c_ulong),
        ("next_out", ctypes.c_void_p),
        ("avail_out", ctypes.c_uint),
        ("total_out", ctypes.c_ulong),
        ("msg", ctypes.c_char_p),
        ("state", ctypes.c_void_p),
        ("zalloc", ctypes.c_void_p),
        ("zfree", ctypes.c_void_p),
        ("opaque", ctypes.c_void_p),
        ("data_type", ctypes.c_int),
        ("adler", ctypes.c_ulong),
        ("reserved", ctypes.c_ulong),
    )


@functools.cache
def zlib_library() -> ctypes.CDLL | None:
    """Return the zlib that stops at blocks, which Python's module does not; None where it lacks."""
    for name in ("libz.so.1", "libz.dylib"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        if not hasattr(library, "inflateGetDictionary"):  # before 1.2.8, as in Amazon Linux 2
            continue
        library.zlibVersion.restype = ctypes.c_char_p
        return library
    log.warning("no zlib library: large gzip objects are decompressed from their start each time")
    return None


class _Member:
    """One gzip member, from its start or from a point within it; inflates into `out`."""

    def __init__(
        self, library: ctypes.CDLL, out: ctypes.Array[ctypes.c_char], state: bytes
    ) -> None:
        self._library = library
        self._stream = _ZStream()
        self._out = out
        # From its start, zlib checks the member; from a point, this class does.
        self._resumed = bool(state)
        window_bits = -zlib.MAX_WBITS if state else _GZIP_MEMBER
        size, version = ctypes.sizeof(_ZStream), library.zlibVersion()
        self._require(library.inflateInit2_(ctypes.byref(self._stream), window_bits, version, size))
        self._size = self._crc = 0
        self._last_byte = 0
        self.ended = False
        if state:
            bits, value, self._crc, self._size = _STATE.unpack_from(state)
            window = state[_STATE.size :]
            if bits:
                self._require(library.inflatePrime(ctypes.byref(self._stream), bits, value))
            if window:
                dictionary = (ctypes.byref(self._stream), window, len(window))
                self._require(library.inflateSetDictionary(*dictionary))

    def close(self) -> None:
        self._library.inflateEnd(ctypes.byref(self._stream))

    def inflate(self, data: bytes, *, to_block: bool) -> tuple[bytes, bytes]:
        """Return content and the rest of `data`; stop at the end of a block with `to_block`."""
        stream = self._stream
        stream.next_in, stream.avail_in = (
            ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p),
            len(data),
        )
        stream.next_out, stream.avail_out = ctypes.addressof(self._out), len(self._out)
        flush = _BLOCK if to_block else _NO_FLUSH
        result = self._library.inflate(ctypes.byref(stream), flush)
        self.ended = result == _STREAM_END
        _check_memory(result)
        if result not in (_OK, _STREAM_END, _BUF_ERROR):
            raise zlib.error((stream.msg or b"no reason").decode())
        used = len(data) - stream.avail_in
        if used:
            self._last_byte = data[used - 1]
        content = ctypes.string_at(self._out, len(self._out) - stream.avail_out)
        self._size = (self._size + len(content)) & 0xFFFFFFFF
        self._crc = zlib.crc32(content, self._crc) if self._resumed else stream.adler & 0xFFFFFFFF
        return content, data[used:]

    @property
    def at_block_end(self) -> bool:
        kind = self._stream.data_type
        return bool(kind & _BLOCK_END) and not kind & _LAST_BLOCK

    def state(self) -> bytes:
        """Return the state of a point here, at the end of a block."""
        bits = self._stream.data_type & _UNUSED_BITS
        window, size = ctypes.create_string_buffer(_WINDOW_BYTES), ctypes.c_uint()
        self._require(
            self._library.inflateGetDictionary(
                ctypes.byref(self._stream), window, ctypes.byref(size)
            )
        )
        value = self._last_byte >> (8 - bits) if bits else 0
        return _STATE.pack(bits, value, self._crc, self._size) + window.raw[: size.value]

    def check(self, rest: bytes, pieces: Iterator[bytes], corrupt: Corrupt) -> bytes:
        """Check the trailer, unless zlib did; return what follows it."""
        if not self._resumed:
            return rest
        while len(rest) < _TRAILER.size:
            rest += _next(pieces, corrupt)
        if _TRAILER.unpack_from(rest) != (self._crc, self._size):
            raise corrupt("damaged: the checksum of a member does not match its content")
        return rest[_TRAILER.size :]

    @staticmethod
    def _require(result: int) -> None:
        _check_memory(result)
        if result != _OK:
            raise zlib.error(f"zlib: error {result}")


def _check_memory(result: int) -> None:
    # The object is sound: another process may have the memory.
    if result == _MEM_ERROR:
        raise MemoryError("zlib: no memory for the state of a stream")


class _CountedPieces:
    """Pieces of a compressed object; `read` is the offset behind the last one."""

    def __init__(self, pieces: Iterator[bytes], start: int) -> None:
        self._pieces = pieces
        self.read = start

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        piece = next(self._pieces)
        self.read += len(piece)
        return piece


def gunzip_with_points(
    library: ctypes.CDLL,
    pieces: Iterator[bytes],
    step_bytes: int,
    corrupt: Corrupt,
    points: ResumePoints,
) -> Iterator[bytes]:
    """Yield as `gunzip` from `points.start` on, and add the points that are passed."""
    start = points.start or ResumePoint(0, 0)
    content, state, compressed = (
        start.content,
        start.state,
        _CountedPieces(pieces, start.compressed),
    )
    rest = next(compressed, b"")
    # One for all members: some objects have a member per KB.
    out = ctypes.create_string_buffer(step_bytes)
    # A point lies within a member: an object that ends there is truncated.
    while rest or state:
        with closing(_Member(library, out, state)) as member:
            state = b""
            while not member.ended:
                due = points.is_due(content)
                try:
                    step, rest = member.inflate(rest, to_block=due)
                except zlib.error as exc:
                    raise corrupt(f"damaged, or other bytes follow the last member: {exc}") from exc
                content += len(step)
                # A full step may have left content in zlib, which no state contains.
                full = len(step) == step_bytes
                if due and member.at_block_end and not full:
                    points.add(ResumePoint(content, compressed.read - len(rest), member.state()))
                if step:
                    yield step
                if not rest and not full and not member.ended:
                    rest = _next(compressed, corrupt)
            rest = member.check(rest, compressed, corrupt)
        rest = _after_padding(rest, compressed)
