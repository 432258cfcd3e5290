"""Reads, changes and writes structures of Thrift's compact protocol: footers and page headers.

A structure is a list of fields; every value is a pair of its type and its content, which keeps
unknown fields. Source: thrift-compact-protocol.md of Apache Thrift.
"""

from random import Random
from typing import Any, TypeAlias

from tests.fuzz.mutations import INTERESTING, change_bytes

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, _MAP, STRUCT = range(1, 13)
Value: TypeAlias = tuple[int, Any]
Field: TypeAlias = tuple[int, Value]


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def varint(self) -> int:
        shift = value = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def integer(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def taken(self, size: int) -> bytes:
        self.at += size
        return self._data[self.at - size : self.at]

    def value(self, kind: int, *, within: bool = False) -> Value:
        match kind:
            case 1 | 2 if within:
                return kind, self.byte()
            case 1 | 2:
                return kind, None
            case 3:
                return kind, self.byte()
            case 4 | 5 | 6:
                return kind, self.integer()
            case 7:
                return kind, self.taken(8)
            case 8:
                return kind, self.taken(self.varint())
            case 9 | 10:
                head = self.byte()
                count = head >> 4 if head >> 4 < 15 else self.varint()
                return kind, [self.value(head & 15, within=True) for _ in range(count)]
            case 12:
                return kind, self.fields()
            case _:
                raise ValueError(f"type {kind}")

    def fields(self) -> list[Field]:
        found: list[Field] = []
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.integer()
            found.append((number, self.value(head & 15)))
        return found


def read(data: bytes, at: int = 0) -> tuple[list[Field], int]:
    """Return the structure at a place, and the place behind it."""
    reader = _Reader(data, at)
    return reader.fields(), reader.at


def write(fields: list[Field]) -> bytes:
    """Return a structure's bytes."""
    out = bytearray()
    _write_fields(out, fields)
    return bytes(out)


def _varint(out: bytearray, value: int) -> None:
    value &= (1 << 64) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_fields(out: bytearray, fields: list[Field]) -> None:
    before = 0
    for number, (kind, content) in fields:
        step = number - before
        out.append((step << 4 if 0 < step < 16 else 0) | kind)
        if not 0 < step < 16:
            _varint(out, (number << 1) ^ (number >> 63))
        _write_value(out, kind, content)
        before = number
    out.append(0)


def _write_value(out: bytearray, kind: int, content: Any) -> None:  # noqa: ANN401
    match kind:
        case 1 | 2:
            out.extend(b"" if content is None else bytes([content]))
        case 3:
            out.append(content & 0xFF)
        case 4 | 5 | 6:
            _varint(out, (content << 1) ^ (content >> 63))
        case 7:
            out += content
        case 8:
            _varint(out, len(content))
            out += content
        case 9 | 10:
            inner = content[0][0] if content else I32
            out.append((min(len(content), 15) << 4) | inner)
            if len(content) >= 15:
                _varint(out, len(content))
            for one, each in content:
                _write_value(out, one, each)
        case 12:
            _write_fields(out, content)


def change(random: Random, fields: list[Field]) -> list[Field]:
    """Return a structure with one field changed, at any depth."""
    if not fields:
        return [(random.randrange(1, 20), (I32, random.choice(INTERESTING)))]
    at = random.randrange(len(fields))
    number, value = fields[at]
    drawn = random.random()
    if drawn < 0.08:
        return fields[:at] + fields[at + 1 :]
    if drawn < 0.14:
        return [*fields[: at + 1], *fields[at:]]
    if drawn < 0.18:
        return [*fields[:at], (random.randrange(1, 20), value), *fields[at + 1 :]]
    return [*fields[:at], (number, _changed(random, value)), *fields[at + 1 :]]


def _changed(random: Random, value: Value) -> Value:
    kind, content = value
    match kind:
        case 1 | 2 if content is None:
            return 3 - kind, None
        case 4 | 5 | 6:
            near = content + random.choice((-1, 1, 2, 8))
            return kind, random.choice((near, near, -content, random.choice(INTERESTING)))
        case 8:
            return kind, change_bytes(random, content)
        case 9 | 10 if content:
            at = random.randrange(len(content))
            drawn = random.random()
            if drawn < 0.1:
                return kind, content[:at] + content[at + 1 :]
            if drawn < 0.2:
                return kind, content[: at + 1] + content[at:]
            return kind, [*content[:at], _changed(random, content[at]), *content[at + 1 :]]
        case 12:
            return kind, change(random, content)
        case _:
            return I32, random.choice(INTERESTING)
