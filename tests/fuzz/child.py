"""Tries an input in a forked process, where it may end the process in a documented way."""

import faulthandler
import os
import resource
import selectors
import signal
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.targets import TRIED

from extentflow.errors import ExtentflowError

_CPU_SECONDS = 5
MOST_BYTES = 1 << 30
# Of a process that waits for ever: on a busy machine, 5 s of CPU take minutes.
_ANSWER_SECONDS = 300.0
# Of libraries, what an input is the first to use.
_MORE_FILES_BYTES = 32 << 20
STATUS = Path("/proc/self/status")


def in_child(run: Callable[[], str], documented: dict[signal.Signals, str]) -> str:
    """Return the outcome of `run`, or that of a documented signal; AssertionError for others.

    The process may use 5 s of CPU, and 1 GiB more than this one if this one has no limit.
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
    kind, decodes, text = (answer or b"\n\n").decode().split("\n", 2)
    assert kind == "outcome", text
    TRIED.decodes += int(decodes)
    return text


def limit_memory(more_bytes: int | None = None) -> None:
    """Let this process hold 1 GiB, pages of files included, or `more_bytes` than it has.

    An allocation beyond it fails. Memory that is shared counts as that of files; that of Arrow
    must come from the system's allocator, which reserves none ahead.
    """
    if STATUS.exists():
        data, files = (memory_bytes(name) for name in ("VmData", "RssFile"))
        most = MOST_BYTES - files - _MORE_FILES_BYTES if more_bytes is None else data + more_bytes
        assert data < most, "no memory is left for inputs"
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def memory_bytes(name: str) -> int:
    """Return a figure of Linux about this process's memory."""
    found = (one.split() for one in STATUS.read_text().splitlines())
    return next(int(words[1]) << 10 for words in found if words[0] == f"{name}:")


def _run_and_exit(run: Callable[[], str], send: int) -> None:
    faulthandler.disable()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = int(usage.ru_utime + usage.ru_stime) + _CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY:
        limit_memory(MOST_BYTES)
    before = TRIED.decodes
    try:
        kind, text = "outcome", run()
    except ExtentflowError as exc:
        kind, text = "outcome", f"refused: {type(exc).__name__}"
    except BaseException as exc:  # noqa: BLE001 - reported to the parent
        kind, text = "found", f"{type(exc).__name__} {exc}\n{traceback.format_exc()}"
    answer = f"{kind}\n{TRIED.decodes - before}\n{text[:60_000]}"
    os.write(send, answer.encode("utf-8", "backslashreplace"))
    os._exit(0)


def _read(receive: int) -> bytes | None:
    """Return what the process wrote before it ended; None if it neither writes nor ends."""
    with os.fdopen(receive, "rb") as file, selectors.DefaultSelector() as selector:
        selector.register(file, selectors.EVENT_READ)
        return file.read() if selector.select(_ANSWER_SECONDS) else None
