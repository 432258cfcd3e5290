"""A function's execution environments: kept warm, used again, replaced when they are gone.

Owns: how many there are, which one is next. Refuses to know: what they run.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from extentflow_local.event_source.execution import Outcome, Verdict

_STOPPED = Outcome(Verdict.DIED, "", 0, 0.0, b"the event source stops")


class Environment(Protocol):
    """One execution environment; see `execution.ExecutionEnvironment`."""

    @property
    def pid(self) -> int:
        """Its process."""
        ...

    def alive(self) -> bool:
        """Whether its process runs."""
        ...

    def invoke(self, event: bytes) -> Outcome:
        """Call the function; one at a time."""
        ...

    def freeze(self) -> None:
        """Stop the process in its tracks until it is invoked."""
        ...

    def kill(self) -> None:
        """End it at once, also when it is at work or gone already."""
        ...

    def stop(self) -> None:
        """End it."""
        ...


class Pool:
    """At most `most` environments; who finds none free waits. Safe from several threads."""

    def __init__(self, start: Callable[[], Environment], most: int) -> None:
        self._start = start
        self.most = most
        self._changed = threading.Condition()
        self._idle: list[Environment] = []
        self._busy: list[Environment] = []
        self._closed = False

    def invoke(self, event: bytes) -> Outcome:
        """Call the function in an environment: the one that was used last, or a new one."""
        environment = self._take()
        if environment is None:
            return _STOPPED
        good = False
        try:
            outcome = environment.invoke(event)
            good = outcome.reusable
        finally:
            self._give_back(environment, good=good)
        return outcome

    def pids(self) -> list[int]:
        """Return the processes that run, busy ones first."""
        with self._changed:
            environments = [*self._busy, *self._idle]
        return [environment.pid for environment in environments if environment.alive()]

    def freeze(self) -> list[int]:
        """Freeze those that are idle; the next invocation thaws one. Return their processes."""
        with self._changed:
            for environment in self._idle:
                environment.freeze()
            return [environment.pid for environment in self._idle]

    def close(self, grace_seconds: float) -> None:
        """Start no more, wait for those at work, then end all; harmless when repeated."""
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
        """Return an environment that is nobody else's, None when there will be none."""
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
