"""What stays in a Python process of Spark's from one task to the next, and what that must not cost.

Owns: the one resident of this process, sparing tasks what its staying would cost them. Refuses to
know: what it does, Spark's sessions.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Any, TypeVar
from uuid import uuid4
from zipimport import zipimporter

from extentflow.engines import CachedWorker, WorkerSpec

R = TypeVar("R", bound=CachedWorker)

_resident: tuple[int, WorkerSpec[Any], Any] | None = None
_tasks: tuple[int, int] = (0, 0)  # of which process, and how many began


def resident(spec: WorkerSpec[R]) -> R:
    """Return what this Python process is by `spec`, made at first use and kept for later tasks.

    The one before it, of other settings or another run, is closed. Called once per task.
    """
    global _resident, _tasks  # noqa: PLW0603 - the process is the scope: Spark reuses it
    pid = os.getpid()
    if _resident is not None:
        if _resident[:2] == (pid, spec):
            settle()
            known: R = _resident[2]
            return known
        if _resident[0] == pid:
            _resident[2].close()
            gc.unfreeze()  # what it was goes with it
            _tasks = (0, 0)
        _resident = None  # a closed one is nobody's, whatever happens to the next
    settle()
    opened = spec.open(spec.settings, f"{spec.run}/{uuid4().hex}")
    _resident = (pid, spec, opened)
    return opened


def settle() -> None:
    """Spare later tasks of this process what Spark's Python does around them, 0.2 s of a core each.

    To be called when a task begins; `resident` does. After each task Spark collects garbage: what
    the first one left, modules, clients and their models, is there to stay and need not be looked
    through. Before each it has all importers of a zip file, one per package that was imported, read
    that file's directory anew, under the interpreter's lock: the file's own importer does that for
    all, and the others are made again when something is imported.
    """
    global _tasks  # noqa: PLW0603 - as above
    pid = os.getpid()
    begun = _tasks[1] if _tasks[0] == pid else 0
    _tasks = (pid, begun + 1)
    if begun == 1:
        gc.freeze()
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and finder.prefix:
            sys.path_importer_cache.pop(path, None)
