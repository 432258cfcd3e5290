"""SqlLedger fulfils the ledger's contract on PostgreSQL."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from tests.contracts.ledger import LEASE_SECONDS, Scene, fresh, insist
from tests.contracts.ledger_contract import LedgerContract
from tests.faults.ledgers import ERRORS, PostgresServer, postgres_server
from tests.support.waiting import eventually

from extentflow.errors import LedgerUnavailable, Misconfigured
from extentflow.ledger import LedgerOptions
from extentflow.ledger.extent_store import slot_key
from extentflow.ledger.sql import SqlLedger
from extentflow.ledger.sql_calls import lock_number
from extentflow.retry import RetryPolicy
from extentflow_local.stack.stack import Stack

IMPATIENT = RetryPolicy(total_seconds=0.0)


def ledger_of(url: str, schema: str, *, retry: RetryPolicy | None = None) -> SqlLedger:
    options = LedgerOptions(url=f"{url}?options=-csearch_path%3D{schema}")
    return SqlLedger(options, retry=retry)


def created(url: str) -> tuple[SqlLedger, str]:
    """Return a ledger in a schema of its own."""
    schema = fresh("ledger").replace("-", "_")
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE SCHEMA {schema}")
    ledger = ledger_of(url, schema)
    ledger.admin.create()
    return ledger, schema


@dataclass
class LostCommits:
    """Lets commits of a ledger take effect and lose their response."""

    ledger: SqlLedger
    pending: int = 0
    lost: int = 0

    def __post_init__(self) -> None:
        dialect: Any = self.ledger._items.calls._engine().dialect
        commit = dialect.do_commit

        def lossy(connection: Any) -> None:  # noqa: ANN401 - the driver's
            commit(connection)
            if self.pending:
                self.pending -= 1
                self.lost += 1
                raise psycopg.OperationalError("the connection is closed (injected)")

        dialect.do_commit = lossy


@dataclass(frozen=True)
class PostgresWorld:
    url: str
    ledger: SqlLedger
    schema: str
    lost: LostCommits = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lost", LostCommits(self.ledger))

    def elsewhere(self) -> SqlLedger:
        return ledger_of(self.url, self.schema)

    def another_table(self) -> SqlLedger:
        return created(self.url)[0]

    def lose_answer(self, name: str) -> None:
        _ = name
        self.lost.pending += 1


@pytest.fixture(scope="module")
def url(postgres: Stack) -> str:
    return postgres.endpoint("postgres")


@pytest.fixture
def world(url: str) -> Iterator[PostgresWorld]:
    world = PostgresWorld(url, *created(url))
    yield world
    world.ledger._items.calls._engine().dispose()


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server of its own behind a link, with faults."""
    with postgres_server(tmp_path_factory.mktemp("faulty")) as server:
        SqlLedger(LedgerOptions(url=server.direct.url)).admin.create()
        server.prepare()
        yield server


@pytest.mark.long
class TestContract(LedgerContract):
    pass


class TestOutages:
    def test_a_ledger_that_restarts_between_two_calls_is_used_again(
        self, world: PostgresWorld
    ) -> None:
        scene = Scene(world.ledger)
        job, lease = scene.job(), scene.lease()
        with psycopg.connect(world.url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'extentflow'"
            )

        claim = scene.claim(lease, scene.extent(job))

        assert claim.item.attempts == 1

    def test_a_lost_response_of_a_replay_is_recognised(self, world: PostgresWorld) -> None:
        scene = Scene(world.ledger)
        job = scene.job()
        extent = scene.failed(job)
        world.lose_answer("reopen")

        assert world.ledger.extents.reopen(job.id, extent.ordinal)

        assert world.lost.lost == 1
        assert world.ledger.jobs.progress(job.id).failed == 0

    def test_an_item_that_another_session_holds_is_waited_for_and_then_unavailable(
        self, world: PostgresWorld
    ) -> None:
        options = LedgerOptions(
            url=f"{world.url}?options=-csearch_path%3D{world.schema}", read_seconds=0.2
        )
        impatient = SqlLedger(options, retry=IMPATIENT)
        scene = Scene(world.ledger)
        lease = scene.lease()
        with world.ledger._items.calls._engine().connect() as holder:
            number = sa.select(sa.func.pg_advisory_xact_lock(_number_of_slot(lease)))
            holder.execute(number)

            with pytest.raises(LedgerUnavailable, match="timeout"):
                impatient.slots.renew(lease, lease_seconds=LEASE_SECONDS)

        impatient.slots.renew(lease, lease_seconds=LEASE_SECONDS)

    @pytest.mark.outage
    @pytest.mark.parametrize("code", sorted(ERRORS.values()))
    def test_an_error_at_a_commit_is_retried_and_the_write_applied_once(
        self, faulty: PostgresServer, code: str
    ) -> None:
        ledger = SqlLedger(LedgerOptions(url=faulty.address.url))
        scene = Scene(ledger)
        job, lease = scene.job(), scene.lease()
        claim = scene.claim(lease, scene.extent(job))
        assert faulty.fail(code, seconds=600, share=1.0)

        with ThreadPoolExecutor(1) as pool:
            completing = pool.submit(scene.complete, claim)
            eventually("a commit fails", lambda: faulty.hits() or completing.done())
            failed = faulty.heal()
            completing.result()

        assert failed > 0
        assert ledger.jobs.progress(job.id).done == 1

    @pytest.mark.outage
    def test_a_deadlock_ends_and_the_write_is_applied_once(self, faulty: PostgresServer) -> None:
        ledger = SqlLedger(LedgerOptions(url=faulty.address.url))
        scene = Scene(ledger)
        job, lease = scene.job(), scene.lease()
        claim = scene.claim(lease, scene.extent(job))
        assert faulty.deadlock()

        scene.complete(claim)

        faulty.heal()
        # A session reports what it counted when it is idle, not at once.
        eventually("the server counts the deadlock", lambda: faulty.deadlocks() > 0)
        assert ledger.jobs.progress(job.id).done == 1

    @pytest.mark.outage
    def test_a_suspended_server_is_unavailable_and_used_again_afterwards(
        self, faulty: PostgresServer
    ) -> None:
        options = LedgerOptions(url=faulty.direct.url, connect_seconds=1.0, read_seconds=0.2)
        impatient = SqlLedger(options, retry=IMPATIENT)
        scene = Scene(SqlLedger(LedgerOptions(url=faulty.direct.url), retry=PATIENT))
        lease = scene.lease()
        impatient.slots.renew(lease, lease_seconds=LEASE_SECONDS)
        assert faulty.suspend(6.0)

        with pytest.raises(LedgerUnavailable, match=r"no response within 2\.2 s"):
            impatient.slots.renew(lease, lease_seconds=LEASE_SECONDS)

        scene.ledger.slots.renew(lease, lease_seconds=LEASE_SECONDS)
        faulty.heal()
        impatient.slots.renew(lease, lease_seconds=LEASE_SECONDS)

    @pytest.mark.outage
    def test_whatever_happens_to_the_server_workers_count_exactly(
        self, faulty: PostgresServer
    ) -> None:
        first = SqlLedger(LedgerOptions(url=faulty.address.url), retry=PATIENT)
        scene, over = Scene(first), threading.Event()
        job = scene.job(EXTENTS)

        def work(number: int) -> int:
            ledger = SqlLedger(LedgerOptions(url=faulty.address.url), retry=PATIENT)
            mine = Scene(ledger, scene.cluster)
            lease = mine.lease(number, owner=f"worker-{number}")
            for ordinal in range(number, EXTENTS, WORKERS):
                if over.is_set():
                    return ordinal // WORKERS
                mine.complete(mine.claim(lease, mine.extent(job, ordinal)))
            raise AssertionError("the workers had too little to do")

        with ThreadPoolExecutor(WORKERS) as pool:
            working = [pool.submit(work, number) for number in range(WORKERS)]
            try:
                happened = [name for name, act in everything(faulty) if happens(faulty, act)]
            finally:
                over.set()
                faulty.heal()
            done = sum(one.result() for one in working)

        assert len(happened) == len(list(everything(faulty)))
        assert first.jobs.progress(job.id).done == done > WORKERS


PATIENT = RetryPolicy(total_seconds=120.0, longest_pause_seconds=1.0)
WORKERS, EXTENTS = 3, 30_000


def everything(server: PostgresServer) -> Iterator[tuple[str, Callable[[], bool]]]:
    """Yield each fault of the server once."""
    for name, (_, act) in server.faults(Random(1)).items():
        yield name, act


def happens(server: PostgresServer, act: Callable[[], bool]) -> bool:
    """Let a fault happen, and end it, while workers work."""
    happened = act()
    time.sleep(0.5)
    server.heal()
    return happened


def _number_of_slot(lease: Any) -> int:  # noqa: ANN401 - a lease
    return lock_number(slot_key(lease.cluster, lease.number))


class TestRefusals:
    def test_a_database_without_a_ledger_names_the_command_that_creates_it(self, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("CREATE SCHEMA IF NOT EXISTS nothing_here")

        with pytest.raises(Misconfigured, match="extentflow init"):
            _ = ledger_of(url, "nothing_here").id

    def test_a_server_that_refuses_connections_is_unavailable(self) -> None:
        ledger = SqlLedger(
            LedgerOptions(url="postgresql://extentflow@127.0.0.1:1/postgres"),
            retry=IMPATIENT,
        )

        with pytest.raises(LedgerUnavailable, match="refused"):
            ledger.jobs.get("none")

    def test_another_database_is_refused_by_name(self, url: str) -> None:
        wrong = url.replace("/postgres", "/elsewhere")

        with pytest.raises(Misconfigured, match="elsewhere"):
            SqlLedger(LedgerOptions(url=wrong), retry=IMPATIENT).jobs.get("none")

    @pytest.mark.long
    def test_a_copy_is_refused_until_it_is_adopted(self, world: PostgresWorld) -> None:
        first = world.ledger.id
        copy = f"{world.schema}_copy"
        with psycopg.connect(world.url, autocommit=True) as admin:
            admin.execute(f"CREATE SCHEMA {copy}")
            for table in ("extentflow_items", "extentflow_layout"):
                admin.execute(
                    f"CREATE TABLE {copy}.{table} (LIKE {world.schema}.{table} INCLUDING ALL)"
                )
                admin.execute(f"INSERT INTO {copy}.{table} TABLE {world.schema}.{table}")
        restored = ledger_of(world.url, copy)

        with pytest.raises(Misconfigured, match="a copy of"):
            _ = restored.id
        assert restored.admin.create()

        assert restored.id != first


class TestClock:
    def test_the_time_is_the_servers(self, world: PostgresWorld) -> None:
        with psycopg.connect(world.url) as session:
            row = session.execute("SELECT extract(epoch FROM clock_timestamp())").fetchone()
        assert row is not None

        assert float(row[0]) <= world.elsewhere().now() + 1.0


def test_workers_in_threads_count_exactly(world: PostgresWorld) -> None:
    scene = Scene(world.ledger)
    job = scene.job(32)

    def work(number: int) -> None:
        ledger = world.elsewhere()
        mine = Scene(ledger, scene.cluster)
        lease = mine.lease(number, owner=f"worker-{number}")
        for ordinal in range(number, 32, 8):
            claim = mine.claim(lease, mine.extent(job, ordinal))
            insist(lambda claim=claim: mine.complete(claim))  # type: ignore[misc]

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert world.ledger.jobs.progress(job.id).done == 32
