"""Receipts as rows: what became of each extent.

Owns: columns. Refuses to know: who delivers, when.

    job        string   the job's id; `extentflow status` shows it
    object     string   s3://bucket/key
    extent     int      its ordinal, null where a job has one row, because it has no extents
    start      bigint   first byte of its range
    end        bigint   the byte behind it
    position   bigint   how far it is, as its format counts
    records    bigint   records in the topic, whoever delivered them
    bad        bigint   bad records
    bytes      bigint   fetched from the store by the run that ended it, 0 where it was final before
    seconds    double   the same run's time
    state      string   DONE, FAILED; of a job also SUPERSEDED, CANCELLED, or, where its store was
                        away when the query was planned, PLANNING and RUNNING
    reason     string   why it is not DONE
"""

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

Row = tuple[
    str, str, int | None, int | None, int | None, int, int, int, int, float, str, str | None
]

_TYPES: dict[str, DataType] = {
    "job": StringType(),
    "object": StringType(),
    "extent": IntegerType(),
    "start": LongType(),
    "end": LongType(),
    "position": LongType(),
    "records": LongType(),
    "bad": LongType(),
    "bytes": LongType(),
    "seconds": DoubleType(),
    "state": StringType(),
    "reason": StringType(),
}
COLUMNS = StructType([StructField(name, kind) for name, kind in _TYPES.items()])


def is_ours(schema: StructType) -> bool:
    """Return whether a schema has our columns, in our order; rows are matched by place."""
    return [(field.name, field.dataType) for field in schema] == list(_TYPES.items())


def is_done(row: Row) -> bool:
    """Return whether a row's extent is DONE."""
    return row[-2] == ExtentState.DONE.value


def told(row: Row) -> str:
    """Return in words what is not DONE."""
    return f"{row[1]}: {row[-2]}: {row[-1] or 'no reason is known'}"


def delivered(extent: Extent, receipt: Receipt, item: ExtentItem, job: Job | None) -> Row:
    """Return an extent's row after it was run.

    `item` is how the ledger has it now, `job` the job that ended before the extent did.
    """
    return (
        extent.job,
        extent.version.uri,
        extent.ordinal,
        extent.start,
        extent.end,
        item.position,
        item.records,
        item.bad,
        receipt.bytes_read,
        receipt.seconds,
        job.state.value if job is not None else item.state.value,
        receipt.reason or item.error or None,
    )


def known(job: Job, item: ExtentItem) -> Row:
    """Return the row of an extent that was final before."""
    return (
        job.id,
        job.version.uri,
        item.ordinal,
        item.start,
        item.end,
        item.position,
        item.records,
        item.bad,
        0,
        0.0,
        item.state.value,
        item.error or None,
    )


def whole(job: Job, why: str = "") -> Row:
    """Return the one row of a job that has no extents, or whose extents could not be found out."""
    reason = why or job.reason or None
    return (job.id, job.version.uri, None, None, None, 0, 0, 0, 0, 0.0, job.state.value, reason)
