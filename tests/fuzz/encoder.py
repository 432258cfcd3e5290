"""Target `encoder`: the converter `avro`, by its own schemas and by those of a registry."""

import io
import json
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
from tests.fuzz.converters import NAMES, column, converted
from tests.fuzz.mutations import (
    any_value,
    change_bytes,
    change_document,
    pack,
    unpack,
    write_json,
)
from tests.fuzz.targets import Target
from tests.support.registry import decoded, without_logical_types

from extentflow.arrays.interleave import join_rows
from extentflow.config.registry import AvroOptions
from extentflow.converters.avro_encoding import record_writer
from extentflow.converters.avro_scalars import Target as Limits
from extentflow.converters.avro_schema import parse_schema, record_schema
from extentflow.converters.confluent_registry import ConfluentRegistry
from extentflow.converters.names import Names
from extentflow.converters.row_writers import EVERY_ROW

_NAMES = Names(scrub=True)
_LIMITS = Limits(_NAMES, 1 << 30)
_ANSWER = {"id": 7, "subject": "s", "version": 1, "schema": ""}


def _own_schema(batch: pa.RecordBatch) -> Any:  # noqa: ANN401 - JSON
    return record_schema(list(batch.schema), "com.acme.Row", _NAMES)


def _input(random: Random) -> bytes:
    length = random.choice((1, 2, 5, 9))
    names = random.sample(NAMES, random.choice((1, 1, 2)))
    batch = pa.RecordBatch.from_arrays([column(random, length) for _ in names], names=names)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    given: dict[str, Any] = {"answer": None, "cut": random.randrange(length)}
    if random.random() < 0.6:
        given["answer"] = _answer(random, batch)
    return pack(given, sink.getvalue())


def _answer(random: Random, batch: pa.RecordBatch) -> str:
    """Return what a registry says that its latest schema is."""
    try:
        schema = _own_schema(batch)
    except Exception:  # noqa: BLE001 - a type without a form; any schema will do
        schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    text = write_json(change_document(random, schema))
    if random.random() < 0.1:
        text = change_bytes(random, text.encode("utf-8", "replace")).decode("utf-8", "replace")
    answer: Any = {**_ANSWER, "schema": text}
    if random.random() < 0.15:
        answer = change_document(random, answer)
    return write_json(answer if random.random() < 0.97 else any_value(random))


def _run(data: bytes) -> str:
    given, body = unpack(data)
    batch = pa.ipc.open_stream(pa.BufferReader(body)).read_next_batch()
    fields = list(batch.schema)
    text = json.dumps(_own_schema(batch))
    held = given["answer"] is not None
    if held:
        text = _settled(given["answer"])
    write = record_writer(fields, parse_schema(text), "", _LIMITS)

    def rows_of(part: pa.RecordBatch) -> list[bytes | None]:
        made: list[bytes | None] = join_rows(
            write(part.columns, EVERY_ROW), part.num_rows, _LIMITS.limit_bytes
        ).to_pylist()
        return made

    rows = converted(batch, given["cut"], rows_of)
    schema = without_logical_types(json.loads(text))
    try:
        fastavro.parse_schema(schema)
    except Exception:  # noqa: BLE001 - fastavro refuses more than the library
        assert held, "fastavro reads the library's own schemas"
        return "written, unread"
    read = [decoded(row or b"", schema) for row in rows]
    if not held:
        _require_values(batch, read)
    return f"written by {'a held schema' if held else 'its own schema'}"


def _require_values(batch: pa.RecordBatch, read: list[dict[str, Any]]) -> None:
    """Require the values of columns that Avro stores as they are."""
    for at, array in enumerate(batch.columns):
        if _is_plain(array.type):
            found = [list(row.values())[at] for row in read]
            assert list(map(repr, found)) == list(map(repr, array.to_pylist())), "values are kept"


def _is_plain(kind: pa.DataType) -> bool:
    numbers = pa.types.is_integer(kind) and kind != pa.uint64()
    others = (pa.bool_(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.large_string())
    return numbers or kind in others


def _settled(answer: str) -> str:
    """Return the text that a client takes from a registry's answer."""

    def transport(*_: object) -> tuple[int, Any]:
        try:
            return 200, json.loads(answer)
        except (ValueError, RecursionError):  # as the transport over HTTP
            return 200, None

    options = AvroOptions(urls=("http://r",), use_latest=True, auto_register=False)
    return ConfluentRegistry(options, transport).latest("s").text


ENCODER = Target("encoder", 5, _input, _run)
