"""The walk over the columns keeps order, waits for room, and refuses records one by one."""

from itertools import pairwise

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException
from tests.unit.kafka.scripted import ScriptedProducer, error

from extentflow.errors import SinkUnavailable
from extentflow.kafka import Records, RejectedRecord
from extentflow.kafka.native import SLICE_ROWS
from extentflow.kafka.sinks import enqueue


def nothing_failed() -> None:
    pass


def numbers(count: int) -> Records:
    return Records("orders", pa.array([b"%d" % number for number in range(count)], pa.binary()))


def test_records_keep_their_order_while_the_queue_is_full() -> None:
    producer = ScriptedProducer()
    producer.queue_limit = 0

    refused = enqueue(producer.made({}), numbers(50), nothing_failed)

    assert refused == []
    assert [value for _, value, *_ in producer.sent] == [b"%d" % number for number in range(50)]
    assert "produce: queue full" in producer.calls


def test_waiting_for_room_ends_when_a_delivery_failed() -> None:
    producer = ScriptedProducer()
    producer.queue_limit = 0

    def failed() -> None:
        raise SinkUnavailable("delivery failed")

    with pytest.raises(SinkUnavailable):
        enqueue(producer.made({}), numbers(1), failed)

    assert producer.sent == []


def test_too_large_records_are_rejected_and_the_rest_continues() -> None:
    too_large = error("MSG_SIZE_TOO_LARGE")
    producer = ScriptedProducer(produce=[None, too_large, None, too_large])
    records = Records("orders", pa.array([b"a", b"bb", None, b"dddd", b"e"]), pa.array([b"k"] * 5))

    refused = enqueue(producer.made({}), records, nothing_failed)

    assert refused == [
        RejectedRecord(1, "a record of 3 bytes is too large for the topic"),
        RejectedRecord(3, "a record of 5 bytes is too large for the topic"),
    ]
    assert [value for _, value, *_ in producer.sent] == [b"a", None, b"e"]


def test_any_other_error_is_raised() -> None:
    producer = ScriptedProducer(produce=[error("_STATE")])

    with pytest.raises(KafkaException):
        enqueue(producer.made({}), numbers(1), nothing_failed)


def test_long_columns_are_sent_in_slices_with_reports_in_between() -> None:
    producer = ScriptedProducer()
    count = 2 * SLICE_ROWS + 1

    enqueue(producer.made({}), numbers(count), nothing_failed)

    sent = [int(value) for _, value, *_ in producer.sent]
    assert all(after == before + 1 for before, after in pairwise(sent))
    assert len(sent) == count
    assert producer.calls.count("poll") == 3


def test_keys_headers_and_partition_go_with_their_record() -> None:
    producer = ScriptedProducer()
    records = Records(
        "orders",
        pa.array([b"a", b"b"], pa.large_binary()),
        keys=pa.array([None, b"k"], pa.large_binary()),
        headers=[(), (("place", b"7"),)],
        partition=2,
    )

    enqueue(producer.made({}), records, nothing_failed)

    assert producer.sent == [
        ("orders", b"a", None, 2, []),
        ("orders", b"b", b"k", 2, [("place", b"7")]),
    ]
