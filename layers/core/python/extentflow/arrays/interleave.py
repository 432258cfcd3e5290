"""Interleave columns of encoded values into one binary value per row.

A row is the concatenation of its pieces, in order. Neighbouring short pieces are written as whole
words of eight bytes, in the order of the output. So each word covers what the previous one wrote
behind its own bytes:

    row 0       00 00 00 00 07 | 02 | ac 02 | ...       pieces: prefix, branch, number, ...
    words       [00 00 00 00 07 .. .. ..]
                               [02 .. .. .. .. .. .. ..]
                                    [ac 02 .. .. .. .. .. ..]

Tests: unit/converters/test_avro_converter.py, unit/converters/test_protobuf_converter.py
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from extentflow.arrays.buffers import require_limit, text_bytes, value_bytes, value_offsets

WORD_BYTES = 8
_WORD = np.dtype("<u8")
# Texts up to this length are written as words; a blob costs as much as three of these.
SHORT_TEXT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Constant:
    """The same bytes in every row."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Words:
    """At most eight bytes per row: the first `lengths[i]` bytes of little-endian `words[i]`."""

    words: NDArray[np.uint64]
    lengths: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Blobs:
    """Any bytes per row, as a binary array; none for a null."""

    values: pa.BinaryArray


Piece: TypeAlias = Constant | Words | Blobs


def fixed_words(words: NDArray[np.uint64], length: int) -> Words:
    """Return words of which each row has the first `length` bytes."""
    return Words(words, np.broadcast_to(np.uint8(length), len(words)))


def masked(pieces: Sequence[Piece], present: Any) -> list[Piece]:  # noqa: ANN401 - True or a mask
    """Return the pieces with no bytes in rows that are not `present`."""
    if present is True:
        return list(pieces)
    made: list[Piece] = []
    for piece in _words_for_constants(pieces, len(present)):
        if isinstance(piece, Words):
            made.append(Words(piece.words, piece.lengths * present))
        else:
            kept = pc.if_else(pa.array(present), piece.values, pa.scalar(None, pa.binary()))
            made.append(Blobs(kept))
    return made


def taken(pieces: Sequence[Piece], indices: NDArray[np.integer[Any]]) -> list[Piece]:
    """Return the pieces of the rows `indices`, which may repeat."""
    made: list[Piece] = []
    for piece in pieces:
        match piece:
            case Words():
                made.append(Words(piece.words[indices], piece.lengths[indices]))
            case Blobs():
                made.append(Blobs(piece.values.take(pa.array(indices))))
            case Constant():
                made.append(piece)
    return made


def join_rows(pieces: Sequence[Piece], rows: int, limit_bytes: int) -> pa.BinaryArray:
    """Return the concatenation of the pieces per row, without nulls.

    OffsetOverflowError if that has more than `limit_bytes`.
    """
    arguments: list[pa.Array | pa.Scalar] = []
    group: list[Constant | Words] = []
    for piece in pieces:
        if isinstance(piece, Blobs):
            arguments += _written(group, rows, limit_bytes)
            arguments.append(piece.values)
            group = []
        else:
            group.append(piece)
    arguments += _written(group, rows, limit_bytes)
    if not arguments:
        return pa.repeat(pa.scalar(b"", pa.binary()), rows)
    require_limit(sum(_bytes_of(argument, rows) for argument in arguments), limit_bytes)
    (first, *others) = arguments
    if not others:
        if isinstance(first, pa.Scalar):
            return pa.repeat(first, rows)
        return first if first.null_count == 0 else pc.fill_null(first, b"")
    nothing = pa.scalar(b"", pa.binary())
    if all(isinstance(argument, pa.Scalar) for argument in arguments):
        return pa.repeat(pa.scalar(b"".join(one.as_py() for one in arguments), pa.binary()), rows)
    return pc.binary_join_element_wise(
        *arguments, nothing, null_handling="replace", null_replacement=""
    )


def _bytes_of(argument: pa.Array | pa.Scalar, rows: int) -> int:
    if isinstance(argument, pa.Scalar):
        return rows * len(argument.as_py())
    return text_bytes(argument)


def _written(
    group: Sequence[Constant | Words], rows: int, limit_bytes: int
) -> list[pa.Array | pa.Scalar]:
    """Return the rows of neighbouring short pieces: a constant, or an array; [] for no bytes."""
    if all(isinstance(piece, Constant) for piece in group):
        data = b"".join(piece.data for piece in group if isinstance(piece, Constant))
        return [pa.scalar(data, pa.binary())] if data else []
    columns = [piece for piece in _words_for_constants(group, rows) if isinstance(piece, Words)]
    words = np.empty((rows, len(columns)), _WORD)
    lengths = np.empty((rows, len(columns)), np.uint8)
    for column, piece in enumerate(columns):
        words[:, column] = piece.words
        lengths[:, column] = piece.lengths
    ends = np.cumsum(lengths.reshape(-1), dtype=np.int64)
    total = int(ends[-1]) if rows else 0
    require_limit(total, limit_bytes)
    written = np.empty(total + WORD_BYTES, np.uint8)
    # A word at every byte. Assignment follows the order of the indices, as the last word at a place
    # is the one that counts.
    places: NDArray[np.uint64] = np.ndarray((total + 1,), _WORD, written.data, strides=(1,))
    places[ends - lengths.reshape(-1)] = words.reshape(-1)
    offsets = np.zeros(rows + 1, np.int32)
    offsets[1:] = ends[len(columns) - 1 :: len(columns)]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(written)]
    return [pa.Array.from_buffers(pa.binary(), rows, buffers)]


def _words_for_constants(pieces: Sequence[Piece], rows: int) -> list[Words | Blobs]:
    """Return the pieces with neighbouring constants as words."""
    made: list[Words | Blobs] = []
    data = b""
    for piece in [*pieces, None]:
        if isinstance(piece, Constant):
            data += piece.data
            continue
        for start in range(0, len(data), WORD_BYTES):
            part = data[start : start + WORD_BYTES]
            word = np.frombuffer(part.ljust(WORD_BYTES, b"\0"), _WORD)
            made.append(fixed_words(np.broadcast_to(word, rows), len(part)))
        data = b""
        if piece is not None:
            made.append(piece)
    return made


def with_lengths(
    values: pa.BinaryArray, encode: Callable[[NDArray[Any]], list[Piece]]
) -> list[Piece]:
    """Return values with their length in front, as `encode` writes it."""
    offsets = value_offsets(values)
    lengths = np.diff(offsets).astype(np.int64)
    sizes = encode(lengths)
    if lengths.max(initial=0) > SHORT_TEXT_BYTES:
        return [*sizes, Blobs(values)]
    # Read word by word, which may pass the end of the last value.
    data = np.concatenate([value_bytes(values), np.zeros(2 * WORD_BYTES, np.uint8)])
    places: NDArray[np.uint64] = np.ndarray(
        (len(data) - WORD_BYTES + 1,), "<u8", data.data, strides=(1,)
    )
    starts = offsets[:-1].astype(np.int64) - int(offsets[0])
    pieces = list(sizes)
    for begin in range(0, int(lengths.max(initial=0)), WORD_BYTES):
        left = np.clip(lengths - begin, 0, WORD_BYTES).astype(np.uint8)
        # A word without bytes may lie anywhere.
        at = np.where(left > 0, starts + begin, 0) if begin else starts
        pieces.append(Words(places[at], left))
    return pieces


# -- numbers --------------------------------------------------------------------------------------

_BITS_PER_BYTE = 7
_MOST_BITS = 64
_MORE = 0x8080808080808080
# Bits that move, where they stay, and how far, for groups of 28, 14 and 7 bits.
_SPREADS = (
    (1 << 28, 0x0FFFFFFF, 0x0FFFFFFF << 28, 4),
    (1 << 14, 0x00003FFF00003FFF, 0x0FFFC0000FFFC000, 2),
    (1 << 7, 0x007F007F007F007F, 0x3F803F803F803F80, 1),
)
# The continuation bits of a varint, by its length in bytes.
_CONTINUED = np.array(
    [0, *((_MORE & ((1 << 8 * (length - 1)) - 1)) for length in range(1, 9)), _MORE], _WORD
)


def varints(numbers: NDArray[np.int64]) -> list[Piece]:
    """Return signed numbers as zig-zag varints: seven bits per byte, the lowest ones first."""
    return unsigned_varints(((numbers << 1) ^ (numbers >> 63)).view(np.uint64))


def varint(bits: int) -> bytes:
    """Return one number, which is not negative, as a varint."""
    made = bytearray()
    while bits >= 1 << _BITS_PER_BYTE:
        made.append(bits & 0x7F | 0x80)
        bits >>= _BITS_PER_BYTE
    made.append(bits)
    return bytes(made)


def unsigned_varints(bits: NDArray[np.uint64]) -> list[Piece]:
    """Return unsigned numbers as varints."""
    largest = int(bits.max(initial=0))
    if largest < 1 << _BITS_PER_BYTE:
        return [fixed_words(bits, 1)]
    lengths = np.ones(len(bits), np.uint8)
    for least in range(_BITS_PER_BYTE, min(largest.bit_length(), 57), _BITS_PER_BYTE):
        lengths += bits >= np.uint64(1 << least)
    words = _spread(bits, largest)
    if largest < 1 << 8 * _BITS_PER_BYTE:
        words |= _CONTINUED[lengths]
        return [Words(words, lengths)]
    words |= _CONTINUED[lengths]
    # The ninth byte, and the tenth one with the last of 64 bits.
    tops = bits >> np.uint64(8 * _BITS_PER_BYTE)
    over = tops > 0
    more = tops > 0x7F  # noqa: PLR2004 - seven bits
    ends = (tops & np.uint64(0x7F)) | (more.astype(np.uint64) * np.uint64(0x80))
    ends |= more.astype(np.uint64) << np.uint64(8)
    return [
        Words(words, np.minimum(lengths, WORD_BYTES).astype(np.uint8)),
        Words(ends, over.astype(np.uint8) + more.astype(np.uint8)),
    ]


def _spread(bits: NDArray[np.uint64], largest: int) -> NDArray[np.uint64]:
    """Return the low 56 bits of numbers, seven in each byte."""
    for least, stay, move, distance in _SPREADS:
        if largest >= least:
            bits = (bits & np.uint64(stay)) | (bits & np.uint64(move)) << np.uint64(distance)
    return bits


def big_endian(words: Sequence[NDArray[np.uint64]], sign: NDArray[np.bool_]) -> list[Piece]:
    """Return two's complement numbers, most significant byte first, in as few bytes as possible.

    `words` are the 64-bit words of each number, the most significant one first; `sign` is True for
    negative numbers.
    """
    fill = np.where(sign, np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0))
    begun = np.zeros(len(fill), np.bool_)
    made: list[Piece] = []
    for index, word in enumerate(words):
        last = index == len(words) - 1
        magnitude = word ^ fill
        lengths = np.ones(len(word), np.uint8)
        for least in range(7, _MOST_BITS - 1, 8):
            lengths += magnitude >= np.uint64(1 << least)
        lengths = np.minimum(lengths, WORD_BYTES)
        if not last:
            # A word of sign bits only is needed where the next one begins with another bit.
            other = (words[index + 1] >> np.uint64(63)).astype(np.bool_) != sign
            lengths = np.where((magnitude == 0) & ~other, 0, lengths)
        lengths = np.where(begun, WORD_BYTES, lengths).astype(np.uint8)
        begun |= lengths > 0
        if not last and not begun.any():
            continue
        unused = (WORD_BYTES - lengths.astype(np.uint64)) * np.uint64(8)
        # A shift by 64 is undefined, and a word without bytes is never seen.
        made.append(Words(word.byteswap() >> np.minimum(unused, np.uint64(63)), lengths))
    return made
