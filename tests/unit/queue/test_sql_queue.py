"""SqlQueue keeps the queue's contract on SQLite, also when responses are lost."""

import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.queue import HandleContract, QueueContract
from tests.support.golden import Golden
from tests.support.memory_delivery import Ticker

from extentflow.errors import Misconfigured, QueueUnavailable
from extentflow.ledger import LedgerOptions
from extentflow.ledger.sql import SqlLedger
from extentflow.ledger.sql_calls import SqlCalls
from extentflow.queue import sql_queue as sql
from extentflow.queue.sql_queue import SqlQueue
from extentflow.retry import Clock, RetryPolicy


def calls(path: Path, *, seconds: float = 5.0) -> SqlCalls:
    retry = RetryPolicy(total_seconds=seconds, first_pause_seconds=0.01)
    return SqlCalls(LedgerOptions(url=f"sqlite:///{path}", read_seconds=seconds), retry)


@dataclass
class SqlitePlace:
    calls: SqlCalls
    ticker: Ticker = field(default_factory=Ticker)
    patience_seconds: float = 0.0
    numbers: Iterator[int] = field(default_factory=count)

    def queue(self) -> SqlQueue:
        clock = Clock(self.ticker.read, self.ticker.read, self.ticker.sleep)
        made = SqlQueue(self.calls, f"queue-{next(self.numbers)}", clock=clock)
        made.create()
        return made

    def pass_seconds(self, seconds: float) -> None:
        self.ticker.sleep(seconds)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlitePlace:
    made = SqlitePlace(calls(tmp_path / "ledger.db"))
    monkeypatch.setattr(sql, "_now", lambda _connection: made.ticker.read())
    return made


class TestSqlQueue(QueueContract, HandleContract):
    @pytest.fixture
    def place(self, place: SqlitePlace) -> SqlitePlace:
        return place


def lose_next_response(queue: SqlQueue) -> None:
    """Let the next commit take effect and fail."""
    dialect: Any = queue.calls._engine().dialect
    commit = dialect.do_commit

    def lossy(connection: Any) -> None:  # noqa: ANN401 - the driver's
        commit(connection)
        dialect.do_commit = commit
        error = sqlite3.OperationalError("the response was lost (injected)")
        error.sqlite_errorname = "SQLITE_IOERR"
        raise error

    dialect.do_commit = lossy


def test_a_lost_response_to_sending_doubles_no_message(place: SqlitePlace) -> None:
    queue = place.queue()
    lose_next_response(queue)

    queue.send(["a", "b"])

    assert [one.body for one in queue.receive()] == ["a", "b"]
    assert queue.receive() == []


def test_a_lost_response_to_receiving_hides_messages_for_a_while_only(place: SqlitePlace) -> None:
    queue = place.queue()
    queue.send(["a"])
    lose_next_response(queue)

    assert queue.receive(hide_seconds=5) == []
    place.pass_seconds(6)
    assert [(one.body, one.received) for one in queue.receive()] == [("a", 2)]


def test_queues_of_one_table_are_apart(place: SqlitePlace) -> None:
    first, second = place.queue(), place.queue()
    first.send(["a"])

    assert second.receive() == []
    assert (first.depth().waiting, second.depth().waiting) == (1, 0)


@pytest.mark.parametrize("body", ["nul \x00", "lone \ud800"])
def test_a_body_may_hold_what_databases_do_not_store(place: SqlitePlace, body: str) -> None:
    queue = place.queue()

    queue.send([body])

    assert [one.body for one in queue.receive()] == [body]


def test_waiting_for_a_message_ends_when_the_time_is_up(place: SqlitePlace) -> None:
    queue = place.queue()
    began = place.ticker.read()

    assert queue.receive(wait_seconds=3) == []

    assert 3 <= place.ticker.read() - began < 4


def test_messages_that_are_kept_for_a_time_are_deleted_after_it(place: SqlitePlace) -> None:
    other = place.queue()
    queue = replace(place.queue(), keep_seconds=100)
    other.send(["other"])
    queue.send(["old"])
    place.pass_seconds(60)
    queue.send(["new"])
    place.pass_seconds(60)

    queue.send(["newest"])

    assert [one.body for one in queue.receive()] == ["new", "newest"]
    assert other.depth().waiting == 1


def test_concurrent_receivers_get_every_message_once(place: SqlitePlace) -> None:
    queue = place.queue()
    queue.send([str(number) for number in range(60)])
    found: list[str] = []

    def receive() -> None:
        while messages := queue.receive(most=3):
            found.extend(one.body for one in messages)

    threads = [threading.Thread(target=receive) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(found, key=int) == [str(number) for number in range(60)]


def test_a_locked_database_makes_the_queue_unavailable(place: SqlitePlace, golden: Golden) -> None:
    path = Path(place.calls.url.database or "")
    queue = place.queue()
    impatient = SqlQueue(calls(path, seconds=0.05), queue.name)
    other = sqlite3.connect(path)
    other.execute("BEGIN IMMEDIATE")

    with golden.raises(QueueUnavailable, match="queue-0"):
        impatient.send(["a"])

    other.rollback()
    other.close()
    impatient.send(["b"])
    assert [one.body for one in queue.receive()] == ["b"]


def test_a_missing_table_names_the_command_that_creates_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    queue = SqlQueue(calls(path), "arrivals")

    assert not queue.exists()
    assert not path.exists()
    with pytest.raises(Misconfigured, match="`extentflow init` creates it"):
        queue.send(["a"])
    queue.create()
    queue.create()
    assert queue.exists()


def test_the_table_of_queues_and_the_ledger_are_created_in_any_order(tmp_path: Path) -> None:
    for number, steps in enumerate((("queue", "ledger"), ("ledger", "queue"))):
        path = tmp_path / f"{number}.db"
        create = {
            "queue": SqlQueue(calls(path), "arrivals").create,
            "ledger": SqlLedger(LedgerOptions(url=f"sqlite:///{path}")).admin.create,
        }
        for step in steps:
            create[step]()
        assert SqlQueue(calls(path), "arrivals").depth().waiting == 0
