"""Read messages of Protocol Buffers by the text of their file, with Google's library.

The text is read into a descriptor here; names, numbers and bytes are Google's matter.
"""

import re
from collections.abc import Iterator
from typing import Any

from confluent_kafka.schema_registry.confluent.type import decimal_pb2
from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.type import date_pb2, datetime_pb2, timeofday_pb2

OTHER_FILES = [
    duration_pb2, timestamp_pb2, date_pb2, datetime_pb2, timeofday_pb2, decimal_pb2,
]  # fmt: skip
TOKEN = re.compile(r'"[^"]*"|[\w.]+|[{}<>,;=]')
SCALARS = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
    if name not in {"TYPE_MESSAGE", "TYPE_GROUP", "TYPE_ENUM"}
}
LABELS = descriptor_pb2.FieldDescriptorProto


def message_class(text: str) -> type[Message]:
    """Return the class of the first message of a file, as the index 0 names it."""
    file = file_descriptor(text)
    pool = DescriptorPool()
    for other in OTHER_FILES:
        pool.AddSerializedFile(other.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    found = pool.FindFileByName(file.name)
    made: type[Message] = GetMessageClass(next(iter(found.message_types_by_name.values())))
    return made


def file_descriptor(text: str) -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor of a file of messages; all of the text must be understood."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto")
    tokens = iter(TOKEN.findall(text))
    for token in tokens:
        if token == "message":
            _message(tokens, file.message_type.add(name=next(tokens)))
            continue
        value = next(tokens)
        if token == "syntax":
            assert (value, next(tokens)) == ("=", '"proto3"')
            file.syntax = "proto3"
        elif token == "package":
            file.package = value
        else:
            assert token == "import"
            file.dependency.append(value.strip('"'))
        assert next(tokens) == ";"
    return file


def _message(tokens: Iterator[str], made: descriptor_pb2.DescriptorProto) -> None:
    assert next(tokens) == "{"
    for token in tokens:
        if token == "}":
            return
        if token == "message":
            _message(tokens, made.nested_type.add(name=next(tokens)))
            continue
        if token == "reserved":
            _reserved(tokens, made)
            continue
        label, kind = "", token
        if token in {"optional", "repeated"}:
            label, kind = token, next(tokens)
        if kind == "map":
            label = "repeated"
            key_kind, value_kind = [next(tokens) for _ in range(5)][1:4:2]
        name, equals, number, end = (next(tokens) for _ in range(4))
        assert (equals, end) == ("=", ";")
        if kind == "map":
            kind = "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"
            entry = made.nested_type.add(name=kind)
            entry.options.map_entry = True
            _field(entry, "", key_kind, "key", 1)
            _field(entry, "", value_kind, "value", 2)
        _field(made, label, kind, name, int(number))
    raise AssertionError("a message without an end")


def _reserved(tokens: Iterator[str], made: descriptor_pb2.DescriptorProto) -> None:
    part: list[str] = []
    for token in tokens:
        if token not in {",", ";"}:
            part.append(token)
            continue
        if part[0].startswith('"'):
            made.reserved_name.append(part[0].strip('"'))
        else:
            end = (1 << 29) - 1 if part[-1] == "max" else int(part[-1])
            made.reserved_range.add(start=int(part[0]), end=end + 1)
        part = []
        if token == ";":
            return


def _field(
    made: descriptor_pb2.DescriptorProto, label: str, kind: str, name: str, number: int
) -> None:
    one = made.field.add(name=name, number=number, label=LABELS.LABEL_OPTIONAL)
    if kind in SCALARS:
        one.type = SCALARS[kind]
    else:
        one.type, one.type_name = LABELS.TYPE_MESSAGE, kind
    if label == "repeated":
        one.label = LABELS.LABEL_REPEATED
    elif label == "optional":
        one.proto3_optional, one.oneof_index = True, len(made.oneof_decl)
        made.oneof_decl.add(name=f"_{name}")


def decode(kind: type[Message], data: bytes) -> dict[str, Any]:
    """Return the fields of a message: what is absent is None, [], {} or, without a null, 0."""
    message = kind()
    assert message.ParseFromString(data) == len(data)
    assert message.FindInitializationErrors() == []
    return plain(message)


def plain(message: Message) -> dict[str, Any]:
    """Return the fields of a message as `decode`; none of them may be unknown."""
    declared = message.DESCRIPTOR.fields
    assert message.ByteSize() == len(message.SerializeToString())
    return {one.name: _value(message, one) for one in declared}


def _value(message: Message, one: FieldDescriptor) -> Any:  # noqa: ANN401 - any value
    found = getattr(message, one.name)
    if one.is_repeated and one.message_type and one.message_type.GetOptions().map_entry:
        return {key: _plain(found[key]) for key in found}
    if one.is_repeated:
        return [_plain(item) for item in found]
    if one.has_presence and not message.HasField(one.name):
        return None
    return _plain(found)


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value
    return plain(value) if isinstance(value, Message) else value
