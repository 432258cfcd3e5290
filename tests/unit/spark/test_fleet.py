"""Workers of a standing query, in the Python process that Spark keeps for them."""

import pytest
from tests.support.memory_runtime import MemoryRuntime

from extentflow.config.worker import WorkerSettings
from extentflow.model import JobState
from extentflow.sink import JOBS_TOPIC
from extentflow.spark.fleet import DrainingWorker, StandingWorker
from extentflow.spark.stopping import LOOK_SECONDS, ask_to_stop

QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/extents"


@pytest.fixture
def runtime() -> MemoryRuntime:
    made = MemoryRuntime(
        WorkerSettings(
            bootstrap_servers="127.0.0.1:1", extents_queue_url=QUEUE, extents_dlq_url=f"{QUEUE}-dlq"
        )
    )
    made.put_connector()
    return made


def test_a_worker_that_makes_room_for_another_querys_leaves_no_producer_open(
    runtime: MemoryRuntime,
) -> None:
    worker = DrainingWorker(runtime, "r/1")
    job = runtime.memory.end(runtime.job().id, JobState.CANCELLED, "a person")
    worker._worker.ended(job)
    assert len(runtime.events.read_committed(JOBS_TOPIC)) == 1
    assert "close" not in runtime.event_calls

    worker.close()

    assert runtime.event_calls[-1] == "close"


def test_a_standing_workers_rows_are_extents_that_came_to_their_end(runtime: MemoryRuntime) -> None:
    job = runtime.planner().plan(runtime.job(lines=2))
    worker = StandingWorker(runtime, "r/1")

    rows = list(worker.delivered(runtime.planner().extents(job), seconds=60))

    assert [(row.extent, row.records, row.state) for row in rows] == [
        (0, 1, "DONE"),
        (1, 1, "DONE"),
    ]
    worker.close()
    assert {slot.owner for slot in runtime.memory.slots(runtime.cluster.cluster)} == {""}


def test_a_standing_worker_begins_nothing_after_its_time_or_once_asked_to_stop(
    runtime: MemoryRuntime,
) -> None:
    job = runtime.planner().plan(runtime.job(lines=3))
    extents = list(runtime.planner().extents(job))
    worker = StandingWorker(runtime, "r/1")

    rows = worker.delivered(extents, seconds=10)
    assert next(rows).extent == 0
    runtime.ticker.sleep(10)
    assert list(rows) == []

    ask_to_stop(runtime.memory, "r")
    runtime.ticker.sleep(LOOK_SECONDS)
    assert list(worker.delivered(extents[1:], seconds=10)) == []
    assert runtime.states() == {"c/a.txt": JobState.RUNNING}
