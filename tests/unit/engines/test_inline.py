"""The in-process engine with real processes: workers that stop, die, or lose their driver."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support import workers
from tests.support.golden import Golden
from tests.support.local_engine import RecordingListener
from tests.support.workers import RUN, Settings, extent

from extentflow.engines import Task, WorkerSpec
from extentflow.engines.inline import InlineEngine
from extentflow.model import Outcome

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def named_pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


class Evicted(list[str]):
    """Whose slots an engine took over."""

    def __call__(self, owner: str) -> int:
        self.append(owner)
        return 1


@pytest.mark.parametrize(
    ("how", "seen"),
    [
        ("BUSY", [Outcome.BUSY, Outcome.DONE]),
        ("HANDED_BACK", [Outcome.HANDED_BACK, Outcome.DONE]),
        ("killed", [Outcome.DONE]),
    ],
)
def test_the_extent_of_a_worker_that_went_alone_is_run_by_its_replacement(
    tmp_path: Path, how: str, seen: list[Outcome]
) -> None:
    settings: Settings = {"outcome": how, "done": str(tmp_path / "done")}
    watch, evicted = RecordingListener(), Evicted()
    engine = InlineEngine(WorkerSpec(workers.gives_back, settings, RUN), cores=1, evict=evicted)

    engine.run([Task((extent(0), extent(1)))], watch)
    engine.close()

    first = [one for one in watch.receipts if one.ordinal == 0]
    assert [one.outcome for one in first] == seen
    assert [one.outcome for one in watch.receipts if one.ordinal == 1] == [Outcome.DONE]
    (dead,) = {owner for owner in evicted if owner != RUN}
    assert dead != first[-1].worker
    assert evicted == [dead, RUN]


@pytest.mark.parametrize("outcome", [Outcome.HANDED_BACK, Outcome.DONE, Outcome.BUSY])
def test_receipts_sent_during_a_stop_are_reported(
    tmp_path: Path, pool: ThreadPoolExecutor, outcome: Outcome
) -> None:
    at_work, resume = named_pipe(tmp_path / "at work"), named_pipe(tmp_path / "go on")
    settings: Settings = {"outcome": outcome, "at work": str(at_work), "go on": str(resume)}
    watch, evicted = RecordingListener(), Evicted()
    engine = InlineEngine(WorkerSpec(workers.slow_to_stop, settings, RUN), cores=1, evict=evicted)
    running = pool.submit(engine.run, [Task((extent(0), extent(1)))], watch)
    at_work.read_text(encoding="ascii")

    engine.stop()
    running.result()
    before = list(watch.receipts)
    resume.write_text("go on", encoding="ascii")
    engine.close()

    assert before == []
    assert [(one.ordinal, one.outcome, one.records) for one in watch.receipts] == [(0, outcome, 3)]
    assert evicted == [RUN]


def test_a_run_ends_when_its_extents_were_skipped(tmp_path: Path) -> None:
    settings: Settings = {"done": str(tmp_path / "done")}
    watch = RecordingListener()
    spec = WorkerSpec(workers.skips, settings, RUN)
    engine = InlineEngine(spec, cores=1, evict=lambda _owner: 0)

    engine.run([Task((extent(0), extent(1))), Task((extent(2),))], watch)
    engine.close()

    assert [(one.ordinal, one.outcome) for one in watch.receipts] == [
        (0, Outcome.SKIPPED),
        (1, Outcome.SKIPPED),
        (2, Outcome.DONE),
    ]


UNGUARDED = f"""
from tests.support import workers
from tests.support.local_engine import RecordingListener
from extentflow.engines import Task, WorkerSpec
from extentflow.engines.inline import InlineEngine

spec = WorkerSpec(workers.skips, {{}}, "{RUN}")
engine = InlineEngine(spec, cores=1, evict=lambda _owner: 0)
try:
    engine.run([Task((workers.extent(0),))], RecordingListener())
finally:
    engine.close()
"""


@pytest.mark.parametrize("piped", [False, True])
def test_a_program_that_workers_cannot_import_is_misconfigured(
    tmp_path: Path, golden: Golden, *, piped: bool
) -> None:
    script = tmp_path / "deliver.py"
    script.write_text(UNGUARDED, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    ended = subprocess.run(
        [sys.executable, *([] if piped else [str(script)])],
        input=UNGUARDED if piped else "",
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    last = ended.stderr.strip().splitlines()[-1]
    golden(last)
    assert "extentflow.errors.Misconfigured" in last
    assert ("standard input; their" if piped else f"{script}; their") in last
    assert 'under `if __name__ == "__main__":`' in last


def test_a_worker_whose_driver_is_gone_is_asked_to_stop_and_ends(tmp_path: Path) -> None:
    life_line = named_pipe(tmp_path / "life line")
    driver = multiprocessing.get_context("spawn").Process(
        target=workers.drive, args=(str(life_line),)
    )
    driver.start()
    with life_line.open(encoding="ascii") as worker:
        pid = int(worker.readline())
        try:
            driver.kill()
            driver.join()

            said = worker.read()  # until no process holds the other end
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    assert said == "asked to stop\n"
