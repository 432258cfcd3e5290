"""Measures this process's peak memory and returns freed memory of the C allocator to the system."""

import ctypes
import re
import resource
import sys
from pathlib import Path

ARENAS = 1
LARGEST_POOLED_BYTES = 4 << 20
MOST_KEPT_BYTES = 64 << 20

# malloc.h of glibc
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
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


def tune_allocator() -> bool:
    """Let this process's C allocator use freed memory again, from one pool; return if it took it.

    It then suits columns of a few MiB that come and go with every batch: what is smaller than
    LARGEST_POOLED_BYTES comes from the pool instead of fresh pages, which the kernel would have to
    clear one by one, and the pool gives back what is free at its end beyond MOST_KEPT_BYTES; what
    something small behind it holds back, it keeps for the next batches.

    By itself glibc gives threads pools of their own, eight per core, and none takes what another
    one keeps free: what one thread allocates and another frees, as records on their way to a
    broker, piles up over a long run. To be called before there are many threads: pools that exist
    already stay. Other C libraries have no such call, and no such pools.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    wanted = {
        _M_ARENA_MAX: ARENAS,
        _M_MMAP_THRESHOLD: LARGEST_POOLED_BYTES,
        _M_TRIM_THRESHOLD: MOST_KEPT_BYTES,
    }
    return all(mallopt(option, value) for option, value in wanted.items())
