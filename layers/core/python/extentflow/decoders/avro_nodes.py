"""The types of an Avro schema, each of which reads its values on columns.

A node passes values in three ways, which agree. `skip` and `read` have one cursor per record, and
`read` returns an Arrow array. `step` has one cursor, in a loop over values.

Tests: unit/formats/avro/test_avro_format.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from extentflow.decoders.avro_content import (
    CONTINUED,
    Content,
    Cursors,
    DamagedBlock,
    behind_number,
    read_decimals,
    read_number,
)

_TOO_MANY = "a list has more items than bytes"
_BRANCH = "the branch of a union"


class Node(Protocol):
    """One type of a schema."""

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the values."""
        ...

    @property
    def fixed(self) -> int | None:
        """The encoded size, None if it varies."""
        ...

    @property
    def least(self) -> int:
        """The smallest encoded size."""
        ...

    @property
    def weight(self) -> int:
        """The number of types in it, repeated ones counted again."""
        ...

    def skip(self, content: Content, at: Cursors) -> Cursors:
        """Return the cursors behind the values; DamagedBlock if there is no telling."""
        ...

    def step(self, data: bytes, at: int) -> int:
        """Return the place behind one value, as `skip`; IndexError far outside the content."""
        ...

    def read(self, content: Content, at: Cursors) -> tuple[pa.Array, Cursors]:
        """Return the values and the cursors behind them; `skip` accepted the same cursors."""
        ...


@dataclass(frozen=True)
class Null:
    """The type null, which takes no bytes."""

    arrow: pa.DataType = pa.null()  # noqa: RUF009 - a singleton
    fixed: int = 0
    least: int = 0
    weight: int = 1

    def skip(self, _: Content, at: Cursors) -> Cursors:
        return at

    def step(self, _: bytes, at: int) -> int:
        return at

    def read(self, _: Content, at: Cursors) -> tuple[pa.Array, Cursors]:
        return pa.nulls(len(at)), at


@dataclass(frozen=True)
class FixedValues:
    """Values of `fixed` bytes: booleans, floats, fixed and what is stored in them."""

    arrow: pa.DataType
    fixed: int
    weight: int = 1

    @property
    def least(self) -> int:
        return self.fixed

    def skip(self, content: Content, at: Cursors) -> Cursors:
        return content.forward(at, self.fixed)

    def step(self, _: bytes, at: int) -> int:
        return at + self.fixed

    def read(self, content: Content, at: Cursors) -> tuple[pa.Array, Cursors]:
        return self._values(content, at), at + self.fixed

    def _values(self, content: Content, at: Cursors) -> pa.Array:
        for recognises, build in _FIXED:
            if recognises(self.arrow):
                return build(content, at, self)
        raw = content.slices(at, at + self.fixed, pa.binary()).cast(pa.binary(self.fixed))
        if isinstance(self.arrow, pa.UuidType):
            return pa.ExtensionArray.from_storage(self.arrow, raw)
        return raw


def _booleans(content: Content, at: Cursors, _: FixedValues) -> pa.Array:
    flags = content.bytes[at]
    if len(flags) and flags.max() > 1:
        raise DamagedBlock("a boolean is neither 0 nor 1")
    return pa.array(flags.astype(np.bool_))


def _durations(content: Content, at: Cursors, node: FixedValues) -> pa.Array:
    parts = [content.words[at + 4 * part].astype(np.uint32) for part in range(3)]
    return pa.StructArray.from_arrays([pa.array(p) for p in parts], fields=[*node.arrow])


# Months, days and milliseconds: Arrow's own interval counts nanoseconds.
DURATION = pa.struct(
    [
        pa.field("months", pa.uint32(), nullable=False),
        pa.field("days", pa.uint32(), nullable=False),
        pa.field("milliseconds", pa.uint32(), nullable=False),
    ]
)


_FIXED: tuple[
    tuple[Callable[[pa.DataType], bool], Callable[[Content, Cursors, FixedValues], pa.Array]], ...
] = (
    (pa.types.is_boolean, _booleans),
    (pa.types.is_float64, lambda content, at, _: pa.array(content.words[at].view("<f8"))),
    (
        pa.types.is_float32,
        lambda content, at, _: pa.array(content.words[at].astype(np.uint32).view("<f4")),
    ),
    (
        pa.types.is_decimal,
        lambda content, at, node: read_decimals(content, at, at + node.fixed, node.arrow),
    ),
    (pa.types.is_struct, _durations),
)


@dataclass(frozen=True)
class Number:
    """The types int and long, and the dates and times that are stored in them."""

    arrow: pa.DataType
    bits: int
    fixed: None = None
    least: int = 1
    weight: int = 1

    def skip(self, content: Content, at: Cursors) -> Cursors:
        return content.behind_varints(at)

    def step(self, data: bytes, at: int) -> int:
        return behind_number(data, at)

    def read(self, content: Content, at: Cursors) -> tuple[pa.Array, Cursors]:
        values, at = content.varints(at)
        stored = values
        if self.bits == np.dtype(np.int32).itemsize * 8:
            stored = values.astype(np.int32)
            if (stored != values).any():
                raise DamagedBlock("a number of the type int has more than 32 bits")
        return pa.array(stored).view(self.arrow), at


@dataclass(frozen=True)
class Bytes:
    """The types string and bytes; decimals in bytes."""

    arrow: pa.DataType
    fixed: None = None
    least: int = 1
    weight: int = 1

    def skip(self, content: Content, at: Cursors) -> Cursors:
        return content.behind_bytes(at)

    def step(self, data: bytes, at: int) -> int:
        length, at = read_number(data, at)
        if length < 0:
            raise DamagedBlock("a length is negative")
        return at + length

    def read(self, content: Content, at: Cursors) -> tuple[pa.Array, Cursors]:
        starts, ends = content.behind_lengths(at)
        if pa.types.is_decimal(self.arrow):
            return read_decimals(content, starts, ends, self.arrow), ends
        return content.slices(starts, ends, self.arrow), ends


@dataclass(frozen=True)
class Enum:
    """An enum, as a dictionary of its symbols."""

    symbols: tuple[str, ...]
    arrow: pa.DataType = pa.dictionary(pa.int32(), pa.string())  # noqa: RUF009 - immutable
    fixed: None = None
    least: int = 1
    weight: int = 1

    def skip(self, content: Content, at: Cursors) -> Cursors:
        return content.behind_varints(at)

    def step(self, data: bytes, at: int) -> int:
        return behind_number(data, at)

    def read(self, content: Content, at: Cursors) -> tuple[pa.Array, Cursors]:
        values, at = content.varints(at)
        _require_below(values, len(self.symbols), "a symbol of an enum")
        symbols = pa.array(self.symbols, pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(values.astype(np.int32)), symbols), at


def _require_below(values: NDArray[np.int64], count: int, what: str) -> None:
    if len(values) and (values.min() < 0 or values.max() >= count):
        raise DamagedBlock(f"{what} has a number outside 0 to {count - 1}")


@dataclass(frozen=True)
class Union:
    """One of several branches.

    With one branch beside null, the values of that branch or null. Otherwise a struct with one
    member per branch: one of them is set, or none where the branch is null.
    """

    branches: tuple[Node, ...]
    arrow: pa.DataType
    as_struct: bool
    weight: int
    fixed: None = None
    least: int = 1

    def skip(self, content: Content, at: Cursors) -> Cursors:
        first = content.bytes[at]
        # Branches below 64 have one byte, in which they are doubled.
        if first.max(initial=0) < min(2 * len(self.branches), CONTINUED) and not (first & 1).any():
            chosen, at = (first >> 1).astype(np.int64), at + 1
        else:
            chosen, at = self._branches(content, at)
        for number, branch in enumerate(self.branches):
            if branch.fixed == 0:
                continue
            rows = np.flatnonzero(chosen == number)
            if len(rows) == len(at):
                return branch.skip(content, at)
            if len(rows):
                at[rows] = branch.skip(content, at[rows])
        return at

    def step(self, data: bytes, at: int) -> int:
        chosen, at = read_number(data, at)
        if not 0 <= chosen < len(self.branches):
            _require_below(np.array([chosen]), len(self.branches), _BRANCH)
        return self.branches[chosen].step(data, at)

    def read(self, content: Content, at: Cursors) -> tuple[pa.Array, Cursors]:
        chosen, at = self._branches(content, at)
        members = []
        for number, branch in enumerate(self.branches):
            if pa.types.is_null(branch.arrow):
                continue
            rows = chosen == number
            values, behind = branch.read(content, at[rows])
            at[rows] = behind
            members.append(_spread(values, rows))
        if not self.as_struct:
            return members[0] if members else pa.nulls(len(at)), at
        nulls = [i for i, branch in enumerate(self.branches) if pa.types.is_null(branch.arrow)]
        mask = pa.array(np.isin(chosen, nulls)) if nulls else None
        return pa.StructArray.from_arrays(members, fields=[*self.arrow], mask=mask), at

    def _branches(self, content: Content, at: Cursors) -> tuple[NDArray[np.int64], Cursors]:
        chosen, at = content.varints(at)
        _require_below(chosen, len(self.branches), _BRANCH)
        return chosen, at


def _spread(values: pa.Array, rows: NDArray[np.bool_]) -> pa.Array:
    """Return an array as long as `rows` with the values where those are True, else null."""
    if len(values) == len(rows):
        return values
    if not len(values):
        return pa.nulls(len(rows), values.type)
    places = np.cumsum(rows, dtype=np.int32) - np.int32(1)
    return values.take(pa.array(places, mask=~rows))


@dataclass(frozen=True)
class Record:
    """A record, as a struct."""

    arrow: pa.StructType
    children: tuple[Node, ...]
    weight: int
    fixed: int | None
    least: int

    @classmethod
    def of(cls, fields: Sequence[pa.Field], children: Sequence[Node]) -> Record:
        """Return the record of these fields."""
        sizes = [child.fixed for child in children]
        known = [size for size in sizes if size is not None]
        return cls(
            pa.struct(fields),
            tuple(children),
            1 + sum(child.weight for child in children),
            sum(known) if len(known) == len(sizes) else None,
            sum(child.least for child in children),
        )

    def skip(self, content: Content, at: Cursors) -> Cursors:
        ahead = 0
        for child in self.children:
            if child.fixed is not None:
                ahead += child.fixed
                continue
            if ahead:
                at, ahead = content.forward(at, ahead), 0
            at = child.skip(content, at)
        return content.forward(at, ahead) if ahead else at

    def step(self, data: bytes, at: int) -> int:
        for child in self.children:
            at = child.step(data, at)
        return at

    def read(self, content: Content, at: Cursors) -> tuple[pa.Array, Cursors]:
        columns, behind = self.columns(content, at)
        if not columns:
            # A struct without members takes its length from a mask only.
            return pa.array([{}] * len(at), self.arrow), behind
        return pa.StructArray.from_arrays(columns, fields=[*self.arrow]), behind

    def columns(self, content: Content, at: Cursors) -> tuple[list[pa.Array], Cursors]:
        """Return one array per field, and the cursors behind the records."""
        columns = []
        for child in self.children:
            values, at = child.read(content, at)
            columns.append(values)
        return columns, at


@dataclass(frozen=True)
class Items:
    """An array as a list, or a map as a map: `item` is a record of key and value there.

    Items come in blocks: a count, for a negative one also a size in bytes, the items; the last
    block has the count 0. An item takes at least one byte, which bounds a count.
    """

    arrow: pa.DataType
    item: Node
    weight: int
    fixed: None = None
    least: int = 1

    def skip(self, content: Content, at: Cursors) -> Cursors:
        return self._scan(content, at)[2]

    def step(self, data: bytes, at: int) -> int:
        while True:
            count, at = read_number(data, at)
            if count < 0:
                at, count = behind_number(data, at), -count
            if not count:
                return at
            if count > len(data):
                raise DamagedBlock(_TOO_MANY)
            if self.item.fixed is not None:
                at += count * self.item.fixed
                continue
            for _ in range(count):
                at = self.item.step(data, at)

    def read(self, content: Content, at: Cursors) -> tuple[pa.Array, Cursors]:
        rows, starts, behind = self._scan(content, at)
        # By place in the content, which is by row and then by item.
        starts = np.sort(starts)
        counts = np.bincount(rows, minlength=len(at)) if len(rows) else np.zeros(len(at), int)
        offsets = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
        if pa.types.is_map(self.arrow) and isinstance(self.item, Record):
            (keys, values), _ = self.item.columns(content, starts)
            return pa.MapArray.from_arrays(offsets, keys, values, type=self.arrow), behind
        values, _ = self.item.read(content, starts)
        return pa.ListArray.from_arrays(offsets, values, type=self.arrow), behind

    def _scan(self, content: Content, at: Cursors) -> tuple[NDArray[np.int64], Cursors, Cursors]:
        """Return the row and the place of every item, and the cursors behind the lists."""
        at = at.copy()
        found_rows, found_starts = [], []
        rows = np.arange(len(at))
        while len(rows):
            counts, at[rows] = content.varints(at[rows])
            sized = rows[counts < 0]
            if len(sized):
                at[sized] = content.behind_varints(at[sized])
                counts = np.abs(counts)
            rows, counts = rows[counts != 0], counts[counts != 0]
            if len(counts) and not 0 < counts.min() <= counts.max() <= content.size:
                raise DamagedBlock(_TOO_MANY)
            if self.item.fixed is not None:
                # The places of all items, without a step per item.
                if counts.sum() > content.size:
                    raise DamagedBlock(_TOO_MANY)
                ordinals = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
                found_rows.append(np.repeat(rows, counts))
                found_starts.append(np.repeat(at[rows], counts) + ordinals * self.item.fixed)
                ends = at[rows] + counts * self.item.fixed
                at[rows] = np.minimum(ends, content.size)
                continue
            open_rows, left = rows, counts
            while len(open_rows):
                starts = at[open_rows]
                if starts.max() >= content.size:
                    raise DamagedBlock(_TOO_MANY)
                found_rows.append(open_rows)
                found_starts.append(starts)
                at[open_rows] = self.item.skip(content, starts)
                left = left - 1
                open_rows, left = open_rows[left > 0], left[left > 0]
        nothing = np.zeros(0, np.int64)
        return (
            np.concatenate([nothing, *found_rows]),
            np.concatenate([nothing, *found_starts]),
            at,
        )
