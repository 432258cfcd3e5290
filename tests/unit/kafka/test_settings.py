"""Clients get the settings that delivery needs; connectors may tune but not break them."""

from dataclasses import replace

import pytest
from confluent_kafka import Producer
from tests.support.golden import Golden

from extentflow.errors import Misconfigured
from extentflow.kafka import ProducerSettings
from extentflow.kafka.settings import (
    Timeouts,
    client_settings,
    idempotent_settings,
    problems,
    spreads,
    transactional_settings,
)
from extentflow.retry import Clock

KAFKA = {"bootstrap.servers": "broker:9092"}
SCRAM_OVER_TLS = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "app",
    "sasl.password": "secret",
    "ssl.endpoint.identification.algorithm": "https",
}


def transactional(
    producer: dict[str, str] | None = None,
    *,
    limit: int | None = None,
    kafka: dict[str, str] | None = None,
    timeout_ms: int = 30_000,
) -> dict[str, str]:
    client = ProducerSettings(producer or {}, max_message_bytes=limit)
    return transactional_settings(
        {**KAFKA, **(kafka or {})}, client, "slot-1", timeout_ms=timeout_ms
    )


def test_transactions_need_identity_acknowledgements_and_bounds() -> None:
    settings = transactional()

    assert settings["transactional.id"] == "slot-1"
    assert settings["acks"] == "all"
    assert settings["enable.idempotence"] == "true"
    assert settings["transaction.timeout.ms"] == settings["message.timeout.ms"] == "30000"
    assert settings["partitioner"] == "murmur2_random"
    assert settings["metadata.recovery.strategy"] == "none"


@pytest.mark.parametrize(
    "producer",
    [
        {"partitioner": "murmur2"},
        {"partitioner": "consistent"},
        {"partitioner": "fnv1a"},
        {"sticky.partitioning.linger.ms": "0"},
    ],
    ids=str,
)
def test_a_configured_partitioner_for_records_without_keys_is_kept(
    producer: dict[str, str],
) -> None:
    assert not spreads(transactional(producer))


@pytest.mark.parametrize("partitioner", [None, "random", "consistent_random", "fnv1a_random"])
def test_records_without_keys_go_anywhere_otherwise(partitioner: str | None) -> None:
    assert spreads(transactional({"partitioner": partitioner} if partitioner else None))


def test_librdkafka_accepts_the_settings() -> None:
    for timeout_ms in (1_000, 30_000, 900_000):
        Producer({**transactional(timeout_ms=timeout_ms), "log_level": 0})
        plain = idempotent_settings(KAFKA, ProducerSettings(), delivery_timeout_ms=timeout_ms)
        Producer({**plain, "log_level": 0})


@pytest.mark.parametrize(
    ("batch_bytes", "asked", "expected"),
    [(None, None, "400000"), (20_000, None, "19939"), (20_000, "500", "500"), (10, None, "1")],
)
def test_batches_stay_below_what_the_strictest_topic_takes(
    batch_bytes: int | None, asked: str | None, expected: str
) -> None:
    producer = {"batch.size": asked} if asked else {}
    client = ProducerSettings(producer, max_message_bytes=200_000, max_batch_bytes=batch_bytes)

    settings = idempotent_settings(KAFKA, client, delivery_timeout_ms=30_000)

    assert settings["batch.size"] == expected
    assert settings["message.max.bytes"] == "199939"
    Producer({**settings, "log_level": 0})


def test_security_settings_reach_every_client() -> None:
    producer = transactional(kafka=SCRAM_OVER_TLS)
    other = transactional({"sasl.username": "own"}, kafka=SCRAM_OVER_TLS)

    for settings in (producer, client_settings({**KAFKA, **SCRAM_OVER_TLS}, {})):
        assert settings.items() >= SCRAM_OVER_TLS.items()
    # A connector may have a principal of its own.
    assert other.items() >= {**SCRAM_OVER_TLS, "sasl.username": "own"}.items()


def test_librdkafka_accepts_scram_over_tls() -> None:
    Producer({**transactional(kafka=SCRAM_OVER_TLS), "log_level": 0})


def test_a_connectors_tuning_stays_with_its_producer() -> None:
    tuning = {"linger.ms": "5", "compression.type": "zstd"}

    assert transactional(tuning).items() >= tuning.items()
    assert not client_settings(KAFKA, tuning).keys() & tuning.keys()


@pytest.mark.parametrize(
    "key",
    [
        "transactional.id",
        "acks",
        "request.required.acks",
        "enable.idempotence",
        "bootstrap.servers",
        "metadata.recovery.strategy",
        "transaction.timeout.ms",
        "message.timeout.ms",
        "delivery.timeout.ms",
        "socket.timeout.ms",
        "request.timeout.ms",
        "delivery.report.only.error",
        "topic.blacklist",
    ],
)
def test_what_would_break_delivery_is_rejected_by_name(key: str) -> None:
    with pytest.raises(Misconfigured, match=rf"producer\.{key}: "):
        transactional({key: "1"})


def test_all_rejections_are_reported_at_once() -> None:
    with pytest.raises(Misconfigured) as caught:
        transactional({"acks": "1", "linger.ms": "5", "transactional.id": "mine"})

    assert len(caught.value.problems) == 2


def test_trap_t29_the_topics_limit_leaves_room_for_the_batch_header() -> None:
    """Trap: batches above the limit of the topic failed transactions of good records."""
    assert transactional(limit=20_000)["message.max.bytes"] == "19939"


@pytest.mark.parametrize(("asked", "got"), [("5000", "5000"), ("50000", "19939")])
def test_the_smaller_message_limit_wins(asked: str, got: str) -> None:
    settings = transactional({"message.max.bytes": asked}, limit=20_000)

    assert settings["message.max.bytes"] == got


def test_a_topic_limit_below_librdkafkas_least_is_a_mistake(golden: Golden) -> None:
    client = ProducerSettings(max_message_bytes=1_060, topic="narrow")

    with golden.raises(Misconfigured, match=r"topic narrow.*max\.message\.bytes.*1060"):
        idempotent_settings(KAFKA, client, delivery_timeout_ms=30_000)


def test_topics_of_one_limit_share_a_producer() -> None:
    one, other = ProducerSettings(topic="one"), ProducerSettings(topic="other")

    assert one == other


def test_unknown_and_invalid_settings_are_found_without_a_broker() -> None:
    found = problems(
        KAFKA,
        {
            "compresion.type": "lz4",
            "linger.ms": "soon",
            "max.request.size": "1",
            "acks": "1",
            "batch.size": "1000",
        },
    )

    assert [line.split(":")[0].split(" ")[0] for line in found] == [
        "producer.max.request.size",
        "producer.acks",
        "producer.compresion.type",
        "producer.linger.ms",
    ]
    assert "write producer.message.max.bytes" in found[0]


def test_a_check_prints_nothing_that_a_connector_chose(capfd: pytest.CaptureFixture[str]) -> None:
    """Trap: `debug` let the client write client.id to the terminal, with escapes and lines."""
    (problem,) = problems(KAFKA, {"client.id": "x\n\x1b[2J", "debug": "all", "log_level": "7"})

    assert "producer.client.id: has a control character" in problem
    assert problems(KAFKA, {"client.id": "x", "debug": "all", "log_level": "7"}) == []
    assert capfd.readouterr() == ("", "")


def test_settings_that_contradict_each_other_are_found_without_a_broker() -> None:
    contradicting = {"security.protocol": "SSL", "ssl.ca.location": "/no/such/file"}
    found = problems({**KAFKA, **contradicting}, {})

    assert len(found) == 1


def test_good_settings_have_no_problems() -> None:
    assert problems({**KAFKA, **SCRAM_OVER_TLS}, {"linger.ms": "5"}) == []


# -- timeouts --------------------------------------------------------------------------------------


def test_no_attempt_gets_more_than_a_slice_or_the_time_left() -> None:
    now = 100.0
    clock = Clock(monotonic=lambda: now, sleep=lambda _: None)
    timeouts = Timeouts(retry=replace(Timeouts().retry, clock=clock))
    granted = []

    for seconds in timeouts.attempts(5):
        granted.append(seconds)
        now += seconds

    assert granted == [2.0, 2.0, 1.0]
