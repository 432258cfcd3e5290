"""Arrow columns into librdkafka's queue, one `produce()` per record.

Owns: the walk over the arrays. Refuses to know: transactions, topics' limits, what records mean.
The complete way: `native` hands over whole arrays, where that may be done and nothing is lacking.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

from confluent_kafka import KafkaException, Producer

from extentflow.sink import Records, RejectedRecord
from extentflow.sink.translate import error_of

SLICE_ROWS = 8_192
FULL_QUEUE_POLL_SECONDS = 0.1

# produce()'s positional arguments: topic, value, key, partition, and where there are headers the
# two unused callbacks, timestamp and headers. Naming one of them costs a third of the call.
Row = tuple[Any, ...]


def enqueue(
    producer: Producer, records: Records, check: Callable[[], None]
) -> list[RejectedRecord]:
    """Queue `records` in order and return those that are too large for the topic.

    Waits while the queue is full. `check` raises when a delivery failed; it is asked after every
    slice and while waiting, so that a broker that is away ends the wait.

    Raises:
        KafkaException: anything but a full queue or a too large record.
    """
    refused: list[RejectedRecord] = []
    produce = producer.produce
    for start in range(0, len(records.values), SLICE_ROWS):
        for index, row in enumerate(_rows(records, start), start):
            while True:
                try:
                    produce(*row)
                except BufferError:
                    producer.poll(FULL_QUEUE_POLL_SECONDS)
                    check()
                    continue
                except KafkaException as exc:
                    if error_of(exc).name() != "MSG_SIZE_TOO_LARGE":
                        raise
                    refused.append(_refusal(index, row))
                break
        producer.poll(0)
        check()
    return refused


def require_equal_lengths(records: Records) -> None:
    """Raise ValueError unless there is a key and a list of headers per value, where given."""
    for column in (records.keys, records.headers):
        if column is not None and len(column) != len(records.values):
            raise ValueError(f"{len(records.values)} values with {len(column)} keys or headers")


def _rows(records: Records, start: int) -> Iterator[Row]:
    values = records.values.slice(start, SLICE_ROWS).to_pylist()
    keys: Iterable[bytes | None] = repeat(None)
    if records.keys is not None:
        keys = records.keys.slice(start, SLICE_ROWS).to_pylist()
    row = (repeat(records.topic), values, keys, repeat(records.partition))
    if records.headers is None:
        return zip(*row, strict=False)
    headers = map(list, records.headers[start : start + SLICE_ROWS])
    return zip(*row, repeat(None), repeat(None), repeat(0), headers, strict=False)


def _refusal(index: int, row: Row) -> RejectedRecord:
    size = sum(len(part or b"") for part in row[1:3])
    return RejectedRecord(index, f"a record of {size} bytes is too large for the topic")
