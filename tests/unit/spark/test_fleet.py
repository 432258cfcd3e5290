"""Workers of a standing query, in the Python process that Spark keeps for them."""

import pytest
from tests.support.memorysite import MemorySite

from extentflow.config.worker import WorkerSettings
from extentflow.model import JobState
from extentflow.sink import JOBS_TOPIC
from extentflow.spark.fleet import DrainingWorker, StandingWorker
from extentflow.spark.stopping import LOOK_SECONDS, ask_to_stop

QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/extents"


@pytest.fixture
def site() -> MemorySite:
    made = MemorySite(
        WorkerSettings(
            bootstrap_servers="127.0.0.1:1", extents_queue_url=QUEUE, extents_dlq_url=f"{QUEUE}-dlq"
        )
    )
    made.put_connector()
    return made


def test_a_worker_that_makes_room_for_another_querys_leaves_no_producer_open(
    site: MemorySite,
) -> None:
    worker = DrainingWorker(site, "r/1")
    job = site.memory.end(site.job().id, JobState.CANCELLED, "a person")
    worker._worker.ended(job)
    assert len(site.news.read_committed(JOBS_TOPIC)) == 1
    assert "close" not in site.news_calls

    worker.close()

    assert site.news_calls[-1] == "close"


def test_a_standing_workers_rows_are_extents_that_came_to_their_end(site: MemorySite) -> None:
    job = site.planner().plan(site.job(lines=2))
    worker = StandingWorker(site, "r/1")

    rows = list(worker.delivered(site.planner().extents(job), seconds=60))

    assert [(row.extent, row.records, row.state) for row in rows] == [
        (0, 1, "DONE"),
        (1, 1, "DONE"),
    ]
    worker.close()
    assert {slot.owner for slot in site.memory.slots(site.cluster.cluster)} == {""}


def test_a_standing_worker_begins_nothing_after_its_time_or_once_asked_to_stop(
    site: MemorySite,
) -> None:
    job = site.planner().plan(site.job(lines=3))
    extents = list(site.planner().extents(job))
    worker = StandingWorker(site, "r/1")

    rows = worker.delivered(extents, seconds=10)
    assert next(rows).extent == 0
    site.ticker.sleep(10)
    assert list(rows) == []

    ask_to_stop(site.memory, "r")
    site.ticker.sleep(LOOK_SECONDS)
    assert list(worker.delivered(extents[1:], seconds=10)) == []
    assert site.states() == {"c/a.txt": JobState.RUNNING}
