"""Read the rows of columnar topics with the product's consumer, by members that come and go."""

import time
from collections.abc import Sequence
from random import Random
from uuid import uuid4

import pyarrow as pa
from tests.faults.objects import ARROW

from extentflow.consumer import ConsumedBatch, TopicConsumer
from extentflow.errors import Retryable

ATTEMPTS = 12
# Longer than the broker is down or paused in a later round.
IDLE_SECONDS = 30.0
# A member takes fewer batches; the last one reads to the end.
MOST_BATCHES = 30
LEAVING_MEMBERS = 3
_TYPES = {each.name: each.type for each in ARROW}
# `row` counts within the record at `position`; `shaped`: columns have the names and types of ARROW.
FOUND = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("position", pa.int64()),
        pa.field("row", pa.int64()),
        pa.field("shaped", pa.bool_()),
        *ARROW,
    ]
)


class RowsUnreadError(Exception):
    """The consumer did not read to the end."""


def read_rows(bootstrap_servers: str, topics: Sequence[str], random: Random) -> pa.Table:
    """Return all committed rows of a topic, or of the topics of column groups; see FOUND.

    Raises:
        RowsUnreadError: no attempt read to the end.
        CorruptRecord: a value cannot be decoded, or batches of a column group are missing.
    """
    said = ""
    for _ in range(ATTEMPTS):
        try:
            return _read(bootstrap_servers, topics, random)
        # The broker is down, in a later round. Whether it committed is unknown: all again.
        except (Retryable, RowsUnreadError) as exc:
            said = f"{type(exc).__name__}: {exc}"
    raise RowsUnreadError(f"{', '.join(topics)}: {said}")


def _read(bootstrap_servers: str, topics: Sequence[str], random: Random) -> pa.Table:
    kafka, group = {"bootstrap.servers": bootstrap_servers}, f"rows-{uuid4().hex}"
    parts = [FOUND.empty_table()]
    for number in range(LEAVING_MEMBERS + 1):
        most = random.randrange(1, MOST_BATCHES) if number < LEAVING_MEMBERS else None
        with TopicConsumer(kafka, topics, group=group, join=len(topics) > 1) as member:
            if _take(member, parts, most, random):
                break
            member.commit()
    return pa.concat_tables(parts)


def _take(member: TopicConsumer, parts: list[pa.Table], most: int | None, random: Random) -> bool:
    """Add up to `most` batches, the last one in part; return whether there are no more."""
    arrived, count = time.monotonic(), 0
    for batch in member.batches(until_end=True, idle_seconds=IDLE_SECONDS):
        arrived, count = time.monotonic(), count + 1
        if count == most:
            rows = random.randrange(batch.rows.num_rows + 1)
            member.handled(batch, rows)
            parts.append(_table(batch, rows))
            return False
        parts.append(_table(batch, batch.rows.num_rows))
    if time.monotonic() - arrived >= IDLE_SECONDS:
        raise RowsUnreadError(f"no record for {IDLE_SECONDS:.0f} s")
    return True


def _table(batch: ConsumedBatch, rows: int) -> pa.Table:
    """Return the first `rows` rows of a batch; columns that it lacks are null."""
    taken = batch.rows.slice(0, rows)
    found = {each.name: each.type for each in taken.schema}
    columns = {
        "topic": pa.array([batch.topic] * rows, pa.string()),
        "partition": pa.array([batch.partition] * rows, pa.int32()),
        "position": pa.array([batch.offset] * rows, pa.int64()),
        "row": pa.array(range(batch.row, batch.row + rows), pa.int64()),
        "shaped": pa.array([batch.facts is not None and found == _TYPES] * rows, pa.bool_()),
    }
    for name, kind in _TYPES.items():
        same = found.get(name) == kind
        columns[name] = taken.column(name) if same else pa.nulls(rows, kind)
    return pa.table(columns, FOUND)
