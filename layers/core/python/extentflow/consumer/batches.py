"""Rows as a consumer gets them, and positions between them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from extentflow.columnar import BatchFacts

# Of numbers in metadata that other clients may have written.
_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where reading a partition continues: before row `row` of the record at `offset`.

    `done` are ranges of offsets, first and last, from there on that were handled before their turn:
    of a topic of column groups, whose batches are handled in the order of another topic.
    """

    offset: int
    row: int = 0
    done: tuple[tuple[int, int], ...] = ()

    def to_metadata(self) -> str:
        """Return the metadata of the committed offset; empty at the start of a record."""
        members: dict[str, object] = {}
        if self.row:
            members["row"] = self.row
        if self.done:
            members["done"] = [[one - self.offset for one in each] for each in self.done]
        return json.dumps(members, separators=(",", ":")) if members else ""

    @classmethod
    def of(cls, offset: int, metadata: str | None) -> Self:
        """Return a committed position; metadata of other clients means the start of the record."""
        try:
            found = json.loads(metadata or "{}")
        except (ValueError, RecursionError):
            return cls(offset)
        if not isinstance(found, dict):
            return cls(offset)
        row, done = found.get("row", 0), found.get("done", [])
        if not _is_number(row) or not isinstance(done, list) or not all(map(_is_range, done)):
            return cls(offset)
        return cls(offset, row, tuple((offset + first, offset + last) for first, last in done))

    def has_done(self, offset: int) -> bool:
        """Whether the record at an offset was handled before its turn."""
        return any(first <= offset <= last for first, last in self.done)


def _is_number(value: object) -> bool:
    # Not isinstance: JSON's true would be a row.
    return type(value) is int and 0 <= value <= _MOST


def _is_range(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2  # noqa: PLR2004 - first and last
        and all(map(_is_number, value))
        and value[0] <= value[1]
    )


@dataclass(frozen=True, slots=True)
class ConsumedBatch:
    """Consecutive rows of one partition.

    `rows` begin with row `row` of the record at `offset`. `offsets` has the offset of each row
    where each row is a record of its own; empty: all of them are of one record, a columnar value,
    about which `facts` says more. `timestamp` is that of the (first) record, in milliseconds since
    1970.
    """

    topic: str
    partition: int
    rows: pa.RecordBatch
    offset: int
    row: int = 0
    offsets: Sequence[int] = ()
    facts: BatchFacts | None = None
    timestamp: int = 0

    def after(self, rows: int) -> Position:
        """Return the position behind the first `rows` rows."""
        if not rows:
            return Position(self.offset, self.row)
        if self.offsets:
            return Position(self.offsets[rows - 1] + 1)
        if rows == self.rows.num_rows:
            return Position(self.offset + 1)
        return Position(self.offset, self.row + rows)

    def skip(self, rows: int) -> Self:
        """Return the batch without its first `rows` rows."""
        if not rows:
            return self
        behind = self.after(rows)
        return replace(
            self,
            rows=self.rows.slice(rows),
            offset=behind.offset,
            row=behind.row,
            offsets=self.offsets[rows:],
        )
