"""Connector revisions of the ledger, parsed once per process."""

from collections.abc import Mapping

from extentflow.config import nearest
from extentflow.connectors import ConnectorConfig
from extentflow.errors import Misconfigured
from extentflow.ledger import ConnectorVersion, Ledger
from extentflow.model import Extent, Job
from extentflow.wiring.registry import parse_connector

CACHED_JOBS = 1_024


class ConnectorCatalogue:
    """Reads connectors from the ledger. Revisions are immutable, so each is parsed only once."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._configs: dict[tuple[str, int], ConnectorConfig] = {}
        self._revisions: dict[str, int] = {}

    def latest(self, name: str) -> tuple[ConnectorConfig, int]:
        """Return a connector's latest configuration and its revision.

        Raises:
            Misconfigured: there is no such connector, or this version cannot parse it.
        """
        stored = self._ledger.connectors.get(name)
        if stored is None:
            put = "`extentflow connectors put FILE` stores one"
            names = list(self._ledger.connectors.names())
            if name in names:
                raise Misconfigured(f"connector {name} was deleted; {put} again")
            raise Misconfigured(f"there is no connector {name}; {nearest(name, names, put)}")
        return self.revision(name, stored.revision), stored.revision

    def revision(self, name: str, revision: int) -> ConnectorConfig:
        """Return one revision of a connector, as jobs pin it.

        Raises:
            Misconfigured: the ledger does not have it, or this version cannot parse it.
        """
        if (name, revision) not in self._configs:
            stored = self._ledger.connectors.get(name, revision)
            if stored is None:
                raise Misconfigured(
                    f"the ledger has no revision {revision} of connector {name}, which a job "
                    "pins; restore the table, or run the object's address with --again"
                )
            self._configs[name, revision] = parse_stored(stored)
        return self._configs[name, revision]

    def revision_of(self, extent: Extent) -> int:
        """Return the connector revision that the extent's job pins.

        Raises:
            Misconfigured: the ledger has no such job.
        """
        if extent.job not in self._revisions:
            job = self._ledger.jobs.get(extent.job)
            if job is None:
                raise Misconfigured(f"{extent.uri}: the ledger has no job {extent.job}")
            if len(self._revisions) >= CACHED_JOBS:
                self._revisions.clear()
            self._revisions[extent.job] = job.revision
        return self._revisions[extent.job]

    def topic_of(self, job: Job) -> str:
        """Return the topic of a job's records; its template where that makes no legal name.

        Raises:
            Misconfigured: the connector cannot be read.
        """
        config = self.revision(job.connector, job.revision)
        try:
            return config.topic_for(job.version)
        except Misconfigured:
            return config.topic


def parse_stored(stored: ConnectorVersion) -> ConnectorConfig:
    """Parse a stored connector; every problem names the connector and its revision."""
    config: Mapping[str, str] = stored.config
    try:
        return parse_connector(config)
    except Misconfigured as exc:
        which = f"connector {stored.name}, revision {stored.revision}, cannot be read"
        raise Misconfigured([f"{which}: {problem}" for problem in exc.problems]) from exc
