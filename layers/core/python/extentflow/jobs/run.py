"""Run jobs on an engine until every job is final, and report them.

jobs ──pending──> extents ──pack──> tasks ──Engine.run──> receipts
└─ close every job; totals are the ledger's
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from extentflow.engines import Engine, RunListener, pack
from extentflow.errors import (
    Conflict,
    CorruptRecord,
    ExtentflowError,
    Misconfigured,
    ObjectChanged,
    Permanent,
    ProgressUnknown,
    StoreUnavailable,
    reason,
)
from extentflow.jobs.events import job_fields
from extentflow.jobs.planner import JobRequest, Planner, in_pages
from extentflow.jobs.preflight import ConnectorStateCache
from extentflow.ledger import ConnectorState, JobProgress, Ledger
from extentflow.ledger.summaries import committed, summary
from extentflow.model import Extent, Job, JobState, Outcome, Receipt
from extentflow.wording import again_command

log = logging.getLogger(__name__)

# Ranges, offsets, slots: what differs between extents that fail for one cause.
NUMBER = re.compile(r"\d+")
UNTRIED = (JobState.FAILED, JobState.CANCELLED)
WAVE_EXTENTS = 4_096  # few enough for any driver's memory

Step: TypeAlias = Callable[[str, int], object]


@dataclass(frozen=True, slots=True)
class JobReport:
    """One job as it stands after a run; totals are the ledger's.

    `reason` is why it ended, or which connector is paused or stopped.
    `records`, `bad` and `filtered` count what is committed, that of unfinished extents included;
    their sum is what was read. `revision` is the connector's that the job pins.
    `delivered_before`: the job was DONE before this run. `untried`: it was FAILED or CANCELLED
    before, and this run left it so.
    `earlier`: the object was replaced or deleted since an earlier run left its job open.
    """

    job: str
    uri: str
    connector: str
    state: str
    reason: str
    extents: int
    done: int
    failed: int
    records: int
    bad: int
    object_bytes: int
    filtered: int = 0
    revision: int = 0
    delivered_before: bool = False
    untried: bool = False
    earlier: bool = False

    @property
    def settled(self) -> bool:
        """Whether it is DONE, or ended because another version of its object took its place."""
        superseded = self.earlier and self.state == JobState.SUPERSEDED
        return self.state == JobState.DONE or superseded

    @property
    def begun(self) -> bool:
        """Whether anything of it is committed, or may be, by this run or an earlier one."""
        moved = self.records or self.bad or self.filtered or self.done
        return bool(moved) and not self.delivered_before


@dataclass(frozen=True, slots=True)
class RunReport:
    """The result of one run.

    `left_out`: requested objects are not among its jobs, because the run was stopped, its connector
    was paused or stopped, or jobs cannot be delivered from here. `broken`: an error ended it, the
    first of `errors`.
    """

    engine: str
    seconds: float = 0.0
    records_this_run: int = 0
    bytes_read: int = 0
    worker_peak_rss_bytes: int = 0
    jobs: tuple[JobReport, ...] = ()
    errors: tuple[str, ...] = ()
    stopped: bool = False
    left_out: bool = False
    broken: bool = False

    @property
    def ok(self) -> bool:
        """Whether every job is settled and none was left out."""
        delivered = all(job.settled for job in self.jobs)
        return delivered and not self.left_out and not self.broken

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {**asdict(self), "ok": self.ok}


@dataclass(slots=True)
class ReceiptTotals:
    """Sums receipts and passes them on to `watch`; a repeated receipt counts once.

    Receipts repeat while their wave runs, so that the last two waves are enough to find them.
    """

    watch: RunListener
    records: int = 0
    bytes_read: int = 0
    peak_rss_bytes: int = 0
    _failed: dict[str, tuple[str, int]] = field(default_factory=dict)
    _seen: dict[Receipt, None] = field(default_factory=dict)

    @property
    def errors(self) -> tuple[str, ...]:
        """What failed, a line per cause: extents that failed alike are counted, not repeated."""
        return tuple(
            f"{first} (and {others} more extents alike)" if others else first
            for first, others in self._failed.values()
        )

    def on_extent(self, extent: Extent) -> None:
        """See `RunListener`."""
        self.watch.on_extent(extent)

    def on_receipt(self, receipt: Receipt) -> None:
        """See `RunListener`."""
        if receipt in self._seen:
            return
        self._seen[receipt] = None
        if len(self._seen) > 2 * WAVE_EXTENTS:
            del self._seen[next(iter(self._seen))]
        self.records += receipt.records
        self.bytes_read += receipt.bytes_read
        self.peak_rss_bytes = max(self.peak_rss_bytes, receipt.peak_rss_bytes)
        if receipt.outcome is Outcome.FAILED:
            cause = NUMBER.sub("#", receipt.reason)
            first, others = self._failed.get(cause, (receipt.reason, -1))
            self._failed[cause] = (first, others + 1)
        self.watch.on_receipt(receipt)


@dataclass(frozen=True, slots=True)
class JobRunner:
    """A driver with its engine. `stopped` returns whether a person stopped the run.

    `publish` receives every job of a run that ended. `undeliverable_reason` returns why a job
    cannot be delivered from here under the revision that it pins, "" where it can. `step` receives
    what is done before extents run, and to how many jobs it was.
    """

    name: str
    engine: Engine
    planner: Planner
    ledger: Ledger
    watch: RunListener
    stopped: Callable[[], bool] = lambda: False
    publish: Callable[[Sequence[Job]], object] = lambda _jobs: None
    undeliverable_reason: Callable[[Job], str] = lambda _job: ""
    step: Step = lambda _what, _done: None

    def deliver(
        self,
        requests: Iterator[JobRequest],
        *,
        again: float | None = None,
        failed: bool = False,
        earlier: Sequence[Job] = (),
    ) -> RunReport:
        """Register a job per request and run them all; jobs that are final are only reported.

        `earlier` are open jobs of versions that were replaced or deleted since; they are run, too,
        and end SUPERSEDED or FAILED where their version is gone.

        An object that cannot be cut is a FAILED job of the report. An object whose open job pins a
        revision that cannot be used here is an error; the others run. Once the connector is paused
        or stopped, or the run is stopped, nothing more is registered. `again` and `failed`: see
        `Planner.register`.
        """
        since = self.ledger.now()
        jobs: list[Job] = []
        left: list[str] = []
        admit = partial(self.planner.admit, again=again, failed=failed)
        complete = self._admit(requests, admit, jobs, left, failed=failed)
        known = [job for job in earlier if self._is_deliverable(job, left, replaced=True)]
        jobs = [*known, *jobs]
        result = self._drive(jobs, left_out=not complete or bool(left), errors=left, since=since)
        ids = {job.id for job in earlier}
        return replace(
            result, jobs=tuple(replace(job, earlier=job.job in ids) for job in result.jobs)
        )

    def _admit(
        self,
        requests: Iterator[JobRequest],
        admit: Callable[[JobRequest], Job],
        jobs: list[Job],
        left: list[str],
        *,
        failed: bool,
    ) -> bool:
        """Add a job per request to `jobs`, or why not to `left`; return whether that was all."""
        states = self._states()
        refusals = Permanent if failed else ProgressUnknown
        for request in requests:
            if self.stopped():
                return False
            if why := states.skip_reason(request.connector):
                log.warning("nothing more is registered: %s", why)
                left.append(f"{why}; not every object has a job")
                return False
            self.step("registering", len(jobs))
            try:
                job = admit(request)
            except refusals as exc:  # of a job that is replayed; the others run
                left.append(str(exc))
                continue
            same = (job.connector, job.revision) == (request.connector, request.revision)
            if not job.state.open or same or self._is_deliverable(job, left):
                jobs.append(job)
        return True

    def _is_deliverable(self, job: Job, left: list[str], *, replaced: bool = False) -> bool:
        """Whether a job can be delivered from here; otherwise why not is added to `left`.

        `replaced`: its object was replaced or deleted since, so that no other job takes its place.
        """
        why = self.undeliverable_reason(job)
        if why:
            remedy = (
                "correct that and run again; or cancel all open jobs of the connector with "
                f"`extentflow stop {job.connector}`, then `extentflow resume {job.connector}`"
                if replaced
                else f"{again_command(job.version.address, job.connector)} starts a full delivery"
                " under the latest revision (which delivers these records twice)"
            )
            left.append(f"{job.version.uri}: job {job.id} is left out: {why}; {remedy}")
        return not why

    def replay(
        self, job: Job, *, ordinal: int | None = None, accept_duplicates: bool = False
    ) -> RunReport:
        """Run a job's failed extents (or one) and the pending ones; see `Planner.replay`."""
        since = self.ledger.now()
        replayed = self.planner.replay(job, ordinal=ordinal, accept_duplicates=accept_duplicates)
        return self._drive([replayed], since=since)

    def replay_all(
        self, jobs: Iterable[Job], *, refused: Sequence[str] = (), accept_duplicates: bool = False
    ) -> RunReport:
        """Replay jobs; one that is refused stays as it is, and is an error of the report.

        `refused` are errors of jobs that are left out. Once the connector is paused, or the run is
        stopped, no further one is opened.
        """
        known: list[Job] = []
        errors = list(refused)
        drive = partial(self._drive, known, errors=errors, since=self.ledger.now())
        states = self._states()
        for job in jobs:
            if self.stopped():
                return drive(left_out=True)
            if why := states.skip_reason(job.connector):
                errors.append(f"{why}; jobs are left")
                return drive(left_out=True)
            try:
                if self.planner.is_followed(job):
                    raise Conflict(f"{job.version.uri}: job {job.id} was started again meanwhile")
                known.append(self.planner.replay(job, accept_duplicates=accept_duplicates))
            except Permanent as exc:
                errors.append(str(exc))
                known.append(job)
        return drive(left_out=bool(refused))

    def resume(self, job: Job) -> RunReport:
        """Run the pending extents of a job; a final job is only reported."""
        return self._drive([job], since=self.ledger.now())

    def _drive(
        self,
        jobs: Sequence[Job],
        *,
        left_out: bool = False,
        errors: Sequence[str] = (),
        since: float,
    ) -> RunReport:
        """Run jobs and report them; `errors` are why not all are run.

        `since` is when the run began, in seconds since the epoch on the ledger's clock.

        An error that ends the run before anything was delivered is raised; later ones are part of
        the report, because committed records stay.
        """
        totals = ReceiptTotals(self.watch)
        started = time.monotonic()
        broken: ExtentflowError | None = None
        ended: Sequence[Job] = jobs
        try:
            ended = self.drive(jobs, totals)
        except ExtentflowError as exc:
            broken = exc
        finally:
            self.engine.close()
        reports = self._reports(jobs, ended, broken, since)
        if broken is not None and reports is not None and not any(r.begun for r in reports):
            raise broken
        result = RunReport(
            engine=self.name,
            seconds=time.monotonic() - started,
            records_this_run=totals.records,
            bytes_read=totals.bytes_read,
            worker_peak_rss_bytes=totals.peak_rss_bytes,
            jobs=reports or (),
            errors=(*str(broken or "").splitlines(), *errors, *totals.errors),
            stopped=self.stopped(),
            left_out=left_out,
            broken=broken is not None,
        )
        if broken is None and not self.stopped():  # a person waits for the end
            publish_unless_unavailable(self.publish, ended)
        return result

    def _reports(
        self,
        jobs: Sequence[Job],
        ended: Sequence[Job],
        broken: ExtentflowError | None,
        since: float,
    ) -> tuple[JobReport, ...] | None:
        """Return the jobs' reports; None where the ledger is unavailable after a broken run."""
        before = {job.id: job.state for job in jobs}
        # One that this run could not plan has ended, too, when its jobs are known.
        earlier = {job.id for job in jobs if job.ended < since}
        states = self._states()  # an empty cache: the current states
        try:
            current = [self.ledger.jobs.get(job.id) or job if broken else job for job in ended]
            facts = ((job, summary(self.ledger, job)) for job in current)
            return tuple(
                replace(
                    report_of(job, found.progress),
                    reason=(job.state.open and states.skip_reason(job.connector)) or found.cause,
                    delivered_before=before.get(job.id) is JobState.DONE,
                    untried=job.state in UNTRIED
                    and job.state is before.get(job.id)
                    and job.id in earlier,
                )
                for job, found in facts
            )
        except ExtentflowError as exc:
            if broken is None:
                raise
            log.warning("the states of the jobs are unknown: %s", exc)
            return None

    def drive(self, jobs: Sequence[Job], watch: RunListener) -> list[Job]:
        """Run the pending extents of open jobs, in waves; return every job as the ledger has it.

        Once the run is stopped, or the connector paused, the rest is left to a later run. Open jobs
        of a STOPPED connector end CANCELLED, as anywhere.
        """
        left = _SkippedJobs(watch, self._states())
        running: list[Job] = []
        for job in jobs:
            self.step("planning", len(running))
            skipped = self.stopped() or left.is_skipped(job)
            running.append(job if skipped else self._planned(job))
        ordered = {job.id: job.ordered for job in running}
        open_jobs = (job for job in running if job.state is JobState.RUNNING)
        extents = (extent for job in open_jobs for extent in self._pending(job, left))
        for wave in in_pages(extents, WAVE_EXTENTS):
            if self.stopped():
                break
            for extent in wave:
                watch.on_extent(extent)
            self.engine.run(pack(wave, lambda job: ordered[job], self.engine.cores), left)
        now = self._states()  # nothing known before: jobs end by what holds
        ended: list[Job] = []
        for job in running:
            self.step("closing", len(ended))
            ended.append(closed(job.id, self.ledger, now))
        return ended

    def _planned(self, job: Job) -> Job:
        """Plan a job; one whose store is unavailable stays PLANNING, and the others run."""
        try:
            return self.planner.plan(job)
        except (StoreUnavailable, Misconfigured) as exc:
            log.warning("%s is not planned yet: %s", job.version.uri, exc)
            return job

    def _pending(self, job: Job, left: _SkippedJobs) -> Iterator[Extent]:
        """Yield a job's pending extents; an object that cannot be cut again ends its own job."""
        try:
            with cutting(self.ledger, job):
                for extent in () if left.is_skipped(job) else self.planner.pending(job):
                    if left.is_skipped(job):
                        return
                    yield extent
        except (StoreUnavailable, Misconfigured) as exc:
            log.warning("%s stays RUNNING: %s", job.version.uri, exc)

    def _states(self) -> ConnectorStateCache:
        return ConnectorStateCache(self.ledger, self.planner.clock.monotonic)


@dataclass(frozen=True, slots=True)
class _SkippedJobs:
    """A listener that also collects the jobs skipped because their connector is paused."""

    watch: RunListener
    states: ConnectorStateCache
    jobs: set[str] = field(default_factory=set)

    def on_extent(self, extent: Extent) -> None:
        self.watch.on_extent(extent)

    def on_receipt(self, receipt: Receipt) -> None:
        if receipt.outcome is Outcome.SKIPPED:
            self.jobs.add(receipt.job)
        self.watch.on_receipt(receipt)

    def is_skipped(self, job: Job) -> bool:
        """Whether no further extent of a job starts in this run."""
        if job.state.open and job.id not in self.jobs and self.states.skip_reason(job.connector):
            self.jobs.add(job.id)
        return job.id in self.jobs


def publish_unless_unavailable(
    publish: Callable[[Sequence[Job]], object], jobs: Sequence[Job]
) -> None:
    """Publish the ends of jobs; an error is logged, because a later run publishes the rest."""
    try:
        publish(jobs)
    except ExtentflowError as exc:
        later = "the reconciler or the next run publishes the rest"
        log.warning("not every job's event was published; %s: %s", later, exc)


def report(ledger: Ledger, job: Job) -> JobReport:
    """Return a job with its exact totals."""
    return report_of(job, committed(ledger, job))


def report_of(job: Job, totals: JobProgress) -> JobReport:
    """Return a job with these totals."""
    return JobReport(
        **job_fields(job, totals),
        uri=job.version.uri,
        state=job.state.value,
        done=totals.done,
        object_bytes=job.version.size,
    )


def known_job(ledger: Ledger, job_id: str) -> Job:
    """Return a job by its id, or by an unambiguous beginning of one. Raises Misconfigured."""
    if not job_id:
        raise Misconfigured("give a job's id, or its beginning; `extentflow status` shows them")
    if exact := ledger.jobs.get(job_id):
        return exact
    found = [job for job in ledger.jobs.list() if job.id.startswith(job_id)]
    if len(found) != 1:
        what = f"{len(found)} jobs begin with" if found else "there is no job"
        raise Misconfigured(f"{what} {job_id}; see `extentflow status`")
    return found[0]


def closed(job_id: str, ledger: Ledger, states: ConnectorStateCache) -> Job:
    """Close a job; one that `stop` missed, because it was registered meanwhile, is cancelled."""
    job = ledger.jobs.close(job_id)
    if job.state.open and states.state(job.connector) is ConnectorState.STOPPED:
        why = f"connector {job.connector} was stopped"
        return ledger.jobs.end(job.id, JobState.CANCELLED, why)
    return job


@contextmanager
def cutting(ledger: Ledger, job: Job) -> Iterator[None]:
    """End a job whose object cannot be cut any more: its other extents are unknown."""
    try:
        yield
    except ObjectChanged as exc:
        ledger.jobs.end(job.id, JobState.SUPERSEDED, reason(exc))
    except (Permanent, CorruptRecord) as exc:
        ledger.jobs.end(job.id, JobState.FAILED, reason(exc))
