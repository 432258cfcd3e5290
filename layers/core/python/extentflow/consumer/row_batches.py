"""Rows as a consumer gets them, and positions between them."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import pyarrow as pa
from pyarrow import types

from extentflow.columnar import BatchFacts
from extentflow.errors import UnsupportedType

# Of numbers in metadata that other clients may have written.
_MOST = 2**63 - 1
# Of a byte of a variable-length integer: its bits, and whether there are more.
_LOW_BITS, _MORE = 0x7F, 0x80


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where reading a partition continues: before row `row` of the first record that is not done.

    `done` are ranges of offsets, first and last, in ascending order, that were handled already. Of
    a topic that follows in a join: behind `offset`, because its batches are handled in the order of
    another topic. Of the topic that leads: one range at `offset`, which is read again so that what
    is done in the others follows from it (`joins`). Of both, where reading began at the latest
    records: batches before `boundary` may have their other columns before the start there.
    """

    offset: int
    row: int = 0
    done: tuple[tuple[int, int], ...] = ()
    boundary: int = 0

    @property
    def resumes_at(self) -> int:
        """The offset from which on records are not done, but for ranges behind it."""
        return self.done[0][1] + 1 if self.done and self.done[0][0] == self.offset else self.offset

    def has_done(self, offset: int) -> bool:
        """Whether the record at an offset was handled already."""
        return any(first <= offset <= last for first, last in self.done)

    def to_metadata(self) -> str:
        """Return the metadata of the committed offset; empty at the start of a record.

        `{"row":1200,"done":"AgEFAA=="}`: `done` has, for each range, the offsets between it and the
        one before, and those behind its first, as base64 of variable-length integers (LEB128).
        """
        members: dict[str, object] = {}
        if self.row:
            members["row"] = self.row
        if self.done:
            members["done"] = b64encode(_distances(self.offset, self.done)).decode()
        if self.boundary:
            members["boundary"] = self.boundary
        return json.dumps(members, separators=(",", ":")) if members else ""

    @classmethod
    def of(cls, offset: int, metadata: str | None) -> Self:
        """Return a committed position; metadata of other clients means the start of the record."""
        try:
            found = json.loads(metadata or "{}")
            row, boundary = found.get("row", 0), found.get("boundary", 0)
            if not (_is_number(row) and _is_number(boundary)):
                return cls(offset)
            distances = b64decode(found.get("done", ""), validate=True)
            return cls(offset, row, tuple(_ranges(offset, distances)), boundary)
        except (ValueError, TypeError, AttributeError, RecursionError):
            return cls(offset)


def _is_number(value: object) -> bool:
    # Not isinstance: JSON's true would be a row.
    return type(value) is int and 0 <= value <= _MOST


def _distances(offset: int, ranges: Sequence[tuple[int, int]]) -> bytes:
    found, before = bytearray(), offset
    for first, last in ranges:
        for number in (first - before, last - first):
            left = number
            while left > _LOW_BITS:
                found.append(left & _LOW_BITS | _MORE)
                left >>= 7
            found.append(left)
        before = last
    return bytes(found)


def _ranges(offset: int, distances: bytes) -> Iterator[tuple[int, int]]:
    """Yield ranges of offsets. Raises ValueError for bytes that are none."""
    numbers: list[int] = []
    number = shift = 0
    for byte in distances:
        number |= (byte & _LOW_BITS) << shift
        shift += 7
        if not byte & _MORE:
            numbers.append(number)
            number = shift = 0
    if shift or len(numbers) % 2:
        raise ValueError("the last range is not complete")
    last = offset
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        first = last + gap
        last = first + length
        if last > _MOST:
            raise ValueError(f"{last} is no offset")
        yield first, last


def place(topic: str, partition: int, offset: int) -> str:
    """Return how messages name a record."""
    return f"topic {topic}[{partition}] offset {offset}"


@dataclass(frozen=True, slots=True)
class ConsumedBatch:
    """Consecutive rows of one partition.

    `rows` begin with row `row` of the record at `offset`. `offsets` has the offset of each row
    where each row is a record of its own. It is empty where all rows are of one columnar value,
    which `facts` describes. `timestamp` is that of the (first) record, in milliseconds since 1970.
    """

    topic: str
    partition: int
    rows: pa.RecordBatch
    offset: int
    row: int = 0
    offsets: Sequence[int] = ()
    facts: BatchFacts | None = None
    timestamp: int = 0

    @property
    def place(self) -> str:
        """How messages name its (first) record."""
        return place(self.topic, self.partition, self.offset)

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


def dicts(rows: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Return each row with the values of `to_pylist`, three times as fast as that.

    Raises UnsupportedType before the first row, for values that Python's types cannot hold, such as
    dates behind the year 9999 and nanoseconds.
    """
    columns = []
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        try:
            columns.append(_values(column))
        except (ValueError, ArithmeticError, KeyError, pa.ArrowException) as exc:
            raise UnsupportedType(
                f"column {name}: Python has no value for one of {column.type} ({exc})"
            ) from exc
    if not columns:
        return iter([{} for _ in range(rows.num_rows)])
    names = rows.schema.names
    return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def _values(column: pa.Array) -> list[Any]:
    kind = column.type
    is_naive = types.is_timestamp(kind) and kind.tz is None
    if types.is_decimal(kind) or types.is_date32(kind) or is_naive:
        found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        # NumPy leaves the dates that Python lacks as numbers.
        if int not in set(map(type, found)):
            return found
    return list(column.to_pylist())
