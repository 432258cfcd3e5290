"""How the Spark engine deals tasks and restores the errors of its workers."""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkContext
from tests.support.local_engine import RecordingListener
from tests.support.workers import RUN, extent, gives_back

from extentflow import errors
from extentflow.engines import Task, WorkerSpec
from extentflow.engines.spark import (
    JvmEnded,
    SparkEngine,
    last_cause,
    local_context,
    spark_task,
    typed_error,
)
from extentflow.errors import (
    CorruptRecord,
    ExtentflowError,
    Fenced,
    Misconfigured,
    ObjectGone,
    Permanent,
    SinkUnavailable,
)


@dataclass
class Context:
    """A context that records the partitions of a job and runs nothing."""

    master: str
    defaultParallelism: int  # noqa: N815 - Spark's
    dealt: list[list[tuple[Task, ...]]] = field(default_factory=list)

    def accumulator(self, value: object, _param: object) -> object:
        return SimpleNamespace(value=value)

    def setJobGroup(self, *_: str) -> None:  # noqa: N802 - Spark's
        """Cancels nothing."""

    def parallelize(self, shares: Sequence[tuple[Task, ...]], parts: int) -> object:
        assert len(shares) == parts
        self.dealt.append(list(shares))
        return SimpleNamespace(foreachPartition=self._run)

    def _run(self, _run: Callable[..., object]) -> None:
        """Delivers nothing."""


def tasks(count: int) -> list[Task]:
    return [Task((extent(number),)) for number in range(count)]


def dealt(master: str, cores: int, max_tasks: int, count: int) -> list[list[int]]:
    """Return the ordinals in each partition."""
    context = Context(master, cores)
    engine = SparkEngine(
        WorkerSpec(gives_back, {}, RUN),
        cast("Any", context),
        max_tasks=max_tasks,
        evict=lambda _owner: 0,
    )

    engine.run(tasks(count), RecordingListener())

    (shares,) = context.dealt
    return [[one.ordinal for task in share for one in task.extents] for share in shares]


@pytest.mark.parametrize("cores", [2, 8, 64])
@pytest.mark.parametrize("master", ["yarn", "spark://host:7077", "k8s://https://api"])
def test_a_cluster_gets_at_most_max_tasks_partitions(master: str, cores: int) -> None:
    assert dealt(master, cores, max_tasks=3, count=8) == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_each_of_a_few_tasks_has_its_own_partition() -> None:
    assert dealt("yarn", 2, max_tasks=256, count=3) == [[0], [1], [2]]


def test_on_a_small_local_master_every_task_has_its_own_partition() -> None:
    assert dealt("local[2,4]", 2, max_tasks=2, count=5) == [[0], [1], [2], [3], [4]]


def test_a_local_master_with_more_cores_than_max_tasks_is_bounded() -> None:
    assert dealt("local[8]", 8, max_tasks=2, count=5) == [[0, 2, 4], [1, 3]]


# -- errors ---------------------------------------------------------------------------------------


class Closable:
    """A worker that can only be closed."""

    def close(self) -> None:
        """Holds nothing."""


def opened(_settings: dict[str, str], _owner: str) -> Closable:
    return Closable()


def report_of(error: Exception) -> str:
    """Return Spark's report of a task that failed with `error`, as the driver gets it."""
    try:
        with spark_task(WorkerSpec(opened, {}, RUN)):
            raise error  # noqa: TRY301 - as the body of a task does
    except Exception as exc:  # noqa: BLE001 - whatever the test raises
        trace = "".join(traceback.format_exception(exc))
    return (
        "An error occurred while calling o1.collectToPython.\n: org.apache.spark.SparkException: "
        "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times: "
        f"org.apache.spark.api.python.PythonException: {trace}\n"
        "\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)\n"
    )


@pytest.mark.parametrize(
    "error",
    [
        Misconfigured(["first: wrong", "second: missing"]),
        ObjectGone("s3://b/k: gone"),
        Permanent('a "quoted" {brace} and \n a line'),
        SinkUnavailable("no broker answers"),
        Fenced("slot 3 has another owner"),
        CorruptRecord("row 3 is bad"),
    ],
)
def test_an_error_of_a_worker_keeps_its_class_and_message(error: ExtentflowError) -> None:
    restored = typed_error(report_of(error))

    assert restored is not None
    assert type(restored) is type(error)
    assert str(restored) == str(error)


class SpecialFence(Fenced):
    """A subclass outside `extentflow.errors`."""


def test_a_class_outside_the_tree_is_restored_as_its_superclass() -> None:
    restored = typed_error(report_of(SpecialFence("lost")))

    assert (type(restored), str(restored)) == (Fenced, "lost")


def test_a_defect_has_no_typed_error() -> None:
    report = report_of(ZeroDivisionError("a defect"))

    assert typed_error(report) is None
    assert last_cause(report) == "ZeroDivisionError: a defect"


def test_the_note_of_an_error_is_not_its_cause() -> None:
    assert last_cause(report_of(Fenced("lost"))) == f"{errors.__name__}.Fenced: lost"


@pytest.fixture
def starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Start Spark by a script in place of its own; return the file of what the script writes."""

    def write(script: str) -> Path:
        program, starts = tmp_path / "bin" / "spark-submit", tmp_path / "starts"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho start >> {starts}\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("SPARK_HOME", str(tmp_path))
        for name in ("_active_spark_context", "_gateway", "_jvm"):
            monkeypatch.setattr(SparkContext, name, None)
        return starts

    return write


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize(
    ("script", "how"),
    [
        ("kill -9 $$", "by signal 9"),
        ("kill -15 $$", "by signal 15"),
        ("exit 137", "by signal 9"),  # what the script says of a launcher that was killed
        ("exit 143", "by signal 15"),
    ],
)
def test_a_jvm_that_is_killed_while_it_starts_is_retryable(
    starting: Callable[[str], Path], script: str, how: str, *, filtered: bool
) -> None:
    starts = starting(script)

    with pytest.raises(JvmEnded, match=f"{how} while it started"):
        local_context(1, filtered=filtered)

    assert starts.read_text().count("start") == 1


def test_a_jvm_that_cannot_start_is_a_wrong_setting(starting: Callable[[str], Path]) -> None:
    starts = starting("echo no java >&2; exit 1")

    with pytest.raises(Misconfigured, match="JAVA_HOME"):
        local_context(2)

    assert starts.read_text().count("start") == 2


def test_a_script_of_the_start_that_is_killed_starts_again(
    starting: Callable[[str], Path],
) -> None:
    starts = starting('test $(wc -l < "$(dirname $0)/../starts") -gt 1 && kill -9 $$; exit 1')

    with pytest.raises(JvmEnded, match="signal 9"):  # of the second start
        local_context(1)

    assert starts.read_text().count("start") == 2
