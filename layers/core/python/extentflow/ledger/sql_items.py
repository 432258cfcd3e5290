"""The `Items` of a database in SQL: one table holds them all.

A row has keys, attributes in JSON, and a column for each attribute that is searched. A write locks
its items (SQLite: the database), reads them, checks its conditions, replaces them, and commits.
Each transaction leaves its token in the items that it wrote: an attempt after a commit without a
response finds it there.

Tests: unit/ledger/test_sqlite_ledger.py, integration/test_ledger_postgresql.py
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from extentflow.ledger.items import (
    EXPIRY_ATTRIBUTE,
    ConditionFailed,
    Items,
    Key,
    Returning,
    Stored,
    Write,
    new_token,
)
from extentflow.ledger.sql_calls import SqlCalls, lock_keys

PAGE = 1_000

METADATA = sa.MetaData()
# Sort keys and listings are compared by code points on every server, as DynamoDB compares bytes.
_TEXT = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
ITEMS = sa.Table(
    "extentflow_items",
    METADATA,
    sa.Column("pk", _TEXT, primary_key=True),
    sa.Column("sk", _TEXT, primary_key=True),
    sa.Column("attributes", sa.Text, nullable=False),
    sa.Column("token", sa.Text, nullable=False),
    sa.Column("listing", _TEXT),
    sa.Column("created", sa.Double),
    sa.Column(EXPIRY_ATTRIBUTE, sa.BigInteger),
    sa.Index("extentflow_jobs", "listing", "created", "pk"),
    sa.Index("extentflow_expiry", EXPIRY_ATTRIBUTE),
)
SEARCHED = ("listing", "created", EXPIRY_ATTRIBUTE)


@dataclass(frozen=True, slots=True)
class SqlItems(Items):
    """The `Items` of one database."""

    calls: SqlCalls
    wall: Callable[[], float] = time.time

    def __str__(self) -> str:
        return str(self.calls)

    def get(self, key: Key) -> Stored | None:
        """Return an item."""
        found = self.calls.read(f"reading {key.pk}/{key.sk}", lambda c: _read(c, [key]))
        return found[0][0]

    def get_many(self, keys: Sequence[Key], attributes: Sequence[str] = ()) -> Iterator[Stored]:
        """Yield the items that exist, or some of their attributes."""
        # Most keys have one sort key: a list of partition keys is half as long as one of pairs.
        by_sort_key: dict[str, list[str]] = {}
        for key in keys:
            by_sort_key.setdefault(key.sk, []).append(key.pk)
        for sk, pks in by_sort_key.items():
            for start in range(0, len(pks), PAGE):
                page = pks[start : start + PAGE]
                wanted = sa.select(ITEMS).where(ITEMS.c.sk == sk, ITEMS.c.pk.in_(page))
                rows = self.calls.read(f"reading {len(page)} items", partial(_rows, wanted=wanted))
                for item in map(_item, rows):
                    yield {name: item[name] for name in attributes} if attributes else item

    def query(self, pk: str, prefix: str = "") -> Iterator[Stored]:
        """Yield the items of a partition whose sort key begins with `prefix`, in its order."""
        wanted = sa.select(ITEMS).where(ITEMS.c.pk == pk).order_by(ITEMS.c.sk).limit(PAGE)
        if prefix:
            wanted = wanted.where(ITEMS.c.sk >= prefix, ITEMS.c.sk < prefix + chr(0x10FFFF))
        return self._pages(f"reading {pk}/{prefix}*", wanted, lambda row: ITEMS.c.sk > row.sk)

    def listed(
        self, listing: str, *, state: str | None = None, oldest_first: bool = False
    ) -> Iterator[Stored]:
        """Yield the jobs of one listing (and state), by age."""
        place = sa.tuple_(ITEMS.c.created, ITEMS.c.pk)
        order = sa.asc if oldest_first else sa.desc
        wanted = (
            sa.select(ITEMS)
            .where(ITEMS.c.listing == listing)
            .order_by(order(ITEMS.c.created), order(ITEMS.c.pk))
            .limit(PAGE)
        )

        def beyond(row: Any) -> sa.ColumnElement[bool]:  # noqa: ANN401 - a row of ITEMS
            last = sa.tuple_(sa.literal(row.created), sa.literal(row.pk))
            return place > last if oldest_first else place < last

        found = self._pages(f"listing {listing}", wanted, beyond)
        return (item for item in found if state in (None, item["state"]))

    def listings(self) -> list[str]:
        """Return the listings that contain jobs, sorted."""
        wanted = sa.select(ITEMS.c.listing).where(ITEMS.c.listing.is_not(None)).distinct()
        return sorted(self.calls.read("listing jobs", lambda c: list(c.scalars(wanted))))

    def update(self, subject: str, write: Write, *, returning: Returning = "NONE") -> Stored:
        """Apply one write; return the item as `returning` says."""
        before, after = self._apply(subject, [write])[0]
        return after if returning == "ALL_NEW" else (before or {})

    def transact(self, subject: str, writes: Sequence[Write]) -> None:
        """Apply all writes or none."""
        self._apply(subject, writes)

    def now(self) -> float:
        """Return a lower bound of the server's clock; SQLite's is that of this machine."""
        if self.calls.is_sqlite:
            return self.wall()
        clock = self.calls.server_clock
        if (estimate := clock.now()) is None:
            sent_at = self.calls.retry.clock.monotonic()
            seconds = sa.select(sa.func.extract("epoch", sa.func.clock_timestamp()))
            server = self.calls.read("reading its clock", lambda c: float(c.scalar(seconds) or 0))
            clock.observe(server, sent_at=sent_at)
            estimate = server
        return estimate

    def _apply(self, subject: str, writes: Sequence[Write]) -> list[tuple[Stored | None, Stored]]:
        token = new_token()
        keys = [write.key for write in writes]
        changes: list[tuple[Stored | None, Stored]] = []

        def work(connection: sa.Connection) -> list[tuple[Stored | None, Stored]]:
            nonlocal changes
            lock_keys(connection, keys)
            found = _read(connection, keys)
            if changes and any(mark == token for _, mark in found):
                return changes  # an earlier attempt was committed, and its response was lost
            items = [item for item, _ in found]
            failed = {
                place: item
                for place, (write, item) in enumerate(zip(writes, items, strict=True))
                if write.condition is not None and not write.condition.holds(item or {})
            }
            if failed:
                raise ConditionFailed(failed)
            changes = [
                (item, write.applied(item)) for write, item in zip(writes, items, strict=True)
            ]
            rows = [
                _row(after, token)
                for write, (_, after) in zip(writes, changes, strict=True)
                if write.changes
            ]
            if rows:
                _store(connection, rows)
            if any(EXPIRY_ATTRIBUTE in write.sets for write in writes):
                _expire(connection, self.now())
            return changes

        return self.calls.write(subject, work)

    def _pages(
        self,
        subject: str,
        wanted: "sa.Select[Any]",
        beyond: Callable[[Any], sa.ColumnElement[bool]],
    ) -> Iterator[Stored]:
        page = wanted
        while True:
            rows = self.calls.read(subject, partial(_rows, wanted=page))
            yield from map(_item, rows)
            if len(rows) < PAGE:
                return
            page = wanted.where(beyond(rows[-1]))


def _read(connection: sa.Connection, keys: Sequence[Key]) -> list[tuple[Stored | None, str]]:
    """Return the items of keys, None for one that is not there, each with its token."""
    wanted = sa.select(ITEMS).where(sa.tuple_(ITEMS.c.pk, ITEMS.c.sk).in_(keys))
    found = {
        Key(row.pk, row.sk): (_item(row), str(row.token)) for row in connection.execute(wanted)
    }
    return [found.get(key, (None, "")) for key in keys]


def _rows(connection: sa.Connection, wanted: "sa.Select[Any]") -> Sequence[Any]:
    return connection.execute(wanted).all()


def _item(row: Any) -> Stored:  # noqa: ANN401 - a row of ITEMS
    attributes: Stored = json.loads(row.attributes)
    return {"pk": row.pk, "sk": row.sk, **attributes}


def _row(item: Mapping[str, Any], token: str) -> dict[str, Any]:
    attributes = {name: value for name, value in item.items() if name not in Key._fields}
    return {
        "pk": item["pk"],
        "sk": item["sk"],
        # ASCII, because texts may hold what PostgreSQL does not store: U+0000, lone surrogates.
        "attributes": json.dumps(attributes, allow_nan=False),
        "token": token,
        **{name: item.get(name) for name in SEARCHED},
    }


def _store(connection: sa.Connection, rows: list[dict[str, Any]]) -> None:
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    insert = dialect.insert(ITEMS)
    changed = {
        column.name: insert.excluded[column.name]
        for column in ITEMS.columns
        if not column.primary_key
    }
    connection.execute(
        insert.on_conflict_do_update(index_elements=["pk", "sk"], set_=changed), rows
    )


def _expire(connection: sa.Connection, now: float) -> None:
    connection.execute(sa.delete(ITEMS).where(ITEMS.c[EXPIRY_ATTRIBUTE] <= now))
