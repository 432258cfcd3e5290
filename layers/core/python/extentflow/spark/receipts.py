"""Receipts as rows: the state of each extent.

Tests: unit/spark/test_tasks.py, unit/spark/test_source.py
"""

from typing import NamedTuple

from pyspark.sql.types import (
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from extentflow.ledger import ExtentItem
from extentflow.model import Extent, Job, Receipt


class Row(NamedTuple):
    """One receipt; Spark matches its members to COLUMNS by place."""

    job: str  # its id, as `extentflow status` shows it
    object: str  # s3://bucket/key
    extent: int | None  # its ordinal; None where a job without extents has one row
    start: int | None  # first byte of its range
    end: int | None  # the byte behind it
    position: int  # how far it is, as its format counts
    records: int  # in the topic, of all runs
    bad: int
    filtered: int
    bytes: int  # fetched from the store by the run that ended it; 0 where it was final before
    seconds: float  # of the same run
    # Also PENDING if its connector was paused; of a job SUPERSEDED, CANCELLED or, if its store was
    # unavailable, PLANNING and RUNNING.
    state: str  # DONE or FAILED
    reason: str | None  # why it is not DONE


_TEXT, _WHOLES = StringType(), (LongType(),) * 7
_TYPES: tuple[DataType, ...] = (_TEXT, _TEXT, IntegerType(), *_WHOLES, DoubleType(), _TEXT, _TEXT)
COLUMNS = StructType([StructField(*column) for column in zip(Row._fields, _TYPES, strict=True)])


def describe_undelivered(row: Row) -> str:
    """Return a line with object, state and reason of a row that is not DONE."""
    return f"{row.object}: {row.state}: {row.reason or 'no reason recorded'}"


def known(job: str, uri: str, item: ExtentItem) -> Row:
    """Return the row of an extent as the ledger has it."""
    place = (item.ordinal, item.start, item.end, item.position)
    counts = (item.records, item.bad, item.filtered)
    return Row(job, uri, *place, *counts, 0, 0.0, item.state.value, item.error or None)


def delivered(extent: Extent, receipt: Receipt, item: ExtentItem, job: Job | None) -> Row:
    """Return an extent's row after a run; `job` is its job, if that ended before the extent."""
    row = known(extent.job, extent.version.uri, item)
    return row._replace(
        start=extent.start,
        end=extent.end,
        bytes=receipt.bytes_read,
        seconds=receipt.seconds,
        state=row.state if job is None else job.state.value,
        reason=receipt.reason or row.reason,
    )


def whole(job: Job, why: str = "") -> Row:
    """Return the one row of a job that has no extents, or whose extents could not be found out."""
    reason = why or job.reason or None
    place, counts = (None, None, None, 0), (0, 0, 0)
    return Row(job.id, job.version.uri, *place, *counts, 0, 0.0, job.state.value, reason)
