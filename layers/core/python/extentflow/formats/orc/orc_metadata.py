"""ORC's metadata: protocol buffers, and what must hold before Arrow reads them.

Arrow's reader of ORC aborts the process, allocates without a limit or reads other memory where
types, stripe footers and stream lengths contradict the specification (https://orc.apache.org).
What `check_types`, `check_stripe` and `check_chunks` accept is safe in this regard; what streams
hold is not checked.

Tests: unit/formats/orc/test_orc_format.py
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from extentflow.wording import shown_bytes

# Wire types of protocol buffers.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# Numbers of fields in orc_proto.proto.
_TYPES = 4
_KIND, _SUBTYPES, _PRECISION, _SCALE = 1, 2, 5, 6
_STREAMS, _ENCODINGS, _TIMEZONE = 1, 2, 3
_DICTIONARY_SIZE = 2
_STREAM_KIND, _STREAM_COLUMN, _STREAM_LENGTH = 1, 2, 3
# Kinds of types and of streams.
_MAP, _STRUCT, _DECIMAL, _LAST_KIND = 11, 12, 14, 20
_PRESENT, _BLOOM_FILTER = 0, 8
_CHUNK_HEADER_BYTES = 3
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# Kinds of compression.
_NONE, _ZLIB, _SNAPPY, _LZO, _LZ4, _ZSTD, _BROTLI = range(7)
READ_CODECS = frozenset({_NONE, _ZLIB, _SNAPPY, _LZ4, _ZSTD})
OTHER_CODECS = {_LZO: "LZO", _BROTLI: "Brotli"}

# A chunk's header has 23 bits for its length.
LARGEST_BLOCK_BYTES = 1 << 23
LARGEST_STRIPE_FOOTER_BYTES = 64 << 20
# Arrow holds eight bytes for each entry of a dictionary.
LARGEST_DICTIONARY = 32 << 20
DEEPEST_TYPE = 64
_MOST_DIGITS = 38
_TIMEZONE_NAME = re.compile(rb"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")

Fields: TypeAlias = list[tuple[int, int | bytes]]


def parse_fields(data: bytes) -> Fields:
    """Return numbers and values of a protocol buffer's fields; ValueError for other bytes."""
    fields: Fields = []
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            fields.append((number, value))
            continue
        length = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if length is None:
            if kind != _BYTES:
                raise ValueError(f"a field of the wire type {kind}")
            length, at = _varint(data, at)
        if at + length > len(data):
            raise ValueError("a field that is longer than its message")
        fields.append((number, data[at : at + length]))
        at += length
    return fields


def _varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:  # noqa: PLR2004 - ten bytes of seven bits
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:  # noqa: PLR2004 - the bit that says that more bytes follow
            return value, at
        shift += 7
    raise ValueError("a number that does not end")


def write_fields(fields: Iterable[tuple[int, int | bytes]]) -> bytes:
    """Return the protocol buffer of fields that are numbers or bytes."""
    out = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            out += _written(number << 3 | _VARINT) + _written(value)
        else:
            out += _written(number << 3 | _BYTES) + _written(len(value)) + value
    return bytes(out)


def _written(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:  # noqa: PLR2004 - as in _varint
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number_of(fields: Fields, number: int) -> int:
    """Return the last value of a field that is a number; 0 without one."""
    values = [value for key, value in fields if key == number and isinstance(value, int)]
    return values[-1] if values else 0


def messages_of(fields: Fields, number: int) -> list[bytes]:
    """Return the values of a field that are bytes."""
    return [value for key, value in fields if key == number and isinstance(value, bytes)]


def _packed(fields: Fields, number: int) -> Iterator[int]:
    """Yield the numbers of a repeated field, which may be packed."""
    for key, value in fields:
        if key == number and isinstance(value, int):
            yield value
        elif key == number and isinstance(value, bytes):
            at = 0
            while at < len(value):
                one, at = _varint(value, at)
                yield one


def check_types(footer: Fields) -> frozenset[int]:
    """Return the columns that are keys of maps; ValueError for types that Arrow cannot hold."""
    types = [parse_fields(message) for message in messages_of(footer, _TYPES)]
    keys: set[int] = set()
    # Columns are numbered in pre-order. Each entry is a column that is expected, and its depth.
    expected = [(0, 0)]
    for column, fields in enumerate(types):
        if not expected or expected[-1][0] != column:
            raise ValueError(f"type {column} is not a part of the schema in its place")
        _, depth = expected.pop()
        if depth > DEEPEST_TYPE:
            raise ValueError(f"types are nested more than {DEEPEST_TYPE} levels deep")
        kind, parts = number_of(fields, _KIND), list(_packed(fields, _SUBTYPES))
        expected += [(part, depth + 1) for part in reversed(parts)]
        if kind > _LAST_KIND:
            raise ValueError(f"type {column} is of an unknown kind, {kind}")
        if kind == _MAP and parts:
            keys.add(parts[0])
        if kind == _STRUCT and not parts:
            raise ValueError(f"type {column} is a struct without members")
        if kind == _DECIMAL:
            digits, scale = number_of(fields, _PRECISION), number_of(fields, _SCALE)
            # Hive 0.11 wrote decimals without a precision.
            if digits > _MOST_DIGITS or scale > (digits or _MOST_DIGITS):
                raise ValueError(f"type {column} is a decimal({digits},{scale})")
    if expected:
        raise ValueError(f"type {expected[-1][0]} is missing")
    return frozenset(keys)


def is_struct(footer: Fields) -> bool:
    """Return whether the root of a footer's types, which were checked, is a struct."""
    return number_of(parse_fields(messages_of(footer, _TYPES)[0]), _KIND) == _STRUCT


def check_stripe(footer: bytes, keys: frozenset[int], stream_bytes: int) -> list[int]:
    """Return the lengths of a stripe's streams; ValueError for a footer that Arrow must not read.

    `keys` are the columns that are keys of maps, `stream_bytes` how many all streams have. Where
    one has another length than stated, Arrow reads the next ones in the wrong place.
    """
    fields = parse_fields(footer)
    lengths = []
    for message in messages_of(fields, _STREAMS):
        stream = parse_fields(message)
        kind, column, length = (
            number_of(stream, number) for number in (_STREAM_KIND, _STREAM_COLUMN, _STREAM_LENGTH)
        )
        # Arrow takes the low 32 bits of both.
        if max(kind, column) >> 32:
            raise ValueError(f"it has a stream of kind {kind} of column {column}")
        lengths.append(length)
        if column in keys and length and kind == _PRESENT:
            raise ValueError(f"column {column} has null keys in a map, which Arrow does not hold")
    if sum(lengths) != stream_bytes:
        raise ValueError("its streams do not have the length of the stripe")
    for message in messages_of(fields, _ENCODINGS):
        entries = number_of(parse_fields(message), _DICTIONARY_SIZE)
        if entries > LARGEST_DICTIONARY:
            raise ValueError(f"it claims a dictionary of {entries} entries")
    # The reader opens a file of this name.
    for name in messages_of(fields, _TIMEZONE):
        if not _TIMEZONE_NAME.fullmatch(name):
            raise ValueError(f"its time zone is {shown_bytes(name[:40])}")
    return lengths


def check_chunks(content: bytes, lengths: Sequence[int], compression: int) -> list[int]:
    """Return the lengths of streams without the empty chunks at their ends.

    ValueError for an empty chunk with others behind it: there, Arrow reads other memory and
    returns it as values. Chunks that cannot be unpacked are left to it.
    """
    view, end, used = memoryview(content), 0, []
    for length in lengths if compression != _NONE else ():
        at = begin = end
        end, empty = end + length, -1
        while at < end:
            start = at + _CHUNK_HEADER_BYTES
            header = int.from_bytes(view[at:start], "little")
            chunk = view[start : start + (header >> 1)]
            if not chunk or (not header & 1 and _unpacks_to_nothing(chunk, compression)):
                empty = at if empty < 0 else empty
            elif empty >= 0:
                break
            at = start + len(chunk)
        if empty >= 0 and at < end:
            raise ValueError(f"the chunk at byte {empty} of its streams is empty")
        used.append(length if empty < 0 else empty - begin)
    return used or [*lengths]


def with_shorter_streams(footer: bytes, lengths: Sequence[int]) -> bytes:
    """Return a stripe's footer in which streams have these lengths; readers skip the rest."""
    made: Fields = []
    left = list(lengths)
    for number, value in parse_fields(footer):
        if number != _STREAMS or isinstance(value, int):
            made.append((number, value))
            continue
        stream, used = parse_fields(value), left.pop(0)
        column, stated = number_of(stream, _STREAM_COLUMN), number_of(stream, _STREAM_LENGTH)
        shown = [(key, used if key == _STREAM_LENGTH else part) for key, part in stream]
        made.append((number, write_fields(shown)))
        if used < stated:
            parts = [(_STREAM_KIND, _BLOOM_FILTER), (_STREAM_COLUMN, column)]
            made.append((number, write_fields([*parts, (_STREAM_LENGTH, stated - used)])))
    return write_fields(made)


def pack_message(content: bytes, compression: int, block_bytes: int) -> bytes:
    """Return a message in chunks that are not compressed, each behind its length."""
    if compression == _NONE:
        return content
    size = block_bytes or 1
    chunks = (content[at : at + size] for at in range(0, len(content), size))
    return b"".join((len(chunk) << 1 | 1).to_bytes(3, "little") + chunk for chunk in chunks)


def _unpacks_to_nothing(chunk: memoryview, compression: int) -> bool:
    if compression == _LZ4:
        # Without literals, and without a match, which has at least four bytes.
        return len(chunk) == 1 and not chunk[0] >> 4
    if compression == _ZSTD and _claims_content(chunk):
        return False
    try:
        if compression == _SNAPPY:
            return not _varint(chunk, 0)[0]
        return not _unpacked(chunk, compression, 1)
    except (pa.ArrowException, OSError, ValueError, zlib.error):
        return False


def _claims_content(frame: memoryview) -> bool:
    """Whether the header of a zstd frame states the size of its content, and not 0 (RFC 8878)."""
    descriptor = frame[4] if frame[:4] == _ZSTD_MAGIC and len(frame) > len(_ZSTD_MAGIC) else 0
    kind, single = descriptor >> 6, descriptor >> 5 & 1
    start = 6 - single + (0, 1, 2, 4)[descriptor & 3]
    size = (single, 2, 4, 8)[kind]
    # With two bytes, the size is less 256.
    return bool(size) and (kind == 1 or any(frame[start : start + size]))


def unpack_message(stored: bytes, compression: int, block_bytes: int) -> bytes:
    """Return a message that is stored in chunks; ValueError or what a codec raises for others."""
    if compression == _NONE:
        return stored
    content, at = b"", 0
    while at < len(stored):
        header = int.from_bytes(stored[at : at + 3], "little")
        chunk = stored[at + 3 : at + 3 + (header >> 1)]
        at += 3 + (header >> 1)
        if at > len(stored):
            raise ValueError("a chunk that is longer than its message")
        content += chunk if header & 1 else _unpacked(chunk, compression, block_bytes)
        if len(content) > LARGEST_STRIPE_FOOTER_BYTES:
            raise ValueError(f"a message of more than {LARGEST_STRIPE_FOOTER_BYTES} bytes")
    return content


def _unpacked(chunk: bytes | memoryview, compression: int, limit: int) -> bytes:
    if compression == _ZLIB:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(chunk, limit)
    if compression == _ZSTD:
        with pa.CompressedInputStream(pa.BufferReader(chunk), "zstd") as stream:
            # `read` loses the memory that it has allocated when it raises.
            found: bytes = stream.read_buffer(limit).to_pybytes()
            return found
    size = _varint(chunk, 0)[0] if compression == _SNAPPY else _lz4_bytes(chunk)
    if size > limit or compression not in (_SNAPPY, _LZ4):
        raise ValueError(f"a chunk of {size} bytes, compressed as {compression}")
    codec = "snappy" if compression == _SNAPPY else "lz4_raw"
    content: bytes = pa.decompress(chunk, decompressed_size=size, codec=codec, asbytes=True)
    return content


def _lz4_bytes(block: bytes | memoryview) -> int:
    """Return how many bytes a block unpacks to (lz4_Block_format.md); ValueError if truncated."""
    at = size = 0
    while at < len(block):
        token = block[at]
        literals, at = _lz4_length(block, at + 1, token >> 4)
        at, size = at + literals, size + literals
        # The last sequence is literals only.
        if at < len(block):
            matched, at = _lz4_length(block, at + 2, token & 15)
            size += matched + 4
    return size


def _lz4_length(block: bytes | memoryview, at: int, length: int) -> tuple[int, int]:
    if length == 15:  # noqa: PLR2004 - more bytes follow, the last one below 255
        while at < len(block):
            length, at = length + block[at], at + 1
            if block[at - 1] < 255:  # noqa: PLR2004
                break
    return length, at
