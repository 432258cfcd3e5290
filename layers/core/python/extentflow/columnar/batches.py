"""Cuts rows into batches whose values fit a topic, and encodes them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from extentflow.arrays.buffers import corrupt_rows, held_bytes
from extentflow.columnar.groups import EncodedGroup

# Of a batch before any was encoded: what compression usually leaves of Arrow's bytes.
_FIRST_RATIO = 0.5
# A batch above the limit is cut to what should fit, less this reserve.
_RESERVE = 0.8


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Consecutive rows `[start, end)` of a batch, and their value for each group of columns."""

    start: int
    end: int
    values: tuple[pa.Buffer, ...]


@dataclass(slots=True)
class BatchCutter:
    """Cuts batches of one schema: rows of about `target_bytes`, no value above `limit_bytes`.

    The sizes of former values, beyond that of a single row's, say how many rows the next one can
    have. With several groups, the largest value counts.
    """

    groups: Sequence[EncodedGroup]
    target_bytes: int
    limit_bytes: int
    _ratio: float = field(default=_FIRST_RATIO, init=False)
    _fixed_bytes: int = field(default=-1, init=False)

    def cut(self, batch: pa.RecordBatch) -> Iterator[EncodedRows]:
        """Yield the rows of a batch, in order.

        Raises CorruptRecord for rows whose value alone is above the limit, all of them at once.
        """
        start, rejected = 0, []
        if self._fixed_bytes < 0 and batch.num_rows:
            # The footer, the headers of pages and the statistics: what any value has. The least of
            # some rows, of which one may be large.
            places = {0, batch.num_rows // 2, batch.num_rows - 1}
            self._fixed_bytes = min(self._encoded(batch.slice(at, 1))[1] for at in places)
        while start < batch.num_rows:
            rows = self._fitting(batch, start)
            while True:
                part = batch.slice(start, rows)
                values, largest = self._encoded(part)
                if largest <= self.limit_bytes:
                    break
                if rows == 1:
                    rejected.append(start)
                    break
                rows = max(1, min(rows // 2, int(rows * self.limit_bytes / largest * _RESERVE)))
            if rows > 1:
                beyond = max(0, largest - self._fixed_bytes)
                self._ratio = beyond / max(1, held_bytes(part) * (rows - 1) / rows)
            if not rejected:
                yield EncodedRows(start, start + rows, values)
            start += rows
        if rejected:
            raise corrupt_rows(
                rejected,
                f"its columnar value is above the {self.limit_bytes:,} bytes that the topic takes;"
                " raise max.message.bytes of the topic",
            )

    def _encoded(self, part: pa.RecordBatch) -> tuple[tuple[pa.Buffer, ...], int]:
        """Return the values of the groups, and the size of the largest one."""
        values = tuple(group.value(part) for group in self.groups)
        return values, max(value.size for value in values)

    def _fitting(self, batch: pa.RecordBatch, start: int) -> int:
        """Return how many rows the next value should have: parts of equal size, no small rest."""
        left: int = batch.num_rows - start
        expected = held_bytes(batch) * left / batch.num_rows * self._ratio
        room = min(self.target_bytes, self.limit_bytes - self._fixed_bytes)
        parts: int = max(1, math.ceil(expected / max(1, room)))
        return math.ceil(left / parts)
