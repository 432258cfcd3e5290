"""The connectors of a ledger, each revision parsed once in a process.

Tests: unit/wiring/test_objects.py
"""

from collections.abc import Iterable, Iterator, Mapping

from extentflow.config.connector import ConnectorConfig
from extentflow.config.parsing import parse
from extentflow.config.trust import Trust
from extentflow.errors import Misconfigured
from extentflow.ledger import ConnectorVersion, Ledger, last_stored
from extentflow.model import Content, Extent, Job
from extentflow.wording import nearest

CACHED_JOBS = 1_024


def not_stored(name: str) -> Misconfigured:
    """Return the error for a connector that the ledger has, and hides from new jobs.

    The ledger does not record whether a person deleted it or a command made it hidden.
    """
    return Misconfigured(
        f"connector {name} is not stored: it was deleted, or `extentflow run --topic` made it"
        " without --save; `extentflow connectors put FILE` stores it, or that command with --save"
    )


class ConnectorCatalogue:
    """Reads connectors from the ledger. Revisions are immutable, so each is parsed only once.

    `trust` says what stored connectors may name in this process; None: none is used here.
    """

    def __init__(self, ledger: Ledger, trust: Trust | None = None) -> None:
        self._ledger = ledger
        self._trust = trust
        self._refused: dict[tuple[str, int], list[str]] = {}
        self._configs: dict[tuple[str, int], ConnectorConfig] = {}
        self._pinned: dict[str, tuple[int, Content]] = {}

    def latest(self, name: str, *, deleted: bool = False) -> tuple[ConnectorConfig, int]:
        """Return a connector's latest configuration and its revision; Misconfigured: none.

        `deleted`: also of one that is not listed, for what jobs of it left.
        """
        stored = self._ledger.connectors.get(name)
        if stored is None and deleted:
            stored = last_stored(self._ledger.connectors, name)
        if stored is None:
            put = "`extentflow connectors put FILE` stores one"
            names = list(self._ledger.connectors.names())
            if name in names:
                raise not_stored(name)
            raise Misconfigured(f"there is no connector {name}; {nearest(name, names, put)}")
        return self.revision(name, stored.revision), stored.revision

    def expect(self, config: ConnectorConfig, revision: int, written: Mapping[str, str]) -> None:
        """Use a connector that is not stored, in this process only.

        `written` is the connector as it would be stored. Raises Misconfigured where the worker's
        owner refuses it.
        """
        if self._trust is not None and (refused := list(self._trust.problems(config, written))):
            raise Misconfigured(refused)
        self._configs[config.name, revision] = config

    def revision(self, name: str, revision: int) -> ConnectorConfig:
        """Return the revision that a job pins.

        Raises Misconfigured if the ledger or the parser lacks it, or the worker's owner refuses it.
        """
        if (name, revision) not in self._configs:
            stored = self._ledger.connectors.get(name, revision)
            if stored is None:
                raise Misconfigured(
                    f"the ledger has no revision {revision} of connector {name}, which a job "
                    "pins; restore the table, or run the object's address with --again"
                )
            try:
                self._parsed(stored)
            except Misconfigured as exc:
                which = f"connector {name}, revision {revision}, cannot be read"
                raise Misconfigured([f"{which}: {problem}" for problem in exc.problems]) from exc
        if refused := self._refused.get((name, revision)):
            raise Misconfigured(refused)
        return self._configs[name, revision]

    def _parsed(self, version: ConnectorVersion) -> ConnectorConfig:
        key = version.name, version.revision
        if key not in self._configs:
            self._configs[key] = parse(version.config)
            if self._trust is not None:
                which = f"connector {version.name}, revision {version.revision}"
                refused = self._trust.problems(self._configs[key], version.config)
                self._refused[key] = [f"{which}: {problem}" for problem in refused]
        return self._configs[key]

    def readable(
        self, versions: Iterable[ConnectorVersion]
    ) -> Iterator[tuple[ConnectorVersion, ConnectorConfig]]:
        """Yield versions as stored and as parsed, without those that another release stored."""
        for version in versions:
            try:
                yield version, self._parsed(version)
            except Misconfigured:  # commands that use it report the problem
                continue

    def revision_of(self, extent: Extent) -> int:
        """Return the revision that the extent's job pins. Raises Misconfigured without a job."""
        return self._pins(extent)[0]

    def content_of(self, extent: Extent) -> Content:
        """Return what the extent's job pins of its content. Raises Misconfigured without a job."""
        return self._pins(extent)[1]

    def _pins(self, extent: Extent) -> tuple[int, Content]:
        if extent.job not in self._pinned:
            job = self._ledger.jobs.get(extent.job)
            if job is None:
                raise Misconfigured(f"{extent.uri}: the ledger has no job {extent.job}")
            if len(self._pinned) >= CACHED_JOBS:
                self._pinned.clear()
            self._pinned[extent.job] = job.revision, job.content
        return self._pinned[extent.job]

    def topic_of(self, job: Job) -> str:
        """Return the topic of a job's records; its template where that makes no legal name."""
        config = self.revision(job.connector, job.revision)
        try:
            return config.topic_for(job.version)
        except Misconfigured:
            return config.topic
