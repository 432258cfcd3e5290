"""Scans for the work of a query without a queue: new objects and open jobs.

    scan ── settles dead workers' slots, publishes ends of jobs
         ├─ takes notifications that a receiver keeps: registers and cuts jobs of their objects
         ├─ lists connectors' prefixes: registers and cuts jobs of objects without a job
         └─ open jobs: plans and closes them, returns their pending extents up to a limit

State is in the ledger. Listing positions are kept there, too, and save requests from scan to scan;
the rest of a job beyond one trigger's limit is kept in memory. A run's listing progress is noted
for its `DrainTracker`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice

from extentflow.discovery.listing import ListingScan, resume_token
from extentflow.discovery.report import Report, attempt_step
from extentflow.jobs.run import cutting
from extentflow.ledger import ConnectorState
from extentflow.model import Extent, Job, JobState
from extentflow.spark.drain import ROUNDS, ListingProgress, brief, recall
from extentflow.spark.query_options import StreamOptions
from extentflow.wiring import Runtime
from extentflow.wiring.arrivals import ArrivalIntake
from extentflow.wiring.functions import RuntimeContext, open_job_admission, publish_pending

log = logging.getLogger(__name__)

LISTING_SECONDS = 30.0
# Of these, for connectors that a `--once` run may wait for, if there are others.
FIRST_SECONDS = 20.0
ENDS_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class PendingWork:
    """A connector's extents, whether their jobs are ordered, and the most tasks at once."""

    extents: Sequence[Extent]
    ordered: Mapping[str, bool]
    most_tasks: int | None


class JobScanner:
    """Scans a connector, or all; a scan lists for LISTING_SECONDS and continues the last one."""

    def __init__(
        self,
        runtime: Runtime,
        options: StreamOptions,
        *,
        stopping: Callable[[], bool],
        open_intake: Callable[[], ArrivalIntake | None] = lambda: None,
    ) -> None:
        self._runtime, self._options, self._run = runtime, options, options.run
        self._stopping = stopping
        self._open_intake = open_intake
        self._intake: ArrivalIntake | None = None
        self._context = RuntimeContext(runtime)
        owner = f"scanner-{runtime.random.getrandbits(64):016x}"
        self._slots = cache(partial(runtime.slots, owner))
        self._admission = cache(partial(open_job_admission, runtime))
        # By connector: a job and its extents that this round of scans has not returned yet.
        self._left: dict[str, tuple[tuple[str, int], Iterator[Extent]]] = {}
        self._rounds: dict[str, ListingProgress] = {}
        self._noted: dict[str, ListingProgress] = {}
        self._list_at = float("-inf")
        # Whether the last scan did not list all objects; the next one continues.
        self.listing = False

    def look(self) -> list[PendingWork]:
        """Return pending work; one connector's or job's error is logged. Raises the ledger's."""
        attempt_step("settling slots and publishing ends", self._tidy_up)
        if (only := self._options.connector) is None:
            names = list(self._runtime.ledger.connectors.names())
        else:
            self._runtime.connectors.latest(only)  # raises if there is none
            names = [only]
        self._runtime.random.shuffle(names)  # the first may fill the limit
        before = self._rounds or recall(self._runtime.ledger, self._run)
        new = ListingProgress(goes=min((one.goes for one in before.values()), default=0))
        self._rounds = {name: before.get(name, new) for name in names}
        if only is None:  # other connectors' notifications are not this query's to take
            attempt_step("taking notifications", self._take_arrivals)
        self._list_all()
        found: list[PendingWork] = []
        for name in names:
            whys: list[str] = []
            step = partial(self._collect, name, found, whys.append)
            attempt_step(f"connector {name}", step, on_failure=whys.append)
            self._rounds[name] = replace(self._rounds[name], held_up=brief(whys))
        attempt_step("noting listing progress", self._note)
        return found

    def _tidy_up(self) -> Report:
        for slot in self._slots().recover_expired():
            log.info("slot %d was left by %s, and is free again", slot.number, slot.owner)
        return Report(ends_published=publish_pending(self._runtime, ENDS_AT_ONCE))

    def _take_arrivals(self) -> Report:
        # A receiver may be started, and make its queue, at any time.
        self._intake = self._intake or self._open_intake()
        if self._intake is not None:
            self._intake.take(most=self._options.most_extents)
        return Report()

    def _note(self) -> Report:
        if self._rounds != self._noted:
            ROUNDS.write(self._runtime.ledger.notes, self._run, self._rounds)
            self._noted = dict(self._rounds)
        return Report()

    def _list_all(self) -> None:
        monotonic = self._runtime.clock.monotonic
        began = monotonic()
        if began < self._list_at:
            return

        def late(seconds: float) -> bool:
            return self._stopping() or monotonic() - began > seconds

        first = [name for name, one in self._rounds.items() if not one.settled]
        others = [name for name, one in self._rounds.items() if one.settled]
        # Connectors that a `--once` run waits for come first, but leave time for the others.
        seconds = FIRST_SECONDS if others else LISTING_SECONDS
        in_time = self._list_some(first, partial(late, seconds))
        in_time &= self._list_some(others, partial(late, LISTING_SECONDS))
        self.listing = not in_time
        if in_time:
            self._list_at = monotonic() + self._options.listing_seconds

    def _list_some(self, names: Sequence[str], late: Callable[[], bool]) -> bool:
        """Return whether there was time for all."""
        rounds = self._rounds
        # Fewest scans first: a slow listing then delays each connector equally often.
        for name in sorted(names, key=lambda one: rounds[one].goes):
            if late():
                return False
            rounds[name] = replace(rounds[name], goes=rounds[name].goes + 1)
            whys: list[str] = []
            step = partial(self._list, name, late)
            attempt_step(f"listing for connector {name}", step, on_failure=whys.append)
            if whys:
                rounds[name] = rounds[name].failure(whys[0])
        return not (names and late())

    def _list(self, name: str, late: Callable[[], bool]) -> Report:
        rounds, ledger, report, refused = self._rounds, self._runtime.ledger, Report(), list[str]()
        stored = ledger.connectors.get(name)
        if stored is None or ledger.connectors.state(name) is not ConnectorState.ENABLED:
            rounds[name] = rounds[name].listed(0, (), at=None)  # it has no objects to take on
            return report
        receive = self._admission(name).receive
        discovery = ListingScan(ledger, receive, late, ledger.now(), refused.append)
        for step in discovery.scan(self._context.listed_prefix(name, stored.revision)):
            report += step
        if report.listings_finished or not self._stopping():
            at = None if report.listings_finished else resume_token(ledger, name)
            rounds[name] = rounds[name].listed(report.jobs_new, refused, at=at)
        return report

    def _collect(
        self, name: str, found: list[PendingWork], on_failure: Callable[[str], object]
    ) -> Report:
        """Add pending extents of a connector's jobs, the oldest first; cancel a stopped one's."""
        ledger, cluster = self._runtime.ledger, self._runtime.broker.cluster
        state = ledger.connectors.state(name)
        room = self._options.most_extents - sum(len(one.extents) for one in found)
        extents: list[Extent] = []
        ordered: dict[str, bool] = {}
        states = (JobState.PLANNING, JobState.RUNNING)
        jobs = [job for one in states for job in ledger.jobs.list(name, one)]
        for job in sorted(jobs, key=lambda one: one.created):
            if self._stopping():
                break
            if state is ConnectorState.STOPPED:
                ledger.jobs.end(job.id, JobState.CANCELLED, f"connector {name} was stopped")
            elif job.cluster == cluster:
                wanted = room - len(extents) if state is ConnectorState.ENABLED else 0
                ordered[job.id] = job.ordered
                what = f"job {job.id} of {job.version.uri}"
                attempt_step(what, partial(self._add, job, wanted, extents), on_failure=on_failure)
        if extents:
            connectors = self._runtime.connectors
            config = connectors.revision(name, connectors.revision_of(extents[0]))
            found.append(PendingWork(extents, ordered, config.max_tasks))
        return Report()

    def _add(self, listed: Job, wanted: int, extents: list[Extent]) -> Report:
        """Plan a job and close it if it is complete; add pending extents, at most `wanted`."""
        planner, ledger = self._runtime.planner(), self._runtime.ledger
        job = ledger.jobs.get(listed.id) or listed  # lists are eventually consistent
        with cutting(ledger, job):
            if wanted:
                job = planner.plan(job)
            job = ledger.jobs.close(job.id) if job.state is JobState.RUNNING else job
            if not wanted or job.state is not JobState.RUNNING:
                return Report()
            # A large job's items are read once per round, not once per scan. The next round finds
            # extents of this one that did not become final; an ordered job has a round per scan.
            opened = (job.id, job.reopened)
            earlier, left = self._left.pop(job.connector, (None, iter(())))
            found = list(islice(left, wanted)) if earlier == opened else []
            if not found:
                left = planner.pending(job)
                found = list(islice(left, wanted))
            if len(found) == wanted and not job.ordered:
                self._left[job.connector] = (opened, left)
            extents += found
        return Report()
