"""Bytes as text: base64 and UUIDs.

Owns: RFC 4648 section 4 (standard alphabet, with padding) and the canonical form of RFC 9562.
Refuses to know: JSON. Both work on a whole column's buffer at once.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from extentflow.converters.buffers import (
    contents,
    ends,
    fixed_width,
    size_bytes,
    starts,
    text_array,
)
from extentflow.converters.sizes import require

_ALPHABET = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
# Two characters for every 12 bits, and for every byte.
_PAIRS = np.stack([np.repeat(_ALPHABET, 64), np.tile(_ALPHABET, 64)], axis=1).view(np.uint16)[:, 0]
_HEX = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)
UUID_BYTES, UUID_CHARACTERS = 16, 36


def base64(array: pa.Array, limit_bytes: int) -> pa.StringArray:
    """Return a binary array of any kind as base64 text; nulls stay.

    Raises:
        OffsetOverflowError: more than `limit_bytes` of bytes or of text.
    """
    if not pa.types.is_fixed_size_binary(array.type):
        require(size_bytes(array), limit_bytes)
    binary = array.cast(pa.binary())
    lengths = np.diff(ends(binary)).astype(np.int64)
    groups = (lengths + 2) // 3
    bounds = starts(groups)
    require(4 * int(bounds[-1]), limit_bytes)
    text = _encoded(_padded(contents(binary), lengths, bounds))
    missing = 3 * groups - lengths
    text[4 * bounds[1:][missing > 0] - 1] = ord("=")
    text[4 * bounds[1:][missing > 1] - 2] = ord("=")
    return text_array(4 * bounds, text, binary)


def _padded(
    data: NDArray[np.uint8], lengths: NDArray[np.int64], bounds: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Return the values one after the other, each filled with zeros to a multiple of three."""
    missing = 3 * np.diff(bounds) - lengths
    if not missing.any():
        return data
    padded = np.zeros(3 * int(bounds[-1]), np.uint8)
    taken = np.ones(padded.size, np.bool_)
    taken[3 * bounds[1:][missing > 0] - 1] = False
    taken[3 * bounds[1:][missing > 1] - 2] = False
    padded[taken] = data
    return padded


def _encoded(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the base64 of a multiple of three bytes."""
    first, second, third = data.reshape(-1, 3).T.astype(np.uint16)
    text = np.empty((first.size, 2), np.uint16)
    text[:, 0] = _PAIRS[(first << 4) | (second >> 4)]
    text[:, 1] = _PAIRS[((second & 15) << 8) | third]
    return text.view(np.uint8).reshape(-1)


def uuid(array: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """Return a 16-byte fixed-size binary array as `8-4-4-4-12` lower-case hex; nulls stay."""
    rows = fixed_width(array, np.dtype((np.uint8, UUID_BYTES)))
    digits = _HEX[rows].view(np.uint8).reshape(-1, 2 * UUID_BYTES)
    text = np.full((len(array), UUID_CHARACTERS), ord("-"), np.uint8)
    digit = 0
    for place, count in ((0, 8), (9, 4), (14, 4), (19, 4), (24, 12)):
        text[:, place : place + count] = digits[:, digit : digit + count]
        digit += count
    offsets = np.arange(len(array) + 1, dtype=np.int64) * UUID_CHARACTERS
    return text_array(offsets, text.reshape(-1), array)
