"""Find and end the Python workers of this process's Spark session."""

import signal

import psutil


def kill_python_workers() -> int:
    """End the processes in which Spark's tasks run; their daemon starts others."""
    killed = 0
    for process in psutil.Process().children(recursive=True):
        try:
            parent = process.parent()
            if parent and "pyspark.daemon" in parent.cmdline():
                process.send_signal(signal.SIGKILL)
                killed += 1
        except psutil.NoSuchProcess:
            continue
    return killed
