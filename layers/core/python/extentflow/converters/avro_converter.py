"""The converter `avro`: records in Avro's binary encoding, with their schema in a registry.

docs/registry.md has the table of types and the rules for schemas.
"""

import json
from collections.abc import Sequence

import pyarrow as pa

from extentflow.arrays.buffers import MAX_TEXT_BYTES
from extentflow.arrays.layouts import ConvertedColumns
from extentflow.config.registry import AvroOptions, avro_problems
from extentflow.config.specs import ConverterSpec
from extentflow.converters import Converter, Destination
from extentflow.converters.avro_encoding import record_writer
from extentflow.converters.avro_scalars import Target
from extentflow.converters.avro_schema import parse_schema, record_schema
from extentflow.converters.names import Names
from extentflow.converters.row_writers import EVERY_ROW
from extentflow.converters.schema_registry import AVRO as KIND
from extentflow.converters.subjects import open_subject, payload_converter
from extentflow.errors import IncompatibleSchema


def avro_converter(
    schema: pa.Schema,
    columns: Sequence[str] | None,
    options: AvroOptions,
    destination: Destination,
    *,
    limit_bytes: int = MAX_TEXT_BYTES,
) -> Converter:
    """Return the converter of `columns` (None: all) to one record per row, never null.

    Registers the schema, or looks it up. UnsupportedType names a column without a form in Avro,
    IncompatibleSchema one that the schema in the registry does not fit.
    """
    chosen, names = ConvertedColumns.select(schema, columns), Names(options.scrub)
    text = json.dumps(record_schema(chosen.fields, options.record_name, names))
    subject = open_subject(options, destination, KIND)
    settled = subject.latest() if options.use_latest else subject.settle(text)
    try:
        write = record_writer(
            chosen.fields, parse_schema(settled.text), "", Target(names, limit_bytes)
        )
    except IncompatibleSchema as exc:
        raise IncompatibleSchema(f"subject {subject.name}, schema {settled.id}: {exc}") from exc
    return payload_converter(settled, lambda batch: write(chosen.of(batch), EVERY_ROW), limit_bytes)


AVRO = ConverterSpec(open=avro_converter, options=AvroOptions, problems=avro_problems)
