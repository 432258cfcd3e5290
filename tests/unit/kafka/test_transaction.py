"""What a transaction does when a call fails: again, abort, or drop; never anything else."""

import ctypes
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from tests.support.golden import Golden
from tests.unit.kafka.scripted import (
    FENCED,
    MUST_ABORT,
    TIMED_OUT,
    ScriptedProducer,
    error,
    timeouts,
)

from extentflow.errors import Fenced, Misconfigured, SinkUnavailable
from extentflow.kafka import PROGRESS_TOPIC, SlotProgress
from extentflow.kafka.native import Library
from extentflow.kafka.partitioning import KnownTopics
from extentflow.kafka.producer import ProducerHandle
from extentflow.kafka.settings import Timeouts
from extentflow.kafka.sinks import Arrays, TransactionalSink
from extentflow.kafka.transaction import RetryBackoff, Transactions, group_metadata, initialise

REPEATS_AFTER_SECONDS = 10.0
# No call of the simulated clock takes as long, unless it is repeated.
RETRY_BACKOFF_MS = 10_000


def opened(client: ProducerHandle, seconds: float = 10) -> Transactions:
    return Transactions(
        client,
        "app.ledger.slot-1",
        timeouts(seconds),
        repeats_after_seconds=REPEATS_AFTER_SECONDS,
        retry_backoff_ms=RETRY_BACKOFF_MS,
        backoff=RetryBackoff(),
    )


def transactions(producer: ScriptedProducer, seconds: float = 10) -> Transactions:
    return opened(producer.client(), seconds)


def test_every_commit_carries_the_offset_also_without_records() -> None:
    producer = ScriptedProducer()
    slot = transactions(producer)

    slot.commit(SlotProgress(epoch=1))
    slot.commit(SlotProgress(epoch=1))

    once = ["begin_transaction", "send_offsets_to_transaction", "commit_transaction"]
    assert producer.calls == once * 2


def test_the_offset_is_the_progress_of_the_group_called_like_the_slot() -> None:
    producer, progress = ScriptedProducer(), SlotProgress(epoch=1, job="j", extent=2, position=99)

    transactions(producer).commit(progress)

    offset = (PROGRESS_TOPIC, 0, 99, progress.to_metadata())
    assert producer.offsets == [(offset, group_metadata("app.ledger.slot-1"))]


def test_a_commit_that_timed_out_is_asked_for_again_and_nothing_else() -> None:
    producer = ScriptedProducer(commit_transaction=[TIMED_OUT, TIMED_OUT, None])

    transactions(producer).commit(SlotProgress(epoch=1))

    assert producer.calls[2:] == ["commit_transaction"] * 3


def test_a_producer_that_is_fenced_while_it_flushes_reports_that() -> None:
    producer = ScriptedProducer(
        flush=[SystemError("no exception set")], commit_transaction=[FENCED]
    )
    producer.unsent = [1]

    with pytest.raises(Fenced):
        transactions(producer).commit(SlotProgress(epoch=1))


def test_offsets_that_timed_out_are_sent_again_before_the_commit() -> None:
    producer = ScriptedProducer(send_offsets_to_transaction=[TIMED_OUT, None])

    transactions(producer).commit(SlotProgress(epoch=1))

    offsets = "send_offsets_to_transaction"
    assert producer.calls == ["begin_transaction", offsets, offsets, "commit_transaction"]


def test_a_commit_without_an_answer_is_never_aborted(golden: Golden) -> None:
    producer = ScriptedProducer(commit_transaction=[TIMED_OUT] * 100)
    slot = transactions(producer)

    with golden.raises(SinkUnavailable):
        slot.commit(SlotProgress(epoch=1))

    assert "abort_transaction" not in producer.calls
    assert producer.calls[-2:] == ["purge", "poll"]


def test_an_abort_follows_only_where_it_is_required() -> None:
    producer = ScriptedProducer(commit_transaction=[MUST_ABORT], abort_transaction=[TIMED_OUT])

    with pytest.raises(SinkUnavailable, match="INVALID_PRODUCER_ID_MAPPING"):
        transactions(producer).commit(SlotProgress(epoch=1))

    assert producer.calls.count("abort_transaction") == 2


def test_a_required_abort_that_fails_hides_nothing() -> None:
    producer = ScriptedProducer(commit_transaction=[MUST_ABORT], abort_transaction=[FENCED])

    with pytest.raises(SinkUnavailable, match="INVALID_PRODUCER_ID_MAPPING"):
        transactions(producer).commit(SlotProgress(epoch=1))


@pytest.mark.parametrize(
    "call", ["begin_transaction", "send_offsets_to_transaction", "commit_transaction"]
)
@pytest.mark.parametrize("name", ["_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"])
def test_a_fence_ends_the_producer(call: str, name: str) -> None:
    producer = ScriptedProducer(None, **{call: [error(name, fatal=True)]})
    slot = transactions(producer)

    with pytest.raises(Fenced):
        slot.commit(SlotProgress(epoch=1))
    calls = list(producer.calls)
    with pytest.raises(Fenced):
        slot.commit(SlotProgress(epoch=1))

    assert producer.calls == calls
    assert "abort_transaction" not in calls


def test_a_failed_delivery_is_named_by_the_commit(golden: Golden) -> None:
    producer = ScriptedProducer(commit_transaction=[error("_INCONSISTENT", abort=True)])
    slot = transactions(producer)
    producer.fail_delivery("MSG_SIZE_TOO_LARGE")

    with golden.raises(SinkUnavailable, match=r"orders\[3\].*TOO_LARGE"):
        slot.commit(SlotProgress(epoch=1))


def test_a_missing_permission_is_a_permanent_error(golden: Golden) -> None:
    refused = error("GROUP_AUTHORIZATION_FAILED", abort=True)
    producer = ScriptedProducer(send_offsets_to_transaction=[refused])

    with golden.raises(Misconfigured):
        transactions(producer).commit(SlotProgress(epoch=1))


def test_an_abort_is_harmless_when_nothing_was_sent() -> None:
    producer = ScriptedProducer()

    transactions(producer).abort()

    assert producer.calls == []


def test_an_abort_that_timed_out_is_asked_for_again() -> None:
    producer = ScriptedProducer(abort_transaction=[TIMED_OUT, None])
    slot = transactions(producer)

    with slot.begun():
        pass
    slot.abort()

    assert producer.calls == ["begin_transaction", "abort_transaction", "abort_transaction"]


def test_what_failed_before_an_abort_does_not_count_after_it() -> None:
    producer = ScriptedProducer()
    client = producer.client()
    slot = opened(client)
    with slot.begun():
        producer.fail_delivery("_MSG_TIMED_OUT")

    slot.abort()

    client.check_deliveries()


def no_reason(_seconds: float) -> None:
    """Why brokers name no coordinator: they do not say."""


def test_fencing_is_resumed_until_the_broker_answers() -> None:
    producer = ScriptedProducer(init_transactions=[TIMED_OUT, TIMED_OUT, None])

    initialise(producer.client(), timeouts(), no_reason)

    assert producer.calls == ["init_transactions", "poll"] * 2 + ["init_transactions"]


def test_fencing_gives_up_in_time_and_says_what_was_heard(golden: Golden) -> None:
    producer = ScriptedProducer(init_transactions=[TIMED_OUT] * 100)
    client = producer.client()
    producer.settings["error_cb"](error("_TRANSPORT").args[0])

    with golden.raises(SinkUnavailable, match="_TRANSPORT"):
        initialise(client, timeouts(3), no_reason)


ALERT = "Receive failed: error:0A: SSL routines::tls alert: SSL alert number 46"
REJECTIONS = {
    "certificate": lambda name: KafkaError(
        KafkaError._TRANSPORT, f"ssl://{name}/bootstrap: {ALERT}"
    ),
    "password": lambda name: KafkaError(
        KafkaError._AUTHENTICATION, f"sasl_ssl://{name}/1: no user"
    ),
}
SERVERS = {"bootstrap.servers": "SSL://kafka-1:9093, kafka-2,[::1]:9094"}


@pytest.mark.parametrize("rejection", REJECTIONS)
def test_rejected_credentials_end_the_fencing_at_once(rejection: str) -> None:
    producer = ScriptedProducer(init_transactions=[TIMED_OUT] * 100, list_topics=[TIMED_OUT] * 100)
    client = producer.client(SERVERS)
    for name in ("kafka-1:9093", "kafka-2:9092", "[::1]:9094"):
        producer.settings["error_cb"](REJECTIONS[rejection](name))

    with pytest.raises(Misconfigured, match=r"kafka-1:9093.*check"):
        initialise(client, timeouts(), no_reason)

    assert producer.calls.count("init_transactions") == 1


@pytest.mark.parametrize("rejection", REJECTIONS)
@pytest.mark.parametrize("others", ["silent", "refuse connections", "accept"])
def test_one_broker_that_rejects_the_credentials_does_not_end_the_fencing(
    rejection: str, others: str
) -> None:
    no_metadata = [] if others == "accept" else [TIMED_OUT] * 100
    producer = ScriptedProducer(init_transactions=[TIMED_OUT] * 3, list_topics=no_metadata)
    client = producer.client(SERVERS)
    report = producer.settings["error_cb"]
    for name in ("kafka-1:9093", "kafka-2:9092", "[::1]:9094"):
        report(REJECTIONS[rejection](name))
        if others == "silent":
            break
        if others == "refuse connections" and name != "kafka-1:9093":
            report(KafkaError(KafkaError._TRANSPORT, f"ssl://{name}/2: Connection refused"))

    initialise(client, timeouts(), no_reason)

    assert producer.calls.count("init_transactions") == 4


def test_an_outage_names_the_broker_that_rejects_the_certificate(golden: Golden) -> None:
    producer = ScriptedProducer(init_transactions=[TIMED_OUT] * 100)
    client = producer.client(SERVERS)
    producer.settings["error_cb"](REJECTIONS["certificate"]("kafka-2:9092"))

    with golden.raises(SinkUnavailable, match="ssl://kafka-2:9092.*number 46"):
        initialise(client, timeouts(3), no_reason)


def test_a_transaction_that_a_signal_tore_is_never_committed() -> None:
    producer = ScriptedProducer()
    slot = transactions(producer)
    with pytest.raises(KeyboardInterrupt), slot.begun():
        raise KeyboardInterrupt

    with pytest.raises(SinkUnavailable, match="interrupted"):
        slot.commit(SlotProgress(epoch=1))

    assert "commit_transaction" not in producer.calls


def test_an_abort_recovers_a_torn_transaction() -> None:
    producer = ScriptedProducer()
    slot = transactions(producer)
    with pytest.raises(KeyboardInterrupt), slot.begun():
        raise KeyboardInterrupt

    slot.abort()
    slot.commit(SlotProgress(epoch=1))

    assert producer.calls[:2] == ["begin_transaction", "abort_transaction"]
    assert producer.calls[-1] == "commit_transaction"


def test_closing_a_sink_abandons_its_open_transaction_first() -> None:
    producer = ScriptedProducer()
    slot = transactions(producer)
    with slot.begun():
        pass

    slot.abandon()

    assert producer.calls == ["begin_transaction", "abort_transaction"]


def test_a_failed_abort_does_not_hide_the_error_that_caused_it() -> None:
    producer = ScriptedProducer(abort_transaction=[TIMED_OUT])
    slot = transactions(producer)
    with slot.begun():
        pass

    slot.abandon()

    assert producer.calls[:2] == ["begin_transaction", "abort_transaction"]


def test_a_transaction_whose_commit_was_tried_is_not_abandoned() -> None:
    """The commit may have happened; only the worker that fences the producer decides."""
    producer = ScriptedProducer(commit_transaction=[TIMED_OUT] * 100)
    slot = transactions(producer)
    with pytest.raises(SinkUnavailable):
        slot.commit(SlotProgress(epoch=1))

    slot.abandon()

    assert "abort_transaction" not in producer.calls


def test_a_commit_that_a_signal_tore_is_not_abandoned_either() -> None:
    producer = ScriptedProducer(commit_transaction=[KeyboardInterrupt()])
    slot = transactions(producer)
    with pytest.raises(KeyboardInterrupt):
        slot.commit(SlotProgress(epoch=1))

    slot.abandon()

    assert "abort_transaction" not in producer.calls


def test_nothing_is_abandoned_where_nothing_is_open() -> None:
    producer = ScriptedProducer()
    slot = transactions(producer)
    slot.commit(SlotProgress(epoch=1))

    slot.abandon()

    assert "abort_transaction" not in producer.calls


def test_closing_a_sink_aborts_what_is_open_before_the_producer_goes() -> None:
    producer = ScriptedProducer()
    client = producer.client()
    slot = opened(client)
    sink = TransactionalSink(client, slot, KnownTopics(client, timeouts()), Arrays())
    with slot.begun():
        pass

    sink.close()

    assert producer.calls == ["begin_transaction", "abort_transaction", "purge", "poll"]


def test_a_transaction_after_a_recovered_commit_is_abandoned_as_usual() -> None:
    producer = ScriptedProducer(send_offsets_to_transaction=[KeyboardInterrupt(), None])
    slot = transactions(producer)
    with pytest.raises(KeyboardInterrupt):
        slot.commit(SlotProgress(epoch=1))
    slot.abort()
    with slot.begun():
        pass

    slot.abandon()

    assert producer.calls[-2:] == ["begin_transaction", "abort_transaction"]


# Each attempt takes a second or more of the simulated clock.
SLOW = [*[TIMED_OUT] * 15, None]


@pytest.mark.parametrize(
    "call", ["send_offsets_to_transaction", "commit_transaction", "abort_transaction"]
)
def test_a_producer_whose_requests_may_have_been_repeated_begins_no_further_transaction(
    call: str,
) -> None:
    """The first request may arrive late and end the next transaction (librdkafka issue 5423)."""
    producer = ScriptedProducer(None, **{call: SLOW})
    slot = transactions(producer, seconds=60)
    if call == "abort_transaction":
        with slot.begun():
            pass
        slot.abort()
    else:
        slot.commit(SlotProgress(epoch=1))

    with pytest.raises(SinkUnavailable, match="may have been repeated"), slot.begun():
        pass

    assert producer.calls.count("begin_transaction") == 1
    assert producer.calls[-2:] == ["purge", "poll"]


@pytest.mark.parametrize("call", ["commit_transaction", "abort_transaction"])
def test_an_end_that_a_broken_connection_may_have_repeated_is_the_producers_last(
    call: str, golden: Golden
) -> None:
    """Librdkafka repeats an EndTxn after `retry.backoff.ms`, less a fifth, not only after 10 s."""
    producer = ScriptedProducer(None, **{call: [TIMED_OUT, TIMED_OUT, None]})
    time = timeouts(60)
    backoff = RetryBackoff()
    slot = Transactions(
        producer.client(),
        "slot-1",
        time,
        repeats_after_seconds=REPEATS_AFTER_SECONDS,
        retry_backoff_ms=1_500,
        backoff=backoff,
    )
    if call == "abort_transaction":
        with slot.begun():
            pass
        slot.abort()
    else:
        slot.commit(SlotProgress(epoch=1))

    with golden.raises(SinkUnavailable, match=r"retry\.backoff\.ms"):
        slot.commit(SlotProgress(epoch=1))

    assert producer.calls.count("begin_transaction") == 1
    assert backoff.raised_ms == 3_000


CONFIGURED = {"retry.backoff.ms": "100", "retry.backoff.max.ms": "1000"}


def test_where_transactions_end_slowly_the_client_repeats_later() -> None:
    backoff, pauses = RetryBackoff(), []
    for seconds in (0.05, 0.5, 0.5, 0.5, 0.5):
        used = int(backoff.settings(CONFIGURED)["retry.backoff.ms"])
        backoff.ended(used, quickly=seconds < used * 0.8 / 1000)
        pauses.append(used)

    assert pauses == [100, 100, 200, 400, 800]
    assert backoff.settings(CONFIGURED)["retry.backoff.max.ms"] == "1000"
    for _ in range(20):
        used = int(backoff.settings(CONFIGURED)["retry.backoff.ms"])
        backoff.ended(used, quickly=False)
    longest = backoff.settings(CONFIGURED)
    assert longest == {"retry.backoff.ms": "10000", "retry.backoff.max.ms": "10000"}
    for _ in range(1_000):
        backoff.ended(10_000, quickly=True)
    assert backoff.settings(CONFIGURED) == CONFIGURED


def test_the_time_that_a_commit_waits_for_records_does_not_count() -> None:
    """The request follows the records, so that slow brokers cost no producer."""
    producer = ScriptedProducer()
    producer.unsent, producer.waiting = [9], [9] * 15
    slot = transactions(producer, seconds=60)

    slot.commit(SlotProgress(epoch=1))
    slot.commit(SlotProgress(epoch=1))

    assert producer.calls.count("begin_transaction") == 2
    assert producer.calls.count("flush") == 16


def test_records_that_no_broker_takes_end_the_producer_before_a_commit_is_sent() -> None:
    producer = ScriptedProducer()
    producer.unsent, producer.waiting = [9], [9] * 100

    with pytest.raises(SinkUnavailable, match="9 records not acknowledged after 10 s"):
        transactions(producer).commit(SlotProgress(epoch=1))

    assert "commit_transaction" not in producer.calls


END_TXN = 26  # of Kafka's protocol


@pytest.mark.parametrize(
    ("code", "milliseconds", "socket_timeout_ms"),
    [(0, 5_000, 1_000), (KafkaError._TRANSPORT, 0, 10_000)],
    ids=["no answer in time", "broken connection"],
)
def test_the_client_repeats_the_end_of_a_transaction_and_that_is_noticed(
    code: int, milliseconds: int, socket_timeout_ms: int
) -> None:
    """Librdkafka's own mock of a broker answers one EndTxn late, or closes the connection."""
    settings = {
        "test.mock.num.brokers": "1",
        "bootstrap.servers": "mock",
        "transactional.id": "slot-1",
        "socket.timeout.ms": str(socket_timeout_ms),
        "retry.backoff.ms": "1000",
    }
    producers: list[Producer] = []

    def make(settings: dict[str, Any]) -> Producer:
        producers.append(Producer(settings))
        return producers[0]

    client = ProducerHandle(settings, "slot test", make=make)
    initialise(client, Timeouts(), no_reason)
    library = ctypes.CDLL(str(Library().path))
    library.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
    cluster = ctypes.c_void_p(
        library.rd_kafka_handle_mock_cluster(ctypes.c_void_p(Library.handle(producers[0])))
    )
    library.rd_kafka_mock_topic_create(cluster, PROGRESS_TOPIC.encode(), 1, 1)
    slot = Transactions(
        client,
        "slot-1",
        Timeouts(),
        repeats_after_seconds=socket_timeout_ms / 1000,
        retry_backoff_ms=1_000,
        backoff=RetryBackoff(),
    )
    slot.commit(SlotProgress(epoch=1))
    answer = ctypes.c_size_t(1), ctypes.c_int(code), ctypes.c_int(milliseconds)
    library.rd_kafka_mock_broker_push_request_error_rtts(
        cluster, 1, ctypes.c_int16(END_TXN), *answer
    )

    slot.commit(SlotProgress(epoch=1))

    with pytest.raises(SinkUnavailable, match="may have been repeated"), slot.begun():
        pass
