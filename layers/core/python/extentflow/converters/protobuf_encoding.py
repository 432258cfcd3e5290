"""Declare Arrow columns as fields of Protocol Buffers messages, and write them on columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from extentflow.arrays.buffers import RowErrors, require_limit, validity
from extentflow.arrays.encodings import is_text, no_exact_form, plain_type
from extentflow.arrays.interleave import (
    WORD_BYTES,
    Blobs,
    Constant,
    Piece,
    join_rows,
    masked,
    taken,
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
from extentflow.arrays.numbers import require_digits
from extentflow.converters.names import Names
from extentflow.converters.protobuf_numbers import History
from extentflow.converters.protobuf_scalars import SIZED, Kind, scalar_kind, sized, tag_bytes
from extentflow.converters.row_writers import EVERY_ROW, Members, Rows, Writer, joined_items
from extentflow.errors import CorruptRecord, UnsupportedType

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
        tag = Constant(tag_bytes(number, kind.wire))

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
        found = scalar_kind(data_type, self.limit_bytes)
        if found is None:
            raise no_exact_form(path, data_type, "form in Protocol Buffers")
        kind, imported = found
        if self.own_decimals and types.is_decimal(data_type):
            child = message.child(one.name, path)
            child.fields += ["bytes value = 1", "uint32 precision = 2", "int32 scale = 3"]
            return replace(kind, name=child.name)
        if imported:
            self.imports.add(imported)
            return replace(kind, name=self.dot + kind.name)
        return kind

    def _around(self, message: Message, write: Writer) -> Kind:
        def write_message(array: pa.Array, rows: Rows) -> list[Piece]:
            joined = join_rows(write(array, rows), len(array), self.limit_bytes)
            return sized(joined)

        return Kind(message.name, SIZED, write_message, message=True)

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
        is_packed = item.wire != SIZED
        tag = Constant(tag_bytes(number, SIZED))

        def write(array: pa.Array, _rows: Rows) -> list[Piece]:
            bounds = list_bounds(array)
            values = flattened(array, bounds)
            require_limit(len(values) * WORD_BYTES, self.limit_bytes)
            with RowErrors() as errors, errors.collect("item: ", partial(rows_of, bounds)):
                written = item.write(values, EVERY_ROW)
                pieces = written if is_packed else [tag, *written]
                joined = join_rows(pieces, len(values), self.limit_bytes)
            lists = joined_items(joined, bounds)
            if is_packed:
                return masked([tag, *sized(lists)], np.diff(bounds) > 0)
            return [Blobs(lists)]

        return write


def _entry_writer(key: Kind, value: Kind) -> Writer:
    tags = Constant(tag_bytes(1, key.wire)), Constant(tag_bytes(2, value.wire))

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
