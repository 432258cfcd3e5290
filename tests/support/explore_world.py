"""The ownership protocol under exploration: real `Slots` and `run_extent` over shipped doubles.

lose     the ledger's write happens, its answer does not come
refuse   the ledger does not answer and nothing happens
deny     the ledger or Kafka refuses for good (a right was withdrawn, a token has expired):
0 before the operation took effect, 1 after
delay    the caller gives a ledger's write up; its request is still under way and
arrive   takes effect now, if it still can
late     a write of progress waits for its background thread, or is under way without an answer;
it arrives as such a request
unknown  a commit's answer does not come: 0 it did not happen, 1 it did, 2 it did and the
producer was fenced since
forget   Kafka loses the group of a slot
restore  the group of a slot is again what it was under an earlier epoch
expire   Kafka ends the open transaction of a slot, which fences its producer
outage   the object store does not answer
stop     the worker is asked to stop: it commits, hands back, starts again, 0 with the same
slot, 1 with another
beat     the worker's keeper renews its lease
"""

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from random import Random

from tests.support.explore import CRASH, PAUSE, SWITCH, Chooser, Dice, Event, Stage, depth_first
from tests.support.memory_delivery import BAD, DEAD, TOPIC, Bytewise, World, first_column

from extentflow.delivery.converted import ConvertedChunk
from extentflow.delivery.pipeline import Pipeline
from extentflow.delivery.runner import DeliveryContext, TransactionLimits, run_extent
from extentflow.delivery.slots import SlotPolicy, Slots
from extentflow.errors import (
    ExtentflowError,
    LedgerUnavailable,
    Misconfigured,
    Retryable,
    StoreUnavailable,
)
from extentflow.formats import ResumePoints
from extentflow.kafka import SlotProgress
from extentflow.ledger import ExtentItem, JobProgress
from extentflow.ledger.items import Items
from extentflow.model import Extent, ExtentState, JobState, Outcome
from extentflow.storage.ranges import RangeReader
from extentflow.testing.broker import MemoryBroker
from extentflow.testing.ledger import MemoryLedger

LEASE_SECONDS = 3.0
TRANSACTION_BYTES = 14  # two chunks of one record each
HEALTHY_ROUNDS = 100

LOSE, REFUSE, DENY, DELAY, ARRIVE = "lose", "refuse", "deny", "delay", "arrive"
LATE = "late"
UNKNOWN, FORGET, RESTORE, EXPIRE = "unknown", "forget", "restore", "expire"
OUTAGE, STOP, BEAT = "outage", "stop", "beat"

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
_READS = frozenset(("slot", "extent"))
_COMMITS = frozenset(("kafka.commit", "kafka.mark"))
_EFFECTS = _WRITES | _COMMITS | {"kafka.fence"}
_TURNS: Mapping[str, frozenset[str]] = {
    PAUSE: _EFFECTS | _READS,
    SWITCH: _EFFECTS | _READS,
    CRASH: _EFFECTS,
}
_BEFORE: Mapping[str, frozenset[str]] = {
    ARRIVE: (_WRITES - {"renew", "advance"}) | {"slot", "extent", "kafka.fence"},
    FORGET: _EFFECTS | {"kafka.read"},
    RESTORE: _EFFECTS | {"kafka.read"},
    EXPIRE: _COMMITS | {"claim", "complete", "kafka.send"},
    STOP: frozenset(("lease", "claim", "kafka.send", "kafka.commit")),
    BEAT: _EFFECTS,
}
_WITHIN: Mapping[str, frozenset[str]] = {
    LOSE: _WRITES,
    REFUSE: _WRITES | {"slot", "slots", "extent", "job", "close"},
    DENY: _WRITES | {"kafka.fence", "kafka.commit"},
    DELAY: _WRITES,
    LATE: frozenset(("progress", "advance")),
    UNKNOWN: _COMMITS,
    OUTAGE: frozenset(("chunk",)),
}

# Returns the items of an empty ledger, whose clock it is given.
NewItems = Callable[[Callable[[], float]], Items]

_prepared: dict[tuple[str, int, int], ConvertedChunk] = {}


@dataclass(frozen=True, slots=True)
class Rehearsed(Pipeline):
    """A pipeline that prepares every chunk once for all schedules; each chunk may go wrong."""

    on_chunk: Callable[[], None] = lambda: None

    def convert(
        self, extent: Extent, position: int, _points: ResumePoints | None = None
    ) -> Generator[ConvertedChunk, None, None]:
        place = max(position, extent.start)
        while place < extent.end:
            self.on_chunk()
            key = (extent.version.etag, place, extent.end)
            if key not in _prepared:
                _prepared[key] = next(Pipeline.convert(self, extent, place))
            yield _prepared[key]
            place = _prepared[key].next_position


class HeldUpError(Exception):
    """A request to the ledger is held up on its way."""


class SlowLedger(MemoryLedger):
    """A ledger whose writes can be held up: `on_call` raises HeldUpError, the caller gives up."""

    def __init__(
        self, identity: str, *, clock: Callable[[], float], items: Items | None = None
    ) -> None:
        super().__init__(identity, clock=clock, items=items)
        self.under_way: list[Callable[[], object]] = []
        for store, name in product((self.extents, self.slots), _WRITES):
            if hasattr(store, name):
                setattr(store, name, partial(self._send, getattr(store, name)))

    def arrive(self, place: int = 0) -> None:
        """Let a request under way, by default the oldest, take effect, if it still can."""
        with suppress(ExtentflowError):
            self.under_way.pop(place)()

    def _send(self, call: Callable[..., object], *args: object, **named: object) -> object:
        try:
            return call(*args, **named)
        except HeldUpError:
            self.under_way.append(partial(call, *args, **named))
            raise LedgerUnavailable("no answer; the request is still under way") from None


@dataclass
class RehearsedWorld(World):
    """A world with explored pipelines and a ledger that may be slow, over `items`."""

    on_chunk: Callable[[], None] = lambda: None
    items: Items | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ledger = SlowLedger("ledger", clock=self.ticker.read, items=self.items)

    def _pipeline(self, extent: Extent) -> Pipeline:
        source = RangeReader(self.store, extent.version)
        return Rehearsed(source, self.format, TOPIC, first_column, on_chunk=self.on_chunk)


@dataclass(frozen=True, slots=True)
class Scenario:
    """So many workers and slots, one job; every two bytes of an extent make a transaction.

    `rations` bounds events by kind, `most` all of them together. A `!` in `body` is a bad record
    that fails its extent. `evicted` adds a driver that takes all workers' slots while they work.
    """

    rations: Mapping[str, int]
    most: int = 3
    workers: int = 2
    slots: int = 2
    body: bytes = b"abcdef"
    extent_bytes: int = 3
    ordered: bool = False
    exactly_once: bool = True
    evicted: bool = False


@dataclass(slots=True)
class Findings:
    """How many schedules were run, and what the workers did in all of them."""

    schedules: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[ExtentState] = field(default_factory=Counter)

    def add(self, trial: "Trial") -> None:
        self.schedules += 1
        for line in trial.stage.trace:
            _, operation, *event = line.split(maxsplit=2)
            self.operations[operation] += 1
            if event:
                self.events[event[0].split()[1]] += 1
        self.outcomes.update(item.state for item in trial.items())


def explore_all(scenario: Scenario, items: NewItems | None = None) -> Findings:
    """Run every schedule within the scenario's rations."""
    return explore_with(scenario, depth_first(), items)


def explore_some(
    scenario: Scenario,
    seeds: Iterable[int],
    probability: float,
    items: NewItems | None = None,
) -> Findings:
    """Run one random schedule per seed."""
    dice = (Dice(Random(seed), probability, seed) for seed in seeds)
    return explore_with(scenario, dice, items)


def explore_with(
    scenario: Scenario, choosers: Iterable[Chooser], items: NewItems | None = None
) -> Findings:
    """Run one schedule per chooser; an error gets the schedule as a note.

    `items` returns an empty ledger's at a time that the schedule tells; by default in memory.
    """
    findings = Findings()
    for chooser in choosers:
        trial = Trial(scenario, chooser, items)
        try:
            trial.run()
        except Exception as exc:
            exc.add_note(f"{scenario}\n{chooser}\n" + "\n".join(trial.stage.trace))
            raise
        findings.add(trial)
    return findings


class Trial:
    """One schedule of a scenario, from an empty ledger to the verdict."""

    def __init__(self, scenario: Scenario, chooser: Chooser, items: NewItems | None = None) -> None:
        self.stage = Stage(chooser, self, scenario.rations, scenario.most)
        self._scenario = scenario
        self._rationed = frozenset(scenario.rations)
        self._world = RehearsedWorld(
            on_chunk=lambda: self.stage.at("chunk"),
            ticker=self.stage,
            broker=MemoryBroker({TOPIC: 1, DEAD: 1}, on_call=self._at_kafka),
            format=Bytewise(1),
            limits=TransactionLimits(TRANSACTION_BYTES, attempts=1_000, retry_seconds=1e9),
            exactly_once=scenario.exactly_once,
            items=None if items is None else items(self.stage.read),
        )
        assert isinstance(self._world.ledger, SlowLedger)
        self._ledger, self._broker = self._world.ledger, self._world.broker
        self._job = self._world.job(
            scenario.body, extent_bytes=scenario.extent_bytes, ordered=scenario.ordered
        )
        self._extents = self._world.extents(self._job)
        self._ledger.on_call = self.stage.at
        self._ledger.on_answer = self._answered
        self._denied = ""
        self._policy = SlotPolicy(scenario.slots, LEASE_SECONDS, wait_seconds=1)
        self._slots = [self._new_slots(f"worker-{n}") for n in range(scenario.workers)]
        if scenario.evicted:
            self._slots.append(self._new_slots("driver"))
        self._stopping: dict[int, int] = {}
        self._forgotten = 0
        self._groups: dict[int, dict[int, SlotProgress]] = {n: {} for n in range(scenario.slots)}

    def run(self) -> None:
        """Let the workers finish, then a healthy one, then judge."""
        bodies = [partial(self._work, number) for number in range(self._scenario.workers)]
        self.stage.run([*bodies, self._evict] if self._scenario.evicted else bodies)
        self._finish()
        while self._ledger.under_way:
            self._ledger.arrive()
        self._judge()

    def items(self) -> list[ExtentItem]:
        """Return the extents as the ledger has them."""
        return [self._ledger.extents.get(self._job.id, extent.ordinal) for extent in self._extents]

    def _new_slots(self, owner: str) -> Slots:
        return self._world.slots(owner, policy=self._policy, submit=self._submit)

    def _submit(self, write: Callable[[], None]) -> None:
        try:
            self.stage.at("progress")
        except HeldUpError:
            self._ledger.under_way.append(write)
        else:
            write()

    # -- workers --------------------------------------------------------------------------------

    def _work(self, number: int) -> None:
        """Run all extents, each worker beginning with another one, until all are final."""
        slots = self._slots[number]
        work = self._world.worker(slots, lambda: number in self._stopping)
        todo = deque(self._extents)
        if not self._scenario.ordered:
            todo.rotate(-number)
        while todo:
            extent = todo.popleft()
            if not self._is_final(extent, work):
                todo.append(extent)
            if self._stopping.pop(number, 0):
                self._release(slots)
        self._release(slots)

    def _evict(self) -> None:
        slots = self._slots[-1]
        while True:
            try:
                slots.evict("worker-")
            except (Retryable, Misconfigured):
                self.stage.sleep(1)
            else:
                return

    @staticmethod
    def _release(slots: Slots) -> None:
        with suppress(Misconfigured):
            slots.release()

    def _is_final(self, extent: Extent, work: DeliveryContext) -> bool:
        try:
            receipt = run_extent(extent, work)
        except Misconfigured:
            return False
        except Retryable:
            if not work.stopping():
                raise
            return False
        if receipt.outcome is Outcome.BUSY:
            work.clock.sleep(receipt.retry_after_seconds)
        return receipt.outcome not in (Outcome.BUSY, Outcome.HANDED_BACK)

    def _finish(self) -> None:
        """Let a healthy worker do what is left; it always can, whatever happened."""
        work = self._world.worker(self._new_slots("healthy"))
        todo = deque(self._extents)
        for _ in range(HEALTHY_ROUNDS):
            if todo and not self._is_final(todo[0], work):
                todo.append(todo[0])
            if todo:
                todo.popleft()
        assert not todo, "a healthy worker could not finish"
        work.slots.release()

    # -- events ---------------------------------------------------------------------------------

    def turns(self, operation: str) -> Sequence[str]:
        return _kinds("turns", operation, self._rationed)

    def before(self, operation: str) -> Sequence[str]:
        return _kinds("before", operation, self._rationed)

    def within(self, operation: str) -> Sequence[str]:
        return _kinds("within", operation, self._rationed)

    def targets(self, kind: str) -> Sequence[int]:
        if kind == UNKNOWN:
            return (0, 1, 2)
        if kind in (STOP, DENY):
            return (0, 1)
        if kind in (FORGET, EXPIRE):
            return [n for n in self._groups if self._broker.group(_identity(n))]
        if kind == RESTORE:
            return [n for n in self._groups if self._earlier(n)]
        if kind == ARRIVE:
            return range(len(self._ledger.under_way))
        return (-1,)

    def happen(self, event: Event, actor: int, operation: str) -> None:
        happening: dict[str, Callable[[], object]] = {
            PAUSE: lambda: self._elapse(actor),
            LOSE: lambda: self._ledger.lose_answer(operation),
            REFUSE: lambda: self._ledger.refuse(operation),
            UNKNOWN: lambda: self._broker.lose_commit_answer(
                committed=event.target > 0, fenced=event.target > 1
            ),
            DENY: lambda: self._deny(operation, after=event.target > 0),
            DELAY: self._hold_up,
            LATE: self._hold_up,
            ARRIVE: lambda: self._ledger.arrive(event.target),
            FORGET: lambda: self._forget(event.target),
            RESTORE: lambda: self._restore(event.target),
            EXPIRE: lambda: self._broker.time_out_transaction(_identity(event.target)),
            OUTAGE: self._take_the_store_away,
            STOP: lambda: self._stopping.update({actor: event.target}),
            BEAT: self._slots[actor].renew,
        }
        happening.get(event.kind, lambda: None)()
        self._check_claims()

    def _elapse(self, paused: int) -> None:
        """Let more than a lease pass; the keepers of the others do their work."""
        self.stage.now += LEASE_SECONDS + self._policy.grace_seconds + 1
        for number, slots in enumerate(self._slots):
            if number != paused:
                slots.renew()

    def _deny(self, operation: str, *, after: bool) -> None:
        if not after or operation.startswith("kafka."):
            raise Misconfigured(f"{operation}: denied")
        self._denied = operation

    def _answered(self, operation: str) -> None:
        if operation == self._denied:
            self._denied = ""
            raise Misconfigured(f"{operation}: denied, after it took effect")

    @staticmethod
    def _hold_up() -> None:
        raise HeldUpError

    @staticmethod
    def _take_the_store_away() -> None:
        raise StoreUnavailable("the store does not answer")

    def _forget(self, slot: int) -> None:
        self._forgotten += 1
        self._broker.forget_group(_identity(slot))

    def _restore(self, slot: int) -> None:
        self._forgotten += 1
        earlier = self._earlier(slot)[-1]
        self._broker._log.slots[_identity(slot)].group = (earlier.position, earlier.to_metadata())

    def _earlier(self, slot: int) -> list[SlotProgress]:
        """Return what the group said last under each epoch before the present one."""
        now = self._broker.group(_identity(slot))
        return [then for epoch, then in self._groups[slot].items() if now and epoch < now.epoch]

    def _at_kafka(self, name: str) -> None:
        if RESTORE in self._scenario.rations:
            for slot, known in self._groups.items():
                group = self._broker.group(_identity(slot))
                if group is not None:
                    known[group.epoch] = group
        self.stage.at(f"kafka.{name}")

    # -- the verdict ----------------------------------------------------------------------------

    def _judge(self) -> None:
        self._check_claims()
        items = self.items()
        assert not [item for item in items if item.claim], "an open claim is left"
        places = [int(value.split(b":")[0]) for value in self._world.delivered()]
        for extent, item in zip(self._extents, items, strict=True):
            own = [place for place in places if extent.start <= place < extent.end]
            self._check_delivery(extent, item, own)
            self._check_state(extent, item)
        if self._scenario.ordered and self._scenario.exactly_once:
            assert places == sorted(places), "an ordered job's records are out of order"
        self._check_counters(items)

    def _check_claims(self) -> None:
        """A slot works on an extent if, and only if, the extent is claimed through it."""
        slots = self._ledger.slots.list(self._broker.cluster)
        working = {slot.working: slot.number for slot in slots if slot.working}
        claimed = {(item.job, item.ordinal): item.claim.slot for item in self.items() if item.claim}
        assert working == claimed, "slots and claims contradict each other"

    def _check_delivery(self, extent: Extent, item: ExtentItem, places: list[int]) -> None:
        """What a read_committed consumer sees is what the position says, in order and once."""
        upto = list(range(extent.start, max(item.position, extent.start)))
        if not self._scenario.exactly_once:
            assert set(upto) <= set(places), f"{extent.uri}: records are missing"
        elif item.progress_unknown:
            assert places == list(range(extent.start, extent.start + len(places)))
            assert len(upto) <= len(places), f"{extent.uri}: records are missing"
        else:
            assert places == upto, f"{extent.uri}: delivered {places}, position {item.position}"

    def _check_state(self, extent: Extent, item: ExtentItem) -> None:
        if item.state is ExtentState.DONE:
            assert (item.position, item.records) == (extent.end, extent.end - extent.start)
        elif item.state is ExtentState.FAILED and item.progress_unknown:
            assert self._forgotten, f"{extent.uri}: {item.error}"
        elif item.state is ExtentState.FAILED:
            assert BAD in self._scenario.body[extent.start : extent.end], item.error
        else:
            assert self._scenario.ordered, f"{extent.uri} is not final"
            before = self._ledger.extents.get(self._job.id, extent.ordinal - 1)
            assert before.state is not ExtentState.DONE, f"{extent.uri} is not final"

    def _check_counters(self, items: Sequence[ExtentItem]) -> None:
        done = [item for item in items if item.state is ExtentState.DONE]
        assert self._ledger.jobs.progress(self._job.id) == JobProgress(
            done=len(done),
            failed=sum(item.state is ExtentState.FAILED for item in items),
            records=sum(item.records for item in done),
            bytes=sum(item.end - item.start for item in done),
        )
        job = self._ledger.jobs.get(self._job.id)
        assert job is not None
        assert job.state is (JobState.DONE if len(done) == len(items) else JobState.FAILED)


@cache
def _kinds(when: str, operation: str, rationed: frozenset[str]) -> tuple[str, ...]:
    points = {"turns": _TURNS, "before": _BEFORE, "within": _WITHIN}[when]
    return tuple(kind for kind in points if kind in rationed and operation in points[kind])


def _identity(slot: int) -> str:
    return f"app.ledger.slot-{slot}"
