"""An iterator whose items are made on a thread of its own, ahead of whoever takes them.

Owns: the thread, how far it may be ahead. Refuses to know: what items are, how they are made.

    maker's thread     item 5 in the making      never begun: what does not fit the budget
    ahead              items 3, 4                 together at most `budget_bytes`
    consumer           item 2
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from typing import Generic, TypeVar

from extentflow.transfer import Transfer

T = TypeVar("T")

# How long whoever waits for an item does nothing else.
IDLE_SECONDS = 0.25
LINGER_SECONDS = 2.0


def overlapped(
    items: Generator[T, None, None],
    size_bytes: Callable[[T], int],
    budget_bytes: int,
    *,
    idle_seconds: float = IDLE_SECONDS,
    linger_seconds: float = LINGER_SECONDS,
) -> Generator[T | None, None, None]:
    """Yield what `items` yields, in its order; raise what it raises, where it would have.

    Yield None whenever nothing was made for `idle_seconds`: whoever takes items may have something
    else to do, or no time left to wait.

    The thread begins with the first `next()`. Closing this iterator closes `items`, which is waited
    for at most `linger_seconds`, after a None `idle_seconds`: what hangs longer ends alone, on a
    thread that keeps no process alive.
    """
    ahead = _Ahead(items, size_bytes, budget_bytes, idle_seconds)
    try:
        yield from ahead
    finally:
        ahead.stop(linger_seconds)


class _Ahead(Generic[T]):
    """What was made and not taken yet; `_end` is how the making ended."""

    def __init__(
        self,
        items: Generator[T, None, None],
        size_bytes: Callable[[T], int],
        budget_bytes: int,
        idle_seconds: float,
    ) -> None:
        self._items = items
        self._idle_seconds = idle_seconds
        self._size_bytes = size_bytes
        self._budget_bytes = budget_bytes
        self._changed = threading.Condition()
        self._made: deque[T] = deque()
        self._made_bytes = 0
        self._stopped = False
        self._in_vain = False
        self._end: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="extentflow-ahead", daemon=True)

    def __iter__(self) -> Iterator[T | None]:
        self._thread.start()
        while not self._over():
            taken = self._taken()
            self._in_vain = not taken
            # Popped, so that only the consumer holds the item while it works on it.
            yield taken.pop() if taken else None
        self._end.result()

    def _over(self) -> bool:
        """Wait for an item, for the end, or long enough; return whether it is the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._made or self._end.done(), self._idle_seconds)
            return not self._made and self._end.done()

    def _taken(self) -> list[T]:
        """Return the next item, if there is one."""
        with self._changed:
            taken = [self._made.popleft()] if self._made else []
            if taken:
                self._made_bytes -= self._size_bytes(taken[0])
                self._changed.notify()
            return taken

    def stop(self, linger_seconds: float) -> None:
        with self._changed:
            self._stopped = True
            self._made.clear()
            self._changed.notify()
        if self._thread.ident is None:  # nobody ever asked for an item
            self._items.close()
        else:
            self._thread.join(self._idle_seconds if self._in_vain else linger_seconds)

    def _run(self) -> None:
        with Transfer(self._end):
            for item in self._items:
                if not self._put(item):
                    break
            self._items.close()
            self._end.set_result(None)
        with self._changed:
            self._changed.notify()

    def _put(self, item: T) -> bool:
        """Wait until the budget allows for an item; return whether anybody wants more."""
        size = self._size_bytes(item)
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._stopped or not self._made or self._made_bytes + size <= self._budget_bytes
                )
            )
            if not self._stopped:
                self._made.append(item)
                self._made_bytes += size
                self._changed.notify()
            return not self._stopped
