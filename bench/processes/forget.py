"""Remove connectors of finished cases: stop them, cancel their open jobs, hide them.

Otherwise the reconciler of a later `extentflow serve` would continue their unfinished jobs.
"""

from functools import partial
from typing import Any

from bench.process import serve
from extentflow.ledger import ConnectorState, Ledger
from extentflow.model import JobState
from extentflow.wiring import Runtime


def forget(ledger: Ledger, connectors: list[str]) -> int:
    """Remove these connectors; return the number of open jobs."""
    open_jobs = 0
    for name in connectors:
        ledger.connectors.set_state(name, ConnectorState.STOPPED)
        for state in (JobState.PLANNING, JobState.RUNNING):
            for job in list(ledger.jobs.list(name, state)):
                ledger.jobs.end(job.id, JobState.CANCELLED, "the benchmark has ended")
                open_jobs += 1
        ledger.connectors.delete(name)
    return open_jobs


def main() -> None:
    """Process requests with `connectors`."""
    serve(partial(_run, Runtime.from_environment().ledger))


def _run(ledger: Ledger, request: dict[str, Any]) -> dict[str, Any]:
    return {"open_jobs": forget(ledger, request["connectors"])}


if __name__ == "__main__":
    main()
