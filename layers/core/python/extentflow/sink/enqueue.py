"""Arrow columns into librdkafka's queue.

Owns: the walk over the arrays. Refuses to know: transactions, topics' limits, what records mean.
Today one `produce()` per record; whole Arrow buffers can be handed over here later without a
change elsewhere.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat

from confluent_kafka import KafkaException, Producer

from extentflow.sink import Headers, Records, Refusal
from extentflow.sink.translate import error_of

SLICE_ROWS = 8_192
FULL_QUEUE_POLL_SECONDS = 0.1

ClientHeaders = list[tuple[str, str | bytes | None]]
Row = tuple[bytes | None, bytes | None, ClientHeaders | None]


def enqueue(producer: Producer, records: Records, check: Callable[[], None]) -> list[Refusal]:
    """Queue `records` in order and return those that are too large for the topic.

    Waits while the queue is full. `check` raises when a delivery failed; it is asked after every
    slice and while waiting, so that a broker that is away ends the wait.

    Raises:
        KafkaException: anything but a full queue or a too large record.
    """
    refused: list[Refusal] = []
    topic, partition, produce = records.topic, records.partition, producer.produce
    for start in range(0, len(records.values), SLICE_ROWS):
        for index, (value, key, headers) in enumerate(_rows(records, start), start):
            while True:
                try:
                    produce(topic, value, key, partition, headers=headers)
                except BufferError:
                    producer.poll(FULL_QUEUE_POLL_SECONDS)
                    check()
                    continue
                except KafkaException as exc:
                    if error_of(exc).name() != "MSG_SIZE_TOO_LARGE":
                        raise
                    refused.append(_refusal(index, value, key))
                break
        producer.poll(0)
        check()
    return refused


def _rows(records: Records, start: int) -> Iterator[Row]:
    values = records.values.slice(start, SLICE_ROWS).to_pylist()
    keys, headers = records.keys, records.headers
    return zip(
        values,
        repeat(None, len(values)) if keys is None else keys.slice(start, SLICE_ROWS).to_pylist(),
        repeat(None, len(values)) if headers is None else _listed(headers, start),
        strict=True,
    )


def _listed(headers: Sequence[Headers], start: int) -> Iterator[ClientHeaders]:
    return (list(one) for one in headers[start : start + SLICE_ROWS])


def _refusal(index: int, value: bytes | None, key: bytes | None) -> Refusal:
    size = len(value or b"") + len(key or b"")
    return Refusal(index, f"a record of {size} bytes is too large for the topic")
