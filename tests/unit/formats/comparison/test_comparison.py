"""What is delivered of nasty objects is what another implementation reads, field by field."""

from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.converters.test_json_laws import strict
from tests.unit.formats.comparison.corpus import FILES
from tests.unit.formats.comparison.nasty import Delivered, Nasty, delivered, partitions
from tests.unit.formats.comparison.values import as_json, of_array, rows_of

from extentflow.converters.json_encoding import json_converter
from extentflow.formats import FORMATS


def payloads(found: Delivered) -> list[bytes]:
    """Return the rows as the converter `json` writes them."""
    if not found.batches:
        return []
    convert = json_converter(found.table.schema)
    rows = found.table.combine_chunks().to_batches()
    return [text for batch in rows for text in convert(batch).to_pylist()]


@pytest.mark.parametrize("nasty", FILES, ids=lambda nasty: nasty.name)
def test_every_field_is_what_another_implementation_reads(nasty: Nasty, tmp_path: Path) -> None:
    body = nasty.write()
    fmt = nasty.opened()
    whole = delivered(fmt, body, (0, len(body)))
    schema = whole.batches[0].schema if whole.batches else pa.schema([])

    expected = nasty.read(body, tmp_path, schema)

    assert whole.bad == nasty.bad
    if not whole.batches:
        assert not any(expected.values())
        return
    assert list(expected) == schema.names
    for name, column in expected.items():
        assert of_array(whole.table[name]) == list(column), name
    rows = rows_of(expected, whole.table.num_rows)
    wanted = [{one.name: as_json(row[one.name], one.type) for one in schema} for row in rows]
    assert [strict(text) for text in payloads(whole)] == wanted


@pytest.mark.long
@pytest.mark.parametrize("nasty", FILES, ids=lambda nasty: nasty.name)
def test_no_partition_changes_a_field(nasty: Nasty) -> None:
    body = nasty.write()
    whole = delivered(nasty.opened(), body, (0, len(body)))
    wanted = payloads(whole)

    for number, cuts in enumerate(partitions(nasty.opened(), body)):
        fmt = nasty.opened(window_bytes=(1 << 12, 257, 1 << 16)[number], batch_rows=17 + number)
        parts = delivered(fmt, body, cuts)

        assert parts.bad == whole.bad
        assert payloads(parts) == wanted


def test_every_registered_format_has_nasty_objects() -> None:
    built_in = {name for name in FORMATS.names() if FORMATS.is_built_in(name)}

    assert {nasty.input_format for nasty in FILES} == built_in
