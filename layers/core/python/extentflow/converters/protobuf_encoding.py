"""Declare Arrow columns as fields of Protocol Buffers messages, and write them on columns.

Tests: unit/converters/test_protobuf_converter.py
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import pyarrow as pa
from pyarrow import types

from extentflow.arrays.buffers import validity
from extentflow.arrays.encodings import is_text, no_exact_form, plain_type
from extentflow.arrays.interleave import Blobs, Constant, Piece, join_rows, masked
from extentflow.arrays.nested import LISTS, map_entries, present_rows, require_unique_keys
from extentflow.arrays.numbers import require_digits
from extentflow.converters.names import Names
from extentflow.converters.protobuf_numbers import History
from extentflow.converters.protobuf_scalars import SIZED, Kind, scalar_kind, sized, tag_bytes
from extentflow.converters.row_writers import (
    EVERY_ROW,
    Members,
    Rows,
    Writer,
    encoded_writer,
    entry_writer,
    members_writer,
    write_items,
)
from extentflow.errors import UnsupportedType

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

        return members_writer(writers)

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
            return replace(kind, write=encoded_writer(kind.write, validity))
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
            key_kind = self._kind(message, key, f"{path}.key")
            write_entry = entry_writer(_tagged(1, key_kind), _tagged(2, values))
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
        tags = [] if is_packed else [tag]

        def write(array: pa.Array, _rows: Rows) -> list[Piece]:
            lists, counts = write_items(
                array,
                lambda values: [*tags, *item.write(values, EVERY_ROW)],
                self.limit_bytes,
            )
            if is_packed:
                return masked([tag, *sized(lists)], counts > 0)
            return [Blobs(lists)]

        return write


def _tagged(number: int, kind: Kind) -> Writer:
    tag = Constant(tag_bytes(number, kind.wire))
    return lambda array, rows: [tag, *kind.write(array, rows)]


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
