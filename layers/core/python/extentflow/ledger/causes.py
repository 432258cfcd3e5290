"""Finds the extent that explains why a job FAILED."""

from extentflow.ledger import Ledger
from extentflow.model import ExtentState, Job, JobState


def cause(ledger: Ledger, job: Job) -> str:
    """Return why a job ended; of one whose extents failed also why the first of them did.

    Reads its extents, one after the other, up to that one.
    """
    if job.state is not JobState.FAILED:
        return job.reason
    errors = (
        item.error for item in ledger.extents.list(job.id) if item.state is ExtentState.FAILED
    )
    first = next(errors, "")
    return f"{job.reason}: {first}" if first and first not in job.reason else job.reason
