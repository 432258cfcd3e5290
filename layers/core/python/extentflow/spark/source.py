"""The data source `extentflow`: its name, its columns, its readers."""

from __future__ import annotations

from uuid import uuid4

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from extentflow.engines.spark import reduce_task_overhead
from extentflow.errors import Misconfigured
from extentflow.spark.batch import BatchReader
from extentflow.spark.options import ReadOptions, StreamOptions
from extentflow.spark.receipts import COLUMNS
from extentflow.spark.streaming import StreamReader


class ExtentflowSource(DataSource):
    """Registered by `extentflow.spark.register`; see there.

    Spark makes it in a Python process beside the driver's JVM, once per `load`. It makes a batch
    reader for every scan that is planned, so wrong options fail the first action, and
    of a streaming reader one on the driver's machine and one for executors, when a query starts.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        reduce_task_overhead()
        # The same in every process that Spark copies this one to.
        self._run = f"stream-{uuid4().hex[:12]}"

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "extentflow"

    def schema(self) -> StructType:
        """The columns of receipts."""
        return COLUMNS

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of a batch query. Raises Misconfigured for wrong options."""
        _require_ours(schema)
        return BatchReader(ReadOptions.read(self.options))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's
        """Return the reader of a streaming query. Raises Misconfigured for wrong options."""
        _require_ours(schema)
        return StreamReader(StreamOptions.read({"run": self._run, **self.options}))


def _require_ours(schema: StructType) -> None:
    # Spark matches rows by place, and a user's schema may differ in what it declares nullable.
    columns = [(field.name, field.dataType) for field in COLUMNS]
    if [(field.name, field.dataType) for field in schema] != columns:
        raise Misconfigured("receipts have columns of their own: leave out .schema(...)")
