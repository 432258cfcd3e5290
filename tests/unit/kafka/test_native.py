"""Arrays become librdkafka's messages: addresses, lengths, nulls; offered until all are taken."""

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer
from tests.support.golden import Golden

from extentflow.kafka import Records
from extentflow.kafka.native import (
    COPY,
    EACH_ITS_PARTITION,
    MESSAGE,
    SLICE_ROWS,
    Library,
    _messages,
    enqueue_arrays,
    explain,
    prove,
)
from extentflow.kafka.partitioning import PartitionBalancer


def read_back(address: int, size: int) -> bytes | None:
    return ctypes.string_at(address, size) if address else None


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary()], ids=str)
@pytest.mark.parametrize(("start", "stop"), [(0, 6), (1, 6), (2, 4), (3, 3)])
def test_slices_are_pointed_at_without_a_copy(type_: pa.DataType, start: int, stop: int) -> None:
    values: list[bytes | None] = [b"a", b"", None, b"long" * 100, None, b"\0\xff"]
    array = pa.array(values, type_).slice(start, stop - start)
    records = Records("t", array, keys=array)

    messages = _messages(records, 0)

    found = [read_back(int(one["payload"]), int(one["payload_bytes"])) for one in messages]
    keys = [read_back(int(one["key"]), int(one["key_bytes"])) for one in messages]
    assert found == keys == values[start:stop]


@pytest.mark.parametrize("values", [[None, None], [b"", b""], [b"", None]], ids=str)
def test_arrays_without_a_byte_of_data_keep_null_and_empty_apart(
    values: list[bytes | None],
) -> None:
    messages = _messages(Records("t", pa.array(values, pa.binary())), 0)

    found = [read_back(int(one["payload"]), int(one["payload_bytes"])) for one in messages]
    assert found == values


def test_the_proof_holds_here(golden: Golden) -> None:
    """It runs in a child process before the first use; here it must not fail either."""
    prove()

    golden(explain())
    slow = "the Kafka client takes records one by one, with more CPU time (sink.enqueue=records)"
    assert explain(wanted=False) == slow


@dataclass
class Scripted:
    """A librdkafka that takes what `rooms` says, and refuses values that begin with `!`."""

    rooms: list[int]
    taken: list[bytes] = field(default_factory=list)
    error: int = -184
    asked: list[tuple[int, int]] = field(default_factory=list)

    def handle(self, _producer: Producer) -> int:
        return 1

    def topic_new(self, _handle: int, _name: bytes, _settings: None) -> int:
        return 1

    def topic_destroy(self, _topic: int) -> None: ...

    def produce_batch(
        self, _topic: int, partition: int, flags: int, address: int, count: int
    ) -> int:
        self.asked.append((partition, flags))
        memory: Any = (ctypes.c_char * (count * MESSAGE.itemsize)).from_address(address)
        view = np.frombuffer(memory, MESSAGE)
        room, good = self.rooms.pop(0), 0
        for message in view:
            value = read_back(int(message["payload"]), int(message["payload_bytes"])) or b""
            if value.startswith(b"!"):
                message["err"] = 10
            elif good >= room:
                message["err"] = self.error
            else:
                message["err"] = 0
                self.taken.append(value)
                good += 1
                continue
            if message["err"] == self.error:
                room = good  # everything behind it is refused, too
        return good


class Polled:
    def __init__(self) -> None:
        self.waits: list[float] = []

    def poll(self, seconds: float) -> int:
        self.waits.append(seconds)
        return 0


def sent(library: Any, *values: bytes) -> tuple[list[Any], Polled]:  # noqa: ANN401 - a double
    producer: Any = Polled()
    records = Records("t", pa.array(values, pa.binary()))
    return enqueue_arrays(library, producer, records, lambda: None), producer


def test_what_a_full_queue_rejected_is_offered_again_in_order() -> None:
    library = Scripted(rooms=[2, 0, 1, 9])

    refused, producer = sent(library, b"a", b"b", b"c", b"d")

    assert (library.taken, refused) == ([b"a", b"b", b"c", b"d"], [])
    assert producer.waits == [0.1, 0.1, 0.1, 0]


def test_a_slice_stays_with_its_partition_also_where_it_is_offered_again() -> None:
    library, producer = Scripted(rooms=[SLICE_ROWS - 1, 0, 1, SLICE_ROWS]), Polled()
    records = Records("t", pa.array([b"a"] * SLICE_ROWS * 2, pa.binary()))

    enqueue_arrays(library, producer, records, lambda: None, PartitionBalancer([3, 5]))  # type: ignore[arg-type]

    first, second = library.asked[0][0], library.asked[-1][0]
    assert {first, second} == {3, 5}
    assert library.asked == [(first, COPY)] * 3 + [(second, COPY)]


@pytest.mark.parametrize(
    ("partition", "asked"), [(-1, (-1, COPY | EACH_ITS_PARTITION)), (2, (2, COPY))]
)
def test_without_turns_records_go_where_they_say(partition: int, asked: tuple[int, int]) -> None:
    library, producer = Scripted(rooms=[1]), Polled()
    records = Records("t", pa.array([b"a"], pa.binary()), partition=partition)

    enqueue_arrays(library, producer, records, lambda: None)  # type: ignore[arg-type]

    assert library.asked == [asked]


def test_too_large_records_are_reported_by_their_own_index_and_size() -> None:
    library = Scripted(rooms=[2, 9])

    refused, _ = sent(library, b"!", b"a", b"b", b"!!", b"c", b"!!!")

    assert library.taken == [b"a", b"b", b"c"]
    assert [(one.index, one.reason.split()[3]) for one in refused] == [
        (0, "1"),
        (3, "2"),
        (5, "3"),
    ]


def test_any_other_rejection_ends_the_call() -> None:
    library = Scripted(rooms=[1], error=-172)

    with pytest.raises(KafkaException):
        sent(library, b"a", b"b")


def test_the_library_is_found_beside_the_client() -> None:
    assert Library().path.name.startswith("librdkafka")
