"""Texts that lie in one buffer, with anything between them: lines of a file, values of messages."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Indexes: TypeAlias = NDArray[np.int64]

ASCII_END = 0x80


@dataclass(frozen=True, slots=True)
class Spans:
    """Text i is `data[starts[i]:ends[i]]`; starts ascend."""

    data: NDArray[np.uint8]
    starts: Indexes
    ends: Indexes

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> Self:
        """Return texts, copied to one buffer."""
        sizes = np.array([len(text) for text in texts], np.int64)
        ends = np.cumsum(sizes)
        return cls(np.frombuffer(b"".join(texts), np.uint8), ends - sizes, ends)

    def __len__(self) -> int:
        return len(self.starts)

    def raw(self, row: int) -> bytes:
        """Return the bytes of one text."""
        return self.data[self.starts[row] : self.ends[row]].tobytes()

    def at(self, positions: Indexes) -> Indexes:
        """Return the text in which, or behind which, each position is; -1 before the first one."""
        return np.searchsorted(self.starts, positions, side="right") - 1

    def not_utf8(self) -> list[int]:
        """Return the texts that are not valid UTF-8."""
        data = self.data
        if not len(self) or data.max(initial=0) < ASCII_END:
            return []
        # Arrow validates in a cast, without creating Python text of the whole buffer.
        buffers = [None, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data)]
        with suppress(pa.ArrowInvalid):
            pa.BinaryArray.from_buffers(pa.binary(), 1, buffers).cast(pa.string())
            return []
        suspects = np.unique(self.at(np.flatnonzero(data >= ASCII_END)))
        return [row for row in suspects[suspects >= 0].tolist() if not _is_utf8(self.raw(row))]


def _is_utf8(text: bytes) -> bool:
    with suppress(UnicodeDecodeError):
        text.decode()
        return True
    return False


def slices(
    data: Any,  # noqa: ANN401 - what Arrow takes as a buffer
    starts: NDArray[np.integer[Any]],
    ends: NDArray[np.integer[Any]],
    of: pa.DataType | None = None,
) -> pa.Array:
    """Return slices of a buffer, in order, as an array of type `of` (None: binary): one copy."""
    if not len(starts):
        return pa.array([], of or pa.binary())
    # Arrow's offsets have no gaps: an array over all bytes whose odd values are the gaps, of
    # which only the even ones are taken.
    edges = np.empty(2 * len(starts), np.int32)
    edges[0::2], edges[1::2] = starts, ends
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
    with_gaps = pa.Array.from_buffers(of or pa.binary(), len(edges) - 1, buffers)
    return with_gaps.take(pa.array(np.arange(0, len(edges), 2, dtype=np.int32)))
