"""Rules that every ledger shares: transitions of an extent, the state of a job, refusal messages.

Transitions of an extent:

    claim        PENDING            -> PENDING, claimed, attempts + 1
    advance      PENDING, claimed   -> PENDING, claimed, attempts 0
    return       PENDING, claimed   -> PENDING, claimed, attempts - 1
    hand back    PENDING, claimed   -> PENDING
    complete     PENDING, claimed   -> DONE
    fail         PENDING, claimed   -> FAILED
    settle       PENDING, claimed   -> PENDING | DONE | FAILED (progress unknown)
    reopen       FAILED             -> PENDING

Tests: contracts/ledger_extents.py, unit/protocol/test_guards.py
"""

from dataclasses import replace
from typing import Unpack

from extentflow.errors import Conflict, Fenced, ProgressUnknown
from extentflow.ledger import Claim, ClaimMark, ExtentItem, JobProgress, Lease, Settlement, Totals
from extentflow.model import Extent, ExtentState, Job, JobState
from extentflow.wording import again_command

ENDINGS = (JobState.SUPERSEDED, JobState.CANCELLED, JobState.FAILED)
NO_RANGE = -1  # before the first claim
REASON_LIMIT = 4_000


def claimed(item: ExtentItem, extent: Extent, mark: ClaimMark) -> ExtentItem:
    """Return the extent as its new owner holds it."""
    # Counted at the claim, not at its end: an extent that kills its workers runs out of attempts.
    return replace(item, start=extent.start, end=extent.end, claim=mark, attempts=item.attempts + 1)


def completed(claim: Claim, **totals: Unpack[Totals]) -> ExtentItem:
    """Return the extent as DONE."""
    return replace(_released(claim, totals), state=ExtentState.DONE)


def failed(claim: Claim, *, error: str, **totals: Unpack[Totals]) -> ExtentItem:
    """Return the extent as FAILED at its last confirmed position."""
    return replace(_released(claim, totals), state=ExtentState.FAILED, error=_storable(error))


def handed_back(claim: Claim, *, keep_attempt: bool, **totals: Unpack[Totals]) -> ExtentItem:
    """Return the extent as its next owner finds it; a claim without progress counts."""
    item, moved = _released(claim, totals), totals["position"] > claim.item.position
    return item if keep_attempt or moved else replace(item, attempts=item.attempts - 1)


def _released(claim: Claim, totals: Totals) -> ExtentItem:
    # Attempts count claims without progress: an extent that moves may take any number of claims.
    attempts = 0 if totals["position"] > claim.item.position else claim.item.attempts
    return replace(claim.item, **totals, attempts=attempts, claim=None)


def settled(seen: ExtentItem, settlement: Settlement) -> ExtentItem:
    """Return the extent as the slot's new owner leaves it; Conflict if that goes backwards."""
    if settlement.unknown:
        # Never PENDING: continuing from the ledger's position may deliver a chunk twice.
        held = (
            f"slot {seen.claim.slot} under epoch {seen.claim.epoch}" if seen.claim else "its slot"
        )
        error = (
            f"progress unknown: Kafka no longer holds what {held} committed; `extentflow replay"
            f" {seen.job} --extent {seen.ordinal} --accept-duplicates` resumes from position"
            f" {seen.position}"
        )
        unknown = replace(seen, state=ExtentState.FAILED, claim=None, progress_unknown=True)
        return replace(unknown, error=error)
    if settlement.position < seen.position:
        raise _backwards(_place(seen), seen.position, settlement.position)
    return replace(
        seen,
        state=ExtentState.DONE if settlement.done else ExtentState.PENDING,
        position=settlement.position,
        records=settlement.records,
        bad=settlement.bad,
        filtered=settlement.filtered,
        attempts=0 if settlement.position > seen.position else seen.attempts,
        claim=None,
    )


def pending_again(item: ExtentItem) -> ExtentItem:
    """Return a failed extent as its replay finds it."""
    return replace(item, state=ExtentState.PENDING, attempts=0, error="", progress_unknown=False)


def counted(item: ExtentItem) -> JobProgress:
    """Return what an extent adds to its job's counters when it reaches its present state."""
    if item.state is ExtentState.DONE:
        return JobProgress(
            done=1,
            records=item.records,
            bad=item.bad,
            filtered=item.filtered,
            bytes=item.end - item.start,
        )
    return JobProgress(failed=1 if item.state is ExtentState.FAILED else 0)


def verdict(job: Job, progress: JobProgress) -> tuple[JobState, str] | None:
    """Return how a RUNNING job ends by its counters and why; None while work is left."""
    if job.state is not JobState.RUNNING:
        return None
    count = job.plan.count
    if progress.done == count:
        # DONE is a promise about bytes: extents of two different cuts may add up to the count.
        if job.plan.covered >= 0 and progress.bytes != job.plan.covered:
            return JobState.FAILED, (
                f"its {count} extents cover {progress.bytes} bytes instead of {job.plan.covered}:"
                " they are not of one plan; deliver the object again with"
                f" {again_command(job.version.address, job.connector)}"
            )
        if 0 <= job.most_bad < progress.bad:
            return JobState.FAILED, too_many_bad_records(progress.bad, job.most_bad)
        return JobState.DONE, ""
    # An ordered job cannot continue behind a failed extent.
    if progress.done + progress.failed == count or (job.ordered and progress.failed):
        of_all = "1 extent" if count == 1 else f"{count} extents"
        return JobState.FAILED, f"{progress.failed} of {of_all} failed"
    return None


def too_many_bad_records(bad: int, most: int) -> str:
    """Return why a job with so many bad records fails, with the remedy."""
    return (
        f"{bad} bad records, and errors.max.records={most}; the dead letter queue has those that"
        " were committed. Correct the object; or raise the limit, then `extentflow run --failed`"
        " delivers it in full"
    )


def planned(
    job: Job,
    *,
    count: int,
    cursor: int,
    complete: bool,
    covered: int = -1,
    cut_version: int | None = None,
) -> Job:
    """Return a PLANNING job with a longer plan; RUNNING when the plan is complete.

    Any other job is returned as it is, and so is one that another version of its format cut.
    """
    plan = job.plan
    version = plan.cut_version if cut_version is None else cut_version
    same_cut = not plan.count or version == plan.cut_version
    forwards = cursor >= plan.cursor and count >= plan.count
    if job.state is not JobState.PLANNING or not forwards or not same_cut:
        return job
    plan = replace(plan, count=count, cursor=cursor, covered=covered, cut_version=version)
    after = replace(job, plan=plan)
    return after.in_state(JobState.RUNNING) if complete else after


def ended(job: Job, state: JobState, reason: str, *, at: float) -> Job:
    """Return an open job as ended; any other job as it is."""
    return job.in_state(state, _storable(reason), ended=at) if job.state.open else job


def dismissed(job: Job, reason: str) -> Job:
    """Return a job as SUPERSEDED, with the time of its end; one that is open or DONE as is."""
    text = _storable(reason)
    if job.state not in ENDINGS or (job.state is JobState.SUPERSEDED and job.reason == text):
        return job
    return job.in_state(JobState.SUPERSEDED, text, ended=job.ended)


def reopened(job: Job, *, planned: bool) -> Job:
    """Return a job that continues, with its planning if that is not complete."""
    # A higher `reopened` refuses late closings and publications that read the job before.
    state = JobState.RUNNING if planned else JobState.PLANNING
    return replace(job.in_state(state), reopened=job.reopened + 1)


def check_range(extent: Extent, item: ExtentItem) -> None:
    """Refuse an extent whose ordinal has another range in the ledger."""
    # A message of another plan would skip bytes or deliver them twice.
    if item.start != NO_RANGE and (item.start, item.end) != (extent.start, extent.end):
        raise Conflict(
            f"{extent.uri}: the ledger holds [{item.start}-{item.end}) for extent"
            f" {extent.ordinal} of job {extent.job}; drop the message, or run the object again"
            " under a new generation (--again)"
        )


def check_replay(item: ExtentItem, *, accept_duplicates: bool) -> None:
    """Refuse to replay an extent of unknown progress unless duplicates are accepted."""
    if item.progress_unknown and not accept_duplicates:
        raise ProgressUnknown(f"{_place(item)}: {item.error}")


def check_reopening(job: Job, ordinal: int) -> None:
    """Refuse to replay an extent of a CANCELLED or DONE job."""
    # A replay would reopen the job, and a user cancelled it: only `JobStore.resume` undoes that.
    if job.state not in (JobState.FAILED, JobState.SUPERSEDED) and not job.state.open:
        remedy = f"`extentflow replay {job.id}` delivers the rest of it"
        if job.state is JobState.DONE:
            command = again_command(job.version.address, job.connector)
            remedy = f"{command} delivers its object a second time"
        raise Conflict(
            f"extent {ordinal} of job {job.id} ({job.version.uri}) is not replayed: the job is"
            f" {job.state}; {remedy}"
        )


def slot_taken(lease: Lease) -> Fenced:
    """Report that another worker took the slot."""
    return Fenced(f"{lease}: no longer ours under epoch {lease.epoch}")


def lost(item: ExtentItem, claim: Claim, position: int) -> Fenced | Conflict:
    """Report why a claim's owner may not write `position`; `item` is the extent as stored."""
    if item.claim == claim.mark and item.position > position:
        return _backwards(claim.extent.uri, item.position, position)
    slot = f"slot {claim.mark.slot} no longer holds the extent under epoch {claim.mark.epoch}"
    return Fenced(f"{claim.extent.uri}: {slot}")


def _place(item: ExtentItem) -> str:
    return f"extent {item.ordinal} [{item.start}-{item.end}) of job {item.job}"


def _backwards(name: str, held: int, offered: int) -> Conflict:
    behind = f"position {offered} lies behind the ledger's {held}"
    return Conflict(f"{name}: {behind}; positions never go backwards")


def _storable(reason: str) -> str:
    # Names of objects and columns may contain lone surrogates, which no table stores.
    return reason.encode("utf-8", "backslashreplace").decode("utf-8")[:REASON_LIMIT]
