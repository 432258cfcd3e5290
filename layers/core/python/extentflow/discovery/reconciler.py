"""The reconciler recovers what events, messages, planners and workers left undone.

    slots       lease expired, extent in work   fenced, settled, released   `Slots.recover_expired`
    jobs        PLANNING, RUNNING               planned, sent again, closed       `stalled_jobs`
    connectors  ENABLED                         listed; objects without a job     `listing`
    ends        event not published             published                         `JobEvents.sweep`

It runs every few minutes, one at a time (concurrent runs are harmless, but repeat work). Every step
can be interrupted and repeated. A job ends here by its counters, or because it cannot be planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from extentflow.discovery import Arrival
from extentflow.discovery.admission import AdmissionResult
from extentflow.discovery.listing import ListedPrefix, ListingScan
from extentflow.discovery.report import Report, interleave
from extentflow.discovery.stalled_jobs import StalledJobScanner, StallThresholds, is_empty
from extentflow.ledger import ConnectorState, Ledger
from extentflow.queue.routing import JobRouter

PUBLISHED_AT_ONCE = 100


class ReconcilerContext(Protocol):
    """What reconciliation needs from the process."""

    def listed_prefix(self, connector: str, revision: int) -> ListedPrefix:
        """Return what a connector reads. Raises Misconfigured."""

    def cluster(self) -> str:
        """Return the id of the Kafka cluster of this deployment."""


class SlotRecovery(Protocol):
    """What settles slots whose lease has expired: `delivery.slots.Slots`."""

    @property
    def owner(self) -> str:
        """The owner under which slots are taken over."""

    def recover_expired(self) -> Iterator[object]:
        """Settle the slots one by one; yield after each."""


@dataclass(frozen=True, slots=True)
class Reconciler:
    """One process's reconciler. `late` returns whether there is no time for another step.

    `receive` registers jobs (see `JobAdmission.receive`). `publish` publishes a limited number of
    job events and returns how many (see `JobEvents.sweep`). `random` shuffles connectors, so that
    each is first in some run even with short deadlines.
    """

    context: ReconcilerContext
    ledger: Ledger
    slots: SlotRecovery
    router: JobRouter
    receive: Callable[[Arrival], AdmissionResult]
    publish: Callable[[int], int]
    random: Random
    late: Callable[[], bool] = lambda: False
    thresholds: StallThresholds = field(default_factory=StallThresholds)

    def run(self) -> Report:
        """Do one step of each part in turn while time allows; count and log failed steps."""
        empty = is_empty(self.router.dispatch.queue)  # read before anything is sent
        parts = {
            "slots": self._sweep(),
            "jobs": self._jobs(empty_queue=empty),
            "listings": self._listings(),
            "job events": self._job_events(),
        }
        report = sum(interleave(parts), Report())
        if report.jobs_closed or report.jobs_failed:  # meanwhile
            report += sum(interleave({"job events": self._job_events()}), Report())
        return report

    def _sweep(self) -> Iterator[Report]:
        swept = self.slots.recover_expired()
        while not self.late() and next(swept, None) is not None:
            yield Report(slots_recovered=1)

    def _jobs(self, *, empty_queue: bool) -> Iterator[Report]:
        watch = StalledJobScanner(
            ledger=self.ledger,
            router=self.router,
            thresholds=self.thresholds,
            late=self.late,
            cluster=self.context.cluster(),
            empty_queue=empty_queue,
        )
        names = list(self.ledger.connectors.names())
        self.random.shuffle(names)
        yield from interleave(
            {
                f"jobs of connector {name}": (step.of(name) for step in watch.scan(name))
                for name in names
            }
        )

    def _job_events(self) -> Iterator[Report]:
        published = PUBLISHED_AT_ONCE
        while published == PUBLISHED_AT_ONCE and not self.late():
            published = self.publish(PUBLISHED_AT_ONCE)
            yield Report(ends_published=published)

    def _listings(self) -> Iterator[Report]:
        since = self.ledger.now()
        discovery = ListingScan(self.ledger, self.receive, self.late, since)
        connectors = list(self.ledger.connectors.list())
        self.random.shuffle(connectors)

        def listing(name: str, revision: int) -> Iterator[Report]:
            if self.ledger.connectors.state(name) is ConnectorState.ENABLED:
                for step in discovery.scan(self.context.listed_prefix(name, revision)):
                    yield step.of(name)

        yield from interleave(
            {f"listing for connector {c.name}": listing(c.name, c.revision) for c in connectors}
        )
