"""Receipts as rows: the state of each extent.

job        string   the job's id; `extentflow status` shows it
object     string   s3://bucket/key
extent     int      its ordinal, null where a job has one row, because it has no extents
start      bigint   first byte of its range
end        bigint   the byte behind it
position   bigint   how far it is, as its format counts
records    bigint   records in the topic, of all runs
bad        bigint   bad records
bytes      bigint   fetched from the store by the run that ended it, 0 where it was final before
seconds    double   the same run's time
state      string   DONE, FAILED; PENDING where the connector was paused or stopped meanwhile;
of a job also SUPERSEDED, CANCELLED, or, where its store was unavailable when the
query was planned, PLANNING and RUNNING
reason     string   why it is not DONE
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
from extentflow.model import Extent, ExtentState, Job, Receipt


class Row(NamedTuple):
    """One receipt; Spark matches its members to COLUMNS by place."""

    job: str
    object: str
    extent: int | None
    start: int | None
    end: int | None
    position: int
    records: int
    bad: int
    bytes: int
    seconds: float
    state: str
    reason: str | None


_TEXT, _WHOLE = StringType(), LongType()
_TYPES: tuple[DataType, ...] = (
    *(_TEXT, _TEXT, IntegerType()),
    *(_WHOLE, _WHOLE, _WHOLE, _WHOLE, _WHOLE, _WHOLE, DoubleType()),
    *(_TEXT, _TEXT),
)
COLUMNS = StructType(
    [StructField(name, kind) for name, kind in zip(Row._fields, _TYPES, strict=True)]
)


def is_ours(schema: StructType) -> bool:
    """Return whether a schema has our columns, in our order; rows are matched by place."""
    return [(field.name, field.dataType) for field in schema] == [
        (field.name, field.dataType) for field in COLUMNS
    ]


def is_done(row: Row) -> bool:
    """Return whether a row's extent is DONE."""
    return row.state == ExtentState.DONE.value


def describe_undelivered(row: Row) -> str:
    """Return a line with object, state and reason of a row that is not DONE."""
    return f"{row.object}: {row.state}: {row.reason or 'no reason recorded'}"


def known(job: str, uri: str, item: ExtentItem) -> Row:
    """Return the row of an extent as the ledger has it."""
    return Row(
        job,
        uri,
        item.ordinal,
        item.start,
        item.end,
        item.position,
        item.records,
        item.bad,
        bytes=0,
        seconds=0.0,
        state=item.state.value,
        reason=item.error or None,
    )


def delivered(extent: Extent, receipt: Receipt, item: ExtentItem, job: Job | None) -> Row:
    """Return an extent's row after it was run.

    `item` is how the ledger has it now, `job` the job that ended before the extent did.
    """
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
    return Row(job.id, job.version.uri, None, None, None, 0, 0, 0, 0, 0.0, job.state.value, reason)
