"""How the values of topics are decoded: what the driver states, and executors resolve."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from extentflow.aws.secrets_manager import SecretsManager
from extentflow.config.column_lists import Schema
from extentflow.config.registry import RegistryOptions
from extentflow.export.lake.registered_schemas import RegisteredSchemas
from extentflow.formats.parquet.column_keys import KeyService
from extentflow.wiring.options import SecretResolver, reading_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """How values are decoded. Sent to executors, thus it refers to secrets and holds none.

    `schema` is that of JSON values (None: these are refused). `columns`: only these of the rows;
    None: all. `keys` is the reference to the master keys of encrypted columns, or `aws-kms`.
    `registry` is where the schemas of values of a registry are; None: these are refused.
    """

    schema: Schema | None = None
    columns: tuple[str, ...] | None = None
    keys: str | None = None
    registry: RegistryOptions | None = None

    def open_keys(self) -> KeyService | None:
        """Return what decrypts columns, in this process. Raises as `reading_keys`."""
        return None if self.keys is None else reading_keys(self.keys, _secrets())

    def open_registry(self) -> RegisteredSchemas | None:
        """Return the schemas of the registry, as this process has looked them up."""
        return None if self.registry is None else _schemas(self.registry, self.schema)


@lru_cache(maxsize=8)
def _schemas(registry: RegistryOptions, declared: Schema | None) -> RegisteredSchemas:
    return RegisteredSchemas(registry, declared, _secrets())


@lru_cache(maxsize=1)
def _secrets() -> SecretResolver:
    """Return this process's resolver: it caches secrets, and an executor runs many tasks."""
    return SecretResolver(SecretsManager())
