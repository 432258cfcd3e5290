"""Connectors that have served: stopped, their open jobs cancelled, hidden from new ones.

Otherwise the reconciler of a later `extentflow serve` would go on with what a case left unfinished.
"""

from functools import partial
from typing import Any

from bench.lane import serve
from extentflow.ledger import ConnectorState, Ledger
from extentflow.model import JobState
from extentflow.wiring import Runtime


def forget(ledger: Ledger, connectors: list[str]) -> int:
    """Let go of these connectors; return how many jobs were still open."""
    open_jobs = 0
    for name in connectors:
        ledger.set_connector_state(name, ConnectorState.STOPPED)
        for state in (JobState.PLANNING, JobState.RUNNING):
            for job in list(ledger.jobs(name, state)):
                ledger.end(job.id, JobState.CANCELLED, "the benchmark saw enough")
                open_jobs += 1
        ledger.delete_connector(name)
    return open_jobs


def main() -> None:
    """Serve requests with `connectors`."""
    serve(partial(_run, Runtime.from_environment().ledger))


def _run(ledger: Ledger, request: dict[str, Any]) -> dict[str, Any]:
    return {"open_jobs": forget(ledger, request["connectors"])}


if __name__ == "__main__":
    main()
