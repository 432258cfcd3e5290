"""Doubles of services beside the store, the broker and the ledger: queue, runs, job events.

MemoryQueue runs over a clock that a test controls. Tests can intervene at two points. `on_call`
runs before an operation takes effect, to switch to another worker or to raise QueueUnavailable.
`on_answer` runs after the effect; an error there is a lost response. Both receive the operation's
name and run without the lock held.

Tests: unit/queue/test_memory_queue.py, unit/engines/test_memory_runs.py
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from extentflow.engines.remote import Run, RunGone, RunState, RunStatus
from extentflow.errors import BusUnavailable, QueueUnavailable, RunsUnavailable
from extentflow.jobs.events import JobEvent
from extentflow.queue import BATCH_MESSAGES, Depth, Message


@dataclass(slots=True)
class _QueuedMessage:
    message: Message
    visible_at: float


class MemoryQueue:
    """A `Queue`; the next `failures` calls fail. `sent` has every body that was accepted.

    Within a group messages are received in the order of sending.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.failures = 0
        self.sent: list[str] = []
        self.on_call: Callable[[str], None] = lambda _: None
        self.on_answer: Callable[[str], None] = lambda _: None
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._kept: dict[str, _QueuedMessage] = {}

    def send(self, bodies: Sequence[str], *, reason: str = "", group: str = "") -> None:
        with self._call("send"):
            for body in bodies:
                number, now = f"m{next(self._numbers)}", self._clock()
                message = Message(number, body, "", 0, reason, sent=now, group=group)
                self._kept[number] = _QueuedMessage(message, now)
                self.sent.append(body)

    def receive(
        self, *, wait_seconds: float = 0.0, hide_seconds: float = 30.0, most: int = BATCH_MESSAGES
    ) -> list[Message]:
        _ = wait_seconds
        with self._call("receive"):
            now = self._clock()
            found = list(itertools.islice(self._fair(now), most))
            for kept in found:
                received = kept.message.received + 1
                handle = f"{kept.message.id}/{received}"
                kept.message = replace(kept.message, received=received, handle=handle)
                kept.visible_at = now + hide_seconds
            return [kept.message for kept in found]

    def delete(self, message: Message) -> None:
        with self._call("delete"):
            kept = self._kept.get(message.id)
            if kept and kept.message.handle == message.handle:
                del self._kept[message.id]

    def delay(self, message: Message, seconds: float) -> None:
        with self._call("delay"):
            kept, now = self._kept.get(message.id), self._clock()
            if kept and kept.visible_at > now and kept.message.handle == message.handle:
                kept.visible_at = now + seconds

    def depth(self) -> Depth:
        with self._call("depth"):
            hidden = sum(kept.visible_at > self._clock() for kept in self._kept.values())
            return Depth(waiting=len(self._kept) - hidden, hidden=hidden)

    @property
    def messages(self) -> list[Message]:
        """Everything that was not deleted, in the order of sending."""
        with self._lock:
            return [kept.message for kept in self._kept.values()]

    @property
    def next_at(self) -> float | None:
        """When the next message can be received; None where there is none."""
        with self._lock:
            return min((kept.visible_at for kept in self._kept.values()), default=None)

    def _fair(self, now: float) -> Iterator[_QueuedMessage]:
        """Yield visible messages, first those of the group with the fewest hidden ones."""
        hidden: Counter[str] = Counter()
        waiting: dict[str, deque[_QueuedMessage]] = {}
        for kept in self._kept.values():
            if kept.visible_at > now:
                hidden[kept.message.group] += 1
            else:
                waiting.setdefault(kept.message.group, deque()).append(kept)
        while waiting:
            group = min(waiting, key=hidden.__getitem__)
            yield waiting[group].popleft()
            hidden[group] += 1
            if not waiting[group]:
                del waiting[group]

    @contextmanager
    def _call(self, name: str) -> Iterator[None]:
        self.on_call(name)
        with self._lock:
            if self.failures:
                self.failures -= 1
                raise QueueUnavailable(f"{name}: the queue is unavailable, as the test requested")
            yield
        self.on_answer(name)


class MemoryJobRuns:
    """`JobRuns`; the next `failures` calls fail. `started` has runs by token, `states` by id.

    With `unclear`, a call that fails has started its run, as when a response is lost.
    """

    def __init__(self, *, unclear: bool = False) -> None:
        self.failures = 0
        self.unclear = unclear
        self.started: dict[str, Run] = {}
        self.states: dict[str, RunStatus] = {}

    def start(self, run: Run) -> str:
        if not self.failures or self.unclear:
            self.started.setdefault(run.token, run)
        self._pass()
        run_id = f"{list(self.started).index(run.token):016x}"
        self.states.setdefault(run_id, RunStatus(RunState.WAITING))
        return run_id

    def describe(self, run_id: str) -> RunStatus:
        self._pass()
        if run_id not in self.states:
            raise RunGone(f"there is no run {run_id}")
        return self.states[run_id]

    def cancel(self, run_id: str) -> None:
        if not self.describe(run_id).state.ended:
            self.states[run_id] = RunStatus(RunState.CANCELLED)

    def check(self) -> None:
        pass

    def _pass(self) -> None:
        if self.failures:
            self.failures -= 1
            raise RunsUnavailable("the service that starts runs is unavailable (injected)")


class MemoryJobEvents:
    """A `JobEventPublisher` that keeps events; the next `failures` calls raise BusUnavailable."""

    def __init__(self) -> None:
        self.failures = 0
        self.closed = False
        self.events: list[JobEvent] = []

    def publish(self, events: Sequence[JobEvent]) -> None:
        if self.failures:
            self.failures -= 1
            raise BusUnavailable("the publisher is unavailable, as the test requires")
        self.closed = False
        self.events += events

    def close(self) -> None:
        self.closed = True
