"""Shared constructs of one stack, passed to the modules that create functions."""

from collections.abc import Sequence
from dataclasses import dataclass

from .config import Stage
from .declared import DeclaredConnector
from .functions import SharedFunctionSettings
from .network import Network
from .project import Project
from .queues import WorkQueue
from .state import Ledger


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
