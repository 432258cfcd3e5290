"""What Spark's tasks do with Kafka records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from extentflow.engines.spark import noted_errors
from extentflow.spark.lake_rows import RowReader

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(records: DataFrame, task: Task, kind: StructType) -> DataFrame:
    """Return `records.mapInArrow(task, kind)`, without pandas, which Arrow's path does not use.

    Spark 4.0 requires pandas for the call itself (pyspark/sql/pandas/map_ops.py), not for the task.
    """
    udf = UserDefinedFunction(task, kind, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*[records[name] for name in records.columns])
    mapped = records._jdf.mapInArrow(column._jc, False, None)  # noqa: SLF001, FBT003 - Spark's own
    return DataFrame(mapped, records.sparkSession)


def rows_in_arrow(reader: RowReader) -> Task:
    """Return the task that decodes records to rows with the reader's columns."""
    return partial(_rows, reader)


def _rows(reader: RowReader, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with noted_errors():
        for decoded in reader.rows(batches):
            yield decoded.rows
