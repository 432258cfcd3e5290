"""Offsets and tasks that Spark receives, and errors during outages."""

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from tests.support.golden import Golden
from tests.support.memory_runtime import MemoryRuntime

from extentflow.config.worker import WorkerSettings
from extentflow.errors import LedgerUnavailable, Misconfigured, QueueUnavailable
from extentflow.ledger import SlotItem
from extentflow.spark.query_options import StreamOptions
from extentflow.spark.scanner import LISTING_SECONDS
from extentflow.spark.streaming import (
    FEW_SECONDS,
    LOOK_SECONDS,
    NOTHING,
    ListedPartition,
    ListingSource,
    QueuePartition,
    QueueSource,
    WorkSource,
)
from extentflow.spark.tasks import request_stop
from extentflow.testing.services import MemoryQueue

OPTIONS = StreamOptions(
    connector=None,
    work="listing",
    most_extents=100,
    most_seconds=60.0,
    listing_seconds=60.0,
    parallelism=8,
    run="r",
    settings=WorkerSettings(bootstrap_servers="127.0.0.1:1", exactly_once_slots=16),
)


@pytest.fixture
def runtime() -> MemoryRuntime:
    made = MemoryRuntime(OPTIONS.settings)
    made.put_connector()
    return made


@pytest.fixture
def messages(runtime: MemoryRuntime) -> MemoryQueue:
    return MemoryQueue(runtime.ticker.read)


def send(messages: MemoryQueue, count: int) -> None:
    messages.send([f"message {number}" for number in range(count)])


def draining(runtime: MemoryRuntime, messages: MemoryQueue, **changes: Any) -> QueueSource:  # noqa: ANN401
    return QueueSource(replace(OPTIONS, work="queue", **changes), runtime, messages)


def listing(runtime: MemoryRuntime, **changes: Any) -> ListingSource:  # noqa: ANN401
    return ListingSource(replace(OPTIONS, **changes), runtime)


def shares(looks: WorkSource) -> list[tuple[int, float]]:
    """What each task of a queue may take on, and for how long it begins with more."""
    found = looks.partitions()
    return [(one.most, one.seconds) for one in found if isinstance(one, QueuePartition)]


def dealt(looks: WorkSource) -> list[list[int]]:
    """Which extents of one object each task of a listing runs."""
    return [
        [extent.ordinal for task in one.tasks for extent in task.extents]
        for one in looks.partitions()
        if isinstance(one, ListedPartition)
    ]


def every(tasks: list[list[int]]) -> list[int]:
    return sorted(chain.from_iterable(tasks))


def lease(runtime: MemoryRuntime, number: int, owner: str) -> None:
    seen = SlotItem(runtime.cluster.cluster, number)
    assert runtime.memory.slots.lease(seen, owner=owner, lease_seconds=30)


# -- offsets --------------------------------------------------------------------------------------


def test_without_work_the_offset_stays(runtime: MemoryRuntime, messages: MemoryQueue) -> None:
    for looks in (draining(runtime, messages), listing(runtime)):
        assert looks.latest() == NOTHING
        runtime.ticker.sleep(LOOK_SECONDS)
        assert looks.latest() == NOTHING


def test_a_new_offset_contains_the_amount_of_work(
    runtime: MemoryRuntime, messages: MemoryQueue
) -> None:
    send(messages, 5)
    messages.receive(most=2)
    runtime.put(lines=3)

    found = draining(runtime, messages).latest()
    listed = listing(runtime).latest()

    assert {**found, "look": 0} == {"look": 0, "waiting": 3, "hidden": 2, "delayed": 0}
    assert {**listed, "look": 0} == {"look": 0, "waiting": 3}


def test_a_listing_longer_than_a_scan_is_logged(
    runtime: MemoryRuntime,
) -> None:
    for number in range(2):
        runtime.put(f"c/{number}.txt")
    runtime.memory.on_call = lambda name: runtime.ticker.sleep(
        LISTING_SECONDS + 1 if name == "find_registered" else 0
    )
    looks = listing(runtime)

    first = looks.latest()
    assert {**first, "look": 0} == {"look": 0, "waiting": 0, "listing": 1}
    assert dealt(looks) == []
    runtime.memory.on_call = lambda _name: None
    runtime.ticker.sleep(LOOK_SECONDS)

    assert {**looks.latest(), "look": 0} == {"look": 0, "waiting": 2}


def test_work_that_other_workers_hold_is_no_work(
    runtime: MemoryRuntime, messages: MemoryQueue
) -> None:
    send(messages, 2)
    messages.receive()

    assert draining(runtime, messages).latest() == NOTHING


def test_each_poll_that_finds_work_is_a_new_offset_at_most_one_per_second(
    runtime: MemoryRuntime, messages: MemoryQueue
) -> None:
    send(messages, 1)
    looks = draining(runtime, messages)

    first = looks.latest()
    assert looks.latest() == first
    runtime.ticker.sleep(LOOK_SECONDS)
    second = looks.latest()

    assert second["look"] > first["look"] > NOTHING["look"]


def test_offsets_continue_above_those_of_the_process_before(
    runtime: MemoryRuntime, messages: MemoryQueue
) -> None:
    looks = draining(runtime, messages)
    remembered = {"look": 10**15, "waiting": 7}

    looks.resume(remembered)
    looks.resume({"look": 1})

    assert looks.latest() == remembered
    send(messages, 1)
    runtime.ticker.sleep(LOOK_SECONDS)
    assert looks.latest()["look"] == 10**15 + 1


# -- tasks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waiting", "changes", "expected"),
    [
        (1, {}, [(100, FEW_SECONDS)]),
        (3, {}, [(34, FEW_SECONDS), (33, FEW_SECONDS), (33, FEW_SECONDS)]),
        (50, {}, [(13, 60.0)] * 4 + [(12, 60.0)] * 4),
        (50, {"parallelism": 2}, [(50, 60.0)] * 2),
        (50, {"most_extents": 3}, [(1, 60.0)] * 3),
        (50, {"most_seconds": 2}, [(13, 2)] * 4 + [(12, 2)] * 4),
        (1, {"most_seconds": 2}, [(100, 2)]),
    ],
)
def test_a_triggers_tasks_take_on_so_many_messages_in_sum(
    runtime: MemoryRuntime,
    messages: MemoryQueue,
    waiting: int,
    changes: dict[str, int],
    expected: list[tuple[int, float]],
) -> None:
    send(messages, waiting)
    looks = draining(runtime, messages, **changes)
    looks.latest()

    assert shares(looks) == expected


def test_tasks_are_never_more_than_slots_that_others_leave(
    runtime: MemoryRuntime, messages: MemoryQueue
) -> None:
    send(messages, 50)
    for number in range(13):
        lease(runtime, number, "others/1")
    lease(runtime, 13, "r/1")
    looks = draining(runtime, messages)
    looks.latest()

    assert len(shares(looks)) == 3
    runtime.ticker.sleep(31)
    assert len(shares(looks)) == 8


def test_one_task_polls_without_free_slots_and_all_if_unknown(
    runtime: MemoryRuntime, messages: MemoryQueue
) -> None:
    send(messages, 50)
    for number in range(16):
        lease(runtime, number, "others/1")
    looks = draining(runtime, messages)
    looks.latest()

    assert len(shares(looks)) == 1
    runtime.memory.refuse("slots")
    assert len(shares(looks)) == 8


def test_the_queue_is_not_polled_again_between_an_offset_and_its_tasks(
    runtime: MemoryRuntime, messages: MemoryQueue
) -> None:
    asked: list[str] = []
    messages.on_call = asked.append
    send(messages, 3)
    looks = draining(runtime, messages)
    looks.latest()
    send(messages, 2)

    assert len(shares(looks)) == 3
    assert asked.count("depth") == 1
    # Spark repeats the last trigger of a run that died without a look before.
    assert len(shares(looks)) == 5
    assert asked.count("depth") == 2


def test_tasks_of_a_listing_have_each_found_extent_once(
    runtime: MemoryRuntime,
) -> None:
    runtime.put(lines=9)
    looks = listing(runtime, parallelism=2)
    looks.latest()
    runtime.put("c/later.txt")

    found = dealt(looks)

    assert len(found) == 2
    assert every(found) == list(range(9))


def test_a_trigger_of_a_listing_takes_on_so_many_extents_at_most(runtime: MemoryRuntime) -> None:
    runtime.put(lines=9)
    looks = listing(runtime, most_extents=4)

    assert looks.latest()["waiting"] == 4
    assert every(dealt(looks)) == [0, 1, 2, 3]


def test_extents_that_a_trigger_did_not_start_are_found_again(runtime: MemoryRuntime) -> None:
    runtime.put(lines=2)
    looks = listing(runtime)
    first = looks.latest()
    assert every(dealt(looks)) == [0, 1]

    runtime.ticker.sleep(LOOK_SECONDS)

    assert looks.latest() != first
    assert every(dealt(looks)) == [0, 1]


def test_tasks_requested_without_a_poll_cause_one(runtime: MemoryRuntime) -> None:
    runtime.put(lines=2)

    assert every(dealt(listing(runtime))) == [0, 1]


def test_a_connectors_own_bound_makes_fewer_tasks(runtime: MemoryRuntime) -> None:
    runtime.put_connector(tasks__max="2")
    runtime.put(lines=9)
    looks = listing(runtime)
    looks.latest()

    assert len(dealt(looks)) == 2


# -- trouble --------------------------------------------------------------------------------------


def test_a_queue_outage_ends_a_query_only_at_its_first_poll(
    runtime: MemoryRuntime, messages: MemoryQueue, caplog: pytest.LogCaptureFixture
) -> None:
    send(messages, 1)
    looks = draining(runtime, messages)
    messages.failures = 1
    with pytest.raises(QueueUnavailable):
        looks.latest()
    before = looks.latest()

    messages.failures = 1
    runtime.ticker.sleep(LOOK_SECONDS)
    assert looks.latest() == before
    runtime.ticker.sleep(LOOK_SECONDS)

    assert looks.latest() != before
    assert caplog.text.count("cannot read the pending work") == 1


def test_a_table_outage_ends_a_query_only_at_its_first_poll(
    runtime: MemoryRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.put(lines=2)
    looks = listing(runtime)
    runtime.memory.refuse("connector_names")
    with pytest.raises(LedgerUnavailable):
        looks.latest()
    before = looks.latest()

    runtime.memory.refuse("connector_names")
    runtime.ticker.sleep(LOOK_SECONDS)
    assert looks.latest() == before
    runtime.ticker.sleep(LOOK_SECONDS)

    assert looks.latest() != before
    assert every(dealt(looks)) == [0, 1]
    assert caplog.text.count("cannot read the pending work") == 1


def test_an_outage_while_tasks_are_planned_ends_no_query(
    runtime: MemoryRuntime, messages: MemoryQueue, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.put()
    messages.failures = 1
    runtime.memory.refuse("connector_names")

    assert shares(draining(runtime, messages)) == [(100, FEW_SECONDS)]
    assert dealt(listing(runtime)) == []
    assert "cannot read the depth of the extents queue" in caplog.text
    assert "cannot read the pending work" in caplog.text


def test_a_stop_request_ends_the_search_for_work(
    runtime: MemoryRuntime, messages: MemoryQueue
) -> None:
    looks = draining(runtime, messages)
    looks.latest()
    send(messages, 1)
    request_stop(runtime.memory, "r")
    runtime.ticker.sleep(LOOK_SECONDS)

    assert looks.latest() == NOTHING


def test_a_run_that_was_stopped_before_does_not_begin(
    runtime: MemoryRuntime, messages: MemoryQueue
) -> None:
    request_stop(runtime.memory, "r")

    with pytest.raises(Misconfigured, match="run r was stopped before"):
        draining(runtime, messages).latest()


def test_the_table_of_another_app_is_rejected_by_the_first_poll(
    runtime: MemoryRuntime, golden: Golden
) -> None:
    runtime.memory.bind("other")

    with golden.raises(Misconfigured, match=r"app\.id=other"):
        listing(runtime).latest()
