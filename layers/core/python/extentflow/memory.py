"""How much memory this process takes: its peak, and a bound on what its allocator keeps.

Owns: how operating systems are asked, and in which unit they answer. Refuses to know: who is
measured, and why.
"""

import ctypes
import re
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

WORKER_ENVIRONMENT: Mapping[str, str] = {"MIMALLOC_PURGE_DELAY": "1"}
"""What a worker's process has to begin with. Arrow's allocator reads how many milliseconds it waits
before it gives pages back that are free; where it is ten (and a hundred for large ones), a worker
keeps as much as it uses, and is no faster for it."""

ARENAS = 2
_M_ARENA_MAX = -8  # malloc.h of glibc
_HIGH_WATER = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def peak_rss_bytes(status: Path = Path("/proc/self/status")) -> int:
    """Return this process's largest resident set so far.

    `getrusage` is the second choice: on Linux it also counts what a process was before it became
    another program, that is, the one it was started from.
    """
    try:
        found = _HIGH_WATER.search(status.read_text())
    except OSError:  # no Linux, or no /proc
        found = None
    if found is not None:
        return int(found[1]) << 10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


def bound_arenas(count: int = ARENAS) -> bool:
    """Let this process's C allocator keep at most `count` pools of freed memory; return if it does.

    glibc gives threads pools of their own, eight per core, and none takes what another one keeps
    free: what one thread allocates and another frees, as records on their way to a broker, piles up
    over a long run. Other C libraries have no such call, and no such pools.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_ARENA_MAX, count))
