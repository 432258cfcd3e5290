"""A streaming query as Spark sees it: offsets, partitions, what reading one does.

Owns: what happens where. Refuses to know: when there is something to do (`looks`), how it is done.

    latestOffset()  driver's machine, one process for the whole query, before every trigger: is
                    there work? A new offset means so, and tells how much; none of it is a position
    partitions()    the same process, once per trigger: tasks, at most as many as slots are free
    read()          executors, once per task and attempt: work is done, receipts come back

Progress is the ledger's and Kafka's. An offset says "from here on look again", so that a checkpoint
may be lost, or be older than what was delivered: nothing is lost or doubled, only receipts are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from extentflow.engines import WorkerSpec
from extentflow.engines.spark import spark_task
from extentflow.spark.fleet import open_draining_worker, open_standing_worker
from extentflow.spark.looks import NOTHING, Drained, Looks, Offset, Standings, open_looks
from extentflow.spark.options import StreamOptions
from extentflow.spark.receipts import Row


class StreamReader(DataSourceStreamReader):
    """Made once on the driver's machine and once for executors; `_looks` is the former's only."""

    def __init__(
        self, options: StreamOptions, look_by: Callable[[StreamOptions], Looks] = open_looks
    ) -> None:
        self._options = options
        self._open = look_by
        self._looks: Looks | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's
        """Return the offset of a query without a checkpoint."""
        return dict(NOTHING)

    def latestOffset(self) -> Offset:  # noqa: N802 - Spark's
        """Return a new offset where there is work. Raises as `Looks.latest`."""
        return dict(self._here().latest())

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        """Return tasks for what there is now, whatever the offsets were; none without news."""
        if start == end:  # a checkpoint's, when the query starts
            self._here().resume(dict(end))
            return []
        return self._here().partitions()

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """Yield a row per extent that came to its end; what is not over is found again."""
        settings, run = self._options.settings.to_map(), self._options.run
        if isinstance(partition, Drained):
            with spark_task(WorkerSpec(open_draining_worker, settings, run)) as worker:
                yield from worker.drained(most=partition.most, seconds=partition.seconds)
        elif isinstance(partition, Standings):
            extents = (one for task in partition.tasks for one in task.extents)
            with spark_task(WorkerSpec(open_standing_worker, settings, run)) as standing:
                yield from standing.delivered(extents, seconds=partition.seconds)
        else:
            raise TypeError(f"Spark did not plan this partition: {partition!r}")

    def _here(self) -> Looks:
        if self._looks is None:
            self._looks = self._open(self._options)
        return self._looks
