"""Items of SQL ledgers for the explorers: one database per process, emptied for each schedule.

Durability is not explored: commits do not wait for the disk.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa

from extentflow.config.ledgers import LedgerAddress
from extentflow.ledger import LedgerOptions
from extentflow.ledger.items import Items
from extentflow.ledger.sql import SqlLedger
from extentflow.ledger.sql_calls import SqlCalls
from extentflow.ledger.sql_items import ITEMS, SqlItems


class TimedItems(SqlItems):
    """Items whose clock is the schedule's, not the server's."""

    def now(self) -> float:
        return self.wall()


@dataclass(frozen=True)
class SqlWorld:
    """Returns the items of an empty ledger: `place` is a folder for SQLite, or PostgreSQL's URL."""

    place: str

    def __call__(self, clock: Callable[[], float]) -> Items:
        calls = _calls(self.place, os.getpid())
        calls.write("emptying it", lambda connection: connection.execute(sa.delete(ITEMS)))
        return TimedItems(calls, clock)


@cache
def _calls(place: str, pid: int) -> SqlCalls:
    if place.startswith("/"):
        url = LedgerAddress.of_file(Path(place) / f"ledger-{pid}.db").url
    else:
        schema = f"explored_{pid}"
        with psycopg.connect(place, autocommit=True) as session:
            session.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        url = f"{place}?options=-csearch_path%3D{schema}%20-csynchronous_commit%3Doff"
    ledger = SqlLedger(LedgerOptions(url=url))
    calls = ledger._items.calls
    if calls.is_sqlite:
        sa.event.listen(calls._engine(), "connect", _do_not_wait)
    ledger.admin.create()
    return calls


def _do_not_wait(connection: Any, _record: object) -> None:  # noqa: ANN401 - the driver's
    connection.execute("PRAGMA synchronous=OFF")
