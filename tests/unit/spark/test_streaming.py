"""A streaming reader: what Spark may ask, in which order, and of which process."""

import pickle

import pytest
from pyspark.sql.datasource import InputPartition
from tests.support.golden import Golden
from tests.support.memory_runtime import MemoryRuntime

from extentflow.config.worker import WorkerSettings
from extentflow.spark.query_options import StreamOptions
from extentflow.spark.streaming import ListingSource, StreamReader, WorkSource

OPTIONS = StreamOptions.read(
    {"run": "r", "work": "listing", "parallelism": "2"},
    {"EXTENTFLOW_BOOTSTRAP_SERVERS": "127.0.0.1:1"},
)


@pytest.fixture
def runtime() -> MemoryRuntime:
    made = MemoryRuntime(WorkerSettings(bootstrap_servers="127.0.0.1:1"))
    made.put_connector()
    return made


def reader(runtime: MemoryRuntime) -> StreamReader:
    def look(options: StreamOptions) -> WorkSource:
        return ListingSource(options, runtime)

    return StreamReader(OPTIONS, look)


def test_work_is_an_offset_after_the_first_and_tasks_between_the_two(
    runtime: MemoryRuntime,
) -> None:
    runtime.put(lines=4)
    asked = reader(runtime)

    start, end = asked.initialOffset(), asked.latestOffset()

    assert start != end
    assert len(asked.partitions(start, end)) == 2
    asked.commit(end)


def test_without_news_there_are_no_tasks(runtime: MemoryRuntime) -> None:
    asked = reader(runtime)
    start = asked.initialOffset()

    assert asked.latestOffset() == start
    assert asked.partitions(start, start) == []


def test_a_checkpoints_offset_is_gone_on_from(runtime: MemoryRuntime) -> None:
    asked = reader(runtime)
    remembered = {"look": 10**15, "waiting": 3}

    assert asked.partitions(remembered, remembered) == []
    assert asked.latestOffset() == remembered
    runtime.put()
    runtime.ticker.sleep(60)

    assert asked.latestOffset()["look"] > remembered["look"]


def test_what_spark_is_given_cannot_be_changed_by_it(runtime: MemoryRuntime) -> None:
    runtime.put()
    asked = reader(runtime)
    asked.initialOffset()["look"] = 7
    found = asked.latestOffset()
    found["waiting"] = 99

    assert asked.initialOffset() == {"look": 0}
    assert asked.latestOffset()["waiting"] == 1


def test_a_reader_and_its_tasks_travel_to_executors(runtime: MemoryRuntime) -> None:
    runtime.put(lines=2)
    asked = reader(runtime)
    tasks = asked.partitions(asked.initialOffset(), asked.latestOffset())

    assert pickle.loads(pickle.dumps(tasks)) == tasks  # noqa: S301 - our own
    assert pickle.loads(pickle.dumps(StreamReader(OPTIONS)))  # noqa: S301


def test_a_partition_that_is_not_ours_is_a_defect(runtime: MemoryRuntime, golden: Golden) -> None:
    with golden.raises(TypeError):
        next(reader(runtime).read(InputPartition(1)))
