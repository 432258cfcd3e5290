"""Target `parquet`: footers, pages and page indexes, damaged by bytes and by their structure."""

import io
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.fuzz import thrift
from tests.fuzz.mutations import change_bytes, pack, unpack
from tests.fuzz.objects import outcome_of, require_laws, sizes
from tests.fuzz.targets import Target
from tests.laws.parquet_bytes import (
    BYTE_ARRAY,
    DECIMAL,
    ENUM,
    INT32,
    INT96,
    LOGICAL_VARIANT,
    OPTIONAL,
    REQUIRED,
    Column,
    Element,
    int96,
    one_column,
    parquet_file,
)

from extentflow.config.specs import Ranges
from extentflow.formats import FormatOptions
from extentflow.formats.parquet.footer import Footers
from extentflow.formats.parquet.parquet_format import Parquet

_ROWS = 12
_FRAME_BYTES = 8


def _columns() -> dict[str, pa.Array]:
    when = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    nested: list[Any] = [{"a": [1, None], "b": {"c": "x"}}, None, {"a": [], "b": None}] * 4
    return {
        "int": pa.array([1, None, 3] * 4, pa.int32()),
        "long": pa.array(range(_ROWS), pa.int64()),
        "small": pa.array([1, 2, 3, 4] * 3, pa.uint8()),
        "double": pa.array([1.5, None, float("nan")] * 4),
        "half": pa.array([1.5, None, -2.0] * 4, pa.float32()),
        "flag": pa.array([True, None, False] * 4),
        "text": pa.array(["a", "ü" * 40, None] * 4),
        "bytes": pa.array([b"a", b"\xff" * 30, None] * 4),
        "fixed": pa.array([b"abcd"] * _ROWS, pa.binary(4)),
        "price": pa.array([Decimal("1.50"), None, Decimal("-9.99")] * 4, pa.decimal128(9, 2)),
        "wide": pa.array([Decimal(10**30)] * _ROWS, pa.decimal256(40, 2)),
        "day": pa.array([date(2026, 1, 2)] * _ROWS),
        "seen": pa.array([when] * _ROWS, pa.timestamp("us", tz="UTC")),
        "clock": pa.array([1, 2, 3] * 4, pa.time64("us")),
        "list": pa.array([[1, 2], [], None] * 4, pa.list_(pa.int16())),
        "map": pa.array([[("k", 1)], [], None] * 4, pa.map_(pa.string(), pa.int32())),
        "nested": pa.array(nested),
        "coded": pa.array(["x", "y", "x"] * 4).dictionary_encode(),
    }


_WRITERS: tuple[dict[str, Any], ...] = (
    {"compression": "none"},
    {"compression": "none", "write_page_checksum": True},
    {"compression": "none", "use_dictionary": False, "data_page_version": "2.0"},
    {"compression": "snappy", "row_group_size": 5},
    {"compression": "zstd", "data_page_version": "2.0", "write_page_checksum": True},
    {"compression": "gzip", "row_group_size": 4},
    {"compression": "lz4", "data_page_size": 16, "write_batch_size": 2},
    {"compression": "brotli", "use_dictionary": False},
    {"compression": "none", "use_deprecated_int96_timestamps": True},
    {"compression": "none", "store_schema": False, "write_page_index": True},
)
_ENCODINGS = (
    *("DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"),
    *("PLAIN", "BYTE_STREAM_SPLIT", "RLE"),
)


def _written(table: pa.Table, **options: Any) -> bytes:  # noqa: ANN401
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


@cache
def seeds() -> tuple[bytes, ...]:
    """Return small objects of every type, encoding, compression and page version."""
    columns = _columns()
    found = [_written(pa.table(columns), **options) for options in _WRITERS]
    for number, (name, column) in enumerate(columns.items()):
        table, options = pa.table({name: column}), _WRITERS[number % len(_WRITERS)]
        found.append(_written(table, **options))
        found.append(_written(table, compression="none", use_dictionary=False))
        found.extend(_encoded(table))
    return (*found, *_converted(), *indexed_seeds())


@cache
def indexed_seeds() -> tuple[bytes, ...]:
    """Return small objects of columns that are not nested, with a page index and several pages."""
    columns = {name: each for name, each in _columns().items() if not pa.types.is_nested(each.type)}
    pages = {"write_page_index": True, "data_page_size": 1, "write_batch_size": 3}
    return tuple(
        _written(pa.table(chosen), compression="none", **pages)
        for chosen in (columns, *({name: column} for name, column in columns.items()))
    )


def _converted() -> Iterator[bytes]:
    """Yield objects of types that are made exact after Arrow has read them."""
    levels, path = [1, 0, 1, 1], ["v"]
    variant = [
        Element("v", OPTIONAL, children=2, logical=LOGICAL_VARIANT),
        Element("metadata", REQUIRED, BYTE_ARRAY),
        Element("value", REQUIRED, BYTE_ARRAY),
    ]
    values = [b"\x02\x02\0\1\0\5\7\5abcd\x0c\5", b"\x0c\5", b"\5x"]
    columns = [
        Column([*path, "metadata"], BYTE_ARRAY, [b"\1\2\0\1\2ab"] * 3, levels),
        Column([*path, "value"], BYTE_ARRAY, values, levels),
    ]
    yield parquet_file(variant, columns, len(levels))
    yield one_column(Element("e", OPTIONAL, BYTE_ARRAY, converted=ENUM), [b"a", None, b"\xc3\xa4"])
    decimal = Element("d", OPTIONAL, INT32, converted=DECIMAL, scale=1, precision=2)
    yield one_column(decimal, [99, None, -99])
    yield one_column(Element("t", OPTIONAL, INT96), [int96(0, 1), None, int96(100_000, 2)])


def _encoded(table: pa.Table) -> Iterator[bytes]:
    for encoding in _ENCODINGS:
        chosen = {"use_dictionary": False, "column_encoding": encoding}
        try:
            yield _written(table, compression="none", **chosen)
        except (pa.ArrowException, OSError):  # not an encoding of that type
            continue


def _footer_start(data: bytes) -> int:
    return len(data) - _FRAME_BYTES - int.from_bytes(data[-_FRAME_BYTES:-4], "little")


def _framed(body: bytes, footer: bytes) -> bytes:
    return body + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _with_other_footer(random: Random, data: bytes) -> bytes:
    start = _footer_start(data)
    fields, _ = thrift.read(data, start)
    for _ in range(random.choice((1, 1, 2, 4))):
        fields = thrift.change(random, fields)
    return _framed(data[:start], thrift.write(fields))


def _with_other_page(random: Random, data: bytes) -> bytes:
    """Change a page's header; what follows moves, and offsets in the footer are not corrected."""
    metadata = pq.read_metadata(pa.BufferReader(data))
    group = metadata.row_group(random.randrange(metadata.num_row_groups))
    chunk = group.column(random.randrange(group.num_columns))
    places = [chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset]
    at = random.choice(places)
    fields, end = thrift.read(data, at)
    header = thrift.write(thrift.change(random, fields))
    behind = _footer_start(data)
    if len(header) == end - at:
        return data[:at] + header + data[end:]
    # A file of one chunk stays whole if the chunk's size grows with its header.
    shift = len(header) - (end - at)
    footer = thrift.read(data, behind)[0]
    if metadata.num_row_groups == group.num_columns == 1:
        footer = [(number, _resized(value, shift)) for number, value in footer]
    return _framed(data[:at] + header + data[end:behind], thrift.write(footer))


def _with_other_index(random: Random) -> bytes:
    """Change an offset index or a column index of an object that has them."""
    data = random.choice(indexed_seeds())
    start = _footer_start(data)
    footer = thrift.read(data, start)[0]
    group = dict(dict(footer)[_ROW_GROUPS][1][0][1])
    _, chunk = random.choice(group[_COLUMNS][1])
    number, places = random.choice((4, 6)), dict(chunk)
    index, _ = thrift.read(data, places[number][1])
    for _ in range(random.choice((1, 1, 2))):
        index = thrift.change(random, index)
    changed = thrift.write(index)
    places |= {number: (thrift.I64, start), number + 1: (thrift.I32, len(changed))}
    chunk[:] = sorted(places.items())
    return _framed(data[:start] + changed, thrift.write(footer))


_ROW_GROUPS, _COLUMNS, _METADATA, _COMPRESSED_SIZE = 4, 1, 3, 7


def _resized(value: thrift.Value, shift: int, path: tuple[int, ...] = ()) -> thrift.Value:
    kind, content = value
    if kind == thrift.STRUCT:
        return kind, [(n, _resized(inner, shift, (*path, n))) for n, inner in content]
    if kind == thrift.LIST:
        return kind, [_resized(inner, shift, path) for inner in content]
    if kind == thrift.I64 and path[-2:] == (_METADATA, _COMPRESSED_SIZE):
        return kind, content + shift
    return value


def _with_other_bytes(random: Random, data: bytes) -> bytes:
    """Change bytes of pages only; the length stays."""
    start = _footer_start(data)
    body = bytearray(data[4:start])
    for _ in range(random.choice((1, 1, 2, 5))):
        body[random.randrange(len(body))] = random.choice(
            (0, 1, 0x7F, 0x80, 0xFF, random.randrange(256))
        )
    return data[:4] + bytes(body) + data[start:]


def _object(random: Random) -> bytes:
    data = random.choice(seeds())
    changes = (_with_other_footer, _with_other_footer, _with_other_page, _with_other_page)
    drawn = random.randrange(9)
    if drawn == 8:
        data = _with_other_index(random)
    elif drawn < len(changes):
        data = changes[drawn](random, data)
    elif drawn < 7:
        data = _with_other_bytes(random, data)
    else:
        data = change_bytes(random, data, seeds())
    given = {
        **sizes(random, data),
        # What damage loses depends on the batches, so that all ways have the same.
        "window": random.choice((64, 1 << 20, 1 << 20)),
        "batch": random.choice((2, 5, 65_536, 65_536)),
        "readers": 2 if random.random() < 0.05 else 0,
        "converter": random.choice(("json", "json", "string")),
    }
    return pack(given, data)


@cache
def _names() -> tuple[str, ...]:
    return (*_columns(), *"vedt")


def _asks_for_ranges(ranges: Ranges) -> bool:
    """Read the statistics of all columns, as a filter does, and exclude nothing."""
    for name in _names():
        found = ranges(name)
        assert found is None or found.low is None or pc.less_equal(found.low, found.high).as_py()
    return False


def _run_object(data: bytes) -> str:
    given, body = unpack(data)
    options = FormatOptions(
        window_bytes=given["window"], batch_rows=given["batch"], excludes=_asks_for_ranges
    )
    opened = Parquet(options, Footers(), given["readers"], gap_bytes=0)
    return outcome_of(require_laws(lambda *_: opened, body, given))


PARQUET = Target("parquet", 7, _object, _run_object)
