"""Background processes that outlive the command that started them.

A process is identified by pid *and* start time.

    started --> record in <directory>/process.json --> stopped: record removed

A record whose pid now belongs to another process is stale: it is removed, and no signal is sent.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from extentflow.config.files import read_owned, refuse_foreign

_RECORD = "process.json"
_PROC = Path("/proc")
_POLL_SECONDS = 0.02
_LARGEST_LOG_BYTES = 32 * 1024 * 1024
_OWN_STACK = (
    "a stack is used only if you and root alone may write its folder, records and ledger;"
    " set EXTENTFLOW_LOCAL_STACK=off, or use another folder"
)

# Children of this process must be reaped when they end; init reaps those of earlier processes.
_children: dict[tuple[int, str], subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process as its record describes it."""

    pid: int
    birth: str
    ports: Mapping[str, int]

    @classmethod
    def recorded_in(cls, directory: Path) -> Self | None:
        """Read the record of a live process; remove the record of an ended one.

        Raises Misconfigured, and leaves the record, where another user may have written it, or
        a folder up to the stack's root.
        """
        record = directory / _RECORD
        refuse_foreign_stack(directory.parents[1], directory)
        text = read_owned(str(record), _OWN_STACK)
        if text is None:
            return None
        try:
            running = cls(**json.loads(text))
            sound = all(map(_is_port, running.ports.values()))
        except (ValueError, TypeError, AttributeError):
            # Written by a rename, so an invalid one comes from another version or from an edit.
            record.unlink()
            return None
        if sound and running.alive():
            return running
        record.unlink(missing_ok=True)
        return None

    def alive(self) -> bool:
        """Whether this process is alive, and its pid was not reused."""
        child = _children.get((self.pid, self.birth))
        if child is None:
            return birth_of(self.pid) == self.birth
        if child.poll() is None:
            return True
        del _children[self.pid, self.birth]
        return False

    def send(self, number: signal.Signals) -> None:
        """Signal the process, if it is alive."""
        if self.alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def wait(self, seconds: float) -> bool:
        """Wait until the process has ended; return whether it has."""
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def stop(self, *, grace_seconds: float) -> None:
        """Send SIGTERM, and SIGKILL if the process is alive after `grace_seconds`."""
        self.send(signal.SIGTERM)
        if not self.wait(grace_seconds):
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL and wait until the process has ended."""
        self.send(signal.SIGKILL)
        self.wait(10)


def refuse_foreign_stack(root: Path, path: Path) -> None:
    """Return if the user and root alone may write `path`, and each folder from `root` to it.

    What is absent passes. Raises Misconfigured for others, and for links of other users.
    """
    for one in (*reversed(path.relative_to(root).parents), path):
        refuse_foreign(root / one, _OWN_STACK)


def start(
    command: Sequence[str],
    *,
    directory: Path,
    log: Path,
    environment: Mapping[str, str],
    ports: Mapping[str, int],
) -> RunningProcess:
    """Start a process in its own session, and record it in its working `directory`.

    Its output is appended to `log`, which is truncated when it has grown too large.
    """
    mode = "wb" if log.exists() and log.stat().st_size > _LARGEST_LOG_BYTES else "ab"
    with log.open(mode) as output:
        child = subprocess.Popen(
            command,
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    running = RunningProcess(child.pid, birth_of(child.pid) or "", dict(ports))
    _children[running.pid, running.birth] = child
    _record(running, directory)
    return running


def _is_port(found: object) -> bool:
    return type(found) is int and 0 < found < 1 << 16


def forget(directory: Path) -> None:
    """Remove the record of an ended process."""
    (directory / _RECORD).unlink(missing_ok=True)


def birth_of(pid: int) -> str | None:
    """Return a value that identifies this process among all with its pid; None if there is none.

    On Linux: ticks since boot with the boot id, because the clock may be set while a process runs.
    """
    if not _PROC.is_dir():
        return _birth_without_proc(pid)
    try:
        fields = (_PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()
        # A zombie keeps its ports until its last thread has ended.
        ended = fields[0] in "ZX" and len(list((_PROC / f"{pid}/task").iterdir())) <= 1
    except (FileNotFoundError, ProcessLookupError):
        return None
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return None if ended else f"{boot}/{fields[19]}"


def _birth_without_proc(pid: int) -> str | None:
    columns = ["-o", "stat=", "-o", "lstart="]
    ps = ["/bin/ps", "-p", str(pid), *columns]
    answer = subprocess.run(ps, capture_output=True, text=True, check=False).stdout.strip()
    state, _, birth = answer.partition(" ")
    return birth.strip() if birth and not state.startswith("Z") else None


def _record(running: RunningProcess, directory: Path) -> None:
    fresh = directory / f"{_RECORD}.new"
    fresh.write_text(json.dumps(asdict(running)), encoding="utf-8")
    fresh.rename(directory / _RECORD)
