"""Tries an input in a forked process, where it may end the process in a documented way."""

import faulthandler
import os
import resource
import selectors
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from extentflow.errors import ExtentflowError

_CPU_SECONDS = 5
_MORE_BYTES = 1 << 30
_ANSWER_SECONDS = 25.0


def in_child(run: Callable[[], str], documented: dict[signal.Signals, str]) -> str:
    """Return the outcome of `run`, or that of a documented signal; AssertionError for others.

    The process may use 5 s of CPU and 1 GiB more than this one.
    """
    receive, send = os.pipe()
    with warnings.catch_warnings():
        # Arrow's threads are idle, and made again in the child.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        _run_and_exit(run, send)
    os.close(send)
    answer = _read(receive)
    if answer is None:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        ended = signal.Signals(os.WTERMSIG(status))
        assert ended in documented, f"ended by {ended.name}"
        return documented[ended]
    kind, _, text = (answer or b"").decode().partition("\n")
    assert kind == "outcome", text
    return text


def _run_and_exit(run: Callable[[], str], send: int) -> None:
    faulthandler.disable()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = int(usage.ru_utime + usage.ru_stime) + _CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + _MORE_BYTES, held + _MORE_BYTES))
    try:
        answer = f"outcome\n{run()}"
    except ExtentflowError as exc:
        answer = f"outcome\nrefused: {type(exc).__name__}"
    except BaseException as exc:  # noqa: BLE001 - reported to the parent
        answer = f"found\n{type(exc).__name__} {exc}\n{traceback.format_exc()}"
    os.write(send, answer[:60_000].encode("utf-8", "backslashreplace"))
    os._exit(0)


def _read(receive: int) -> bytes | None:
    """Return what the process wrote before it ended; None if it neither writes nor ends."""
    with os.fdopen(receive, "rb") as file, selectors.DefaultSelector() as selector:
        selector.register(file, selectors.EVENT_READ)
        return file.read() if selector.select(_ANSWER_SECONDS) else None
