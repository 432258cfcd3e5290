"""Clients of a lake query: its folders and its cluster.

Tests: integration/test_lake.py
"""

from collections.abc import Mapping
from functools import partial

from extentflow.export.lake.lake_query import LakeCluster
from extentflow.storage.folders import FolderOpener
from extentflow.wiring import Runtime
from extentflow.wiring.targets import open_folder


def folder_opener(settings: Mapping[str, str]) -> FolderOpener:
    """Return what opens folders here and in workers; `settings` are keys of connectors for S3."""
    return partial(open_folder, settings=tuple(settings.items()))


def lake_cluster(runtime: Runtime) -> LakeCluster:
    """Return the cluster of a runtime."""
    settings = runtime.settings
    return LakeCluster(settings.bootstrap_servers, f"{settings.app_id}.lake", runtime.broker)
