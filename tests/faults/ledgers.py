"""The ledgers of a campaign beside DynamoDB Local, and what happens to them.

dynamodb      behind an HTTP proxy (injection.TABLE), with functions, queues and commands
sqlite        a file; held by another process, copied into its database file, full
postgresql    behind a TCP link; killed, suspended, sessions ended, answers lost, items locked,
              deadlocks with a session of the campaign, any error of the server at a commit
"""

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Literal, LiteralString, Protocol

import psutil
import psycopg
from tests.support.slow_link import SlowLink, slow_link

from extentflow.config.ledgers import LedgerAddress
from extentflow_local.stack.errors import ServiceFailed
from extentflow_local.stack.servers.postgres import Postgres
from extentflow_local.stack.stack import Stack

LedgerName = Literal["dynamodb", "sqlite", "postgresql"]
LEDGERS: tuple[LedgerName, ...] = ("dynamodb", "sqlite", "postgresql")
FAST = 1e9
SLOW_BYTES_PER_SECOND = 20_000
# Past the busy time-out of SQLite and PostgreSQL's lock time-out, which are 5 s.
LONGEST_HOLD_SECONDS = 7.0
# What a server without enough of something answers, and what it answers under concurrency.
ERRORS: Mapping[str, str] = {
    "serialization failure": "40001",
    "deadlock reported": "40P01",
    "lock time-out": "55P03",
    "statement cancelled": "57014",
    "disk full": "53100",
    "out of memory": "53200",
    "shutting down": "57P01",
}
_SCHEMA = """
CREATE SEQUENCE IF NOT EXISTS campaign_hits;
CREATE TABLE IF NOT EXISTS campaign_faults (
    code text NOT NULL, share double precision NOT NULL, until timestamptz NOT NULL
);
CREATE OR REPLACE FUNCTION campaign_fault() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE chosen text;
BEGIN
    SELECT code INTO chosen FROM campaign_faults
    WHERE until > clock_timestamp() AND random() < share
    ORDER BY code = 'slow' LIMIT 1;  -- a slow commit takes no error's place
    IF chosen = 'slow' THEN
        PERFORM pg_sleep(0.1);
    ELSIF chosen IS NOT NULL THEN
        PERFORM nextval('campaign_hits');
        RAISE EXCEPTION 'injected at the commit' USING ERRCODE = chosen;
    END IF;
    RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS campaign_fault ON extentflow_items;
CREATE CONSTRAINT TRIGGER campaign_fault AFTER INSERT OR UPDATE ON extentflow_items
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION campaign_fault();
"""

Faults = Mapping[str, tuple[float, Callable[[], bool]]]


class LedgerServer(Protocol):
    """A ledger that only commands use: its addresses, and its faults with their weights."""

    @property
    def address(self) -> LedgerAddress:
        """Where the product finds it."""

    @property
    def direct(self) -> LedgerAddress:
        """Where the harness finds it, past what is between."""

    def prepare(self) -> None:
        """Make ready for faults, once the ledger was created."""

    def faults(self, random: Random) -> Faults:
        """Return what can happen to it."""

    def heal(self) -> int:
        """End every fault; return how many requests were hit since the last call."""


def _held(random: Random) -> float:
    return random.choice((random.uniform(0.1, 2.0), random.uniform(4.0, LONGEST_HOLD_SECONDS)))


@dataclass
class _Holders:
    """Threads that hold something for a while."""

    threads: list[threading.Thread] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def start(self, work: Callable[[], None]) -> bool:
        """Run `work` on a thread; False while another one runs."""
        if any(thread.is_alive() for thread in self.threads):
            return False
        self.threads = [threading.Thread(target=work)]
        self.threads[0].start()
        return True

    def end(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        self.over.clear()


@dataclass
class SqliteFile:
    """A file of SQLite."""

    path: Path
    holders: _Holders = field(default_factory=_Holders)

    @property
    def address(self) -> LedgerAddress:
        return LedgerAddress.of_file(self.path)

    @property
    def direct(self) -> LedgerAddress:
        return self.address

    def prepare(self) -> None:
        """Nothing: its faults need no trigger."""

    def faults(self, random: Random) -> Faults:
        return {
            "ledger busy": (3.0, lambda: self._hold(_held(random))),
            "ledger checkpoint": (1.0, self._checkpoint),
        }

    def heal(self) -> int:
        self.holders.end()
        return 0

    def _hold(self, seconds: float) -> bool:
        def hold() -> None:
            with self._session() as session:
                session.execute("BEGIN IMMEDIATE")
                self.holders.over.wait(seconds)
                session.execute("ROLLBACK")

        return self.holders.start(hold)

    def _checkpoint(self) -> bool:
        with self._session() as session, suppress(sqlite3.OperationalError):
            session.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return True
        return False

    @contextmanager
    def _session(self) -> Iterator[sqlite3.Connection]:
        session = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        try:
            yield session
        finally:
            session.close()


@dataclass
class PostgresServer:
    """A PostgreSQL server behind a link."""

    stack: Stack
    link: SlowLink
    holders: _Holders = field(default_factory=_Holders)
    later: list[threading.Timer] = field(default_factory=list)
    suspended: list[psutil.Process] = field(default_factory=list)
    is_down: bool = False

    @property
    def address(self) -> LedgerAddress:
        _, separator, rest = self._url.rpartition(":")
        database = rest.partition("/")[2]
        return LedgerAddress.parse(
            f"{self._url.rpartition(':')[0]}{separator}{self.link.port}/{database}"
        )

    @property
    def direct(self) -> LedgerAddress:
        return LedgerAddress.parse(self._url)

    @property
    def _url(self) -> str:
        return self.stack.endpoint("postgres")

    def prepare(self) -> None:
        with self._session() as session:
            session.execute(_SCHEMA)
            # So that work lasts, and kills fall between writes.
            session.execute("INSERT INTO campaign_faults VALUES ('slow', 0.3, 'infinity')")

    def faults(self, random: Random) -> Faults:
        each = 6.0 / len(ERRORS)

        def seconds() -> float:
            return random.uniform(0.5, 4.0)

        found: dict[str, tuple[float, Callable[[], bool]]] = {
            f"ledger: {name}": (each, partial(self._fail_within, code, seconds))
            for name, code in ERRORS.items()
        }
        return {
            **found,
            "kill ledger server": (0.6, self._kill),
            "ledger restarted": (0.4, self._restart),
            "ledger suspended": (0.7, lambda: self.suspend(random.uniform(1.0, 7.0))),
            "ledger sessions ended": (1.0, lambda: self.end_sessions(0.5)),
            "ledger connections reset": (1.5, lambda: self.link.hang_up() > 0),
            "ledger answer lost": (2.5, lambda: self._lose(random.randrange(1, 4))),
            "ledger link slow": (0.7, lambda: self._slow(seconds())),
            "ledger locked": (1.5, lambda: self._lock(_held(random))),
            "ledger deadlock": (1.5, self.deadlock),
        }

    def heal(self) -> int:
        for one in self.later:
            one.join()
        self.holders.end()
        self.link.bytes_per_second = FAST
        self.link.losses = 0
        with self._session() as session:
            session.execute("DELETE FROM campaign_faults WHERE code <> 'slow'")
            hits = self.hits()
            session.execute("ALTER SEQUENCE campaign_hits RESTART")
        return hits

    def hits(self) -> int:
        """Return how many commits were failed since `heal`."""
        with self._session() as session:
            row = session.execute("SELECT last_value, is_called FROM campaign_hits").fetchone()
        return int(str(row[0])) if row is not None and row[1] else 0

    # -- the server -----------------------------------------------------------------------------

    def _kill(self) -> bool:
        if self.is_down or self.suspended:
            return False
        self.is_down = True
        self.stack.kill("postgres")
        return self.holders.start(self._start) or self._after(0.0, self._start)

    def _restart(self) -> bool:
        """End every session, as a planned fail-over does, and start again."""
        if self.is_down or self.suspended:
            return False
        self.is_down = True
        self.end_sessions()
        self.stack.down(["postgres"])
        self._start()
        return True

    def _start(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                self.stack.up(["postgres"])
            except ServiceFailed:
                # Sessions of a killed server end a moment later, and until then it refuses.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                self.is_down = False
                return

    def suspend(self, seconds: float) -> bool:
        """Suspend the server for some seconds; its sessions stay open."""
        if self.is_down or self.suspended:
            return False
        pid = next(one.pid for one in self.stack.state() if one.name == "postgres")
        if pid is None:
            return False
        server = psutil.Process(pid)
        with suppress(psutil.NoSuchProcess):
            self.suspended = [server, *server.children(recursive=True)]
        for one in self.suspended:
            with suppress(psutil.NoSuchProcess):
                one.suspend()
        return self._after(seconds, self._resume)

    def _resume(self) -> None:
        for one in self.suspended:
            with suppress(psutil.NoSuchProcess):
                one.resume()
        self.suspended = []

    # -- sessions and links ---------------------------------------------------------------------

    def end_sessions(self, share: float = 1.0) -> bool:
        """End a share of the product's sessions."""
        return self._execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE application_name = 'extentflow' AND random() < %s",
            share,
        )

    def _fail_within(self, code: str, seconds: Callable[[], float]) -> bool:
        return self.fail(code, seconds=seconds())

    def fail(self, code: str, *, seconds: float, share: float = 0.5) -> bool:
        """Let a share of the commits fail with an error of the server's, for some seconds."""
        return self._execute(
            "INSERT INTO campaign_faults VALUES"
            " (%s, %s, clock_timestamp() + make_interval(secs => %s))",
            code,
            share,
            seconds,
        )

    def _execute(self, statement: LiteralString, *values: object) -> bool:
        if self.is_down or self.suspended:
            return False
        try:
            with self._session() as session:
                session.execute(statement, values)
        except psycopg.OperationalError:
            return False
        return True

    def _lose(self, count: int) -> bool:
        self.link.lost = b"COMMIT\x00"
        self.link.losses += count
        return True

    def _slow(self, seconds: float) -> bool:
        if self.link.bytes_per_second < FAST:
            return False
        self.link.bytes_per_second = SLOW_BYTES_PER_SECOND
        return self._after(seconds, self._speed_up)

    def _speed_up(self) -> None:
        self.link.bytes_per_second = FAST

    def _lock(self, seconds: float) -> bool:
        def hold(session: "psycopg.Connection[tuple[object, ...]]") -> None:
            session.execute("LOCK TABLE extentflow_items IN SHARE ROW EXCLUSIVE MODE")
            self.holders.over.wait(seconds)

        return self._held(hold)

    def deadlocks(self) -> int:
        """Return how many deadlocks the server ended."""
        with self._session() as session:
            row = session.execute("SELECT sum(deadlocks) FROM pg_stat_database").fetchone()
        return 0 if row is None else int(str(row[0]))

    def deadlock(self) -> bool:
        """Wait for a lock of a session that waits for one of ours: the server ends one of them.

        Return when we hold ours, whether there was time for that.
        """
        held = threading.Event()

        def hold(session: "psycopg.Connection[tuple[object, ...]]") -> None:
            session.execute("LOCK TABLE extentflow_items IN SHARE ROW EXCLUSIVE MODE")
            held.set()
            found, end = None, time.monotonic() + 10
            while found is None and time.monotonic() < end and not self.holders.over.wait(0.05):
                found = session.execute(
                    "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks WHERE locktype ="
                    " 'advisory' AND granted AND pid IN (SELECT pid FROM pg_locks WHERE NOT granted"
                    " AND locktype = 'relation') LIMIT 1"
                ).fetchone()
            if found is not None:
                # The other one has waited longer: it finds the circle first, and gives way.
                session.execute("SELECT pg_advisory_xact_lock(%s)", found)

        return self._held(hold) and held.wait(10)

    def _held(self, hold: Callable[["psycopg.Connection[tuple[object, ...]]"], None]) -> bool:
        if self.is_down or self.suspended:
            return False

        def work() -> None:
            with suppress(psycopg.OperationalError), psycopg.connect(self._url) as session:
                session.execute("SET lock_timeout = '10s'")
                hold(session)
                session.rollback()

        return self.holders.start(work)

    def _session(self) -> "psycopg.Connection[tuple[object, ...]]":
        return psycopg.connect(self._url, autocommit=True, connect_timeout=5)

    def _after(self, seconds: float, act: Callable[[], None]) -> bool:
        # On a thread: who injects faults may wait for this server.
        self.later = [one for one in self.later if one.is_alive()]
        self.later.append(threading.Timer(seconds, act))
        self.later[-1].start()
        return True


@contextmanager
def postgres_server(folder: Path) -> Iterator[PostgresServer]:
    """Start a server below `folder` behind a link; stop both at the end."""
    service = Postgres()
    with Stack(folder, services=[service], free_ports=True) as stack:
        stack.up()
        with linked_server(stack) as server:
            yield server
            server.end_sessions()  # it waits for them when it stops
    shutil.rmtree(service.home(folder / "var" / "postgres"), ignore_errors=True)


@contextmanager
def linked_server(stack: Stack) -> Iterator[PostgresServer]:
    """Put a link before the PostgreSQL server of a running stack."""
    with slow_link(FAST) as link:
        link.target = int(stack.endpoint("postgres").rpartition(":")[2].partition("/")[0])
        server = PostgresServer(stack, link)
        yield server
        server.holders.end()
