"""What a standing query finds to do where there is no queue: new objects, and open jobs.

Owns: one look after the other, how much is taken on, who is paused. Refuses to know: Spark.

    look ── dead workers' slots settled, ends announced
         ├─ connectors' prefixes listed: objects without a job get one, and are cut
         └─ open jobs: planned on, closed, or their pending extents, at most so many

Truth is the ledger's. Nothing is remembered from look to look but how far listings are, there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from extentflow.errors import (
    CorruptRecord,
    ExtentflowError,
    Misconfigured,
    ObjectChanged,
    Permanent,
    Retryable,
    StoreUnavailable,
    reason,
)
from extentflow.ledger import ConnectorState
from extentflow.model import Extent, Job, JobState
from extentflow.reconciliation import Territory
from extentflow.reconciliation.listing import Discovery
from extentflow.wiring import Site
from extentflow.wiring.announcing import sweep_announcements
from extentflow.wiring.functions import SiteSurroundings, open_admission

log = logging.getLogger(__name__)

ENDS_AT_ONCE = 100


@dataclass(slots=True)
class Found:
    """Extents to run, with what packing them asks for."""

    extents: list[Extent] = field(default_factory=list)
    ordered: dict[str, bool] = field(default_factory=dict)


class Standing:
    """Looks for work, over and over. `connector` None looks after all that are RUNNING."""

    def __init__(
        self, site: Site, *, connector: str | None, most: int, stopping: Callable[[], bool]
    ) -> None:
        self._site = site
        self._connector = connector
        self._most = most
        self._stopping = stopping
        self._surroundings = SiteSurroundings(site)
        self._admission = open_admission(site)

    def look(self) -> Found:
        """Return what there is to do, at most so many extents.

        One connector or job that makes trouble is told in the log and holds up no other.

        Raises:
            LedgerUnavailable, SinkUnavailable: nothing can be found out.
            Misconfigured: there is no such connector.
        """
        self._tidy_up()
        found = Found()
        for name, revision in self._connectors():
            if self._site.ledger.connector_state(name) is ConnectorState.RUNNING:
                self._list(name, revision)
                self._collect(name, found)
        return found

    def _connectors(self) -> Iterator[tuple[str, int]]:
        if self._connector is not None:
            yield self._connector, self._site.connector(self._connector)[1]
            return
        for stored in self._site.ledger.connectors():
            yield stored.name, stored.revision

    def _tidy_up(self) -> None:
        """Do what is left undone by workers and drivers that are gone."""
        slots = self._site.slots(f"standing-{self._site.random.getrandbits(64):016x}")
        for slot in slots.sweep():
            log.info("slot %d was left by %s, and is free again", slot.number, slot.owner)
        try:
            while sweep_announcements(self._site, ENDS_AT_ONCE) == ENDS_AT_ONCE:
                pass
        except (Retryable, Misconfigured) as exc:
            log.warning("ends of jobs are announced later: %s", exc)

    def _list(self, name: str, revision: int) -> None:
        """Make jobs of objects that have none."""
        discovery = Discovery(
            ledger=self._site.ledger,
            receive=self._admission.receive,
            late=self._stopping,
            since=self._site.clock.wall(),
        )
        try:
            territory: Territory = self._surroundings.territory(name, revision)
            for step in discovery.look(territory):
                log.debug("connector %s: %s", name, step)
        except ExtentflowError as exc:
            log.warning("connector %s is not listed to its end now: %s", name, exc)

    def _collect(self, name: str, found: Found) -> None:
        """Add pending extents of a connector's open jobs, the newest job last."""
        ledger, cluster = self._site.ledger, self._site.broker.cluster
        states = (JobState.PLANNING, JobState.RUNNING)
        jobs = [job for state in states for job in ledger.jobs(name, state)]
        for job in sorted(jobs, key=lambda one: one.created):
            room = self._most - len(found.extents)
            if not room or self._stopping():
                return
            if job.cluster == cluster:
                found.ordered[job.id] = job.ordered
                found.extents += islice(self._pending(job), room)

    def _pending(self, listed: Job) -> Iterator[Extent]:
        """Yield what is left of a job; one of which nothing is left, or can be, ends here."""
        site = self._site
        job = site.ledger.job(listed.id) or listed
        try:
            job = site.planner().plan(job)
            job = site.ledger.close(job.id) if job.state is JobState.RUNNING else job
            if job.state is JobState.RUNNING:
                yield from site.planner().pending(job)
        except ObjectChanged as exc:
            site.ledger.end(job.id, JobState.SUPERSEDED, reason(exc))
        except (Permanent, CorruptRecord) as exc:
            site.ledger.end(job.id, JobState.FAILED, reason(exc))
        except (StoreUnavailable, Misconfigured) as exc:
            log.warning("job %s of %s waits: %s", job.id, job.version.uri, exc)
