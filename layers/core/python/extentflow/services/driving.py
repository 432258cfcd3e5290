"""Engines of runs: what each can reach, and the driver that runs jobs on it.

Tests: unit/services/test_runs.py
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Protocol

from extentflow.config.connector import ConnectorConfig
from extentflow.config.connector_keys import LOCAL_FILE
from extentflow.engines import Engine
from extentflow.engines.submitted_runs import SubmittedRuns
from extentflow.errors import Misconfigured
from extentflow.jobs.events import JobEvents
from extentflow.jobs.planner import Planner
from extentflow.jobs.run import JobRunner, publish_unless_unavailable
from extentflow.ledger import Ledger
from extentflow.model import Job
from extentflow.queue import MOST_ADDRESSES
from extentflow.services.run_control import EngineChoice, RunControl
from extentflow.wiring.options import absent_elsewhere

LOCAL_ENGINES = "`extentflow run` with --engine spark or inline, on this machine"

Start = Callable[[SubmittedRuns], str]


class OpenEngine(Protocol):
    """Opens the engine called `name`; see `extentflow.wiring.open_engine`."""

    def __call__(
        self,
        name: str,
        *,
        cores: int | None,
        master: str | None,
        max_tasks: int | None,
        start_run: Start | None,
        say: Callable[[str], object],
    ) -> Engine:
        """Return the engine. Raises Misconfigured where it cannot run here."""


@dataclass(frozen=True, slots=True)
class Drivers:
    """Opens drivers of engines, which report to the caller and stop for it.

    `open_events` opens what publishes ends of jobs. `undeliverable_reason` is that of `JobRunner`.
    """

    control: RunControl
    ledger: Ledger
    planner: Planner
    open_engine: OpenEngine
    open_events: Callable[[], JobEvents]
    undeliverable_reason: Callable[[Job], str]

    @contextmanager
    def open(
        self, engine: EngineChoice, max_tasks: int | None, start: Start | None
    ) -> Iterator[JobRunner]:
        """Open an engine of at most `max_tasks` extents; `start` starts a remote run."""
        control = self.control
        opened = self.open_engine(
            engine.name,
            cores=engine.cores,
            master=engine.master,
            max_tasks=max_tasks,
            start_run=start,
            say=control.notify,
        )
        with (
            closing(self.open_events()) as events,
            control.stop_on(opened.stop) as stopped,
            control.watch() as watch,
        ):
            yield JobRunner(
                engine.name,
                opened,
                self.planner,
                self.ledger,
                watch,
                stopped,
                events.publish,
                self.undeliverable_reason,
                control.step,
            )

    def publish(self, jobs: Sequence[Job]) -> None:
        """Publish the ends of jobs, where brokers and buses are available."""
        with closing(self.open_events()) as events:
            publish_unless_unavailable(events.publish, jobs)


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
