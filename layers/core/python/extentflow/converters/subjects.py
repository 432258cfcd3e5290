"""What converters with a registry share: the subject of their schema, and payloads that name it.

Tests: unit/converters/test_schema_registry.py, unit/converters/test_glue_registry.py
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from extentflow.arrays.buffers import (
    convert_in_halves,
    offsets_from_lengths,
    require_limit,
    value_offsets,
)
from extentflow.arrays.interleave import Blobs, Constant, Piece, join_rows
from extentflow.config.registry import GLUE, RegistryOptions
from extentflow.converters import Converter, Destination
from extentflow.converters.confluent_registry import open_confluent
from extentflow.converters.glue_registry import open_glue
from extentflow.converters.schema_registry import AVRO, RegisteredSchema, Revision, SettledSchemas


@dataclass(frozen=True, slots=True)
class Subject:
    """Where a converter keeps its schema."""

    schemas: SettledSchemas
    name: str
    preview: bool

    def settle(self, text: str, revise: Revision | None = None) -> RegisteredSchema:
        """Return the schema, registered if it is new. Raises as `SettledSchemas.settle`."""
        return self.schemas.settle(self.name, text, preview=self.preview, revise=revise)

    def latest(self) -> RegisteredSchema:
        """Return the latest schema of the subject. Raises as `SchemaRegistry.latest`."""
        return self.schemas.registry.latest(self.name)


def open_subject(options: RegistryOptions, destination: Destination, kind: str) -> Subject:
    """Return the subject of a converter's schema; `options` have resolved secrets."""
    name = options.subject(destination.topic, is_key=destination.is_key)
    return Subject(open_registry(options, kind), name, destination.preview)


@lru_cache(maxsize=64)
def open_registry(options: RegistryOptions, kind: str = AVRO) -> SettledSchemas:
    """Return this process's view of a registry; `options` have resolved secrets."""
    opened = open_glue if options.registry_type == GLUE else open_confluent
    return SettledSchemas(opened(options, kind), options.auto_register)


def payload_converter(
    settled: RegisteredSchema, write: Callable[[pa.RecordBatch], list[Piece]], limit_bytes: int
) -> Converter:
    """Return the converter to payloads, each of them what `write` returns behind the prefix."""
    prefix = Constant(settled.prefix)

    def convert(batch: pa.RecordBatch) -> pa.BinaryArray:
        pieces = write(batch)
        if settled.is_compressed:
            pieces = [Blobs(_deflated(join_rows(pieces, batch.num_rows, limit_bytes), limit_bytes))]
        return join_rows([prefix, *pieces], batch.num_rows, limit_bytes)

    return partial(convert_in_halves, convert)


def _deflated(rows: pa.BinaryArray, limit_bytes: int) -> pa.BinaryArray:
    """Return each row compressed by itself, as a wire format asks for."""
    data, offsets = memoryview(rows.buffers()[2] or b""), value_offsets(rows).tolist()
    packed = [zlib.compress(data[start:end]) for start, end in pairwise(offsets)]
    ends = offsets_from_lengths(np.fromiter(map(len, packed), np.int64, len(packed)))
    # Rows that cannot be compressed grow.
    require_limit(int(ends[-1]), limit_bytes)
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(packed))]
    return pa.Array.from_buffers(pa.binary(), len(packed), buffers)
