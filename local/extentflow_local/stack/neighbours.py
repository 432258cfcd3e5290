"""The folders whose stacks run on this machine, so that a message can name the one on a port.

<cache>/stacks/<digest of a folder>    its path; written when services start there, removed when
                                       none runs any more
"""

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from extentflow.errors import Misconfigured
from extentflow_local.stack.processes import RunningProcess

_FOLDERS = "stacks"


def note_folder(cache: Path, root: Path, *, running: bool) -> None:
    """Note whether services run in `root`; without effect where `cache` cannot be written."""
    note = cache / _FOLDERS / hashlib.sha256(bytes(root)).hexdigest()[:16]
    with suppress(OSError):  # a message is less precise then
        if not running:
            note.unlink(missing_ok=True)
        elif not note.exists():
            note.parent.mkdir(parents=True, exist_ok=True)
            fresh = note.with_suffix(".new")
            fresh.write_bytes(bytes(root))
            fresh.rename(note)


def folders_at(cache: Path, ports: Collection[int]) -> Mapping[int, Path]:
    """Return the folder of the stack that runs on each of these ports, where it is noted."""
    return {port: root for root, port in _noted(cache) if port in ports}


def _noted(cache: Path) -> Iterator[tuple[Path, int]]:
    with suppress(OSError):
        for note in (cache / _FOLDERS).iterdir():
            root = Path(os.fsdecode(note.read_bytes()))
            for record in (root / "var").glob("*/process.json"):
                try:
                    running = RunningProcess.recorded_in(record.parent)
                except Misconfigured:  # another user may have written it by now
                    continue
                yield from ((root, port) for port in (running.ports.values() if running else ()))
