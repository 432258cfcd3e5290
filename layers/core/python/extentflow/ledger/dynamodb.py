"""DynamoLedger: the ledger's port on one DynamoDB table.

Owns: how the table is reached, its identity, its clock. What is done with connectors and jobs
stands in `dynamodb_jobs`, with extents and slots in `dynamodb_extents`, notes in `dynamodb_notes`.
"""

import random
import secrets
from collections.abc import Callable

from extentflow.ledger import dynamodb_table, items
from extentflow.ledger import dynamodb_writes as writes
from extentflow.ledger.dynamodb_calls import Address, Connect, DynamoCalls, Patience, connect
from extentflow.ledger.dynamodb_extents import DynamoExtents, DynamoSlots
from extentflow.ledger.dynamodb_items import DynamoItems
from extentflow.ledger.dynamodb_jobs import DynamoConnectors, DynamoJobs
from extentflow.ledger.dynamodb_notes import DynamoNotes
from extentflow.ledger.dynamodb_table import TableDescription
from extentflow.ledger.server_clock import Timing

IDENTITY_BYTES = 6


class DynamoLedger:
    """A `Ledger` for many processes. Connects at its first call, in the process that makes it.

    `patience` bounds the time of one call; `timing` and `chance` are for tests.
    """

    def __init__(
        self,
        table: str,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        patience: Patience | None = None,
        timing: Timing | None = None,
        chance: Callable[[], float] = random.random,
        connect: Connect = connect,
    ) -> None:
        self._calls = DynamoCalls(
            Address(table, region, endpoint),
            patience or Patience(),
            timing or Timing(),
            chance,
            connect,
        )
        self._items = DynamoItems(self._calls)
        self.connectors = DynamoConnectors(self._items)
        self.jobs = DynamoJobs(self._items)
        self.slots = DynamoSlots(self._items)
        self.extents = DynamoExtents(self._items, self.slots)
        self.notes = DynamoNotes(self._items)
        self._identity = ""

    # -- the table ------------------------------------------------------------------------------

    def create_table(self) -> None:
        """Create the table, its index and its identity where they are missing; idempotent."""
        dynamodb_table.create(self._calls)
        self._identity = self._identify()

    def exists(self) -> bool:
        """Whether the table is there."""
        return dynamodb_table.exists(self._calls)

    def describe(self) -> TableDescription:
        """Return what `doctor` shows of the table."""
        return dynamodb_table.describe(self._calls)

    # -- identity and clock ---------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Return the identity; the first caller of a table made by others writes it."""
        if not self._identity:
            self._identity = self._identify()
        return self._identity

    def bind(self, app_id: str) -> str:
        """Tie the ledger to an `app.id`; the first one stays."""
        item = self._items.get(items.LEDGER_KEY) or {}
        if "app_id" not in item:
            item = self._items.store("tying the ledger to app.id", writes.bind(app_id))
        bound: str = item["app_id"]
        return bound

    def _identify(self) -> str:
        item = self._items.get(items.LEDGER_KEY)
        if item is None:
            write = writes.identify(secrets.token_hex(IDENTITY_BYTES))
            item = self._items.store("writing the ledger's identity", write)
        identity: str = item["id"]
        return identity

    def now(self) -> float:
        """Return a lower bound of the server's clock; asks it when nothing came for a minute."""
        return self._items.now()
