"""A thread that calls `renew` at an interval while its block runs.

Owns: the thread. Refuses to know: leases, visibility time-outs or whatever else is renewed.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Keeper:
    """Context manager: `renew` every `interval_seconds` from a daemon thread until the exit.

    `renew` handles its own errors; one that escapes ends the renewals and is shown by
    `threading.excepthook`, and the lease then simply runs out.
    """

    def __init__(self, renew: Callable[[], None], interval_seconds: float) -> None:
        self._renew = renew
        self._interval_seconds = interval_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="extentflow-keeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._stopped.wait(self._interval_seconds):
            self._renew()
