"""Scans for the work of a query without a queue: new objects and open jobs.

    scan ── settles dead workers' slots, publishes ends of jobs
         ├─ lists connectors' prefixes: registers and cuts jobs of objects without a job
         └─ open jobs: plans and closes them, returns their pending extents up to a limit

State is in the ledger. Listing positions are kept there, too, and save requests from scan to scan;
the rest of a job beyond one trigger's limit is kept in memory. A run's listing progress is noted
for its `DrainTracker`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import islice

from extentflow.delivery.slots import Slots
from extentflow.discovery.listing import ListingScan, resume_token
from extentflow.discovery.report import Report, attempt_step
from extentflow.jobs.run import cutting
from extentflow.ledger import ConnectorState
from extentflow.model import Extent, Job, JobState
from extentflow.spark.drain import ListingProgress, recall, remember
from extentflow.spark.options import StreamOptions
from extentflow.wiring import Runtime
from extentflow.wiring.functions import RuntimeContext, open_job_admission, publish_pending

log = logging.getLogger(__name__)

LISTING_SECONDS = 30.0
# The share of connectors that a `--once` run may wait for, if there are others.
FIRST_SECONDS = 20.0
ENDS_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class PendingWork:
    """A connector's extents to run, what packing them asks for, and the most tasks at once."""

    extents: Sequence[Extent]
    ordered: Mapping[str, bool]
    most_tasks: int | None


@dataclass(frozen=True, slots=True)
class _Left:
    """What a round over a job's pending extents has not handed out yet."""

    job: str
    reopened: int
    extents: Iterator[Extent]


class JobScanner:
    """WorkSource for work, over and over: of one connector, or of all that are RUNNING.

    A scan returns a limited number of extents. Listing takes `LISTING_SECONDS` per scan, continues
    where the last one stopped, and starts again an interval after all is listed.
    """

    def __init__(
        self, runtime: Runtime, options: StreamOptions, *, stopping: Callable[[], bool]
    ) -> None:
        self._runtime = runtime
        self._run = options.run
        self._connector = options.connector
        self._most = options.most_extents
        self._rest_seconds = options.listing_seconds
        self._stopping = stopping
        self._surroundings = RuntimeContext(runtime)
        self._admission = cache(partial(open_job_admission, runtime))
        self._left: dict[str, _Left] = {}  # by connector
        self._rounds: dict[str, ListingProgress] | None = None
        self._noted: dict[str, ListingProgress] = {}
        self._list_at = float("-inf")
        self._late = False

    @property
    def listing(self) -> bool:
        """Whether the last scan did not list all objects; the next one continues."""
        return self._late

    def look(self) -> list[PendingWork]:
        """Return what there is to do.

        A failing connector or job is logged and delays no other.

        Raises:
            LedgerUnavailable: nothing can be found out.
            Misconfigured: there is no such connector.
        """
        attempt_step("settling slots and publishing ends", self._tidy_up)
        names = self._names()
        self._runtime.random.shuffle(names)  # the first may fill the limit
        before = recall(self._runtime.ledger, self._run) if self._rounds is None else self._rounds
        new = ListingProgress(goes=min((one.goes for one in before.values()), default=0))
        self._rounds = rounds = {name: before.get(name, new) for name in names}
        self._list_all(rounds)
        found: list[PendingWork] = []
        for name in names:
            whys: list[str] = []
            step = partial(self._collect, name, found, whys.append)
            attempt_step(f"connector {name}", step, on_failure=whys.append)
            rounds[name] = rounds[name].holding_up(whys)
        attempt_step("noting listing progress", self._note)
        return found

    def _names(self) -> list[str]:
        if self._connector is None:
            return list(self._runtime.ledger.connectors.names())
        self._runtime.connectors.latest(self._connector)
        return [self._connector]

    def _tidy_up(self) -> Report:
        """Settle the slots of dead workers, and publish the ends that a driver missed."""
        for slot in self._slots.recover_expired():
            log.info("slot %d was left by %s, and is free again", slot.number, slot.owner)
        return Report(ends_announced=publish_pending(self._runtime, ENDS_AT_ONCE))

    def _note(self) -> Report:
        """Note changed listing progress."""
        if self._rounds is not None and self._rounds != self._noted:
            remember(self._runtime.ledger, self._run, self._rounds)
            self._noted = dict(self._rounds)
        return Report()

    @cached_property
    def _slots(self) -> Slots:
        return self._runtime.slots(f"standing-{self._runtime.random.getrandbits(64):016x}")

    # -- objects without a job ------------------------------------------------------------------

    def _list_all(self, rounds: dict[str, ListingProgress]) -> None:
        monotonic = self._runtime.clock.monotonic
        began = monotonic()
        if began < self._list_at:
            return

        def late(seconds: float) -> bool:
            return self._stopping() or monotonic() - began > seconds

        first = [name for name, one in rounds.items() if not one.settled]
        others = [name for name, one in rounds.items() if one.settled]
        seconds = FIRST_SECONDS if others else LISTING_SECONDS
        in_time = self._list_some(first, rounds, partial(late, seconds))
        in_time &= self._list_some(others, rounds, partial(late, LISTING_SECONDS))
        self._late = not in_time
        if in_time:
            self._list_at = monotonic() + self._rest_seconds

    def _list_some(
        self, names: Sequence[str], rounds: dict[str, ListingProgress], late: Callable[[], bool]
    ) -> bool:
        """List connectors, who had the fewest goes first; return whether there was time for all."""
        for name in sorted(names, key=lambda one: rounds[one].goes):
            if late():
                return False
            rounds[name] = rounds[name].begun()
            step = partial(self._list, name, rounds, late)
            what = f"listing for connector {name}"
            attempt_step(what, step, on_failure=partial(_fail, rounds, name))
        return not (names and late())

    def _list(
        self, name: str, rounds: dict[str, ListingProgress], late: Callable[[], bool]
    ) -> Report:
        """Make jobs of a connector's objects that have none."""
        ledger, report, refused = self._runtime.ledger, Report(), list[str]()
        stored = ledger.connectors.get(name)
        if stored is None or ledger.connectors.state(name) is not ConnectorState.RUNNING:
            rounds[name] = rounds[name].ended(0, ())  # it has no objects to take on
            return report
        receive = self._admission(name).receive
        discovery = ListingScan(ledger, receive, late, self._runtime.clock.wall(), refused.append)
        for step in discovery.look(self._surroundings.territory(name, stored.revision)):
            report += step
        if report.listings_finished:
            rounds[name] = rounds[name].ended(report.jobs_new, refused)
        elif not self._stopping():
            at = resume_token(ledger, name)
            rounds[name] = rounds[name].going_on(at, report.jobs_new, refused)
        return report

    # -- open jobs ------------------------------------------------------------------------------

    def _collect(
        self, name: str, found: list[PendingWork], on_failure: Callable[[str], object]
    ) -> Report:
        """Add what a connector's open jobs have left; those of a stopped one end.

        `on_failure` is called with the reason why a job fails.
        """
        ledger, cluster = self._runtime.ledger, self._runtime.broker.cluster
        state = ledger.connectors.state(name)
        room = self._most - sum(len(one.extents) for one in found)
        extents: list[Extent] = []
        ordered: dict[str, bool] = {}
        for job in self._open(name):
            if self._stopping():
                break
            if state is ConnectorState.STOPPED:
                ledger.jobs.end(job.id, JobState.CANCELLED, f"connector {name} was stopped")
            elif job.cluster == cluster:
                wanted = room - len(extents) if state is ConnectorState.RUNNING else 0
                ordered[job.id] = job.ordered
                what = f"job {job.id} of {job.version.uri}"
                attempt_step(what, partial(self._add, job, wanted, extents), on_failure=on_failure)
        if extents:
            most_tasks = self._runtime.connectors.revision(
                name, self._runtime.connectors.revision_of(extents[0])
            ).max_tasks
            found.append(PendingWork(extents, ordered, most_tasks))
        return Report()

    def _open(self, name: str) -> list[Job]:
        """Return a connector's open jobs, the oldest first."""
        states = (JobState.PLANNING, JobState.RUNNING)
        jobs = [job for state in states for job in self._runtime.ledger.jobs.list(name, state)]
        return sorted(jobs, key=lambda one: one.created)

    def _add(self, listed: Job, wanted: int, extents: list[Extent]) -> Report:
        """Plan a job and close it as far as it goes; add what is left, `wanted` at most."""
        runtime = self._runtime
        job = runtime.ledger.jobs.get(listed.id) or listed
        with cutting(runtime.ledger, job):
            if wanted:
                job = runtime.planner().plan(job)
            job = runtime.ledger.jobs.close(job.id) if job.state is JobState.RUNNING else job
            if wanted and job.state is JobState.RUNNING:
                extents += self._next(job, wanted)
        return Report()

    def _next(self, job: Job, wanted: int) -> list[Extent]:
        """Return pending extents, at most `wanted`, on from those of the last look.

        A large job's items are read once per round, not once per look. What was handed out and came
        to no end is found by the next round: when this one is over, and at once where extents keep
        their order.
        """
        left = self._left.pop(job.connector, None)
        same = left is not None and (left.job, left.reopened) == (job.id, job.reopened)
        found = list(islice(left.extents, wanted)) if left is not None and same else []
        if left is None or not found:
            left = _Left(job.id, job.reopened, self._runtime.planner().pending(job))
            found = list(islice(left.extents, wanted))
        if len(found) == wanted and not job.ordered:
            self._left[job.connector] = left
        return found


def _fail(rounds: dict[str, ListingProgress], name: str, why: str) -> None:
    rounds[name] = rounds[name].failure(why)
