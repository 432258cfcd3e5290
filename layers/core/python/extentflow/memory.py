"""How much memory this process has taken.

Owns: where operating systems say so, and in which unit. Refuses to know: who is measured, and why.
"""

import re
import resource
import sys
from pathlib import Path

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
