"""Chooses the partition of each row, so that a batch holds rows of one partition only."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# Of Kafka's `Utils.murmur2`.
_SEED = np.uint32(0x9747B28C)
_FACTOR = np.uint32(0x5BD1E995)
_WORD = 4
ANY = -1


def by_keys(keys: pa.Array, partitions: int) -> NDArray[np.int32]:
    """Return the partition that Java's default partitioner gives each key; ANY for a null."""
    binary = keys.cast(pa.large_binary())
    hashes = _murmur2(binary) & np.uint32(0x7FFFFFFF)
    found = (hashes % np.uint32(partitions)).astype(np.int32)
    found[binary.is_null().to_numpy(zero_copy_only=False)] = ANY
    return found


def _murmur2(keys: pa.LargeBinaryArray) -> NDArray[np.uint32]:
    """Return Kafka's murmur2 of each key, a word of all keys at a time."""
    _, offsets_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[keys.offset :][: len(keys) + 1]
    data = np.frombuffer(data_buffer or b"", np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = _SEED ^ lengths.astype(np.uint32)
    words = lengths // _WORD
    for word in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > word)
        found = _word(data, starts[rows] + word * _WORD, _WORD) * _FACTOR
        found ^= found >> np.uint32(24)
        hashes[rows] = hashes[rows] * _FACTOR ^ found * _FACTOR
    left = lengths % _WORD
    for count in range(1, _WORD):
        rows = np.flatnonzero(left == count)
        tail = _word(data, starts[rows] + words[rows] * _WORD, count)
        hashes[rows] = (hashes[rows] ^ tail) * _FACTOR
    hashes = (hashes ^ hashes >> np.uint32(13)) * _FACTOR
    return hashes ^ hashes >> np.uint32(15)


def _word(data: NDArray[np.uint8], at: NDArray[np.int64], count: int) -> NDArray[np.uint32]:
    """Return `count` bytes from each place as a number, the lowest byte first."""
    found = np.zeros(len(at), np.uint32)
    for byte in range(count):
        found |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return found
