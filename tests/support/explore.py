"""Explore the interleavings of concurrent workers: one greenlet per worker, one at a time.

Every operation of the doubles is a point at which the stage asks its chooser: 0 lets the operation
happen, any other answer is an event first (another worker continues, this one dies, ...). Events
are rationed, so that a depth-first search over all answers ends. A run is repeated by its answers.

    switch   another worker continues
    pause    time passes, all others keep what they hold; then another worker continues
    crash    the worker is gone; whatever its unwinding still calls has no effect
    others   are the test's (`Faults`)

Time passes only in a pause and when every worker sleeps.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from greenlet import GreenletExit, getcurrent, greenlet
from tests.support.memory_delivery import Ticker

MAX_STEPS = 5_000
SWITCH, PAUSE, CRASH = "switch", "pause", "crash"


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the current worker; `target` is the worker or item it concerns."""

    kind: str
    target: int = -1

    def __str__(self) -> str:
        return self.kind if self.target < 0 else f"{self.kind} {self.target}"


class Chooser(Protocol):
    """Answers what happens at each point where something may."""

    def pick(self, events: Sequence[Event]) -> int:
        """Return 0 for nothing, n for the n-th event."""
        ...


@dataclass(slots=True)
class Replay:
    """Repeats given answers, then lets everything happen; remembers what else could have been."""

    answers: Sequence[int] = ()
    taken: list[tuple[int, int]] = field(default_factory=list)

    def pick(self, events: Sequence[Event]) -> int:
        place = len(self.taken)
        answer = self.answers[place] if place < len(self.answers) else 0
        self.taken.append((answer, len(events)))
        return answer


@dataclass(slots=True)
class Dice:
    """Lets an event happen with a probability; every kind at hand is as likely as the others."""

    random: Random
    probability: float
    seed: int = 0

    def pick(self, events: Sequence[Event]) -> int:
        if self.random.random() >= self.probability:
            return 0
        kind = self.random.choice(sorted({event.kind for event in events}))
        places = [place for place, event in enumerate(events, 1) if event.kind == kind]
        return self.random.choice(places)


def depth_first() -> Iterator[Replay]:
    """Yield choosers until every answer was given at every point; run each before the next."""
    answers: list[int] = []
    while True:
        replay = Replay(answers)
        yield replay
        taken = replay.taken
        while taken and taken[-1][0] == taken[-1][1]:
            taken.pop()
        if not taken:
            return
        answers = [answer for answer, _ in taken]
        answers[-1] += 1


class Faults(Protocol):
    """What a test states about its operations, and the further events of a worker."""

    def turns(self, operation: str) -> Sequence[str]:
        """Return which of SWITCH, PAUSE and CRASH matter before this operation."""
        ...

    def before(self, operation: str) -> Sequence[str]:
        """Return the kinds of events that matter before this operation, for any worker."""
        ...

    def within(self, operation: str) -> Sequence[str]:
        """Return the kinds of events that make this very operation go wrong."""
        ...

    def targets(self, kind: str) -> Sequence[int]:
        """Return what such an event may concern now."""
        ...

    def happen(self, event: Event, actor: int, operation: str) -> None:
        """Do what the event means outside the stage. Nothing called in here is a point."""
        ...


@dataclass(slots=True, eq=False)
class _Actor:
    number: int
    greenlet: greenlet
    dead: bool = False
    wake: float = 0.0

    @property
    def over(self) -> bool:
        return bool(self.greenlet.dead)


class EndlessError(AssertionError):
    """The workers never finish."""


class Stage(Ticker):
    """Runs workers by a chooser's answers. It is their clock, too: who sleeps gives up the turn.

    `rations` bounds events by kind, `most` all of them together.
    """

    def __init__(
        self, chooser: Chooser, faults: Faults, rations: Mapping[str, int], most: int
    ) -> None:
        super().__init__()
        self.trace: list[str] = []
        self._chooser = chooser
        self._faults = faults
        self._left = Counter(rations)
        self._most = most
        self._actors: list[_Actor] = []
        self._by_greenlet: dict[greenlet, _Actor] = {}
        self._next: _Actor | None = None
        self._offstage = False

    # -- the run --------------------------------------------------------------------------------

    def run(self, bodies: Sequence[Callable[[], None]]) -> None:
        """Run the bodies to their ends, beginning with the first.

        Raises what a body raises, and EndlessError.
        """
        self._actors = [_Actor(number, greenlet(body)) for number, body in enumerate(bodies)]
        self._by_greenlet = {actor.greenlet: actor for actor in self._actors}
        try:
            turn: _Actor | None = self._actors[0]
            while turn is not None:
                turn = self._take_turn(turn)
        finally:
            self._end_greenlets()

    def _take_turn(self, actor: _Actor) -> _Actor | None:
        """Run an actor until it yields or ends; return the next actor."""
        self._next = None
        actor.greenlet.switch()
        return self._after(actor) if actor.over else self._next

    def at(self, operation: str) -> None:
        """Intercept an operation of the current worker; other callers pass."""
        actor = self._by_greenlet.get(getcurrent())
        if actor is None or self._offstage:
            return
        self._live(actor)
        self.trace.append(f"{actor.number} {operation}")
        if len(self.trace) > MAX_STEPS:
            raise EndlessError(f"not finished after {MAX_STEPS} operations")
        if self._most:
            self._befall(actor, operation, self._world(self._faults.before(operation)))
            self._befall(actor, operation, self._turns(actor, self._faults.turns(operation)))
            self._befall(actor, operation, self._world(self._faults.within(operation)))

    def sleep(self, seconds: float) -> None:
        """Give up the turn until the time has come; time passes when everybody sleeps."""
        actor = self._by_greenlet.get(getcurrent())
        if actor is None:
            super().sleep(seconds)
            return
        self._live(actor)
        actor.wake = self.now + seconds
        self._yield_to(actor, self._after(actor))

    # -- who is next ----------------------------------------------------------------------------

    def _others(self, actor: _Actor) -> list[_Actor]:
        """Return the workers that have not finished, beginning behind the actor."""
        turns = [*self._actors[actor.number + 1 :], *self._actors[: actor.number]]
        return [turn for turn in turns if not turn.over]

    def _after(self, actor: _Actor) -> _Actor | None:
        """Return the worker that continues when the actor cannot; None when all have finished."""
        left = [*self._others(actor), *([] if actor.over else [actor])]
        if not left:
            return None
        self.now = max(self.now, min(turn.wake for turn in left))
        awake = [turn for turn in left if turn.wake <= self.now]
        others = awake[1:] if self._left[SWITCH] else []
        event = self._ask([Event(SWITCH, turn.number) for turn in others])
        return awake[0] if event is None else self._actors[event.target]

    def _yield_to(self, actor: _Actor, turn: _Actor | None) -> None:
        if turn is not actor:
            self._next = turn
            actor.greenlet.parent.switch()
            self._live(actor)

    @staticmethod
    def _live(actor: _Actor) -> None:
        if actor.dead:
            raise GreenletExit

    # -- what happens ---------------------------------------------------------------------------

    def _world(self, kinds: Sequence[str]) -> list[Event]:
        left = [kind for kind in kinds if self._left[kind]]
        return [Event(kind, target) for kind in left for target in self._faults.targets(kind)]

    def _turns(self, actor: _Actor, kinds: Sequence[str]) -> list[Event]:
        kinds = [kind for kind in kinds if self._left[kind]]
        others = self._others(actor) if kinds else []
        events = [Event(PAUSE, other.number) for other in others if PAUSE in kinds]
        if SWITCH in kinds:
            events += [Event(SWITCH, other.number) for other in others if other.wake <= self.now]
        return [*events, Event(CRASH)] if CRASH in kinds else events

    def _ask(self, events: list[Event]) -> Event | None:
        answer = self._chooser.pick(events) if events and self._most else 0
        if not answer:
            return None
        event = events[answer - 1]
        self._left[event.kind] -= 1
        self._most -= 1
        return event

    def _befall(self, actor: _Actor, operation: str, events: list[Event]) -> None:
        """Let one of the events happen, or none."""
        event = self._ask(events) if events else None
        if event is None:
            return
        self.trace[-1] += f"   <- {event}"
        self._offstage = True
        try:
            self._faults.happen(event, actor.number, operation)
        finally:
            self._offstage = False
        if event.kind == CRASH:
            actor.dead = True
            raise GreenletExit
        if event.kind in (SWITCH, PAUSE):
            self._yield_to(actor, self._actors[event.target])

    def _end_greenlets(self) -> None:
        """End the greenlets that an error left hanging; nothing they still call has an effect."""
        for actor in self._actors:
            actor.dead = True
            if actor.greenlet:
                actor.greenlet.throw(GreenletExit)
