"""The stores of a ledger, over the items of one database.

Tests: contracts/ledger.py, unit/ledger/test_stored_items.py
"""

from collections.abc import Callable
from typing import NamedTuple

from extentflow.ledger import SlotStore
from extentflow.ledger.connector_store import StoredConnectors
from extentflow.ledger.extent_store import StoredExtents, StoredSlots
from extentflow.ledger.items import Items
from extentflow.ledger.job_store import StoredJobs
from extentflow.ledger.notes import StoredNotes


class Stores(NamedTuple):
    """What a `Ledger` consists of, apart from its administration."""

    connectors: StoredConnectors
    jobs: StoredJobs
    slots: SlotStore
    extents: StoredExtents
    notes: StoredNotes


def stores_over(items: Items, slots: Callable[[Items], SlotStore] = StoredSlots) -> Stores:
    """Return the stores of one database; its extents renew leases through the same `slots`."""
    jobs, leases = StoredJobs(items), slots(items)
    extents = StoredExtents(items, jobs, leases)
    return Stores(StoredConnectors(items), jobs, leases, extents, StoredNotes(items))
