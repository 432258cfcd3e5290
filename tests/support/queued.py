"""The event path in memory: a world, its queues, and what the event source does with messages."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.support.memory_delivery import DEAD, TOPIC, World

from extentflow.delivery.runner import DeliveryContext, TransactionLimits
from extentflow.errors import SinkUnavailable
from extentflow.ledger import ExtentItem
from extentflow.model import Extent, Job
from extentflow.queue import Message
from extentflow.queue.consumer import MessageDisposition, QueueWorker
from extentflow.queue.dispatch import ExtentDispatcher
from extentflow.testing.broker import MemoryBroker
from extentflow.testing.services import MemoryQueue

HIDE_SECONDS = 180.0
MAX_DELIVERIES = 1_000
LIMITS = TransactionLimits(transaction_bytes=8, attempts=3, retry_seconds=30, gives_up=False)


class Line:
    """The way to the broker, until a test cuts it."""

    cut = False

    def __call__(self, operation: str) -> None:
        if self.cut and operation != "close":
            raise SinkUnavailable(f"{operation}: no broker answers")


def queue_world(**changes: Any) -> World:  # noqa: ANN401 - a world's fields
    """Return a world whose workers leave extents to later messages during an outage."""
    broker = MemoryBroker({TOPIC: 1, DEAD: 1}, on_call=Line())
    return World(**{"limits": LIMITS, "broker": broker, **changes})


def cut(world: World, *, unavailable: bool = True) -> None:
    """Take the broker of a `queue_world` away, or bring it back."""
    line = world.broker._on_call
    assert isinstance(line, Line)
    line.cut = unavailable


@dataclass
class Queued:
    """A world with an extents queue and its dead letter queue."""

    world: World = field(default_factory=queue_world)

    def __post_init__(self) -> None:
        clock = self.world.ticker.read
        self.queue, self.dead = MemoryQueue(clock), MemoryQueue(clock)

    @property
    def dispatch(self) -> ExtentDispatcher:
        return ExtentDispatcher(self.world.planner, self.queue)

    def worker(self, work: DeliveryContext | None = None) -> QueueWorker:
        """A worker of its own process; renewals by thread are too rare to happen."""
        return QueueWorker(
            work=work or self.world.worker(),
            dispatch=self.dispatch,
            queue=self.queue,
            dead=self.dead,
            ledger=self.world.ledger,
            random=Random(3),
            hide_seconds=HIDE_SECONDS,
            renew_seconds=3_600.0,
        )

    def job(self, body: bytes, key: str = "key", *, extent_bytes: int = 4, **changes: bool) -> Job:
        """Put an object, plan it, send its extents."""
        request = self.world.request(self.world.put(body, key), extent_bytes, **changes)
        return self.dispatch.start(self.world.planner.register(request))

    def now(self, job: Job) -> Job:
        """The job as the ledger has it."""
        found = self.world.ledger.jobs.get(job.id)
        assert found is not None
        return found

    def item(self, job: Job, ordinal: int = 0) -> ExtentItem:
        return self.world.ledger.extents.get(job.id, ordinal)

    # -- the event source -----------------------------------------------------------------------

    def receive(self, count: int = 1) -> list[Message]:
        """The next messages; whatever else came along is visible again."""
        found = self.queue.receive(hide_seconds=HIDE_SECONDS)
        for message in found[count:]:
            self.queue.delay(message, 0)
        return found[:count]

    def take(self) -> Message:
        (message,) = self.receive()
        return message

    def settle(self, message: Message, answer: MessageDisposition) -> MessageDisposition:
        """Do what the answer says."""
        if answer.again_seconds is None:
            self.queue.delete(message)
        else:
            self.queue.delay(message, answer.again_seconds)
        return answer

    def deliver(self, worker: QueueWorker) -> list[MessageDisposition]:
        """Give a worker what is visible now, one message after the other."""
        messages = self.queue.receive(hide_seconds=HIDE_SECONDS)
        return [self.settle(message, worker.handle(message)) for message in messages]

    def drain(self, worker: QueueWorker, most: int = MAX_DELIVERIES) -> list[MessageDisposition]:
        """Deliver until the queue is empty, waiting where messages wait."""
        answers: list[MessageDisposition] = []
        while (due := self.queue.next_at) is not None:
            assert len(answers) < most, f"not empty after {most} deliveries"
            self.world.ticker.now = max(self.world.ticker.now, due)
            answers += self.deliver(worker)
        return answers

    def redrive(self) -> int:
        """Move every dead letter back, as SQS does: same body, a message of its own."""
        messages = self.dead.messages
        for message in messages:
            self.queue.send([message.body])
            self.dead.delete(message)
        return len(messages)

    def reasons(self) -> list[str]:
        """Why messages are in the dead letter queue."""
        return [message.reason for message in self.dead.messages]


def ordinals(bodies: Iterable[str]) -> list[int]:
    """Which extents messages ask for."""
    return [json.loads(body)["extent"] for body in bodies]


def ask(extent: Extent, **changes: object) -> str:
    """A message for an extent, with other values."""
    return json.dumps({**extent.to_message(), **changes})


def after(calls: int) -> Callable[[], bool]:
    """Say True from the call after `calls` on: a deadline."""
    asked = iter(range(calls))
    return lambda: next(asked, None) is None
