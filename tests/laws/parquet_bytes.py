"""Write Parquet byte by byte: schemas, levels and pages that no writer of today makes.

One row group, one PLAIN page per column, not compressed. Levels are written as given, so that a
file may be of an old writer, or contradict itself.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz import thrift
from tests.fuzz.thrift import BINARY, I32, I64, STRUCT

BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED = range(8)
REQUIRED, OPTIONAL, REPEATED = range(3)
# Converted types of the format's specification.
UTF8, MAP, MAP_KEY_VALUE, LIST, ENUM, DECIMAL = range(6)
JSON, BSON, INTERVAL = 19, 20, 21
# The ordinals of logical types in their union.
LOGICAL_FLOAT16, LOGICAL_VARIANT = 15, 16

_PACKED = {INT32: "<i", INT64: "<q", FLOAT: "<f", DOUBLE: "<d"}


@dataclass(frozen=True)
class Element:
    """One element of a schema; `logical` is the ordinal of a logical type without parameters."""

    name: str
    repetition: int | None = OPTIONAL
    physical: int | None = None
    children: int = 0
    length: int | None = None
    converted: int | None = None
    scale: int | None = None
    precision: int | None = None
    logical: int | None = None


@dataclass(frozen=True)
class Column:
    """One leaf: the values that are not null, and the levels of all; `claimed` overrides a count.

    `statistics` are the least and the greatest value, encoded, and the number of nulls. Those that
    are `deprecated` are in the fields of old writers, without an order for their type.
    """

    path: Sequence[str]
    physical: int
    values: Sequence[Any]
    definition: Sequence[int] = ()
    repetition: Sequence[int] = ()
    claimed: int | None = None
    checksum: bool = False
    statistics: tuple[bytes | None, bytes | None, int | None] | None = None
    deprecated: bool = False
    encoded: bytes | None = field(default=None)

    @property
    def count(self) -> int:
        """The number of values, nulls included."""
        return self.claimed or len(self.definition) or len(self.values)


def parquet_file(
    elements: Sequence[Element], columns: Sequence[Column], rows: int, **key_values: str
) -> bytes:
    """Return a file of these leaf columns under a root of `elements`."""
    body, chunks = b"PAR1", []
    for column in columns:
        page = _page(column)
        chunks.append(_chunk(column, len(body), len(page)))
        body += page
    roots = _roots(elements)
    schema = [_element(Element("root", None, children=roots)), *map(_element, elements)]
    group = _fields((1, thrift.LIST, chunks), (2, I64, len(body) - 4), (3, I64, rows))
    pairs = [
        _struct((1, BINARY, name.replace("_", ".").encode()), (2, BINARY, value.encode()))
        for name, value in key_values.items()
    ]
    # Without the orders of their columns, readers ignore the statistics of today's fields.
    orders = [_struct((1, STRUCT, [])) for _ in columns]
    fields = _fields(
        (1, I32, 1),
        (2, thrift.LIST, schema),
        (3, I64, rows),
        (4, thrift.LIST, [(STRUCT, group)]),
        (5, thrift.LIST, pairs or None),
        (7, thrift.LIST, None if any(each.deprecated for each in columns) else orders),
    )
    footer = thrift.write(fields)
    return body + footer + struct.pack("<I", len(footer)) + b"PAR1"


def one_column(element: Element, values: Sequence[Any], **options: Any) -> bytes:  # noqa: ANN401
    """Return a file of one required or optional column; None is a null."""
    assert element.physical is not None
    levels = [int(value is not None) for value in values] if element.repetition else []
    stored = [value for value in values if value is not None]
    column = Column([element.name], element.physical, stored, levels, **options)
    return parquet_file([element], [column], len(values))


def int96(days: int, nanoseconds: int) -> bytes:
    """Return a timestamp by its days since 1970 and nanoseconds of the day."""
    return struct.pack("<Qi", nanoseconds, days + 2_440_588)


def _roots(elements: Sequence[Element]) -> int:
    roots = at = 0
    while at < len(elements):
        at = _behind(elements, at)
        roots += 1
    return roots


def _behind(elements: Sequence[Element], at: int) -> int:
    children = elements[at].children
    at += 1
    for _ in range(children):
        at = _behind(elements, at)
    return at


def _element(element: Element) -> thrift.Value:
    logical = None if element.logical is None else [(element.logical, _struct())]
    return _struct(
        (1, I32, element.physical),
        (2, I32, element.length),
        (3, I32, element.repetition),
        (4, BINARY, element.name.encode()),
        (5, I32, element.children or None),
        (6, I32, element.converted),
        (7, I32, element.scale),
        (8, I32, element.precision),
        (10, STRUCT, logical),
    )


def _page(column: Column) -> bytes:
    body = _levels(column.repetition) + _levels(column.definition)
    body += _plain(column) if column.encoded is None else column.encoded
    crc = struct.unpack("<i", struct.pack("<I", zlib.crc32(body)))[0]
    data = _fields((1, I32, column.count), (2, I32, 0), (3, I32, 3), (4, I32, 3))
    header = _fields(
        (1, I32, 0),
        (2, I32, len(body)),
        (3, I32, len(body)),
        (4, I32, crc if column.checksum else None),
        (5, STRUCT, data),
    )
    return thrift.write(header) + body


def _chunk(column: Column, start: int, size: int) -> thrift.Value:
    statistics = None
    if column.statistics is not None:
        low, high, nulls = column.statistics
        greatest, least = (1, 2) if column.deprecated else (5, 6)
        fields = [(greatest, BINARY, high), (least, BINARY, low), (3, I64, nulls)]
        statistics = _fields(*sorted(fields))
    facts = _fields(
        (1, I32, column.physical),
        (2, thrift.LIST, [(I32, 0), (I32, 3)]),
        (3, thrift.LIST, [(BINARY, name.encode()) for name in column.path]),
        (4, I32, 0),
        (5, I64, column.count),
        (6, I64, size),
        (7, I64, size),
        (9, I64, start),
        (12, STRUCT, statistics),
    )
    return _struct((2, I64, start), (3, STRUCT, facts))


def _fields(*fields: tuple[int, int, Any]) -> list[thrift.Field]:
    """Return the fields that are not None."""
    return [(number, (kind, value)) for number, kind, value in fields if value is not None]


def _struct(*fields: tuple[int, int, Any]) -> thrift.Value:
    return STRUCT, _fields(*fields)


def _levels(levels: Sequence[int]) -> bytes:
    """Return runs of one level each; a column without levels has none."""
    if not levels:
        return b""
    runs = b"".join(bytes([1 << 1, level]) for level in levels)
    return struct.pack("<I", len(runs)) + runs


def _plain(column: Column) -> bytes:
    if column.physical == BOOLEAN:
        bits = sum(int(value) << at for at, value in enumerate(column.values))
        return bits.to_bytes(-(-len(column.values) // 8), "little")
    if column.physical == BYTE_ARRAY:
        return b"".join(struct.pack("<I", len(value)) + value for value in column.values)
    packed = _PACKED.get(column.physical)
    return b"".join(struct.pack(packed, each) if packed else each for each in column.values)
