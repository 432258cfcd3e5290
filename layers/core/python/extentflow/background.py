"""Background threads: prefetch items, renew a lease, write progress, bound a blocking call."""

from __future__ import annotations

import _thread
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)

IDLE_SECONDS = 0.25
LINGER_SECONDS = 2.0
# A thread that has not begun by then has ended before it ran any code.
START_SECONDS = 10.0


class ExceptionRelay:
    """Context manager that re-raises an exception of a background thread in the caller.

    Every exception of the block becomes the exception of `outcome`; `outcome.result()` raises it.
    """

    def __init__(self, outcome: Future[Any]) -> None:
        self._outcome = outcome

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is not None:
            self._outcome.set_exception(error)
        return True


class BackgroundCall(Generic[T]):
    """One call on a daemon thread of its own, which starts at once.

    Python cannot stop a thread: one whose call never returns stays behind, together with the
    objects that the call uses, and does not keep the process alive.
    """

    def __init__(self, call: Callable[[], T], name: str) -> None:
        self._outcome: Future[T] = Future()
        self._thread = threading.Thread(target=self._run, args=(call,), name=name, daemon=True)
        self._thread.start()

    def result(self, seconds: float | None = None) -> T:
        """Return what the call returned, raise what it raised; TimeoutError after `seconds`."""
        if not self.wait(seconds):
            raise TimeoutError(f"{self._thread.name} is still running after {seconds} s")
        if not self._outcome.done():  # waiting for its outcome would never end
            raise MemoryError(f"{self._thread.name} lacked the memory to keep its outcome")
        return self._outcome.result()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait up to `seconds` for the thread's end; return whether it ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self, call: Callable[[], T]) -> None:
        # Every exception reaches the caller: a fault must not look like the end of data.
        with ExceptionRelay(self._outcome):
            self._outcome.set_result(call())


class LeaseRenewer:
    """Context manager: calls `renew` every `interval_seconds` on a daemon thread until the exit.

    `renew` handles its own errors. An exception that escapes ends the renewals and is printed by
    `threading.excepthook`; the lease then expires by itself.
    """

    def __init__(self, renew: Callable[[], None], interval_seconds: float) -> None:
        self._renew = renew
        self._interval_seconds = interval_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="extentflow-renewal", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_seconds):
            self._renew()


class LatestCall:
    """Runs calls on a daemon thread, one at a time; of those that wait, only the newest.

    For writes of which each contains the ones before. `submit` never waits for the thread. Where no
    thread can be started, or the last one ended with an error, the call runs in the foreground, so
    that its errors reach the caller. The thread ends when no call waits.
    """

    def __init__(
        self,
        start: Callable[[Callable[..., None], tuple[Any, ...]], object] = _thread.start_new_thread,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        # Not `Thread.start`: it waits for ever for a thread that lacks the memory to begin.
        self._start = start
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._waiting: Callable[[], None] | None = None
        self._outcome: Future[None] = Future()
        self._outcome.set_result(None)
        self._begun = True
        self._start_by = 0.0

    def submit(self, call: Callable[[], None]) -> None:
        """Run `call` soon, unless a newer one comes first; raises only what it raises here."""
        outcome: Future[None] = Future()
        with self._lock:
            last = self._outcome
            if not last.done() and (self._begun or self._monotonic() < self._start_by):
                self._waiting = call
                return
            error = last.exception() if last.done() else None
            self._outcome, self._waiting = outcome, call
            self._begun, self._start_by = False, self._monotonic() + START_SECONDS
        if error is None:
            try:
                self._start(self._run, (outcome,))
            except (RuntimeError, MemoryError) as exc:
                error = exc
            else:
                return
        log.warning("a call runs in the foreground, because its thread failed: %r", error)
        with self._lock:
            self._waiting = None
            outcome.set_result(None)  # the next call tries a thread again
        call()

    def _run(self, outcome: Future[None]) -> None:
        with ExceptionRelay(outcome):
            while True:
                with self._lock:
                    if self._outcome is not outcome:  # it began too late and was replaced
                        return
                    self._begun = True
                    call, self._waiting = self._waiting, None
                    if call is None:
                        outcome.set_result(None)
                        return
                call()


def prefetch(
    items: Generator[T, None, None],
    size_bytes: Callable[[T], int],
    budget_bytes: int,
    *,
    idle_seconds: float = IDLE_SECONDS,
    linger_seconds: float = LINGER_SECONDS,
) -> Generator[T | None, None, None]:
    """Yield the items of `items` in order, produced ahead on a thread; raise what it raises.

    Yields None when no item is ready within `idle_seconds`, so that the consumer can commit or
    stop. The thread starts with the first `next()`.

        thread     item 5, being produced   waits while the buffered items exceed the budget
        buffered   items 3, 4               at most `budget_bytes` together, or a single item
        consumer   item 2

    Closing this iterator closes `items` and waits for the thread: `linger_seconds`, or only
    `idle_seconds` if the last item was None. A thread that hangs longer is left behind as a daemon.
    """
    buffer = _PrefetchBuffer(items, size_bytes, budget_bytes, idle_seconds)
    try:
        yield from buffer
    finally:
        buffer.stop(linger_seconds)


class _PrefetchBuffer(Generic[T]):
    """Items that were produced and not consumed yet."""

    def __init__(
        self,
        items: Generator[T, None, None],
        size_bytes: Callable[[T], int],
        budget_bytes: int,
        idle_seconds: float,
    ) -> None:
        self._items = items
        self._size_bytes = size_bytes
        self._budget_bytes = budget_bytes
        self._idle_seconds = idle_seconds
        self._changed = threading.Condition()
        self._buffered: deque[T] = deque()
        self._buffered_bytes = 0
        self._stopped = self._ended = self._last_was_none = False
        self._production: BackgroundCall[None] | None = None

    def __iter__(self) -> Iterator[T | None]:
        self._production = BackgroundCall(self._produce, "extentflow-prefetch")
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._buffered or self._ended, self._idle_seconds)
                if not self._buffered and self._ended:
                    break
                # A list, so that the pop below leaves the consumer as the only owner of the item:
                # its memory is free as soon as the consumer drops it.
                ready = [self._buffered.popleft()] if self._buffered else []
                if ready:
                    self._buffered_bytes -= self._size_bytes(ready[0])
                    self._changed.notify()
            self._last_was_none = not ready
            yield ready.pop() if ready else None
        self._production.result()

    def stop(self, linger_seconds: float) -> None:
        with self._changed:
            self._stopped = True
            self._buffered.clear()
            self._changed.notify()
        if self._production is None:  # never started: no other thread uses the generator
            self._items.close()
        else:
            self._production.wait(self._idle_seconds if self._last_was_none else linger_seconds)

    def _produce(self) -> None:
        try:
            for item in self._items:
                if not self._put(item):
                    break
            self._items.close()
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify()

    def _put(self, item: T) -> bool:
        """Wait until the budget admits the item and buffer it; return False after `stop`."""
        size = self._size_bytes(item)
        with self._changed:
            # An empty buffer admits any item: one item may be larger than the budget.
            self._changed.wait_for(
                lambda: (
                    self._stopped
                    or not self._buffered
                    or self._buffered_bytes + size <= self._budget_bytes
                )
            )
            if not self._stopped:
                self._buffered.append(item)
                self._buffered_bytes += size
                self._changed.notify()
            return not self._stopped
