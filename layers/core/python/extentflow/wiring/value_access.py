"""Opens keys and registries where values are decoded, in any process.

Tests: unit/export/lake/test_lake_rows.py
"""

from dataclasses import dataclass
from functools import lru_cache

from extentflow.aws.secrets_manager import SecretsManager
from extentflow.config.registry import RegistryOptions
from extentflow.converters.confluent_registry import ConfluentRegistry
from extentflow.formats.parquet.column_keys import KeyService
from extentflow.wiring.options import SecretResolver, reading_keys, reading_registry


@dataclass(frozen=True, slots=True)
class ProcessAccess:
    """The ValueAccess of the driver and of executors, which read secrets themselves."""

    def keys(self, reference: str) -> KeyService:
        """See `ValueAccess`; raises as `reading_keys`."""
        return reading_keys(reference, _secrets())

    def registry(self, options: RegistryOptions, *, refresh: bool = False) -> ConfluentRegistry:
        """See `ValueAccess`."""
        return reading_registry(options, _secrets(), refresh=refresh)


@lru_cache(maxsize=1)
def _secrets() -> SecretResolver:
    """Return this process's resolver: it caches secrets, and an executor runs many tasks."""
    return SecretResolver(SecretsManager())
