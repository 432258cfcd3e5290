"""Readers of topics: extentflow's consumer, and a loop over records with orjson.

A request has `topics`, `way` (orjson, batches, rows), `group` and `bootstrap`. The time runs from
the first record to the last one: joining a consumer group takes as long for all.
"""

import time
from collections.abc import Iterator
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaError

from bench.process import serve
from extentflow.consumer import TopicConsumer

POLL_RECORDS = 10_000


def _by_orjson(request: dict[str, Any]) -> Iterator[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": request["bootstrap"],
            "group.id": request["group"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "queued.max.messages.kbytes": "16384",
            "fetch.queue.backoff.ms": "5",
        }
    )
    consumer.subscribe(request["topics"])
    ended: set[int | None] = set()
    while not consumer.assignment() or len(ended) < len(consumer.assignment()):
        for message in consumer.consume(POLL_RECORDS, 0.1):
            error = message.error()
            if error is None:
                orjson.loads(message.value() or b"null")
                yield 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its only name
                ended.add(message.partition())
    consumer.close()


def _ours(request: dict[str, Any]) -> Iterator[int]:
    topics = request["topics"]
    with TopicConsumer(
        {"bootstrap.servers": request["bootstrap"]},
        topics,
        group=request["group"],
        join=len(topics) > 1,
    ) as consumer:
        if request["way"] == "rows":
            for _ in consumer.rows(until_end=True):
                yield 1
            return
        for batch in consumer.batches(until_end=True):
            yield batch.rows.num_rows


def _read(request: dict[str, Any]) -> dict[str, Any]:
    found = _by_orjson(request) if request["way"] == "orjson" else _ours(request)
    rows, started, last = next(found), time.perf_counter(), 0.0
    for count in found:
        rows += count
        last = time.perf_counter()
    return {"rows": rows, "seconds": max(last - started, 1e-6)}


if __name__ == "__main__":
    serve(_read)
