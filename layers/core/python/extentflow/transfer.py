"""Faults that change threads.

Owns: whom a thread's fault belongs to. Refuses to know: threads, what they do.
"""

from concurrent.futures import Future
from types import TracebackType
from typing import Any


class Transfer:
    """Context manager around what a thread does for another one.

    Whatever the block raises is not handled here: it is raised to whoever asks for the result of
    `outcome`.
    """

    def __init__(self, outcome: Future[Any]) -> None:
        self._outcome = outcome

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if fault is not None:
            self._outcome.set_exception(fault)
        return True
