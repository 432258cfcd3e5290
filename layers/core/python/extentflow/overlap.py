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
from types import TracebackType
from typing import Generic, TypeVar

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
    """What was made and not taken yet.

    A context manager around the making: whatever it raises is not handled here but changes
    threads, and is raised to whoever takes the items.
    """

    def __init__(
        self, items: Generator[T, None, None], size_bytes: Callable[[T], int], budget_bytes: int
    ) -> None:
        self._items = items
        self._size_bytes = size_bytes
        self._budget_bytes = budget_bytes
        self._changed = threading.Condition()
        self._made: deque[T] = deque()
        self._made_bytes = 0
        self._over = False
        self._stopped = False
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="extentflow-ahead", daemon=True)

    def __iter__(self) -> Iterator[T]:
        self._thread.start()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._made or self._over)
                if not self._made:
                    break
                taken = [self._made.popleft()]
                self._made_bytes -= self._size_bytes(taken[0])
                self._changed.notify()
            # Popped, so that only the consumer holds the item while it works on it.
            yield taken.pop()
        if self._fault is not None:
            raise self._fault

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
        with self:
            for item in self._items:
                if not self._put(item):
                    break
            self._items.close()

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

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        with self._changed:
            self._fault, self._over = fault, True
            self._changed.notify()
        return True
