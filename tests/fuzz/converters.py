"""Target `converters`: batches of every Arrow type, as JSON, text and bytes."""

import io
import json
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
from tests.fuzz.mutations import pack, unpack
from tests.fuzz.targets import Target

from extentflow.converters import open_converter
from extentflow.errors import CorruptRecord

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32())
_LEAVES = (
    *(*_INTEGERS, pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.null()),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()),
    *(pa.binary_view(), pa.binary(3), pa.binary(16), pa.date32(), pa.date64(), pa.time32("s")),
    *(pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.duration("s"), pa.duration("ns")),
    *(pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us"), pa.timestamp("ns", "UTC")),
    *(pa.timestamp("us", "+02:00"), pa.timestamp("us", "Europe/Berlin")),
    *(pa.decimal128(9, 2), pa.decimal128(38, 38), pa.decimal256(76, 5), pa.decimal128(5, -3)),
    *(pa.decimal32(5, 1), pa.decimal64(12, 3), pa.month_day_nano_interval(), pa.uuid()),
)
NAMES = ("a", "id", "", "ü🙂", 'q"\\', "\n", "key", "a.b", "\0")
_TEXTS = ("", "a", 'q"uote\\', "\n\t\0\x1f", "ü", "🙂" * 9, "x" * 300, "\u2028", "1e999", "\x7f")


def _type(random: Random, depth: int = 0) -> pa.DataType:
    if depth > 2 or random.random() < 0.65:
        return random.choice(_LEAVES)
    inner = _type(random, depth + 1)
    match random.randrange(9):
        case 0:
            return pa.list_(inner)
        case 1:
            return pa.large_list(inner)
        case 2:
            return pa.list_(inner, random.randrange(3))
        case 3:
            return pa.list_view(inner)
        case 4:
            return pa.map_(random.choice((pa.string(), pa.int32(), pa.binary())), inner)
        case 5:
            return pa.dictionary(random.choice(_INTEGERS[:4]), random.choice(_LEAVES[:12]))
        case 6:
            return pa.run_end_encoded(pa.int32(), random.choice(_LEAVES[:12]))
        case _:
            names = random.sample(NAMES, random.randrange(4))
            return pa.struct([(name, _type(random, depth + 1)) for name in names])


def _integer(random: Random, bits: int, *, signed: bool) -> int:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return random.choice((low, high, 0, 1, random.randint(low, high), random.randint(low, high)))


def _bytes(random: Random) -> bytes:
    return random.choice((b"", b"a", b"\xff\xfe\0", b"\xc3", bytes(range(256)), b"text" * 20))


def _array(random: Random, kind: pa.DataType, length: int, *, nulls: float = 0.2) -> pa.Array:
    """Return an array of a type, built from what lies beneath it; `nulls` is their share."""
    types = pa.types
    missing = [random.random() < nulls for _ in range(length)]
    if types.is_null(kind):
        return pa.nulls(length)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _array(random, kind.storage_type, length))
    if types.is_dictionary(kind):
        values = _array(random, kind.value_type, 3)
        codes = [None if null else random.randrange(3) for null in missing]
        return pa.DictionaryArray.from_arrays(pa.array(codes, kind.index_type), values)
    if types.is_run_end_encoded(kind):
        ends = pa.array([*sorted(random.sample(range(1, length), min(2, length - 1))), length])
        values = _array(random, kind.value_type, len(ends))
        return pa.RunEndEncodedArray.from_arrays(ends.cast(pa.int32()), values)
    if types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        if not fields:
            return pa.array([None if null else {} for null in missing], kind)
        children = [_array(random, field.type, length) for field in fields]
        return pa.StructArray.from_arrays(
            children, fields=fields, mask=pa.array(missing, pa.bool_())
        )
    if types.is_nested(kind):
        return _lists(random, kind, missing)
    if types.is_boolean(kind):
        return pa.array([None if null else random.random() < 0.5 for null in missing])
    return _leaf(random, kind, missing)


def _lists(random: Random, kind: pa.DataType, nulls: list[bool]) -> pa.Array:
    types, length = pa.types, len(nulls)
    mask = pa.array(nulls, pa.bool_())
    if types.is_fixed_size_list(kind):
        items = _array(random, kind.value_type, kind.list_size * length)
        if not kind.list_size:  # which `from_arrays` divides by
            return pa.array([None if null else [] for null in nulls], kind)
        return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=mask)
    sizes = [0 if null else random.randrange(4) for null in nulls]
    bounds = [sum(sizes[:index]) for index in range(length + 1)]
    if types.is_map(kind):
        # Keys are never null, but may repeat.
        keys = _array(random, kind.key_type, bounds[-1], nulls=0.0)
        items = _array(random, kind.item_type, bounds[-1])
        offsets = pa.array(bounds, pa.int32())
        return pa.MapArray.from_arrays(offsets, keys, items, mask=mask)
    items = _array(random, kind.value_type, bounds[-1])
    if types.is_list_view(kind):
        starts = pa.array(bounds[:-1], pa.int32())
        return pa.ListViewArray.from_arrays(
            starts, pa.array(sizes, pa.int32()), items, type=kind, mask=mask
        )
    large = types.is_large_list(kind)
    offsets = pa.array(bounds, pa.int64() if large else pa.int32())
    array = pa.LargeListArray if large else pa.ListArray
    return array.from_arrays(offsets, items, type=kind, mask=mask)


def _leaf(random: Random, kind: pa.DataType, nulls: list[bool]) -> pa.Array:
    """Return values of a flat type, every bit pattern of numbers and times included."""
    types = pa.types
    if types.is_decimal(kind):
        most = 10**kind.precision - 1
        choices = (0, 1, -1, most, -most, random.randint(-most, most))
        return pa.array(
            [None if n else _decimal(random.choice(choices), kind) for n in nulls], kind
        )
    if types.is_interval(kind):
        return pa.array([None if null else (1, -2, 3) for null in nulls], kind)
    if types.is_fixed_size_binary(kind):
        width = kind.byte_width
        return pa.array([None if null else random.randbytes(width) for null in nulls], kind)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.array([None if null else _bytes(random) for null in nulls], kind)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        if random.random() < 0.1 and not types.is_string_view(kind):
            # Not UTF-8, as a Parquet file's string column may hold.
            wide = pa.large_binary() if types.is_large_string(kind) else pa.binary()
            return pa.array([None if null else _bytes(random) for null in nulls], wide).view(kind)
        return pa.array([None if null else random.choice(_TEXTS) for null in nulls], kind)
    bits = kind.bit_width
    signed = not types.is_unsigned_integer(kind)
    numbers = [None if null else _integer(random, bits, signed=signed) for null in nulls]
    plain = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
    return pa.array(numbers, plain if signed else kind).view(kind)


def _decimal(unscaled: int, kind: pa.DataType) -> Decimal:
    sign, digits, _ = Decimal(unscaled).as_tuple()
    return Decimal((sign, digits, -kind.scale))


def column(random: Random, length: int) -> pa.Array:
    while True:
        try:
            return _array(random, _type(random), length)
        except (pa.ArrowException, ValueError):  # a combination that Arrow does not build
            continue


def _batch(random: Random) -> bytes:
    names = random.sample(NAMES, random.choice((1, 1, 2, 3)))
    if random.random() < 0.05:
        names[0] = names[-1]
    length = random.choice((1, 2, 5, 9))
    columns = [column(random, length) for _ in names]
    batch = pa.RecordBatch.from_arrays(columns, names=names)
    converter = random.choice(("json", "json", "json", "string", "bytes"))
    chosen = random.choice((None, None, [random.choice(names)], ["missing"], names[:2]))
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, batch.schema) as stream:
        stream.write_batch(batch)
    cut = random.randrange(length)
    return pack({"converter": converter, "columns": chosen, "cut": cut}, buffer.getvalue())


def converted(
    batch: pa.RecordBatch, cut: int, convert: Callable[[pa.RecordBatch], list[bytes | None]]
) -> list[bytes | None]:
    """Return the converted rows: as many, the same ones of slices, and bad ones are named."""
    try:
        rows = convert(batch)
    except CorruptRecord as exc:
        assert exc.rows, "bad rows are named"
        assert all(0 <= row < batch.num_rows for row in exc.rows)
        raise
    assert len(rows) == batch.num_rows
    assert convert(batch.slice(0, cut)) + convert(batch.slice(cut)) == rows, "slices are equal"
    return rows


def _run_batch(data: bytes) -> str:
    given, body = unpack(data)
    batch = pa.ipc.open_stream(pa.BufferReader(body)).read_next_batch()
    convert = open_converter(given["converter"], batch.schema, given["columns"])

    def rows_of(part: pa.RecordBatch) -> list[bytes | None]:
        values = convert(part)
        values.validate(full=True)
        made: list[bytes | None] = values.to_pylist()
        return made

    rows = converted(batch, given["cut"], rows_of)
    if given["converter"] == "json":
        names = set(given["columns"] or batch.schema.names)
        for row in rows:
            document = json.loads(row or b"", parse_int=str, parse_constant=_no_constant)
            assert isinstance(document, dict)
            assert set(document) == names
    return f"converted: {given['converter']}"


def _no_constant(name: str) -> Any:  # noqa: ANN401
    raise AssertionError(f"{name} is no JSON")


CONVERTERS = Target("converters", 6, _batch, _run_batch)
