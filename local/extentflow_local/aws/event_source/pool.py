"""A function's execution environments: kept warm, reused, replaced when they have ended."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from extentflow_local.aws.event_source.execution import Outcome, Verdict

_STOPPED = Outcome(Verdict.DIED, "", 0, 0.0, b"the event source stops")


class Environment(Protocol):
    """One execution environment; see `execution.ExecutionEnvironment`."""

    @property
    def pid(self) -> int:
        """Its process."""
        ...

    def alive(self) -> bool:
        """Whether its process is alive."""
        ...

    def invoke(self, event: bytes, trace: str = "") -> Outcome:
        """Call the function; one at a time."""
        ...

    def freeze(self) -> None:
        """Suspend the process until the next invocation."""
        ...

    def kill(self) -> None:
        """Kill it, also during an invocation."""
        ...

    def stop(self) -> None:
        """Stop it."""
        ...


class Pool:
    """At most `most` environments; callers wait for a free one. Thread-safe."""

    def __init__(self, start: Callable[[], Environment], most: int) -> None:
        self._start = start
        self.most = most
        self._changed = threading.Condition()
        self._idle: list[Environment] = []
        self._busy: list[Environment] = []
        self._closed = False

    def invoke(self, event: bytes, trace: str = "") -> Outcome:
        """Call the function in the most recently used free environment, or in a new one."""
        environment = self._take()
        if environment is None:
            return _STOPPED
        good = False
        try:
            outcome = environment.invoke(event, trace)
            good = outcome.reusable
        finally:
            self._give_back(environment, good=good)
        return outcome

    def pids(self) -> list[int]:
        """Return the running processes, busy ones first."""
        with self._changed:
            environments = [*self._busy, *self._idle]
        return [environment.pid for environment in environments if environment.alive()]

    def freeze(self) -> list[int]:
        """Suspend the idle ones until their next invocation; return their processes."""
        with self._changed:
            for environment in self._idle:
                environment.freeze()
            return [environment.pid for environment in self._idle]

    def close(self, grace_seconds: float) -> None:
        """Start none any more, wait for busy ones, then stop all. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._busy, grace_seconds)
            late, idle, self._idle = list(self._busy), self._idle, []
        for environment in late:
            environment.kill()
        with ThreadPoolExecutor(max(1, len(idle))) as executor:
            list(executor.map(_stop, idle))

    def _take(self) -> Environment | None:
        """Return a free environment, or None after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._busy) < self.most)
            if self._closed:
                return None
            gone = [environment for environment in self._idle if not environment.alive()]
            self._idle = [environment for environment in self._idle if environment not in gone]
            for environment in gone:
                environment.kill()
            taken = self._idle.pop() if self._idle else self._start()
            self._busy.append(taken)
            return taken

    def _give_back(self, environment: Environment, *, good: bool) -> None:
        if not good:
            environment.kill()
        with self._changed:
            self._busy.remove(environment)
            kept = good and not self._closed
            if kept:
                self._idle.append(environment)
            self._changed.notify_all()
        if good and not kept:
            environment.stop()


def _stop(environment: Environment) -> None:
    environment.stop()
