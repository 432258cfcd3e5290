"""SqlLedger: the ledger's port on SQLite or PostgreSQL, through SQLAlchemy.

`sql_calls` opens connections and translates errors, `sql_items` reads and writes items; this module
creates and migrates their tables.

Tests: unit/ledger/test_sqlite_ledger.py
"""

from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path

import sqlalchemy as sa

from extentflow.errors import Misconfigured
from extentflow.ledger import LedgerDescription, LedgerOptions
from extentflow.ledger.identity import adopt, identity
from extentflow.ledger.item_stores import stores_over
from extentflow.ledger.items import bind
from extentflow.ledger.server_calls import retry_policy
from extentflow.ledger.sql_calls import CREATION, SqlCalls, lock_keys
from extentflow.ledger.sql_items import ITEMS, METADATA, SqlItems
from extentflow.ledger.sqlite_files import check_file_system, created_ns
from extentflow.retry import RetryPolicy

# One row: how many of MIGRATIONS were applied.
LAYOUT = sa.Table("extentflow_layout", METADATA, sa.Column("version", sa.Integer, nullable=False))


def _first_layout(connection: sa.Connection) -> None:
    METADATA.create_all(connection)
    connection.execute(sa.insert(LAYOUT).values(version=0))


# Each brings a ledger to the next layout, in the transaction of `create`; those of a release stay
# as they are. What a later one needs is stated in its own statements, not in ITEMS.
MIGRATIONS: tuple[Callable[[sa.Connection], None], ...] = (_first_layout,)
VERSION = len(MIGRATIONS)


class SqlAdmin:
    """A `LedgerAdmin` for one database, whose tables it creates and migrates."""

    def __init__(self, items: SqlItems) -> None:
        self._items = items
        self._calls = items.calls

    def exists(self) -> bool:
        return self._calls.has(ITEMS)

    def create(self) -> tuple[str, ...]:
        if self._calls.is_sqlite:
            check_file_system(self._path)  # before a folder is made there
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as exc:
                raise Misconfigured(
                    f"ledger.url: the folder of {self._path} cannot be created ({exc.strerror});"
                    " set ledger.url=sqlite:////PATH to a file that can be written"
                ) from exc
        self._calls.write("its creation", partial(_migrate, ledger=self._calls))
        place = self.place
        adopted = adopt(self._items, place)
        identity(self._items, place)
        return adopted

    def check_version(self) -> None:
        """Refuse a ledger whose layout is that of another release."""
        version = self._calls.read("reading its layout", _version)
        if version != VERSION:
            raise Misconfigured(_other_version(self._calls, version))

    def describe(self) -> LedgerDescription:
        version = self._calls.read("its description", _version)
        problems = () if version == VERSION else (_other_version(self._calls, version),)
        return LedgerDescription("ACTIVE", problems, recovery=None, expiry=True)

    @property
    def place(self) -> str:
        """What differs between a ledger and its copy."""
        if self._calls.is_sqlite:
            # Of a file that is moved they stay. A copy in place of a removed file may get the same
            # number, but not the same time.
            return f"file {self._path.stat().st_ino} of {created_ns(self._path)}"
        return self._calls.read("reading its place", _postgresql_place)

    @property
    def _path(self) -> Path:
        return Path(self._calls.url.database or "").absolute()


def _postgresql_place(connection: sa.Connection) -> str:
    # A table that a dump created has another number, also under its old name in the same cluster;
    # replicas have the same.
    wanted = sa.text(
        "SELECT system_identifier || '/' || current_database() || '/' || current_schema()"
        " || '/' || CAST(CAST(:name AS regclass) AS oid) FROM pg_control_system()"
    )
    return str(connection.scalar(wanted, {"name": ITEMS.name}))


def _applied(connection: sa.Connection) -> int:
    has_layout = sa.inspect(connection).has_table(LAYOUT.name)
    return _version(connection) if has_layout else 0


def _version(connection: sa.Connection) -> int:
    return int(connection.scalar(sa.select(LAYOUT.c.version)) or 0)


def _other_version(ledger: object, version: int) -> str:
    remedy = "use that release" if version > VERSION else "`extentflow init` migrates it"
    return f"{ledger}: has layout {version} of another release, not {VERSION}; {remedy}"


def _migrate(connection: sa.Connection, ledger: object) -> None:
    """Apply the migrations that a ledger lacks, all or none."""
    lock_keys(connection, [CREATION])
    if (version := _applied(connection)) > len(MIGRATIONS):
        raise Misconfigured(_other_version(ledger, version))
    for number, migration in enumerate(MIGRATIONS[version:], version + 1):
        migration(connection)
        connection.execute(sa.update(LAYOUT).values(version=number))


class SqlLedger:
    """A `Ledger` for many processes. Connects at its first call, in the process that makes it."""

    def __init__(self, options: LedgerOptions, *, retry: RetryPolicy | None = None) -> None:
        self._items = SqlItems(SqlCalls(options, retry or retry_policy(options)))
        self.admin = SqlAdmin(self._items)
        self.connectors, self.jobs, self.slots, self.extents, self.notes = stores_over(self._items)

    @cached_property
    def id(self) -> str:
        self.admin.check_version()
        return identity(self._items, self.admin.place)

    def bind(self, app_id: str) -> str:
        return bind(self._items, app_id)

    def now(self) -> float:
        return self._items.now()
