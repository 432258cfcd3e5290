"""Deliveries of columnar values: objects of each format with columns, and what topics hold."""

import csv
import io
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyarrow import orc
from tests.support.delivery import Delivery

from extentflow.columnar import BatchFacts
from extentflow.columnar.values import decode
from extentflow.kafka.reading import ConsumedRecord

Row = dict[str, Any]


@dataclass(frozen=True)
class Value:
    """A columnar value and its record."""

    record: ConsumedRecord
    facts: BatchFacts
    rows: pa.RecordBatch

    @property
    def ids(self) -> list[int]:
        return list(self.rows.column("id").to_pylist())


def values_in(delivery: Delivery, topic: str | None = None) -> list[Value]:
    """Return the decoded values of a topic, in order within each partition."""
    found = []
    for record in delivery.read(topic):
        facts = BatchFacts.of(record.headers)
        assert facts is not None
        found.append(Value(record, facts, decode(record.value or b"", facts)))
    return found


def table_of(values: Sequence[Value]) -> pa.Table:
    """Return the rows of values, in the order of `id`."""
    table = pa.Table.from_batches([one.rows for one in values]).combine_chunks()
    return table.sort_by("id")


def make_topics(delivery: Delivery, groups: Sequence[str], partitions: int = 3) -> list[str]:
    """Create the topics of column groups; `topic` of the connector is `grouped-NAME`."""
    topic = f"grouped-{delivery.name}"
    return [create(delivery, f"{topic}.{group}", partitions) for group in groups]


def create(delivery: Delivery, name: str, partitions: int = 3) -> str:
    """Create a topic; return its name."""
    admin = AdminClient({"bootstrap.servers": delivery.settings.bootstrap_servers})
    admin.create_topics([NewTopic(name, partitions)])[name].result(60)
    return name


def parquet(table: pa.Table, group_rows: int = 300, **options: Any) -> bytes:  # noqa: ANN401
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=group_rows, **options)
    return file.getvalue()


def in_orc(table: pa.Table) -> bytes:
    file = io.BytesIO()
    orc.write_table(table, file)
    return file.getvalue()


def in_arrow(table: pa.Table) -> bytes:
    file = io.BytesIO()
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=300)
    return file.getvalue()


def in_avro(table: pa.Table) -> bytes:
    kinds = {
        pa.int64(): "long",
        pa.string(): "string",
        pa.float64(): "double",
        pa.bool_(): "boolean",
    }
    fields = [{"name": one.name, "type": ["null", kinds[one.type]]} for one in table.schema]
    body = io.BytesIO()
    schema = {"type": "record", "name": "R", "fields": fields}
    fastavro.writer(body, fastavro.parse_schema(schema), table.to_pylist(), sync_interval=4_000)
    return body.getvalue()


def in_json_lines(table: pa.Table) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in table.to_pylist())


def in_csv(table: pa.Table) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(table.schema.names)
    writer.writerows(list(row.values()) for row in table.to_pylist())
    return text.getvalue().encode()


def numbers(start: int, end: int) -> pa.Table:
    """Return rows of types that each format has; nulls in all columns but `id`."""
    ids = range(start, end)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "text": pa.array([None if n % 7 == 3 else f"text ü {n}" for n in ids], pa.string()),
            "x": pa.array([None if n % 5 == 1 else n / 8 for n in ids], pa.float64()),
            "flag": pa.array([None if n % 3 == 2 else n % 2 == 0 for n in ids], pa.bool_()),
        }
    )


SCHEMA = "id:int64,text:string,x:float64,flag:bool"
SOURCES: Mapping[str, tuple[Any, Mapping[str, str]]] = {
    "parquet": (parquet, {}),
    "orc": (in_orc, {}),
    "arrow": (in_arrow, {}),
    "avro": (in_avro, {}),
    "jsonl": (in_json_lines, {"input.format": "jsonl", "jsonl.schema": SCHEMA}),
    "csv": (in_csv, {"csv.schema": SCHEMA}),
}


def batches_by_id(values: Sequence[Value]) -> dict[str, list[tuple[int, list[int]]]]:
    """Return partition and ids of each value, by the id of its batch."""
    found: dict[str, list[tuple[int, list[int]]]] = defaultdict(list)
    for one in values:
        found[one.facts.batch].append((one.record.partition, one.ids))
    return found
