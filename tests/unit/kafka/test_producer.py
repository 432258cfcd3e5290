"""A client ends with its first failure, tells it to every later caller, and survives a fork."""

import os
import subprocess
import sys
import textwrap

import pytest
from confluent_kafka import KafkaError
from tests.support.golden import Golden
from tests.support.waiting import running_seconds
from tests.unit.kafka.scripted import FENCED, ScriptedProducer, error

from extentflow.errors import BatchTooLarge, Fenced, Misconfigured, SinkUnavailable
from extentflow.kafka.producer import ProducerHandle, translate

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}

FORK = """
    import os, sys
    from extentflow.errors import SinkUnavailable
    from extentflow.kafka.producer import ProducerHandle

    client = ProducerHandle({"bootstrap.servers": "127.0.0.1:1"}, "slot test")
    other = ProducerHandle({"bootstrap.servers": "127.0.0.1:1"}, "slot test")
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        client.close()
        sys.exit(os.waitstatus_to_exitcode(status))
    try:
        with client.calling():
            sys.exit("the fork got the producer")
    except SinkUnavailable as exc:
        assert f"belongs to process {os.getppid()}" in str(exc)
    client.close()
    del other
    sys.exit(7)
"""


def test_a_fork_is_rejected_and_ends_without_hanging() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORK)],
        env=environment,
        timeout=300,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (7, "")


def test_the_first_failure_is_reported_to_every_later_caller() -> None:
    client = ScriptedProducer().client()
    with pytest.raises(Fenced), client.calling():
        raise FENCED

    with pytest.raises(Fenced, match="slot test"), client.calling():
        pytest.fail("the producer is gone")


def test_closing_keeps_what_ended_the_client() -> None:
    client = ScriptedProducer().client()
    with pytest.raises(Fenced), client.calling():
        raise FENCED

    client.close()

    with pytest.raises(Fenced), client.calling():
        pytest.fail("the producer is gone")


@pytest.mark.parametrize("code", ["_FATAL", "_STATE"])
def test_the_error_behind_a_vague_one_is_found(code: str) -> None:
    producer = ScriptedProducer(poll=[FENCED])
    client = producer.client()

    with pytest.raises(Fenced, match="_FENCED"), client.calling():
        raise error(code)


def test_a_failed_delivery_explains_a_wrong_state(golden: Golden) -> None:
    producer = ScriptedProducer()
    client = producer.client()
    producer.fail_delivery("TOPIC_AUTHORIZATION_FAILED")

    with (
        golden.raises(Misconfigured, match=r"orders\[3\]"),
        client.calling(),
    ):
        raise error("_STATE")


def test_a_batch_that_the_broker_finds_too_large_is_an_error_of_its_own() -> None:
    client = ScriptedProducer().client()

    with pytest.raises(BatchTooLarge, match=r"max\.message\.bytes"), client.calling():
        raise error("MSG_SIZE_TOO_LARGE")


@pytest.mark.parametrize(
    ("alert", "kind"), [(46, Misconfigured), (116, Misconfigured), (40, SinkUnavailable)]
)
def test_an_alert_about_the_clients_certificate_needs_an_operator(
    alert: int, kind: type[Exception]
) -> None:
    text = (
        f"Receive failed: error:0A: SSL routines::tls alert: SSL alert number {alert} (after 3ms)"
    )

    found = translate(KafkaError(KafkaError._TRANSPORT, text), "slot test")

    assert type(found) is kind
    assert ("check ssl.certificate" in str(found)) is (kind is Misconfigured)


@pytest.mark.parametrize("code", ["_PURGE_QUEUE", "_PURGE_INFLIGHT"])
def test_records_purged_by_an_abort_are_no_failed_deliveries(code: str) -> None:
    producer = ScriptedProducer()
    client = producer.client({"transactional.id": "slot"})

    producer.fail_delivery(code)

    client.check_deliveries()


@pytest.mark.parametrize("code", ["_PURGE_QUEUE", "_PURGE_INFLIGHT"])
def test_purged_records_without_a_transaction_are_lost_records(code: str) -> None:
    producer = ScriptedProducer()
    client = producer.client()

    producer.fail_delivery(code)

    with pytest.raises(SinkUnavailable, match=r"delivery to orders\[3\] failed"):
        client.check_deliveries()


def test_closing_does_not_wait_for_a_broker_that_is_unavailable() -> None:
    client = ProducerHandle(NOWHERE, "slot test")
    with client.calling() as producer:
        for _ in range(10_000):
            producer.produce("orders", b"x" * 100)
    began = running_seconds()

    client.close()

    assert running_seconds() - began < 5


def test_settings_that_librdkafka_rejects_are_a_mistake(golden: Golden) -> None:
    with golden.raises(Misconfigured, match=r"no\.such\.setting"):
        ProducerHandle({**NOWHERE, "no.such.setting": "1"}, "slot test")


def test_a_sink_unavailable_raised_while_calling_ends_the_client() -> None:
    producer = ScriptedProducer()
    client = producer.client()

    with pytest.raises(SinkUnavailable), client.calling():
        raise SinkUnavailable("too late")

    assert producer.calls == ["purge", "poll"]
