"""Workers of a batch query whose connector is told to rest while it goes on."""

import pytest
from tests.support.memory_runtime import MemoryRuntime

from extentflow.delivery.connector_state import CACHE_SECONDS
from extentflow.ledger import ConnectorState
from extentflow.model import JobState
from extentflow.spark.executor import ReportingWorker
from extentflow.spark.receipts import told

PAUSED = "connector c is PAUSED; `extentflow resume c` lets it go on"


@pytest.fixture
def runtime() -> MemoryRuntime:
    made = MemoryRuntime()
    made.put_connector()
    return made


def test_what_is_not_begun_when_the_connector_is_paused_is_left_and_told(
    runtime: MemoryRuntime,
) -> None:
    job = runtime.planner().plan(runtime.job(lines=3))
    worker = ReportingWorker(runtime, "source/1")
    rows = worker.deliver(list(runtime.planner().extents(job)))
    first = next(rows)

    runtime.memory.set_connector_state("c", ConnectorState.PAUSED)
    runtime.ticker.sleep(CACHE_SECONDS)
    left = list(rows)
    unfit = worker.finish([job.id])

    assert (first.state, first.records) == ("DONE", 1)
    assert [(row.extent, row.state, row.reason) for row in left] == [
        (1, "PENDING", PAUSED),
        (2, "PENDING", PAUSED),
    ]
    assert [told(row) for row in unfit] == [f"s3://shop/c/a.txt: RUNNING: {PAUSED}"]
    assert runtime.states() == {"c/a.txt": JobState.RUNNING}


def test_the_same_worker_goes_on_when_the_connector_is_resumed(runtime: MemoryRuntime) -> None:
    job = runtime.planner().plan(runtime.job(lines=2))
    runtime.memory.set_connector_state("c", ConnectorState.PAUSED)
    worker = ReportingWorker(runtime, "source/1")
    assert [row.state for row in worker.finish([job.id])] == ["RUNNING"]

    runtime.memory.set_connector_state("c", ConnectorState.RUNNING)
    runtime.ticker.sleep(CACHE_SECONDS)

    assert worker.finish([job.id]) == []
    assert runtime.states() == {"c/a.txt": JobState.DONE}


def test_what_a_stopped_query_began_after_the_stop_is_cancelled_at_its_end(
    runtime: MemoryRuntime,
) -> None:
    runtime.memory.set_connector_state("c", ConnectorState.STOPPED)
    job = runtime.planner().plan(runtime.job(lines=2))

    unfit = ReportingWorker(runtime, "source/1").finish([job.id])

    assert [row.state for row in unfit] == ["CANCELLED"]
    assert "connector c is STOPPED" in told(unfit[0])
    assert runtime.states() == {"c/a.txt": JobState.CANCELLED}
