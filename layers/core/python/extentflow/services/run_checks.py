"""What is checked before a run starts, and what a dry run finds out about single objects.

Tests: unit/services/test_runs.py, unit/cli/test_dry_runs.py
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from extentflow.config.connector import NOTHING_FOUND, ConnectorConfig
from extentflow.errors import Misconfigured, UnsupportedFormat
from extentflow.jobs.planner import JobRequest
from extentflow.kafka.topic_admin import NewTopics
from extentflow.ledger.summaries import summaries
from extentflow.model import Content, ObjectVersion
from extentflow.services import run_notes
from extentflow.services.driving import require_reachable
from extentflow.services.orders import MadeOrder, Order
from extentflow.services.plans import Again, CheckedTopics, ObjectPlan
from extentflow.services.run_control import EngineChoice
from extentflow.services.run_topics import RunTopics
from extentflow.services.trials import Trials
from extentflow.wiring.deliverability import Deliverability
from extentflow.wiring.extents import PinnedExtent

# Names the note that a plan has once; no topic has this name.
ARRAY = "a JSON array"


@dataclass(frozen=True, slots=True)
class RunChecks:
    """Checks orders before their objects are delivered.

    `require_app` binds the ledger to this process's `app.id`. `notify` receives messages that are
    no errors.
    """

    require_app: Callable[[], None]
    deliverability: Deliverability
    trials: Trials
    topics: RunTopics
    notify: Callable[[str], object]

    def require_startable(self, order: Order, engine: EngineChoice) -> None:
        """Raise what prevents the run of an order, as far as that needs no request to Kafka."""
        config = order.config
        if engine.remote:
            require_reachable(config, order.addresses)
        elif engine.master is None and (problems := self.deliverability.problems(config)):
            # Its workers are on this machine; a job would keep this revision of the connector.
            raise Misconfigured(problems)
        self.require_app()

    def prepare(
        self, order: Order, versions: Sequence[ObjectVersion], topics: NewTopics | None
    ) -> None:
        """Create missing topics, and raise what prevents the delivery of all objects."""
        if not versions:
            return
        config, recognised = order.config, self.recognised(order)
        if isinstance(order, MadeOrder):
            for line in run_notes.describe_formats(_formats(config, versions, recognised)):
                self.notify(line)
        self.trials.check_columns(config, order.revision, versions)
        if uri := self.trials.first_array(config, order.revision, versions):
            self.notify(run_notes.describe_array(uri))
        self.topics.create(order, versions, recognised, topics)
        self.topics.require(order, versions, recognised)

    def recognised(self, order: Order) -> Callable[[ObjectVersion], Content]:
        """Return what returns the format and compression that an object's content shows."""
        return lambda version: self.trials.requests.recognised(
            order.config, order.revision, version
        )

    def object_plan(
        self,
        config: ConnectorConfig,
        request: JobRequest,
        checked: CheckedTopics,
        since: float | None,
    ) -> ObjectPlan:
        """Cut one object; raises what prevents the delivery of its first records.

        `since`: when the second delivery began that is planned (`inf`: it would begin now).
        """
        planner, version = self.trials.planner, request.version
        job, extents = planner.dry_run(request)
        topic = config.topic_for(version)
        usable = checked.usable(config.written_topics(topic))
        if extents:
            first = PinnedExtent(config, request.revision, extents[0], job.content)
            for name, line in self.trials.check_first_records(first, sized=usable).items():
                checked.note(name, line)
            if self.trials.starts_with_array(first):
                checked.note(ARRAY, run_notes.describe_array(version.uri))
        known = planner.newest(request)  # the job of the dry run is not registered
        again, before = (None, None) if since is None else self._again(request, since)
        return ObjectPlan(
            version=version,
            format=job.format,
            format_source=config.format_source(version.key),
            compression=config.compression_for(version.key, job.content),
            compression_source=config.compression_source(version.key),
            facts=job.plan.facts,
            topic=topic,
            job=(known or job).id,
            state=known.state if known else "new",
            revision=(known or job).revision,
            extent_bytes=job.plan.target_bytes,
            extents=tuple((extent.start, extent.end) for extent in extents),
            again=again,
            delivered_before=before,
        )

    def _again(self, request: JobRequest, since: float) -> tuple[Again, int]:
        """Return what a second delivery would do with an object, and its records before that."""
        planner = self.trials.planner
        found, earlier = planner.second_delivery(request, since)
        others = (job for job in request.others() if job.cluster == request.cluster)
        known = {job.id: job for job in (*earlier, *others)}
        facts = summaries(planner.ledger, known.values())
        before = sum(one.progress.records for one in facts.values())
        if found is None:
            return Again.FULL, before
        return Again.CONTINUE if found.state.open else Again.NOTHING, before


def _formats(
    config: ConnectorConfig,
    versions: Sequence[ObjectVersion],
    recognised: Callable[[ObjectVersion], Content],
) -> Mapping[tuple[str, str], Counter[str]]:
    """Count the objects of each format, and of what decides it, by folder."""
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for version in versions:
        key = version.key
        with suppress(UnsupportedFormat):  # the checks report it
            content = recognised(version) if config.needs_content(key) else NOTHING_FOUND
            name = config.format_for(key, content.format)
            found[name, config.format_source(key)][key.rpartition("/")[0]] += 1
    return found
