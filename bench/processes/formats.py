"""One object of one format: decoded, converted to JSON and sent as workers do it, or row by row.

`columns` is what a worker runs for every extent of an object, without the ledger; `rows` is what a
user writes first: the format's usual reader for Python, orjson and `produce` for each row. Both
send to librdkafka's mock of a broker in this process, with the settings of a worker, and count the
records and the bytes of their values.
"""

import csv
import time
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pyorc
from confluent_kafka import Producer

from bench.process import serve
from extentflow.aws.secrets_manager import SecretsManager
from extentflow.config.parsing import parse
from extentflow.delivery.memory import peak_rss_bytes, tune_allocator
from extentflow.formats import open_format
from extentflow.kafka.native import Library, enqueue_arrays
from extentflow.kafka.settings import DEFAULTS
from extentflow.model import Extent
from extentflow.storage import StoreOptions
from extentflow.storage.local import LocalStore
from extentflow.storage.ranges import RangeReader
from extentflow.wiring import options
from extentflow.wiring.extents import pipeline

CHUNK_BYTES = 64 << 10
# Of the connector, by format; all others are defaults.
KEYS = {"json": {"json.elements": "true"}, "bytes": {"bytes.chunk.bytes": str(CHUNK_BYTES)}}

TOPIC = "t"
FLUSH_SECONDS = 600

Counts = tuple[int, int]


def open_producer() -> Producer:
    """Return a producer with a broker of its own, which discards records."""
    # Without a log line of the mock broker.
    mock = {"bootstrap.servers": "mock", "test.mock.num.brokers": "1", "log_level": "4"}
    return Producer({**DEFAULTS, **mock})


def columns(path: Path, fmt: str, producer: Producer) -> Counts:
    """Return the records of an object, and the bytes of their values."""
    where = {"endpoint.type": "localfile", "directory": str(path.parent)}
    connector = {"name": "bench", "topic": TOPIC, **where}
    config = parse({**connector, "input.format": fmt, **KEYS.get(fmt, {})})
    look_up = options.SecretResolver(SecretsManager())
    store = LocalStore(StoreOptions())
    source = RangeReader(store, store.head(str(path.parent), path.name))
    decoder = open_format(
        fmt, options.format_options(config, fmt, "none"), options.own_options(config, fmt, look_up)
    )
    library = Library()
    records = size = 0
    for ordinal, (start, end) in enumerate(decoder.plan(source, decoder.extent_bytes or 32 << 20)):
        extent = Extent("bench", ordinal, "bench", source.version, start, end, fmt)
        made = pipeline(
            config,
            extent,
            source,
            decoder,
            partitions=lambda _: 1,
            look_up=look_up,
            store=store,
        )
        for chunk in made.convert(extent, 0):
            values = chunk.records.values
            records += len(values)
            size += values.nbytes
            if chunk.bad:
                raise RuntimeError(f"{path}: {chunk.bad[0].reason}")
            if rejected := enqueue_arrays(library, producer, chunk.records, lambda: None):
                raise RuntimeError(f"{path}: {rejected[0].reason}")
    return records, size


def rows(path: Path, fmt: str, producer: Producer) -> Counts:
    """Return the same by a loop over rows."""
    records = size = 0
    for value in READERS[fmt](path):
        while True:
            try:
                producer.produce(TOPIC, value)
                break
            except BufferError:  # the queue is full
                producer.poll(0.1)
        records += 1
        size += len(value)
        if records % 1_000 == 0:
            producer.poll(0)
    return records, size


def _json(rows: Iterable[object]) -> Iterator[bytes]:
    for row in rows:
        yield orjson.dumps(row, default=_text)


def _text(value: object) -> str:
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{value!r} is no JSON")


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        for line in file:
            yield line.rstrip(b"\n").decode().encode()


def _json_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        for line in file:
            orjson.loads(line)
            yield line.rstrip(b"\n")


def _csv(path: Path) -> Iterator[bytes]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from _json(csv.DictReader(file))


def _documents(path: Path) -> Iterator[bytes]:
    yield from _json(orjson.loads(path.read_bytes()))


def _batches(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in batches:
        yield from _json(batch.to_pylist())


def _parquet(path: Path) -> Iterator[bytes]:
    with pq.ParquetFile(path) as file:
        yield from _batches(file.iter_batches())


def _arrow(path: Path) -> Iterator[bytes]:
    with pa.ipc.open_file(path) as file:
        yield from _batches(file.get_batch(at) for at in range(file.num_record_batches))


def _avro(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from _json(fastavro.reader(file))


def _orc(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from _json(pyorc.Reader(file, struct_repr=pyorc.StructRepr.DICT))


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.read(CHUNK_BYTES):
            yield data


READERS: dict[str, Callable[[Path], Iterator[bytes]]] = {
    "text": _lines,
    "csv": _csv,
    "jsonl": _json_lines,
    "json": _documents,
    "parquet": _parquet,
    "arrow": _arrow,
    "avro": _avro,
    "orc": _orc,
    "bytes": _chunks,
}
WAYS = {"columns": columns, "rows": rows}


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Read the object once."""
    producer = open_producer()
    started = time.perf_counter()
    records, size = WAYS[request["way"]](Path(request["path"]), request["format"], producer)
    if waiting := producer.flush(FLUSH_SECONDS):
        raise RuntimeError(f"{waiting} records were not sent")
    return {
        "seconds": time.perf_counter() - started,
        "records": records,
        "bytes": size,
        "worker_peak_rss_bytes": peak_rss_bytes(),
    }


if __name__ == "__main__":
    tune_allocator()
    serve(run)
