"""The layout of the single table: keys, attributes and their wire form.

Partition key, sort key, content:

    META             LEDGER              the ledger's identity
    CONNECTORS       <name>              latest revision, deleted or not
    CONNECTOR#<name> CONFIG#<8 digits>   one revision, never changed
    JOB#<id>         JOB                 the job
    JOB#<id>         COUNT#<0..15>       its counters, in 16 shards by ordinal
    JOB#<id>         EXTENT#<8 digits>   one extent, written by its first claim
    SLOTS#<cluster>  <8 digits>          one slot, written by its first lease
    NOTES            <name>              facts that may be lost without harm; some expire
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from extentflow.ledger import ClaimMark, ConnectorVersion, ExtentItem, JobProgress, SlotItem
from extentflow.model import ExtentState, Job, JobState, ObjectVersion, Plan

SHARDS = 16

Value: TypeAlias = "str | int | float | bool | Mapping[str, Value]"
Attributes: TypeAlias = "dict[str, Value]"
Stored: TypeAlias = dict[str, Any]
Wire: TypeAlias = dict[str, Any]


class Key(NamedTuple):
    """Partition key and sort key of one item."""

    pk: str
    sk: str


LEDGER_KEY = Key("META", "LEDGER")
CONNECTORS = "CONNECTORS"
NOTES = "NOTES"
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
    """Return the key of the counter shard that counts an extent."""
    return Key(job_partition(job_id), f"{COUNT}{ordinal % SHARDS}")


def extent_key(job_id: str, ordinal: int) -> Key:
    """Return the key of an extent."""
    return Key(job_partition(job_id), f"{EXTENT}{ordinal:08}")


def slot_key(cluster: str, number: int) -> Key:
    """Return the key of a slot; zero-padded, so that a query yields slots by number."""
    return Key(slot_partition(cluster), f"{number:08}")


def connector_key(name: str) -> Key:
    """Return the key under which a connector is listed."""
    return Key(CONNECTORS, name)


def config_key(name: str, revision: int) -> Key:
    """Return the key of one revision of a connector."""
    return Key(f"CONNECTOR#{name}", f"CONFIG#{revision:08}")


def note_key(name: str) -> Key:
    """Return the key of a note."""
    return Key(NOTES, name)


def listing(connector: str, state: JobState) -> str:
    """Return the index partition of a connector's jobs in one state."""
    return f"{state}#{connector}"


def unannounced_listing(connector: str) -> str:
    """Return the index partition of a connector's final jobs whose end is not announced yet."""
    return f"ENDED#{connector}"


def job_listing(job: Job) -> str:
    """Return the index partition in which a job stands."""
    if job.state.open or job.announced:
        return listing(job.connector, job.state)
    return unannounced_listing(job.connector)


# -- wire form ------------------------------------------------------------------------------------


def to_wire(value: Value) -> Wire:
    """Return an attribute value as DynamoDB's JSON has it."""
    match value:
        case bool():
            return {"BOOL": value}
        case int() | float():
            return {"N": repr(value)}
        case str():
            return {"S": value}
        case _:
            return {"M": {name: to_wire(inner) for name, inner in value.items()}}


def item_to_wire(attributes: Mapping[str, Value]) -> Wire:
    """Return several attributes in wire form."""
    return {name: to_wire(value) for name, value in attributes.items()}


def from_wire(value: Wire) -> Any:  # noqa: ANN401 - the table decides
    """Return one attribute's value; whole numbers become int."""
    ((kind, content),) = value.items()
    match kind:
        case "N":
            return int(content) if content.lstrip("-").isdigit() else float(content)
        case "M":
            return item_from_wire(content)
        case _:
            return content


def item_from_wire(wire: Wire) -> Stored:
    """Return an item's attributes as plain values."""
    return {name: from_wire(value) for name, value in wire.items()}


# -- jobs -----------------------------------------------------------------------------------------


def job_to_item(job: Job) -> Attributes:
    """Lay a job out as attributes, without its key."""
    version: Attributes = {
        "bucket": job.version.bucket,
        "key": job.version.key,
        "etag": job.version.etag,
        "size": job.version.size,
    }
    if job.version.version_id is not None:
        version["version_id"] = job.version.version_id
    return {
        "connector": job.connector,
        "revision": job.revision,
        "version": version,
        "format": job.format,
        "cluster": job.cluster,
        "target_bytes": job.plan.target_bytes,
        "generation": job.generation,
        "ordered": job.ordered,
        "created": job.created,
        **job_state(job),
    }


def job_state(job: Job) -> Attributes:
    """Lay out what changes in a job's life."""
    return {
        "state": str(job.state),
        "reason": job.reason,
        "reopened": job.reopened,
        "count": job.plan.count,
        "cursor": job.plan.cursor,
        "ended": job.ended,
        "listing": job_listing(job),
    }


def job_of(item: Stored) -> str:
    """Return the id of the job to which an item belongs."""
    return str(item["pk"]).removeprefix(job_partition(""))


def job_from_item(item: Stored) -> Job:
    """Rebuild a job."""
    version, state = item["version"], JobState(item["state"])
    return Job(
        id=job_of(item),
        connector=item["connector"],
        revision=item["revision"],
        version=ObjectVersion(
            version["bucket"],
            version["key"],
            version.get("version_id"),
            version["etag"],
            version["size"],
        ),
        format=item["format"],
        cluster=item["cluster"],
        plan=Plan(item["target_bytes"], item["count"], item["cursor"]),
        generation=item["generation"],
        ordered=item["ordered"],
        state=state,
        reason=item["reason"],
        reopened=item["reopened"],
        created=float(item["created"]),
        ended=float(item.get("ended", 0.0)),
        announced=not state.open and item["listing"] == listing(item["connector"], state),
    )


def count_to_item(change: JobProgress) -> dict[str, int]:
    """Lay out what is to be added to a counter shard; nothing for what does not change."""
    counts = {
        "done": change.done,
        "failed": change.failed,
        "records": change.records,
        "bad": change.bad,
        "bytes": change.bytes,
    }
    return {name: count for name, count in counts.items() if count}


def count_from_item(item: Stored) -> JobProgress:
    """Rebuild one counter shard."""
    names = ("done", "failed", "records", "bad", "bytes")
    return JobProgress(*(item.get(name, 0) for name in names))


# -- extents --------------------------------------------------------------------------------------


def mark_to_item(mark: ClaimMark) -> Attributes:
    """Lay a claim's mark out; compared as a whole in conditions."""
    return {
        "slot": mark.slot,
        "epoch": mark.epoch,
        "nonce": mark.nonce,
        "message": mark.message,
    }


def extent_to_item(item: ExtentItem) -> Attributes:
    """Lay out an extent without its key, its range and its claim."""
    return {
        "state": str(item.state),
        "position": item.position,
        "records": item.records,
        "bad": item.bad,
        "attempts": item.attempts,
        "error": item.error,
        "progress_unknown": item.progress_unknown,
    }


def last_verdict(item: Stored) -> tuple[str, str]:
    """Return who let an extent go last (nonce or token), and how."""
    last = item.get("last", {})
    return last.get("nonce", ""), last.get("verdict", "")


def extent_from_item(item: Stored) -> ExtentItem:
    """Rebuild an extent."""
    return ExtentItem(
        job=job_of(item),
        ordinal=int(item["sk"].removeprefix(EXTENT)),
        state=ExtentState(item["state"]),
        start=item["start"],
        end=item["end"],
        position=item["position"],
        records=item["records"],
        bad=item["bad"],
        attempts=item["attempts"],
        claim=ClaimMark(**item["claim"]) if "claim" in item else None,
        error=item["error"],
        progress_unknown=item["progress_unknown"],
    )


# -- slots and connectors -------------------------------------------------------------------------


def slot_from_item(item: Stored) -> SlotItem:
    """Rebuild a slot."""
    working = item.get("working")
    return SlotItem(
        cluster=item["pk"].removeprefix(slot_partition("")),
        number=int(item["sk"]),
        epoch=item["epoch"],
        owner=item["owner"],
        until=float(item["until"]),
        working=(working["job"], working["ordinal"]) if working else None,
    )


def connector_from_item(item: Stored) -> ConnectorVersion:
    """Rebuild one revision of a connector."""
    return ConnectorVersion(item["name"], item["revision"], item["config"])
