"""Write a Parquet footer again with some of its columns: those that Arrow can read.

Arrow opens no file with a column of a type that it lacks, not even to read the other columns. Row
groups stay where they are, because a footer refers to each column chunk by its offset.

Tests: unit/formats/parquet/test_footer.py
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from extentflow.formats.arrow_messages import with_null_types
from extentflow.formats.parquet.compact_protocol import BINARY, I32, LIST, STRUCT
from extentflow.formats.parquet.thrift_tree import Elements, Struct, read_struct, write_struct

_MAGIC = b"PAR1"
# Fields of FileMetaData, SchemaElement, RowGroup and KeyValue in parquet.thrift.
_SCHEMA, _GROUPS, _PAIRS, _ORDERS = 2, 4, 5, 7
_NAME, _CHILDREN = 4, 5
_CHUNKS, _SORTING = 1, 4
_KEY, _VALUE = 1, 2
_ARROW_SCHEMA = b"ARROW:schema"
# In front of a message: a mark and its length.
_LEAD_BYTES = 8


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: its schema elements and its leaves, both as ordinals."""

    name: str
    elements: range
    leaves: range


class ColumnSubsets:
    """The footer of a file that is not encrypted, of which any columns can be left out.

    Raises IndexError or ValueError for a footer that is damaged.
    """

    def __init__(self, framed: bytes) -> None:
        length = int.from_bytes(framed[-8:-4], "little")
        self._tree, _ = read_struct(framed[-8 - length : -8])
        self._columns = list(_columns(self._tree.structs(_SCHEMA)))
        self._leaves = sum(len(one.leaves) for one in self._columns)
        pairs = self._tree.structs(_PAIRS)
        self._others = [pair for pair in pairs if pair.get(_KEY) != _ARROW_SCHEMA]
        stored = [pair.get(_VALUE) for pair in pairs if pair.get(_KEY) == _ARROW_SCHEMA]
        self._arrow = _arrow_schema(stored[0], len(self._columns)) if stored else None

    def unreadable(self, opened: Callable[[bytes], Exception | None]) -> dict[int, Exception]:
        """Return the columns that Arrow cannot read, by their ordinals, and why.

        `opened` returns why a footer cannot be opened.
        """

        def failing(columns: Sequence[int]) -> Iterator[tuple[int, Exception]]:
            if not columns or (why := opened(self.framed(columns))) is None:
                return
            if len(columns) == 1:
                yield columns[0], why
                return
            half = len(columns) // 2
            yield from failing(columns[:half])
            yield from failing(columns[half:])

        readable = [at for at in range(len(self._columns)) if at not in self._refused]
        return dict(sorted([*self._refused.items(), *failing(readable)]))

    @property
    def _refused(self) -> dict[int, Exception]:
        """The columns whose types in the Arrow schema pyarrow cannot read."""
        return {} if self._arrow is None else self._arrow[1]

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return len(self._columns)

    def name(self, column: int) -> str:
        """Return the name of a column."""
        return self._columns[column].name

    def framed(self, kept: Sequence[int]) -> bytes:
        """Return a footer of these columns, its length and the magic."""
        tree = Struct(dict(self._tree.fields))
        elements = self._tree.structs(_SCHEMA)
        root = Struct(dict(elements[0].fields))
        root.set(_CHILDREN, I32, len(kept))
        columns = [self._columns[at] for at in kept]
        shown = [root, *(elements[at] for one in columns for at in one.elements)]
        tree.set(_SCHEMA, LIST, Elements(STRUCT, shown))
        leaves = [at for one in columns for at in one.leaves]
        groups = [self._group(group, leaves) for group in self._tree.structs(_GROUPS)]
        tree.set(_GROUPS, LIST, Elements(STRUCT, groups))
        orders = self._tree.structs(_ORDERS)
        if len(orders) == self._leaves:
            tree.set(_ORDERS, LIST, Elements(STRUCT, [orders[at] for at in leaves]))
        tree.drop(_PAIRS)
        if pairs := [*self._others, *self._arrow_pair(kept)]:
            tree.set(_PAIRS, LIST, Elements(STRUCT, pairs))
        footer = write_struct(tree)
        return footer + len(footer).to_bytes(4, "little") + _MAGIC

    @staticmethod
    def _group(group: Struct, leaves: Sequence[int]) -> Struct:
        chunks, made = group.structs(_CHUNKS), Struct(dict(group.fields))
        made.set(_CHUNKS, LIST, Elements(STRUCT, [chunks[at] for at in leaves]))
        # By the ordinals of columns, which change.
        made.drop(_SORTING)
        return made

    def _arrow_pair(self, kept: Sequence[int]) -> Iterator[Struct]:
        if self._arrow is None:
            return
        schema, _ = self._arrow
        own = pa.schema([schema.field(at) for at in kept], schema.metadata)
        pair = Struct()
        pair.set(_KEY, BINARY, _ARROW_SCHEMA)
        pair.set(_VALUE, BINARY, base64.b64encode(own.serialize().to_pybytes()))
        yield pair


def _columns(elements: Sequence[Struct]) -> Iterator[_Column]:
    """Yield the columns of a schema, whose elements are in pre-order."""
    at, leaf = 1, 0
    while at < len(elements):
        end, leaves, open_elements = at, 0, 1
        while open_elements:
            children = elements[end].get(_CHILDREN) or 0
            open_elements += children - 1
            leaves += not children
            end += 1
        name = bytes(elements[at].get(_NAME) or b"").decode(errors="replace")
        yield _Column(name, range(at, end), range(leaf, leaf + leaves))
        at, leaf = end, leaf + leaves


def _arrow_schema(stored: bytes, columns: int) -> tuple[pa.Schema, dict[int, Exception]] | None:
    """Return the Arrow schema of a file, and the columns whose types pyarrow cannot read.

    In the schema, these are of the null type. None for one that belongs to other columns.
    """
    message = base64.b64decode(stored)
    refused: dict[int, Exception] = {}
    try:
        schema = pa.ipc.read_schema(pa.BufferReader(message))
    except pa.ArrowException:
        every = frozenset(range(columns))
        for at in range(columns):
            one = _with_nulls(message, every - {at})
            try:
                pa.ipc.read_schema(pa.BufferReader(one))
            except pa.ArrowException as exc:
                refused[at] = exc
        schema = pa.ipc.read_schema(pa.BufferReader(_with_nulls(message, frozenset(refused))))
    return (schema, refused) if len(schema) == columns else None


def _with_nulls(message: bytes, columns: frozenset[int]) -> bytes:
    return message[:_LEAD_BYTES] + with_null_types(message[_LEAD_BYTES:], columns)
