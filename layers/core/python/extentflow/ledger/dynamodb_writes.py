"""The conditional writes of the ledger as data: one `Write` per item, several per transaction.

Each write is an update that also creates the item. Transactions on an extent always list the extent
first and the slot second, so that the position of a failed condition says which of the two it was.
"""

from collections.abc import Mapping
from dataclasses import replace

from boto3.dynamodb.conditions import Attr, ConditionBase

from extentflow.ledger import (
    Claim,
    ClaimMark,
    ConnectorState,
    ConnectorVersion,
    ExtentItem,
    JobProgress,
    Lease,
    SlotItem,
    items,
    rules,
)
from extentflow.ledger.dynamodb_table import EXPIRY_ATTRIBUTE
from extentflow.ledger.dynamodb_write import Write
from extentflow.ledger.items import Value
from extentflow.model import Extent, ExtentState, Job, JobState

EXTENT, SLOT = 0, 1
OPEN_STATES = [str(state) for state in JobState if state.open]


def _is_new() -> ConditionBase:
    return Attr("pk").not_exists()


# -- identity and connectors ----------------------------------------------------------------------


def identify(identity: str) -> Write:
    """Name the ledger, once for all."""
    return Write(items.LEDGER_KEY, _is_new(), {"id": identity})


def bind(app_id: str) -> Write:
    """Tie the ledger to an `app.id` unless it is tied already."""
    return Write(items.LEDGER_KEY, Attr("app_id").not_exists(), {"app_id": app_id})


def add_revision(version: ConnectorVersion) -> tuple[Write, ...]:
    """Store a revision beside the one before it and make it the latest."""
    name, revision = version.name, version.revision
    before = revision - 1
    follows_the_latest = Attr("revision").eq(before) if before else _is_new()
    content: dict[str, Value] = {"name": name, "revision": revision, "config": {**version.config}}
    return (
        Write(items.config_key(name, revision), sets=content),
        Write(items.connector_key(name), follows_the_latest, {"revision": revision}, ("deleted",)),
    )


def show_connector(name: str, *, latest: int) -> Write:
    """List a deleted connector again."""
    latest_as_read = Attr("revision").eq(latest)
    return Write(items.connector_key(name), latest_as_read, removes=("deleted",))


def hide_connector(name: str, *, token: str) -> Write:
    """Delete a connector; `token` tells who did."""
    exists = Attr("revision").exists()
    is_shown = Attr("deleted").not_exists()
    return Write(items.connector_key(name), exists & is_shown, {"deleted": token})


def steer_connector(name: str, state: ConnectorState) -> Write:
    """Say what is wanted of a connector."""
    exists = Attr("revision").exists()
    return Write(items.connector_key(name), exists, {"state": str(state)})


# -- jobs -----------------------------------------------------------------------------------------


def register(job: Job) -> Write:
    """Store a job that is not there yet."""
    planned = job.state is not JobState.PLANNING
    content = {**items.job_to_item(job), "planned": planned}
    return Write(items.job_key(job.id), _is_new(), content)


def plan(job: Job, *, complete: bool) -> Write:
    """Store a job's new plan; `job` is as it is to be."""
    is_planning = Attr("state").eq(str(JobState.PLANNING))
    cursor_moves_forwards = Attr("cursor").lte(job.plan.cursor)
    count_moves_forwards = Attr("count").lte(job.plan.count)
    return Write(
        items.job_key(job.id),
        is_planning & cursor_moves_forwards & count_moves_forwards,
        {**items.job_state(job), "planned": complete},
    )


def change(seen: Job, after: Job) -> Write:
    """Bring a job from one state to another, unless it changed since it was read."""
    return Write(items.job_key(seen.id), _as_read(seen), items.job_state(after))


def _as_read(seen: Job) -> ConditionBase:
    state_as_read = Attr("state").eq(str(seen.state))
    not_reopened_since = Attr("reopened").eq(seen.reopened)
    return state_as_read & not_reopened_since


def announced(job: Job) -> Write:
    """List an ended job among those of its state, unless it was reopened since it was read."""
    published = replace(job, announced=True)
    return Write(items.job_key(job.id), _as_read(job), {"listing": items.job_listing(published)})


def count(item: ExtentItem, change: JobProgress) -> tuple[Write, ...]:
    """Add to the counter shard that counts an extent."""
    adds = items.count_to_item(change)
    return (Write(items.count_key(item.job, item.ordinal), adds=adds),) if adds else ()


def reopen(seen: Job, after: Job, item: ExtentItem) -> tuple[Write, ...]:
    """Replay a FAILED extent."""
    is_failed = Attr("state").eq(str(ExtentState.FAILED))
    knowledge_as_read = Attr("progress_unknown").eq(item.progress_unknown)
    pending = rules.pending_again(item)
    return (
        Write(
            items.extent_key(item.job, item.ordinal),
            is_failed & knowledge_as_read,
            items.extent_to_item(pending),
        ),
        change(seen, after),
        *count(item, JobProgress(failed=-1)),
    )


# -- extents --------------------------------------------------------------------------------------


def claim(
    lease: Lease, extent: Extent, seen: ExtentItem, after: ExtentItem, *, until: float
) -> tuple[Write, ...]:
    """Claim an extent for a slot that works on nothing; `after` is the extent as claimed."""
    is_unclaimed = Attr("claim").not_exists()
    is_pending = Attr("state").eq(str(ExtentState.PENDING))
    state_as_seen = Attr("state").eq(str(seen.state))
    position_as_seen = Attr("position").eq(seen.position)
    attempts_as_seen = Attr("attempts").eq(seen.attempts)
    range_as_ours = Attr("start").eq(extent.start) & Attr("end").eq(extent.end)
    is_as_seen = (
        is_unclaimed
        & is_pending
        & state_as_seen
        & position_as_seen
        & attempts_as_seen
        & range_as_ours
        if rules.exists(seen)
        else _is_new()
    )
    slot_works_on_nothing = Attr("working").not_exists()
    job_is_open = Attr("state").is_in(OPEN_STATES)
    mark = _mark(after.claim)
    working: dict[str, Value] = {
        "job": extent.job,
        "ordinal": extent.ordinal,
        "nonce": mark["nonce"],
    }
    span: dict[str, Value] = {"start": extent.start, "end": extent.end, "claim": mark}
    return (
        Write(
            items.extent_key(extent.job, extent.ordinal),
            is_as_seen,
            {**items.extent_to_item(after), **span},
        ),
        Write(
            items.slot_key(lease.cluster, lease.number),
            _epoch_is_ours(lease) & slot_works_on_nothing,
            {"working": working, "until": until},
        ),
        Write(items.job_key(extent.job), job_is_open),
    )


def advance(claim: Claim, *, position: int, records: int, bad: int) -> Write:
    """Record a committed chunk."""
    return Write(
        items.extent_key(claim.extent.job, claim.extent.ordinal),
        _claim_is(claim.mark) & _never_backwards(position),
        {"position": position, "records": records, "bad": bad, "attempts": 0},
    )


def finish(claim: Claim, after: ExtentItem) -> tuple[Write, ...]:
    """Let an extent go by its owner; `last` lets the owner recognise that it did."""
    last: dict[str, Value] = {"nonce": claim.mark.nonce, "verdict": str(after.state)}
    return _let_go(claim.lease, claim.mark, after, {"last": last})


def settle(lease: Lease, seen: ExtentItem, after: ExtentItem) -> tuple[Write, ...]:
    """Release an extent for the worker that fenced its owner."""
    return _let_go(lease, seen.claim, after, {})


def _let_go(
    lease: Lease, mark: ClaimMark | None, after: ExtentItem, more: Mapping[str, Value]
) -> tuple[Write, ...]:
    return (
        Write(
            items.extent_key(after.job, after.ordinal),
            _claim_is(mark) & _never_backwards(after.position),
            {**items.extent_to_item(after), **more},
            ("claim",),
        ),
        Write(
            items.slot_key(lease.cluster, lease.number), _epoch_is_ours(lease), removes=("working",)
        ),
        *count(after, rules.counted(after)),
    )


def _claim_is(mark: ClaimMark | None) -> ConditionBase:
    return Attr("claim").eq(_mark(mark))


def _never_backwards(position: int) -> ConditionBase:
    return Attr("position").lte(position)


def _mark(mark: ClaimMark | None) -> dict[str, Value]:
    if mark is None:
        raise ValueError("an unclaimed extent cannot be claimed, finished or settled")
    return items.mark_to_item(mark)


# -- slots ----------------------------------------------------------------------------------------


def lease(seen: SlotItem, *, owner: str, until: float) -> Write:
    """Take a slot."""
    epoch_as_seen = Attr("epoch").eq(seen.epoch) if seen.epoch else Attr("epoch").not_exists()
    owner_as_seen = Attr("owner").eq(seen.owner) if seen.epoch else Attr("owner").not_exists()
    return Write(
        items.slot_key(seen.cluster, seen.number),
        epoch_as_seen & owner_as_seen,
        {"epoch": seen.epoch + 1, "owner": owner, "until": until},
    )


def renew(lease: Lease, *, until: float) -> Write:
    """Extend a lease."""
    return Write(
        items.slot_key(lease.cluster, lease.number),
        _epoch_is_ours(lease) & _owner_is_us(lease),
        {"until": until},
    )


def clear(lease: Lease, working: Mapping[str, Value]) -> Write:
    """Let a slot work on nothing; conditional on the very claim it worked on.

    A request that was held up on its way must not clear what the slot began since.
    """
    works_on_it_still = Attr("working").eq({**working})
    return Write(
        items.slot_key(lease.cluster, lease.number),
        _epoch_is_ours(lease) & works_on_it_still,
        removes=("working",),
    )


def release(lease: Lease) -> Write:
    """Make a slot free."""
    works_on_nothing = Attr("working").not_exists()
    return Write(
        items.slot_key(lease.cluster, lease.number),
        _epoch_is_ours(lease) & _owner_is_us(lease) & works_on_nothing,
        {"owner": "", "until": 0.0},
    )


def _epoch_is_ours(lease: Lease) -> ConditionBase:
    return Attr("epoch").eq(lease.epoch)


def _owner_is_us(lease: Lease) -> ConditionBase:
    return Attr("owner").eq(lease.owner)


# -- notes ----------------------------------------------------------------------------------------


def note(name: str, facts: Mapping[str, str], *, expires: int | None) -> Write:
    """Keep facts until `expires` (the table's own expiry attribute), whatever was there before."""
    content: dict[str, Value] = {"facts": {**facts}}
    if expires is None:
        return Write(items.note_key(name), sets=content, removes=(EXPIRY_ATTRIBUTE,))
    return Write(items.note_key(name), sets={**content, EXPIRY_ATTRIBUTE: expires})
