"""Convert columns to payload bytes: the `Converter` port and the registry.

The package covers one value per row of a batch. Batches come from `formats`; topics, partitions and
bad records belong to `delivery` and `kafka`. Many rows in one value belong to `columnar`. The other
direction, from bytes of JSON and Avro to columns, is `decoders`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from extentflow.arrays.encodings import is_binary
from extentflow.arrays.layouts import ConvertedColumns
from extentflow.config.specs import CONVERTERS, ConverterSpec

__all__ = [
    "CONVERTERS",
    "Converter",
    "ConverterFactory",
    "Destination",
    "open_converter",
    "open_header_converter",
]


class Converter(Protocol):
    """Turns a batch into one binary value per row."""

    def __call__(self, batch: pa.RecordBatch) -> pa.BinaryArray | pa.LargeBinaryArray:
        """Return an array as long as the batch; a null is a Kafka null (tombstone).

        Computed on columns: no Python object per record.

        Raises:
            CorruptRecord: its `rows` name every row that has no faithful payload, and why.
        """


class ConverterFactory(Protocol):
    """Builds a converter for one schema, so that an unsupported type shows before any record."""

    def __call__(self, schema: pa.Schema, columns: Sequence[str] | None = None) -> Converter:
        """Return a converter for `columns` (None: all) of batches of `schema`.

        Raises:
            UnsupportedType: names the column, its type and what to do.
        """


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the payloads of a converter go: the topic, and whether they are keys.

    `preview`: nothing is sent, so that a registry is asked about the schema and not changed.
    """

    topic: str
    is_key: bool = False
    preview: bool = False


def open_converter(
    name: str,
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    *,
    options: Any = None,  # noqa: ANN401 - each converter has a type of its own
    destination: Destination | None = None,
) -> Converter:
    """Return the converter called `name` for batches of `schema`.

    `options` (None: its defaults) and `destination` are for a converter with keys of its own
    (`ConverterSpec`).

    Raises KeyError or Misconfigured as `Registry.get`, UnsupportedType as ConverterFactory, and for
    one with a registry RegistryUnavailable, IncompatibleSchema and AccessDenied.
    """
    found = CONVERTERS.get(name)
    if isinstance(found, ConverterSpec):
        own = found.options() if options is None else options
        made: Converter = found.open(schema, columns, own, destination)
        return made
    factory: ConverterFactory = found
    return factory(schema, columns)


def open_header_converter(schema: pa.Schema, column: str, chosen: str | None = None) -> Converter:
    """Return the converter of a column to values of headers: `chosen`, else by its type.

    Binary columns are passed on as they are, others become text as `string` writes it. Raises
    UnsupportedType.
    """
    (field,) = ConvertedColumns.select(schema, [column]).fields
    return open_converter(
        chosen or ("bytes" if is_binary(field.type) else "string"), schema, [column]
    )
