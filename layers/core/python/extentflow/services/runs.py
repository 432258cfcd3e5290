"""Deliveries that this process drives: plan, run, replay and resume."""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import uuid4

from extentflow.config.connector import NOTHING_FOUND, ConnectorConfig
from extentflow.engines import Engine
from extentflow.engines.submitted_runs import OnCompletion, SubmittedRuns
from extentflow.errors import (
    Conflict,
    CorruptRecord,
    Defect,
    ExtentflowError,
    IncompatibleSchema,
    Misconfigured,
    Permanent,
    UnsupportedFormat,
    UnsupportedType,
)
from extentflow.jobs import preflight
from extentflow.jobs.addresses import KeyScope
from extentflow.jobs.planner import JobRequest, check_cluster
from extentflow.jobs.run import (
    RunReport,
    known_job,
    publish_unless_unavailable,
    report,
    report_of,
)
from extentflow.kafka.topic_admin import NewTopics
from extentflow.ledger.notes import NoteKind
from extentflow.model import Content, JobState, ObjectVersion
from extentflow.services import run_notes
from extentflow.services.driving import Drivers, require_reachable
from extentflow.services.failures import ENDED
from extentflow.services.orders import MadeOrder, Order, without_coverage
from extentflow.services.plans import CheckedTopics, FailedPlans, ObjectPlan, Plans
from extentflow.services.replayable_jobs import ReplayableJobs
from extentflow.services.run_control import INLINE_HERE, EngineChoice, RunControl
from extentflow.services.run_topics import RunTopics
from extentflow.services.selections import Selection, Selections
from extentflow.services.trials import check_first_records, check_stated_columns
from extentflow.wiring import Runtime, open_engine
from extentflow.wiring.functions import open_job_events
from extentflow.wiring.options import encryption

# Of a run of so many objects, the columns are checked before it starts.
CHECKED_OBJECTS = 8

# An interrupted second delivery continues within this time; later, `--again` is a new one.
AGAIN: NoteKind[float] = NoteKind(
    "again#",
    lambda since: {"since": repr(since)},
    lambda facts: float(facts["since"]),
    keep_seconds=30 * 86_400.0,
)


@dataclass(frozen=True, slots=True)
class Runs:
    """Plans, runs and replays jobs; `open_engine` may be a double."""

    runtime: Runtime
    control: RunControl = field(default_factory=RunControl)
    open_engine: Callable[..., Engine] = open_engine

    @property
    def selections(self) -> Selections:
        """The objects that orders mean."""
        return Selections(self.runtime, self.control)

    def plan(
        self, order: Order, *, cores: int | None = None, topics: NewTopics | None = None
    ) -> Plans:
        """Return how a connector cuts the addressed objects now; nothing is written.

        Problems are topics that take no records, or are missing and not created as in `run`. Others
        are missing secrets and files of the producer, and first records that cannot be delivered.
        """
        runtime, config = self.runtime, order.config
        problems = self._problems_here(config)
        checked = self._topics.checks(order, topics, problems)
        others = self.selections.others(order)
        plans: list[ObjectPlan] = []
        with self.control.counting("planning") as count:
            for version in self.selections.objects(order):
                count(len(plans))
                request = runtime.request(config, order.revision, version, cores or _cores())
                request = replace(request, others=partial(others, version))
                try:
                    plans.append(self._object_plan(config, request, checked))
                except (Misconfigured, Permanent, CorruptRecord, Defect) as exc:
                    problems.append(str(exc))
        new = [one.version for one in plans if one.state == "new"]
        self.selections.note_changed(config, new)
        source = KeyScope.of(config).source
        return Plans(source, tuple(plans), tuple(dict.fromkeys(problems)))

    def _object_plan(
        self, config: ConnectorConfig, request: JobRequest, checked: CheckedTopics
    ) -> ObjectPlan:
        """Cut one object; raises what prevents the delivery of its first records."""
        planner, version = self.runtime.planner(), request.version
        job, extents = planner.dry_run(request)
        topic = config.topic_for(version)
        usable = checked.usable(config.written_topics(topic))
        if extents:
            notes = check_first_records(
                self.runtime, config, request.revision, extents[0], job.content, sized=usable
            )
            for name, line in notes.items():
                checked.note(name, line)
        known = planner.newest(request)  # the job of the dry run is not registered
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
        )

    def run(
        self,
        order: Order,
        *,
        engine: EngineChoice = INLINE_HERE,
        again: bool = False,
        failed: bool = False,
        topics: NewTopics | None = None,
    ) -> RunReport:
        """Deliver the addressed objects; with `again` those that are DONE a second time.

        With `failed` only those whose jobs FAILED or are CANCELLED; see `failed_objects`. Missing
        topics are created as `topics` says. For a connector that a command made, they are also
        created where the brokers create topics at their first use. Raises where nothing was
        started; later errors are part of the report.
        """
        runtime, config = self.runtime, order.config
        # Cheap checks first: all of them before an engine starts, which may take minutes.
        preflight.require_running(runtime.ledger, config.name)
        if engine.remote:
            require_reachable(config, order.addresses)
        elif engine.master is None and (problems := self._problems_here(config)):
            # Its workers are on this machine; a job would keep this revision of the connector.
            raise Misconfigured(problems)
        runtime.require_app()
        found = (
            self.selections.find_failed(order)
            if failed
            else self.selections.find(order, again=again)
        )
        self._prepare(order, found.versions, topics)
        if not found.versions and not found.earlier:
            # Without an engine, which may take minutes to start.
            return self._completed(RunReport(engine.name), found, order)

        def start(runs: SubmittedRuns) -> str:
            # A person started it, and decides what follows its end. The subject is unique: a run's
            # token depends on it, and the service starts one run per token.
            subject, addresses = f"shell-{uuid4().hex}", list(order.addresses)
            return runs.begin_shared(subject, config.name, addresses, then=OnCompletion.PERSON)

        delivery = _delivery_id(order)
        since = self._second_delivery(delivery) if again else None
        with self._drivers.open(engine, config.max_tasks, start) as driver:
            requests = self._requests(order, found.versions, driver.engine.cores)
            if again and engine.remote:
                requests = self._finished_first(requests)
            result = driver.deliver(requests, again=since, failed=failed, earlier=found.earlier)
        if again and not (result.stopped or result.left_out or result.broken):
            AGAIN.clear(runtime.ledger.notes, delivery)
        return self._completed(result, found, order)

    def _requests(
        self, order: Order, versions: Sequence[ObjectVersion], cores: int
    ) -> Iterator[JobRequest]:
        """Yield a job request for each object of a run."""
        config, others = order.config, self.selections.others(order)
        alike = partial(self.selections.is_alike, config, config.name)
        for version in versions:
            request = self.runtime.request(config, order.revision, version, cores)
            yield replace(request, alike=alike, others=partial(others, version))

    def failed(self, order: Order, *, topics: NewTopics | None = None) -> FailedPlans:
        """Return what a run of only the failed objects would do; nothing is written."""
        runtime, config = self.runtime, order.config
        found = self.selections.failed(order)
        problems = self._problems_here(config) if found else []
        if held := preflight.skip_reason(runtime.ledger, config.name):
            problems.append(held)
        checked = self._topics.checks(order, topics, problems)
        recognised = partial(runtime.recognised, config, order.revision)
        for one in found:
            if one.job is not None:
                try:
                    check_cluster(one.job, runtime.broker.cluster)
                except Conflict as exc:
                    problems.append(str(exc))
            try:
                topic = preflight.route(config, one.version, recognised)
            except (Misconfigured, UnsupportedFormat) as exc:
                problems.append(str(exc))
            else:
                checked.usable(config.written_topics(topic))
        return FailedPlans(found, tuple(dict.fromkeys(problems)))

    def replay(
        self,
        job_id: str,
        *,
        engine: EngineChoice = INLINE_HERE,
        extent: int | None = None,
        accept_duplicates: bool = False,
    ) -> RunReport:
        """Deliver what a job has left, failed extents included; with `extent` only that one.

        Raises ProgressUnknown where Kafka has no progress, and Conflict where a later job delivers
        the object, without `accept_duplicates`.
        """
        ledger = self.runtime.ledger
        job = known_job(ledger, job_id)
        if not accept_duplicates:
            self._replayable.require_latest(job)
        if job.state is JobState.DONE and extent is None:
            self.control.notify(run_notes.describe_done(job))
            done = replace(report(ledger, job), delivered_before=True)
            return RunReport(engine.name, jobs=(done,))
        if latest := ledger.connectors.get(job.connector):
            self._replayable.note_pinned([job], latest.revision)
        with self._drivers.open_for(job, engine) as driver:
            return driver.replay(job, ordinal=extent, accept_duplicates=accept_duplicates)

    def replay_all(
        self, connector: str, *, engine: EngineChoice = INLINE_HERE, accept_duplicates: bool = False
    ) -> RunReport:
        """Replay all FAILED and CANCELLED jobs of a connector, and replays that were interrupted.

        Raises Misconfigured where none of its jobs can run here.
        """
        runtime, replayable = self.runtime, self._replayable
        _, latest = runtime.connectors.latest(connector, deleted=True)
        preflight.require_running(runtime.ledger, connector)
        runtime.require_app()
        jobs, refused = replayable.deliverable(replayable.of_connector(connector))
        if refused and not jobs:
            raise Misconfigured(refused)
        if not jobs:
            self.control.notify(run_notes.describe_no_replay(connector))
            return RunReport(engine.name)
        # Jobs of several revisions share one engine, which keeps to the least `tasks.max`.
        bounds = [runtime.connectors.revision(connector, job.revision).max_tasks for job in jobs]
        least = min((most for most in bounds if most), default=None)
        replayable.note_pinned(jobs, latest)
        with self._drivers.open(engine, least, None) as driver:
            return driver.replay_all(jobs, refused=refused, accept_duplicates=accept_duplicates)

    def resume(self, job_id: str, *, engine: EngineChoice = INLINE_HERE) -> RunReport:
        """Deliver what a job has left, failed extents excluded; a final job is only reported."""
        job = known_job(self.runtime.ledger, job_id)
        with self._drivers.open_for(job, engine) as driver:
            return driver.resume(job)

    @property
    def _topics(self) -> RunTopics:
        return RunTopics(self.runtime, self.control.notify)

    @property
    def _drivers(self) -> Drivers:
        return Drivers(self.runtime, self.control, self.open_engine)

    @property
    def _replayable(self) -> ReplayableJobs:
        return ReplayableJobs(self.runtime, self.control.notify)

    def _prepare(
        self, order: Order, versions: Sequence[ObjectVersion], topics: NewTopics | None
    ) -> None:
        """Create missing topics, and raise what prevents the delivery of all objects."""
        if not versions:
            return
        config = order.config
        recognised = partial(self.runtime.recognised, config, order.revision)
        if isinstance(order, MadeOrder):
            for line in run_notes.describe_formats(_formats(config, versions, recognised)):
                self.control.notify(line)
        self._check_columns(order, versions)
        self._topics.create(order, versions, recognised, topics)
        preflight.check(config, self.runtime.broker, versions, recognised)

    def _problems_here(self, config: ConnectorConfig) -> list[str]:
        """Return which secrets, files and keys of a connector are missing on this machine."""
        problems = self.runtime.producer_problems(config)
        try:
            encryption(config, self.runtime.secrets)
        except Misconfigured as exc:
            problems += exc.problems
        return problems

    def _check_columns(self, order: Order, versions: Sequence[ObjectVersion]) -> None:
        """Raise Misconfigured where columnar values of no object can be made.

        Only of a few objects: of many, those that can be delivered are, and the run reports others.
        """
        runtime, config, revision = self.runtime, order.config, order.revision
        if not config.columnar or len(versions) > CHECKED_OBJECTS:
            return
        problems: list[str] = []
        for version in versions:
            request = runtime.request(config, revision, version, 1)
            try:
                job, extents = runtime.planner().dry_run(request)
                for extent in extents[:1]:
                    check_stated_columns(runtime, config, revision, extent, job.content)
            except (UnsupportedType, IncompatibleSchema) as exc:
                problems.append(str(exc))
            except ExtentflowError:  # the run reports it
                return
            else:
                return
        raise Misconfigured(problems)

    def _completed(self, result: RunReport, found: Selection, order: Order) -> RunReport:
        """Add the objects that were delivered before to a report, and say what they mean."""
        runtime = self.runtime
        if found.delivered:
            totals = runtime.ledger.jobs.progress_of(found.delivered)
            before = (
                replace(report_of(job, totals[job.id]), delivered_before=True)
                for job in found.delivered
            )
            result = replace(result, jobs=(*result.jobs, *before))
            with closing(open_job_events(runtime)) as events:
                publish_unless_unavailable(events.publish, found.delivered)
        for line in self._result_notes(result, order):
            self.control.notify(line)
        return result

    def _result_notes(self, result: RunReport, order: Order) -> Iterator[str]:
        """Yield what the jobs of a run mean, beside their states."""
        config, jobs = order.config, result.jobs
        if not jobs:
            yield run_notes.describe_nothing(config)
        if isinstance(order, MadeOrder):
            own = (config.name, order.revision)
            pinned = {(job.connector, job.revision) for job in jobs} - {own}
            changed = {one for one in pinned if not self.selections.is_alike(config, *one)}
            yield from run_notes.describe_other_connectors(config, jobs)
            if count := sum((job.connector, job.revision) in changed for job in jobs):
                yield run_notes.describe_other_settings(count, len(jobs))
        # What follows a failure is said with it.
        elif older := [
            job for job in jobs if job.revision != order.revision and job.state not in ENDED
        ]:
            yield run_notes.describe_older(older, order.revision)
        yield from run_notes.describe_delivered(jobs)
        yield from run_notes.describe_bad_records(config, jobs)

    def _second_delivery(self, name: str) -> float:
        """Return when the second delivery of these addresses began: now, unless one is unfinished.

        Otherwise a repeated command would deliver a third time what the interrupted one finished.
        """
        notes = self.runtime.ledger.notes
        since = AGAIN.read(notes, name)
        if since is None:
            since = self.runtime.ledger.now()  # hosts have other clocks
            AGAIN.write(notes, name, since)
        else:
            self.control.notify(run_notes.describe_second_delivery(since))
        return since

    def _finished_first(self, requests: Iterator[JobRequest]) -> Iterator[JobRequest]:
        planner = self.runtime.planner()
        for request in requests:
            known = planner.newest(request)
            # A remote run would resume an open first delivery, not start over.
            if known is not None and known.state.open and not known.generation:
                raise Misconfigured(
                    f"{request.version.uri}: job {known.id} is {known.state}; finish it without "
                    "--again, or use --engine spark"
                )
            yield request


def _cores() -> int:
    return os.cpu_count() or 1


def _delivery_id(order: Order) -> str:
    """Return the name of a delivery: with other settings, `--again` is another one."""
    settings: object = order.revision
    if isinstance(order, MadeOrder):
        settings = sorted(without_coverage(order.settings).items())
    text = "\n".join((order.config.name, str(settings), *sorted(order.addresses)))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _formats(
    config: ConnectorConfig,
    versions: Sequence[ObjectVersion],
    recognised: Callable[[ObjectVersion], Content],
) -> Counter[tuple[str, str]]:
    """Count the formats of objects, and what decides them."""
    found: Counter[tuple[str, str]] = Counter()
    for version in versions:
        key = version.key
        with suppress(UnsupportedFormat):  # the checks report it
            content = recognised(version) if config.needs_content(key) else NOTHING_FOUND
            name = config.format_for(key, content.format)
            found[name, config.format_source(key)] += 1
    return found


def committed_records(runtime: Runtime, job_ids: Collection[str]) -> dict[tuple[str, int], int]:
    """Return the records that are committed of each extent that a worker holds now."""
    jobs = list(runtime.ledger.jobs.get_many(job_ids))
    extents = runtime.ledger.extents.list_many(jobs)
    held = (item for items in extents.values() for item in items if item.claim is not None)
    return {(item.job, item.ordinal): item.records for item in held}
