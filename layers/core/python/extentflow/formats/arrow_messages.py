"""Read the flatbuffers of Arrow's footers and messages: blocks, dictionaries, sizes to unpack.

Tests: unit/formats/arrow/test_arrow_format.py
"""

from __future__ import annotations

import struct
from collections.abc import Container
from dataclasses import dataclass
from typing import TypeAlias

from extentflow.arrays.valid_batches import LARGEST_UNPACKED_BYTES

_DICTIONARIES, _BATCHES = 2, 3
# In the footer, a block is an offset, the length of its metadata, and that of its body.
_BLOCK = struct.Struct("<qi4xq")
# Fields of a message and of a record batch in Message.fbs, and kinds of messages.
_KIND, _HEADER = 1, 2
_ROWS, _BUFFERS, _COMPRESSION = 0, 2, 3
_OF_DICTIONARY, _OF_BATCH = 2, 3
# Of a dictionary batch.
_ID, _DATA, _IS_DELTA = 0, 1, 2
# Of a schema in Schema.fbs, and of a field of it.
_FIELDS, _TYPE_KIND, _DICTIONARY, _CHILDREN = 1, 2, 4, 5
# Of types in Schema.fbs.
_NULL = 1
_OFFSET_BYTES = 4
_BUFFER, _SIZE = struct.Struct("<qq"), struct.Struct("<q")


Buffer: TypeAlias = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Block:
    """A record batch: bytes `[start, end)`."""

    start: int
    end: int


def footer_blocks(footer: bytes) -> tuple[list[Block], list[Block]]:
    """Return the dictionaries and the record batches that a footer lists."""
    return _blocks(footer, _DICTIONARIES), _blocks(footer, _BATCHES)


def _blocks(footer: bytes, number: int) -> list[Block]:
    found = _structs(footer, _target(footer, 0), number, _BLOCK)
    return [Block(start, start + lead + body) for start, lead, body in found]


def _target(data: Buffer, at: int) -> int:
    """Return where the table or vector is whose offset is at `at`."""
    return at + int(struct.unpack_from("<I", data, at)[0])


def _place(data: Buffer, table: int, number: int) -> int:
    """Return where a field of a flatbuffer's table is; 0 where the table has none."""
    (distance,) = struct.unpack_from("<i", data, table)
    vtable = table - distance
    # A vtable begins with its own size and the table's.
    slot = 4 + 2 * number
    if not 0 <= vtable < len(data):
        raise ValueError("a table without its fields")
    (size,) = struct.unpack_from("<H", data, vtable)
    (at,) = struct.unpack_from("<H", data, vtable + slot) if slot < size else (0,)
    return table + at if at else 0


def _structs(data: Buffer, table: int, number: int, kind: struct.Struct) -> list[tuple[int, ...]]:
    """Return a field of a flatbuffer's table that is a vector of structs."""
    return [kind.unpack_from(data, at) for at in _elements(data, table, number, kind.size)]


def _tables(data: Buffer, table: int, number: int) -> list[int]:
    """Return the places of the tables of a field that is a vector of them."""
    return [_target(data, at) for at in _elements(data, table, number, _OFFSET_BYTES)]


def _elements(data: Buffer, table: int, number: int, size: int) -> range:
    """Return where the elements are of a field of a flatbuffer's table that is a vector."""
    at = _place(data, table, number)
    if not at:
        return range(0)
    vector = _target(data, at)
    (count,) = struct.unpack_from("<I", data, vector)
    if count * size > len(data):
        raise ValueError("a vector that is longer than what holds it")
    return range(vector + 4, vector + 4 + size * count, size)


def stated_rows(metadata: Buffer) -> int:
    """Return how many rows the metadata of a record batch's message states.

    Raises ValueError and struct.error for damaged metadata.
    """
    rows = _place(metadata, _header(metadata), _ROWS)
    return int(_SIZE.unpack_from(metadata, rows)[0]) if rows else 0


def stated_dictionary(metadata: Buffer) -> tuple[int, bool]:
    """Return the id that a dictionary's message states, and whether it adds to one before it.

    Raises ValueError and struct.error for damaged metadata.
    """
    dictionary = _header(metadata)
    own, delta = (_place(metadata, dictionary, number) for number in (_ID, _IS_DELTA))
    (number,) = _SIZE.unpack_from(metadata, own) if own else (0,)
    return int(number), bool(delta and metadata[delta])


def expected_dictionaries(metadata: Buffer) -> set[int]:
    """Return the ids of all dictionaries that the message of a schema refers to.

    Raises ValueError and struct.error for damaged metadata.
    """
    left, seen, found = _tables(metadata, _header(metadata), _FIELDS), set[int](), set[int]()
    while left:
        column = left.pop()
        if column in seen:
            raise ValueError("a column that stands twice in its schema")
        seen.add(column)
        if encoding := _place(metadata, column, _DICTIONARY):
            own = _place(metadata, _target(metadata, encoding), 0)
            found.add(int(_SIZE.unpack_from(metadata, own)[0]) if own else 0)
        left += _tables(metadata, column, _CHILDREN)
    return found


def with_null_types(metadata: bytes, columns: Container[int]) -> bytes:
    """Return the message of a schema with some columns, by their ordinals, of the null type.

    Raises ValueError and struct.error for damaged metadata.
    """
    changed = bytearray(metadata)
    tables = _tables(metadata, _header(metadata), _FIELDS)
    left = [table for at, table in enumerate(tables) if at in columns]
    seen: set[int] = set()
    while left:
        column = left.pop()
        if column in seen:
            raise ValueError("a column that stands twice in its schema")
        seen.add(column)
        if kind := _place(metadata, column, _TYPE_KIND):
            changed[kind] = _NULL
        left += _tables(metadata, column, _CHILDREN)
    return bytes(changed)


def _header(metadata: Buffer) -> int:
    """Return where the header of a message is: its schema, dictionary or record batch."""
    header = _place(metadata, _target(metadata, 0), _HEADER)
    if not header:
        raise ValueError("a message without a header")
    return _target(metadata, header)


class Claims:
    """What messages say that they unpack to: Arrow allocates it before it unpacks anything."""

    def __init__(self) -> None:
        self._dictionaries: dict[int, int] = {}

    def check(self, metadata: Buffer, body: Buffer) -> None:
        """Raise ValueError for a message, or dictionaries, of more than `LARGEST_UNPACKED_BYTES`.

        Arrow reports metadata that cannot be read.
        """
        try:
            claimed = self._claimed(metadata, body)
        except (struct.error, IndexError, ValueError):
            return
        if claimed > LARGEST_UNPACKED_BYTES:
            raise ValueError(
                f"it unpacks to {claimed} bytes, extentflow reads up to {LARGEST_UNPACKED_BYTES};"
                " write smaller batches"
            )

    def _claimed(self, metadata: Buffer, body: Buffer) -> int:
        message = _target(metadata, 0)
        kind, header = (_place(metadata, message, number) for number in (_KIND, _HEADER))
        if not kind or not header or metadata[kind] not in (_OF_DICTIONARY, _OF_BATCH):
            return 0
        batch = dictionary = _target(metadata, header)
        if metadata[kind] == _OF_BATCH:
            return _unpacked_bytes(metadata, batch, body)
        data = _place(metadata, dictionary, _DATA)
        claimed = _unpacked_bytes(metadata, _target(metadata, data), body) if data else 0
        number, adds = stated_dictionary(metadata)
        if adds:
            claimed += self._dictionaries.get(number, 0)
        self._dictionaries[number] = claimed
        return sum(self._dictionaries.values())


def _unpacked_bytes(metadata: Buffer, batch: int, body: Buffer) -> int:
    """Return the size of a record batch's buffers, each of which begins with its own."""
    if not _place(metadata, batch, _COMPRESSION):
        return len(body)
    buffers = _structs(metadata, batch, _BUFFERS, _BUFFER)
    last = len(body) - _SIZE.size
    starts = [start for start, length in buffers if length >= _SIZE.size and 0 <= start <= last]
    # -1 stands for a buffer that is not compressed.
    return len(body) + sum(max(0, int(_SIZE.unpack_from(body, start)[0])) for start in starts)
