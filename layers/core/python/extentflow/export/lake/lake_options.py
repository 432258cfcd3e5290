"""How the values of topics are decoded: what the driver states, and executors resolve.

Tests: unit/export/lake/test_lake_rows.py
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Protocol

from extentflow.config.column_lists import Schema
from extentflow.config.registry import RegistryOptions
from extentflow.converters.confluent_registry import ConfluentRegistry
from extentflow.export.lake.registered_schemas import RegisteredSchemas
from extentflow.formats.parquet.column_keys import KeyService


class ValueAccess(Protocol):
    """Opens keys and registries in any process, and reads their secrets there."""

    def __hash__(self) -> int:
        """Return the same in all copies, because what is opened is cached."""
        ...

    def keys(self, reference: str) -> KeyService:
        """Return what decrypts columns. Raises Misconfigured without the text."""
        ...

    def registry(self, options: RegistryOptions, *, refresh: bool = False) -> ConfluentRegistry:
        """Return a client of a registry; `refresh` bypasses the cache of secrets."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """How values are decoded. Sent to executors, thus it refers to secrets and holds none.

    `schema` is that of JSON values (None: these are refused). `columns`: only these of the rows;
    None: all. `keys` is the reference to the master keys of encrypted columns, or `aws-kms`.
    `registry` is where the schemas of values of a registry are; None: these are refused. `access`
    opens both; it is needed with one of them.
    """

    schema: Schema | None = None
    columns: tuple[str, ...] | None = None
    keys: str | None = None
    registry: RegistryOptions | None = None
    access: ValueAccess | None = None

    def open_keys(self) -> KeyService | None:
        """Return what decrypts columns, in this process. Raises as `ValueAccess.keys`."""
        return None if self.keys is None else self._opened().keys(self.keys)

    def open_registry(self) -> RegisteredSchemas | None:
        """Return the schemas of the registry, as this process has looked them up."""
        if self.registry is None:
            return None
        return _schemas(self.registry, self.schema, self._opened())

    def _opened(self) -> ValueAccess:
        if self.access is None:
            raise TypeError("keys and registries need access")
        return self.access


@lru_cache(maxsize=8)
def _schemas(
    registry: RegistryOptions, declared: Schema | None, access: ValueAccess
) -> RegisteredSchemas:
    return RegisteredSchemas(partial(access.registry, registry), declared)
