"""Decode Avro's binary encoding to Arrow arrays on columns, without a Python object per value.

A record begins where the previous one ends, and nothing states its length. So blocks are decoded in
two steps, both with one cursor per record instead of one loop over values:

    where records begin    one cursor per block; all of them pass record 0, then record 1, ...
    columns                one cursor per record; all of them pass field 0, then field 1, ...

Where few blocks are left, a loop over their values finds where records begin, at the speed of one.
The first step checks every length and branch, so the second one reads within its records. A cursor
that leaves its block stops at the end of the content, and the block is refused when it ends there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

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
_CONTINUED = 0x80
_LONGEST_VARINT = 10
# By the first byte of a length-prefixed value: how far its end is, -1 if more bytes or a sign
# have to be looked at.
_STEPS = np.full(256, -1)
_STEPS[0:_CONTINUED:2] = np.arange(1, 1 + _CONTINUED // 2)
_TOO_MANY = "a list has more items than bytes"
_BRANCH = "the branch of a union"
# With fewer cursors than these, a loop over values is faster.
FEWEST_CURSORS = 24
_WORD_BYTES = 8


class DamagedBlock(Exception):  # noqa: N818 - an outcome, not a fault
    """Bytes that contradict the schema; the message says how."""


class Content:
    """Decompressed blocks, one behind the other."""

    def __init__(self, blocks: Sequence[bytes]) -> None:
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
        if not (first & _CONTINUED).any():
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
        count = len(starts)
        # Values and the gaps between them alternate.
        offsets = np.empty(2 * count, np.int32)
        offsets[0::2], offsets[1::2] = starts, ends
        if not count:
            return pa.array([], data_type)
        buffers = [None, pa.py_buffer(offsets), self.buffer]
        both = pa.Array.from_buffers(data_type, 2 * count - 1, buffers)
        return both.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))

    def _long_varints(self, at: Cursors) -> tuple[Cursors, NDArray[np.uint64]]:
        ninth = self.bytes[at + _WORD_BYTES].astype(np.uint64)
        tenth = np.where(ninth < _CONTINUED, 0, self.bytes[at + _WORD_BYTES + 1]).astype(np.uint64)
        if (tenth > _ONE).any():
            raise DamagedBlock("a number has more than 64 bits")
        length = np.where(ninth < _CONTINUED, _LONGEST_VARINT - 1, _LONGEST_VARINT)
        tops = (ninth & np.uint64(0x7F)) << np.uint64(56) | tenth << np.uint64(63)
        return length.astype(np.int64), tops


def _last_bytes(words: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return bit 7 of the last byte of varints (0: beyond the word), and their lengths."""
    ends = ~words & _MORE
    last = ends & (~ends + _ONE)
    return last, (np.bitwise_count(last - _ONE).astype(np.int64) >> 3) + 1


def _zigzag(bits: NDArray[np.uint64]) -> NDArray[np.int64]:
    return ((bits >> _ONE) ^ (~(bits & _ONE) + _ONE)).view(np.int64)


def _behind_number(data: bytes, at: int) -> int:
    while data[at] >= _CONTINUED:
        at += 1
    return at + 1


def _number(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < _CONTINUED:
        return (byte >> 1) ^ -(byte & 1), at + 1
    end = _behind_number(data, at)
    if end - at > _LONGEST_VARINT:
        raise DamagedBlock("a number has more than 64 bits")
    bits = sum((data[place] & 0x7F) << 7 * (place - at) for place in range(at, end))
    return (bits >> 1) ^ -(bits & 1), end


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
        """As `Node.skip`."""
        return at

    def step(self, _: bytes, at: int) -> int:
        """As `Node.step`."""
        return at

    def read(self, _: Content, at: Cursors) -> tuple[pa.Array, Cursors]:
        """As `Node.read`."""
        return pa.nulls(len(at)), at


@dataclass(frozen=True)
class FixedValues:
    """Values of `fixed` bytes: booleans, floats, fixed and what is stored in them."""

    arrow: pa.DataType
    fixed: int
    weight: int = 1

    @property
    def least(self) -> int:
        """As `Node.least`."""
        return self.fixed

    def skip(self, content: Content, at: Cursors) -> Cursors:
        """As `Node.skip`."""
        return content.forward(at, self.fixed)

    def step(self, _: bytes, at: int) -> int:
        """As `Node.step`."""
        return at + self.fixed

    def read(self, content: Content, at: Cursors) -> tuple[pa.Array, Cursors]:
        """As `Node.read`."""
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
        lambda content, at, node: _decimals(content, at, at + node.fixed, node.arrow),
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
        """As `Node.skip`."""
        return content.behind_varints(at)

    def step(self, data: bytes, at: int) -> int:
        """As `Node.step`."""
        return _behind_number(data, at)

    def read(self, content: Content, at: Cursors) -> tuple[pa.Array, Cursors]:
        """As `Node.read`."""
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
        """As `Node.skip`."""
        return content.behind_bytes(at)

    def step(self, data: bytes, at: int) -> int:
        """As `Node.step`."""
        length, at = _number(data, at)
        if length < 0:
            raise DamagedBlock("a length is negative")
        return at + length

    def read(self, content: Content, at: Cursors) -> tuple[pa.Array, Cursors]:
        """As `Node.read`."""
        starts, ends = content.behind_lengths(at)
        if pa.types.is_decimal(self.arrow):
            return _decimals(content, starts, ends, self.arrow), ends
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
        """As `Node.skip`."""
        return content.behind_varints(at)

    def step(self, data: bytes, at: int) -> int:
        """As `Node.step`."""
        return _behind_number(data, at)

    def read(self, content: Content, at: Cursors) -> tuple[pa.Array, Cursors]:
        """As `Node.read`."""
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

    With one branch beside null, the values of that branch or null; otherwise a struct with one
    member per branch, of which one is set, or none where the branch is null.
    """

    branches: tuple[Node, ...]
    arrow: pa.DataType
    as_struct: bool
    weight: int
    fixed: None = None
    least: int = 1

    def skip(self, content: Content, at: Cursors) -> Cursors:
        """As `Node.skip`."""
        first = content.bytes[at]
        # Branches below 64 have one byte, in which they are doubled.
        if first.max(initial=0) < min(2 * len(self.branches), _CONTINUED) and not (first & 1).any():
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
        """As `Node.step`."""
        chosen, at = _number(data, at)
        if not 0 <= chosen < len(self.branches):
            _require_below(np.array([chosen]), len(self.branches), _BRANCH)
        return self.branches[chosen].step(data, at)

    def read(self, content: Content, at: Cursors) -> tuple[pa.Array, Cursors]:
        """As `Node.read`."""
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
        """As `Node.skip`."""
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
        """As `Node.step`."""
        for child in self.children:
            at = child.step(data, at)
        return at

    def read(self, content: Content, at: Cursors) -> tuple[pa.Array, Cursors]:
        """As `Node.read`."""
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
        """As `Node.skip`."""
        return self._scan(content, at)[2]

    def step(self, data: bytes, at: int) -> int:
        """As `Node.step`."""
        while True:
            count, at = _number(data, at)
            if count < 0:
                at, count = _behind_number(data, at), -count
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
        """As `Node.read`."""
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


def _decimals(content: Content, starts: Cursors, ends: Cursors, data_type: Any) -> pa.Array:  # noqa: ANN401 - decimal128 or decimal256
    """Return big-endian two's complement numbers as decimals."""
    width = data_type.bit_width // 8
    lengths = ends - starts
    negative = (lengths > 0) & (content.bytes[starts] >= _CONTINUED)
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


def record_starts(
    content: Content, node: Node, begins: Cursors, ends: Cursors, counts: NDArray[np.int64]
) -> Cursors:
    """Return where each record begins, block by block.

    DamagedBlock if the records of a block do not end where the block does.
    """
    # Each record takes a byte at least.
    if (counts > ends - begins).any():
        raise DamagedBlock("it has more records than bytes")
    firsts = np.cumsum(counts) - counts
    starts = np.empty(counts.sum(), np.int64)
    # The blocks with the most records come first, so that those still open lead.
    order = np.argsort(-counts, kind="stable")
    at, firsts, left, ends = begins[order], firsts[order], counts[order].tolist(), ends[order]
    active, record = len(left), 0
    while True:
        while active and left[active - 1] <= record:
            active -= 1
        if active < FEWEST_CURSORS:
            break
        starts[firsts[:active] + record] = at[:active]
        at[:active] = node.skip(content, at[:active])
        record += 1
    for block in range(active):
        first = firsts[block]
        places = _starts_in_turn(content, node, int(at[block]), left[block] - record)
        starts[first + record : first + left[block]] = places[:-1]
        at[block] = places[-1]
    if (at != ends).any():
        raise DamagedBlock("its records do not end where it ends")
    return starts


def _starts_in_turn(content: Content, node: Node, at: int, count: int) -> list[int]:
    """Return where `count` records begin, and the end of the last one."""
    places = [at]
    try:
        for _ in range(count):
            at = node.step(content.joined, at)
            places.append(at)
    except IndexError:
        raise DamagedBlock("a value is longer than its block") from None
    return [min(place, content.size + 1) for place in places]
