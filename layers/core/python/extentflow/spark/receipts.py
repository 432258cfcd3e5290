"""Receipts as rows: what became of each extent.

Owns: columns. Refuses to know: who delivers, when.

    job        string   the job's id; `extentflow status` shows it
    object     string   s3://bucket/key
    extent     int      its ordinal, null where a whole job has one row
    start      bigint   first byte of its range
    end        bigint   the byte behind it
    position   bigint   how far it is, as its format counts
    records    bigint   records in the topic, whoever delivered them
    bad        bigint   bad records
    bytes      bigint   fetched from the store by this action
    seconds    double   spent by this action
    state      string   DONE, FAILED; of a job also SUPERSEDED, CANCELLED
    reason     string   why it is not DONE
"""

from extentflow.ledger import ExtentItem
from extentflow.model import Extent, Job, Receipt

COLUMNS = (
    "job string, object string, extent int, start bigint, end bigint, position bigint, "
    "records bigint, bad bigint, bytes bigint, seconds double, state string, reason string"
)

Row = tuple[
    str, str, int | None, int | None, int | None, int, int, int, int, float, str, str | None
]
STATE = -2  # where a row says it


def delivered(extent: Extent, receipt: Receipt, item: ExtentItem, job: Job | None) -> Row:
    """Return an extent's row after this action ran it.

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
        receipt.reason or None,
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


def ended(job: Job) -> Row:
    """Return the one row of a job that nothing can be delivered of."""
    why = job.reason or None
    return (job.id, job.version.uri, None, None, None, 0, 0, 0, 0, 0.0, job.state.value, why)
