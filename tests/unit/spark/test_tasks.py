"""Workers of the data source's queries: rows, pauses and stop requests."""

import pytest
from tests.support.memory_runtime import MemoryRuntime

from extentflow.config.worker import WorkerSettings
from extentflow.jobs.preflight import CACHE_SECONDS
from extentflow.kafka import JOBS_TOPIC
from extentflow.ledger import ConnectorState
from extentflow.model import JobState
from extentflow.queue.consumer import QueueWorker
from extentflow.spark.receipts import describe_undelivered
from extentflow.spark.tasks import (
    STOP_POLL_SECONDS,
    QueryWorker,
    StopRequest,
    request_stop,
)
from extentflow.testing.ledger import MemoryLedger

QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/extents"
PAUSED = "connector c is PAUSED; continue it with `extentflow resume c`"


@pytest.fixture
def runtime() -> MemoryRuntime:
    made = MemoryRuntime()
    made.put_connector()
    return made


def test_a_pause_leaves_later_extents_pending_with_the_reason(
    runtime: MemoryRuntime,
) -> None:
    job = runtime.planner().plan(runtime.job(lines=3))
    worker = QueryWorker(runtime, "source/1")
    rows = worker.deliver(list(runtime.planner().extents(job)))
    first = next(rows)

    runtime.memory.connectors.set_state("c", ConnectorState.PAUSED)
    runtime.ticker.sleep(CACHE_SECONDS)
    left = list(rows)
    unfit = worker.finish([job.id])

    assert (first.state, first.records) == ("DONE", 1)
    assert [(row.extent, row.state, row.reason) for row in left] == [
        (1, "PENDING", PAUSED),
        (2, "PENDING", PAUSED),
    ]
    assert [describe_undelivered(row) for row in unfit] == [f"s3://shop/c/a.txt: RUNNING: {PAUSED}"]
    assert runtime.states() == {"c/a.txt": JobState.RUNNING}


def test_the_same_worker_continues_after_a_resume(runtime: MemoryRuntime) -> None:
    job = runtime.planner().plan(runtime.job(lines=2))
    runtime.memory.connectors.set_state("c", ConnectorState.PAUSED)
    worker = QueryWorker(runtime, "source/1")
    assert [row.state for row in worker.finish([job.id])] == ["RUNNING"]

    runtime.memory.connectors.set_state("c", ConnectorState.ENABLED)
    runtime.ticker.sleep(CACHE_SECONDS)

    assert worker.finish([job.id]) == []
    assert runtime.states() == {"c/a.txt": JobState.DONE}


def test_a_job_registered_after_a_stop_is_cancelled_at_the_end(
    runtime: MemoryRuntime,
) -> None:
    runtime.memory.connectors.set_state("c", ConnectorState.STOPPED)
    job = runtime.planner().plan(runtime.job(lines=2))

    unfit = QueryWorker(runtime, "source/1").finish([job.id])

    assert [row.state for row in unfit] == ["CANCELLED"]
    assert "connector c is STOPPED" in describe_undelivered(unfit[0])
    assert runtime.states() == {"c/a.txt": JobState.CANCELLED}


# -- streaming -----------------------------------------------------------------------------------


@pytest.fixture
def with_queue() -> MemoryRuntime:
    made = MemoryRuntime(
        WorkerSettings(
            bootstrap_servers="127.0.0.1:1",
            ledger_table="ledger",
            extents_queue_url=QUEUE,
            extents_dlq_url=f"{QUEUE}-dlq",
        )
    )
    made.put_connector()
    return made


def test_closing_a_queue_worker_closes_its_producer(
    with_queue: MemoryRuntime,
) -> None:
    worker = QueryWorker(with_queue, "r/1")
    job = with_queue.memory.jobs.end(with_queue.job().id, JobState.CANCELLED, "a person")
    drained = worker._drain.worker
    assert isinstance(drained, QueueWorker)
    drained.ended(job)
    assert len(with_queue.events.read_committed(JOBS_TOPIC)) == 1
    assert "close" not in with_queue.event_calls

    worker.close()

    assert with_queue.event_calls[-1] == "close"


def test_a_listed_worker_returns_a_row_per_final_extent(with_queue: MemoryRuntime) -> None:
    job = with_queue.planner().plan(with_queue.job(lines=2))
    worker = QueryWorker(with_queue, "r/1")

    rows = list(worker.run_once(with_queue.planner().extents(job), seconds=60))

    assert [(row.extent, row.records, row.state) for row in rows] == [
        (0, 1, "DONE"),
        (1, 1, "DONE"),
    ]
    worker.close()
    assert {slot.owner for slot in with_queue.memory.slots.list(with_queue.cluster.cluster)} == {""}


def test_a_listed_worker_starts_nothing_after_its_time_or_a_stop_request(
    with_queue: MemoryRuntime,
) -> None:
    job = with_queue.planner().plan(with_queue.job(lines=3))
    extents = list(with_queue.planner().extents(job))
    worker = QueryWorker(with_queue, "r/1")

    rows = worker.run_once(extents, seconds=10)
    assert next(rows).extent == 0
    with_queue.ticker.sleep(10)
    assert list(rows) == []

    request_stop(with_queue.memory, "r")
    with_queue.ticker.sleep(STOP_POLL_SECONDS)
    assert list(worker.run_once(extents[1:], seconds=10)) == []
    assert with_queue.states() == {"c/a.txt": JobState.RUNNING}


# -- stopping -------------------------------------------------------------------------------------


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_stop_request_concerns_the_workers_of_its_run_only() -> None:
    ledger, now = MemoryLedger(), Time()
    ours, others = StopRequest(ledger, "ours", now), StopRequest(ledger, "others", now)
    request_stop(ledger, "ours")

    assert (ours(), others()) == (True, False)


def test_the_ledger_is_read_once_per_second_until_a_stop_is_requested() -> None:
    ledger, now = MemoryLedger(), Time()
    stop = StopRequest(ledger, "run", now)
    calls: list[str] = []
    ledger.on_call = calls.append

    assert [stop() for _ in range(100)] == [False] * 100
    assert calls == ["recall"]
    now.now += STOP_POLL_SECONDS
    request_stop(ledger, "run")
    assert [stop() for _ in range(100)] == [True] * 100
    now.now += STOP_POLL_SECONDS
    assert stop()
    assert calls == ["recall", "remember", "recall"]


def test_an_unavailable_ledger_stops_no_worker() -> None:
    ledger, now = MemoryLedger(), Time()
    stop = StopRequest(ledger, "run", now)
    request_stop(ledger, "run")
    ledger.refuse("recall")

    assert not stop()
    assert not stop()
    now.now += STOP_POLL_SECONDS
    assert stop()
