"""What stays in a Python process of Spark's from one task to the next.

Owns: the one resident of this process, what its staying costs the tasks after the first. Refuses to
know: what it does, Spark's sessions.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Any, TypeVar
from uuid import uuid4
from zipimport import zipimporter

from extentflow.engines import Resident, WorkerSpec

R = TypeVar("R", bound=Resident)

_resident: tuple[int, WorkerSpec[Any], Any] | None = None
_settled = 0


def resident(spec: WorkerSpec[R]) -> R:
    """Return what this Python process is by `spec`, made at first use and kept for later tasks.

    The one before it, of other settings or another run, is closed.
    """
    global _resident  # noqa: PLW0603 - the process is the scope: Spark reuses it from task to task
    pid = os.getpid()
    if _resident is not None:
        if _resident[:2] == (pid, spec):
            _settle(pid)
            known: R = _resident[2]
            return known
        if _resident[0] == pid:
            _resident[2].close()
        _resident = None  # a closed one is nobody's, whatever happens to the next
    opened = spec.open(spec.settings, f"{spec.run}/{uuid4().hex}")
    _resident = (pid, spec, opened)
    return opened


def _settle(pid: int) -> None:
    """Spare a process that stays what Spark's Python does around every task, 0.2 s of a core.

    After each it collects garbage: what the first one left, modules, clients and their models, is
    there to stay and need not be looked through. Before each it has every importer of a zip file,
    one per package that was imported, read that file's directory again, under the interpreter's
    lock: they are made anew when something is imported, out of what is known of the file.
    """
    global _settled  # noqa: PLW0603 - as above
    if _settled != pid:
        gc.freeze()
        _settled = pid
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            sys.path_importer_cache.pop(path, None)
