"""Workers that die, cannot start, or lose their broker; Spark's JVM that is killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import typer
from pyspark import SparkContext
from tests.integration.conftest import Deliver
from tests.support.delivery import SLOW_LINES, Delivery, Seen
from tests.support.waiting import AWAITED_SECONDS, eventually, running_seconds

from extentflow import errors
from extentflow.cli import run_command_line
from extentflow.engines import Engine, Task, Worker, WorkerSpec
from extentflow.engines.inline import InlineEngine, NoWorkers
from extentflow.engines.spark import JvmEnded, SparkEngine, local_context
from extentflow.errors import (
    ExtentflowError,
    Fenced,
    Misconfigured,
    Permanent,
    Retryable,
    SinkUnavailable,
)
from extentflow.jobs.run import RunReport
from extentflow.model import Extent, ObjectVersion, Receipt
from extentflow.wiring import open_engine
from extentflow_local.stack.stack import Stack

# Far longer than a run of these tests takes on a busy machine.
LEASE_SECONDS = 600.0


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def begin(
    delivery: Delivery, pool: ThreadPoolExecutor
) -> tuple["Future[RunReport]", InlineEngine, Seen]:
    """Run on two workers in the background; return when an extent is under way."""
    engine = open_engine(delivery.runtime, "inline", cores=2)
    assert isinstance(engine, InlineEngine)
    watch = Seen()
    running = pool.submit(delivery.run, watch=watch, engine=engine)
    eventually("an extent is under way", lambda: delivery.under_way() or running.done())
    return running, engine, watch


@pytest.mark.long
def test_killed_workers_are_replaced_without_waiting_for_their_leases(
    deliver: Deliver, pool: ThreadPoolExecutor
) -> None:
    delivery = deliver(lease_seconds=LEASE_SECONDS)
    running, engine, watch = begin(delivery, pool)
    began = running_seconds()

    killed = [member.process.pid or 0 for member in engine._members]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    report = running.result(timeout=AWAITED_SECONDS)

    assert len(killed) == 2
    assert report.ok
    assert running_seconds() - began < LEASE_SECONDS
    assert len({receipt.worker for receipt in watch.receipts}) >= 2
    assert delivery.leftovers() == delivery.owned() == []
    assert sorted(delivery.values()) == sorted(SLOW_LINES)


def open_nothing(_settings: dict[str, str], _owner: str) -> Worker:
    raise RuntimeError("a library is missing here")


@pytest.mark.long
def test_workers_that_die_at_every_start_are_a_clear_error(
    capfd: pytest.CaptureFixture[str],
) -> None:
    engine = InlineEngine(WorkerSpec(open_nothing, {}, "run"), cores=1, evict=lambda _owner: 0)
    extent = Extent("job", 0, "c", ObjectVersion("b", "k", None, "e", 1), 0, 1, "text")

    with pytest.raises(NoWorkers, match="3 workers in a row ended while starting"):
        engine.run([Task((extent,))], Seen())
    engine.close()

    assert capfd.readouterr().err.count("RuntimeError: a library is missing here") == 3


class Raising:
    """A worker whose every extent raises the error that its settings name."""

    def __init__(self, settings: dict[str, str], _owner: str) -> None:
        self._settings = settings

    def run(self, _extent: Extent) -> Receipt:
        error: ExtentflowError = getattr(errors, self._settings["class"])("one\ntwo")
        raise error

    def stop(self) -> None:
        """Nothing is in progress."""

    def close(self) -> None:
        """Holds nothing."""


@pytest.fixture(scope="module")
def spark_context() -> Iterator[SparkContext]:
    context = local_context(1)
    yield context
    context.stop()


def exit_code(engine: Engine) -> int:
    app = typer.Typer(add_completion=False)
    extent = Extent("job", 0, "c", ObjectVersion("b", "k", None, "e", 1), 0, 1, "text")
    app.command()(lambda: engine.run([Task((extent,))], Seen()))
    return run_command_line(app, [])


@pytest.mark.spark
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Misconfigured, 2),
        (Fenced, 1),
        pytest.param(Permanent, 2, marks=pytest.mark.soak),
        pytest.param(SinkUnavailable, 1, marks=pytest.mark.soak),
    ],
)
@pytest.mark.long
def test_a_workers_error_has_the_same_class_and_exit_code_on_every_engine(
    error: type[ExtentflowError], code: int, spark_context: SparkContext
) -> None:
    spec = WorkerSpec(Raising, {"class": error.__name__}, "run")
    extent = Extent("job", 0, "c", ObjectVersion("b", "k", None, "e", 1), 0, 1, "text")

    def inline() -> Engine:
        return InlineEngine(spec, cores=1, evict=lambda _owner: 0)

    def spark() -> Engine:
        return SparkEngine(spec, spark_context, max_tasks=1, evict=lambda _owner: 0, owned=False)

    for engine in (inline, spark):
        with pytest.raises(ExtentflowError, match="one\ntwo") as raised:
            engine().run([Task((extent,))], Seen())
        assert type(raised.value) is error
        assert exit_code(engine()) == code


@pytest.mark.spark
@pytest.mark.long
def test_a_killed_jvm_is_a_retryable_error_and_the_next_run_starts_another() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.jvm_deaths"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=AWAITED_SECONDS,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    lost = "Spark's JVM ended by signal 9; committed records stay, and the same command continues"
    assert [json.loads(line) for line in ended.stdout.splitlines()] == [
        ["planning", "JvmEnded", f"{lost} the work"],
        ["task", "JvmEnded", f"{lost} the work"],
        ["none", "", ""],
        ["session", "JvmEnded", f"{lost} the work"],
    ]
    assert issubclass(JvmEnded, Retryable)


@pytest.mark.soak
@pytest.mark.outage
def test_an_unavailable_broker_fails_the_run_and_a_later_run_resumes(
    deliver: Deliver, pool: ThreadPoolExecutor, stack: Stack
) -> None:
    delivery = deliver(retry_timeout_seconds=1.0)
    running, _, _ = begin(delivery, pool)

    stack.pause("kafka")
    try:
        broken = running.result(timeout=AWAITED_SECONDS)
    finally:
        stack.resume("kafka")
    interrupted = [item for item in delivery.items() if item.claim is not None]
    report = delivery.run()

    assert (broken.ok, broken.broken) == (False, True)
    assert "slot" in broken.errors[0]
    assert interrupted
    assert report.ok
    assert 0 < report.records_this_run < len(SLOW_LINES)
    assert delivery.leftovers() == []
    assert sorted(delivery.values()) == sorted(SLOW_LINES)
