"""Whether this process can deliver what a connector's revision names: stores, secrets and keys.

Tests: unit/services/test_runs.py, unit/wiring/test_runtime.py
"""

from extentflow.config.connector import ConnectorConfig
from extentflow.errors import Misconfigured
from extentflow.jobs.connector_catalogue import ConnectorCatalogue
from extentflow.model import Job
from extentflow.wiring.objects import ObjectAccess
from extentflow.wiring.options import SecretResolver, converter_secrets, encryption


class Deliverability:
    """Checks revisions of connectors against what this process has."""

    def __init__(
        self, connectors: ConnectorCatalogue, objects: ObjectAccess, secrets: SecretResolver
    ) -> None:
        self._connectors = connectors
        self._objects = objects
        self._secrets = secrets
        self._deliverable: set[tuple[str, int]] = set()

    def undeliverable_reason(self, job: Job) -> str:
        """Return why what `job` pins does not work here, its secrets for example; "" if it does."""
        if (job.connector, job.revision) in self._deliverable:
            return ""
        try:
            config = self._connectors.revision(job.connector, job.revision)
            self._objects.store(config, job.revision)
            self._secrets({**config.producer, **converter_secrets(config)})
            encryption(config, self._secrets)
        except Misconfigured as exc:
            why = "; ".join(exc.problems)
            return f"revision {job.revision} of connector {job.connector}: {why}"
        # Only success is kept: a secret that is missing now may be stored meanwhile.
        self._deliverable.add((job.connector, job.revision))
        return ""

    def problems(self, config: ConnectorConfig) -> list[str]:
        """Return a line for every secret and key of a connector that is missing here.

        Raises CredentialsUnavailable.
        """
        problems = self.producer_problems(config)
        try:
            encryption(config, self._secrets)
        except Misconfigured as exc:
            problems += exc.problems
        return problems

    def producer_problems(self, config: ConnectorConfig) -> list[str]:
        """Return a line for every secret of a connector's producer that is missing here.

        Raises CredentialsUnavailable.
        """
        try:
            self._secrets(config.producer)
        except Misconfigured as exc:
            return [f"producer.{problem}" for problem in exc.problems]
        return []
