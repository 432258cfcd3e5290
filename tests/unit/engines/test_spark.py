"""How the Spark engine deals tasks, with a context that only notes what it is given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.here import Noted
from tests.support.workers import RUN, extent, gives_back

from extentflow.engines import Task, WorkerSpec
from extentflow.engines.spark import SparkEngine


@dataclass
class Context:
    """A master and the cores that are there now; partitions are kept."""

    master: str
    defaultParallelism: int  # noqa: N815 - Spark's
    dealt: list[list[tuple[Task, ...]]] = field(default_factory=list)

    def accumulator(self, value: object, _param: object) -> object:
        return SimpleNamespace(value=value)

    def setJobGroup(self, *_: str) -> None:  # noqa: N802 - Spark's
        """Nobody cancels anything."""

    def parallelize(self, shares: Sequence[tuple[Task, ...]], parts: int) -> object:
        assert len(shares) == parts
        self.dealt.append(list(shares))
        return SimpleNamespace(foreachPartition=self._run)

    def _run(self, _run: Callable[..., object]) -> None:
        """Nothing is delivered."""


def tasks(count: int) -> list[Task]:
    return [Task((extent(number),)) for number in range(count)]


def dealt(master: str, cores: int, most: int, count: int) -> list[list[int]]:
    """Return the ordinals in each partition."""
    context = Context(master, cores)
    engine = SparkEngine(
        WorkerSpec(gives_back, {}, RUN), cast("Any", context), most=most, evict=lambda _owner: 0
    )

    engine.run(tasks(count), Noted())

    (shares,) = context.dealt
    return [[one.ordinal for task in share for one in task.extents] for share in shares]


@pytest.mark.parametrize("cores", [2, 8, 64])
@pytest.mark.parametrize("master", ["yarn", "spark://host:7077", "k8s://https://api"])
def test_partitions_are_never_more_than_may_run_however_few_executors_are_there_yet(
    master: str, cores: int
) -> None:
    assert dealt(master, cores, most=3, count=8) == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_few_tasks_have_a_partition_each() -> None:
    assert dealt("yarn", 2, most=256, count=3) == [[0], [1], [2]]


def test_where_cores_are_fixed_and_no_more_than_may_run_every_task_has_a_partition() -> None:
    assert dealt("local[2,4]", 2, most=2, count=5) == [[0], [1], [2], [3], [4]]


def test_a_local_context_of_somebody_elses_with_more_cores_than_may_run_is_bounded() -> None:
    assert dealt("local[8]", 8, most=2, count=5) == [[0, 2, 4], [1, 3]]
