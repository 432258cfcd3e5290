"""Adds up a job's counters and what its unfinished extents have committed."""

from dataclasses import replace

from extentflow.ledger import JobProgress, Ledger
from extentflow.model import ExtentState, Job, JobState


def committed(ledger: Ledger, job: Job) -> JobProgress:
    """Return a job's totals; `records` and `bad` count everything that is committed.

    Reads the extents of a job that is not DONE, one after the other.
    """
    totals = ledger.jobs.progress(job.id)
    if job.state is JobState.DONE:
        return totals
    for item in ledger.extents.list(job.id):
        if item.state is not ExtentState.DONE:
            totals = replace(
                totals, records=totals.records + item.records, bad=totals.bad + item.bad
            )
    return totals
