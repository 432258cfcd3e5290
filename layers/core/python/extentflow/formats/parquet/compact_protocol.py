"""Walk through Thrift's compact protocol, in which Parquet's metadata and page headers are written.

Nothing is kept. Numbers wrap as in Arrow's reader, so that both find the same fields. Source:
thrift-compact-protocol.md of Apache Thrift.
"""

from __future__ import annotations

from collections.abc import Callable

TRUE, FALSE, BYTE, I32, I64, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 5, 6, 7, 8, 9, 10, 12
DEEPEST = 64
# Of booleans in structures, a byte, and a double.
_FIXED_BYTES = {0: 0, 1: 0, 2: 0, BYTE: 1, DOUBLE: 8}
# Seven bits a byte, of 64.
_MOST_VARINT_BYTES = 10
# Numbers of fields have 16 bits, and steps up to 15 lead from one to the next.
_NEAR_THE_LAST = 0x7FF0

Inner = Callable[[int, int], int]


class CompactWalk:
    """Walks through bytes; places are offsets in them. IndexError: they end too early.

    ValueError: they are not of the protocol, or of a type that Parquet does not use.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = data

    def fields(self, at: int, wanted: tuple[int, int], inner: Inner) -> int:
        """Walk through a structure, through the field `wanted` by `inner`; return its end."""
        data, number = self.data, 0
        while head := data[at]:
            number, at = self.number(number, head, at + 1)
            kind = head & 15
            is_wanted = (number, kind) == wanted
            at = inner(at, number) if is_wanted else self.behind(kind, at)
        return at + 1

    def each(self, at: int, inner: Inner) -> int:
        """Walk through the elements of a list of structures by `inner`; return its end."""
        count, at = self.elements(at, STRUCT)
        for ordinal in range(count):
            at = inner(at, ordinal)
        return at

    def elements(self, at: int, *kinds: int) -> tuple[int, int]:
        """Return how many elements a list of such a type has, and the place of the first one."""
        kind, count, at = self._list(at)
        if count and kind not in kinds:
            raise ValueError(f"elements of type {kind}")
        return count, at

    def number(self, before: int, head: int, at: int) -> tuple[int, int]:
        """Return the number of a field, of 16 bits, and the place behind it."""
        if (step := head >> 4) and before < _NEAR_THE_LAST:
            return before + step, at
        if step:
            return (before + step + 0x8000) % 0x10000 - 0x8000, at
        zigzag, at = self.varint(at)
        return (_unzigzagged(zigzag & 0xFFFFFFFF) + 0x8000) % 0x10000 - 0x8000, at

    def varint(self, at: int) -> tuple[int, int]:
        """Return a number without a sign, and the place behind it."""
        data, value, start = self.data, 0, at
        if (byte := data[at]) <= 0x7F:  # noqa: PLR2004 - as below
            return byte, at + 1
        while (byte := data[at]) > 0x7F:  # noqa: PLR2004 - the bit that continues
            value |= (byte & 0x7F) << 7 * (at - start)
            at += 1
            if at - start >= _MOST_VARINT_BYTES:
                raise ValueError("a number of more than 64 bits")
        return value | byte << 7 * (at - start), at + 1

    def i32(self, at: int) -> tuple[int, int]:
        """Return a number of 32 bits with its sign, and the place behind it."""
        value, at = self.varint(at)
        return _unzigzagged(value & 0xFFFFFFFF), at

    def i64(self, at: int) -> tuple[int, int]:
        """Return a number of 64 bits with its sign, and the place behind it."""
        value, at = self.varint(at)
        return _unzigzagged(value & 0xFFFFFFFFFFFFFFFF), at

    def binary(self, at: int) -> tuple[bytes, int]:
        """Return bytes, and the place behind them."""
        length, at = self.varint(at)
        if at + length > len(self.data):
            raise IndexError(at + length)
        return bytes(self.data[at : at + length]), at + length

    def behind(self, kind: int, at: int, depth: int = DEEPEST) -> int:
        """Return the place behind a value."""
        if BYTE < kind <= I64:
            return self.varint(at)[1]
        if kind == BINARY:
            length, at = self.varint(at)
            return at + length
        if kind > DOUBLE:
            return self._behind_nested(kind, at, depth)
        if (end := at + _FIXED_BYTES[kind]) > len(self.data):
            raise IndexError(end)
        return end

    def _behind_nested(self, kind: int, at: int, depth: int) -> int:
        if not depth:
            raise ValueError("too deep")
        if kind == STRUCT:
            while head := self.data[at]:
                _, at = self.number(0, head, at + 1)
                at = self.behind(head & 15, at, depth - 1)
            return at + 1
        if kind in (LIST, SET):
            kind, count, at = self._list(at)
            for _ in range(count):
                at = self._element(kind, at, depth - 1)
            return at
        # Neither maps nor UUIDs are part of the format.
        raise ValueError(f"type {kind}")

    def _list(self, at: int) -> tuple[int, int, int]:
        head = self.data[at]
        kind, count, at = head & 15, head >> 4, at + 1
        if count == 15:  # noqa: PLR2004 - the count follows
            count, at = self.varint(at)
        # Every element has a byte at least: what is stated alone must not make a loop long.
        if (end := at + count * (_FIXED_BYTES[DOUBLE] if kind == DOUBLE else 1)) > len(self.data):
            raise IndexError(end)
        return kind, count, at

    def _element(self, kind: int, at: int, depth: int) -> int:
        # Booleans in lists have a byte, those of structures have none.
        if kind < BYTE:
            if at >= len(self.data):
                raise IndexError(at)
            return at + 1
        return self.behind(kind, at, depth)


def _unzigzagged(value: int) -> int:
    return (value >> 1) ^ -(value & 1)
