"""Worker processes that follow a test and report their steps to it, over named pipes.

`WorkerSpec.settings` carry the paths of the pipes.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from tests.support.local_engine import RecordingListener

from extentflow.engines import Task, WorkerSpec
from extentflow.engines.inline import InlineEngine
from extentflow.model import Extent, ObjectVersion, Outcome, Receipt

RUN = "run"
Settings = dict[str, str]


def extent(ordinal: int = 0) -> Extent:
    return Extent("job", ordinal, "c", ObjectVersion("b", "k", None, "etag", 9), 0, 9, "text")


def receipt(extent: Extent, outcome: Outcome, worker: str, records: int = 0) -> Receipt:
    return Receipt(extent.job, extent.ordinal, extent.uri, outcome, records=records, worker=worker)


class Scripted:
    """A worker that runs an extent as `script` says; `wait` returns once it was asked to stop."""

    def __init__(self, settings: Settings, owner: str, script: "Script") -> None:
        self.settings = settings
        self.owner = owner
        self._script = script
        self._ears, self._mouth = os.pipe()

    def run(self, extent: Extent) -> Receipt:
        return self._script(self, extent)

    def stop(self) -> None:
        os.write(self._mouth, b".")

    def close(self) -> None:
        """Nothing is held."""

    def wait(self) -> None:
        os.read(self._ears, 1)


Script = Callable[[Scripted, Extent], Receipt]


# -- gives its extent back ------------------------------------------------------------------------


def gives_back(settings: Settings, owner: str) -> Scripted:
    """Is terminated at its first extent with `outcome`; its successor delivers it."""
    return Scripted(settings, owner, _give_back)


def _give_back(worker: Scripted, extent: Extent) -> Receipt:
    done = Path(worker.settings["done"])
    if done.exists():
        return receipt(extent, Outcome.DONE, worker.owner)
    done.touch()
    if worker.settings["outcome"] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGTERM)
    worker.wait()
    return receipt(extent, Outcome(worker.settings["outcome"]), worker.owner)


# -- skips its first extent ------------------------------------------------------------------------


def skips(settings: Settings, owner: str) -> Scripted:
    """Skips the first extent and delivers the later ones."""
    return Scripted(settings, owner, _skip_once)


def _skip_once(worker: Scripted, extent: Extent) -> Receipt:
    done = Path(worker.settings["done"])
    if done.exists():
        return receipt(extent, Outcome.DONE, worker.owner)
    done.touch()
    return receipt(extent, Outcome.SKIPPED, worker.owner)


# -- is slow to stop ------------------------------------------------------------------------------


def slow_to_stop(settings: Settings, owner: str) -> Scripted:
    """Signals that it started; after a stop request, ends its extent only when it is released."""
    return Scripted(settings, owner, _end_late)


def _end_late(worker: Scripted, extent: Extent) -> Receipt:
    Path(worker.settings["at work"]).write_text("here", encoding="ascii")
    worker.wait()
    Path(worker.settings["go on"]).read_text(encoding="ascii")
    return receipt(extent, Outcome(worker.settings["outcome"]), worker.owner, records=3)


# -- does not listen ------------------------------------------------------------------------------


def never_ending(settings: Settings, owner: str) -> Scripted:
    """Says who it is and what it is asked over a pipe that ends with it, and works for ever."""
    return Scripted(settings, owner, _work_for_ever)


def _work_for_ever(worker: Scripted, extent: Extent) -> Receipt:
    with Path(worker.settings["life line"]).open("w", buffering=1, encoding="ascii") as life_line:
        life_line.write(f"{os.getpid()}\n")
        worker.wait()
        life_line.write("asked to stop\n")
        signal.pause()
    return receipt(extent, Outcome.DONE, worker.owner)


def drive(life_line: str) -> None:
    """Be a driver with one worker that never ends."""
    spec = WorkerSpec(never_ending, {"life line": life_line}, RUN)
    InlineEngine(spec, cores=1, evict=lambda _owner: 0).run(
        [Task((extent(),))], RecordingListener()
    )
