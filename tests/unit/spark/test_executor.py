"""Workers of a batch query whose connector is told to rest while it goes on."""

import pytest
from tests.support.memorysite import MemorySite

from extentflow.delivery.connector_state import ASK_SECONDS
from extentflow.ledger import ConnectorState
from extentflow.model import JobState
from extentflow.spark.executor import ReportingWorker
from extentflow.spark.receipts import told

PAUSED = "connector c is PAUSED; `extentflow resume c` lets it go on"


@pytest.fixture
def site() -> MemorySite:
    made = MemorySite()
    made.put_connector()
    return made


def test_what_is_not_begun_when_the_connector_is_paused_is_left_and_told(site: MemorySite) -> None:
    job = site.planner().plan(site.job(lines=3))
    worker = ReportingWorker(site, "source/1")
    rows = worker.deliver(list(site.planner().extents(job)))
    first = next(rows)

    site.memory.set_connector_state("c", ConnectorState.PAUSED)
    site.ticker.sleep(ASK_SECONDS)
    left = list(rows)
    unfit = worker.finish([job.id])

    assert (first.state, first.records) == ("DONE", 1)
    assert [(row.extent, row.state, row.reason) for row in left] == [
        (1, "PENDING", PAUSED),
        (2, "PENDING", PAUSED),
    ]
    assert [told(row) for row in unfit] == [f"s3://shop/c/a.txt: RUNNING: {PAUSED}"]
    assert site.states() == {"c/a.txt": JobState.RUNNING}


def test_the_same_worker_goes_on_when_the_connector_is_resumed(site: MemorySite) -> None:
    job = site.planner().plan(site.job(lines=2))
    site.memory.set_connector_state("c", ConnectorState.PAUSED)
    worker = ReportingWorker(site, "source/1")
    assert [row.state for row in worker.finish([job.id])] == ["RUNNING"]

    site.memory.set_connector_state("c", ConnectorState.RUNNING)
    site.ticker.sleep(ASK_SECONDS)

    assert worker.finish([job.id]) == []
    assert site.states() == {"c/a.txt": JobState.DONE}


def test_what_a_stopped_query_began_after_the_stop_is_cancelled_at_its_end(
    site: MemorySite,
) -> None:
    site.memory.set_connector_state("c", ConnectorState.STOPPED)
    job = site.planner().plan(site.job(lines=2))

    unfit = ReportingWorker(site, "source/1").finish([job.id])

    assert [row.state for row in unfit] == ["CANCELLED"]
    assert "connector c is STOPPED" in told(unfit[0])
    assert site.states() == {"c/a.txt": JobState.CANCELLED}
