"""Clients of a lake query: its folders and its cluster.

Tests: integration/test_lake.py
"""

from collections.abc import Mapping
from functools import partial

from extentflow.config.worker import WorkerSettings
from extentflow.export.lake.lake_query import LakeCluster, ReadableTopics
from extentflow.storage.folders import FolderOpener
from extentflow.wiring.targets import open_folder


def folder_opener(settings: Mapping[str, str]) -> FolderOpener:
    """Return what opens folders here and in workers; `settings` are keys of connectors for S3."""
    return partial(open_folder, settings=tuple(settings.items()))


def lake_cluster(settings: WorkerSettings, topics: ReadableTopics) -> LakeCluster:
    """Return the cluster of a process; `topics` reads it."""
    return LakeCluster(settings.bootstrap_servers, f"{settings.app_id}.lake", topics)
