"""CPU seconds of this process and all its descendants."""

import os
import resource

import psutil


def cpu_seconds() -> float:
    """Return user and system time of this process, all threads, and its descendants so far.

    Ended descendants count if they were waited for; running ones count to the tick.
    """
    ours = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    spent = sum(sum(resource.getrusage(who)[:2]) for who in ours)
    for process in psutil.Process(os.getpid()).children(recursive=True):
        try:
            spent += sum(process.cpu_times()[:4])  # its own, and of its children that ended
        except psutil.NoSuchProcess:  # it ended meanwhile
            continue
    return spent
