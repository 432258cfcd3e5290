"""Read Avro's numbers, lengths and decimals at many places of a buffer at once.

Tests: unit/formats/avro/test_avro_format.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from extentflow.arrays.spans import slices

Cursors: TypeAlias = NDArray[np.int64]

# Bytes behind the content that a word at its last byte may touch.
_PADDING = 16
_WORD = np.dtype("<u8")
# A varint has seven bits per byte, the eighth says that another byte follows.
_MORE = np.uint64(0x8080808080808080)
_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
# Neighbouring groups of 7, 14 and 28 bits are joined: low groups, high groups, distance.
_JOINS = (
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
)
_ONE = np.uint64(1)
CONTINUED = 0x80
_LONGEST_VARINT = 10
# By the first byte of a length-prefixed value: how far its end is, -1 if more bytes or a sign
# have to be looked at.
_STEPS = np.full(256, -1)
_STEPS[0:CONTINUED:2] = np.arange(1, 1 + CONTINUED // 2)
_WORD_BYTES = 8


class DamagedBlock(Exception):  # noqa: N818 - an outcome, not a fault
    """Bytes that contradict the schema; the message says how."""


class Content:
    """Decompressed blocks, one behind the other."""

    def __init__(self, blocks: Sequence[bytes | memoryview]) -> None:
        joined = b"".join([*blocks, bytes(_PADDING)])
        self.size = len(joined) - _PADDING
        self.bytes = np.frombuffer(joined, np.uint8)
        # The eight bytes from each byte on.
        self.words: NDArray[np.uint64] = np.ndarray(
            (len(joined) - _WORD_BYTES + 1,), _WORD, joined, strides=(1,)
        )
        self.buffer = pa.py_buffer(joined)
        self.joined = joined

    def varints(self, at: Cursors) -> tuple[NDArray[np.int64], Cursors]:
        """Return the numbers at the cursors, and the cursors behind them."""
        first = self.bytes[at]
        # Lengths, branches and counts almost always have one byte.
        if not (first & CONTINUED).any():
            return _zigzag(first.astype(np.uint64)), at + 1
        words = self.words[at]
        last, length = _last_bytes(words)
        bits = words & ((last << _ONE) - _ONE) & _BITS
        for low, high, distance in _JOINS:
            bits = (bits & low) | ((bits & high) >> distance)
        long = np.flatnonzero(length > _WORD_BYTES)
        if len(long):
            length[long], tops = self._long_varints(at[long])
            bits[long] |= tops
        behind: Cursors = np.minimum(at + length, self.size)
        return _zigzag(bits), behind

    def behind_varints(self, at: Cursors) -> Cursors:
        """Return the cursors behind numbers."""
        ends = ~self.words[at] & _MORE
        if not ends.all():
            return self.varints(at)[1]
        # The bits up to the last byte's eighth one, eight per byte.
        length = np.bitwise_count(ends ^ (ends - _ONE)) >> 3
        behind: Cursors = np.minimum(at + length, self.size)
        return behind

    def behind_bytes(self, at: Cursors) -> Cursors:
        """Return the cursors behind length-prefixed values."""
        # Almost always, all lengths have one byte: then this is a table's look-up.
        steps = _STEPS[self.bytes[at]]
        if steps.min(initial=0) < 0:
            return self.behind_lengths(at)[1]
        behind: Cursors = np.minimum(at + steps, self.size)
        return behind

    def behind_lengths(self, at: Cursors) -> tuple[Cursors, Cursors]:
        """Return where the bytes of length-prefixed values begin and end."""
        lengths, at = self.varints(at)
        if len(lengths) and lengths.min() < 0:
            raise DamagedBlock("a length is negative")
        return at, np.minimum(at + np.minimum(lengths, self.size), self.size)

    def forward(self, at: Cursors, size: int) -> Cursors:
        """Return the cursors `size` bytes further on."""
        return np.minimum(at + size, self.size)

    def slices(self, starts: Cursors, ends: Cursors, data_type: pa.DataType) -> pa.Array:
        """Return the bytes between cursors, which are in order, as strings or binary values."""
        return slices(self.buffer, starts, ends, data_type)

    def _long_varints(self, at: Cursors) -> tuple[Cursors, NDArray[np.uint64]]:
        ninth = self.bytes[at + _WORD_BYTES].astype(np.uint64)
        tenth = np.where(ninth < CONTINUED, 0, self.bytes[at + _WORD_BYTES + 1]).astype(np.uint64)
        if (tenth > _ONE).any():
            raise DamagedBlock("a number has more than 64 bits")
        length = np.where(ninth < CONTINUED, _LONGEST_VARINT - 1, _LONGEST_VARINT)
        tops = (ninth & np.uint64(0x7F)) << np.uint64(56) | tenth << np.uint64(63)
        return length.astype(np.int64), tops


def _last_bytes(words: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return bit 7 of the last byte of varints (0: beyond the word), and their lengths."""
    ends = ~words & _MORE
    last = ends & (~ends + _ONE)
    return last, (np.bitwise_count(last - _ONE).astype(np.int64) >> 3) + 1


def _zigzag(bits: NDArray[np.uint64]) -> NDArray[np.int64]:
    return ((bits >> _ONE) ^ (~(bits & _ONE) + _ONE)).view(np.int64)


def behind_number(data: bytes, at: int) -> int:
    """Return the place behind one number."""
    while data[at] >= CONTINUED:
        at += 1
    return at + 1


def read_number(data: bytes, at: int) -> tuple[int, int]:
    """Return one number and the place behind it."""
    byte = data[at]
    if byte < CONTINUED:
        return (byte >> 1) ^ -(byte & 1), at + 1
    end = behind_number(data, at)
    if end - at > _LONGEST_VARINT:
        raise DamagedBlock("a number has more than 64 bits")
    bits = sum((data[place] & 0x7F) << 7 * (place - at) for place in range(at, end))
    return (bits >> 1) ^ -(bits & 1), end


def read_decimals(content: Content, starts: Cursors, ends: Cursors, data_type: Any) -> pa.Array:  # noqa: ANN401 - decimal128 or decimal256
    """Return big-endian two's complement numbers as decimals."""
    width = data_type.bit_width // 8
    lengths = ends - starts
    negative = (lengths > 0) & (content.bytes[starts] >= CONTINUED)
    fill = np.where(negative, 0xFF, 0).astype(np.uint8)
    for row in np.flatnonzero(lengths > width):
        lead = content.bytes[starts[row] : ends[row] - width]
        if (lead != fill[row]).any() or content.bytes[ends[row] - width] >> 7 != negative[row]:
            raise DamagedBlock(f"a decimal has more than {data_type.precision} digits")
    words = np.empty((len(starts), width), np.uint8)
    for byte in range(width):
        # The last byte of the value is the first of Arrow's little-endian words.
        within = byte < lengths
        words[:, byte] = np.where(within, content.bytes[np.where(within, ends - 1 - byte, 0)], fill)
    buffers = [None, pa.py_buffer(words.tobytes())]
    array = pa.Array.from_buffers(data_type, len(starts), buffers)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as exc:
        raise DamagedBlock(f"a decimal has more than {data_type.precision} digits") from exc
    return array
