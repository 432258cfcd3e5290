"""Typical user code without extentflow: pyarrow, JSON, confluent-kafka, one process.

It reads the local file, keeps the producer's queue full, checks every delivery, and has the same
producer settings as ours. It guarantees at least once: after a restart it begins at row 0.

`rows` builds JSON from row dicts with orjson; decimals become text, so that no digit is lost.
`columns` builds JSON with pyarrow's compute functions, which is faster, needs an expert, and is
correct only for columns without nulls and text without control characters.
"""

import json
import time
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from bench.process import serve
from bench.settings import PRODUCER

FULL_QUEUE_SECONDS = 0.1
FLUSH_SECONDS = 60.0


def rows(batch: pa.RecordBatch) -> Iterable[bytes]:
    """Return a batch's rows as JSON objects, row by row."""
    return (orjson.dumps(row, default=_text) for row in batch.to_pylist())


def columns(batch: pa.RecordBatch) -> Iterable[bytes]:
    """Return a batch's rows as JSON objects, column by column."""
    pieces: list[Any] = []
    for number, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        pieces += [f"{',' if number else '{'}{json.dumps(name)}:", _values(column)]
    joined = pc.binary_join_element_wise(*pieces, "}", "")
    made: list[bytes] = joined.cast(pa.binary()).to_pylist()
    return made


WRITERS: dict[str, Callable[[pa.RecordBatch], Iterable[bytes]]] = {"rows": rows, "columns": columns}


class Deliveries:
    """A producer, and its first failed delivery."""

    def __init__(self) -> None:
        self._producer: Producer | None = None
        self._failed: KafkaError | None = None

    def send(self, bootstrap: str, topic: str, values: Iterable[bytes]) -> int:
        """Enqueue values; return their number.

        Raises:
            KafkaException: a delivery failed.
        """
        producer = self._opened(bootstrap)
        produce = producer.produce
        count = 0
        for count, value in enumerate(values, 1):  # noqa: B007 - its last value is the answer
            while True:
                try:
                    produce(topic, value)
                except BufferError:
                    producer.poll(FULL_QUEUE_SECONDS)
                else:
                    break
        producer.poll(0)
        self._check()
        return count

    def flush(self) -> None:
        """Wait until everything is delivered. Raises as `send`."""
        if self._producer is not None and self._producer.flush(FLUSH_SECONDS):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - its only name
        self._check()

    def _opened(self, bootstrap: str) -> Producer:
        if self._producer is None:
            reports = {"on_delivery": self._delivered, "delivery.report.only.error": True}
            self._producer = Producer({**PRODUCER, "bootstrap.servers": bootstrap, **reports})
        return self._producer

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self._failed = self._failed or error

    def _check(self) -> None:
        if self._failed is not None:
            raise KafkaException(self._failed)


def main() -> None:
    """Process runs through one warm producer."""
    serve(partial(_run, Deliveries()))


def _run(deliveries: Deliveries, request: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    write = WRITERS[request["writer"]]
    count = 0
    with pq.ParquetFile(request["path"]) as file:
        for batch in file.iter_batches():
            count += deliveries.send(request["bootstrap"], request["topic"], write(batch))
    deliveries.flush()
    return {"seconds": time.perf_counter() - started, "records": count}


def _values(column: pa.Array) -> pa.Array:
    """Return a column's values as JSON text."""
    text = column.cast(pa.string())
    if pa.types.is_integer(column.type) or pa.types.is_decimal(column.type):
        return text
    for found, written in (("\\", "\\\\"), ('"', '\\"')):
        text = pc.replace_substring(text, found, written)
    return pc.binary_join_element_wise('"', text, '"', "")


def _text(value: object) -> str:
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{value!r} is no JSON")


if __name__ == "__main__":
    main()
