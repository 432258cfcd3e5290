"""Measures this process's peak memory and returns freed memory of the C allocator to the system."""

import ctypes
import re
import resource
import sys
from pathlib import Path

ARENAS = 1
LARGEST_POOLED_BYTES = 16 << 20
MOST_KEPT_BYTES = 64 << 20

# malloc.h of glibc
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_HIGH_WATER = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def peak_rss_bytes(status: Path = Path("/proc/self/status")) -> int:
    """Return this process's largest resident set so far.

    `getrusage` is the second choice: on Linux it includes the memory of the program that this
    process executed before.
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
    """Make glibc reuse freed memory from one pool; return whether the C library accepted it.

    Call it before threads start: existing pools stay. Other C libraries have neither this call nor
    such pools.
    """
    # By default glibc creates up to eight pools per core and reuses memory only within a pool.
    # Records are allocated by one thread and freed by another, so memory would grow in a long run.
    # Blocks below LARGEST_POOLED_BYTES (windows of an object, columns) come from the pool, not from
    # fresh pages, which the kernel clears. Free memory at the pool's end beyond MOST_KEPT_BYTES is
    # returned.
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
