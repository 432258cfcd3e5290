"""The reconciler: mends what events, messages, planners and workers left undone.

Owns: what is looked after, in turns, within the time there is. Refuses to know: schedules,
adapters.

    slots       lease over, at work still   fenced, settled, freed                  (`Slots.sweep`)
    jobs        PLANNING, RUNNING           planned on, sent again, closed          (`jobs`)
    connectors  RUNNING                     listed; what has no job is an arrival   (`listing`)
    ends        nobody was told             announced                      (`JobEvents.sweep`)

Run every few minutes, by one at a time (two would do no harm, and most things twice). Every step
may be cut short and repeated. A job ends here by its counters, or because it cannot be planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from extentflow.delivery.slots import Slots
from extentflow.discovery import Arrival
from extentflow.discovery.admission import Received
from extentflow.discovery.listing import Discovery, Territory
from extentflow.discovery.report import Report, in_turns
from extentflow.discovery.stalled_jobs import JobWatch, Patience, held_by_nobody, is_empty
from extentflow.engines.emr.submitted import RunOwnership
from extentflow.ledger import ConnectorState, Ledger
from extentflow.model import Job
from extentflow.queue.dispatch import Dispatch

ANNOUNCED_AT_ONCE = 100

__all__ = ["Patience", "Reconciliation", "Report", "Surroundings", "Territory"]


class Surroundings(Protocol):
    """What reconciling needs of a process's outside world."""

    def territory(self, connector: str, revision: int) -> Territory:
        """Return what a connector reads. Raises Misconfigured."""
        ...

    def cluster(self) -> str:
        """Return the id of the Kafka cluster that our workers deliver to."""
        ...


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """One process's reconciler. `late` says that there is no time for another step.

    `receive` makes jobs of an arrival (see `Reception.receive`). `announce` tells of so many ends
    of jobs at most, and returns of how many it did (see `JobEvents.sweep`). `random` draws who
    begins, so that with little time nobody always comes last. `hold` says which run of Spark has a
    job.
    """

    surroundings: Surroundings
    ledger: Ledger
    slots: Slots
    dispatch: Dispatch
    receive: Callable[[Arrival], Received]
    announce: Callable[[int], int]
    random: Random
    late: Callable[[], bool] = lambda: False
    patience: Patience = field(default_factory=Patience)
    hold: Callable[[Job], RunOwnership] = held_by_nobody

    def run(self) -> Report:
        """Do what time allows, a step of each part in turn; one that fails is told and counted."""
        report = Report()
        empty = is_empty(self.dispatch.queue)  # asked before anything is sent
        parts = {
            "slots": self._sweep(),
            "jobs": self._jobs(empty_queue=empty),
            "listings": self._listings(),
            "announcements": self._announcements(),
        }
        for step in in_turns(parts):
            report += step
        if report.jobs_closed or report.jobs_failed:  # meanwhile
            for step in in_turns({"announcements": self._announcements()}):
                report += step
        return report

    def _sweep(self) -> Iterator[Report]:
        swept = self.slots.sweep()
        while not self.late() and next(swept, None) is not None:
            yield Report(slots_recovered=1)

    def _jobs(self, *, empty_queue: bool) -> Iterator[Report]:
        watch = JobWatch(
            ledger=self.ledger,
            dispatch=self.dispatch,
            patience=self.patience,
            late=self.late,
            cluster=self.surroundings.cluster(),
            empty_queue=empty_queue,
            hold=self.hold,
        )
        names = list(self.ledger.connectors.names())
        self.random.shuffle(names)
        yield from in_turns({f"jobs of connector {name}": watch.look(name) for name in names})

    def _announcements(self) -> Iterator[Report]:
        told = ANNOUNCED_AT_ONCE
        while told == ANNOUNCED_AT_ONCE and not self.late():
            told = self.announce(ANNOUNCED_AT_ONCE)
            yield Report(ends_announced=told)

    def _listings(self) -> Iterator[Report]:
        since = self.dispatch.planner.clock.wall()
        discovery = Discovery(self.ledger, self.receive, self.late, since)
        connectors = list(self.ledger.connectors.list())
        self.random.shuffle(connectors)
        yield from in_turns(
            {
                f"listing for connector {one.name}": self._listing(
                    discovery, one.name, one.revision
                )
                for one in connectors
            }
        )

    def _listing(self, discovery: Discovery, connector: str, revision: int) -> Iterator[Report]:
        if self.ledger.connectors.state(connector) is ConnectorState.RUNNING:
            yield from discovery.look(self.surroundings.territory(connector, revision))
