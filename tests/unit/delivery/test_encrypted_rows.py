"""Encrypted columns on their way to records: row groups of Parquet objects are not passed on."""

import io
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from extentflow.columnar import BatchFacts
from extentflow.columnar.encryption import ColumnEncryption
from extentflow.columnar.values import decode
from extentflow.config.columnar import GROUPS
from extentflow.delivery.columnvalues import ColumnValues
from extentflow.delivery.converted import ConvertedChunk
from extentflow.delivery.pipeline import Pipeline
from extentflow.formats import FormatOptions
from extentflow.formats.parquet.column_keys import MasterKeys
from extentflow.formats.parquet.footer import Footers
from extentflow.formats.parquet.parquet_format import Parquet
from extentflow.model import Extent
from extentflow.testing.stores import MemorySource

KEYS = MasterKeys((("k", b"0123456789abcdef"),))
ROWS = pa.table({"id": range(600), "card": [f"card number {n}" for n in range(600)]})
PLAIN = ColumnValues(
    encoding="parquet",
    compression="zstd",
    batch_bytes=1 << 20,
    groups=(),
    limit_bytes=1 << 20,
    partitions=lambda _topic: 4,
    passes=True,
)
ENCRYPTED = replace(PLAIN, encryption=ColumnEncryption(("card",), "k", KEYS))


def converted(columns: ColumnValues) -> list[ConvertedChunk]:
    file = io.BytesIO()
    pq.write_table(ROWS, file, row_group_size=200, compression="none", use_dictionary=False)
    source = MemorySource(file.getvalue())
    extent = Extent("job", 0, "c", source.version, 0, len(file.getvalue()), "parquet")
    pipeline = Pipeline(
        source=source,
        format=Parquet(FormatOptions(), Footers()),
        topic="t",
        value=lambda _schema: lambda batch: pa.nulls(batch.num_rows, pa.large_binary()),
        columns=columns,
    )
    return list(pipeline.convert(extent, 0))


def values_of(chunks: list[ConvertedChunk]) -> list[tuple[BatchFacts, bytes]]:
    found = []
    for chunk in chunks:
        values = chunk.records.values.to_pylist()
        for headers, value in zip(chunk.records.headers or (), values, strict=True):
            facts = BatchFacts.of(headers)
            assert facts is not None
            found.append((facts, value))
    return found


def test_row_groups_are_passed_on_unless_columns_are_encrypted() -> None:
    plain, encrypted = values_of(converted(PLAIN)), values_of(converted(ENCRYPTED))

    assert all(b"card number" in value for _, value in plain)
    assert not [facts for facts, _ in plain if facts.encrypted]
    assert not [value for _, value in encrypted if b"card number" in value]
    assert {facts.encrypted for facts, _ in encrypted} == {("card",)}
    rows = [decode(value, facts, keys=KEYS) for facts, value in encrypted]
    assert pa.Table.from_batches(rows).to_pylist() == ROWS.to_pylist()


def test_records_of_groups_name_the_encrypted_columns_of_their_own() -> None:
    grouped = replace(ENCRYPTED, groups=GROUPS.read("a: id; b: *"))

    found = {facts.group: facts.encrypted for facts, _ in values_of(converted(grouped))}

    assert found == {"a": (), "b": ("card",)}


def test_the_header_counts_towards_what_a_topic_takes() -> None:
    extent = Extent("job", 0, "c", MemorySource(b"").version, 0, 9, "parquet")

    plain, encrypted = (
        one.bind(ROWS.schema, extent, "row", "t").most_bytes(()) for one in (PLAIN, ENCRYPTED)
    )

    assert plain - encrypted >= len("extentflow.encrypted") + len('["card"]')
