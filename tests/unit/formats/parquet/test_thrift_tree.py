"""Trees of Thrift's compact protocol: what is read is written again, byte for byte."""

import io
import random
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from extentflow.formats.parquet.compact_protocol import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I32,
    I64,
    LIST,
    SET,
    STRUCT,
    TRUE,
)
from extentflow.formats.parquet.thrift_tree import I16, Elements, Struct, read_struct, write_struct

BITS = {I16: 16, I32: 32, I64: 64}
DEEPEST = 4
TABLES = {
    "scalars": pa.table({"a": [1, None, 3], "b": ["x", "y", None], "c": [True, None, False]}),
    "nested": pa.table(
        {
            "l": [[1, 2], None, []],
            "s": [{"x": 1, "y": {"z": "a"}}, None, {"x": None, "y": None}],
            "m": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int32())),
        }
    ),
    "wide": pa.table({f"column {n}": pa.array([n, -n], pa.int16()) for n in range(40)}),
    "logical": pa.table(
        {
            "t": pa.array([0, None], pa.timestamp("us", "UTC")),
            "d": pa.array([None, 1], pa.decimal128(38, 9)),
            "u": pa.array([2**64 - 1, 0], pa.uint64()),
        }
    ),
    "no rows": pa.table({"a": pa.array([], pa.int64())}),
}


def footer_of(table: pa.Table, **options: Any) -> bytes:  # noqa: ANN401 - the writer's own
    """Return the footer that Arrow wrote, without its length and the magic."""
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=2, **options)
    body = file.getvalue()
    return body[-8 - int.from_bytes(body[-8:-4], "little") : -8]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    "options",
    [{}, {"write_page_index": True}, {"sorting_columns": (pq.SortingColumn(0),)}],
    ids=["plain", "page-index", "sorted"],
)
def test_footers_that_arrow_wrote_are_written_as_they_were(
    name: str, options: dict[str, Any]
) -> None:
    footer = footer_of(TABLES[name].replace_schema_metadata({"k": "v" * 300}), **options)

    tree, end = read_struct(footer)

    assert end == len(footer)
    assert write_struct(tree) == footer


def random_struct(source: random.Random, depth: int = 0) -> Struct:
    found, number = Struct(), 0
    for _ in range(source.choice([0, 1, 3, 8])):
        # Steps to the next field of up to 15 take no byte of their own; others do.
        number += source.choice([1, 1, 2, 15, 16, 300])
        kind = source.choice(list(MAKERS))
        if kind in (LIST, SET, STRUCT) and depth == DEEPEST:
            kind = I64
        found.set(number, kind, MAKERS[kind](source, depth, kind))
    return found


def _number(source: random.Random, _depth: int, kind: int) -> int:
    half = 2 ** (BITS[kind] - 1)
    ends: list[int] = [0, 1, -1, 63, 64, -64, -65, half - 1, -half]
    return source.choice([*ends, source.randrange(-half, half)])


def _bytes(source: random.Random, _depth: int, _kind: int) -> bytes:
    return source.randbytes(source.choice([0, 1, 127, 128, 400]))


def _elements(source: random.Random, depth: int, _kind: int) -> Elements:
    kind = source.choice([*BITS, BINARY, DOUBLE, BYTE, STRUCT, TRUE])
    count = source.choice([0, 1, 14, 15, 16, 40] if depth < 2 else [0, 1])
    if kind == TRUE:  # a byte for each, unlike in structures
        return Elements(kind, [source.choice([b"\1", b"\2"]) for _ in range(count)])
    return Elements(kind, [MAKERS[kind](source, depth, kind) for _ in range(count)])


MAKERS: dict[int, Callable[[random.Random, int, int], Any]] = {
    **dict.fromkeys(BITS, _number),
    BINARY: _bytes,
    DOUBLE: lambda source, _depth, _kind: struct.pack("<d", source.uniform(-1, 1)),
    BYTE: lambda source, _depth, _kind: source.randbytes(1),
    TRUE: lambda _source, _depth, kind: kind,
    FALSE: lambda _source, _depth, kind: kind,
    LIST: _elements,
    SET: _elements,
    STRUCT: lambda source, depth, _kind: random_struct(source, depth + 1),
}


@pytest.mark.parametrize("seed", range(200))
def test_trees_are_read_as_they_were_written(seed: int) -> None:
    tree = random_struct(random.Random(seed))

    written = write_struct(tree)
    found, end = read_struct(b"before" + written + b"behind", len(b"before"))

    assert found == tree
    assert end == len(b"before") + len(written)
    assert write_struct(found) == written


@pytest.mark.parametrize("seed", range(20))
def test_a_tree_that_ends_too_early_is_an_error_of_damaged_bytes(seed: int) -> None:
    whole = write_struct(random_struct(random.Random(seed)))

    for end in range(min(len(whole), 400)):
        with pytest.raises((IndexError, ValueError)):
            read_struct(whole[:end])


@pytest.mark.parametrize("seed", range(300))
def test_damaged_footers_raise_errors_of_damaged_bytes_or_are_read(seed: int) -> None:
    source = random.Random(seed)
    damaged = bytearray(footer_of(TABLES["nested"]))
    for _ in range(source.choice([1, 2, 8])):
        damaged[source.randrange(len(damaged))] = source.randrange(256)

    try:
        tree, end = read_struct(bytes(damaged))
    except (IndexError, ValueError):
        return

    assert 0 < end <= len(damaged)
    assert isinstance(tree, Struct)


def test_structures_that_never_end_are_not_followed() -> None:
    with pytest.raises(ValueError, match="too deep"):
        read_struct(bytes([1 << 4 | STRUCT]) * 10_000)


def test_fields_are_set_dropped_and_written_in_the_order_of_their_numbers() -> None:
    tree = Struct()
    tree.set(7, I32, -5)
    tree.set(2, BINARY, b"x")
    tree.set(4, TRUE, TRUE)
    tree.drop(4, 99)

    found, _ = read_struct(write_struct(tree))

    assert list(found.fields) == [2, 7]
    assert (found.get(7), found.get(2), found.get(4)) == (-5, b"x", None)
    assert found.structs(4) == found.structs(7) == []
