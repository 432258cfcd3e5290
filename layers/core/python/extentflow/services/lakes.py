"""Clients of a lake query: its folders, its cluster, and what decodes values in any process."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from extentflow.aws.secrets_manager import SecretsManager
from extentflow.config.registry import RegistryOptions
from extentflow.converters.confluent_registry import ConfluentRegistry
from extentflow.export.lake.lake_query import LakeCluster
from extentflow.formats.parquet.column_keys import KeyService
from extentflow.storage.folders import FolderOpener
from extentflow.wiring import Runtime
from extentflow.wiring.folders import open_folder
from extentflow.wiring.options import SecretResolver, reading_keys, reading_registry


def folder_opener(settings: Mapping[str, str]) -> FolderOpener:
    """Return what opens folders here and in workers; `settings` are keys of connectors for S3."""
    return partial(open_folder, settings=tuple(settings.items()))


def lake_cluster(runtime: Runtime) -> LakeCluster:
    """Return the cluster of a runtime."""
    settings = runtime.settings
    return LakeCluster(settings.bootstrap_servers, f"{settings.app_id}.lake", runtime.broker)


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
