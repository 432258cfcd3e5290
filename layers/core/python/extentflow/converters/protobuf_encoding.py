"""Declare Arrow columns as fields of Protocol Buffers messages, and write them on columns."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from extentflow.arrays.buffers import (
    RowErrors,
    corrupt_rows,
    fixed_width,
    require_limit,
    text_bytes,
    validity,
    value_offsets,
)
from extentflow.arrays.encodings import checked_text, is_binary, is_text, no_exact_form, uuid
from extentflow.arrays.interleave import (
    WORD_BYTES,
    Blobs,
    Constant,
    Piece,
    Words,
    big_endian,
    fixed_words,
    join_rows,
    masked,
    taken,
    unsigned_varints,
    with_lengths,
)
from extentflow.arrays.nested import (
    LISTS,
    distinct_values,
    flattened,
    list_bounds,
    map_entries,
    present_rows,
    require_unique_keys,
    rows_of,
)
from extentflow.arrays.scalars import SECONDS_PER_DAY
from extentflow.converters.avro_encoding import EVERY_ROW, Rows, decimal_words, numbers
from extentflow.converters.avro_schema import decimal_shape, plain_type, require_digits
from extentflow.converters.names import Names
from extentflow.converters.protobuf_numbers import History
from extentflow.errors import CorruptRecord, UnsupportedType

__all__ = ["EVERY_ROW", "MOST_MESSAGES", "Members", "Message", "MessageFile"]

# Returns the bytes of every value, without a tag. Rows that do not count may have any.
Writer: TypeAlias = Callable[[pa.Array, Rows], list[Piece]]
# Returns the bytes of a message of several columns.
Members: TypeAlias = Callable[[Sequence[pa.Array], Rows], list[Piece]]

_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5
# Readers take values of 100 messages in each other, of which a column's type may be one.
MOST_MESSAGES = 99


@dataclass(slots=True)
class Message:
    """The declaration of a message; `taken` are the names inside it, `around` those outside."""

    name: str
    history: History
    around: tuple[str, ...] = ()
    nested: list["Message"] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def child(self, member: str, path: str) -> "Message":
        """Add a message inside this one, called like the member that has it."""
        around = (*self.around, self.name)
        if len(around) >= MOST_MESSAGES:
            raise UnsupportedType(
                f"column '{path}' would be a message in {len(around)} others, which readers of"
                " Protocol Buffers refuse; flatten it by a transform"
            )
        name = _camel_case(member)
        # Java has no class with the name of one around it.
        while name in self.taken or name in around:
            name += "_"
        self.taken.add(name)
        self.nested.append(Message(name, self.history.member(member), around))
        return self.nested[-1]

    def lines(self, indent: str = "") -> Iterator[str]:
        """Yield the declaration's lines."""
        yield f"{indent}message {self.name} {{"
        for one in self.nested:
            yield from one.lines(indent + "  ")
        yield from (f"{indent}  {one};" for one in self.fields)
        yield f"{indent}}}"


def _camel_case(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a field, and how it is written. A `message` has presence of its own."""

    name: str
    wire: int
    write: Writer
    message: bool = False


@dataclass(slots=True)
class MessageFile:
    """Declares messages and makes their writers; `imports` are the files that they need."""

    limit_bytes: int
    names: Names
    # In front of names of other files' types.
    dot: str = ""
    # Whether decimals are messages of this file, with the fields of confluent.type.Decimal.
    own_decimals: bool = False
    imports: set[str] = field(default_factory=set)

    def members(self, message: Message, fields: Sequence[pa.Field], path: str = "") -> Members:
        """Declare columns as fields, in the order of their numbers.

        UnsupportedType names what has no form.
        """
        names = self.names.fields([one.name for one in fields], path)
        _require_distinct(names, path)
        message.taken |= {*names}
        # The messages that Protocol Buffers declares for maps by itself.
        message.taken |= {
            f"{_camel_case(name)}Entry"
            for one, name in zip(fields, names, strict=True)
            if types.is_map(one.type)
        }
        before = f"{path}." if path else ""
        writers = []
        numbers = message.history.numbers(names)
        reserved = (message.history.reserved(numbers), message.history.reserved_names(names))
        message.fields += [f"reserved {each}" for each in reserved if each]
        for number, index in sorted(zip(numbers, count(), strict=False)):
            one = fields[index]
            inside = before + one.name
            write_member = self._member(message, one.with_name(names[index]), number, inside)
            writers.append((index, f"{one.name}: ", write_member))

        def write(arrays: Sequence[pa.Array], rows: Rows) -> list[Piece]:
            pieces: list[Piece] = []
            with RowErrors() as errors:
                for index, label, write_member in writers:
                    with errors.collect(label):
                        pieces += write_member(arrays[index], rows)
            return pieces

        return write

    def _member(self, message: Message, one: pa.Field, number: int, path: str) -> Writer:
        """Declare a field; return the writer of its tag and value, of nothing for a null."""
        if _is_repeated(one.type) and not one.nullable:
            return self._repeated(message, one, number, path)
        kind = self._kind(message, one, path)
        optional = "optional " if one.nullable and not kind.message else ""
        message.fields.append(f"{optional}{kind.name} {one.name} = {number}")
        tag = Constant(_tag(number, kind.wire))

        def write(array: pa.Array, rows: Rows) -> list[Piece]:
            present = present_rows(array)
            return masked([tag, *kind.write(array, rows & present)], present)

        return write

    def _kind(self, message: Message, one: pa.Field, path: str) -> Kind:
        data_type = one.type
        if types.is_dictionary(data_type) or types.is_run_end_encoded(data_type):
            kind = self._kind(message, one.with_type(data_type.value_type), path)
            return replace(kind, write=_encoded_writer(kind.write))
        if _is_repeated(data_type):
            # Tells null from empty.
            child = message.child(one.name, path)
            name = "entries" if types.is_map(data_type) else "items"
            inner = one.with_nullable(False).with_name(name)  # noqa: FBT003 - Arrow's
            child.taken.add(name)
            return self._around(child, self._repeated(child, inner, 1, path))
        if types.is_struct(data_type):
            child = message.child(one.name, path)
            write = self.members(child, tuple(data_type), path)
            # Unlike `field`, flattening makes a child null where its parent is.
            return self._around(
                child, lambda array, rows: write(array.flatten(), rows & validity(array))
            )
        require_digits(data_type, path)
        for recognises, build in _SCALARS:
            if recognises(data_type):
                kind, imported = build(data_type, self.limit_bytes)
                if self.own_decimals and types.is_decimal(data_type):
                    child = message.child(one.name, path)
                    child.fields += ["bytes value = 1", "uint32 precision = 2", "int32 scale = 3"]
                    kind = replace(kind, name=child.name)
                elif imported:
                    self.imports.add(imported)
                    kind = replace(kind, name=self.dot + kind.name)
                return kind
        raise no_exact_form(path, data_type, "form in Protocol Buffers")

    def _around(self, message: Message, write: Writer) -> Kind:
        def write_message(array: pa.Array, rows: Rows) -> list[Piece]:
            joined = join_rows(write(array, rows), len(array), self.limit_bytes)
            return _sized(joined)

        return Kind(message.name, _SIZED, write_message, message=True)

    def _element(self, message: Message, one: pa.Field, path: str) -> Kind:
        """Return the type of the items of a list, or of the values of a map."""
        if not one.nullable and not _is_repeated(one.type):
            return self._kind(message, one, path)
        child = message.child(one.name, path)
        write = self._member(child, one.with_name("value"), 1, path)
        return self._around(child, write)

    def _repeated(self, message: Message, one: pa.Field, number: int, path: str) -> Writer:
        """Declare a list or map that is never null; return the writer of all its items."""
        if types.is_map(one.type):
            return self._map(message, one, number, path)
        item = self._element(message, one.type.value_field.with_name(one.name), f"{path}[]")
        message.fields.append(f"repeated {item.name} {one.name} = {number}")
        return self._items(item, number)

    def _map(self, message: Message, one: pa.Field, number: int, path: str) -> Writer:
        key, value = one.type.key_field.with_name("key"), one.type.item_field.with_name("value")
        has_names = is_text(plain_type(key.type))
        if has_names:
            values = self._element(message, value.with_name(one.name), f"{path}.value")
            message.fields.append(f"map<string, {values.name}> {one.name} = {number}")
            write_entry = _entry_writer(self._kind(message, key, f"{path}.key"), values)
            entry = self._around(Message("", History()), write_entry)
        else:
            entries = pa.field(one.name, pa.struct([key, value]), nullable=False)
            entry = self._kind(message, entries, path)
            message.fields.append(f"repeated {entry.name} {one.name} = {number}")
        write_items = self._items(entry, number)

        def write(array: pa.MapArray, rows: Rows) -> list[Piece]:
            lists = map_entries(array)
            if has_names:
                require_unique_keys(lists, self.limit_bytes)
            return write_items(lists, rows)

        return write

    def _items(self, item: Kind, number: int) -> Writer:
        is_packed = item.wire != _SIZED
        tag = Constant(_tag(number, _SIZED))

        def write(array: pa.Array, _rows: Rows) -> list[Piece]:
            bounds = list_bounds(array)
            values = flattened(array, bounds)
            require_limit(len(values) * WORD_BYTES, self.limit_bytes)
            with RowErrors() as errors, errors.collect("item: ", partial(rows_of, bounds)):
                written = item.write(values, EVERY_ROW)
                pieces = written if is_packed else [tag, *written]
                joined = join_rows(pieces, len(values), self.limit_bytes)
            lists = _grouped(joined, bounds)
            if is_packed:
                return masked([tag, *_sized(lists)], np.diff(bounds) > 0)
            return [Blobs(lists)]

        return write


def _entry_writer(key: Kind, value: Kind) -> Writer:
    tags = Constant(_tag(1, key.wire)), Constant(_tag(2, value.wire))

    def write(array: pa.StructArray, rows: Rows) -> list[Piece]:
        keys, values = array.flatten()
        pieces: list[Piece] = []
        with RowErrors() as errors:
            with errors.collect():
                pieces += [tags[0], *key.write(keys, rows)]
            with errors.collect():
                pieces += [tags[1], *value.write(values, rows)]
        return pieces

    return write


def _grouped(items: pa.BinaryArray, bounds: NDArray[np.int64]) -> pa.BinaryArray:
    """Return the bytes of neighbouring items as one value per list."""
    offsets, data = value_offsets(items)[bounds].astype(np.int32), items.buffers()[2]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"") if data is None else data]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)


def _encoded_writer(write_values: Writer) -> Writer:
    """Return the writer of dictionary and run-end-encoded arrays: each distinct value once."""

    def write(array: pa.Array, rows: Rows) -> list[Piece]:
        values, indices = distinct_values(array)
        if len(values) == 0:
            values = pa.nulls(1, values.type)
        indices = pc.fill_null(indices.cast(pa.int64()), 0)
        try:
            return taken(write_values(values, validity(values)), indices.to_numpy())
        except CorruptRecord:
            # A dictionary may hold entries that no row uses.
            return write_values(values.take(indices), rows)

    return write


def _is_repeated(data_type: pa.DataType) -> bool:
    return bool(isinstance(data_type, LISTS) or types.is_map(data_type))


def _require_distinct(names: Sequence[str], path: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        # Their JSON form leaves _ out, and two fields cannot share it.
        other = seen.setdefault(name.replace("_", "").lower(), name)
        if other != name:
            whole = f"{path}.{name}" if path else name
            raise UnsupportedType(
                f"column '{whole}' and '{other}' would be the same field in the JSON form of"
                " Protocol Buffers; rename one by ReplaceField"
            )


def _sized(values: pa.BinaryArray) -> list[Piece]:
    """Return values with their length in front."""
    return with_lengths(values, lambda lengths: unsigned_varints(lengths.view(np.uint64)))


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _varint(bits: int) -> bytes:
    made = b""
    while bits > 0x7F:  # noqa: PLR2004 - seven bits
        made += bytes([bits & 0x7F | 0x80])
        bits >>= 7
    return made + bytes([bits])


# -- scalars --------------------------------------------------------------------------------------

# A type, and the file that declares it, where it is not one of the language's.
_Built: TypeAlias = tuple[Kind, str]


def _scalar(name: str, wire: int, write: Writer) -> _Built:
    return Kind(name, wire, write), ""


def _integers(data_type: pa.DataType, _: int) -> _Built:
    sign = "u" if types.is_unsigned_integer(data_type) else ""
    name = f"{sign}int{max(32, data_type.bit_width)}"
    # A negative number is one of 64 bits, in two's complement.
    return _scalar(name, _VARINT, lambda array, _: unsigned_varints(numbers(array).view(np.uint64)))


def _booleans(_: pa.DataType, __: int) -> _Built:
    return _scalar(
        "bool",
        _VARINT,
        lambda array, _: [
            fixed_words(numbers(array.cast(pa.bool_()).cast(pa.uint8())).view(np.uint64), 1)
        ],
    )


def _floats(data_type: pa.DataType, _: int) -> _Built:
    dtype = np.dtype(f"f{data_type.bit_width // 8}")
    if types.is_float64(data_type):
        return _scalar(
            "double",
            _FIXED64,
            lambda array, _: [fixed_words(fixed_width(array, dtype).view(np.uint64), 8)],
        )

    def write(array: pa.Array, _: Rows) -> list[Piece]:
        singles = fixed_width(array, dtype).astype(np.float32, copy=False)
        return [fixed_words(singles.view(np.uint32).astype(np.uint64), 4)]

    return _scalar("float", _FIXED32, write)


def _texts(_: pa.DataType, limit_bytes: int) -> _Built:
    return _scalar("string", _SIZED, partial(_write_text, limit_bytes))


def _write_text(limit_bytes: int, array: pa.Array, _: Rows) -> list[Piece]:
    return _sized(checked_text(array, limit_bytes).cast(pa.binary()))


def _json_texts(_: pa.DataType, limit_bytes: int) -> _Built:
    return _scalar(
        "string", _SIZED, lambda array, rows: _write_text(limit_bytes, array.storage, rows)
    )


def _uuids(_: pa.DataType, __: int) -> _Built:
    return _scalar(
        "string",
        _SIZED,
        lambda array, _: _sized(uuid(array.storage).cast(pa.binary())),
    )


def _binaries(data_type: pa.DataType, limit_bytes: int) -> _Built:
    width = data_type.byte_width if types.is_fixed_size_binary(data_type) else None

    def write(array: pa.Array, _: Rows) -> list[Piece]:
        require_limit(text_bytes(array) if width is None else width * len(array), limit_bytes)
        return _sized(array.cast(pa.binary()))

    return _scalar("bytes", _SIZED, write)


# -- well-known messages --------------------------------------------------------------------------

_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_NANOS = 10**9
# Of google.protobuf.Timestamp and Duration, in seconds.
_FIRST_SECOND, _END_SECOND = -62_135_596_800, 253_402_300_800
_LONGEST_SECONDS = 315_576_000_000
_FIRST_YEAR, _LAST_YEAR = 1, 9999
Parts: TypeAlias = Sequence[NDArray[np.int64]]


def _well_known(name: str, imported: str, parts_of: Callable[[pa.Array, Rows], Parts]) -> _Built:
    """Return a message of integers, numbered from 1; zeros are left out, as they are defaults."""

    def write(array: pa.Array, rows: Rows) -> list[Piece]:
        pieces: list[Piece] = []
        for number, part in enumerate(parts_of(array, rows), 1):
            tag = Constant(_tag(number, _VARINT))
            pieces += masked([tag, *unsigned_varints(part.view(np.uint64))], part != 0)
        return [_length(pieces), *pieces]

    return Kind(name, _SIZED, write, message=True), imported


def _length(pieces: Sequence[Piece]) -> Words:
    """Return the length of pieces that have fewer than 128 bytes."""
    # Of all but constants, which `masked` turned into words.
    total = np.sum([piece.lengths for piece in pieces if isinstance(piece, Words)], axis=0)
    return fixed_words(total.astype(np.uint64), 1)


def _reject(odd: Any, rows: Rows, array: pa.Array, reason: str) -> None:  # noqa: ANN401 - a mask
    counted = odd & rows & validity(array)
    if counted.any():
        raise corrupt_rows(np.flatnonzero(counted), reason)


def _seconds_and_nanos(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    tick = _TICKS[array.type.unit]
    seconds, rest = np.divmod(numbers(array), tick)
    return seconds, rest * (_NANOS // tick)


def _calendar(days: NDArray[np.int64]) -> Parts:
    """Return years, months and days of the month of days since 1970."""
    dates = days.astype("M8[D]")
    years, months = dates.astype("M8[Y]"), dates.astype("M8[M]")
    return (
        years.astype(np.int64) + 1970,
        (months - years).astype(np.int64) + 1,
        (dates - months).astype(np.int64) + 1,
    )


def _clock(seconds: NDArray[np.int64]) -> Parts:
    minutes, second = np.divmod(seconds, 60)
    hours, minute = np.divmod(minutes, 60)
    return hours, minute, second


def _date_parts(array: pa.Array, rows: Rows) -> Parts:
    days = numbers(array)
    if types.is_date64(array.type):
        days, rest = np.divmod(days, SECONDS_PER_DAY * 1_000)
        _reject(rest != 0, rows, array, "a date64 with a time of day")
    return _checked_calendar(days, rows, array)


def _checked_calendar(days: NDArray[np.int64], rows: Rows, array: pa.Array) -> Parts:
    first, end = _FIRST_SECOND // SECONDS_PER_DAY, _END_SECOND // SECONDS_PER_DAY
    outside = (days < first) | (days >= end)
    _reject(outside, rows, array, f"a year outside {_FIRST_YEAR} to {_LAST_YEAR}")
    return _calendar(np.where(outside, 0, days))


def _time_parts(array: pa.Array, rows: Rows) -> Parts:
    seconds, nanos = _seconds_and_nanos(array)
    outside = (seconds < 0) | (seconds >= SECONDS_PER_DAY)
    _reject(outside, rows, array, f"not a time of day, counted in {array.type.unit}")
    return *_clock(seconds), nanos


def _instant_parts(array: pa.Array, rows: Rows) -> Parts:
    seconds, nanos = _seconds_and_nanos(array)
    outside = (seconds < _FIRST_SECOND) | (seconds >= _END_SECOND)
    _reject(outside, rows, array, f"a year outside {_FIRST_YEAR} to {_LAST_YEAR}")
    return seconds, nanos


def _local_parts(array: pa.Array, rows: Rows) -> Parts:
    seconds, nanos = _seconds_and_nanos(array)
    days, second = np.divmod(seconds, SECONDS_PER_DAY)
    return *_checked_calendar(days, rows, array), *_clock(second), nanos


def _duration_parts(array: pa.Array, rows: Rows) -> Parts:
    seconds, nanos = _seconds_and_nanos(array)
    # Both have the sign of the duration.
    mixed = (seconds < 0) & (nanos > 0)
    seconds, nanos = seconds + mixed, nanos - mixed * _NANOS
    outside = (seconds < -_LONGEST_SECONDS) | (seconds > _LONGEST_SECONDS)
    _reject(outside, rows, array, "a duration beyond 10,000 years")
    return seconds, nanos


def _dates(_: pa.DataType, __: int) -> _Built:
    return _well_known("google.type.Date", "google/type/date.proto", _date_parts)


def _times(_: pa.DataType, __: int) -> _Built:
    return _well_known("google.type.TimeOfDay", "google/type/timeofday.proto", _time_parts)


def _timestamps(data_type: pa.DataType, __: int) -> _Built:
    if data_type.tz is None:
        return _well_known("google.type.DateTime", "google/type/datetime.proto", _local_parts)
    return _well_known(
        "google.protobuf.Timestamp", "google/protobuf/timestamp.proto", _instant_parts
    )


def _durations(_: pa.DataType, __: int) -> _Built:
    return _well_known(
        "google.protobuf.Duration", "google/protobuf/duration.proto", _duration_parts
    )


def _decimals(data_type: pa.DataType, _: int) -> _Built:
    precision, scale = decimal_shape(data_type)
    shape = _tag(2, _VARINT) + _varint(precision)
    if scale:
        shape += _tag(3, _VARINT) + _varint(scale)

    def write(array: pa.Array, _: Rows) -> list[Piece]:
        words = decimal_words(array)
        sign = (words[0] >> np.uint64(63)).astype(np.bool_)
        digits = big_endian(words, sign)
        size = _length(digits)
        head = fixed_words(size.words + np.uint64(2 + len(shape)), 1)
        return [head, Constant(_tag(1, _SIZED)), size, *digits, Constant(shape)]

    kind = Kind("confluent.type.Decimal", _SIZED, write, message=True)
    return kind, "confluent/type/decimal.proto"


_Build: TypeAlias = Callable[[pa.DataType, int], _Built]
_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], _Build], ...] = (
    (types.is_boolean, _booleans),
    (types.is_integer, _integers),
    (types.is_floating, _floats),
    (types.is_decimal, _decimals),
    (types.is_date, _dates),
    (types.is_time, _times),
    (types.is_timestamp, _timestamps),
    (types.is_duration, _durations),
    (is_text, _texts),
    (is_binary, _binaries),
    (lambda kind: isinstance(kind, pa.UuidType), _uuids),
    (lambda kind: isinstance(kind, pa.Bool8Type), _booleans),
    (lambda kind: isinstance(kind, pa.JsonType), _json_texts),
)
