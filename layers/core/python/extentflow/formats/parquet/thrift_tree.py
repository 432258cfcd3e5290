"""Reads structures of Thrift's compact protocol into trees, and writes trees.

Unlike `parquet_thrift`, everything is kept, so that a changed structure can be written again. For
metadata that this process or Arrow wrote: damaged bytes raise IndexError or ValueError.
"""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from extentflow.arrays.interleave import varint
from extentflow.formats.parquet.compact_protocol import (
    BINARY,
    BYTE,
    DEEPEST,
    DOUBLE,
    FALSE,
    I32,
    I64,
    LIST,
    SET,
    STRUCT,
    TRUE,
    CompactWalk,
)

I16 = 4
_LONG_LIST = 15
_NEAR = 15


@dataclass(slots=True)
class Elements:
    """A list: the type of its elements, and these."""

    kind: int
    values: list[Any]


@dataclass(slots=True)
class Struct:
    """A structure: type and value of each field, by its number, in the order in which it was read.

    Values are int, bytes (also of doubles, eight of them), `Elements` or `Struct`; those of
    booleans are their type. A structure can also be its bytes, which are written as they are.
    """

    fields: dict[int, tuple[int, Any]] = field(default_factory=dict)

    def get(self, number: int) -> Any:  # noqa: ANN401 - see above
        """Return the value of a field; None where there is none."""
        found = self.fields.get(number)
        return None if found is None else found[1]

    def set(self, number: int, kind: int, value: object) -> None:
        """Set a field."""
        self.fields[number] = (kind, value)

    def drop(self, *numbers: int) -> None:
        """Remove fields, where they are there."""
        for number in numbers:
            self.fields.pop(number, None)

    def structs(self, number: int) -> "list[Struct]":
        """Return the structures in a list; empty where there is no such field."""
        found = self.get(number)
        return found.values if isinstance(found, Elements) else []


Value: TypeAlias = Any


def read_struct(
    data: bytes | memoryview, at: int = 0, *, unread: frozenset[int] = frozenset()
) -> tuple[Struct, int]:
    """Return the structure at a place, and the place behind it.

    The structures in its lists `unread` stay bytes.
    """
    return _Reader(data, unread).struct(at, DEEPEST)


class _Reader(CompactWalk):
    def __init__(self, data: bytes | memoryview, unread: frozenset[int]) -> None:
        super().__init__(data)
        self._unread = unread

    def struct(self, at: int, depth: int) -> tuple[Struct, int]:
        if not depth:
            raise ValueError("too deep")
        found, number = Struct(), 0
        while head := self.data[at]:
            number, at = self.number(number, head, at + 1)
            kind = head & 15
            if kind in (TRUE, FALSE):
                found.set(number, kind, kind)
            elif kind == LIST and number in self._unread and depth == DEEPEST:
                value, at = self._structs_unread(at)
                found.set(number, kind, value)
            else:
                value, at = self.value(kind, at, depth - 1)
                found.set(number, kind, value)
        return found, at + 1

    def value(self, kind: int, at: int, depth: int) -> tuple[Value, int]:
        if kind in (I16, I32, I64):
            return self.i64(at)
        if kind == BINARY:
            return self.binary(at)
        if kind == STRUCT:
            return self.struct(at, depth)
        if kind in (LIST, SET):
            of, count, at = self._list(at)
            values = []
            for _ in range(count):
                value, at = self.element(of, at, depth)
                values.append(value)
            return Elements(of, values), at
        if kind not in (BYTE, DOUBLE):
            raise ValueError(f"type {kind}")
        end = self.behind(kind, at)
        return bytes(self.data[at:end]), end

    def _structs_unread(self, at: int) -> tuple[Elements, int]:
        count, at = self.elements(at, STRUCT)
        values = []
        for _ in range(count):
            end = self.behind(STRUCT, at)
            values.append(bytes(self.data[at:end]))
            at = end
        return Elements(STRUCT, values), at

    def element(self, kind: int, at: int, depth: int) -> tuple[Value, int]:
        if kind in (TRUE, FALSE):
            return bytes(self.data[at : at + 1]), at + 1
        return self.value(kind, at, depth)


def write_struct(struct: Struct) -> bytes:
    """Return the bytes of a structure."""
    out = bytearray()
    _put_struct(out, struct)
    return bytes(out)


def _put_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for number, (kind, value) in sorted(struct.fields.items()):
        step = number - before
        if 0 < step <= _NEAR:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            out += varint(_zigzag(number))
        if kind not in (TRUE, FALSE):
            _put(out, kind, value)
        before = number
    out.append(0)


def _put(out: bytearray, kind: int, value: Value) -> None:
    if kind in (I16, I32, I64):
        out += varint(_zigzag(value))
    elif kind == BINARY:
        out += varint(len(value))
        out += value
    elif kind == STRUCT and not isinstance(value, bytes):
        _put_struct(out, value)
    elif kind in (LIST, SET):
        _put_list(out, value)
    elif kind in (BYTE, DOUBLE, STRUCT):
        out += value
    else:
        raise ValueError(f"type {kind}")


def _put_list(out: bytearray, elements: Elements) -> None:
    count, kind = len(elements.values), elements.kind
    short = count < _LONG_LIST
    out.append((count if short else _LONG_LIST) << 4 | kind)
    if not short:
        out += varint(count)
    for one in elements.values:
        if kind in (TRUE, FALSE):
            out += one
        else:
            _put(out, kind, one)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1
