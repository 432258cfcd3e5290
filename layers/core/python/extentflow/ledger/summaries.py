"""Totals of jobs with all committed records, and why jobs ended.

Tests: unit/jobs/test_events.py, unit/services/test_jobs.py
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from extentflow.ledger import ExtentItem, JobProgress, Ledger
from extentflow.model import ExtentState, Job, JobState


def committed(ledger: Ledger, job: Job) -> JobProgress:
    """Return a job's totals with all committed records; reads the extents unless it is DONE."""
    return summary(ledger, job).progress


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job's totals with all committed records, and why it ended."""

    progress: JobProgress
    cause: str = ""


def summary(ledger: Ledger, job: Job) -> JobSummary:
    """Return a job's summary, strongly consistent; reads the extents unless it is DONE."""
    totals = ledger.jobs.progress(job.id)
    done = job.state is JobState.DONE
    return summary_of(job, totals, () if done else ledger.extents.list(job.id))


def summary_of(job: Job, totals: JobProgress, items: Iterable[ExtentItem]) -> JobSummary:
    """Return a job's summary by its extents, which were read after `totals`."""
    error: str | None = None
    for item in items:
        if item.state is not ExtentState.DONE:
            totals = replace(
                totals,
                records=totals.records + item.records,
                bad=totals.bad + item.bad,
                filtered=totals.filtered + item.filtered,
            )
        if item.state is ExtentState.FAILED and error is None:
            error = item.error
    return JobSummary(totals, _cause(job, error or ""))


def summaries(ledger: Ledger, jobs: Collection[Job]) -> dict[str, JobSummary]:
    """Return the summaries of jobs, by id, in few requests; they may lag behind writes."""
    totals = ledger.jobs.progress_of(jobs)
    extents = ledger.extents.list_many(job for job in jobs if job.state is not JobState.DONE)
    return {job.id: summary_of(job, totals[job.id], extents.get(job.id, [])) for job in jobs}


@dataclass(frozen=True, slots=True)
class LeasedWork:
    """What workers hold whose leases have not ended: `jobs` with an extent in work.

    In `idle` clusters a worker holds none: it is between two extents, or was killed there within
    `lease.seconds`. The ledger does not say of which job its next extent is. It has no lease of a
    driver that plans, waits for a service or has claimed nothing yet.
    """

    jobs: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()


def leased_work(ledger: Ledger, clusters: Iterable[str]) -> LeasedWork:
    """Return what workers hold now; `clusters` are the Kafka clusters whose slots are read."""
    wanted = set(clusters)
    now = ledger.now() if wanted else 0.0
    slots = [slot for cluster in wanted for slot in ledger.slots.list(cluster) if slot.until > now]
    return LeasedWork(
        frozenset(slot.working[0] for slot in slots if slot.working is not None),
        frozenset(slot.cluster for slot in slots if slot.working is None and slot.owner),
    )


def failure_reason(ledger: Ledger, job: Job) -> str:
    """Return why a job ended, and for a FAILED one why its first failed extent did."""
    items = ledger.extents.list(job.id) if job.state is JobState.FAILED else ()
    return _cause(job, next((one.error for one in items if one.state is ExtentState.FAILED), ""))


def _cause(job: Job, error: str) -> str:
    """Return why a job ended; `error` is that of its first failed extent."""
    if job.state is JobState.FAILED and error and error not in job.reason:
        return f"{job.reason}: {error}"
    return job.reason
