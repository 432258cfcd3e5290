"""Backups of records, in the layouts of the tools that write them."""

import io
import json
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from extentflow.kafka.record_headers import Headers

RESTORE = {
    "message.key": "column:key",
    "key.converter": "bytes",
    "select": "value",
    "value.converter": "bytes",
    "message.headers": "column:headers",
    "message.timestamp": "column:timestamp",
    "message.partition": "column:partition",
}
IN_BASE64 = dict.fromkeys(("key.converter", "value.converter", "header.converter"), "base64")


@dataclass(frozen=True)
class Original:
    """A record as it was in its topic."""

    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


# Brokers delete what is older than a topic's retention.
BEGIN = time.time_ns() // 1_000_000 - 60_000
ORIGINALS = [
    Original(0, BEGIN, b"a", b'{"n":1}', [("h", b"1"), ("h", b"2")]),
    Original(
        1, BEGIN + 1, b"\x00\xff", b"\xff\x00\n,\"';:", [("\u00fc", b"\xfe\xff"), ("n", None)]
    ),
    Original(2, BEGIN + 2, b"gone", None, [("why", b"")]),
    Original(3, BEGIN + 3, None, b"", []),
    Original(0, BEGIN + 4, b"", b"last", [("z", None), ("a", b"x"), ("z", b"y")]),
]
# Aiven's connectors write a null as they write no bytes, and a header of each name once.
PLAIN = [
    Original(0, BEGIN, b"a", b'{"n":1}', [("h", b"1"), ("i", b"2")]),
    Original(1, BEGIN + 1, b"\x00\xff", b"\xff\x00\n,", [("\u00fc", b"\xfe\xff")]),
    Original(2, BEGIN + 2, b"gone", None, [("why", b"x")]),
    Original(3, BEGIN + 3, None, b"last", []),
]


def _table(headers: pa.DataType, values: list[object]) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([one.key for one in ORIGINALS], pa.binary()),
            "value": pa.array([one.value for one in ORIGINALS], pa.binary()),
            "topic": ["t"] * len(ORIGINALS),
            "partition": pa.array([one.partition for one in ORIGINALS], pa.int32()),
            "offset": pa.array(range(len(ORIGINALS)), pa.int64()),
            "timestamp": pa.array(
                [datetime.fromtimestamp(one.timestamp / 1000, UTC) for one in ORIGINALS],
                pa.timestamp("us", "UTC"),
            ),
            "headers": pa.array(values, headers),
        }
    )


def spark_parquet() -> bytes:
    """Return what Spark writes of its source for Kafka, with `includeHeaders`."""
    entry = pa.struct([("key", pa.string()), ("value", pa.binary())])
    lists = [
        [{"key": name, "value": value} for name, value in one.headers] or None for one in ORIGINALS
    ]
    file = io.BytesIO()
    pq.write_table(_table(pa.list_(entry), list(lists)), file, row_group_size=2)
    return file.getvalue()


def map_parquet() -> bytes:
    """Return records whose headers are a map, with a file order and repeated names."""
    file = io.BytesIO()
    maps = [list(one.headers) for one in ORIGINALS]
    pq.write_table(_table(pa.map_(pa.string(), pa.binary()), list(maps)), file)
    return file.getvalue()


def avro() -> bytes:
    """Return records with headers as an array of records."""
    nullable = ["null", "bytes"]
    header = {
        "type": "record",
        "name": "header",
        "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": nullable}],
    }
    fields = [
        {"name": "key", "type": nullable},
        {"name": "value", "type": nullable},
        {"name": "partition", "type": "int"},
        {"name": "timestamp", "type": "long"},
        {"name": "headers", "type": {"type": "array", "items": header}},
    ]
    rows = [
        {
            "key": one.key,
            "value": one.value,
            "partition": one.partition,
            "timestamp": one.timestamp,
            "headers": [{"key": name, "value": value} for name, value in one.headers],
        }
        for one in ORIGINALS
    ]
    file = io.BytesIO()
    fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, rows)
    return file.getvalue()


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _listed(one: Original) -> list[dict[str, str | None]]:
    return [{"key": name, "value": _text(value)} for name, value in one.headers]


def json_lines() -> bytes:
    """Return what Aiven's connectors write as `jsonl` of bytes, and the partition."""
    rows = (
        {
            "headers": _listed(one),
            "offset": 7,
            "value": _text(one.value),
            "key": _text(one.key),
            "partition": one.partition,
            "timestamp": datetime.fromtimestamp(one.timestamp / 1000, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
        }
        for one in ORIGINALS
    )
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def json_array() -> bytes:
    """Return the same as one array, as with `format.output.type=json`."""
    return b"[\n" + b",\n".join(json_lines().splitlines()) + b"\n]"


def quoted_csv() -> bytes:
    """Return CSV in which only nulls are unquoted; headers are JSON."""
    lines = ["key,value,headers,partition,timestamp"]
    for one in ORIGINALS:
        listed = json.dumps(_listed(one))
        fields = (_text(one.key), _text(one.value), listed, one.partition, one.timestamp)
        lines.append(",".join("" if field is None else _quoted(str(field)) for field in fields))
    return "\n".join(lines).encode()


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def aiven_csv() -> bytes:
    """Return what Aiven's connectors write as `csv` with `value.encoding=base64`."""
    lines = []
    for at, one in enumerate(PLAIN):
        headers = "".join(f"{_text(name.encode())}:{_text(value)};" for name, value in one.headers)
        fields = (_text(one.key), _text(one.value), at, one.timestamp, headers)
        lines.append(",".join("" if field is None else str(field) for field in fields))
    return "\n".join(lines).encode()


def aiven_avro() -> bytes:
    """Return what Aiven's connectors write as `avro` of bytes: headers are a map."""
    nullable = ["null", "bytes"]
    fields = [
        {"name": "key", "type": nullable},
        {"name": "offset", "type": "long"},
        {"name": "timestamp", "type": "long"},
        {"name": "headers", "type": {"type": "map", "values": "bytes"}},
        {"name": "value", "type": nullable},
    ]
    rows = [
        {
            "key": one.key,
            "offset": at,
            "timestamp": one.timestamp,
            "headers": dict(one.headers),
            "value": one.value,
        }
        for at, one in enumerate(PLAIN)
    ]
    file = io.BytesIO()
    schema = {"type": "record", "name": "connector_records", "fields": fields}
    fastavro.writer(file, schema, rows)
    return file.getvalue()


@dataclass(frozen=True)
class Backup:
    """One layout: how it is written, its connector, and the records that it holds."""

    format: str
    write: Callable[[], bytes]
    config: Mapping[str, str]
    originals: list[Original]


_WITHOUT_PARTITION = {k: v for k, v in RESTORE.items() if k != "message.partition"}
BACKUPS = {
    "spark.parquet": Backup("parquet", spark_parquet, RESTORE, ORIGINALS),
    "map.parquet": Backup("parquet", map_parquet, RESTORE, ORIGINALS),
    "records.avro": Backup("avro", avro, RESTORE, ORIGINALS),
    "records.jsonl": Backup("jsonl", json_lines, RESTORE | IN_BASE64, ORIGINALS),
    "array.json": Backup("json", json_array, RESTORE | IN_BASE64, ORIGINALS),
    "records.csv": Backup("csv", quoted_csv, RESTORE | IN_BASE64, ORIGINALS),
    "aiven.csv": Backup(
        "csv",
        aiven_csv,
        _WITHOUT_PARTITION
        | {
            "key.converter": "base64",
            "value.converter": "base64",
            "csv.header": "false",
            "csv.schema": "key:string,value:string,offset:int64,timestamp:int64,headers:string",
        },
        PLAIN,
    ),
    "aiven.avro": Backup("avro", aiven_avro, _WITHOUT_PARTITION, PLAIN),
}
