"""CPU seconds that this process and everything it started have taken.

Owns: adding them up, each once. Refuses to know: what was done with them.
"""

import os
import resource

import psutil


def cpu_seconds() -> float:
    """Return user and system time of this process, all threads, and of its descendants so far.

    Those that ended count as far as somebody waited for them; those that live, to the tick.
    """
    ours = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    spent = sum(sum(resource.getrusage(who)[:2]) for who in ours)
    for process in psutil.Process(os.getpid()).children(recursive=True):
        try:
            spent += sum(process.cpu_times()[:4])  # its own, and of its children that ended
        except psutil.NoSuchProcess:  # it ended meanwhile
            continue
    return spent
