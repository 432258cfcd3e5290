"""Jobs of a ledger and their counters, over its items.

Tests: contracts/ledger_jobs.py, unit/ledger/test_stored_items.py
"""

import builtins
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from heapq import merge
from itertools import chain, islice, product
from typing import Unpack

from extentflow.errors import Conflict
from extentflow.ledger import JobProgress, PlanStep, rules
from extentflow.ledger.connector_store import CONNECTORS
from extentflow.ledger.items import (
    Attr,
    Attributes,
    Condition,
    ConditionFailed,
    Fields,
    Items,
    Key,
    Stored,
    Write,
    decoding,
    image,
    lay_out,
    race,
    read_fields,
    store,
)
from extentflow.model import Job, JobState, ObjectVersion, Plan

JOB, COUNT = "JOB#", "COUNT#"
# Of a job whose next generation is registered; jobs of earlier versions lack it.
FOLLOWED = "followed"
# One counter item would cap a job at the 1,000 writes per second of a DynamoDB partition.
SHARDS = 16

JOB_FIELDS: Fields = {
    "connector": str,
    "revision": int,
    "format": str,
    "cluster": str,
    "generation": int,
    "ordered": bool,
    "created": float,
}
STATE_FIELDS: Fields = {"state": JobState, "reason": str, "reopened": int, "ended": float}
PLAN_FIELDS: Fields = dict.fromkeys(
    ("target_bytes", "count", "cursor", "covered", "cut_version"), int
)
CONTENT_FIELDS: Fields = {"compression": str, "facts": str}
ALL_PLAN_FIELDS: Fields = {**PLAN_FIELDS, **CONTENT_FIELDS}
# Of the plans of earlier versions.
EARLIER_PLANS = {"covered": -1, "cut_version": 1, "compression": "", "facts": ""}
VERSION_FIELDS: Fields = {"bucket": str, "key": str, "etag": str, "size": int}
COUNTERS = ("done", "failed", "records", "bad", "filtered", "bytes")


class StoredJobs:
    """A `JobStore`."""

    def __init__(self, items: Items) -> None:
        self._items = items

    def register(self, job: Job) -> Job:
        return job_from_item(store(self._items, *self._registration(job)))

    def follow(self, before: Job, job: Job) -> Job | None:
        subject, write = self._registration(job)
        mark = Write(job_key(before.id), _is_as_read(before), {FOLLOWED: True})
        try:
            self._items.transact(subject, (write, mark))
        except ConditionFailed as refused:
            found = image(self._items, refused, 0, write.key)
            return job_from_item(found) if found else None
        return self.stored(job.id)[0]

    def _registration(self, job: Job) -> tuple[str, Write]:
        dated = replace(job, created=job.created or self._items.now())
        version = {name: value for name, value in asdict(job.version).items() if value}
        version["size"] = job.version.size  # also of an empty object
        content: Attributes = {
            **lay_out(dated, JOB_FIELDS),
            **lay_out(job.plan, PLAN_FIELDS),
            **lay_out(job.plan, (name for name in CONTENT_FIELDS if getattr(job.plan, name))),
            **_state_to_item(dated),
            "version": version,
            "planned": job.state is not JobState.PLANNING,
        }
        if job.most_bad >= 0:
            content["most_bad"] = job.most_bad
        write = Write(job_key(job.id), Attr("pk").not_exists(), content)
        return f"registering job {job.id} of {job.version.uri}", write

    def get(self, job_id: str) -> Job | None:
        item = self._items.get(job_key(job_id))
        return job_from_item(item) if item else None

    def find_registered(self, job_ids: Iterable[str]) -> set[str]:
        keys = [job_key(job_id) for job_id in set(job_ids)]
        # Eventually consistent: an object that is taken for new is registered once anyway.
        return {
            job_of(found)
            for found in self._items.get_many(keys, ("pk", "state"))
            if found["state"] != JobState.SUPERSEDED
        }

    def get_many(self, job_ids: Iterable[str]) -> Iterator[Job]:
        keys = [job_key(job_id) for job_id in dict.fromkeys(job_ids)]
        return map(job_from_item, self._items.get_many(keys))

    def list(self, connector: str | None = None, state: JobState | None = None) -> Iterator[Job]:
        # In the order in which jobs pass through them: one that ends meanwhile is seen later.
        states = list(JobState) if state is None else [state]
        pairs = self._pairs_in_index(states) if connector is None else product(states, [connector])
        for each, name in pairs:
            yield from map(job_from_item, self._listed(name, each))

    def plan(self, job_id: str, **step: Unpack[PlanStep]) -> Job:
        job = self.stored(job_id)[0]
        after = rules.planned(job, **step)
        if after is job:
            return job
        moves_forwards = Attr("cursor").lte(step["cursor"]) & Attr("count").lte(step["count"])
        version = after.plan.cut_version
        # Items of earlier versions have no `cut_version`; it was 1.
        has_version: Condition = Attr("cut_version").eq(version)
        if version == 1:
            has_version |= Attr("cut_version").not_exists()
        same_cut = Attr("count").eq(0) | has_version
        content = {**_state_to_item(after), "planned": step["complete"], "cut_version": version}
        condition = Attr("state").eq(JobState.PLANNING) & moves_forwards & same_cut
        write = Write(job_key(job_id), condition, content)
        return self._change(f"planning job {job_id}", job_id, write)

    def pin_partition(self, job_id: str, partition: int) -> int:
        is_unpinned = Attr("pk").exists() & Attr("partition").not_exists()
        write = Write(job_key(job_id), is_unpinned, {"partition": partition})
        return self._change(f"pinning the partition of job {job_id}", job_id, write).partition

    def end(self, job_id: str, state: JobState, reason: str) -> Job:
        if state not in rules.ENDINGS:  # only `close` writes DONE
            states = ", ".join(rules.ENDINGS)
            raise ValueError(f"a job cannot be ended as {state}, only as {states}")
        subject = f"ending job {job_id}"

        def attempt() -> Job:
            # Of one that nothing is left of, there is nothing to cancel.
            cancels = state is JobState.CANCELLED
            job = self.close(job_id) if cancels else self.stored(job_id)[0]
            after = rules.ended(job, state, reason, at=self._items.now())
            if job.state.open:
                self._items.update(subject, job_change(job, after))
            return after

        return race(self._items, subject, attempt)

    def dismiss(self, job_id: str, reason: str) -> Job:
        subject = f"dismissing job {job_id}"

        def attempt() -> Job:
            job = self.stored(job_id)[0]
            after = rules.dismissed(job, reason)
            if after is not job:
                self._items.update(subject, job_change(job, after))
            return after

        return race(self._items, subject, attempt)

    def progress(self, job_id: str) -> JobProgress:
        return _sum(self._items.query(f"{JOB}{job_id}", COUNT))

    def progress_of(self, jobs: Iterable[Job]) -> dict[str, JobProgress]:
        keys = {job.id: _count_keys(job) for job in jobs}
        shards: dict[str, builtins.list[Stored]] = {job: [] for job in keys}
        for shard in self._items.get_many([*chain.from_iterable(keys.values())]):
            shards[job_of(shard)].append(shard)
        return {job: _sum(found) for job, found in shards.items()}

    def close(self, job_id: str) -> Job:
        # The job before the counters: complete counters stay complete until the job is reopened,
        # and then the condition on `reopened` refuses the write.
        job, planned = self.stored(job_id)
        cancelled = job.state is JobState.CANCELLED and planned
        if job.state is not JobState.RUNNING and not cancelled:
            return job
        verdict = rules.verdict(job.in_state(JobState.RUNNING), self.progress(job_id))
        # Extents that were in work when the job was cancelled may have been the last ones.
        if verdict is None or (cancelled and verdict[0] is not JobState.DONE):
            return job
        closed = job.in_state(*verdict, ended=self._items.now())
        return self._change(f"closing job {job_id}", job_id, job_change(job, closed))

    def resume(self, job_id: str, *, accept_duplicates: bool = False) -> Job:
        job, planned = self.stored(job_id)
        if job.state not in rules.ENDINGS:
            return job
        change = reopening(job, planned=planned, followed=accept_duplicates)
        try:
            found = self._items.update(f"resuming job {job_id}", change, returning="ALL_NEW")
        except ConditionFailed as refused:
            require_last(refused.images.get(0), job)
            return self.stored(job_id)[0]
        return job_from_item(found)

    def unpublished(self, limit: int) -> Iterator[Job]:
        listings = (_unpublished_listing(shown["sk"]) for shown in self._items.query(CONNECTORS))
        found = (self._items.listed(listing, oldest_first=True) for listing in listings)
        return map(job_from_item, islice(chain.from_iterable(found), limit))

    def mark_published(self, job: Job) -> None:
        if job.state.open:
            raise ValueError(f"job {job.id} is {job.state}; it has no end to publish")
        content: Attributes = {"listing": _listing(job.connector, job.state)}
        write = Write(job_key(job.id), _is_as_read(job), content)
        with suppress(ConditionFailed):  # reopened since: its next end is published, too
            self._items.update(f"marking job {job.id} as published", write)

    def stored(self, job_id: str) -> tuple[Job, bool]:
        """Return a job, and whether its plan is complete; raises Conflict without a job."""
        item = self._items.get(job_key(job_id))
        if item is None:
            raise Conflict(f"job {job_id}: not in this ledger; `extentflow status` lists the jobs")
        with decoding(item):
            return job_from_item(item), bool(item["planned"])

    def _pairs_in_index(self, states: Iterable[JobState]) -> Iterator[tuple[JobState, str]]:
        held = set(self._items.listings())
        names = sorted({listing.partition("#")[2] for listing in held})
        for state, name in product(states, names):
            unpublished = not state.open and _unpublished_listing(name) in held
            if unpublished or _listing(name, state) in held:
                yield state, name

    def _listed(self, connector: str, state: JobState) -> Iterator[Stored]:
        listed = self._items.listed(_listing(connector, state))
        if state.open:
            return listed
        # Jobs whose end is not published share an index partition, whatever their final state.
        unpublished = self._items.listed(_unpublished_listing(connector), state=state)
        return merge(listed, unpublished, key=lambda item: item.get("created", 0), reverse=True)

    def _change(self, subject: str, job_id: str, write: Write) -> Job:
        try:
            return job_from_item(self._items.update(subject, write, returning="ALL_NEW"))
        except ConditionFailed:
            return self.stored(job_id)[0]


def reopening(seen: Job, *, planned: bool, followed: bool) -> Write:
    """Open a job again unless it changed since it was read, or, without `followed`, is followed."""
    write = job_change(seen, rules.reopened(seen, planned=planned))
    if followed:
        return write
    return replace(write, condition=_is_as_read(seen) & Attr(FOLLOWED).not_exists())


def require_last(item: Stored | None, job: Job) -> None:
    """Raise Conflict where the item of a job says that it is followed."""
    if item and FOLLOWED in item:
        raise Conflict(f"{job.version.uri}: job {job.id}: a later job delivers the object since")


def job_change(seen: Job, after: Job) -> Write:
    """Change a job's state unless it changed since it was read."""
    return Write(job_key(seen.id), _is_as_read(seen), _state_to_item(after))


def _is_as_read(seen: Job) -> Condition:
    # The state alone is not enough: a job may have been reopened and have failed again.
    return Attr("state").eq(seen.state) & Attr("reopened").eq(seen.reopened)


def count_change(job_id: str, ordinal: int, change: JobProgress) -> tuple[Write, ...]:
    """Add to the counters of a job; no write for no change."""
    adds = {name: by for name in COUNTERS if (by := getattr(change, name))}
    key = Key(f"{JOB}{job_id}", f"{COUNT}{ordinal % SHARDS}")
    return (Write(key, adds=adds),) if adds else ()


def _count_keys(job: Job) -> list[Key]:
    return [Key(f"{JOB}{job.id}", f"{COUNT}{n}") for n in range(min(SHARDS, job.plan.count))]


def _sum(shards: Iterable[Stored]) -> JobProgress:
    # A counter that never changed has no attribute.
    sums = dict.fromkeys(COUNTERS, 0)
    for shard in shards:
        with decoding(shard):
            for name in COUNTERS:
                sums[name] += int(shard.get(name, 0))
    return JobProgress(**sums)


def job_key(job_id: str) -> Key:
    """Return the key of a job."""
    return Key(f"{JOB}{job_id}", "JOB")


def job_of(item: Stored) -> str:
    """Return the id of the job to which an item belongs."""
    return str(item["pk"]).removeprefix(JOB)


def _listing(connector: str, state: JobState) -> str:
    return f"{state}#{connector}"


def _unpublished_listing(connector: str) -> str:
    return f"ENDED#{connector}"


def _state_to_item(job: Job) -> Attributes:
    listed = job.state.open or job.published
    listing = _listing(job.connector, job.state) if listed else _unpublished_listing(job.connector)
    plan = lay_out(job.plan, ("count", "cursor", "covered"))
    return {**lay_out(job, STATE_FIELDS), **plan, "listing": listing}


def job_from_item(item: Stored) -> Job:
    """Return a stored job. Raises UnreadableItem."""
    with decoding(item):
        return _job(item)


def _job(item: Stored) -> Job:
    version, state = item["version"], JobState(item["state"])
    return Job(
        id=job_of(item),
        version=ObjectVersion(
            version_id=version.get("version_id"),
            modified=int(version.get("modified", 0)),
            **read_fields(version, VERSION_FIELDS),
        ),
        # Jobs of earlier versions lack, below, `ended`.
        plan=Plan(**read_fields({**EARLIER_PLANS, **item}, ALL_PLAN_FIELDS)),
        published=not state.open and item["listing"] == _listing(item["connector"], state),
        partition=int(item.get("partition", -1)),
        most_bad=int(item.get("most_bad", -1)),
        topics={str(topic): str(one) for topic, one in item.get("topics", {}).items()},
        **read_fields(item, JOB_FIELDS),
        **read_fields({"ended": 0, **item}, STATE_FIELDS),
    )
