"""SqlQueue keeps the queue's contract on PostgreSQL; receivers do not wait for each other."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from tests.contracts.ledger import fresh
from tests.contracts.queue import HandleContract, QueueContract
from tests.support.memory_delivery import Ticker

from extentflow.errors import Misconfigured, QueueUnavailable
from extentflow.ledger import LedgerOptions
from extentflow.ledger.sql_calls import SqlCalls
from extentflow.queue import Depth
from extentflow.queue import sql_queue as sql
from extentflow.queue.sql_queue import MESSAGES, SqlQueue
from extentflow.retry import RetryPolicy
from extentflow_local.stack.stack import Stack

pytestmark = pytest.mark.variant


def calls_of(url: str, schema: str, *, seconds: float = 10.0) -> SqlCalls:
    options = LedgerOptions(url=f"{url}?options=-csearch_path%3D{schema}")
    return SqlCalls(options, RetryPolicy(total_seconds=seconds, first_pause_seconds=0.05))


@dataclass
class PostgresPlace:
    url: str
    schema: str
    calls: SqlCalls
    ticker: Ticker = field(default_factory=Ticker)
    patience_seconds: float = 0.0
    numbers: Iterator[int] = field(default_factory=count)

    def queue(self) -> SqlQueue:
        made = SqlQueue(self.calls, f"queue-{next(self.numbers)}")
        made.create()
        return made

    def pass_seconds(self, seconds: float) -> None:
        self.ticker.sleep(seconds)


@pytest.fixture(scope="module")
def schema(postgres: Stack) -> str:
    name = fresh("queue").replace("-", "_")
    with psycopg.connect(postgres.endpoint("postgres"), autocommit=True) as admin:
        admin.execute(f"CREATE SCHEMA {name}".encode())
    return name


@pytest.fixture
def place(postgres: Stack, schema: str, unique: str) -> Iterator[PostgresPlace]:
    url = postgres.endpoint("postgres")
    made = PostgresPlace(url, schema, calls_of(url, schema))
    made.numbers = iter(count(int(unique, 16)))
    yield made
    made.calls._engine().dispose()


class TestSqlQueue(QueueContract, HandleContract):
    @pytest.fixture
    def place(self, place: PostgresPlace, monkeypatch: pytest.MonkeyPatch) -> PostgresPlace:
        monkeypatch.setattr(sql, "_now", lambda _connection: place.ticker.read())
        return place


def test_times_are_those_of_the_server(place: PostgresPlace) -> None:
    queue = place.queue()
    with psycopg.connect(place.url) as connection:
        (before,) = connection.execute("SELECT extract(epoch FROM now())::float").fetchone() or (0,)
    queue.send(["a"])

    (message,) = queue.receive(hide_seconds=0.5)

    assert before <= message.sent < before + 300
    assert queue.receive() == []
    (again,) = queue.receive(wait_seconds=60)
    assert (again.id, again.received) == (message.id, 2)


def test_receivers_do_not_wait_for_each_other(place: PostgresPlace) -> None:
    queue = place.queue()
    queue.send(["locked", "free"])
    locked = sa.select(MESSAGES.c.id).where(MESSAGES.c.queue == queue.name)
    first = locked.order_by(MESSAGES.c.place).limit(1).with_for_update()
    with place.calls._engine().begin() as connection:
        connection.execute(first)

        assert [one.body for one in queue.receive()] == ["free"]

    assert [one.body for one in queue.receive()] == ["locked"]


def test_concurrent_receivers_get_every_message_once(place: PostgresPlace) -> None:
    queue = place.queue()
    queue.send([str(number) for number in range(300)])
    found: list[str] = []

    def receive() -> None:
        while queue.depth().waiting:
            for message in queue.receive(most=3):
                found.append(message.body)
                queue.delete(message)

    threads = [threading.Thread(target=receive) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(found, key=int) == [str(number) for number in range(300)]
    assert queue.depth() == Depth(0, 0)


def test_a_lost_response_to_sending_doubles_no_message(place: PostgresPlace) -> None:
    queue = place.queue()
    dialect: Any = place.calls._engine().dialect
    commit = dialect.do_commit

    def lossy(connection: Any) -> None:  # noqa: ANN401 - the driver's
        commit(connection)
        dialect.do_commit = commit
        raise psycopg.OperationalError("the connection is closed (injected)")

    dialect.do_commit = lossy

    queue.send(["a", "b"])

    assert [one.body for one in queue.receive()] == ["a", "b"]
    assert queue.receive() == []


def test_a_server_that_is_down_makes_the_queue_unavailable() -> None:
    queue = SqlQueue(calls_of("postgresql://u@127.0.0.1:1/none", "s", seconds=0), "arrivals")

    with pytest.raises(QueueUnavailable, match="queue arrivals beside ledger postgresql"):
        queue.send(["a"])


def test_a_role_without_the_right_to_create_is_told_so(place: PostgresPlace) -> None:
    role = f"role_{place.schema}"
    with psycopg.connect(place.url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN".encode())
    url = place.url.replace("://extentflow@", f"://{role}@")

    with pytest.raises(Misconfigured, match=r"(?s)permission denied .* check user and grants"):
        SqlQueue(calls_of(url, "public"), "arrivals").create()
