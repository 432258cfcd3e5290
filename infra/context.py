"""Shared constructs of one stack, passed to the modules that create functions."""

from collections.abc import Sequence
from dataclasses import dataclass

from infra.config import Stage
from infra.declared import DeclaredConnector
from infra.functions import SharedFunctionSettings
from infra.network import Network
from infra.project import Project
from infra.queues import WorkQueue
from infra.state import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class StackContext:
    """The constructs that the functions of the event path use."""

    stage: Stage
    project: Project
    common: SharedFunctionSettings
    connectors: Sequence[DeclaredConnector]
    arrivals: WorkQueue
    extents: WorkQueue
    ledger: Ledger
    event_bus_arn: str
    network: Network | None
