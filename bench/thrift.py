"""Thrift's compact protocol, as far as Parquet footers use it.

Source: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

FIXED_BYTES = 7
"""What a Fixed takes: enough for 0 to 2^48 - 1."""


class Kind(enum.IntEnum):
    """The type of a field; true and false are types of their own."""

    TRUE = 1
    FALSE = 2
    BYTE = 3
    I16 = 4
    I32 = 5
    I64 = 6
    DOUBLE = 7
    BINARY = 8
    LIST = 9
    STRUCT = 12


Struct: TypeAlias = dict[int, tuple[Kind, Any]]
"""Fields by id. Integers are ints, BYTE, DOUBLE and BINARY are bytes, a LIST is a `Sequence`."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list: the type of its elements, and the elements."""

    kind: Kind
    elements: list[Any]


@dataclass(frozen=True, slots=True)
class Fixed:
    """A non-negative integer of FIXED_BYTES, so that another one can replace it."""

    value: int


_LENGTHS = {Kind.BYTE: 1, Kind.DOUBLE: 8}
_LONG = 15


def varint(value: int) -> bytes:
    """Return a non-negative number, seven bits per byte."""
    found = bytearray()
    while rest := value >> 7:
        found.append(value & 0x7F | 0x80)
        value = rest
    found.append(value)
    return bytes(found)


def _zigzag(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def decode(data: bytes) -> Struct:
    """Return the struct at the start of `data`.

    Raises:
        ValueError: a type that Parquet footers do not use.
    """
    return _Reader(data).struct()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self) -> Struct:
        """Read fields up to the stop field."""
        fields: Struct = {}
        last = 0
        while header := self._take(1)[0]:
            kind, delta = Kind(header & 0x0F), header >> 4
            last = last + delta if delta else self._integer()
            fields[last] = (kind, self._value(kind))
        return fields

    def _value(self, kind: Kind) -> Any:  # noqa: ANN401 - as the kind says
        match kind:
            case Kind.TRUE | Kind.FALSE:
                return kind is Kind.TRUE
            case Kind.BYTE | Kind.DOUBLE | Kind.BINARY:
                return self._take(_LENGTHS.get(kind) or self._varint())
            case Kind.LIST:
                return self._sequence()
            case Kind.STRUCT:
                return self.struct()
            case _:
                return self._integer()

    def _sequence(self) -> Sequence:
        header = self._take(1)[0]
        kind, count = Kind(header & 0x0F), header >> 4
        if kind in (Kind.TRUE, Kind.FALSE):
            raise ValueError("lists of booleans are not supported")
        count = self._varint() if count == _LONG else count
        return Sequence(kind, [self._value(kind) for _ in range(count)])

    def _integer(self) -> int:
        found = self._varint()
        return (found >> 1) ^ -(found & 1)

    def _varint(self) -> int:
        found = shift = 0
        while (byte := self._take(1)[0]) & 0x80:
            found |= (byte & 0x7F) << shift
            shift += 7
        return found | byte << shift

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        self._at += count
        return taken


class Writer:
    """Writes consecutive structs.

    A Fixed is left zero, not yet a valid integer; `fixed` lists the position and value of each.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.fixed: list[tuple[int, int]] = []

    def struct(self, fields: Struct) -> None:
        """Write a struct and its stop."""
        self.fields(fields)
        self.data.append(0)

    def fields(self, fields: Struct, *, last: int = 0) -> None:
        """Write fields that follow field `last`, without a stop."""
        for number, (kind, value) in sorted(fields.items()):
            self.header(number, kind, last=last)
            self._value(kind, value)
            last = number

    def header(self, number: int, kind: Kind, *, last: int) -> None:
        """Write the header of field `number`, which follows field `last`."""
        delta = number - last
        self.data.append(delta << 4 | kind if delta <= _LONG else kind)
        if delta > _LONG:
            self.data += _zigzag(number)

    def sequence_header(self, kind: Kind, count: int) -> None:
        """Write the header of `count` elements."""
        self.data.append(min(count, _LONG) << 4 | kind)
        if count >= _LONG:
            self.data += varint(count)

    def _value(self, kind: Kind, value: Any) -> None:  # noqa: ANN401 - as the kind says
        match kind:
            case Kind.TRUE | Kind.FALSE:
                pass
            case Kind.BYTE | Kind.DOUBLE:
                self.data += value
            case Kind.BINARY:
                self.data += varint(len(value)) + value
            case Kind.LIST:
                self._elements(value.kind, value.elements)
            case Kind.STRUCT:
                self.struct(value)
            case _:
                self._integer(value)

    def _elements(self, kind: Kind, elements: Iterable[Any]) -> None:
        found = list(elements)
        self.sequence_header(kind, len(found))
        for element in found:
            self._value(kind, element)

    def _integer(self, value: int | Fixed) -> None:
        if isinstance(value, Fixed):
            self.fixed.append((len(self.data), value.value))
            self.data += bytes(FIXED_BYTES)
        else:
            self.data += _zigzag(value)
