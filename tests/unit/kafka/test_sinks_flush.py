"""At least once: a commit is over when every record was acknowledged, or fails."""

import pyarrow as pa
import pytest
from tests.unit.kafka.scripted import ScriptedProducer, error, timeouts

from extentflow.errors import SinkUnavailable
from extentflow.kafka import Records, SlotProgress
from extentflow.kafka.sinks import FlushingSink

RECORDS = Records("orders", pa.array([b"a"], pa.binary()))


def opened(*producers: ScriptedProducer) -> FlushingSink:
    """Return a sink that works through one of `producers` after the other."""
    waiting = iter(producers)
    return FlushingSink(lambda: next(waiting).client(), timeouts())


def test_a_commit_waits_until_nothing_is_left() -> None:
    producer = ScriptedProducer()
    producer.waiting = [2, 1, 0]

    opened(producer).commit(SlotProgress(epoch=1))

    assert producer.calls == ["flush"] * 3


def test_a_commit_that_runs_out_of_time_fails() -> None:
    producer = ScriptedProducer()
    producer.waiting = [2] * 100

    with pytest.raises(SinkUnavailable, match="2 records not acknowledged"):
        opened(producer).commit(SlotProgress(epoch=1))


def test_a_failed_delivery_fails_the_commit() -> None:
    producer = ScriptedProducer()
    sink = opened(producer)
    sink.send(RECORDS)
    producer.fail_delivery("_MSG_TIMED_OUT")

    with pytest.raises(SinkUnavailable, match=r"delivery to orders\[3\] failed"):
        sink.commit(SlotProgress(epoch=1))


def test_an_error_of_the_producer_ends_it() -> None:
    producer = ScriptedProducer(flush=[error("OUT_OF_ORDER_SEQUENCE_NUMBER", fatal=True)])
    sink = opened(producer)

    with pytest.raises(SinkUnavailable):
        sink.commit(SlotProgress(epoch=1))
    with pytest.raises(SinkUnavailable):
        sink.send(RECORDS)


def test_after_an_abort_delivery_continues_with_a_new_producer() -> None:
    """A queue that is purged takes later records along, for a while after purge() returned."""
    first, second = ScriptedProducer(), ScriptedProducer()
    sink = opened(first, second)
    sink.send(RECORDS)
    first.fail_delivery("_MSG_TIMED_OUT")

    sink.abort()
    sink.send(RECORDS)
    sink.commit(SlotProgress(epoch=1))

    assert (len(first.sent), len(second.sent)) == (1, 1)
    assert second.calls == ["list_topics", "produce", "poll", "flush"]


def test_an_abort_waits_for_what_is_under_way() -> None:
    first, second = ScriptedProducer(), ScriptedProducer()
    first.waiting = [2, 1, 0]
    sink = opened(first, second)

    sink.abort()

    assert first.calls == ["purge", *["flush"] * 3, "purge", "poll"]
    assert first.purged[0] == {"in_queue": True, "in_flight": False}
