"""Checks of objects' first records, made as a delivery makes them; nothing is sent.

Tests: unit/cli/test_dry_runs.py
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from extentflow.columnar.topic_schemas import TopicSchemas
from extentflow.config.connector import ConnectorConfig
from extentflow.config.registry import registries
from extentflow.delivery.acceptance import Acceptance
from extentflow.delivery.dead_letters import not_tolerated
from extentflow.errors import (
    ExtentflowError,
    IncompatibleSchema,
    Misconfigured,
    RegistryUnavailable,
    UnsupportedType,
    contain_defects,
)
from extentflow.jobs.planner import Planner
from extentflow.kafka.topic_admin import TopicFacts
from extentflow.kafka.topic_limits import TopicLimits
from extentflow.model import ObjectVersion
from extentflow.retry import RetryPolicy
from extentflow.wiring.extents import UNLIMITED, PinnedExtent, Previews, least_limit, rejected
from extentflow.wiring.objects import JobRequests

# Of a run of so many objects, the columns are checked before it starts.
CHECKED_OBJECTS = 8
# A registry that does not answer ends a run before it makes anything, as brokers do.
REGISTRY_RETRIES = RetryPolicy(total_seconds=10.0, longest_pause_seconds=1.0)


@dataclass(frozen=True, slots=True)
class Trials:
    """Checks first records. `topic` returns a topic's facts, `schemas` those of columnar values.

    `acceptance` returns what topics take, beside sizes.
    """

    requests: JobRequests
    planner: Planner
    previews: Previews
    topic: Callable[[str], TopicFacts]
    schemas: Callable[[], TopicSchemas]
    acceptance: Callable[[], Acceptance]

    def check_first_records(self, at: PinnedExtent, *, sized: bool) -> Mapping[str, str]:
        """Raise what delivery of an extent would raise before or at its first records.

        Returns notes about topics that delete these records soon after they arrive, by their names.
        Reads what states the columns, or SAMPLE_BYTES of lines. `sized`: the topics exist, which
        may refuse records.
        """
        config, extent = at.config, at.extent
        notes: dict[str, str] = {}

        def note(limits: TopicLimits, count: int, of: int) -> None:
            notes[limits.topic] = f"{extent.uri}: {limits.describe_deleted(count, of)}"

        with contain_defects(extent.uri):
            limit, topic = least_limit(self.topic, config, extent) if sized else (UNLIMITED, "")
            made = self.previews.open(
                at,
                partitions=lambda topic: self.topic(topic).partitions,
                limit_bytes=limit,
                settle=self.schemas().check,
            )
            if sized:
                made = replace(made, acceptance=replace(self.acceptance(), aged=note))
            reject = partial(rejected, config, limit, topic) if sized else lambda _records: ()
            bad = made.first_bad(extent, reject)
        if bad is not None and config.errors_tolerance != "all":
            raise not_tolerated(extent, bad, made.format.location_unit)
        return notes

    def check_columns(
        self, config: ConnectorConfig, revision: int, versions: Sequence[ObjectVersion]
    ) -> None:
        """Raise Misconfigured where no object has the columns that the connector names or encodes.

        Only of a few objects: of many, those that can be delivered are, and the run reports others.
        Topics need not exist. Raises RegistryUnavailable where the registry does not answer.
        """
        few = len(versions) <= CHECKED_OBJECTS
        named = config.columnar or config.steps or config.select or config.extracted_columns
        asked = any(registries(config.converter_options))
        if not (asked or (few and named)):
            return
        problems: list[str] = []
        for version in versions if few else versions[:1]:
            request = self.requests.make(config, revision, version, 1)
            try:
                job, extents = self.planner.dry_run(request)
                for extent in extents[:1]:
                    pinned = PinnedExtent(config, revision, extent, job.content)
                    REGISTRY_RETRIES.call(partial(self._check_opens, pinned))
            except (UnsupportedType, IncompatibleSchema) as exc:
                problems.append(str(exc))
            except RegistryUnavailable:
                raise
            except ExtentflowError:  # the run reports it
                return
            else:
                return
        if few:
            raise Misconfigured(problems)

    def starts_with_array(self, at: PinnedExtent) -> bool:
        """Return whether an object is JSON lines, and its first line an array.

        Reads SAMPLE_BYTES. An object that cannot be read is no error: the run reports it.
        """
        extent = at.extent
        if extent.format != "jsonl":
            return False
        try:
            with contain_defects(extent.uri):
                first = next(iter(self.previews.decoded(at)), None)
        except ExtentflowError:
            return False
        # With a schema there are columns in place of lines, and an array is a bad record.
        if first is None or not first.batch.num_rows or first.batch.schema.names[0] != "value":
            return False
        line = first.batch.column(0)[0].as_py()
        return isinstance(line, bytes) and line.lstrip().startswith(b"[")

    def first_array(
        self, config: ConnectorConfig, revision: int, versions: Sequence[ObjectVersion]
    ) -> str:
        """Return the address of the first object, if it `starts_with_array`; else nothing."""
        try:
            request = self.requests.make(config, revision, versions[0], 1)
            if request.format != "jsonl":
                return ""
            job, extents = self.planner.dry_run(request)
        except ExtentflowError:  # the run reports it
            return ""
        found = any(
            self.starts_with_array(PinnedExtent(config, revision, one, job.content))
            for one in extents[:1]
        )
        return versions[0].uri if found else ""

    def _check_opens(self, at: PinnedExtent) -> None:
        """Raise what delivery of an extent would for its columns; bad records are no error."""
        with contain_defects(at.extent.uri):
            made = self.previews.open(
                at, partitions=lambda _topic: UNLIMITED, settle=self.schemas().check
            )
            made.first_bad(at.extent, lambda _records: ())
