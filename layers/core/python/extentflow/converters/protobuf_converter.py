"""The converter `protobuf`: records as Protocol Buffers messages, with their schema in a registry.

docs/registry.md has the table of types. A message is declared and its writer made in one pass over
the columns, so that the two agree. Where Protocol Buffers cannot tell null from empty (lists, maps)
or has no null (their items), a message around the value can.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa

from extentflow.arrays.buffers import MAX_TEXT_BYTES
from extentflow.arrays.interleave import Constant, Piece
from extentflow.arrays.layouts import ConvertedColumns
from extentflow.arrays.nested import require_values
from extentflow.config.registry import GLUE, ProtobufOptions, problems
from extentflow.config.specs import ConverterSpec
from extentflow.converters import Converter, Destination
from extentflow.converters.names import Names
from extentflow.converters.protobuf_encoding import Message, MessageFile
from extentflow.converters.protobuf_numbers import History, UnreadableSchemaError
from extentflow.converters.row_writers import EVERY_ROW, Members
from extentflow.converters.schema_registry import PROTOBUF as KIND
from extentflow.converters.subjects import open_subject, payload_converter
from extentflow.errors import IncompatibleSchema

# Which message of the file follows, in both wire formats: the first one.
_FIRST_MESSAGE = Constant(b"\0")


def protobuf_converter(
    schema: pa.Schema,
    columns: Sequence[str] | None,
    options: ProtobufOptions,
    destination: Destination,
    *,
    limit_bytes: int = MAX_TEXT_BYTES,
) -> Converter:
    """Return the converter of `columns` (None: all) to one message per row, never null.

    Registers the schema, or looks it up: fields keep the numbers that they have in the subject.
    UnsupportedType names a column without a form in Protocol Buffers.
    """
    chosen = ConvertedColumns.select(schema, columns)
    subject = open_subject(options, destination, KIND)

    def declared(history: History) -> tuple[str, Members]:
        return message_file(chosen.fields, options, history, limit_bytes)

    def revised(versions: Sequence[str]) -> str:
        try:
            return _revised(versions, lambda history: declared(history)[0])
        except UnreadableSchemaError as exc:
            raise IncompatibleSchema(
                f"the subject {subject.name} has a schema that cannot be read, so that fields"
                f" cannot keep their numbers: {exc}; use another subject, or delete that version"
            ) from exc

    settled = subject.settle(declared(History())[0], revised)
    # By the numbers of that text, whichever they are.
    _, write_members = declared(History.read([settled.text]))

    def write(batch: pa.RecordBatch) -> list[Piece]:
        arrays = chosen.of(batch)
        require_values(chosen.fields, arrays)
        return [_FIRST_MESSAGE, *write_members(arrays, EVERY_ROW)]

    return payload_converter(settled, write, limit_bytes)


def _revised(versions: Sequence[str], declare: Callable[[History], str]) -> str:
    """Return the schema after `versions`, the newest first: one of them where it has the fields.

    What is reserved grows with the versions, so that each is compared with those before it.
    """
    history = History.read(versions)
    for place, text in enumerate(versions):
        if declare(History(history.versions[place:])) == text:
            return text
    return declare(history)


def message_file(
    fields: Sequence[pa.Field], options: ProtobufOptions, history: History, limit_bytes: int
) -> tuple[str, Members]:
    """Return the text of the file whose first message has the columns, and its writer.

    UnsupportedType names what has no form; UnreadableSchemaError: `history` leaves no number.
    """
    parts = options.record_name.split(".")
    package, short = ".".join(parts[:-1]), parts[-1]
    names = Names(options.scrub, "a message of Protocol Buffers", "A-Za-z")
    # Names are looked up from the inside, so that a package may hide another one of its name.
    dot = "." if {"google", "confluent"} & set(parts) else ""
    # AWS's deserialisers have Google's files, and none of Confluent's.
    own_decimals = options.registry_type == GLUE
    file = MessageFile(limit_bytes, names, dot, own_decimals=own_decimals)
    message = Message(short, history)
    write = file.members(message, fields)
    head = ['syntax = "proto3";', *([f"package {package};"] if package else [])]
    head += [f'import "{one}";' for one in sorted(file.imports)]
    return "\n".join([*head, *message.lines(), ""]), write


PROTOBUF = ConverterSpec(open=protobuf_converter, options=ProtobufOptions, problems=problems)
