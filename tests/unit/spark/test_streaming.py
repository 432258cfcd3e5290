"""A streaming reader: what Spark may ask, in which order, and of which process."""

import pickle

import pytest
from pyspark.sql.datasource import InputPartition
from tests.support.memorysite import MemorySite

from extentflow.config.worker import WorkerSettings
from extentflow.spark.looks import ListingLooks, Looks
from extentflow.spark.options import StreamOptions
from extentflow.spark.streaming import StreamReader

OPTIONS = StreamOptions.read(
    {"run": "r", "work": "listing", "parallelism": "2"},
    {"EXTENTFLOW_BOOTSTRAP_SERVERS": "127.0.0.1:1"},
)


@pytest.fixture
def site() -> MemorySite:
    made = MemorySite(WorkerSettings(bootstrap_servers="127.0.0.1:1"))
    made.put_connector()
    return made


def reader(site: MemorySite) -> StreamReader:
    def look(options: StreamOptions) -> Looks:
        return ListingLooks(options, site)

    return StreamReader(OPTIONS, look)


def test_work_is_an_offset_after_the_first_and_tasks_between_the_two(site: MemorySite) -> None:
    site.put(lines=4)
    asked = reader(site)

    start, end = asked.initialOffset(), asked.latestOffset()

    assert start != end
    assert len(asked.partitions(start, end)) == 2
    asked.commit(end)


def test_without_news_there_are_no_tasks(site: MemorySite) -> None:
    asked = reader(site)
    start = asked.initialOffset()

    assert asked.latestOffset() == start
    assert asked.partitions(start, start) == []


def test_a_checkpoints_offset_is_gone_on_from(site: MemorySite) -> None:
    asked = reader(site)
    remembered = {"look": 10**15, "waiting": 3}

    assert asked.partitions(remembered, remembered) == []
    assert asked.latestOffset() == remembered
    site.put()
    site.ticker.sleep(60)

    assert asked.latestOffset()["look"] > remembered["look"]


def test_what_spark_is_given_cannot_be_changed_by_it(site: MemorySite) -> None:
    site.put()
    asked = reader(site)
    asked.initialOffset()["look"] = 7
    found = asked.latestOffset()
    found["waiting"] = 99

    assert asked.initialOffset() == {"look": 0}
    assert asked.latestOffset()["waiting"] == 1


def test_a_reader_and_its_tasks_travel_to_executors(site: MemorySite) -> None:
    site.put(lines=2)
    asked = reader(site)
    tasks = asked.partitions(asked.initialOffset(), asked.latestOffset())

    assert pickle.loads(pickle.dumps(tasks)) == tasks  # noqa: S301 - our own
    assert pickle.loads(pickle.dumps(StreamReader(OPTIONS)))  # noqa: S301


def test_a_partition_that_is_not_ours_is_a_defect(site: MemorySite) -> None:
    with pytest.raises(TypeError, match="Spark did not plan this partition"):
        next(reader(site).read(InputPartition(1)))
