"""Engines of runs: what each can reach, and the driver that runs jobs on it.

Tests: unit/services/test_runs.py
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from uuid import uuid4

from extentflow.config.connector import ConnectorConfig
from extentflow.config.connector_keys import LOCAL_FILE
from extentflow.engines import Engine
from extentflow.engines.submitted_runs import OnCompletion, SubmittedRuns
from extentflow.errors import Misconfigured
from extentflow.jobs import preflight
from extentflow.jobs.planner import check_cluster
from extentflow.jobs.run import JobRunner
from extentflow.model import Job
from extentflow.queue import MOST_ADDRESSES
from extentflow.services.run_control import EngineChoice, RunControl
from extentflow.wiring import Runtime
from extentflow.wiring.functions import open_job_events
from extentflow.wiring.options import absent_elsewhere

LOCAL_ENGINES = "`extentflow run` with --engine spark or inline, on this machine"

Start = Callable[[SubmittedRuns], str]


@dataclass(frozen=True, slots=True)
class Drivers:
    """Opens drivers of engines, which report to the caller and stop for it."""

    runtime: Runtime
    control: RunControl
    open_engine: Callable[..., Engine]

    def open_for(self, job: Job, engine: EngineChoice) -> AbstractContextManager[JobRunner]:
        """Open a driver for one job after all checks, because an engine may take long to start."""
        runtime = self.runtime
        preflight.require_running(runtime.ledger, job.connector)
        runtime.require_app()
        config = runtime.connectors.revision(job.connector, job.revision)
        if engine.remote:
            require_reachable(config, ())
        preflight.check(config, runtime.broker, [job.version], lambda _version: job.content)
        check_cluster(job, runtime.broker.cluster)

        def start(runs: SubmittedRuns) -> str:
            subject = f"shell-{uuid4().hex}"
            return runs.begin_job(job, subject=subject, then=OnCompletion.PERSON)

        return self.open(engine, config.max_tasks, start)

    @contextmanager
    def open(
        self, engine: EngineChoice, max_tasks: int | None, start: Start | None
    ) -> Iterator[JobRunner]:
        """Open an engine of at most `max_tasks` extents; `start` starts a remote run."""
        runtime, control = self.runtime, self.control
        opened = self.open_engine(
            runtime,
            engine.name,
            cores=engine.cores,
            master=engine.master,
            max_tasks=max_tasks,
            start_run=start,
            say=control.notify,
        )
        with (
            closing(open_job_events(runtime)) as events,
            control.stop_on(opened.stop) as stopped,
            control.watch() as watch,
        ):
            yield JobRunner(
                engine.name,
                opened,
                runtime.planner(),
                runtime.ledger,
                watch,
                stopped,
                events.publish,
                runtime.undeliverable_reason,
                control.step,
            )


def unreachable_reason(config: ConnectorConfig) -> str | None:
    """Return why a remote run can deliver nothing of a connector, and what to do."""
    if config.endpoint_type == LOCAL_FILE:
        return (
            f"connector {config.name} reads files of this machine, which a run of Spark elsewhere "
            f"cannot read; use {LOCAL_ENGINES}"
        )
    absent = absent_elsewhere(config)
    return absent and f"{absent}, or use {LOCAL_ENGINES}"


def require_reachable(config: ConnectorConfig, addresses: Sequence[str]) -> None:
    """Raise Misconfigured where one remote run cannot deliver the addresses."""
    if why := unreachable_reason(config):
        raise Misconfigured(why)
    if len(addresses) > MOST_ADDRESSES:  # they travel on the run's command line
        raise Misconfigured(
            f"{len(addresses)} addresses are more than one run takes ({MOST_ADDRESSES}); give a "
            "prefix or a glob"
        )
