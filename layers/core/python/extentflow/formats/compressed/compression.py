"""Decompress streams in constant memory: gzip (RFC 1952), zstd (RFC 8878), bzip2, lz4, snappy.

Decompression can start at a `ResumePoint` that an earlier one has passed:

    gzip   the end of a deflate block: the state holds the content before it, the bits of its last
           byte that belong to the next block, checksum and size of the member so far
    zstd   the end of a frame: no state
"""

from __future__ import annotations

import ctypes
import functools
import logging
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import TypeAlias

import pyarrow as pa

from extentflow.config.connector import SPLIT_COMPRESSIONS
from extentflow.errors import CorruptObject
from extentflow.formats import ResumePoint, ResumePoints
from extentflow.formats.compressed.frames import unbzip2, unsnappy

log = logging.getLogger(__name__)

_PIECE_BYTES = 64 << 10
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
_ZSTD_FRAME, _SKIPPABLE_FRAMES = 0xFD2FB528, range(0x184D2A50, 0x184D2A60)
_ZSTD_DESCRIPTOR, _SKIPPABLE_HEADER, _ZSTD_BLOCK_HEADER, _ZSTD_RLE = 5, 8, 3, 1
# Frames are grouped until they have this share of `every_bytes`: a new decoder costs little then.
_ZSTD_GROUP_SHARE = 16

# Content sizes of two bytes are stored less 256 (RFC 8878, section 3.1.1.1.4).
_TWO_BYTES, _TWO_BYTE_OFFSET = 2, 256
_SAMPLE_BYTES = 1 << 20
# Some seconds of decompression, where samples are all repetition.
_MOST_SAMPLED_BYTES = 8 << 30

_Corrupt: TypeAlias = Callable[[str], CorruptObject]
_Codec: TypeAlias = Callable[[Iterator[bytes], int, _Corrupt, ResumePoints | None], Iterator[bytes]]


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
    return codec == "zstd" or (codec == "gzip" and _zlib() is not None)


def is_usable(point: ResumePoint, codec: str, size: int) -> bool:
    """Whether decompression of an object of `size` bytes can start at a point that was stored."""
    if not (0 <= point.compressed <= size and point.content >= 0):
        return False
    if codec != "gzip":
        return not point.state
    if not _STATE.size <= len(point.state) <= _STATE.size + _WINDOW_BYTES:
        return False
    bits, value = point.state[:2]
    # A byte has at most seven bits that belong to the next block.
    return bits <= _UNUSED_BITS and value < 1 << bits


# -- gzip -----------------------------------------------------------------------------------------


def _gunzip(
    pieces: Iterator[bytes], step_bytes: int, corrupt: _Corrupt, points: ResumePoints | None
) -> Iterator[bytes]:
    library = _zlib() if points is not None else None
    if points is not None and library is not None:
        yield from _gunzip_with_points(library, pieces, step_bytes, corrupt, points)
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


def _next(pieces: Iterator[bytes], corrupt: _Corrupt) -> bytes:
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
def _zlib() -> ctypes.CDLL | None:
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

    def check(self, rest: bytes, pieces: Iterator[bytes], corrupt: _Corrupt) -> bytes:
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


def _gunzip_with_points(
    library: ctypes.CDLL,
    pieces: Iterator[bytes],
    step_bytes: int,
    corrupt: _Corrupt,
    points: ResumePoints,
) -> Iterator[bytes]:
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


# -- zstd -----------------------------------------------------------------------------------------


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


class _Frames:
    """Groups of whole frames of at least `group_bytes`, as streams of pieces of their own.

    `read` is the offset behind the last piece of a group. Other bytes end the grouping, not the
    stream: Arrow reports them.
    """

    def __init__(self, pieces: Iterator[bytes], start: int, group_bytes: int) -> None:
        self._pieces = pieces
        self._group_bytes = group_bytes
        self._rest = b""
        self.read = start
        # What the next bytes are: `_skip` bytes of a body, then a header of which `_header` is
        # known. `_checksum` is None between frames; `_last`: the body ends its frame.
        self._skip = 0
        self._header = bytearray()
        self._checksum: int | None = None
        self._last = False
        self._lost = False

    def group(self) -> Iterator[bytes]:
        """Yield the pieces of the next group; nothing at the end of the stream."""
        size = 0
        while piece := self._rest or next(self._pieces, b""):
            end = self._frame_end(piece, self._group_bytes - size)
            self._rest = piece[end:]
            size, self.read = size + end, self.read + end
            yield piece[:end]
            within = self._header or self._skip or self._checksum is not None
            if self._rest or (size >= self._group_bytes and not within):
                return

    def _frame_end(self, piece: bytes, least: int) -> int:
        """Return where the first frame ends behind `least` bytes; else the piece's length."""
        at = 0
        while at < len(piece) and not self._lost:
            if self._skip:
                step = min(self._skip, len(piece) - at)
                self._skip, at = self._skip - step, at + step
            else:
                self._header.append(piece[at])
                at += 1
                self._read_header()
            if self._last and not self._skip:
                self._checksum, self._last = None, False
                if at >= least:
                    return at
        return len(piece)

    def _read_header(self) -> None:
        """Interpret a complete header of a frame or a block (RFC 8878, section 3.1)."""
        header = self._header
        if self._checksum is not None:
            if len(header) == _ZSTD_BLOCK_HEADER:
                block = int.from_bytes(header, "little")
                self._last = bool(block & 1)
                self._skip = 1 if (block >> 1) & 3 == _ZSTD_RLE else block >> 3
                self._skip += self._checksum if self._last else 0
                header.clear()
            return
        magic = int.from_bytes(header[:4], "little")
        if magic in _SKIPPABLE_FRAMES and len(header) == _SKIPPABLE_HEADER:
            self._skip, self._last = int.from_bytes(header[4:], "little"), True
            header.clear()
        elif magic == _ZSTD_FRAME and len(header) == _ZSTD_DESCRIPTOR:
            descriptor = header[-1]
            single, size_bytes, dictionary_bytes = _frame_fields(descriptor)
            self._skip = (not single) + size_bytes + dictionary_bytes
            self._checksum = 4 if descriptor >> 2 & 1 else 0
            header.clear()
        self._lost = len(header) > _SKIPPABLE_HEADER


def _decompress_zstd(
    pieces: Iterator[bytes], step_bytes: int, corrupt: _Corrupt, points: ResumePoints | None
) -> Iterator[bytes]:
    if points is None:
        yield from _unzstd(pieces, step_bytes, corrupt)
        return
    start = points.start or ResumePoint(0, 0)
    frames = _Frames(pieces, start.compressed, max(1, points.every_bytes // _ZSTD_GROUP_SHARE))
    content, before = start.content, -1
    while frames.read != before:
        before = frames.read
        if before > start.compressed and points.is_due(content):
            points.add(ResumePoint(content, before))
        for step in _unzstd(frames.group(), step_bytes, corrupt):
            content += len(step)
            points.content = content
            yield step


def _unzstd(pieces: Iterator[bytes], step_bytes: int, corrupt: _Corrupt) -> Iterator[bytes]:
    return _by_arrow("zstd", pieces, step_bytes, corrupt)


def _by_arrow(
    codec: str, pieces: Iterator[bytes], step_bytes: int, corrupt: _Corrupt
) -> Iterator[bytes]:
    readable = _Readable(pieces)
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


# They yield the content in steps of at most `step_bytes`.
_STREAMS: dict[str, _Codec] = {
    "gzip": _gunzip,
    "zstd": _decompress_zstd,
    # BGZF is gzip for those who read it from the start, such as the head of an object.
    "bgzf": lambda pieces, step, corrupt, _: _gunzip(pieces, step, corrupt, None),
    "bzip2": lambda pieces, step, corrupt, _: unbzip2(pieces, step, corrupt),
    "lz4": lambda pieces, step, corrupt, _: _by_arrow("lz4", pieces, step, corrupt),
    "snappy": lambda pieces, step, corrupt, _: unsnappy(pieces, step, corrupt),
}
# What `file.compression.split` makes of codecs: read from the start, the objects are the same.
CODECS = _STREAMS | {name: _STREAMS[codec] for codec, name in SPLIT_COMPRESSIONS.items()}
_STREAM_CODECS = {name: codec for codec, name in SPLIT_COMPRESSIONS.items()}


def stream_codec(codec: str) -> str:
    """Return the codec with which a connector names an object that is read by `codec`."""
    return _STREAM_CODECS.get(codec, codec)


# -- before any worker decompresses ---------------------------------------------------------------


def undivided_bytes(codec: str, head: bytes, size: int) -> int:
    """Return about how much content of an object precedes its first resume point.

    `head` are its first bytes of `size`. Of a zstd frame that ends in `head` nothing is counted;
    otherwise its header states the size of its content, or the median ratio of the head's MiBs
    does: one that is all repetition says nothing about the others.
    """
    if codec == "gzip" and can_resume(codec):
        return 0
    if codec == "zstd":
        head = _behind_skippable(head)
        if stated := _stated_content(head):
            return stated
        frames = _Frames(iter([head]), 0, 1)
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


def _behind_skippable(head: bytes) -> bytes:
    """Return `head` behind the skippable frames that pzstd and seekable formats begin with."""
    while int.from_bytes(head[:4], "little") in _SKIPPABLE_FRAMES:
        head = head[_SKIPPABLE_HEADER + int.from_bytes(head[4:_SKIPPABLE_HEADER], "little") :]
    return head


def _stated_content(head: bytes) -> int:
    """Return the content size in the header of a zstd frame; 0 where it has none (RFC 8878)."""
    if int.from_bytes(head[:4], "little") != _ZSTD_FRAME or len(head) < _ZSTD_DESCRIPTOR:
        return 0
    single, size_bytes, dictionary_bytes = _frame_fields(head[_ZSTD_DESCRIPTOR - 1])
    start = _ZSTD_DESCRIPTOR + (not single) + dictionary_bytes
    stated = int.from_bytes(head[start : start + size_bytes], "little")
    return stated + _TWO_BYTE_OFFSET if size_bytes == _TWO_BYTES else stated


def _frame_fields(descriptor: int) -> tuple[int, int, int]:
    """Return whether a frame is a single segment, and the bytes of content size and dictionary."""
    single = descriptor >> 5 & 1
    return single, (single, 2, 4, 8)[descriptor >> 6], (0, 1, 2, 4)[descriptor & 3]
