"""SIGINT and SIGTERM while something runs that can end well.

Owns: the handlers, and putting back those before. Refuses to know: what is stopped.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from extentflow.cli import output

STOPPING = "stopping: committing or aborting what is under way"


@contextmanager
def signals_stop(stop: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Let SIGINT and SIGTERM call `stop`; yield the question whether one did.

    A second signal ends the process at once.
    """
    stopped = False
    with output.err.capture():  # a handler cannot import what is just being imported
        output.err.print(STOPPING)

    def on_signal(_number: int, _frame: object) -> None:
        nonlocal stopped
        stopped = True
        for number in before:
            signal.signal(number, signal.SIG_DFL)
        output.err.print(STOPPING)
        stop()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield lambda: stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
