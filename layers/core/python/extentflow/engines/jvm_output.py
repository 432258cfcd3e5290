"""What a JVM writes to standard error: passed on, without what Ivy and the launcher report."""

import os
import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Final

# Reports of a start that works; all other lines are passed on.
_REPORTS: Final = re.compile(
    rb"WARNING: Using incubator modules|SLF4J|Ivy Default Cache set|The jars for the packages"
    rb"|:: |\t(confs:|found |:: modules in use|\||-{9}|\d+ artifacts copied|\S+#\S+;\S+ from )"
    rb"|\S+#\S+ added as a dependency"
)
# Of downloads: Ivy asks repositories in turn, also those that this machine does not reach.
_DOWNLOADS: Final = re.compile(
    rb"downloading |\t\[SUCCESSFUL|\t?Host \S+ not found\. url=|:::: WARNINGS"
    rb"|You probably access the destination"
    rb"|Server access error at url|\t?Server access Error: "
)
_FETCHING: Final = (
    b"note: Spark's Ivy downloads packages that --jars does not name; Ivy keeps them\n"
)
_MOST_HELD: Final = 1000
_STANDARD_ERROR: Final = 2
_LAST_SECONDS: Final = 1.0


@contextmanager
def filtered_errors() -> Iterator[int]:
    """Yield a descriptor that is standard error for a process which the body starts.

    Lines are passed on to this process's standard error as long as that process writes. Reports of
    Ivy and the launcher are held back; they are written, too, where the body raises. One line of
    ours stands for all downloads.
    """
    source, sink = os.pipe()
    held: deque[bytes] = deque(maxlen=_MOST_HELD)
    thread = Thread(target=_pass_on, args=(source, held), name="jvm-errors", daemon=True)
    thread.start()
    try:
        yield sink
    except BaseException:
        os.close(sink)
        thread.join(_LAST_SECONDS)  # the process may run on
        _write(b"".join(held))
        raise
    os.close(sink)


def _pass_on(source: int, held: deque[bytes]) -> None:
    fetching = False
    with os.fdopen(source, "rb") as lines:
        for line in lines:
            if not line.strip():
                continue
            if _DOWNLOADS.match(line) and not fetching:
                fetching = True
                _write(_FETCHING)
            if _REPORTS.match(line) or _DOWNLOADS.match(line):
                held.append(line)
            else:
                _write(line)


def _write(text: bytes) -> None:
    # Not by sys.stderr, whose lock a daemon thread could hold while the interpreter ends.
    while text:
        text = text[os.write(_STANDARD_ERROR, text) :]
