"""Connections to SQLite or PostgreSQL, through SQLAlchemy.

response                                         becomes
no connection, shut down, locked, serialization  retried; LedgerUnavailable at the deadline
no database, no table, no permission             RejectedRequest, names the ledger

Tests: unit/ledger/test_sqlite_ledger.py, unit/ledger/test_sql_passwords.py
"""

import os
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from extentflow.errors import CredentialsUnavailable, Misconfigured
from extentflow.ledger import EXTRA, LedgerOptions, Password
from extentflow.ledger.items import Key
from extentflow.ledger.server_calls import RejectedRequest, ServerClock, TransientFailure, retried
from extentflow.ledger.sqlite_files import check_file_system
from extentflow.retry import RetryPolicy

Answer = TypeVar("Answer")

POOL_CONNECTIONS = 16
SERVER_SECONDS = 2.0  # for a server to report that a statement took too long
READS = "extentflow_reads"  # an option of SQLite's connections: no transaction
INIT = "`extentflow init` creates it, in Python `Extentflow.init`, or correct ledger.url"
ONE_MACHINE = "workers on other machines need postgresql://"

CREATION = Key("META", "LAYOUT")

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
            lock_keys(connection, [CREATION])
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
    check_file_system(Path(url.database or "").absolute())
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


def lock_keys(connection: sa.Connection, keys: Sequence[Key]) -> None:
    """Lock items, there or not, until the transaction ends; SQLite locks the database instead."""
    if connection.dialect.name != "postgresql":
        return
    # Two keys may have one number; the order is the same for all, so that none waits in a circle.
    numbers = sorted({lock_number(key) for key in keys})
    connection.execute(
        sa.text("SELECT pg_advisory_xact_lock(n) FROM unnest(CAST(:numbers AS bigint[])) AS n"),
        {"numbers": numbers},
    )


def lock_number(key: Key) -> int:
    """Return the number of an item's advisory lock."""
    digest = blake2b(f"extentflow/{key.pk}/{key.sk}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
