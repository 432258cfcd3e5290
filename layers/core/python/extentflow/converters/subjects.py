"""What converters with a registry share: the subject of their schema, and payloads that name it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import pyarrow as pa

from extentflow.config.registry import TOPIC_NAME, RegistryOptions
from extentflow.converters import Converter, Destination
from extentflow.converters.buffers import convert_in_halves
from extentflow.converters.confluent import open_confluent
from extentflow.converters.interleave import Constant, Piece, join_rows
from extentflow.converters.registry import AVRO, Registered, Revision, SettledSchemas


@dataclass(frozen=True, slots=True)
class Subject:
    """Where a converter keeps its schema."""

    schemas: SettledSchemas
    name: str
    preview: bool

    def settle(self, text: str, revise: Revision | None = None) -> Registered:
        """Return the schema, registered if it is new. Raises as `SettledSchemas.settle`."""
        return self.schemas.settle(self.name, text, preview=self.preview, revise=revise)

    def latest(self) -> Registered:
        """Return the latest schema of the subject. Raises as `SchemaRegistry.latest`."""
        return self.schemas.registry.latest(self.name)


def open_subject(options: RegistryOptions, destination: Destination, kind: str) -> Subject:
    """Return the subject of a converter's schema; `options` have resolved secrets."""
    name = subject_name(options, destination, options.record_name)
    return Subject(open_registry(options, kind), name, destination.preview)


def subject_name(options: RegistryOptions, destination: Destination, record: str) -> str:
    """Return the subject of a schema whose record is called `record`."""
    topic, strategy = destination.topic, options.strategy
    if strategy == TOPIC_NAME:
        return f"{topic}-{'key' if destination.is_key else 'value'}"
    return record if strategy == "RecordNameStrategy" else f"{topic}-{record}"


@lru_cache(maxsize=64)
def open_registry(options: RegistryOptions, kind: str = AVRO) -> SettledSchemas:
    """Return this process's view of a registry; `options` have resolved secrets."""
    return SettledSchemas(open_confluent(options, kind), options.auto_register)


def payload_converter(
    settled: Registered, write: Callable[[pa.RecordBatch], list[Piece]], limit_bytes: int
) -> Converter:
    """Return the converter to payloads, each of them what `write` returns behind the prefix."""
    prefix = Constant(settled.prefix)

    def convert(batch: pa.RecordBatch) -> pa.BinaryArray:
        return join_rows([prefix, *write(batch)], batch.num_rows, limit_bytes)

    return partial(convert_in_halves, convert)
