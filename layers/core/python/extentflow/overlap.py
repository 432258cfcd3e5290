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

LINGER_SECONDS = 2.0


def overlapped(
    items: Generator[T, None, None],
    size_bytes: Callable[[T], int],
    budget_bytes: int,
    *,
    linger_seconds: float = LINGER_SECONDS,
) -> Generator[T, None, None]:
    """Yield what `items` yields, in its order; raise what it raises, where it would have.

    The thread begins with the first `next()`. Closing this iterator closes `items`, which is waited
    for at most `linger_seconds`: what hangs longer ends alone, on a thread that keeps no process
    alive.
    """
    ahead = _Ahead(items, size_bytes, budget_bytes)
    try:
        yield from ahead
    finally:
        ahead.stop(linger_seconds)


class _Ahead(Generic[T]):
    """What was made and not taken yet; `_end` is how the making ended."""

    def __init__(
        self, items: Generator[T, None, None], size_bytes: Callable[[T], int], budget_bytes: int
    ) -> None:
        self._items = items
        self._size_bytes = size_bytes
        self._budget_bytes = budget_bytes
        self._changed = threading.Condition()
        self._made: deque[T] = deque()
        self._made_bytes = 0
        self._stopped = False
        self._end: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="extentflow-ahead", daemon=True)

    def __iter__(self) -> Iterator[T]:
        self._thread.start()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._made or self._end.done())
                if not self._made:
                    break
                taken = [self._made.popleft()]
                self._made_bytes -= self._size_bytes(taken[0])
                self._changed.notify()
            # Popped, so that only the consumer holds the item while it works on it.
            yield taken.pop()
        self._end.result()

    def stop(self, linger_seconds: float) -> None:
        with self._changed:
            self._stopped = True
            self._made.clear()
            self._changed.notify()
        if self._thread.ident is None:  # nobody ever asked for an item
            self._items.close()
        else:
            self._thread.join(linger_seconds)

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
