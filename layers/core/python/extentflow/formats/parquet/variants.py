"""Write VARIANTs as JSON, shredded or not.

    v     metadata | value | typed_value                 a value is in one of the two, or an object
    a              | value | typed_value                 has its members in both; neither: missing
    b[]            | value | typed_value

Parquet's VariantEncoding.md and VariantShredding.md name the types and fields. A shredded value has
the text that it would have in `value`: members of objects are in the order of their names' bytes.
"""

from __future__ import annotations

import base64
import math
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Literal, TypeAlias, TypeVar

import numpy as np
import orjson
import pyarrow as pa

from extentflow.errors import UnsupportedType

Decoded = TypeVar("Decoded")
Texts: TypeAlias = list[str | None]
# What makes texts of an array; the other arguments are the metadata of its elements, and what
# returns the names that metadata have.
Names: TypeAlias = Callable[[bytes], list[str]]
ToTexts: TypeAlias = Callable[[pa.Array, Sequence[bytes | None], Names], Texts]

# As the specification of the encoding names them (parquet-format, VariantEncoding.md).
_PRIMITIVE, _SHORT_STRING, _OBJECT, _ARRAY = range(4)
_LAST_VERSION = 1
_DEEPEST = 128
_YEAR_DIGITS = 4
_MOST_NAME_BYTES = 64 << 20
# Of a shredded VARIANT, the names of the schema are in each of its texts.
_MOST_SCHEMA_NAME_BYTES = 256 << 10
# What numpy takes for the lack of a value.
_NOT_A_TIME = -(2**63)

# -- shredded --------------------------------------------------------------------------------------


def variant_texts(data_type: pa.StructType, path: str) -> Callable[[pa.StructArray], Texts]:
    """Return what makes JSON of a VARIANT's group. Raises UnsupportedType.

    The result is called with arrays of the type; None where the group is null. It raises ValueError
    where one of them contradicts the specification.
    """
    metadata = data_type.get_field_index("metadata")
    if metadata < 0 or not pa.types.is_binary(data_type.field(metadata).type):
        raise UnsupportedType(f"column {path!r} is a VARIANT without binary metadata")
    if sum(map(len, _schema_names(data_type))) > _MOST_SCHEMA_NAME_BYTES:
        most = _MOST_SCHEMA_NAME_BYTES
        raise UnsupportedType(f"column {path!r} is a VARIANT with names of more than {most} bytes")
    members = [data_type.field(at) for at in range(data_type.num_fields) if at != metadata]
    to_texts = _group(pa.struct(members), path, _DEEPEST)

    def convert(array: pa.StructArray) -> Texts:
        flat = array.flatten()
        whole = pa.StructArray.from_arrays(
            [flat[at] for at in range(len(flat)) if at != metadata], fields=members
        )
        texts = to_texts(whole, flat[metadata].to_pylist(), cache(_variant_names))
        # Neither value nor typed value: a null of VARIANT, as the specification says.
        valid = array.is_valid().to_pylist()
        return [
            (text or "null") if there else None for text, there in zip(texts, valid, strict=True)
        ]

    return convert


def _schema_names(data_type: pa.DataType) -> list[bytes]:
    fields = [data_type.field(at) for at in range(data_type.num_fields)]
    return [name for each in fields for name in (each.name.encode(), *_schema_names(each.type))]


def _group(data_type: pa.DataType, path: str, depth: int) -> ToTexts:
    """Return what makes texts of `value` and `typed_value`; None where both are missing."""
    names = [each.name for each in data_type] if pa.types.is_struct(data_type) else []
    value, typed = (names.index(each) if each in names else -1 for each in _MEMBERS)
    if not names or len(names) != (value >= 0) + (typed >= 0):
        raise _unsupported(path, data_type)
    if value >= 0 and not pa.types.is_binary(data_type.field(value).type):
        raise _unsupported(f"{path}.value", data_type.field(value).type)
    if not depth:
        raise UnsupportedType(f"column {path!r} has more than {_DEEPEST} levels")
    shape = None
    if typed >= 0:
        shape = _shape(data_type.field(typed).type, f"{path}.typed_value", depth - 1)

    def to_texts(array: pa.StructArray, metadata: Sequence[bytes | None], names: Names) -> Texts:
        members = array.flatten()
        values = members[value].to_pylist() if value >= 0 else [None] * len(array)
        if shape is None:
            return _encoded(values, metadata, names)
        return shape.joined(members[typed], values, metadata, names)

    return to_texts


_MEMBERS = ("value", "typed_value")


def _unsupported(path: str, data_type: pa.DataType) -> UnsupportedType:
    return UnsupportedType(
        f"column {path!r} is part of a shredded VARIANT and {data_type}, which VARIANT does not"
        " have; write it without typed_value"
    )


def _encoded(
    values: Sequence[bytes | None], metadata: Sequence[bytes | None], names: Names
) -> Texts:
    return [
        None if value is None else _decoded(value, of, names)
        for value, of in zip(values, metadata, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Primitives:
    """Values of one type; `kind` is the basic type that must not be in `value`, if any."""

    to_texts: ToTexts
    kind: int | None = None

    def joined(
        self,
        typed: pa.Array,
        values: Sequence[bytes | None],
        metadata: Sequence[bytes | None],
        names: Names,
    ) -> Texts:
        texts = self.to_texts(typed, metadata, names)
        for row, value in enumerate(values):
            if value is None:
                continue
            if texts[row] is not None:
                raise ValueError("a VARIANT has a value and a typed value that is no object")
            if value and value[0] & 3 == self.kind:
                raise ValueError("a VARIANT has an array that is not in its typed value")
            texts[row] = _decoded(value, metadata[row], names)
        return texts


@dataclass(frozen=True, slots=True)
class _Objects:
    """Objects, with some members in columns of their own: in the order of their names."""

    names: tuple[str, ...]
    ordinals: tuple[int, ...]
    members: tuple[ToTexts, ...]

    def joined(
        self,
        typed: pa.StructArray,
        values: Sequence[bytes | None],
        metadata: Sequence[bytes | None],
        names: Names,
    ) -> Texts:
        flat = typed.flatten()
        columns = [
            member(flat[at], metadata, names)
            for at, member in zip(self.ordinals, self.members, strict=True)
        ]
        heads = [f"{_quoted(name)}:" for name in self.names]
        rows = zip(*columns, strict=True) if columns else iter([()] * len(typed))
        texts: Texts = []
        present = typed.is_valid().to_pylist()
        for row, (here, found) in enumerate(zip(present, rows, strict=True)):
            value = values[row]
            if here and value is None:
                pairs = [head + each for head, each in zip(heads, found, strict=True) if each]
                texts.append("{" + ",".join(pairs) + "}")
            elif here and value is not None:
                texts.append(self._united(found, value, metadata[row], names))
            elif value is not None and value and value[0] & 3 == _OBJECT:
                raise ValueError("a VARIANT has an object that is not in its typed value")
            else:
                texts.append(None if value is None else _decoded(value, metadata[row], names))
        return texts

    def _united(
        self, found: Sequence[str | None], value: bytes, metadata: bytes | None, names: Names
    ) -> str:
        others = _caught(lambda: _Variant(value, names(metadata or b"")).members())
        if twice := others.keys() & set(self.names):
            raise ValueError(f"a VARIANT has the member {min(twice)!r} in its typed value, too")
        whole = others | {
            name: text for name, text in zip(self.names, found, strict=True) if text is not None
        }
        ordered = sorted(whole.items(), key=lambda pair: pair[0].encode())
        return "{" + ",".join(f"{_quoted(name)}:{text}" for name, text in ordered) + "}"


def _shape(data_type: pa.DataType, path: str, depth: int) -> _Primitives | _Objects:
    if pa.types.is_list(data_type):
        return _Primitives(_arrays(_group(data_type.value_type, path, depth)), _ARRAY)
    if pa.types.is_struct(data_type):
        fields = sorted(enumerate(data_type), key=lambda each: each[1].name.encode())
        return _Objects(
            tuple(each.name for _, each in fields),
            tuple(at for at, _ in fields),
            tuple(_group(each.type, f"{path}.{each.name}", depth) for _, each in fields),
        )
    if (write := _writer(data_type)) is None:
        raise _unsupported(path, data_type)
    return _Primitives(lambda array, _metadata, _names: write(array))


def _arrays(element: ToTexts) -> ToTexts:
    def to_texts(array: pa.ListArray, metadata: Sequence[bytes | None], names: Names) -> Texts:
        offsets = array.offsets.to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        counts = np.diff(offsets).tolist()
        repeated = [of for of, count in zip(metadata, counts, strict=True) for _ in range(count)]
        # An element is always there: a missing one is a null of VARIANT.
        found = element(array.values.slice(first, last - first), repeated, names)
        texts = [each or "null" for each in found]
        ends = (offsets - first).tolist()
        valid = array.is_valid().to_pylist()
        return [
            "[" + ",".join(texts[left:right]) + "]" if there else None
            for there, (left, right) in zip(valid, pairwise(ends), strict=True)
        ]

    return to_texts


def _writer(data_type: pa.DataType) -> Callable[[pa.Array], Texts] | None:
    """Return what makes texts of one of the types that a value may be shredded to."""
    name = str(data_type)
    if name in _INTEGERS:
        return lambda array: array.cast(pa.string()).to_pylist()
    if isinstance(data_type, pa.UuidType):
        write = _each(lambda data: f'"{uuid.UUID(bytes=data)}"')
        return lambda array: write(array.storage)
    if name in _INSTANTS:
        unit, zone, stored = _INSTANTS[name]
        return _each(lambda count: _instant_text(count, unit, zone), stored)
    if pa.types.is_time64(data_type) and data_type.unit == "us":
        return _each(_time_text, pa.int64())
    writer = _WRITERS.get("decimal128" if pa.types.is_decimal128(data_type) else name)
    return None if writer is None else _each(writer)


def _each(
    write: Callable[..., str], stored: pa.DataType | None = None
) -> Callable[[pa.Array], Texts]:
    def to_texts(array: pa.Array) -> Texts:
        values = (array if stored is None else array.cast(stored)).to_pylist()
        return [None if value is None else write(value) for value in values]

    return to_texts


# -- encoded ---------------------------------------------------------------------------------------


def variant_json(metadata: bytes | None, value: bytes) -> str:
    """Return the JSON of a VARIANT. ValueError: it contradicts the specification.

    Numbers keep all digits; NaN and the infinities are null; binary is base64; dates, times,
    timestamps and UUIDs are texts as in docs/json.md.
    """
    return _decoded(value, metadata, _variant_names)


def _decoded(value: bytes, metadata: bytes | None, names: Names) -> str:
    return _caught(lambda: _Variant(value, names(metadata or b"")).json(0, _DEEPEST))


def _caught(decode: Callable[[], Decoded]) -> Decoded:
    try:
        return decode()
    except (IndexError, struct.error, UnicodeDecodeError, OverflowError) as exc:
        raise ValueError(f"a VARIANT cannot be decoded: {exc}") from exc


def _variant_names(metadata: bytes) -> list[str]:
    header = metadata[0]
    if header & 0x0F != _LAST_VERSION:
        raise ValueError(f"a VARIANT has version {header & 0x0F}, and 1 is read")
    width = (header >> 6) + 1
    count = int.from_bytes(_cut(metadata, 1, width), "little")
    ends = _integers(metadata, 1 + width, width, count + 1)
    start = 1 + width * (count + 2)
    return [_cut(metadata, start + left, right - left).decode() for left, right in pairwise(ends)]


def _cut(data: bytes, start: int, length: int) -> bytes:
    """Return bytes that have to be there."""
    if length < 0 or start + length > len(data):
        raise IndexError(f"bytes [{start}-{start + length}) of {len(data)}")
    return data[start : start + length]


def _integers(data: bytes, start: int, width: int, count: int) -> list[int]:
    cut = _cut(data, start, width * count)
    return [int.from_bytes(cut[at : at + width], "little") for at in range(0, len(cut), width)]


class _Variant:
    """The values of one VARIANT, by their first bytes.

    Values do not overlap, so that all together read each byte once: offsets cannot make a small
    VARIANT a large text. Names may be used often, up to a limit.
    """

    def __init__(self, data: bytes, names: list[str]) -> None:
        self._data = data
        self._names = names
        self._unread = len(data)
        self._name_bytes = _MOST_NAME_BYTES

    def json(self, at: int, depth: int) -> str:
        """Return the value at a byte. Raises ValueError, IndexError and those of conversions."""
        if not depth:
            raise ValueError(f"a VARIANT has more than {_DEEPEST} levels")
        header = self._take(at, 1)[0]
        kind, detail = header & 3, header >> 2
        if kind == _SHORT_STRING:
            return _quoted(self._take(at + 1, detail).decode())
        if kind == _PRIMITIVE:
            return self._primitive(detail, at + 1)
        return self._nested(at + 1, detail, depth, is_object=kind == _OBJECT)

    def members(self) -> dict[str, str]:
        """Return the members of an object, by name. Raises as `json`."""
        header = self._take(0, 1)[0]
        if header & 3 != _OBJECT:
            raise ValueError("a VARIANT has a value that is no object beside its typed value")
        return dict(self._object(1, header >> 2, _DEEPEST))

    def _take(self, at: int, size: int) -> bytes:
        self._unread -= size
        if self._unread < 0:
            raise ValueError("values of a VARIANT overlap")
        return _cut(self._data, at, size)

    def _nested(self, at: int, detail: int, depth: int, *, is_object: bool) -> str:
        if is_object:
            pairs = self._object(at, detail, depth)
            return "{" + ",".join(f"{_quoted(name)}:{value}" for name, value in pairs) + "}"
        _, values = self._items(at, detail, depth, is_object=False)
        return "[" + ",".join(values) + "]"

    def _object(self, at: int, detail: int, depth: int) -> list[tuple[str, str]]:
        ids, values = self._items(at, detail, depth, is_object=True)
        names = [self._names[each] for each in ids]
        if len(set(names)) < len(names):
            raise ValueError("an object of a VARIANT has a name twice")
        self._name_bytes -= sum(map(len, names))
        if self._name_bytes < 0:
            raise ValueError(f"a VARIANT has names of more than {_MOST_NAME_BYTES} bytes")
        return list(zip(names, values, strict=True))

    def _items(
        self, at: int, detail: int, depth: int, *, is_object: bool
    ) -> tuple[list[int], list[str]]:
        width, id_width = (detail & 3) + 1, (detail >> 2 & 3) + 1
        is_large = detail >> (4 if is_object else 2) & 1
        count = int.from_bytes(self._take(at, 4 if is_large else 1), "little")
        at += 4 if is_large else 1
        ids = _integers(self._data, at, id_width, count) if is_object else []
        at += len(ids) * id_width
        offsets = _integers(self._data, at, width, count + 1)
        start = at + width * (count + 1)
        return ids, [self.json(start + offset, depth - 1) for offset in offsets[:count]]

    def _primitive(self, kind: int, at: int) -> str:
        if kind in _WORDS:
            return _WORDS[kind]
        if kind in _FIXED:
            size, write = _FIXED[kind]
            return write(self._take(at, size))
        if kind in _SIZED:
            length = int.from_bytes(self._take(at, 4), "little")
            return _SIZED[kind](self._take(at + 4, length))
        raise ValueError(f"a VARIANT has a value of type {kind}, which is not read")


def _quoted(text: str) -> str:
    return orjson.dumps(text).decode()


def _integer(data: bytes) -> str:
    return str(int.from_bytes(data, "little", signed=True))


def _decimal(data: bytes) -> str:
    # Without an exponent, as the columns of decimals.
    unscaled, scale = int.from_bytes(data[1:], "little", signed=True), data[0]
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return sign + digits[: len(digits) - scale] + ("." + digits[-scale:] if scale else "")


def _float(code: str) -> Callable[[bytes], str]:
    def write(data: bytes) -> str:
        return _float_text(*struct.unpack(code, data), is_single=code == "<f")

    return write


def _float_text(number: float, *, is_single: bool = False) -> str:
    if not math.isfinite(number):
        return "null"
    return str(np.float32(number)) if is_single else repr(number)


def _instant(unit: Literal["D", "us", "ns"], zone: str) -> Callable[[bytes], str]:
    def write(data: bytes) -> str:
        return _instant_text(int.from_bytes(data, "little", signed=True), unit, zone)

    return write


def _instant_text(count: int, unit: Literal["D", "us", "ns"], zone: str) -> str:
    if count == _NOT_A_TIME:
        raise ValueError("a VARIANT has a timestamp out of range")
    text = str(np.datetime64(count, unit))
    # As in ISO 8601, which asks for the sign of years with more than four digits.
    year = text.lstrip("-").partition("-")[0]
    return f'"{"+" if len(year) > _YEAR_DIGITS and text[0] != "-" else ""}{text}{zone}"'


def _time(data: bytes) -> str:
    return _time_text(int.from_bytes(data, "little", signed=True))


def _time_text(count: int) -> str:
    if not 0 <= count < 86_400 * 10**6:
        raise ValueError("a VARIANT has a time that is not a time of day")
    return f'"{str(np.datetime64(count, "us"))[11:]}"'


def _binary_text(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode()}"'


_WORDS = {0: "null", 1: "true", 2: "false"}
_FIXED: dict[int, tuple[int, Callable[[bytes], str]]] = {
    3: (1, _integer),
    4: (2, _integer),
    5: (4, _integer),
    6: (8, _integer),
    7: (8, _float("<d")),
    8: (5, _decimal),
    9: (9, _decimal),
    10: (17, _decimal),
    11: (4, _instant("D", "")),
    12: (8, _instant("us", "Z")),
    13: (8, _instant("us", "")),
    14: (4, _float("<f")),
    17: (8, _time),
    18: (8, _instant("ns", "Z")),
    19: (8, _instant("ns", "")),
    20: (16, lambda data: f'"{uuid.UUID(bytes=data)}"'),
}
_SIZED: dict[int, Callable[[bytes], str]] = {
    15: _binary_text,
    16: lambda data: _quoted(data.decode()),
}

_INTEGERS = ("int8", "int16", "int32", "int64")
_INSTANTS: dict[str, tuple[Literal["D", "us", "ns"], str, pa.DataType]] = {
    "date32[day]": ("D", "", pa.int32()),
    "timestamp[us]": ("us", "", pa.int64()),
    "timestamp[ns]": ("ns", "", pa.int64()),
    "timestamp[us, tz=UTC]": ("us", "Z", pa.int64()),
    "timestamp[ns, tz=UTC]": ("ns", "Z", pa.int64()),
}
_WRITERS: dict[str, Callable[..., str]] = {
    "bool": lambda value: "true" if value else "false",
    "float": lambda number: _float_text(number, is_single=True),
    "double": _float_text,
    "decimal128": lambda number: format(number, "f"),
    "string": _quoted,
    "binary": _binary_text,
}
