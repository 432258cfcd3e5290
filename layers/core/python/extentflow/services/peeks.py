"""What the first records of an object would be: without Kafka, and without a ledger that stays.

Tests: unit/cli/test_peek_commands.py
"""

import os
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow as pa

from extentflow.config.column_lists import written_type
from extentflow.config.columnar import NONE as ROWS
from extentflow.config.connector import ConnectorConfig
from extentflow.delivery.dead_letters import describe
from extentflow.delivery.pipeline import Pipeline
from extentflow.errors import Misconfigured, Permanent, contain_defects
from extentflow.formats import SchemaFormat
from extentflow.jobs.addresses import KeyScope, select_all
from extentflow.jobs.planner import Planner
from extentflow.kafka import Records
from extentflow.kafka.record_headers import Headers
from extentflow.model import Extent, ObjectVersion
from extentflow.services.orders import Order, Orders
from extentflow.wiring.extents import PinnedExtent, Previews
from extentflow.wiring.objects import ObjectAccess
from extentflow.wiring.options import job_request

MOST_CHUNKS = 64


@dataclass(frozen=True, slots=True)
class PeekedRecord:
    """One record as it would be sent; `topic` may depend on the record.

    `timestamp` is in milliseconds since 1970, None where it is the time at which a record is sent.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Peek:
    """An object: what decides its format, its cut, its columns, its first records.

    `bad` are the first bad records of the same part, in words. `read` counts the records of that
    part, `filtered` those of them that transforms removed. `more`: the address has other objects.
    `columnar` is the encoding of values that hold many rows, of which `records` shows the rows as
    JSON; empty: a record is a row.
    """

    version: ObjectVersion
    format: str
    format_source: str
    compression: str
    facts: str
    extents: tuple[tuple[int, int], ...]
    columns: tuple[tuple[str, str], ...]
    records: tuple[PeekedRecord, ...]
    bad: tuple[str, ...]
    read: int
    filtered: int
    more: bool
    columnar: str = ""


@dataclass(frozen=True, slots=True)
class _FirstPart:
    """The first records of an extent, the bad ones before them, and counts of all of its part."""

    records: tuple[PeekedRecord, ...] = ()
    bad: tuple[str, ...] = ()
    read: int = 0
    filtered: int = 0


@dataclass(frozen=True, slots=True)
class Peeks:
    """Reads first records; `orders` and `planner` use a ledger that need not stay."""

    orders: Orders
    objects: ObjectAccess
    planner: Planner
    previews: Previews

    def first(self, order: Order, *, limit: int) -> Peek:
        """Return the first object of an order, with at most `limit` records.

        Reads what planning reads, and the first part of the object. Raises Misconfigured where
        there is none, else as planning and delivery do.
        """
        config, revision = order.config, order.revision
        store, scope = self.objects.store(config, revision), KeyScope.of(config)
        found = list(islice(select_all(store, scope, order.addresses), 2))
        if not found:
            raise Misconfigured(
                f"there is no object below {next(iter(order.addresses), scope.source)};"
                " check the address"
            )
        version, cores = found[0], os.cpu_count() or 1
        content = self.objects.recognised(config, revision, version)
        request = job_request(config, revision, version, "none", cores, content=content)
        if request.unfit:
            raise Permanent(request.unfit)
        job, extents = self.planner.dry_run(request)
        columns: tuple[tuple[str, str], ...] = ()
        part = _FirstPart()
        if extents:
            with contain_defects(version.uri):
                first = extents[0]
                as_rows = replace(config, columnar_encoding=ROWS, columnar_groups=())
                at = PinnedExtent(as_rows, revision, first, job.content)
                opened = self.previews.open(at, partitions=lambda _topic: 1)
                columns = _columns(opened, first)
                part = _first(opened, first, limit)
        return Peek(
            version=version,
            format=job.format,
            format_source=config.format_source(version.key),
            compression=_compression(config, version, job.content.compression),
            facts=job.plan.facts,
            extents=tuple((extent.start, extent.end) for extent in extents),
            columns=columns,
            records=part.records,
            bad=part.bad,
            read=part.read,
            filtered=part.filtered,
            more=len(found) > 1,
            columnar=config.columnar_encoding if config.columnar else "",
        )


def _compression(config: ConnectorConfig, version: ObjectVersion, recognised: str) -> str:
    return recognised or config.stated_compression(version.key)


def _columns(opened: Pipeline, extent: Extent) -> tuple[tuple[str, str], ...]:
    """Return names and types of the columns that are decoded, types as `csv.schema` takes them."""
    if isinstance(opened.format, SchemaFormat):
        schema: pa.Schema | None = opened.format.schema(opened.source)
    else:
        decoded = opened.format.decode(opened.source, extent, 0)
        first = next(iter(decoded), None)
        schema = None if first is None else first.batch.schema
    return () if schema is None else tuple((one.name, written_type(one.type)) for one in schema)


def _first(opened: Pipeline, extent: Extent, limit: int) -> _FirstPart:
    """Return the first records of an extent, and the first bad ones before them."""
    records: list[PeekedRecord] = []
    bad: list[str] = []
    read = filtered = 0
    with closing(opened.convert(extent, 0)) as chunks:
        # A filter may drop every record of a large object.
        for chunk in islice(chunks, MOST_CHUNKS):
            bad += [describe(extent, one, opened.format.location_unit) for one in chunk.bad]
            read += len(chunk.locations) + len(chunk.bad) + chunk.filtered
            filtered += chunk.filtered
            for part, _ in chunk.by_topic():
                records += (_record(part, row) for row in range(min(limit, len(part.values))))
            if len(records) >= limit or bad:
                break
    return _FirstPart(tuple(records[:limit]), tuple(bad[:limit]), read, filtered)


def _record(part: Records, row: int) -> PeekedRecord:
    times, headers = part.timestamps, part.headers
    return PeekedRecord(
        part.topic,
        None if part.keys is None else part.keys[row].as_py(),
        part.values[row].as_py(),
        None if times is None else times[row].as_py() or None,  # 0 is the client's time
        () if headers is None else tuple(headers[row]),
    )
