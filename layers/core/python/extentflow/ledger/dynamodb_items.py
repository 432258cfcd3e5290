"""The items of the ledger's DynamoDB table: keys, attributes, and the conditional writes on them.

Partition key, sort key, content:

    META             LEDGER              the ledger's identity
    CONNECTORS       <name>              latest revision, state, deleted or not
    CONNECTOR#<name> CONFIG#<8 digits>   one revision, never changed
    JOB#<id>         JOB                 the job
    JOB#<id>         COUNT#<0..15>       its counters, in 16 shards by ordinal
    JOB#<id>         EXTENT#<8 digits>   one extent, written by its first claim
    SLOTS#<cluster>  <8 digits>          one slot, written by its first lease
    NOTES            <name>              facts that may be lost without harm; some expire

tests/unit/ledger/test_stored_items.py holds an image of each.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from boto3.dynamodb.conditions import Attr, ConditionBase, ConditionExpressionBuilder
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from extentflow.ledger import (
    Claim,
    ClaimMark,
    ConnectorState,
    ConnectorVersion,
    ExtentItem,
    JobProgress,
    Lease,
    SlotItem,
    rules,
)
from extentflow.model import Extent, ExtentState, Job, JobState, ObjectVersion, Plan

JOBS_INDEX = "jobs"
EXPIRY_ATTRIBUTE = "expires"

# One counter item would cap a job at the 1,000 writes per second of one DynamoDB partition.
SHARDS = 16

Value: TypeAlias = "str | int | float | bool | Decimal | Mapping[str, Value]"
Attributes: TypeAlias = "dict[str, Value]"
Stored: TypeAlias = dict[str, Any]
Wire: TypeAlias = dict[str, Any]
Fields: TypeAlias = Mapping[str, Callable[[Any], Any]]

_SERIALIZER, _DESERIALIZER = TypeSerializer(), TypeDeserializer()


# -- keys -----------------------------------------------------------------------------------------


class Key(NamedTuple):
    """Partition key and sort key of one item."""

    pk: str
    sk: str


LEDGER_KEY = Key("META", "LEDGER")
CONNECTORS = "CONNECTORS"
EXTENT = "EXTENT#"
COUNT = "COUNT#"


def job_partition(job_id: str) -> str:
    """Return the partition of everything that belongs to a job."""
    return f"JOB#{job_id}"


def slot_partition(cluster: str) -> str:
    """Return the partition of a Kafka cluster's slots."""
    return f"SLOTS#{cluster}"


def job_key(job_id: str) -> Key:
    """Return the key of a job."""
    return Key(job_partition(job_id), "JOB")


def count_key(job_id: str, ordinal: int) -> Key:
    """Return the key of the counter shard of an extent."""
    return Key(job_partition(job_id), f"{COUNT}{ordinal % SHARDS}")


def extent_key(job_id: str, ordinal: int) -> Key:
    """Return the key of an extent; zero-padded, because sort keys are ordered as text."""
    return Key(job_partition(job_id), f"{EXTENT}{ordinal:08}")


def slot_key(cluster: str, number: int) -> Key:
    """Return the key of a slot."""
    return Key(slot_partition(cluster), f"{number:08}")


def connector_key(name: str) -> Key:
    """Return the key under which a connector is listed."""
    return Key(CONNECTORS, name)


def config_key(name: str, revision: int) -> Key:
    """Return the key of one revision of a connector."""
    return Key(f"CONNECTOR#{name}", f"CONFIG#{revision:08}")


def note_key(name: str) -> Key:
    """Return the key of a note."""
    return Key("NOTES", name)


def listing(connector: str, state: JobState) -> str:
    """Return the index partition of a connector's jobs in one state."""
    return f"{state}#{connector}"


def unpublished_listing(connector: str) -> str:
    """Return the index partition of a connector's final jobs whose end is not published yet."""
    return f"ENDED#{connector}"


# -- attributes -----------------------------------------------------------------------------------


def item_to_wire(attributes: Mapping[str, Value]) -> Wire:
    """Return attributes in DynamoDB's JSON."""
    return {
        # The SDK refuses floats; repr() keeps the digits that the table has always held.
        name: _SERIALIZER.serialize(Decimal(repr(value)) if isinstance(value, float) else value)
        for name, value in attributes.items()
    }


def item_from_wire(wire: Wire) -> Stored:
    """Return an item's attributes; numbers are Decimals until a field's type converts them."""
    return {name: _DESERIALIZER.deserialize(value) for name, value in wire.items()}


JOB_FIELDS: Fields = {
    "connector": str,
    "revision": int,
    "format": str,
    "cluster": str,
    "generation": int,
    "ordered": bool,
    "created": float,
}
JOB_STATE_FIELDS: Fields = {"state": JobState, "reason": str, "reopened": int, "ended": float}
PLAN_FIELDS: Fields = {"target_bytes": int, "count": int, "cursor": int}
VERSION_FIELDS: Fields = {"bucket": str, "key": str, "etag": str, "size": int}
COUNTER_FIELDS: Fields = {"done": int, "failed": int, "records": int, "bad": int, "bytes": int}
RANGE_FIELDS: Fields = {"start": int, "end": int}
EXTENT_FIELDS: Fields = {
    "state": ExtentState,
    "position": int,
    "records": int,
    "bad": int,
    "attempts": int,
    "error": str,
    "progress_unknown": bool,
}
MARK_FIELDS: Fields = {"slot": int, "epoch": int, "nonce": str, "message": str}


def _lay_out(value: object, fields: Fields) -> Attributes:
    return {name: getattr(value, name) for name in fields}


def _read(item: Stored, fields: Fields) -> dict[str, Any]:
    return {name: kind(item[name]) for name, kind in fields.items()}


def job_to_item(job: Job) -> Attributes:
    """Return a job's attributes without its key."""
    version = {name: value for name, value in asdict(job.version).items() if value is not None}
    plan: Attributes = {"target_bytes": job.plan.target_bytes, "version": version}
    return {**_lay_out(job, JOB_FIELDS), **plan, **job_state(job)}


def job_state(job: Job) -> Attributes:
    """Return the attributes that change in a job's life."""
    is_listed_by_state = job.state.open or job.announced
    return {
        **_lay_out(job, JOB_STATE_FIELDS),
        "count": job.plan.count,
        "cursor": job.plan.cursor,
        "listing": listing(job.connector, job.state)
        if is_listed_by_state
        else unpublished_listing(job.connector),
    }


def job_of(item: Stored) -> str:
    """Return the id of the job to which an item belongs."""
    return str(item["pk"]).removeprefix(job_partition(""))


def job_from_item(item: Stored) -> Job:
    """Return a stored job."""
    version, state = item["version"], JobState(item["state"])
    return Job(
        id=job_of(item),
        version=ObjectVersion(
            version_id=version.get("version_id"), **_read(version, VERSION_FIELDS)
        ),
        plan=Plan(**_read(item, PLAN_FIELDS)),
        announced=not state.open and item["listing"] == listing(item["connector"], state),
        **_read(item, JOB_FIELDS),
        # The oldest tables have jobs without `ended`.
        **_read({"ended": 0, **item}, JOB_STATE_FIELDS),
    )


def progress_from_item(item: Stored) -> JobProgress:
    """Return one counter shard; a counter that never changed has no attribute."""
    return JobProgress(**_read({**dict.fromkeys(COUNTER_FIELDS, 0), **item}, COUNTER_FIELDS))


def extent_to_item(item: ExtentItem) -> Attributes:
    """Return an extent's attributes without its key, its range and its claim."""
    return _lay_out(item, EXTENT_FIELDS)


def extent_from_item(item: Stored) -> ExtentItem:
    """Return a stored extent."""
    return ExtentItem(
        job=job_of(item),
        ordinal=int(item["sk"].removeprefix(EXTENT)),
        claim=ClaimMark(**_read(item["claim"], MARK_FIELDS)) if "claim" in item else None,
        **_read(item, {**RANGE_FIELDS, **EXTENT_FIELDS}),
    )


def slot_from_item(item: Stored) -> SlotItem:
    """Return a stored slot."""
    working = item.get("working")
    return SlotItem(
        cluster=item["pk"].removeprefix(slot_partition("")),
        number=int(item["sk"]),
        epoch=int(item["epoch"]),
        owner=item["owner"],
        until=float(item["until"]),
        working=(working["job"], int(working["ordinal"])) if working else None,
    )


def connector_from_item(item: Stored) -> ConnectorVersion:
    """Return one revision of a connector."""
    return ConnectorVersion(item["name"], int(item["revision"]), item["config"])


# -- writes ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Write:
    """An update of one item under a condition; with nothing to change it only checks."""

    key: Key
    condition: ConditionBase | None = None
    sets: Mapping[str, Value] = field(default_factory=dict)
    removes: tuple[str, ...] = ()
    adds: Mapping[str, int] = field(default_factory=dict)

    def transaction_entry(self, table: str) -> dict[str, Any]:
        """Return the write as an entry of TransactWriteItems."""
        changes = self.sets or self.removes or self.adds
        return {"Update" if changes else "ConditionCheck": self.request(table)}

    def request(self, table: str) -> dict[str, Any]:
        """Return the parameters of UpdateItem."""
        names: dict[str, str] = {}
        values: dict[str, Value] = {}
        request: dict[str, Any] = {
            "TableName": table,
            "Key": item_to_wire(self.key._asdict()),
            # A caller recognises its own earlier write in the item that failed the condition.
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if self.condition is not None:
            built = ConditionExpressionBuilder().build_expression(self.condition)
            request["ConditionExpression"] = built.condition_expression
            names |= built.attribute_name_placeholders
            values |= built.attribute_value_placeholders
        if update := self._update(names, values):
            request["UpdateExpression"] = update
        if names:
            request["ExpressionAttributeNames"] = names
        if values:
            request["ExpressionAttributeValues"] = item_to_wire(values)
        return request

    def _update(self, names: dict[str, str], values: dict[str, Value]) -> str:
        # Placeholders for all names: many attributes are reserved words, such as `state`.
        def name(attribute: str) -> str:
            names[f"#{attribute}"] = attribute
            return f"#{attribute}"

        def value(attribute: str, content: Value) -> str:
            values[f":{attribute}"] = content
            return f":{attribute}"

        clauses = {
            "SET": [f"{name(each)} = {value(each, to)}" for each, to in self.sets.items()],
            "REMOVE": [name(each) for each in self.removes],
            "ADD": [f"{name(each)} {value(each, by)}" for each, by in self.adds.items()],
        }
        return " ".join(f"{verb} {', '.join(parts)}" for verb, parts in clauses.items() if parts)


# Transactions on an extent list the extent first and the slot second: DynamoDB reports a failed
# condition by its place.
EXTENT_PLACE, SLOT_PLACE = 0, 1
OPEN_STATES = [state for state in JobState if state.open]


def _is_new() -> ConditionBase:
    return Attr("pk").not_exists()


# -- writes: identity, connectors, notes ----------------------------------------------------------


def identify(identity: str) -> Write:
    """Write the ledger's identity, once."""
    # Not "the item is new": `app_id` shares the item and may have been written first.
    return Write(LEDGER_KEY, Attr("id").not_exists(), {"id": identity})


def bind(app_id: str) -> Write:
    """Bind the ledger to an `app.id`, once."""
    return Write(LEDGER_KEY, Attr("app_id").not_exists(), {"app_id": app_id})


def add_revision(version: ConnectorVersion) -> tuple[Write, ...]:
    """Store a connector's next revision and make it the latest."""
    name, revision = version.name, version.revision
    before = revision - 1
    follows_the_latest = Attr("revision").eq(before) if before else _is_new()
    content: Attributes = {"name": name, "revision": revision, "config": {**version.config}}
    return (
        Write(config_key(name, revision), sets=content),
        Write(connector_key(name), follows_the_latest, {"revision": revision}, ("deleted",)),
    )


def show_connector(name: str, *, latest: int) -> Write:
    """List a deleted connector again."""
    latest_as_read = Attr("revision").eq(latest)
    return Write(connector_key(name), latest_as_read, removes=("deleted",))


def hide_connector(name: str, *, token: str) -> Write:
    """Delete a connector; `token` identifies this deletion."""
    exists = Attr("revision").exists()
    is_shown = Attr("deleted").not_exists()
    return Write(connector_key(name), exists & is_shown, {"deleted": token})


def set_connector_state(name: str, state: ConnectorState) -> Write:
    """Pause, stop or resume a connector."""
    return Write(connector_key(name), Attr("revision").exists(), {"state": state})


def note(name: str, facts: Mapping[str, str], *, expires: int | None) -> Write:
    """Replace a note; `expires` is in whole seconds since the epoch, as DynamoDB's TTL requires."""
    content: Attributes = {"facts": {**facts}}
    if expires is None:
        return Write(note_key(name), sets=content, removes=(EXPIRY_ATTRIBUTE,))
    return Write(note_key(name), sets={**content, EXPIRY_ATTRIBUTE: expires})


# -- writes: jobs ---------------------------------------------------------------------------------


def register(job: Job) -> Write:
    """Store a new job."""
    planned = job.state is not JobState.PLANNING
    return Write(job_key(job.id), _is_new(), {**job_to_item(job), "planned": planned})


def plan(job: Job, *, complete: bool) -> Write:
    """Store a job's next plan; `job` is the job with that plan."""
    is_planning = Attr("state").eq(JobState.PLANNING)
    cursor_moves_forwards = Attr("cursor").lte(job.plan.cursor)
    count_moves_forwards = Attr("count").lte(job.plan.count)
    return Write(
        job_key(job.id),
        is_planning & cursor_moves_forwards & count_moves_forwards,
        {**job_state(job), "planned": complete},
    )


def change(seen: Job, after: Job) -> Write:
    """Change a job's state unless it changed since it was read."""
    return Write(job_key(seen.id), _as_read(seen), job_state(after))


def publish(job: Job) -> Write:
    """List an ended job by its state, unless it was reopened since it was read."""
    published = job_state(replace(job, announced=True))
    return Write(job_key(job.id), _as_read(job), {"listing": published["listing"]})


def _as_read(seen: Job) -> ConditionBase:
    # State alone is not enough: a job that was reopened and failed again has the state as read.
    state_as_read = Attr("state").eq(seen.state)
    not_reopened_since = Attr("reopened").eq(seen.reopened)
    return state_as_read & not_reopened_since


def reopen(seen: Job, after: Job, item: ExtentItem) -> tuple[Write, ...]:
    """Replay a FAILED extent and continue its job."""
    is_failed = Attr("state").eq(ExtentState.FAILED)
    knowledge_as_read = Attr("progress_unknown").eq(item.progress_unknown)
    return (
        Write(
            extent_key(item.job, item.ordinal),
            is_failed & knowledge_as_read,
            extent_to_item(rules.pending_again(item)),
        ),
        change(seen, after),
        *_count(item, JobProgress(failed=-1)),
    )


def _count(item: ExtentItem, change: JobProgress) -> tuple[Write, ...]:
    adds = {name: by for name in COUNTER_FIELDS if (by := getattr(change, name))}
    return (Write(count_key(item.job, item.ordinal), adds=adds),) if adds else ()


# -- writes: extents ------------------------------------------------------------------------------


def claim(
    lease: Lease, extent: Extent, seen: ExtentItem, after: ExtentItem, *, until: float
) -> tuple[Write, ...]:
    """Claim an extent for a slot that works on nothing; `after` is the extent as claimed."""
    is_as_seen = _is_new()
    if rules.exists(seen):
        is_unclaimed = Attr("claim").not_exists()
        is_pending = Attr("state").eq(ExtentState.PENDING) & Attr("state").eq(seen.state)
        position_as_seen = Attr("position").eq(seen.position)
        # A claim that came and went without progress is visible in the attempts only.
        attempts_as_seen = Attr("attempts").eq(seen.attempts)
        range_as_ours = Attr("start").eq(extent.start) & Attr("end").eq(extent.end)
        is_as_seen = is_unclaimed & is_pending & position_as_seen & attempts_as_seen & range_as_ours
    slot_works_on_nothing = Attr("working").not_exists()
    job_is_open = Attr("state").is_in(OPEN_STATES)
    mark = _mark(after.claim)
    span: Attributes = {"start": extent.start, "end": extent.end, "claim": mark}
    working: Attributes = {"job": extent.job, "ordinal": extent.ordinal, "nonce": mark["nonce"]}
    return (
        Write(
            extent_key(extent.job, extent.ordinal),
            is_as_seen,
            {**extent_to_item(after), **span},
        ),
        Write(
            slot_key(lease.cluster, lease.number),
            _epoch_is_ours(lease) & slot_works_on_nothing,
            {"working": working, "until": until},
        ),
        Write(job_key(extent.job), job_is_open),
    )


def advance(claim: Claim, *, position: int, records: int, bad: int) -> Write:
    """Record a committed chunk."""
    return Write(
        extent_key(claim.extent.job, claim.extent.ordinal),
        _claim_is(claim.mark) & _never_backwards(position),
        {"position": position, "records": records, "bad": bad, "attempts": 0},
    )


def finish(claim: Claim, after: ExtentItem) -> tuple[Write, ...]:
    """End a claim by its owner; `last` identifies the claim when the response is lost."""
    last: Attributes = {"nonce": claim.mark.nonce, "verdict": after.state}
    return _release(claim.lease, claim.mark, after, {"last": last})


def settle(lease: Lease, seen: ExtentItem, after: ExtentItem) -> tuple[Write, ...]:
    """End a claim by the worker that fenced its owner."""
    return _release(lease, seen.claim, after, {})


def _release(
    lease: Lease, mark: ClaimMark | None, after: ExtentItem, more: Mapping[str, Value]
) -> tuple[Write, ...]:
    # One transaction: a slot that works on nothing has no claim left, and counters are exact.
    return (
        Write(
            extent_key(after.job, after.ordinal),
            _claim_is(mark) & _never_backwards(after.position),
            {**extent_to_item(after), **more},
            ("claim",),
        ),
        Write(slot_key(lease.cluster, lease.number), _epoch_is_ours(lease), removes=("working",)),
        *_count(after, rules.counted(after)),
    )


def _claim_is(mark: ClaimMark | None) -> ConditionBase:
    # The whole mark, nonce included: a slot may claim the same extent twice under one epoch.
    return Attr("claim").eq(_mark(mark))


def _never_backwards(position: int) -> ConditionBase:
    return Attr("position").lte(position)


def _mark(mark: ClaimMark | None) -> Attributes:
    if mark is None:
        raise ValueError("an unclaimed extent cannot be claimed, finished or settled")
    return asdict(mark)


# -- writes: slots --------------------------------------------------------------------------------


def lease(seen: SlotItem, *, owner: str, until: float) -> Write:
    """Lease a slot under the next epoch."""
    epoch_as_seen = Attr("epoch").eq(seen.epoch) if seen.epoch else Attr("epoch").not_exists()
    owner_as_seen = Attr("owner").eq(seen.owner) if seen.epoch else Attr("owner").not_exists()
    return Write(
        slot_key(seen.cluster, seen.number),
        epoch_as_seen & owner_as_seen,
        {"epoch": seen.epoch + 1, "owner": owner, "until": until},
    )


def renew(lease: Lease, *, until: float) -> Write:
    """Extend a lease."""
    # The epoch alone would also match a slot that was released, whose owner is empty.
    return Write(
        slot_key(lease.cluster, lease.number),
        _epoch_is_ours(lease) & _owner_is_us(lease),
        {"until": until},
    )


def clear(lease: Lease, working: Mapping[str, Value]) -> Write:
    """Clear the claim on which a slot works, and no other one."""
    # A delayed request must not clear a claim that the slot made since.
    works_on_it_still = Attr("working").eq({**working})
    return Write(
        slot_key(lease.cluster, lease.number),
        _epoch_is_ours(lease) & works_on_it_still,
        removes=("working",),
    )


def release(lease: Lease) -> Write:
    """Free a slot that works on nothing."""
    works_on_nothing = Attr("working").not_exists()
    return Write(
        slot_key(lease.cluster, lease.number),
        _epoch_is_ours(lease) & _owner_is_us(lease) & works_on_nothing,
        {"owner": "", "until": 0.0},
    )


def _epoch_is_ours(lease: Lease) -> ConditionBase:
    return Attr("epoch").eq(lease.epoch)


def _owner_is_us(lease: Lease) -> ConditionBase:
    return Attr("owner").eq(lease.owner)
