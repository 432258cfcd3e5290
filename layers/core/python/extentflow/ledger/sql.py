"""SqlLedger: the ledger's port on SQLite or PostgreSQL, through SQLAlchemy.

One table holds all items: keys, attributes in JSON, and a column for each attribute that is
searched. A write locks its items (SQLite: the database), reads them, checks its conditions,
replaces them, and commits. Each transaction leaves its token in the items that it wrote: an
attempt after a commit without a response finds it there.

    response                                         becomes
    a condition does not hold                        ConditionFailed, with the items as they were
    no connection, shut down, locked, serialization  retried; LedgerUnavailable at the deadline
    no database, no table, no permission             RejectedRequest, names the ledger
"""

import ctypes
import json
import os
import struct
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from extentflow.errors import CredentialsUnavailable, Misconfigured
from extentflow.ledger import EXTRA, LedgerDescription, LedgerOptions, Password
from extentflow.ledger.identity import adopt, identity
from extentflow.ledger.item_stores import stores_over
from extentflow.ledger.items import (
    EXPIRY_ATTRIBUTE,
    ConditionFailed,
    Items,
    Key,
    Returning,
    Stored,
    Write,
    bind,
    new_token,
)
from extentflow.ledger.server_calls import (
    RejectedRequest,
    ServerClock,
    TransientFailure,
    retried,
    retry_policy,
)
from extentflow.retry import RetryPolicy

Answer = TypeVar("Answer")

PAGE = 1_000
POOL_CONNECTIONS = 16
SERVER_SECONDS = 2.0  # for a server to report that a statement took too long
READS = "extentflow_reads"  # an option of SQLite's connections: no transaction
INIT = "`extentflow init` creates it, or correct ledger.url"
ONE_MACHINE = "workers on other machines need postgresql://"

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
# One row: how many of MIGRATIONS were applied.
LAYOUT = sa.Table("extentflow_layout", METADATA, sa.Column("version", sa.Integer, nullable=False))
SEARCHED = ("listing", "created", EXPIRY_ATTRIBUTE)
_CREATION = Key("META", "LAYOUT")


def _first_layout(connection: sa.Connection) -> None:
    METADATA.create_all(connection)
    connection.execute(sa.insert(LAYOUT).values(version=0))


# Each brings a ledger to the next layout, in the transaction of `create`; those of a release stay
# as they are. What a later one needs is stated in its own statements, not in ITEMS.
MIGRATIONS: tuple[Callable[[sa.Connection], None], ...] = (_first_layout,)
VERSION = len(MIGRATIONS)

# PostgreSQL's error codes, by class and code (its manual, appendix A).
PASSING_CLASSES = {
    "08",  # connection exception
    "40",  # transaction rollback: serialization failure, deadlock
    "53",  # insufficient resources: too many connections, disk full
    "55",  # lock not available, object in use
    "57",  # operator intervention: shut down, starting up, statement cancelled
    "58",  # system error
    "25006",  # read-only: a standby, before or after a fail-over
    "25P03",  # idle within a transaction: this process or the server was suspended
}
MISSING = {"42P01", "3F000"}  # no such table, no such schema
PERMISSION_CLASSES = {"28", "42501"}
DISK_FULL = "53100"
# SQLite's primary result codes.
SQLITE_PASSING = {"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_FULL", "SQLITE_PROTOCOL"}


class SqlCalls:
    """Connections to one database. Threads share them; a forked process gets its own."""

    def __init__(self, options: LedgerOptions, retry: RetryPolicy) -> None:
        self.url = _url(options)
        self.retry = retry
        self.server_clock = ServerClock(retry.clock)
        self._options = options
        self._engines: dict[int, sa.Engine] = {}

    def __str__(self) -> str:
        shown = self.url.set(drivername=self.url.get_backend_name())
        return f"ledger {shown.render_as_string(hide_password=True)}"

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is a file of SQLite."""
        return self.url.get_backend_name() == "sqlite"

    def read(self, subject: str, work: Callable[[sa.Connection], Answer]) -> Answer:
        """Return what `work` reads; each of its statements sees what is committed."""
        return self._call(subject, work, reads=True)

    def write(self, subject: str, work: Callable[[sa.Connection], Answer]) -> Answer:
        """Commit what `work` does, and return its result; `work` may run again after a commit."""
        return self._call(subject, work)

    def has(self, table: sa.Table) -> bool:
        """Return whether a table is there; a file that is missing is not created."""
        if self.is_sqlite and not Path(self.url.database or "").exists():
            return False
        return self.read(f"looking for {table.name}", lambda c: sa.inspect(c).has_table(table.name))

    def create(self, tables: sa.MetaData) -> None:
        """Create the tables that are missing."""

        def work(connection: sa.Connection) -> None:
            _lock(connection, [_CREATION])
            tables.create_all(connection)

        self.write("creating tables", work)

    def _call(
        self, subject: str, work: Callable[[sa.Connection], Answer], *, reads: bool = False
    ) -> Answer:
        def attempt() -> Answer:
            try:
                with self._engine().connect() as connection:
                    if reads:
                        return work(connection.execution_options(**self._statement_by_statement))
                    with connection.begin():
                        return work(connection)
            except (SQLAlchemyError, OSError) as error:
                raise self._translated(subject, error) from error
            except CredentialsUnavailable as error:
                raise TransientFailure(str(error)) from error

        return retried(self, subject, self.retry, attempt)

    @property
    def _statement_by_statement(self) -> dict[str, Any]:
        return {READS: True} if self.is_sqlite else {"isolation_level": "AUTOCOMMIT"}

    def _engine(self) -> sa.Engine:
        # A connection is never inherited by a fork; the parent's stay open, and are not used here.
        pid = os.getpid()
        if pid not in self._engines:
            engine = self._engines[pid] = _engine(self.url, self._options)
            weakref.finalize(self, _close, engine, pid)
        return self._engines[pid]

    def _translated(self, subject: str, error: Exception) -> Exception:
        cause = error.orig if isinstance(error, DBAPIError) else error
        text = str(cause).strip() or type(cause).__name__
        if not isinstance(error, DBAPIError):
            passing = isinstance(error, (PoolTimeout, OSError))
            return TransientFailure(text) if passing else self._rejected(subject, text)
        if self.is_sqlite:
            return self._translated_sqlite(subject, cause, text)
        code = getattr(cause, "sqlstate", None) or ""
        if code in MISSING:
            return RejectedRequest(f"{self}: it does not exist; {INIT}", code)
        # psycopg states no code when the connection broke or was never made.
        if code[:2] in PASSING_CLASSES or code in PASSING_CLASSES or self._broke(error, code):
            remedy = " - free space on the database server's disk" if code == DISK_FULL else ""
            return TransientFailure(f"{code}: {text}{remedy}".removeprefix(": "))
        remedy = " - check user and grants" if {code[:2], code} & PERMISSION_CLASSES else ""
        return self._rejected(subject, f"{code}: {text}{remedy}", code)

    def _translated_sqlite(self, subject: str, cause: object, text: str) -> Exception:
        name = str(getattr(cause, "sqlite_errorname", ""))
        path = self.url.database
        if any(name.startswith(each) for each in SQLITE_PASSING):
            remedy = f" - free space on the file system of {path}" if name == "SQLITE_FULL" else ""
            return TransientFailure(f"{name}: {text}{remedy}")
        missing = name == "SQLITE_CANTOPEN" and not Path(path or "").exists()
        if "no such table" in text or missing:
            return RejectedRequest(f"{self}: it does not exist; {INIT}; {ONE_MACHINE}", name)
        remedies = {
            "SQLITE_READONLY": f" - {path}, its -wal and -shm and their folder must be writable",
            "SQLITE_CANTOPEN": f" - the folder of {path} must be writable",
            "SQLITE_CORRUPT": f" - restore {path} from a backup (docs/operations.md)",
        }
        found = (text_ for prefix, text_ in remedies.items() if name.startswith(prefix))
        return self._rejected(subject, f"{name}: {text}{next(found, '')}", name)

    @staticmethod
    def _broke(error: DBAPIError, code: str) -> bool:
        refused = "authentication failed" in str(error.orig) or "does not exist" in str(error.orig)
        return not code and not refused

    def _rejected(self, subject: str, text: str, code: str = "") -> RejectedRequest:
        return RejectedRequest(f"{self}: {subject} was refused, {text}", code)


def _close(engine: sa.Engine, pid: int) -> None:
    # A fork must not end the sessions of its parent.
    if pid == os.getpid():
        engine.dispose()


def _url(options: LedgerOptions) -> sa.URL:
    try:
        url = sa.make_url(options.url)
    except SQLAlchemyError:
        raise Misconfigured(
            "ledger.url: write sqlite:////path or postgresql://user@host/database"
        ) from None
    # What one parser takes for a path may be a password for another.
    if url.password is not None:
        raise Misconfigured(
            "ledger.url: a URL must not contain a password; ledger.password says where it is kept"
        )
    if url.get_backend_name() == "sqlite":
        return url.set(drivername="sqlite+pysqlite")
    return url.set(drivername="postgresql+psycopg")


def _engine(url: sa.URL, options: LedgerOptions) -> sa.Engine:
    try:
        if url.get_backend_name() == "sqlite":
            return _sqlite_engine(url, options)
        return _postgresql_engine(url, options)
    except (NoSuchModuleError, ImportError) as exc:
        raise Misconfigured(
            f"ledger.url: {url.get_backend_name()}:// needs what is missing here ({exc}); {EXTRA}"
        ) from exc


def _sqlite_engine(url: sa.URL, options: LedgerOptions) -> sa.Engine:
    _check_file_system(Path(url.database or "").absolute())
    engine = sa.create_engine(
        url,
        connect_args={"timeout": options.read_seconds},
        pool_size=POOL_CONNECTIONS,
        max_overflow=-1,
    )

    @sa.event.listens_for(engine, "connect")
    def connected(connection: Any, _: object) -> None:  # noqa: ANN401 - the driver's
        connection.isolation_level = None  # transactions begin below, not before some statements
        connection.execute("PRAGMA journal_mode=WAL")
        # A commit that a power failure undoes would let records be delivered twice.
        connection.execute("PRAGMA synchronous=FULL")

    @sa.event.listens_for(engine, "begin")
    def began(connection: sa.Connection) -> None:
        # Reads that turn into writes would fail when another process wrote meanwhile.
        if not connection.get_execution_options().get(READS):
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _postgresql_engine(url: sa.URL, options: LedgerOptions) -> sa.Engine:
    milliseconds = int(options.read_seconds * 1000)
    given = str(url.query.get("options", ""))
    engine = sa.create_engine(
        url,
        connect_args={
            "connect_timeout": max(1, int(options.connect_seconds)),
            # Of several hosts, the one that takes writes.
            "target_session_attrs": "read-write",
            "options": f"{given} -c statement_timeout={milliseconds} -c lock_timeout={milliseconds}"
            f" -c idle_in_transaction_session_timeout={2 * milliseconds}",
            "tcp_user_timeout": milliseconds,
            "application_name": "extentflow",
        },
        pool_size=POOL_CONNECTIONS,
        max_overflow=-1,
        isolation_level="READ COMMITTED",
    )
    connect = _bounded_connect(options.read_seconds + SERVER_SECONDS)
    sa.event.listen(engine, "do_connect", partial(_connect, connect, options.password))
    return engine


def _bounded_connect(seconds: float) -> Callable[..., Any]:
    """Return psycopg's `connect` for sessions that end where a response takes longer.

    The server's own limits end before, but not while it is suspended or waits for its disk.
    """
    import psycopg  # noqa: PLC0415 - SQLite needs none

    class BoundedConnection(psycopg.Connection[Any]):
        def wait(self, gen: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - psycopg's
            try:
                return super().wait(_until(time.monotonic() + seconds, gen), *given, **named)
            except TimeoutError as exc:
                self.close()  # a late response must not be taken for that of the next statement
                raise psycopg.OperationalError(f"no response within {seconds:g} s") from exc

    return BoundedConnection.connect


def _until(end: float, waiting: Generator[Any, Any, Answer]) -> Generator[Any, Any, Answer]:
    """Pass on what a statement waits for; TimeoutError: nothing came until `end`."""
    try:
        wanted = next(waiting)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() >= end:
                raise TimeoutError
            wanted = waiting.send(ready)
    except StopIteration as ended:
        answer: Answer = ended.value
        return answer


def _connect(
    connect: Callable[..., Any],
    password: Password | None,
    dialect: sa.Dialect,
    _record: object,
    arguments: Sequence[Any],
    parameters: dict[str, Any],
) -> Any:  # noqa: ANN401 - the driver's connection
    """Open a connection with the current password; a cached one may have been rotated."""
    if password is None:
        return connect(*arguments, **parameters)
    known = password()
    try:
        return connect(*arguments, **{**parameters, "password": known})
    except dialect.loaded_dbapi.Error as error:
        if "authentication failed" not in str(error):
            raise
        if (fresh := password(refresh=True)) == known:
            raise
    return connect(*arguments, **{**parameters, "password": fresh})


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
            _lock(connection, keys)
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


def _lock(connection: sa.Connection, keys: Sequence[Key]) -> None:
    """Lock items, there or not, until the transaction ends; SQLite locks the database instead."""
    if connection.dialect.name != "postgresql":
        return
    # Two keys may have one number; the order is the same for all, so that none waits in a circle.
    numbers = sorted({_number(key) for key in keys})
    connection.execute(
        sa.text("SELECT pg_advisory_xact_lock(n) FROM unnest(CAST(:numbers AS bigint[])) AS n"),
        {"numbers": numbers},
    )


def _number(key: Key) -> int:
    digest = blake2b(f"extentflow/{key.pk}/{key.sk}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


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


class SqlAdmin:
    """A `LedgerAdmin` for one database, whose tables it creates and migrates."""

    def __init__(self, items: SqlItems) -> None:
        self._items = items
        self._calls = items.calls

    def exists(self) -> bool:
        return self._calls.has(ITEMS)

    def create(self) -> tuple[str, ...]:
        if self._calls.is_sqlite:
            _check_file_system(self._path)  # before a folder is made there
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
    _lock(connection, [_CREATION])
    if (version := _applied(connection)) > len(MIGRATIONS):
        raise Misconfigured(_other_version(ledger, version))
    for number, migration in enumerate(MIGRATIONS[version:], version + 1):
        migration(connection)
        connection.execute(sa.update(LAYOUT).values(version=number))


def _check_file_system(path: Path) -> None:
    """Refuse a file on a network: SQLite's locks and shared memory do not work there."""
    kind = file_system(path)
    if kind in NETWORK_FILE_SYSTEMS or kind.startswith("fuse."):
        raise Misconfigured(
            f"ledger.url: {path} is on a file system of type {kind}, where several machines"
            " write and SQLite's locks do not hold; use a local path, or postgresql://"
        )


# Of <linux/stat.h> and <fcntl.h>.
STATX_BYTES, STATX_BTIME, STX_BTIME_OFFSET, AT_FDCWD = 256, 0x800, 80, -100

NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"}
    | {"smb2", "smb3", "smbfs", "virtiofs", "webdav"}
)


def file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return the type of the file system of a path; empty where the system does not state it."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    kinds = {}
    for line in lines:
        _, place, kind, *_ = line.split(" ")
        kinds[place.encode().decode("unicode_escape")] = kind
    real = path.resolve()
    return next((kinds[str(each)] for each in (real, *real.parents) if str(each) in kinds), "")


def created_ns(path: Path) -> int:
    """Return when a file was created, in nanoseconds since 1970; 0 where the system keeps no time.

    Linux states it by statx(2) only, for which Python has no function before 3.15.
    """
    if (seconds := getattr(path.stat(), "st_birthtime", None)) is not None:
        return int(seconds * 10**9)
    statx = getattr(ctypes.CDLL(None), "statx", None)
    found = ctypes.create_string_buffer(STATX_BYTES)
    if statx is None or statx(AT_FDCWD, os.fsencode(path), 0, STATX_BTIME, found) != 0:
        return 0
    (known,) = struct.unpack_from("=I", found)
    seconds, nanoseconds = struct.unpack_from("=qI", found, STX_BTIME_OFFSET)
    return int(seconds * 10**9 + nanoseconds) if known & STATX_BTIME else 0


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
