"""The Queue port on a table beside the ledger, in SQLite or PostgreSQL.

    sent ──receive──> hidden until visible_at ──delete──> gone
     ^                    │
     └──time is up, delay─┘

A message that `send` returned for is committed. Times are those of the database server. Several
processes receive at once without waiting for each other: each skips rows that another one locks.
Messages are received by age; their group is kept, and delays none of another group.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from extentflow.errors import LedgerUnavailable, QueueUnavailable
from extentflow.ledger.sql_calls import SqlCalls
from extentflow.queue import BATCH_MESSAGES, Depth, Message
from extentflow.retry import Clock

LONGEST_DELAY_SECONDS = 39_600.0  # as SQS, so that a queue may be replaced by the other
POLL_SECONDS = 0.25
REASON_CHARACTERS = 4_000

METADATA = sa.MetaData()
MESSAGES = sa.Table(
    "extentflow_messages",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("queue", sa.Text, nullable=False),
    # Both in JSON: texts may hold what PostgreSQL does not store.
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("grouping", sa.Text, nullable=False),
    sa.Column("sent", sa.Double, nullable=False),
    sa.Column("place", sa.Integer, nullable=False),
    sa.Column("visible_at", sa.Double, nullable=False),
    sa.Column("received", sa.Integer, nullable=False),
    sa.Index("extentflow_messages_visible", "queue", "visible_at", "sent", "place"),
)
_ORDER = (MESSAGES.c.visible_at, MESSAGES.c.sent, MESSAGES.c.place)


@dataclass(frozen=True, slots=True)
class SqlQueue:
    """The queue `name` of one database. Safe for use from several threads and processes.

    With `keep_seconds`, `send` deletes messages that were not received for so long.
    """

    calls: SqlCalls
    name: str
    keep_seconds: float | None = None
    clock: Clock = field(default_factory=Clock)

    def __str__(self) -> str:
        return f"queue {self.name} beside {self.calls}"

    def exists(self) -> bool:
        """Return whether the table is there; a file that is missing is not created."""
        with self._translated("looking for it"):
            return self.calls.has(MESSAGES)

    def create(self) -> None:
        """Create the table where it is missing; Misconfigured without permission to do so."""
        if not self.exists():
            with self._translated("its creation"):
                self.calls.create(METADATA)

    def send(self, bodies: Sequence[str], *, reason: str = "", group: str = "") -> None:
        """Commit all messages in one transaction, or none; see `Queue.send`."""
        # Of a repeated attempt the ids are the same: a lost response doubles no message.
        rows = [
            {"id": uuid4().hex, "body": json.dumps(body), "place": place}
            for place, body in enumerate(bodies)
        ]
        usual = {
            "queue": self.name,
            "reason": json.dumps(reason[:REASON_CHARACTERS]),
            "grouping": group,
            "received": 0,
        }

        def work(connection: sa.Connection) -> None:
            now = _now(connection)
            dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
            insert = dialect.insert(MESSAGES).on_conflict_do_nothing(index_elements=["id"])
            connection.execute(
                insert, [{**usual, **row, "sent": now, "visible_at": now} for row in rows]
            )
            if self.keep_seconds is not None:
                old = MESSAGES.c.visible_at < now - self.keep_seconds
                connection.execute(sa.delete(MESSAGES).where(MESSAGES.c.queue == self.name, old))

        if rows:
            self._write("sending", work)

    def receive(
        self, *, wait_seconds: float = 0.0, hide_seconds: float = 30.0, most: int = BATCH_MESSAGES
    ) -> list[Message]:
        until = self.clock.monotonic() + wait_seconds
        while not (found := self._receive(hide_seconds, most)):
            left = until - self.clock.monotonic()
            if left <= 0:
                break
            self.clock.sleep(min(POLL_SECONDS, left))
        return found

    def delete(self, message: Message) -> None:
        self._write("deleting", lambda c: c.execute(sa.delete(MESSAGES).where(*_held(message))))

    def delay(self, message: Message, seconds: float) -> None:
        hidden = max(0.0, min(seconds, LONGEST_DELAY_SECONDS))

        def work(connection: sa.Connection) -> None:
            now = _now(connection)
            # A delivery that is over may be another worker's by now.
            held = (*_held(message), MESSAGES.c.visible_at > now)
            connection.execute(sa.update(MESSAGES).where(*held).values(visible_at=now + hidden))

        self._write("delaying", work)

    def depth(self) -> Depth:
        def work(connection: sa.Connection) -> Depth:
            is_hidden = MESSAGES.c.visible_at > _now(connection)
            counted = sa.select(
                sa.func.count(), sa.func.coalesce(sa.func.sum(sa.case((is_hidden, 1), else_=0)), 0)
            ).where(MESSAGES.c.queue == self.name)
            total, hidden = connection.execute(counted).one()
            return Depth(waiting=total - hidden, hidden=hidden)

        with self._translated("counting"):
            return self.calls.read(f"counting {self.name}", work)

    def _receive(self, hide_seconds: float, most: int) -> list[Message]:
        def work(connection: sa.Connection) -> list[Message]:
            now = _now(connection)
            visible = (
                sa.select(MESSAGES)
                .where(MESSAGES.c.queue == self.name, MESSAGES.c.visible_at <= now)
                .order_by(*_ORDER)
                .limit(min(most, BATCH_MESSAGES))
                .with_for_update(skip_locked=True)
            )
            rows = connection.execute(visible).all()
            if rows:
                taken = sa.update(MESSAGES).where(MESSAGES.c.id.in_([row.id for row in rows]))
                until = now + max(0.0, hide_seconds)
                connection.execute(taken.values(visible_at=until, received=MESSAGES.c.received + 1))
            return [_message(row) for row in rows]

        received: list[Message] = self._write("receiving", work)
        return received

    def _write(self, doing: str, work: Callable[[sa.Connection], Any]) -> Any:  # noqa: ANN401 - of `work`
        with self._translated(doing):
            return self.calls.write(f"{doing} of {self.name}", work)

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except LedgerUnavailable as exc:
            raise QueueUnavailable(f"{self}: {doing}: {exc}") from exc


def _now(connection: sa.Connection) -> float:
    """Return the server's time; SQLite's is that of this machine."""
    if connection.dialect.name == "sqlite":
        return time.time()
    clock = sa.func.extract("epoch", sa.func.clock_timestamp())
    return float(connection.scalar(sa.select(clock)) or 0)


def _held(message: Message) -> tuple[sa.ColumnElement[bool], ...]:
    """Return what holds of a message while this delivery is its last one."""
    found, _, received = message.handle.rpartition("/")
    count = int(received) if received.isdecimal() else -1
    return MESSAGES.c.id == found, MESSAGES.c.received == count


def _message(row: Any) -> Message:  # noqa: ANN401 - a row of MESSAGES
    received = row.received + 1
    return Message(
        id=row.id,
        body=json.loads(row.body),
        handle=f"{row.id}/{received}",
        received=received,
        reason=json.loads(row.reason),
        sent=row.sent,
        group=row.grouping,
    )
