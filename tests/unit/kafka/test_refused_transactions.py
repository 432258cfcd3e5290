"""Clusters and topics without transactions are named before a record is sent, or do without.

Redpanda with transactions off answers FindCoordinator with UNSUPPORTED_VERSION and lists no request
of transactions. Event Hubs lists none either. Diskless topics of Inkless refuse the records.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from _pytest.mark import ParameterSet
from tests.support.golden import Golden
from tests.support.refusing_broker import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    COORDINATOR,
    INIT_PRODUCER_ID,
    INVALID_REQUEST,
    PRODUCE,
    TRANSACTIONAL,
    UNSUPPORTED_VERSION,
    refusing_broker,
)

from extentflow.errors import Misconfigured, SinkUnavailable, TransactionsRefused
from extentflow.kafka import ProducerSettings, Records, SlotProgress
from extentflow.kafka.broker import KafkaBroker
from extentflow.kafka.native import Library, trusted_library
from extentflow.kafka.settings import Timeouts

NOT_AVAILABLE, NOT_AUTHORISED = 15, 53
EXACTLY_ONCE, AT_LEAST_ONCE = ProducerSettings(), ProducerSettings(exactly_once=False)
Refused = Mapping[int, int]

# At the start of a producer, or at its first transaction, which marks a slot without records.
CLUSTERS: dict[str, tuple[Refused, Sequence[int]]] = {
    "no coordinator": ({COORDINATOR: UNSUPPORTED_VERSION}, TRANSACTIONAL),
    "no producer id": ({INIT_PRODUCER_ID: UNSUPPORTED_VERSION}, ()),
    "invalid": ({INIT_PRODUCER_ID: INVALID_REQUEST}, ()),
    "not listed": ({}, TRANSACTIONAL),
    "no offsets": ({ADD_OFFSETS: INVALID_REQUEST}, ()),
}


def cases(*quick: str) -> list[ParameterSet]:
    """Return the clusters; others than `quick` take seconds for the same path."""
    slow = pytest.mark.variant
    return [pytest.param(one, marks=() if one in quick else slow) for one in CLUSTERS]


def acquired(
    address: str,
    client: ProducerSettings,
    seconds: float = 30,
    find_library: Callable[[], Library | None] = lambda: None,
    count: int = 2,
) -> list[int]:
    """Take over a slot and send records; return the indexes of rejected ones."""
    timeouts = Timeouts(fence_seconds=seconds, commit_seconds=seconds)
    broker = KafkaBroker(
        {"bootstrap.servers": address}, timeouts=timeouts, find_library=find_library
    )
    fence = broker.fence("slot-1", client)
    try:
        assert fence.read() is None
        fence.mark(SlotProgress(1))
        sink = fence.open()
    finally:
        fence.close()
    try:
        rejected = sink.send(Records("records", pa.array([b"a"] * count)))
        sink.commit(SlotProgress(1, "job", 0, count, count))
    finally:
        sink.close()
    return [one.index for one in rejected]


@pytest.mark.parametrize("refused", cases("no offsets"))
def test_a_cluster_without_transactions_is_named_before_a_record_is_sent(
    refused: str,
) -> None:
    with refusing_broker(*CLUSTERS[refused]) as broker:
        with pytest.raises(TransactionsRefused, match=r"refuse transactions.*at_least_once"):
            acquired(broker.address, EXACTLY_ONCE)

        assert broker.received.get(PRODUCE, 0) == 0


@pytest.mark.parametrize("code", [INVALID_REQUEST, UNSUPPORTED_VERSION])
def test_a_topic_that_joins_no_transaction_gets_no_record(code: int) -> None:
    with refusing_broker({ADD_PARTITIONS: code}) as broker:
        with pytest.raises(TransactionsRefused, match=r"refuse transactions.*at_least_once"):
            acquired(broker.address, EXACTLY_ONCE)

        assert broker.received.get(PRODUCE, 0) == 0


def test_a_topic_that_refuses_records_of_transactions_is_named(golden: Golden) -> None:
    with (
        refusing_broker({PRODUCE: INVALID_REQUEST}) as broker,
        golden.raises(TransactionsRefused, match="for records"),
    ):
        acquired(broker.address, EXACTLY_ONCE)


def test_the_first_transaction_of_arrays_names_a_topic_that_refuses_them() -> None:
    """Trap: librdkafka's error for a later record hides the refusal of the first request."""
    with (
        refusing_broker({PRODUCE: INVALID_REQUEST}) as broker,
        pytest.raises(TransactionsRefused, match=r"records *\[0\].*at_least_once"),
    ):
        acquired(broker.address, EXACTLY_ONCE, find_library=trusted_library, count=150_000)


@pytest.mark.parametrize("refused", cases("no coordinator"))
def test_at_least_once_delivers_where_transactions_are_refused(refused: str) -> None:
    with refusing_broker(*CLUSTERS[refused]) as broker:
        assert acquired(broker.address, AT_LEAST_ONCE) == []
        assert broker.received[PRODUCE] > 0


def test_a_missing_permission_is_no_refusal_of_transactions() -> None:
    with (
        refusing_broker({INIT_PRODUCER_ID: NOT_AUTHORISED}) as broker,
        pytest.raises(Misconfigured, match="allow Write and Describe on the tr") as raised,
    ):
        acquired(broker.address, AT_LEAST_ONCE)

    assert not isinstance(raised.value, TransactionsRefused)


def test_a_coordinator_that_is_not_available_is_an_outage() -> None:
    with (
        refusing_broker({COORDINATOR: NOT_AVAILABLE}) as broker,
        pytest.raises(SinkUnavailable, match="no answer"),
    ):
        acquired(broker.address, AT_LEAST_ONCE, seconds=3)


def test_topics_of_a_cluster_without_transactions_are_described_to_readers() -> None:
    with refusing_broker(*CLUSTERS["no coordinator"]) as broker:
        cluster = KafkaBroker({"bootstrap.servers": broker.address})

        assert cluster.topic_ids(["records"]) == {"records": ""}
        assert cluster.missing_topics(["records", "others"]) == ["others"]


def delivered(address: str, folder: Path, *words: str) -> tuple[int, str]:
    """Run the command for a file of one line; return its exit code and what it said."""
    variables = {"XDG_STATE_HOME": str(folder), "EXTENTFLOW_RETRY_TIMEOUT_SECONDS": "20"}
    command = [sys.executable, "-m", "extentflow", "run", "a.txt", "--topic", "records"]
    command += ["--bootstrap-servers", address, "--cores", "1", *words]
    ran = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ran.returncode, ran.stderr


@pytest.mark.long
@pytest.mark.parametrize("refused", ["no coordinator", "records"])
def test_a_run_names_a_cluster_without_transactions_and_then_delivers_at_least_once(
    refused: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    guarantee = ("--set", "delivery.guarantee=at_least_once", "--again")
    kind = CLUSTERS.get(refused, ({PRODUCE: INVALID_REQUEST}, ()))

    with refusing_broker(*kind) as broker:
        code, said = delivered(broker.address, tmp_path)
        sent = broker.received.get(PRODUCE, 0)
        if refused == "records":  # such topics take other records
            broker.refused = {}
        again, ended = delivered(broker.address, tmp_path, *guarantee)

    assert code != 0
    assert said.count("refuse transactions") == 1, said
    assert "with delivery.guarantee=at_least_once, give --again" in said
    assert sent == 0 or refused == "records"
    assert again == 0, ended
    assert broker.received[PRODUCE] > sent
