"""A batch query as Spark sees it: partitions, and what reading one does.

Owns: which partitions a query has, when it fails. Refuses to know: planning, delivering, columns.

    partitions()   on the driver's machine, in a process of the JVM's, once per scan that is
                   planned: objects are selected, jobs registered and cut. Spark keeps a DataFrame's
                   plan: `collect` twice is one query, `count` another
    read()         on executors, once per partition and attempt: extents are run until they are
                   final, in a worker that lives as long as its Python process

Partitions of pending extents come first, the largest in front, then the rows of what was final
before. The last partition runs whatever is left, waits for what others hold, closes the jobs and
announces their ends; with FAILFAST it fails where something is not DONE. No other one does, because
Spark ends the tasks of a query as soon as one of them failed for good.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from extentflow.engines import Task, WorkerSpec
from extentflow.engines.spark import deal, reduce_task_overhead, spark_task
from extentflow.errors import Permanent
from extentflow.spark import receipts
from extentflow.spark.executor import open_reporting_worker
from extentflow.spark.planning import plan
from extentflow.spark.receipts import Row
from extentflow.wiring import Runtime

if TYPE_CHECKING:
    from extentflow.spark.options import ReadOptions

KNOWN_ROWS = 4_096
SHOWN = 3
# The same for all queries, so that the next one finds workers, slots and clients warm.
RUN = "source"


@dataclass
class Pending(InputPartition):
    """Extents to deliver."""

    tasks: tuple[Task, ...]


@dataclass
class Known(InputPartition):
    """Rows of what is final already."""

    rows: tuple[Row, ...]


@dataclass
class Last(InputPartition):
    """The jobs of the query, to be finished."""

    jobs: tuple[str, ...]


class BatchReader(DataSourceReader):
    """Plans on the driver's machine, reads on executors."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._spec = WorkerSpec(open_reporting_worker, options.settings.to_map(), RUN)

    def partitions(self) -> Sequence[InputPartition]:
        """Return what is to deliver, what is known already, and the last one. Raises as `plan`."""
        reduce_task_overhead()
        found = plan(self._options, Runtime(self._options.settings))
        share = max(1, min(found.most, len(found.tasks)))
        pending = [Pending(tasks) for tasks in deal(found.tasks, share)]
        pages = range(0, len(found.rows), KNOWN_ROWS)
        known = [Known(tuple(found.rows[first : first + KNOWN_ROWS])) for first in pages]
        return [*(one for one in pending if one.tasks), *known, Last(tuple(found.jobs))]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """Yield the rows of a partition, after delivering what it holds.

        Raises:
            Permanent: in the last one, with FAILFAST: something is not DONE.
        """
        if isinstance(partition, Pending):
            with spark_task(self._spec) as worker:
                for task in partition.tasks:
                    yield from self._shown(worker.deliver(task.extents))
        elif isinstance(partition, Known):
            yield from self._shown(iter(partition.rows))
        elif isinstance(partition, Last):
            with spark_task(self._spec) as worker:
                unfit = worker.finish(partition.jobs)
            if unfit and not self._options.permissive:
                raise Permanent(_told(unfit))
        else:
            raise TypeError(f"Spark did not plan this partition: {partition!r}")

    def _shown(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield rows; with FAILFAST only those of DONE, for the last partition tells the others."""
        return (row for row in rows if self._options.permissive or receipts.is_done(row))


def _told(unfit: Sequence[Row]) -> str:
    reasons = list(dict.fromkeys(receipts.told(row) for row in unfit))
    more = f"; and {len(reasons) - SHOWN} more" if len(reasons) > SHOWN else ""
    return (
        f"not everything is delivered: {'; '.join(reasons[:SHOWN])}{more}; everything else is. "
        "Mend the cause and `load` anew, or read with mode=PERMISSIVE"
    )
