"""At least once: a commit is over when every record was acknowledged, or fails."""

import pyarrow as pa
import pytest
from tests.unit.sink.scripted import ScriptedProducer, error, patience

from extentflow.errors import SinkUnavailable
from extentflow.sink import Progress, Records
from extentflow.sink.flush import FlushingSink
from extentflow.sink.partitions import KnownTopics

RECORDS = Records("orders", pa.array([b"a"], pa.binary()))


def opened(producer: ScriptedProducer) -> FlushingSink:
    client = producer.client()
    return FlushingSink(client, KnownTopics(client, patience()), patience())


def test_a_commit_waits_until_nothing_is_left() -> None:
    producer = ScriptedProducer()
    producer.waiting = [2, 1, 0]

    opened(producer).commit(Progress(epoch=1))

    assert producer.calls == ["flush"] * 3


def test_a_commit_that_runs_out_of_time_fails() -> None:
    producer = ScriptedProducer()
    producer.waiting = [2] * 100

    with pytest.raises(SinkUnavailable, match="2 records not acknowledged"):
        opened(producer).commit(Progress(epoch=1))


def test_a_failed_delivery_fails_the_commit() -> None:
    producer = ScriptedProducer()
    sink = opened(producer)
    sink.send(RECORDS)
    producer.fail_delivery("_MSG_TIMED_OUT")

    with pytest.raises(SinkUnavailable, match=r"delivery to orders\[3\] failed"):
        sink.commit(Progress(epoch=1))


def test_an_error_of_the_producer_ends_it() -> None:
    producer = ScriptedProducer(flush=[error("OUT_OF_ORDER_SEQUENCE_NUMBER", fatal=True)])
    sink = opened(producer)

    with pytest.raises(SinkUnavailable):
        sink.commit(Progress(epoch=1))
    with pytest.raises(SinkUnavailable):
        sink.send(RECORDS)


def test_an_abort_drops_what_is_queued_and_forgets_what_failed() -> None:
    producer = ScriptedProducer()
    sink = opened(producer)
    sink.send(RECORDS)
    producer.fail_delivery("_MSG_TIMED_OUT")

    sink.abort()

    assert "purge" in producer.calls
    sink.commit(Progress(epoch=1))
