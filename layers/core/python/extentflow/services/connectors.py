"""Connectors: validate, put, list, show, delete, pause, resume and stop."""

import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from extentflow.config.connector import ConnectorConfig
from extentflow.errors import Misconfigured
from extentflow.jobs.connector_catalogue import ConnectorCatalogue, not_stored
from extentflow.ledger import ConnectorState, ConnectorVersion, Ledger
from extentflow.model import JobState
from extentflow.services.places import StoredPair, described_source, overlapping
from extentflow.wiring import check_connector
from extentflow.wording import nearest

# Bounds the requests that `resume` makes for a number in a note.
COUNTED_JOBS = 1_000


@dataclass(frozen=True, slots=True)
class Connector:
    """One revision of a connector, as it was stored: secrets are references.

    `put` also finds the `overlapping` connectors, which deliver some of the same objects as well.
    `earlier` are those of commands and deleted ones, which may have delivered such objects.
    """

    name: str
    revision: int
    state: ConnectorState
    config: Mapping[str, str]
    # No part of the connector: it equals what `get` returns.
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
    """Manages the connectors of one ledger; raises Misconfigured where there is no such one."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._catalogue = ConnectorCatalogue(ledger)

    def put(self, config: Mapping[str, str]) -> Connector:
        """Store a connector's next revision; jobs already planned keep theirs.

        Raises Misconfigured with all problems of the configuration; nothing is stored then.
        """
        (stored,) = self.put_all([config])
        return stored

    def put_all(self, configs: Sequence[Mapping[str, str]]) -> builtins.list[Connector]:
        """Store connectors as `put`, none where one is wrong; an interruption leaves the rest."""
        checked = [check_connector(config) for config in configs]
        versions = [
            self._ledger.connectors.put(one.name, config)
            for one, config in zip(checked, configs, strict=True)
        ]
        # Once for all: every listing reads each connector.
        new = {one.name for one in checked}
        every = self._ledger.connectors.list(deleted=True)
        known = list(self._catalogue.readable(one for one in every if one.name not in new))
        stored: builtins.list[Connector] = []
        for one, version in zip(checked, versions, strict=True):
            others, earlier = self._overlaps(one, known)
            stored.append(replace(self._described(version), overlapping=others, earlier=earlier))
            known = [pair for pair in known if pair[0].name != one.name]
            known.append((version, one))
        return stored

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

    def list(self) -> list[Connector]:
        """Return the latest revision of every connector."""
        return [self._described(version) for version in self._ledger.connectors.list()]

    def get(self, name: str, revision: int | None = None) -> Connector:
        """Return a connector's latest revision, or the given one, else raise Misconfigured."""
        found = self._ledger.connectors.get(name, revision)
        if found is None:
            raise self._unknown(name, revision)
        return self._described(found)

    def delete(self, name: str) -> None:
        """Hide a connector from new jobs; planned jobs continue with their own revision."""
        if not self._ledger.connectors.delete(name):
            raise self._unknown(name)

    def pause(self, name: str) -> ConnectorChange:
        """Start no new extents of a connector; messages stay queued."""
        return self._set_state(name, ConnectorState.PAUSED)

    def resume(self, name: str) -> ConnectorChange:
        """Continue a paused or stopped connector; cancelled jobs stay cancelled."""
        change = self._set_state(name, ConnectorState.RUNNING)
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
            jobs.end(jobs.close(job.id).id, JobState.CANCELLED, reason)
            for state in (JobState.PLANNING, JobState.RUNNING)
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

    def _described(self, version: ConnectorVersion) -> Connector:
        state = self._ledger.connectors.state(version.name)
        return Connector(version.name, version.revision, state, version.config)
