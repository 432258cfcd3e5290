"""Checks of an object's first records, made as a delivery makes them; nothing is sent.

Tests: unit/cli/test_dry_runs.py
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from extentflow.config.connector import ConnectorConfig
from extentflow.delivery.dead_letters import describe
from extentflow.errors import CorruptRecord, contain_defects
from extentflow.formats import SchemaFormat
from extentflow.kafka.topic_limits import TopicLimits
from extentflow.model import Content, Extent
from extentflow.wiring import Runtime
from extentflow.wiring.extents import UNLIMITED, least_limit, preview, rejected


def check_first_records(
    runtime: Runtime,
    config: ConnectorConfig,
    revision: int,
    extent: Extent,
    content: Content,
    *,
    sized: bool,
) -> Mapping[str, str]:
    """Raise what delivery of an extent would raise before or at its first records.

    Returns notes about topics that delete these records soon after they arrive, by their names.
    `content` is what its job pins. Reads what states the columns, or SAMPLE_BYTES of lines.
    `sized`: the topics exist, which may refuse records.
    """
    notes: dict[str, str] = {}

    def note(limits: TopicLimits, count: int, of: int) -> None:
        notes[limits.topic] = f"{extent.uri}: {limits.describe_deleted(count, of)}"

    with contain_defects(extent.uri):
        limit = least_limit(runtime, config, extent)[0] if sized else UNLIMITED
        made = preview(
            runtime,
            config,
            revision,
            extent,
            content,
            partitions=lambda topic: runtime.topic(topic).partitions,
            limit_bytes=limit,
            settle=runtime.schemas.check,
        )
        if sized:
            made = replace(made, acceptance=replace(runtime.acceptance, aged=note))
        reject = partial(rejected, runtime, config, extent) if sized else lambda _records: ()
        bad = made.first_bad(extent, reject)
    if bad is not None and config.errors_tolerance != "all":
        raise CorruptRecord(describe(extent, bad, made.format.location_unit))
    return notes


def check_stated_columns(
    runtime: Runtime, config: ConnectorConfig, revision: int, extent: Extent, content: Content
) -> None:
    """Raise what delivery of an extent would raise for the columns that its object states.

    Formats that do not state their columns are not read. Topics need not exist.
    """
    with contain_defects(extent.uri):
        made = preview(
            runtime,
            config,
            revision,
            extent,
            content,
            partitions=lambda _topic: UNLIMITED,
            settle=runtime.schemas.check,
        )
        if isinstance(made.format, SchemaFormat):
            made.first_bad(extent, lambda _records: ())
