"""Unfinished jobs of a case are cancelled."""

from bench.processes.forget import forget

from extentflow.ledger import ConnectorState
from extentflow.model import Job, JobState, ObjectVersion, Plan
from extentflow.testing.ledger import MemoryLedger


def job(connector: str) -> Job:
    version = ObjectVersion("bench", "orders.csv", None, "etag", 100)
    return Job(connector, connector, 1, version, "text", "cluster", Plan(target_bytes=100))


def test_connectors_are_stopped_hidden_and_their_open_jobs_cancelled() -> None:
    ledger = MemoryLedger()
    for name in ("bench-1", "bench-2", "orders"):
        ledger.connectors.put(name, {"name": name})
        ledger.jobs.register(job(name))
    ledger.jobs.plan("bench-2", count=1, cursor=100, complete=True)

    assert forget(ledger, ["bench-1", "bench-2"]) == 2

    assert [found.name for found in ledger.connectors.list()] == ["orders"]
    assert ledger.connectors.state("bench-1") is ConnectorState.STOPPED
    states = {one.id: one.state for one in ledger.jobs.list()}
    assert states == {
        "bench-1": JobState.CANCELLED,
        "bench-2": JobState.CANCELLED,
        "orders": JobState.PLANNING,
    }
