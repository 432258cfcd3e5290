"""The operations of DynamoLedger for users and planners: connectors and jobs."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from heapq import merge
from itertools import islice, product

from extentflow.ledger import ConnectorState, ConnectorVersion, JobProgress, items, rules
from extentflow.ledger import dynamodb_writes as writes
from extentflow.ledger.dynamodb_calls import Refused
from extentflow.ledger.dynamodb_items import DynamoItems
from extentflow.ledger.dynamodb_write import Write
from extentflow.ledger.items import Stored
from extentflow.model import Job, JobState


class DynamoConnectors:
    """Connectors of the ledger's port."""

    def __init__(self, table: DynamoItems) -> None:
        self._items = table
        self._revisions: dict[tuple[str, int], ConnectorVersion] = {}

    def put(self, name: str, config: Mapping[str, str]) -> ConnectorVersion:
        """Store the next revision, or return the latest when it says the same."""
        subject = f"storing connector {name}"
        return self._items.race(subject, lambda: self._put(subject, name, config))

    def get(self, name: str, revision: int | None = None) -> ConnectorVersion | None:
        """Return a revision, or the latest that is not deleted."""
        if revision is None:
            shown = self._items.get(items.connector_key(name))
            return self._latest(name, shown) if shown and "deleted" not in shown else None
        return self._revision(name, revision)

    def list(self) -> Iterator[ConnectorVersion]:
        """Yield the latest revisions, by name."""
        for shown in self._items.query(items.CONNECTORS):
            if "deleted" not in shown and (latest := self._latest(shown["sk"], shown)):
                yield latest

    def names(self) -> Iterator[str]:
        """Yield all names, those of deleted connectors included."""
        for shown in self._items.query(items.CONNECTORS):
            yield shown["sk"]

    def delete(self, name: str) -> bool:
        """Hide the connector."""
        token = self._items.token()
        write = writes.hide_connector(name, token=token)
        try:
            self._items.update(f"deleting connector {name}", write)
        except Refused as refused:
            return (refused.images[0] or {}).get("deleted") == token
        return True

    def state(self, name: str) -> ConnectorState:
        """Return what is wanted of a connector."""
        shown = self._items.get(items.connector_key(name)) or {}
        return ConnectorState(shown.get("state", ConnectorState.RUNNING))

    def set_state(self, name: str, state: ConnectorState) -> bool:
        """Say what is wanted of a connector; saying it twice does no harm."""
        try:
            self._items.update(f"{state} connector {name}", writes.steer_connector(name, state))
        except Refused:
            return False
        return True

    def _put(self, subject: str, name: str, config: Mapping[str, str]) -> ConnectorVersion:
        shown = self._items.get(items.connector_key(name))
        latest = self._latest(name, shown) if shown else None
        if latest is None:
            latest = ConnectorVersion(name, 0)
        if shown and latest.config == config:
            if "deleted" in shown:
                self._items.update(subject, writes.show_connector(name, latest=latest.revision))
            return latest
        following = ConnectorVersion(name, latest.revision + 1, dict(config))
        self._items.transact(subject, writes.add_revision(following))
        return following

    def _latest(self, name: str, shown: Stored) -> ConnectorVersion | None:
        return self._revision(name, shown["revision"])

    def _revision(self, name: str, revision: int) -> ConnectorVersion | None:
        """Return a revision; it never changes, so that a process reads it once."""
        key = (name, revision)
        if key not in self._revisions:
            item = self._items.get(items.config_key(name, revision))
            if item is None:
                return None
            self._revisions[key] = items.connector_from_item(item)
        return self._revisions[key]


class DynamoJobs:
    """Jobs of the ledger's port."""

    def __init__(self, table: DynamoItems) -> None:
        self._items = table

    def register(self, job: Job) -> Job:
        """Store a new job, or return the one already stored."""
        dated = replace(job, created=job.created or self._items.now())
        subject = f"registering job {job.id} of {job.version.uri}"
        return items.job_from_item(self._items.store(subject, writes.register(dated)))

    def get(self, job_id: str) -> Job | None:
        """Return one job."""
        item = self._items.get(items.job_key(job_id))
        return items.job_from_item(item) if item else None

    def find_registered(self, job_ids: Iterable[str]) -> set[str]:
        """Return the ids under which a job is stored that is not SUPERSEDED."""
        keys = [items.job_key(job_id) for job_id in set(job_ids)]
        return {
            items.job_of(found)
            for found in self._items.several(keys, ("pk", "state"))
            if found["state"] != JobState.SUPERSEDED
        }

    def list(self, connector: str | None = None, state: JobState | None = None) -> Iterator[Job]:
        """Yield jobs, newest first within a connector and state; may lag behind writes."""
        states = sorted(JobState) if state is None else [state]
        places = self._held(states) if connector is None else product(states, [connector])
        for each, name in places:
            yield from map(items.job_from_item, self._listed(name, each))

    def plan(self, job_id: str, *, count: int, cursor: int, complete: bool) -> Job:
        """Move a PLANNING job's cursor forwards."""
        job = known_job(self._items, job_id)[0]
        after = job.with_plan(replace(job.plan, count=count, cursor=cursor))
        if complete:
            after = after.in_state(JobState.RUNNING)
        return self._change(f"planning job {job_id}", job_id, writes.plan(after, complete=complete))

    def end(self, job_id: str, state: JobState, reason: str) -> Job:
        """Bring an open job to an early end."""
        rules.check_ending(state)
        subject = f"ending job {job_id}"

        def attempt() -> Job:
            job = known_job(self._items, job_id)[0]
            ended = job.in_state(state, rules.readable(reason), ended=self._items.now())
            if job.state.open:
                self._items.update(subject, writes.change(job, ended))
            return ended if job.state.open else job

        return self._items.race(subject, attempt)

    def progress(self, job_id: str) -> JobProgress:
        """Return the sum of the job's counters."""
        progress = JobProgress()
        for shard in self._items.query(items.job_partition(job_id), items.COUNT):
            progress = rules.total(progress, items.count_from_item(shard))
        return progress

    def close(self, job_id: str) -> Job:
        """End a RUNNING job that has nothing left to do."""
        job = known_job(self._items, job_id)[0]
        if job.state is not JobState.RUNNING:
            return job
        verdict = rules.verdict(job, self.progress(job_id))
        if verdict is None:
            return job
        closed = job.in_state(*verdict, ended=self._items.now())
        return self._change(f"closing job {job_id}", job_id, writes.change(job, closed))

    def resume(self, job_id: str) -> Job:
        """Open an ended job again."""
        job, planned = known_job(self._items, job_id)
        if job.state not in rules.ENDINGS:
            return job
        after = rules.reopened(job, planned=planned)
        return self._change(f"resuming job {job_id}", job_id, writes.change(job, after))

    def unpublished(self, limit: int) -> Iterator[Job]:
        """Yield final jobs whose end was not announced; a connector's stand together."""
        waiting = (
            items.job_from_item(item)
            for name in (shown["sk"] for shown in self._items.query(items.CONNECTORS))
            for item in self._items.listed(items.unannounced_listing(name), oldest_first=True)
        )
        return islice(waiting, limit)

    def mark_published(self, job: Job) -> None:
        """Note that this end of a job was announced."""
        rules.check_ended(job)
        with suppress(Refused):
            self._items.update(f"noting job {job.id} as announced", writes.announced(job))

    def _held(self, states: Iterable[JobState]) -> Iterator[tuple[JobState, str]]:
        """Yield which states and connectors there are jobs of; reads the whole index."""
        held = set(self._items.listings())
        names = sorted({listing.partition("#")[2] for listing in held})
        for state, name in product(states, names):
            waiting = not state.open and items.unannounced_listing(name) in held
            if waiting or items.listing(name, state) in held:
                yield state, name

    def _listed(self, connector: str, state: JobState) -> Iterator[Stored]:
        """Yield a connector's jobs in one state, announced or not, newest first."""
        settled = self._items.listed(items.listing(connector, state))
        if state.open:
            return settled
        waiting = self._items.listed(items.unannounced_listing(connector), state=str(state))
        return merge(settled, waiting, key=lambda item: item["created"], reverse=True)

    def _change(self, subject: str, job_id: str, write: Write) -> Job:
        """Change a job if it still is as the write expects; return it as it stands."""
        try:
            return items.job_from_item(self._items.update(subject, write, returning="ALL_NEW"))
        except Refused:
            return known_job(self._items, job_id)[0]


def known_job(table: DynamoItems, job_id: str) -> tuple[Job, bool]:
    """Return a job, and whether its plan is complete.

    Raises:
        Conflict: the job is not in this table.
    """
    item = table.get(items.job_key(job_id))
    if item is None:
        raise rules.unknown_job(job_id)
    return items.job_from_item(item), item["planned"]
