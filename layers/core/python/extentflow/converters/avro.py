"""The converter `avro`: records in Avro's binary encoding, with their schema in a registry.

docs/registry.md has the table of types and the rules for schemas.
"""

import json
from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from extentflow.config.registry import AvroOptions, avro_problems
from extentflow.config.specs import ConverterSpec
from extentflow.converters import Converter, Destination
from extentflow.converters.avro_columns import EVERY_ROW, Target, record_writer
from extentflow.converters.avro_schema import Names, parse_schema, record_schema
from extentflow.converters.buffers import MAX_TEXT_BYTES, Columns, convert_in_halves
from extentflow.converters.interleave import Constant, join_rows
from extentflow.converters.registry import open_registry, subject_name
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
    chosen, names = Columns.select(schema, columns, nested=True), Names(options.scrub)
    text = json.dumps(record_schema(chosen.fields, options.record_name, names))
    subject = subject_name(options, destination, options.record_name)
    registry = open_registry(options)
    if options.use_latest:
        settled = registry.latest(subject)
    else:
        settled = registry.settle(subject, text, preview=destination.preview)
    try:
        write = record_writer(
            chosen.fields, parse_schema(settled.text), "", Target(names, limit_bytes)
        )
    except IncompatibleSchema as exc:
        raise IncompatibleSchema(f"subject {subject}, schema {settled.id}: {exc}") from exc
    prefix = Constant(settled.prefix)

    def convert(batch: pa.RecordBatch) -> pa.BinaryArray:
        pieces = [prefix, *write(chosen.of(batch), EVERY_ROW)]
        return join_rows(pieces, batch.num_rows, limit_bytes)

    return partial(convert_in_halves, convert)


AVRO = ConverterSpec(open=avro_converter, options=AvroOptions, problems=avro_problems)
