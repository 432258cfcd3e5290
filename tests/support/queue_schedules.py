"""Explore several queue workers: messages doubled and reordered, workers killed or frozen.

lose, refuse   the ledger's answer does not come; the ledger does not answer
unknown        a commit's answer does not come: 0 it did not happen, 1 it did
unavailable, lost     a queue does not answer; its answer does not come
stop           the worker's time runs out: it hands back
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from tests.support.explore import CRASH, PAUSE, SWITCH, Dice, Event, Stage
from tests.support.memory_delivery import BAD, DEAD, TOPIC, World
from tests.support.queued import Queued

from extentflow.delivery.runner import TransactionLimits
from extentflow.delivery.slots import SlotPolicy
from extentflow.errors import QueueUnavailable
from extentflow.model import Extent, ExtentState, Job, JobState
from extentflow.queue import Message
from extentflow.queue.consumer import QueueWorker
from extentflow.queue.dispatch import body_of
from extentflow.testing.broker import MemoryBroker

LOSE, REFUSE, UNKNOWN, UNAVAILABLE, LOST, STOP = (
    "lose",
    "refuse",
    "unknown",
    "unavailable",
    "lost",
    "stop",
)
LEASE_SECONDS = 3.0
HIDE_SECONDS = 4.0  # shorter than the time that a frozen worker misses
LIMITS = TransactionLimits(transaction_bytes=8, attempts=50, retry_seconds=20, gives_up=False)
RATIONS = {
    SWITCH: 60,
    PAUSE: 6,
    CRASH: 3,
    LOSE: 6,
    REFUSE: 6,
    UNKNOWN: 4,
    UNAVAILABLE: 6,
    LOST: 6,
    STOP: 6,
}

_WRITES = frozenset(
    (
        "lease",
        "settle",
        "claim",
        "advance",
        "renew",
        "return_attempt",
        "complete",
        "fail",
        "hand_back",
        "release",
    )
)
_LEDGER = _WRITES | {"slot", "slots", "extent", "job", "close", "connector_state", "reopen"}
_KAFKA = frozenset(("kafka.fence", "kafka.mark", "kafka.commit"))
_QUEUES = frozenset(("queue.send", "queue.receive", "queue.delete", "queue.delay", "dead.send"))
_WITHIN = {
    LOSE: _WRITES | {"close", "reopen"},
    REFUSE: _LEDGER,
    UNKNOWN: frozenset(("kafka.mark", "kafka.commit")),
    UNAVAILABLE: _QUEUES,
    LOST: _QUEUES - {"queue.receive"},
    STOP: frozenset(("kafka.send", "kafka.commit")),
}


@dataclass(frozen=True, slots=True)
class Script:
    """One object per body, `|` between extents of four records; `>` orders them, `!` is bad."""

    bodies: Sequence[bytes] = (b"abcd|efgh|ij", b">klmn|opqr|st", b"uv!x|yzAB")
    workers: int = 4
    slots: int = 3
    doubled: int = 4


@dataclass
class Play:
    """One schedule, from uploads to the verdict."""

    seed: int
    probability: float
    script: Script = Script()

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        dice = Dice(Random(self.seed), self.probability, self.seed)
        self.stage = Stage(dice, self, RATIONS, most=sum(RATIONS.values()))
        broker = MemoryBroker(
            {TOPIC: 1, DEAD: 1}, on_call=lambda name: self.stage.at(f"kafka.{name}")
        )
        self.world = World(ticker=self.stage, broker=broker, limits=LIMITS)
        self.queued = Queued(self.world)
        self.replayed = 0
        self._lost = ""
        self._stopping: set[int] = set()
        self.jobs = [self._upload(number) for number in range(len(self.script.bodies))]
        self._double()
        self._owners = [self._worker(number) for number in range(self.script.workers)]
        self.world.ledger.on_call = self.stage.at
        for name in ("queue", "dead"):
            queue = getattr(self.queued, name)
            queue.on_call = partial(self._at_queue, name)
            queue.on_answer = partial(self._answered, name)

    def _upload(self, number: int) -> Job:
        body = self.script.bodies[number]
        ordered = body.startswith(b">")
        return self.queued.job(_text(body), f"key-{number}", extent_bytes=4, ordered=ordered)

    def _double(self) -> None:
        for body in self.random.sample(
            self.queued.queue.sent, k=min(self.script.doubled, len(self.queued.queue.sent))
        ):
            self.queued.queue.send([body])

    def _worker(self, number: int) -> QueueWorker:
        policy = SlotPolicy(self.script.slots, lease_seconds=LEASE_SECONDS, wait_seconds=1)
        slots = self.world.slots(f"owner-{number}", policy=policy)
        work = self.world.worker(slots, lambda: number in self._stopping)
        worker = self.queued.worker(work)
        return replace(worker, first_delay_seconds=1.0, longest_delay_seconds=8.0)

    # -- the run --------------------------------------------------------------------------------

    @property
    def events(self) -> Counter[str]:
        """The events of all workers."""
        return Counter(line.split("<- ")[1].split()[0] for line in self.stage.trace if "<-" in line)

    def run(self) -> None:
        """Let the workers empty the queue, or die; then one more does what is left."""
        self.stage.run([partial(self._serve, number) for number in range(self.script.workers)])
        self.stage._most = 0  # no further events
        healthy = self._worker(self.script.workers)
        self.queued.drain(healthy, most=300)
        if left := [extent for job in self.jobs for extent in self._left(job)]:
            # Frozen since it got the message of an extent that failed meanwhile, a worker took it
            # for a replay and died: the dead letter queue has the message.
            letters = {letter.body for letter in self.queued.dead.messages}
            assert {body_of(extent) for extent in left} <= letters, "a message is lost"
            self.replayed = self.queued.redrive()
            self.queued.drain(healthy, most=300)
        self._judge()

    def _left(self, job: Job) -> list[Extent]:
        """Return the extents that need a message in a queue."""
        pending = [
            extent
            for extent in self.world.extents(job)
            if not self.queued.item(job, extent.ordinal).state.final
        ]
        return pending[:1] if job.ordered else pending

    def _serve(self, number: int) -> None:
        """Be the event source of one worker until the queue is empty."""
        while (due := self.queued.queue.next_at) is not None:
            if due > self.stage.now:
                self.stage.sleep(due - self.stage.now)
            with suppress(QueueUnavailable):
                self._batch(number)

    def _batch(self, number: int) -> None:
        messages = self.queued.queue.receive(hide_seconds=HIDE_SECONDS)
        self.random.shuffle(messages)
        for message in messages[:2]:
            self._handle(number, message)
        for message in messages[2:]:
            self.queued.queue.delay(message, 0)

    def _handle(self, number: int, message: Message) -> None:
        answer = self._owners[number].handle(message)
        self._stopping.discard(number)
        self.queued.settle(message, answer)

    # -- events ---------------------------------------------------------------------------------

    def turns(self, operation: str) -> Sequence[str]:
        return (PAUSE, SWITCH, CRASH) if operation in _LEDGER | _KAFKA | _QUEUES else ()

    def before(self, operation: str) -> Sequence[str]:
        _ = operation
        return ()

    def within(self, operation: str) -> Sequence[str]:
        return [kind for kind, operations in _WITHIN.items() if operation in operations]

    def targets(self, kind: str) -> Sequence[int]:
        return (0, 1) if kind == UNKNOWN else (-1,)

    def happen(self, event: Event, actor: int, operation: str) -> None:
        happening: dict[str, Callable[[], object]] = {
            PAUSE: lambda: self._elapse(actor),
            LOSE: lambda: self.world.ledger.lose_answer(operation),
            REFUSE: lambda: self.world.ledger.refuse(operation),
            UNKNOWN: lambda: self.world.broker.lose_commit_answer(committed=event.target > 0),
            UNAVAILABLE: partial(self._raise, operation),
            LOST: lambda: setattr(self, "_lost", operation),
            STOP: lambda: self._stopping.add(actor),
        }
        happening.get(event.kind, lambda: None)()

    def _elapse(self, frozen: int) -> None:
        """Let more than a lease pass; the keepers of the others do their work."""
        self.stage.now += LEASE_SECONDS * 1.25 + 1
        for number, owner in enumerate(self._owners):
            if number != frozen:
                owner.work.slots.renew()

    def _at_queue(self, name: str, operation: str) -> None:
        self.stage.at(f"{name}.{operation}")

    def _answered(self, name: str, operation: str) -> None:
        if self._lost == f"{name}.{operation}":
            self._lost = ""
            self._raise(operation)

    @staticmethod
    def _raise(operation: str) -> None:
        raise QueueUnavailable(f"{operation}: no answer")

    # -- the verdict ----------------------------------------------------------------------------

    def _judge(self) -> None:
        """Every record once, every job ended for a reason, nothing left in the queue."""
        assert self.queued.queue.messages == []
        delivered = self.world.delivered()
        wanted: list[bytes] = []
        dead: set[str] = set()
        for job in self.jobs:
            records = self._check_job(job, dead)
            wanted += records
            if job.ordered:
                assert [value for value in delivered if value in records] == records
        assert Counter(delivered) == Counter(wanted)
        assert {letter.body for letter in self.queued.dead.messages} == dead
        assert all("bad record" in reason for reason in self.queued.reasons())

    def _check_job(self, job: Job, dead: set[str]) -> list[bytes]:
        """Check one job; add what must be in the dead letter queue; return its records."""
        body = _text(self.script.bodies[self.jobs.index(job)])
        extents = self.world.extents(job)
        records: list[bytes] = []
        for extent in extents:
            item = self.queued.item(job, extent.ordinal)
            bad = BAD in body[extent.start : extent.end]
            assert item.claim is None
            assert item.state is (ExtentState.FAILED if bad else ExtentState.DONE), item
            assert bad or (item.position, item.records) == (extent.end, extent.end - extent.start)
            dead.update([body_of(extent)] if bad else [])
            places = range(extent.start, max(item.position, extent.start))
            records += [b"%d:%c" % (place, body[place]) for place in places]
        failed = sum(BAD in body[extent.start : extent.end] for extent in extents)
        counts = self.world.ledger.jobs.progress(job.id)
        assert (counts.done, counts.failed) == (len(extents) - failed, failed)
        ended = self.queued.now(job)
        assert ended.state is (JobState.FAILED if failed else JobState.DONE), ended
        return records


def _text(body: bytes) -> bytes:
    """Return the object that a script means."""
    return body.removeprefix(b">").replace(b"|", b"")
