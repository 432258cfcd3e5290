"""What a job scanner finds, how much of it, and which failures stay isolated."""

import json
import logging
from collections.abc import Callable

import pytest
from tests.support.golden import Golden
from tests.support.memory_runtime import BUCKET, MemoryRuntime

from extentflow.discovery import Arrival, Dialect
from extentflow.errors import LedgerUnavailable, Misconfigured, QueueUnavailable
from extentflow.ledger import ConnectorState
from extentflow.model import JobState
from extentflow.spark.drain import recall
from extentflow.spark.query_options import StreamOptions
from extentflow.spark.scanner import LISTING_SECONDS, JobScanner, PendingWork
from extentflow.testing.services import MemoryQueue
from extentflow.testing.stores import Fault, FaultyStore
from extentflow.wiring.arrivals import ArrivalIntake
from extentflow.wiring.extents import ExtentSetup

REST_SECONDS = 60.0


@pytest.fixture
def runtime() -> MemoryRuntime:
    made = MemoryRuntime()
    made.put_connector()
    return made


def standing(
    runtime: MemoryRuntime,
    *,
    connector: str | None = None,
    most: int = 100,
    stopping: Callable[[], bool] = lambda: False,
    open_intake: Callable[[], ArrivalIntake | None] = lambda: None,
) -> JobScanner:
    options = StreamOptions(
        connector=connector,
        work="listing",
        most_extents=most,
        most_seconds=60.0,
        listing_seconds=REST_SECONDS,
        parallelism=8,
        run="r",
        settings=runtime.settings,
    )
    return JobScanner(runtime, options, stopping=stopping, open_intake=open_intake)


def ordinals(found: list[PendingWork]) -> list[int]:
    """Which extents a look found, where there is one object."""
    return [extent.ordinal for one in found for extent in one.extents]


def keys(found: list[PendingWork]) -> set[str]:
    return {extent.version.key for one in found for extent in one.extents}


# -- notifications that a receiver keeps ----------------------------------------------------------


def announce(queue: MemoryQueue, key: str = "c/a.txt") -> None:
    queue.send([json.dumps(Arrival(BUCKET, key, Dialect.COMMAND).to_message())])


def test_an_announced_object_does_not_wait_for_the_next_listing(runtime: MemoryRuntime) -> None:
    arrivals, dead = MemoryQueue(runtime.ticker.read), MemoryQueue(runtime.ticker.read)
    intake = ArrivalIntake(runtime, arrivals, dead, lambda: False)
    scanner = standing(runtime, open_intake=lambda: intake)
    scanner.look()
    runtime.put(lines=3)
    assert scanner.look() == []

    announce(arrivals)

    assert ordinals(scanner.look()) == [0, 1, 2]
    assert arrivals.messages == []


def test_a_receiver_that_starts_later_is_noticed(runtime: MemoryRuntime) -> None:
    arrivals = MemoryQueue(runtime.ticker.read)
    intakes: list[ArrivalIntake | None] = [None, None]
    scanner = standing(runtime, open_intake=lambda: intakes.pop(0))
    assert scanner.look() == []
    runtime.put()
    announce(arrivals)
    assert scanner.look() == []
    intakes.append(ArrivalIntake(runtime, arrivals, arrivals, lambda: False))

    assert keys(scanner.look()) == {"c/a.txt"}
    assert intakes == []
    assert scanner.look() != []  # with the same one


def test_a_query_of_one_connector_leaves_notifications_to_others(runtime: MemoryRuntime) -> None:
    runtime.put_connector("d")
    arrivals = MemoryQueue(runtime.ticker.read)
    announce(arrivals)
    intake = ArrivalIntake(runtime, arrivals, arrivals, lambda: False)
    runtime.put("c/a.txt")

    assert standing(runtime, connector="d", open_intake=lambda: intake).look() == []
    assert runtime.states() == {}
    assert len(arrivals.messages) == 1


def test_notifications_that_cannot_be_read_hold_up_no_listing(
    runtime: MemoryRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise QueueUnavailable("the queue is unavailable (injected)")

    runtime.put(lines=2)

    assert ordinals(standing(runtime, open_intake=fail).look()) == [0, 1]
    assert "taking notifications: the queue is unavailable" in caplog.text


# -- objects without a job ------------------------------------------------------------------------


def test_an_object_without_a_notification_is_listed_cut_and_left_to_tasks(
    runtime: MemoryRuntime,
) -> None:
    runtime.put(lines=3)

    found = standing(runtime).look()

    assert ordinals(found) == [0, 1, 2]
    assert runtime.states() == {"c/a.txt": JobState.RUNNING}


def test_a_complete_listing_pauses_and_then_starts_again(runtime: MemoryRuntime) -> None:
    look = standing(runtime).look
    look()
    runtime.put()

    assert look() == []
    runtime.ticker.sleep(REST_SECONDS)
    assert keys(look()) == {"c/a.txt"}


def test_a_listing_longer_than_a_scan_resumes_in_the_next_scan(
    runtime: MemoryRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        runtime.put(f"c/{number}.txt")
    runtime.memory.on_call = lambda name: runtime.ticker.sleep(
        LISTING_SECONDS if name == "register" else 0
    )
    look = standing(runtime).look

    counts = [len(keys(look())) for _ in range(3)]

    assert counts == [2, 3, 3]
    assert caplog.text == ""


def test_the_topic_of_progress_is_made_sure_of_once_per_connector(runtime: MemoryRuntime) -> None:
    look = standing(runtime).look
    for number in range(4):
        runtime.put(f"c/{number}.txt")
        look()
        runtime.ticker.sleep(REST_SECONDS)

    assert len(runtime.states()) == 4
    assert runtime.cluster.ensured == 1


@pytest.mark.parametrize("state", [ConnectorState.PAUSED, ConnectorState.STOPPED])
def test_the_prefix_of_a_paused_connector_is_not_listed(
    runtime: MemoryRuntime, state: ConnectorState
) -> None:
    runtime.put()
    runtime.memory.connectors.set_state("c", state)

    assert standing(runtime).look() == []
    assert runtime.states() == {}
    assert runtime.memory_store.requests == 0


def test_only_the_named_connector_is_scanned(runtime: MemoryRuntime) -> None:
    runtime.put_connector("d")
    runtime.put("c/a.txt")
    runtime.put("d/a.txt")

    assert keys(standing(runtime, connector="d").look()) == {"d/a.txt"}
    assert keys(standing(runtime).look()) == {"c/a.txt", "d/a.txt"}


def test_a_connector_that_is_not_there_is_no_silence(
    runtime: MemoryRuntime, golden: Golden
) -> None:
    with golden.raises(Misconfigured, match="connector orders"):
        standing(runtime, connector="orders").look()


# -- open jobs ------------------------------------------------------------------------------------


def test_a_scan_returns_a_bounded_number_of_extents_oldest_job_first(
    runtime: MemoryRuntime,
) -> None:
    old = runtime.job("c/old.txt", lines=3)
    runtime.ticker.sleep(1)
    runtime.job("c/new.txt", lines=3)

    (found,) = standing(runtime, most=4).look()

    assert [extent.version.key for extent in found.extents] == ["c/old.txt"] * 3 + ["c/new.txt"]
    assert found.ordered[old.id] is False


def test_done_extents_are_not_found_again_and_their_job_is_closed(runtime: MemoryRuntime) -> None:
    job = runtime.job(lines=3)
    look = standing(runtime).look
    look()
    runtime.run(job, 0, 2)

    assert ordinals(look()) == [1]
    runtime.run(job, 1)
    assert look() == []
    assert runtime.states() == {"c/a.txt": JobState.DONE}


def test_the_items_of_a_large_job_are_all_read_and_once_per_round(
    runtime: MemoryRuntime,
) -> None:
    job = runtime.job(lines=7)
    look = standing(runtime, most=3).look
    asked = runtime.asked({"extents"})

    first, second, third = (ordinals(look()) for _ in range(3))
    assert [first, second, third] == [[0, 1, 2], [3, 4, 5], [6]]
    assert asked() == ["extents"]
    runtime.run(job, 0, 2, 3, 4, 5)

    assert ordinals(look()) == [1, 6]  # came to no end, and is found by the next round
    assert asked() == ["extents"] * 2


def test_a_reopened_job_is_scanned_again(runtime: MemoryRuntime) -> None:
    job = runtime.job(lines=7)
    look = standing(runtime, most=3).look
    look()
    runtime.memory.jobs.end(job.id, JobState.CANCELLED, "a person")
    runtime.memory.jobs.resume(job.id)

    assert ordinals(look()) == [0, 1, 2]


def test_extents_of_an_ordered_job_start_at_the_first_pending_one(
    runtime: MemoryRuntime,
) -> None:
    runtime.put_connector(ordering="object", message__key="none")
    job = runtime.job(lines=5)
    look = standing(runtime, most=2).look

    assert ordinals(look()) == [0, 1]
    assert ordinals(look()) == [0, 1]
    runtime.run(job, 0)
    (found,) = look()

    assert ordinals([found]) == [1, 2]
    assert found.ordered[job.id] is True


def test_a_stopped_connectors_jobs_end_and_a_paused_ones_wait(runtime: MemoryRuntime) -> None:
    runtime.put_connector("d")
    runtime.job("c/a.txt")
    runtime.job("d/a.txt", connector="d")
    runtime.memory.connectors.set_state("c", ConnectorState.STOPPED)
    runtime.memory.connectors.set_state("d", ConnectorState.PAUSED)

    assert standing(runtime).look() == []
    assert runtime.states() == {"c/a.txt": JobState.CANCELLED, "d/a.txt": JobState.PLANNING}


def test_the_tasks_of_a_connector_are_bounded_by_its_tasks_max(runtime: MemoryRuntime) -> None:
    runtime.put_connector(tasks__max="2")
    runtime.job()

    (found,) = standing(runtime).look()

    assert found.most_tasks == 2


# -- trouble --------------------------------------------------------------------------------------


def test_a_store_outage_delays_only_its_own_listing(
    runtime: MemoryRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.job(lines=2)
    runtime.reads = FaultyStore(runtime.memory_store, Fault("unavailable", "list"))

    found = standing(runtime).look()

    assert ordinals(found) == [0, 1]
    assert "listing for connector c: s3://shop/c/" in caplog.text
    seen = recall(runtime.memory, "r")["c"]
    assert (seen.whole, seen.failed) == (0, 1)
    assert "no answer" in seen.unlisted


def test_an_object_that_cannot_be_cut_ends_its_own_job_only(runtime: MemoryRuntime) -> None:
    runtime.job("c/a.txt")
    runtime.put_connector(input__format="parquet")
    runtime.job("c/odd.parquet")

    found = standing(runtime).look()

    assert keys(found) == {"c/a.txt"}
    assert runtime.states() == {"c/a.txt": JobState.RUNNING, "c/odd.parquet": JobState.FAILED}


def test_a_job_whose_items_cannot_be_read_holds_up_no_other(
    runtime: MemoryRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.job("c/a.txt")
    runtime.ticker.sleep(1)
    runtime.job("c/b.txt")
    runtime.memory.refuse("extents")

    found = standing(runtime).look()

    assert keys(found) == {"c/b.txt"}
    assert "c/a.txt" in caplog.text
    assert "extents" in recall(runtime.memory, "r")["c"].held_up
    assert keys(standing(runtime).look()) == {"c/a.txt", "c/b.txt"}
    assert recall(runtime.memory, "r")["c"].held_up == ""


def test_a_scan_that_cannot_save_its_progress_delays_nothing(runtime: MemoryRuntime) -> None:
    runtime.job(lines=2)
    look = standing(runtime).look
    look()
    runtime.ticker.sleep(REST_SECONDS)
    runtime.memory.refuse("remember", times=3)

    assert ordinals(look()) == [0, 1]


def test_a_scan_without_a_listing_and_jobs_saves_nothing(runtime: MemoryRuntime) -> None:
    look = standing(runtime).look
    look()
    noted = runtime.asked({"remember"})

    look()

    assert noted() == []


def test_a_table_outage_is_raised_to_the_caller_of_the_scan(runtime: MemoryRuntime) -> None:
    runtime.memory.refuse("connector_names")

    with pytest.raises(LedgerUnavailable):
        standing(runtime).look()


def test_a_dead_workers_slot_is_settled_and_what_it_held_found(
    runtime: MemoryRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    job = runtime.planner().plan(runtime.job(lines=2))
    extent = next(runtime.planner().extents(job))
    runtime.slots("dead").claim(extent, ExtentSetup(runtime).client(extent))
    runtime.ticker.sleep(10 * runtime.settings.lease_seconds)

    found = standing(runtime).look()

    assert ordinals(found) == [0, 1]
    assert runtime.memory.extents.get(job.id, 0).claim is None
    assert "was left by dead" in caplog.text


def test_a_query_that_is_asked_to_stop_begins_with_no_other_job(runtime: MemoryRuntime) -> None:
    runtime.job()

    assert standing(runtime, stopping=lambda: True).look() == []
    assert runtime.states() == {"c/a.txt": JobState.PLANNING}
