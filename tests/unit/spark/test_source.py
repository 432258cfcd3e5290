"""What a batch query finds of a job that was planned: extents, or why there are none."""

import pickle

import pytest
from pyspark import cloudpickle
from tests.support.memory_runtime import BUCKET, MemoryRuntime

from extentflow.errors import Misconfigured
from extentflow.jobs.preflight import CACHE_SECONDS
from extentflow.ledger import ConnectorState
from extentflow.model import Job, JobState
from extentflow.spark.query_options import ReadOptions
from extentflow.spark.receipts import COLUMNS, describe_undelivered
from extentflow.spark.source import ExtentflowSource, Plan, _pending, plan
from extentflow.spark.tasks import QueryWorker
from extentflow.testing.stores import Fault, FaultyStore


@pytest.fixture
def runtime() -> MemoryRuntime:
    return MemoryRuntime()


def planned(runtime: MemoryRuntime, key: str, lines: int = 1) -> Job:
    """Return a planned job; its object may have changed since."""
    job = runtime.job(key, lines)
    return runtime.memory.jobs.plan(job.id, count=lines, cursor=4 * lines, complete=True)


def test_what_is_final_is_not_pending(runtime: MemoryRuntime) -> None:
    runtime.put_connector()
    job = planned(runtime, "c/a.txt", lines=3)

    found, extents, why = _pending(runtime, job, {1})

    assert (found, why) == (job, "")
    assert [extent.ordinal for extent in extents] == [0, 2]


def test_an_object_that_cannot_be_cut_any_more_ends_its_job(runtime: MemoryRuntime) -> None:
    runtime.put_connector(input__format="parquet")
    job = planned(runtime, "c/odd.parquet")

    found, extents, why = _pending(runtime, job, ())

    assert (found.state, extents, why) == (JobState.FAILED, [], "")
    assert "s3://shop/c/odd.parquet" in found.reason
    assert runtime.memory.jobs.get(job.id) == found


def test_an_object_that_was_replaced_supersedes_its_job(runtime: MemoryRuntime) -> None:
    runtime.put_connector(input__format="parquet")
    job = planned(runtime, "c/odd.parquet")
    runtime.memory_store.put(BUCKET, "c/odd.parquet", b"another")

    found, extents, _ = _pending(runtime, job, ())

    assert (found.state, extents) == (JobState.SUPERSEDED, [])


def test_a_store_outage_leaves_the_job_open_with_its_reason(runtime: MemoryRuntime) -> None:
    runtime.put_connector(input__format="parquet")
    job = planned(runtime, "c/odd.parquet")
    runtime.reads = FaultyStore(runtime.memory_store, Fault("unavailable"))

    found, extents, why = _pending(runtime, job, ())

    assert (found.state, extents) == (JobState.RUNNING, [])
    assert "no answer" in why


# -- a query --------------------------------------------------------------------------------------


def query(runtime: MemoryRuntime) -> Plan:
    """Plan what a query of everything that connector `c` reads asks for."""
    given = {"connector": "c", "bootstrap.servers": runtime.settings.bootstrap_servers}
    return plan(ReadOptions.read(given, {}), runtime)


def test_every_query_sees_what_holds_when_it_is_planned(runtime: MemoryRuntime) -> None:
    runtime.put_connector()
    runtime.put("c/a.txt", lines=2)
    first = query(runtime)

    runtime.put("c/a.txt", lines=3)  # another version
    runtime.put("c/b.txt", lines=1)
    runtime.put_connector(input__format="jsonl")
    second = query(runtime)

    assert sum(len(task.extents) for task in first.tasks) == 2
    assert sum(len(task.extents) for task in second.tasks) == 4
    assert {extent.format for task in first.tasks for extent in task.extents} == {"text"}
    assert {extent.format for task in second.tasks for extent in task.extents} == {"jsonl"}
    assert not {*first.jobs} & {*second.jobs}


def test_a_paused_connector_is_rejected_until_it_is_resumed(runtime: MemoryRuntime) -> None:
    runtime.put_connector()
    runtime.put()
    runtime.memory.connectors.set_state("c", ConnectorState.PAUSED)

    with pytest.raises(Misconfigured, match="connector c is PAUSED"):
        query(runtime)

    assert runtime.states() == {}
    runtime.memory.connectors.set_state("c", ConnectorState.ENABLED)
    assert query(runtime).tasks


@pytest.mark.parametrize(("state", "left"), [("PAUSED", "RUNNING"), ("STOPPED", "CANCELLED")])
def test_pausing_a_connector_during_registration_ends_the_registration(
    runtime: MemoryRuntime, state: str, left: str
) -> None:
    runtime.put_connector()
    for number in range(4):
        runtime.put(f"c/{number}.txt")
    admitted = runtime.asked({"register"})
    pause_at, register = 2, runtime.memory.jobs.register

    def registered(job: Job) -> Job:
        if len(admitted()) == pause_at:
            runtime.memory.connectors.set_state("c", ConnectorState(state))
            runtime.clock.sleep(CACHE_SECONDS)
        return register(job)

    runtime.memory.jobs.register = registered  # type: ignore[method-assign]

    with pytest.raises(Misconfigured, match=f"connector c is {state}"):
        query(runtime)

    assert [str(each) for each in runtime.states().values()] == [left] * (pause_at + 1)


def test_an_open_job_with_an_unusable_revision_is_a_row_with_the_reason(
    runtime: MemoryRuntime,
) -> None:
    runtime.put_connector(producer__sasl__password="${env:ABSENT}")
    old = planned(runtime, "c/old.txt")
    runtime.put_connector()
    runtime.put("c/new.txt")

    found = query(runtime)
    unfit = QueryWorker(runtime, "source/1").finish([old.id])

    why = "revision 1 of connector c: sasl.password=${env:ABSENT}: the environment variable is not"
    assert [extent.version.key for task in found.tasks for extent in task.extents] == ["c/new.txt"]
    (row,) = found.rows
    assert (row.job, row.state) == (old.id, "RUNNING")
    assert row.reason is not None
    assert row.reason.startswith(why)
    assert [describe_undelivered(one) for one in unfit] == [
        f"s3://shop/c/old.txt: RUNNING: {row.reason}"
    ]
    assert old.id in found.jobs


SQLITE = {
    "connector": "orders",
    "bootstrap.servers": "127.0.0.1:1",
    "ledger.url": "sqlite:////var/lib/ledger.db",
}
BATCH = {**SQLITE, "path": "s3://shop/in/"}


def source(master: str | None, options: dict[str, str]) -> ExtentflowSource:
    """Return the source as a process that plans has it: a copy of the driver's class."""
    copied = cloudpickle.dumps(ExtentflowSource.of(master))  # type: ignore[no-untyped-call]
    found: ExtentflowSource = pickle.loads(copied)(options)  # noqa: S301 - our own class
    return found


def test_a_session_on_other_machines_refuses_the_ledger_of_one() -> None:
    refused = r"executors of spark://host:7077 .*ledger\.db is the ledger; .*postgresql://"

    with pytest.raises(Misconfigured, match=refused):
        source("spark://host:7077", BATCH).reader(COLUMNS)
    with pytest.raises(Misconfigured, match=refused):
        source("spark://host:7077", SQLITE).streamReader(COLUMNS)


@pytest.mark.parametrize("master", [None, "local[2]"])
def test_a_session_on_this_machine_uses_its_ledger(master: str | None) -> None:
    assert source(master, BATCH).reader(COLUMNS) is not None
