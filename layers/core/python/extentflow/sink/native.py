"""Arrow arrays into librdkafka's queue without a Python object per record.

Owns: the call of `rd_kafka_produce_batch` in the library that confluent-kafka brings along, the
layout of its messages. Refuses to know: when this may be trusted (`layout` does), transactions.

    rd_kafka_message_t, 64-bit Linux (rdkafka.h)
    err i32, pad, topic ptr, partition i32, pad, payload ptr, size, key ptr, size, offset i64, ptr

Payloads are copied by librdkafka, so arrays may be dropped. Once its queue is full it refuses every
later message of a call, so that what is offered again keeps the order. A call for one partition
takes a third less time than one that looks for each record's. Delivery reports of such messages
reach nobody: only transactional producers, whose commit counts failures by itself, may send this
way. Messages carry no headers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import confluent_kafka
import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from extentflow.sink import Records, RejectedRecord
from extentflow.sink.partitions import PartitionBalancer

Array: TypeAlias = "np.ndarray[Any, Any]"

MESSAGE = np.dtype(
    [
        ("err", "i4"),
        ("_1", "i4"),
        ("topic", "u8"),
        ("partition", "i4"),
        ("_2", "i4"),
        ("payload", "u8"),
        ("payload_bytes", "u8"),
        ("key", "u8"),
        ("key_bytes", "u8"),
        ("offset", "i8"),
        ("private", "u8"),
    ]
)
COPY, EACH_ITS_PARTITION = 0x2, 0x8
ANY_PARTITION = -1
QUEUE_FULL = -184
TOO_LARGE = 10
SLICE_ROWS = 8_192
FULL_QUEUE_POLL_SECONDS = 0.1
OBJECT_HEAD_BYTES = 16

# A pointer that is not null, for values that are empty and not null.
_NOT_NULL = np.zeros(1, np.uint8)


class Library:
    """librdkafka as the confluent-kafka wheel bundles it. Raises OSError where it is not there."""

    def __init__(self) -> None:
        package = Path(confluent_kafka.__file__).parent
        found = sorted((package.parent / "confluent_kafka.libs").glob("librdkafka-*.so*"))
        if len(found) != 1:
            raise OSError(f"{len(found)} librdkafka libraries beside {package}")
        library = ctypes.CDLL(str(found[0]))
        self.path = found[0]
        self.name = library.rd_kafka_name
        self.name.restype, self.name.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
        self.topic_new = library.rd_kafka_topic_new
        self.topic_new.restype = ctypes.c_void_p
        self.topic_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.topic_destroy = library.rd_kafka_topic_destroy
        self.topic_destroy.restype, self.topic_destroy.argtypes = None, [ctypes.c_void_p]
        self.produce_batch = library.rd_kafka_produce_batch
        self.produce_batch.restype = ctypes.c_int
        self.produce_batch.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int32,
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_int,
        ]

    @staticmethod
    def handle(producer: Producer) -> int:
        """Return the `rd_kafka_t *` of a producer: the first field behind the object's head."""
        return int(ctypes.c_void_p.from_address(id(producer) + OBJECT_HEAD_BYTES).value or 0)


def enqueue_arrays(
    library: Library,
    producer: Producer,
    records: Records,
    check: Callable[[], None],
    turns: PartitionBalancer | None = None,
) -> list[RejectedRecord]:
    """Queue `records` in order, as `enqueue.enqueue` does; they have no headers.

    `turns` deals slices of them to partitions, where the records name none.

    Raises:
        KafkaException: anything but a full queue or a too large record.
    """
    refused: list[RejectedRecord] = []
    with _topic(library, producer, records.topic) as topic:
        for start in range(0, len(records.values), SLICE_ROWS):
            rest = _messages(records, start)
            first = start
            partition = records.partition if turns is None else turns.take(len(rest))
            while len(rest):
                taken, too_large = _offer(library, topic, partition, rest)
                refused += [_refusal(first, index, rest[index]) for index in too_large]
                rest, first = rest[taken:], first + taken
                producer.poll(FULL_QUEUE_POLL_SECONDS if len(rest) else 0)
                check()
    return refused


@contextmanager
def _topic(library: Library, producer: Producer, name: str) -> Iterator[int]:
    topic = library.topic_new(library.handle(producer), name.encode(), None)
    if not topic:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, f"topic {name}"))  # noqa: SLF001 - its only name
    try:
        yield topic
    finally:
        library.topic_destroy(topic)


def _offer(library: Library, topic: int, partition: int, messages: Array) -> tuple[int, list[int]]:
    """Offer messages once; return how many are dealt with, and which of these are too large."""
    count = len(messages)
    flags = COPY | EACH_ITS_PARTITION if partition == ANY_PARTITION else COPY
    taken = library.produce_batch(topic, partition, flags, messages.ctypes.data, count)
    if taken == count:
        return count, []
    full = np.flatnonzero(messages["err"] == QUEUE_FULL)
    end = int(full[0]) if len(full) else count
    faults = [int(index) for index in np.flatnonzero(messages["err"][:end])]
    for index in faults:
        if messages["err"][index] != TOO_LARGE:
            raise KafkaException(KafkaError(int(messages["err"][index])))
    return end, faults


def _refusal(first: int, index: int, message: Array) -> RejectedRecord:
    size = int(message["payload_bytes"]) + int(message["key_bytes"])
    return RejectedRecord(first + index, f"a record of {size} bytes is too large for the topic")


def _messages(records: Records, start: int) -> Array:
    """Return a slice of records as librdkafka's messages, which point into the arrays."""
    values = records.values.slice(start, SLICE_ROWS)
    messages = np.zeros(len(values), MESSAGE)
    messages["partition"] = ANY_PARTITION
    messages["payload"], messages["payload_bytes"] = _pointers(values)
    if records.keys is not None:
        keys = records.keys.slice(start, SLICE_ROWS)
        messages["key"], messages["key_bytes"] = _pointers(keys)
    return messages


def _pointers(array: pa.BinaryArray | pa.LargeBinaryArray) -> tuple[Array, Array]:
    """Return address and length of each element; a null's address is null."""
    wide = pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    kind = np.dtype(np.int64 if wide else np.int32)
    ends = np.frombuffer(
        offsets, kind, count=len(array) + 1, offset=array.offset * kind.itemsize
    ).astype(np.uint64)
    base = data.address if data is not None and data.size else _NOT_NULL.ctypes.data
    addresses, lengths = ends[:-1] + np.uint64(base), np.diff(ends)
    if array.null_count:
        missing = array.is_null().to_numpy(zero_copy_only=False)
        addresses[missing] = lengths[missing] = 0
    return addresses, lengths
