"""The ownership protocol as a state machine small enough to visit every state.

`test_schedules` drives the code itself; this is a model of it.

    idle ─lease─> leased ─fence─> fenced ─read─> informed ─settle─> settled ─mark─> ready
                                                                        │             │ look
                                            a foreign slot: release <───┘             v
                  ready <─complete | hand back── working <─tell── telling           looking
                                                    └────commit─────^  ^──────claim────┘

Records and proof (the group's offset) are committed in one step. What was sent before is invisible
and is lost at the next fence, so it is no state. Workers have no names: a state with its workers
swapped is the same state. A pause is a lease that ends while its owner continues. Every rule can be
switched off, and then some sequence of steps must end in a violation.
"""

import enum
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self


class Rule(enum.StrEnum):
    """What the protocol demands."""

    FENCE = "taking a slot fences its predecessor"
    SETTLE = "what a predecessor left is settled before the slot is used"
    SETTLE_IF_OURS = "who lost the slot meanwhile neither settles nor marks"
    MISSING_IS_UNKNOWN = "a missing group is never taken for nothing committed"
    PROOF_OF_THE_CLAIM = "only a proof of the claim's own epoch is believed"
    ANY_LOWER_EPOCH = "claims of every earlier epoch are settled, not only of the last"
    NEVER_BACK = "a position never goes back"
    MARK = "a marker is committed before the first claim"
    CLAIM_UNCLAIMED = "only an extent without a claim is claimed"
    CLAIM_POSITION = "a claim is refused when the position moved since it was read"
    CLAIM_SLOT = "a claim is refused when the slot was taken or works on something"
    RELEASE_BY_FENCER = "a claim is released by its owner or by the worker that fenced it"
    FINISH_BY_CLAIM = "only who still holds the claim completes or hands back"
    CONFIRM_FIRST = "no other extent before completion is confirmed"
    OFFSET_ALWAYS = "every transaction carries the position"


class Lease(enum.IntEnum):
    """Whether a slot may be taken."""

    FREE, HELD, ENDED = range(3)


class End(enum.IntEnum):
    """Where an extent stands."""

    PENDING, DONE, FAILED = range(3)


class Proof(NamedTuple):
    """What a slot's group says; extent -1 is a marker, epoch -1 means that there is no group."""

    epoch: int
    extent: int = -1
    position: int = 0
    done: bool = False


MISSING = Proof(-1)


class Slot(NamedTuple):
    """A slot in the ledger (epoch, lease, working) and in Kafka (fence, proof)."""

    epoch: int = 0
    lease: Lease = Lease.FREE
    working: int = -1
    fence: int = 0
    proof: Proof = MISSING


class Extent(NamedTuple):
    """How often each chunk is visible to consumers; the extent in the ledger; how often counted."""

    visible: tuple[int, ...]
    claim: tuple[int, int] | None = None
    position: int = 0
    end: End = End.PENDING
    counted: int = 0


class Worker(NamedTuple):
    """Where a worker stands; `home` is its own slot while it recovers another."""

    doing: str = "idle"
    slot: int = -1
    epoch: int = -1
    fence: int = -1
    extent: int = -1
    position: int = -1
    proof: Proof = MISSING
    home: tuple[int, int, int] = (-1, -1, -1)

    def back_to(self, doing: str) -> "Worker":
        """Return this worker with its slot, and nothing else in hand."""
        return Worker(doing, self.slot, self.epoch, self.fence)


IDLE = Worker()
MANY_EPOCHS = 7
Supplies = tuple[int, int, int]
CRASH, PAUSE, FORGET = range(3)


class State(NamedTuple):
    """Everything there is; `left` are the crashes, pauses and forgotten groups yet to come."""

    slots: tuple[Slot, ...]
    extents: tuple[Extent, ...]
    workers: tuple[Worker, ...]
    left: Supplies

    def with_slot(self, number: int, slot: Slot) -> Self:
        slots = (*self.slots[:number], slot, *self.slots[number + 1 :])
        return self._replace(slots=slots)

    def with_extent(self, number: int, extent: Extent) -> Self:
        extents = (*self.extents[:number], extent, *self.extents[number + 1 :])
        return self._replace(extents=extents)

    def with_worker(self, number: int, worker: Worker) -> Self:
        others = (*self.workers[:number], *self.workers[number + 1 :])
        return self._replace(workers=tuple(sorted((*others, worker))))

    def without(self, supply: int, times: int = 1) -> Self:
        left = tuple(n - times * (i == supply) for i, n in enumerate(self.left))
        return self._replace(left=(left[CRASH], left[PAUSE], left[FORGET]))


Step = tuple[str, State]


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is of everything, and how often something may happen."""

    workers: int = 2
    slots: int = 2
    extents: int = 1
    chunks: int = 2
    crashes: int = 0
    pauses: int = 0
    forgets: int = 0

    def start(self) -> State:
        """Return the state in which nothing happened yet."""
        return State(
            (Slot(),) * self.slots,
            (Extent((0,) * self.chunks),) * self.extents,
            (IDLE,) * self.workers,
            (self.crashes, self.pauses, self.forgets),
        )


@dataclass(frozen=True, slots=True)
class Protocol:
    """Every step from a state; `broken` rules are not kept."""

    chunks: int
    broken: frozenset[Rule] = frozenset()

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what can happen next and the state it leads to."""
        yield from self._leases_end(state)
        yield from self._groups_are_lost(state)
        for number, worker in enumerate(state.workers):
            if number and worker == state.workers[number - 1]:
                continue  # workers have no names
            if worker.doing != "idle" and state.left[CRASH]:
                yield "crash", state.with_worker(number, IDLE).without(CRASH)
            move = getattr(self, f"_{worker.doing}")
            for label, after in move(state, number, worker):
                yield f"{number} {label}", after

    def _keeps(self, rule: Rule) -> bool:
        return rule not in self.broken

    # -- mishaps --------------------------------------------------------------------------------

    def _leases_end(self, state: State) -> Iterator[Step]:
        """A dead owner's lease always ends; a live one's when its owner pauses."""
        for number, slot in enumerate(state.slots):
            place = (number, slot.epoch)
            alive = any(place in ((w.slot, w.epoch), w.home[:2]) for w in state.workers)
            if slot.lease is Lease.HELD and (state.left[PAUSE] or not alive):
                after = state.with_slot(number, slot._replace(lease=Lease.ENDED))
                yield f"lease of {number} ends", after.without(PAUSE, int(alive))

    def _groups_are_lost(self, state: State) -> Iterator[Step]:
        """A group vanishes, or comes back as it was under an earlier epoch."""
        for number, slot in enumerate(state.slots):
            if slot.proof != MISSING and state.left[FORGET]:
                old = slot.proof._replace(epoch=slot.proof.epoch - 1, position=0, done=False)
                for proof in (MISSING, old):
                    after = state.with_slot(number, slot._replace(proof=proof))
                    yield f"group of {number} becomes {proof}", after.without(FORGET)

    # -- taking a slot --------------------------------------------------------------------------

    @staticmethod
    def _leased_by(state: State, number: int, slot: int, home: Worker) -> State:
        taken = state.slots[slot]._replace(lease=Lease.HELD, epoch=state.slots[slot].epoch + 1)
        after = Worker("leased", slot, taken.epoch, home=home[1:4])
        return state.with_slot(slot, taken).with_worker(number, after)

    def _idle(self, state: State, number: int, _worker: Worker) -> Iterator[Step]:
        for slot, item in enumerate(state.slots):
            if item.lease is not Lease.HELD:
                yield f"leases {slot}", self._leased_by(state, number, slot, IDLE)

    def _leased(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        slot = state.slots[worker.slot]
        fence = slot.fence + self._keeps(Rule.FENCE)
        fenced = worker._replace(doing="fenced", fence=fence)
        after = state.with_slot(worker.slot, slot._replace(fence=fence))
        yield "fences", after.with_worker(number, fenced)

    def _fenced(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        informed = worker._replace(doing="informed", proof=state.slots[worker.slot].proof)
        yield "reads", state.with_worker(number, informed)

    def _informed(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        slot = state.slots[worker.slot]
        if slot.epoch != worker.epoch and self._keeps(Rule.SETTLE_IF_OURS):
            yield "lost the slot", state.with_worker(number, IDLE)
            return
        after = state.with_worker(number, worker._replace(doing="settled", proof=MISSING))
        if slot.working >= 0:
            left = self._left(state.extents[slot.working], slot.working, worker)
            after = after.with_extent(slot.working, left)
            after = after.with_slot(worker.slot, slot._replace(working=-1))
        yield "settles", after

    def _left(self, extent: Extent, number: int, worker: Worker) -> Extent:
        """Return an extent as the worker that fenced its owner leaves it."""
        slot, epoch = extent.claim or (-1, -1)
        lowest = 0 if self._keeps(Rule.ANY_LOWER_EPOCH) else worker.epoch - 1
        if slot != worker.slot or not lowest <= epoch < worker.epoch:
            return extent
        free = extent._replace(claim=None)
        if not self._keeps(Rule.SETTLE):
            return free
        if not self._is_known(worker.proof, epoch):
            return free._replace(end=End.FAILED, counted=extent.counted + 1)
        return self._caught_up(free, number, worker.proof)

    def _is_known(self, proof: Proof, epoch: int) -> bool:
        """Whether the proof tells what was committed since the claim."""
        if proof == MISSING:
            return not self._keeps(Rule.MISSING_IS_UNKNOWN)
        return proof.epoch == epoch or not self._keeps(Rule.PROOF_OF_THE_CLAIM)

    def _caught_up(self, extent: Extent, number: int, proof: Proof) -> Extent:
        if proof.extent != number:
            return extent
        if proof.done:
            return _completed(extent, proof.position)
        if proof.position < extent.position and self._keeps(Rule.NEVER_BACK):
            return extent
        return extent._replace(position=proof.position)

    def _settled(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        slot = state.slots[worker.slot]
        if slot.fence != worker.fence:
            yield "is fenced", state.with_worker(number, IDLE)
            return
        if self._keeps(Rule.MARK):
            state = state.with_slot(worker.slot, slot._replace(proof=Proof(worker.epoch)))
        doing = "ready" if worker.home[0] < 0 else "recovered"
        yield "marks", state.with_worker(number, worker._replace(doing=doing))

    @staticmethod
    def _recovered(state: State, number: int, worker: Worker) -> Iterator[Step]:
        slot = state.slots[worker.slot]
        if slot.epoch == worker.epoch and slot.working < 0:
            state = state.with_slot(worker.slot, slot._replace(lease=Lease.FREE))
        yield "releases", state.with_worker(number, Worker("ready", *worker.home))

    # -- claiming -------------------------------------------------------------------------------

    def _ready(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        for place, extent in enumerate(state.extents):
            if extent.end is End.PENDING:
                if extent.claim is None or not self._keeps(Rule.CLAIM_UNCLAIMED):
                    looking = worker._replace(
                        doing="looking", extent=place, position=extent.position
                    )
                    yield f"looks at {place}", state.with_worker(number, looking)
                else:
                    yield from self._finds_claimed(state, number, worker, place)

    def _finds_claimed(
        self, state: State, number: int, worker: Worker, place: int
    ) -> Iterator[Step]:
        extent = state.extents[place]
        slot = extent.claim[0] if extent.claim else -1
        if not self._keeps(Rule.RELEASE_BY_FENCER):
            yield f"releases {place}", state.with_extent(place, extent._replace(claim=None))
        elif slot == worker.slot:
            yield "drops its own slot", state.with_worker(number, IDLE)
        elif state.slots[slot].lease is not Lease.HELD:
            yield f"recovers {slot}", self._leased_by(state, number, slot, worker)

    def _looking(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        extent, slot = state.extents[worker.extent], state.slots[worker.slot]
        if slot.epoch != worker.epoch and self._keeps(Rule.CLAIM_SLOT):
            yield "lost the slot", state.with_worker(number, IDLE)
        elif extent.end is not End.PENDING or not self._is_claimable(extent, slot, worker):
            yield "is refused", state.with_worker(number, worker.back_to("ready"))
        else:
            claimed = extent._replace(claim=(worker.slot, worker.epoch))
            after = state.with_extent(worker.extent, claimed)
            after = after.with_slot(worker.slot, slot._replace(working=worker.extent))
            working = worker._replace(doing="working")
            yield f"claims {worker.extent}", after.with_worker(number, working)

    def _is_claimable(self, extent: Extent, slot: Slot, worker: Worker) -> bool:
        unclaimed = extent.claim is None or not self._keeps(Rule.CLAIM_UNCLAIMED)
        unmoved = extent.position == worker.position or not self._keeps(Rule.CLAIM_POSITION)
        idle = self._keeps(Rule.CLAIM_SLOT) and self._keeps(Rule.CONFIRM_FIRST)
        return unclaimed and unmoved and (slot.working < 0 or not idle)

    # -- working --------------------------------------------------------------------------------

    def _working(self, state: State, number: int, worker: Worker) -> Iterator[Step]:
        if worker.position < self.chunks:
            yield self._commits(state, number, worker)
            yield from self._finishes(state, number, worker, done=False)
            return
        yield from self._finishes(state, number, worker, done=True)
        if not self._keeps(Rule.CONFIRM_FIRST):
            yield "does not wait", state.with_worker(number, worker.back_to("ready"))

    def _commits(self, state: State, number: int, worker: Worker) -> Step:
        slot, extent, chunk = (
            state.slots[worker.slot],
            state.extents[worker.extent],
            worker.position,
        )
        if slot.fence != worker.fence:
            return "is fenced", state.with_worker(number, IDLE)
        visible = tuple(n + (i == chunk) for i, n in enumerate(extent.visible))
        after = state.with_extent(worker.extent, extent._replace(visible=visible))
        if self._keeps(Rule.OFFSET_ALWAYS):
            proof = Proof(worker.epoch, worker.extent, chunk + 1, done=chunk + 1 == self.chunks)
            after = after.with_slot(worker.slot, slot._replace(proof=proof))
        telling = worker._replace(doing="telling", position=chunk + 1)
        return f"commits {worker.extent}.{chunk}", after.with_worker(number, telling)

    @staticmethod
    def _telling(state: State, number: int, worker: Worker) -> Iterator[Step]:
        extent = state.extents[worker.extent]
        if extent.claim != (worker.slot, worker.epoch):
            yield "lost the claim", state.with_worker(number, IDLE)
            return
        after = state.with_extent(worker.extent, extent._replace(position=worker.position))
        yield "tells", after.with_worker(number, worker._replace(doing="working"))

    def _finishes(self, state: State, number: int, worker: Worker, *, done: bool) -> Iterator[Step]:
        """Complete, or hand back."""
        extent, slot = state.extents[worker.extent], state.slots[worker.slot]
        ours = extent.claim == (worker.slot, worker.epoch) and slot.epoch == worker.epoch
        if not ours and self._keeps(Rule.FINISH_BY_CLAIM):
            yield "lost the claim", state.with_worker(number, IDLE)
            return
        free = extent._replace(claim=None)
        free = _completed(free, self.chunks) if done else free._replace(position=worker.position)
        after = state.with_extent(worker.extent, free)
        after = after.with_slot(worker.slot, slot._replace(working=-1))
        label = "completes" if done else "hands back"
        yield f"{label} {worker.extent}", after.with_worker(number, worker.back_to("ready"))


def _completed(extent: Extent, position: int) -> Extent:
    return extent._replace(position=position, end=End.DONE, counted=extent.counted + 1)


@dataclass(frozen=True, slots=True)
class Finding:
    """How many states were visited; what is wrong with one of them, and the way there."""

    states: int
    problem: str = ""
    path: tuple[str, ...] = ()


def explore(size: Size, *broken: Rule) -> Finding:
    """Visit every state; also check that from each of them everything can still be finished."""
    protocol, start = Protocol(size.chunks, frozenset(broken)), size.start()
    origin: dict[State, tuple[str, State] | None] = {start: None}
    sources: dict[State, list[State]] = {}
    final: list[State] = []
    queue = deque([start])
    while queue:
        state = queue.popleft()
        problem = _problem(state, may_fail=size.forgets > 0)
        if problem:
            return Finding(len(origin), problem, _path(state, origin))
        if all(extent.end for extent in state.extents):
            final.append(state)
            continue
        for label, after in protocol.steps(state):
            if after not in origin:
                origin[after] = (label, state)
                queue.append(after)
            sources.setdefault(after, []).append(state)
    stuck = origin.keys() - _leading_to(final, sources)
    if stuck:
        first = next(state for state in origin if state in stuck)
        return Finding(len(origin), "nothing can be finished any more", _path(first, origin))
    return Finding(len(origin))


def _problem(state: State, *, may_fail: bool) -> str:
    if any(slot.epoch > MANY_EPOCHS for slot in state.slots):
        return "a slot is taken over and over"
    for extent in state.extents:
        wrong = {
            "a chunk is visible twice": max(extent.visible) > 1,
            "done, and a chunk is missing": extent.end is End.DONE and min(extent.visible) < 1,
            "the position lies behind a gap": not all(extent.visible[: extent.position]),
            "counted twice": extent.counted > 1,
            "failed, and no group was lost": extent.end is End.FAILED and not may_fail,
        }
        if any(wrong.values()):
            return next(problem for problem, holds in wrong.items() if holds)
    return ""


def _path(state: State, origin: dict[State, tuple[str, State] | None]) -> tuple[str, ...]:
    labels: list[str] = []
    step = origin[state]
    while step is not None:
        labels.append(step[0])
        step = origin[step[1]]
    return tuple(reversed(labels))


def _leading_to(final: list[State], sources: dict[State, list[State]]) -> set[State]:
    """Return the states from which one of the final ones can be reached."""
    found, queue = set(final), deque(final)
    while queue:
        for state in sources.get(queue.popleft(), ()):
            if state not in found:
                found.add(state)
                queue.append(state)
    return found
