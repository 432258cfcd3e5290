"""SqlLedger fulfils the ledger's contract on SQLite."""

import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.contracts.ledger import LEASE_SECONDS, Scene, unregistered
from tests.contracts.ledger_contract import LedgerContract
from tests.contracts.ledger_faults import together
from tests.support.golden import Golden

from extentflow.errors import LedgerUnavailable, Misconfigured
from extentflow.ledger import LedgerOptions, sql, sqlite_files
from extentflow.ledger.sql import SqlLedger
from extentflow.model import Job
from extentflow.retry import Clock, RetryPolicy


def opened(path: Path) -> SqlLedger:
    ledger = SqlLedger(LedgerOptions(url=f"sqlite:///{path}"))
    ledger.admin.create()
    return ledger


class LostCommits:
    """Lets commits of a ledger take effect and fail."""

    def __init__(self, ledger: SqlLedger) -> None:
        self.pending = 0
        dialect: Any = ledger._items.calls._engine().dialect
        self._commit = dialect.do_commit
        dialect.do_commit = self.commit

    def commit(self, connection: Any) -> None:  # noqa: ANN401 - the driver's
        self._commit(connection)
        if self.pending:
            self.pending -= 1
            error = sqlite3.OperationalError("the response was lost (injected)")
            error.sqlite_errorname = "SQLITE_IOERR"
            raise error


@dataclass(frozen=True)
class SqliteWorld:
    folder: Path
    ledger: SqlLedger
    lost: LostCommits
    numbers: Iterator[int] = field(default_factory=count)

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder / 'ledger.db'}"

    def elsewhere(self) -> SqlLedger:
        return SqlLedger(LedgerOptions(url=self.url))

    def another_table(self) -> SqlLedger:
        return opened(self.folder / f"{next(self.numbers)}.db")

    def lose_answer(self, name: str) -> None:
        _ = name
        self.lost.pending += 1


def world_in(folder: Path) -> SqliteWorld:
    ledger = opened(folder / "ledger.db")
    return SqliteWorld(folder, ledger, LostCommits(ledger))


@pytest.fixture
def world(tmp_path: Path) -> SqliteWorld:
    return world_in(tmp_path)


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory: pytest.TempPathFactory) -> SqliteWorld:
    return world_in(tmp_path_factory.mktemp("ledger"))


class TestContract(LedgerContract):
    @pytest.fixture
    def world(self, shared_world: SqliteWorld) -> SqliteWorld:
        """The ledger of all tests of the contract, which use names of their own."""
        return shared_world


class TestFiles:
    def test_a_path_without_a_ledger_names_the_command_that_creates_it(
        self, tmp_path: Path
    ) -> None:
        ledger = SqlLedger(LedgerOptions(url=f"sqlite:///{tmp_path / 'none.db'}"))

        with pytest.raises(Misconfigured, match="extentflow init"):
            ledger.jobs.get("none")

    def test_a_file_that_is_no_database_is_refused_by_name(self, tmp_path: Path) -> None:
        path = tmp_path / "orders.csv"
        path.write_text("id,name\n" * 1_000)
        ledger = SqlLedger(LedgerOptions(url=f"sqlite:///{path}"))

        with pytest.raises(Misconfigured, match=r"orders\.csv.*not a database"):
            ledger.jobs.get("none")

    def test_a_moved_file_stays_the_same_ledger(self, tmp_path: Path) -> None:
        first = opened(tmp_path / "first.db").id
        (tmp_path / "first.db").rename(tmp_path / "second.db")

        assert SqlLedger(LedgerOptions(url=f"sqlite:///{tmp_path / 'second.db'}")).id == first

    def test_a_copied_file_is_refused_until_it_is_adopted(self, tmp_path: Path) -> None:
        original = opened(tmp_path / "first.db")
        with sqlite3.connect(tmp_path / "first.db") as source:
            source.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
        source.close()
        copy = SqlLedger(LedgerOptions(url=f"sqlite:///{tmp_path / 'copy.db'}"))

        with pytest.raises(Misconfigured, match="a copy of"):
            _ = copy.id
        assert copy.admin.create()

        assert copy.id != original.id

    def test_a_backup_in_place_of_the_removed_file_is_refused(self, tmp_path: Path) -> None:
        path, backup = tmp_path / "ledger.db", tmp_path / "backup.db"
        _ = opened(path).id
        with sqlite3.connect(path) as source:
            source.execute("VACUUM INTO ?", (str(backup),))
        source.close()
        for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        shutil.copyfile(backup, path)

        with pytest.raises(Misconfigured, match="a copy of"):
            _ = SqlLedger(LedgerOptions(url=f"sqlite:///{path}")).id

    def test_a_newer_layout_is_refused(self, tmp_path: Path) -> None:
        ledger = opened(tmp_path / "ledger.db")
        with sqlite3.connect(tmp_path / "ledger.db") as session:
            session.execute("UPDATE extentflow_layout SET version = 99")
        session.close()

        with pytest.raises(Misconfigured, match="layout 99"):
            _ = SqlLedger(LedgerOptions(url=f"sqlite:///{tmp_path / 'ledger.db'}")).id
        with pytest.raises(Misconfigured, match="layout 99"):
            ledger.admin.create()


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "fuse.s3fs"])
def test_a_file_on_a_network_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, golden: Golden
) -> None:
    opened(tmp_path / "made-elsewhere.db")
    monkeypatch.setattr(sqlite_files, "file_system", lambda _: kind)
    new, old = (
        SqlLedger(LedgerOptions(url=f"sqlite:///{tmp_path / name}"))
        for name in ("new/ledger.db", "made-elsewhere.db")
    )

    with golden.raises(Misconfigured, match=rf"ledger\.db.*{kind}.*postgresql://"):
        new.admin.create()
    with golden.raises(Misconfigured, match=rf"made-elsewhere\.db.*{kind}.*postgresql://"):
        _ = old.id

    assert not (tmp_path / "new").exists()


class TestMigrations:
    def test_a_ledger_of_an_earlier_layout_gets_what_it_lacks_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = opened(tmp_path / "ledger.db")
        job = before.jobs.register(unregistered())
        monkeypatch.setattr(sql, "MIGRATIONS", (*sql.MIGRATIONS, add_column))
        monkeypatch.setattr(sql, "VERSION", len(sql.MIGRATIONS))
        with pytest.raises(Misconfigured, match=r"layout 1 .*`extentflow init` migrates it"):
            _ = SqlLedger(LedgerOptions(url=f"sqlite:///{tmp_path / 'ledger.db'}")).id

        after = opened(tmp_path / "ledger.db")
        after.admin.create()

        assert after.id == before.id
        assert after.jobs.get(job.id) == job
        assert columns(tmp_path / "ledger.db").count("note") == 1
        assert after.admin.describe().problems == ()

    def test_a_migration_that_fails_leaves_the_layout_as_it_was(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(connection: sa.Connection) -> None:
            add_column(connection)
            connection.exec_driver_sql("UPDATE extentflow_layout SET version = NULL")

        opened(tmp_path / "ledger.db")
        monkeypatch.setattr(sql, "MIGRATIONS", (*sql.MIGRATIONS, fail))

        with pytest.raises(Misconfigured, match="NOT NULL"):
            opened(tmp_path / "ledger.db")

        assert "note" not in columns(tmp_path / "ledger.db")

    def test_one_of_two_that_create_a_ledger_at_once_creates_it(self, tmp_path: Path) -> None:
        created = together(lambda _: opened(tmp_path / "ledger.db").id, 8)

        assert len(set(created)) == 1


def add_column(connection: sa.Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE extentflow_items ADD COLUMN note TEXT")


def columns(path: Path) -> list[str]:
    with sqlite3.connect(path) as session:
        found = session.execute("SELECT name FROM pragma_table_info('extentflow_items')")
        names = [name for (name,) in found]
    session.close()
    return names


class TestOutages:
    def test_a_file_that_another_process_holds_is_waited_for_and_then_unavailable(
        self, world: SqliteWorld
    ) -> None:
        scene = Scene(world.ledger)
        lease = scene.lease()
        options = LedgerOptions(url=world.url, read_seconds=0.1, retry_seconds=0.0)
        impatient = SqlLedger(options)
        with held(world.folder / "ledger.db"):
            with pytest.raises(LedgerUnavailable, match="SQLITE_BUSY"):
                impatient.slots.renew(lease, lease_seconds=LEASE_SECONDS)
            # Reads never wait for a writer.
            assert impatient.slots.get(lease.cluster, lease.number).owner == lease.owner

        impatient.slots.renew(lease, lease_seconds=LEASE_SECONDS)

    def test_a_busy_file_is_retried_until_it_is_free(self, world: SqliteWorld) -> None:
        scene = Scene(world.ledger)
        lease = scene.lease()
        holder, tries = held(world.folder / "ledger.db"), count()
        holder.__enter__()

        def sleep(seconds: float) -> None:
            _ = seconds
            if next(tries) == 1:
                holder.__exit__(None, None, None)

        clock = Clock(sleep=sleep)
        options = LedgerOptions(url=world.url, read_seconds=0.05)
        patient = SqlLedger(options, retry=RetryPolicy(total_seconds=60.0, clock=clock))

        patient.slots.renew(lease, lease_seconds=LEASE_SECONDS)

        assert next(tries) == 2

    def test_a_full_disk_is_unavailable_and_names_the_file(self, world: SqliteWorld) -> None:
        scene = Scene(world.ledger)
        job = scene.job()
        full = SqlLedger(LedgerOptions(url=world.url, retry_seconds=0.0))
        engine: Any = full._items.calls._engine()
        sa.event.listen(engine, "connect", fill)

        with pytest.raises(LedgerUnavailable, match=r"SQLITE_FULL.*free space .*ledger\.db"):
            register_many(full)

        assert world.ledger.jobs.get(job.id) == job
        assert world.ledger.jobs.register(unregistered()) is not None

    def test_a_file_that_may_not_be_written_is_named_with_what_must_be(
        self, world: SqliteWorld
    ) -> None:
        ledger = SqlLedger(LedgerOptions(url=world.url))
        sa.event.listen(ledger._items.calls._engine(), "connect", forbid_writes)

        with pytest.raises(Misconfigured, match=r"SQLITE_READONLY.*-wal and -shm"):
            ledger.jobs.register(unregistered())

    def test_a_damaged_file_is_named_with_the_way_out(self, world: SqliteWorld) -> None:
        with sqlite3.connect(world.folder / "ledger.db") as session:
            session.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        session.close()
        path = world.folder / "damaged.db"
        body = bytearray((world.folder / "ledger.db").read_bytes())
        body[4_096:] = b"\xff" * (len(body) - 4_096)
        path.write_bytes(body)

        with pytest.raises(Misconfigured, match=r"SQLITE_CORRUPT.*restore .*damaged\.db"):
            list(SqlLedger(LedgerOptions(url=f"sqlite:///{path}")).jobs.list())


def register_many(ledger: SqlLedger) -> None:
    for _ in range(1_000):
        ledger.jobs.register(unregistered(connector="c" * 500))


def fill(connection: sqlite3.Connection, _record: object) -> None:
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 4}")


def forbid_writes(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA query_only = ON")


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock of a file as a process does that writes."""
    session = sqlite3.connect(path, isolation_level=None)
    session.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        session.close()


@pytest.mark.variant
def test_workers_in_processes_count_exactly(world: SqliteWorld) -> None:
    scene = Scene(world.ledger)
    job = scene.job(EXTENTS)

    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        work = [
            pool.submit(deliver_some, world.url, scene.cluster, job, number)
            for number in range(PROCESSES)
        ]
        for one in work:
            one.result()

    assert world.ledger.jobs.progress(job.id).done == EXTENTS


EXTENTS, PROCESSES = 16, 2


def deliver_some(url: str, cluster: str, job: Job, number: int) -> None:
    mine = Scene(SqlLedger(LedgerOptions(url=url)), cluster)
    lease = mine.lease(number, owner=f"worker-{number}")
    for ordinal in range(number, EXTENTS, PROCESSES):
        mine.complete(mine.claim(lease, mine.extent(job, ordinal)))
