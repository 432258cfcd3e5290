"""Connectors: validate, put, list, show, delete, pause, resume and stop."""

import builtins
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from extentflow.config.connector import ConnectorConfig
from extentflow.config.connector_keys import LOCAL_FILE
from extentflow.errors import BucketGone, ExtentflowError, Misconfigured
from extentflow.jobs.connector_catalogue import ConnectorCatalogue, not_stored
from extentflow.ledger import ConnectorState, ConnectorVersion, Ledger, last_stored
from extentflow.ledger.summaries import leased_work
from extentflow.model import Job, JobState
from extentflow.services.places import StoredPair, described_command, described_source, overlapping
from extentflow.wiring import check_connector
from extentflow.wording import nearest

OPEN = (JobState.PLANNING, JobState.RUNNING)
# Bounds the requests that `resume` makes for a number in a note.
COUNTED_JOBS = 1_000


@dataclass(frozen=True, slots=True)
class Connector:
    """One revision of a connector, as it was stored: secrets are references.

    `stored`: `run -c`, streaming queries and functions find it. Otherwise `run --topic` made it
    without --save, or it was deleted. `list` and `get` add how many of its jobs are open, and of
    how many of these a worker holds an extent now (`jobs_in_work`).

    `put` also finds the `overlapping` connectors, which deliver some of the same objects as well.
    `earlier` are those of commands and deleted ones, which may have delivered such objects.
    `unchecked` says why its bucket or folder could not be read from here; "" where it can be.
    `unchanged`: this revision was stored before.
    """

    name: str
    revision: int
    state: ConnectorState
    config: Mapping[str, str]
    stored: bool = True
    open_jobs: int = 0
    jobs_in_work: int = 0
    # No part of the connector: it equals what `get` returns.
    unchecked: str = field(default="", compare=False, repr=False)
    unchanged: bool = field(default=False, compare=False, repr=False)
    overlapping: tuple["Connector", ...] = field(default=(), compare=False, repr=False)
    earlier: tuple["Connector", ...] = field(default=(), compare=False, repr=False)

    @property
    def topic(self) -> str:
        """The topic, or its template."""
        return self.config.get("topic", "")

    @property
    def source(self) -> str:
        """The address that the connector reads."""
        return described_source(self.config)

    @property
    def command(self) -> str:
        """The command that delivers the same objects, without its --set."""
        return described_command(self.config)


@dataclass(frozen=True, slots=True)
class ConnectorChange:
    """The result of `pause`, `resume` and `stop`.

    `cancelled` lists the jobs that `stop` cancelled. `cancelled_before` counts those that `resume`
    leaves CANCELLED, up to COUNTED_JOBS. `deleted`: the connector is not stored.
    """

    name: str
    state: ConnectorState
    deleted: bool = False
    cancelled: tuple[str, ...] = ()
    cancelled_before: int = 0


class Connectors:
    """Manages the connectors of one ledger; raises Misconfigured where there is no such one.

    `look` raises where the bucket or the folder of a connector that is put cannot be read.
    """

    def __init__(
        self, ledger: Ledger, look: Callable[[ConnectorConfig], object] = lambda _config: None
    ) -> None:
        self._ledger = ledger
        self._look = look
        self._catalogue = ConnectorCatalogue(ledger)

    def put(self, config: Mapping[str, str]) -> Connector:
        """Store a connector's next revision; jobs already planned keep theirs.

        Raises Misconfigured with all problems of the configuration; nothing is stored then.
        """
        (stored,) = self.put_all([config])
        return stored

    def put_all(self, configs: Sequence[Mapping[str, str]]) -> builtins.list[Connector]:
        """Store connectors as `put`, none where one is wrong; an interruption leaves the rest.

        A bucket that does not exist is wrong. Objects that cannot be read here are not, because the
        machines that deliver may reach a bucket, or have a folder, that this machine lacks.
        """
        checked = [check_connector(config) for config in configs]
        unchecked = self._unchecked(checked)
        connectors = self._ledger.connectors
        before = {one.name: connectors.get(one.name) for one in checked}
        versions = [
            connectors.put(one.name, config) for one, config in zip(checked, configs, strict=True)
        ]
        # Once for all: every listing reads each connector.
        new = {one.name for one in checked}
        every = connectors.list(deleted=True)
        known = list(self._catalogue.readable(one for one in every if one.name not in new))
        stored: builtins.list[Connector] = []
        for one, version in zip(checked, versions, strict=True):
            others, earlier = self._overlaps(one, known)
            stored.append(
                replace(
                    self._described(version),
                    unchecked=unchecked[one.name],
                    unchanged=version == before[one.name],
                    overlapping=others,
                    earlier=earlier,
                )
            )
            known = [pair for pair in known if pair[0].name != one.name]
            known.append((version, one))
        return stored

    def _unchecked(self, configs: Sequence[ConnectorConfig]) -> dict[str, str]:
        """Return why the objects of connectors cannot be listed here, by name; raises as `put`."""
        found: dict[str, str] = {}
        problems: builtins.list[str] = []
        for config in configs:
            found[config.name] = ""
            try:
                self._look(config)
            except ExtentflowError as exc:
                found[config.name] = str(exc)
                if isinstance(exc, BucketGone) and config.endpoint_type != LOCAL_FILE:
                    problems.append(f"connector {config.name} is not stored: {exc}")
        if problems:
            raise Misconfigured(problems)
        return found

    def _overlaps(
        self, config: ConnectorConfig, known: Sequence[StoredPair]
    ) -> tuple[tuple[Connector, ...], tuple[Connector, ...]]:
        """Return stored connectors that read the same, and others that have jobs."""
        others: builtins.list[Connector] = []
        earlier: builtins.list[Connector] = []
        for version, _ in overlapping(config, known):
            if self._ledger.connectors.get(version.name) is not None:
                others.append(self._described(version))
            elif any(self._ledger.jobs.list(version.name)):
                earlier.append(self._described(version))
        return tuple(others), tuple(earlier)

    def list(self, *, every: bool = False) -> list[Connector]:
        """Return the latest revision of every connector; `every`: also of those not stored."""
        connectors = self._ledger.connectors
        stored = list(connectors.list())
        names = {version.name for version in stored}
        found = connectors.list(deleted=True) if every else stored
        described = [self._described(one, stored=one.name in names) for one in found]
        return self._with_jobs(described, None)

    def get(self, name: str, revision: int | None = None, *, every: bool = False) -> Connector:
        """Return a connector's latest revision, or the given one, else raise Misconfigured.

        `every`: also the latest one of a connector that is not stored; its jobs remain.
        """
        connectors = self._ledger.connectors
        shown = connectors.get(name)
        found = shown if revision is None else connectors.get(name, revision)
        if found is None and revision is None and every:
            found = last_stored(connectors, name)
        if found is None:
            raise self._unknown(name, revision)
        (described,) = self._with_jobs([self._described(found, stored=shown is not None)], name)
        return described

    def _with_jobs(
        self, found: builtins.list[Connector], name: str | None
    ) -> builtins.list[Connector]:
        """Add to connectors how many of their jobs are open, and in work."""
        listed = (job for state in OPEN for job in self._ledger.jobs.list(name, state))
        # By id: between the two lists a job may change from one to the other.
        jobs: dict[str, Job] = {job.id: job for job in listed}
        working = leased_work(self._ledger, {job.cluster for job in jobs.values()}).jobs
        count = Counter(job.connector for job in jobs.values())
        held = Counter(job.connector for job in jobs.values() if job.id in working)
        return [
            replace(one, open_jobs=count[one.name], jobs_in_work=held[one.name]) for one in found
        ]

    def delete(self, name: str) -> None:
        """Hide a connector from new jobs; planned jobs continue with their own revision."""
        if not self._ledger.connectors.delete(name):
            raise self._unknown(name)

    def pause(self, name: str) -> ConnectorChange:
        """Start no new extents of a connector; messages stay queued."""
        return self._set_state(name, ConnectorState.PAUSED)

    def resume(self, name: str) -> ConnectorChange:
        """Continue a paused or stopped connector; cancelled jobs stay cancelled."""
        change = self._set_state(name, ConnectorState.ENABLED)
        cancelled = islice(self._ledger.jobs.list(name, JobState.CANCELLED), COUNTED_JOBS)
        return replace(change, cancelled_before=sum(1 for _ in cancelled))

    def stop(self, name: str, began: Callable[[], object] = lambda: None) -> ConnectorChange:
        """Cancel a connector's open jobs; committed records stay. `began` is called before that.

        A job of which nothing is left ends DONE.
        """
        # First: a job that is registered after the jobs are listed is cancelled by its own driver.
        change = self._set_state(name, ConnectorState.STOPPED)
        began()
        jobs, reason = self._ledger.jobs, f"connector {name} was stopped"
        ended = [
            jobs.end(job.id, JobState.CANCELLED, reason)
            for state in OPEN
            for job in list(jobs.list(name, state))
        ]
        # A job that became final meanwhile stays as it is.
        cancelled = tuple(job.id for job in ended if job.state is JobState.CANCELLED)
        return replace(change, cancelled=cancelled)

    def _set_state(self, name: str, state: ConnectorState) -> ConnectorChange:
        if not self._ledger.connectors.set_state(name, state):
            raise self._unknown(name)
        return ConnectorChange(name, state, deleted=self._ledger.connectors.get(name) is None)

    def _unknown(self, name: str, revision: int | None = None) -> Misconfigured:
        names = list(self._ledger.connectors.names())
        if revision is not None and name in names:
            latest = f"`extentflow connectors show {name}` shows the latest one"
            return Misconfigured(f"there is no revision {revision} of connector {name}; {latest}")
        if name in names:
            return not_stored(name)
        near = nearest(name, names, "`extentflow connectors list` shows the connectors")
        return Misconfigured(f"there is no connector {name}; {near}")

    def _described(self, version: ConnectorVersion, *, stored: bool = True) -> Connector:
        state = self._ledger.connectors.state(version.name)
        return Connector(version.name, version.revision, state, version.config, stored)
