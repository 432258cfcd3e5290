"""Deliveries that this process drives: plan, run, replay and resume."""

import hashlib
import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from uuid import uuid4

from extentflow.config.connector import NOTHING_FOUND, ConnectorConfig
from extentflow.config.connector_keys import LOCAL_FILE
from extentflow.config.parsing import parse
from extentflow.engines import Engine, RunListener, run_service
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
from extentflow.jobs.addresses import (
    KeyScope,
    Known,
    NothingMatches,
    match_missing,
    select_all,
)
from extentflow.jobs.planner import JobRequest, check_cluster
from extentflow.jobs.run import (
    JobRunner,
    RunReport,
    Step,
    known_job,
    publish_unless_unavailable,
    report,
    report_of,
)
from extentflow.kafka.topic_admin import NewTopics
from extentflow.ledger import ConnectorVersion, last_stored
from extentflow.ledger.notes import NoteKind
from extentflow.model import Content, Extent, Job, JobState, ObjectVersion, Receipt
from extentflow.queue import MOST_ADDRESSES
from extentflow.services.addressed import without_coverage
from extentflow.services.connectors import seen_by, sharing
from extentflow.services.failures import (
    ENDED,
    SEARCHED_JOBS,
    FailedObject,
    delivered_since,
    described,
    failed_elsewhere,
    failed_objects,
    is_current,
)
from extentflow.services.plans import CheckedTopics, FailedPlans, ObjectPlan, Plans
from extentflow.wiring import Runtime, open_engine
from extentflow.wiring.extents import (
    INLINE,
    check_first_records,
    check_stated_columns,
    require_engine,
)
from extentflow.wiring.functions import open_job_events
from extentflow.wiring.options import absent_elsewhere, encryption
from extentflow.wording import counted

log = logging.getLogger(__name__)

# Of a run of so many objects, the columns are checked before it starts.
CHECKED_OBJECTS = 8
LOCAL_ENGINES = "`extentflow run` with --engine spark or inline, on this machine"
# Open jobs count only where a replay reopened them and did not finish.
OPEN = (JobState.PLANNING, JobState.RUNNING)
REPLAYABLE = (JobState.FAILED, JobState.CANCELLED, *OPEN)

# An interrupted second delivery continues within this time; later, `--again` is a new one.
AGAIN: NoteKind[float] = NoteKind(
    "again#",
    lambda since: {"since": repr(since)},
    lambda facts: float(facts["since"]),
    keep_seconds=30 * 86_400.0,
)

Start = Callable[[SubmittedRuns], str]
Counting = Callable[[str], AbstractContextManager[Callable[[int], object]]]


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine, its cores (None: all), and Spark's master (None: local)."""

    name: str = INLINE
    cores: int | None = None
    master: str | None = None

    def __post_init__(self) -> None:
        """Raise Misconfigured for an engine that does not exist, before anything is requested."""
        require_engine(self.name, self.master)

    @property
    def remote(self) -> bool:
        """Whether a service runs it on other machines."""
        return run_service(self.name) is not None


INLINE_HERE = EngineChoice()


@dataclass(frozen=True, slots=True)
class Listener:
    """Calls `callback` with each receipt."""

    callback: Callable[[Receipt], object] | None = None

    def on_extent(self, extent: Extent) -> None:
        """Ignore an extent that is about to run."""

    def on_receipt(self, receipt: Receipt) -> None:
        """Pass the receipt on."""
        if self.callback is not None:
            self.callback(receipt)


@dataclass(frozen=True, slots=True)
class RunControl:
    """How the caller of a run observes and stops it.

    `watch` opens the listener of extents and receipts when the run starts. `stop_on` receives the
    function that stops the run and yields whether a stop was requested. `notify` receives one-line
    messages that are no errors. `step` is that of `JobRunner`. `counting` opens the display of a
    number of objects before a run, such as those that are listed.
    """

    watch: Callable[[], AbstractContextManager[RunListener]] = lambda: nullcontext(Listener())
    stop_on: Callable[[Callable[[], None]], AbstractContextManager[Callable[[], bool]]] = (
        lambda _stop: nullcontext(lambda: False)
    )
    notify: Callable[[str], object] = log.info
    step: Step = lambda _what, _done: None
    counting: Counting = lambda _what: nullcontext(lambda _done: None)


@dataclass(frozen=True, slots=True)
class _Selection:
    """What the addresses of a run mean: objects to deliver, `earlier` jobs, `delivered` ones."""

    versions: Sequence[ObjectVersion]
    earlier: Sequence[Job] = ()
    delivered: Sequence[Job] = ()


@dataclass(frozen=True, slots=True)
class Runs:
    """Plans, runs and replays jobs; `open_engine` may be a double."""

    runtime: Runtime
    control: RunControl = field(default_factory=RunControl)
    open_engine: Callable[..., Engine] = open_engine

    def expect(self, config: Mapping[str, str]) -> int:
        """Return the revision that a connector would be stored as, for `plan` and `failed`."""
        config = without_coverage(config)
        checked = parse(config)
        latest = last_stored(self.runtime.ledger.connectors, checked.name)
        revision = 1 if latest is None else latest.revision
        if latest is not None and latest.config != config:
            revision += 1
        self.runtime.connectors.expect(checked, revision)
        return revision

    def plan(
        self,
        connector: str,
        addresses: Sequence[str] = (),
        *,
        cores: int | None = None,
        revision: int | None = None,
        topics: NewTopics | None = None,
    ) -> Plans:
        """Return how a connector cuts the addressed objects now; nothing is written.

        Topics that take no records, or do not exist and would not be created as in `run`, missing
        secrets and files of the producer, and objects whose first records cannot be delivered are
        problems.
        """
        made = revision is not None
        config, revision = self._connector(connector, revision)
        problems = self._problems_here(config)
        checked = self._checked_topics(config, problems, topics, made=made)
        others = self._others(config) if made else lambda _version: ()
        plans: list[ObjectPlan] = []
        with self.control.counting("planning") as count:
            for version in self.select(config, revision, addresses):
                count(len(plans))
                request = self.runtime.request(
                    config, revision, version, cores or os.cpu_count() or 1
                )
                request = replace(request, others=partial(others, version))
                try:
                    plans.append(self._object_plan(config, request, checked))
                except (Misconfigured, Permanent, CorruptRecord, Defect) as exc:
                    problems.append(str(exc))
        self._note_changed(config, [one.version for one in plans if one.state == "new"])
        return Plans(_source(config), tuple(plans), tuple(dict.fromkeys(problems)))

    def _object_plan(
        self, config: ConnectorConfig, request: JobRequest, checked: CheckedTopics
    ) -> ObjectPlan:
        """Cut one object; raises what prevents the delivery of its first records."""
        planner, version = self.runtime.planner(), request.version
        job, extents = planner.dry_run(request)
        topic = config.topic_for(version)
        usable = checked.usable(config.written_topics(topic))
        if extents:
            check_first_records(
                self.runtime, config, request.revision, extents[0], job.content, sized=usable
            )
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
        connector: str,
        addresses: Sequence[str] = (),
        *,
        engine: EngineChoice = INLINE_HERE,
        again: bool = False,
        failed: bool = False,
        revision: int | None = None,
        topics: NewTopics | None = None,
    ) -> RunReport:
        """Deliver the addressed objects; with `again` those that are DONE a second time.

        With `failed` only those whose jobs FAILED or are CANCELLED; see `failed_objects`.
        `revision` is that of a connector which the command made (None: the latest of a stored
        one). Missing topics are created as `topics` says; for a connector that the command made
        also where the brokers create topics at their first use. Raises where nothing was started;
        later errors are part of the report.
        """
        runtime, made = self.runtime, revision is not None
        # Cheap checks first: all of them before an engine starts, which may take minutes.
        config, revision = self._connector(connector, revision)
        preflight.require_running(runtime.ledger, connector)
        if engine.remote:
            require_reachable(config, addresses)
        elif engine.master is None and (problems := self._problems_here(config)):
            # Its workers are on this machine; a job would keep this revision of the connector.
            raise Misconfigured(problems)
        runtime.require_app()
        found = self._found(config, revision, addresses, again=again, failed=failed, made=made)
        self._prepare(config, revision, found.versions, topics, made=made)
        if not found.versions and not found.earlier:
            # Without an engine, which may take minutes to start.
            return self._completed(RunReport(engine.name), found, config, revision, made=made)

        def start(runs: SubmittedRuns) -> str:
            # A person started it, and decides what follows its end. The subject is unique: a run's
            # token depends on it, and the service starts one run per token.
            then = OnCompletion.PERSON
            return runs.begin_shared(f"shell-{uuid4().hex}", connector, list(addresses), then=then)

        # With other settings, `--again` is another delivery.
        stored = runtime.ledger.connectors.get(connector, revision) if made else None
        settings = sorted(without_coverage(stored.config).items()) if stored else revision
        text = "\n".join((connector, str(settings), *sorted(addresses)))
        delivery = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        since = self._second_delivery(delivery) if again else None
        with self._driving(engine, config.max_tasks, start) as driver:
            cores = driver.engine.cores
            alike, others = partial(self._alike, config, config.name), self._others(config)
            requests: Iterator[JobRequest] = (
                replace(
                    runtime.request(config, revision, version, cores),
                    alike=alike,
                    others=partial(others, version) if made else tuple,
                )
                for version in found.versions
            )
            if again and engine.remote:
                requests = self._finished_first(requests)
            result = driver.deliver(requests, again=since, failed=failed, earlier=found.earlier)
        if again and not (result.stopped or result.left_out or result.broken):
            AGAIN.clear(runtime.ledger.notes, delivery)
        return self._completed(result, found, config, revision, made=made)

    def failed(
        self,
        connector: str,
        addresses: Sequence[str] = (),
        *,
        revision: int | None = None,
        topics: NewTopics | None = None,
    ) -> FailedPlans:
        """Return what a run of only the failed objects would do; nothing is written."""
        made = revision is not None
        config, revision = self._connector(connector, revision)
        found = self._failed(config, revision, addresses, made=made)
        problems = self._problems_here(config) if found else []
        if held := preflight.skip_reason(self.runtime.ledger, connector):
            problems.append(held)
        checked = self._checked_topics(config, problems, topics, made=made)
        recognised = partial(self.runtime.recognised, config, revision)
        for one in found:
            if one.job is not None:
                try:
                    check_cluster(one.job, self.runtime.broker.cluster)
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
        job = known_job(self.runtime.ledger, job_id)
        if not accept_duplicates:
            self._require_latest(job)
        if job.state is JobState.DONE and extent is None:
            self.control.notify(
                f"job {job.id} is DONE, there is nothing to replay; `extentflow run --again` "
                "delivers its object a second time"
            )
            done = replace(report(self.runtime.ledger, job), delivered_before=True)
            return RunReport(engine.name, jobs=(done,))
        if latest := self.runtime.ledger.connectors.get(job.connector):
            self._note_pinned([job], latest.revision)
        with self._driving_job(job, engine) as driver:
            return driver.replay(job, ordinal=extent, accept_duplicates=accept_duplicates)

    def _require_latest(self, job: Job) -> None:
        """Raise Conflict where another generation delivers the object since."""
        if later := self.runtime.planner().later(job):
            raise Conflict(
                f"{job.version.uri}: job {later.id}, {later.state}, delivers the object since;"
                f" `extentflow status {later.id}` shows it. `extentflow replay {job.id}"
                " --accept-duplicates` continues this one all the same (records that both deliver"
                " are in the topic twice)"
            )

    def _note_pinned(self, jobs: Sequence[Job], latest: int) -> None:
        """Report, before a replay, the jobs that use an earlier revision, and where it delivers."""
        older = Counter(job.revision for job in jobs if job.revision != latest)
        for revision, count in older.items():
            topic = self.runtime.connectors.revision(jobs[0].connector, revision).topic
            self.control.notify(
                f"{counted(count, 'job')} of revision {revision} of connector {jobs[0].connector},"
                f" to topic {topic}; the latest is {latest}, under which `extentflow run --failed`"
                " delivers their objects in full"
            )

    def replay_all(
        self, connector: str, *, engine: EngineChoice = INLINE_HERE, accept_duplicates: bool = False
    ) -> RunReport:
        """Replay all FAILED and CANCELLED jobs of a connector, and replays that were interrupted.

        Raises Misconfigured where none of its jobs can run here.
        """
        runtime = self.runtime
        _, latest = runtime.connectors.latest(connector, deleted=True)
        preflight.require_running(runtime.ledger, connector)
        runtime.require_app()
        jobs, refused = self._deliverable(self._replayable(connector))
        if refused and not jobs:
            raise Misconfigured(refused)
        if not jobs:
            self.control.notify(f"connector {connector} has no job to replay")
            return RunReport(engine.name)
        # Jobs of several revisions share one engine, which keeps to the least `tasks.max`.
        bounds = [runtime.connectors.revision(connector, job.revision).max_tasks for job in jobs]
        least = min((most for most in bounds if most), default=None)
        self._note_pinned(jobs, latest)
        with self._driving(engine, least, None) as driver:
            return driver.replay_all(jobs, refused=refused, accept_duplicates=accept_duplicates)

    def resume(self, job_id: str, *, engine: EngineChoice = INLINE_HERE) -> RunReport:
        """Deliver what a job has left, failed extents excluded; a final job is only reported."""
        job = known_job(self.runtime.ledger, job_id)
        with self._driving_job(job, engine) as driver:
            return driver.resume(job)

    def select(
        self,
        config: ConnectorConfig,
        revision: int,
        addresses: Sequence[str],
        unmatched: dict[str, NothingMatches] | None = None,
        known: Known | None = None,
    ) -> Iterator[ObjectVersion]:
        """Yield the pinned objects that the addresses match, each once; see `select_all`."""
        scope = KeyScope.of(config)
        hidden: set[str] = set()
        store = self.runtime.objects.store(config, revision)
        yield from select_all(store, scope, addresses, hidden.add, unmatched, known=known)
        if hidden:
            self.control.notify(
                f"left out, because a name begins with _ or .: {counted(len(hidden), 'object')}, as"
                f" {scope.uri(min(hidden))}; give an object's own address to deliver it"
            )

    def _prepare(
        self,
        config: ConnectorConfig,
        revision: int,
        versions: Sequence[ObjectVersion],
        topics: NewTopics | None,
        *,
        made: bool,
    ) -> None:
        """Create missing topics, and raise what prevents the delivery of all objects."""
        if not versions:
            return
        recognised = partial(self.runtime.recognised, config, revision)
        if made:
            self._note_formats(config, versions, recognised)
        self._check_columns(config, revision, versions)
        self._create_topics(config, versions, recognised, topics, automatic=made)
        preflight.check(config, self.runtime.broker, versions, recognised)

    def _problems_here(self, config: ConnectorConfig) -> list[str]:
        """Return which secrets, files and keys of a connector are missing on this machine."""
        problems = self.runtime.producer_problems(config)
        try:
            encryption(config, self.runtime.secrets)
        except Misconfigured as exc:
            problems += exc.problems
        return problems

    def _check_columns(
        self, config: ConnectorConfig, revision: int, versions: Sequence[ObjectVersion]
    ) -> None:
        """Raise Misconfigured where columnar values of no object can be made.

        Only of a few objects: of many, those that can be delivered are, and the run reports others.
        """
        if not config.columnar or len(versions) > CHECKED_OBJECTS:
            return
        problems: list[str] = []
        for version in versions:
            request = self.runtime.request(config, revision, version, 1)
            try:
                job, extents = self.runtime.planner().dry_run(request)
                for extent in extents[:1]:
                    check_stated_columns(self.runtime, config, revision, extent, job.content)
            except (UnsupportedType, IncompatibleSchema) as exc:
                problems.append(str(exc))
            except ExtentflowError:  # the run reports it
                return
            else:
                return
        raise Misconfigured(problems)

    def _found(
        self,
        config: ConnectorConfig,
        revision: int,
        addresses: Sequence[str],
        *,
        again: bool,
        failed: bool,
        made: bool,
    ) -> _Selection:
        """Find the objects that a run delivers; of those delivered before only the jobs."""
        if failed:
            objects = self._failed(config, revision, addresses, made=made)
            for line in described(objects, revision):
                self.control.notify(line)
            return _Selection([one.version for one in objects])
        planner = self.runtime.planner()
        delivered: dict[ObjectVersion, Job] = {}

        def known(page: Sequence[ObjectVersion]) -> Container[ObjectVersion]:
            done = planner.delivered(config.name, page)
            delivered.update(done)
            return done

        unmatched: dict[str, NothingMatches] = {}
        wanted = None if again else known
        versions: list[ObjectVersion] = []
        with self.control.counting("listing") as count:
            for version in self.select(config, revision, addresses, unmatched, wanted):
                versions.append(version)
                count(len(versions))
        for job in delivered.values():
            check_cluster(job, self.runtime.broker.cluster)
        # An address of its own may mean an object that another address left out.
        versions = [version for version in versions if version not in delivered]
        earlier = self._earlier(config, revision, addresses, [*versions, *delivered], made=made)
        _require_meaning(config, unmatched, earlier)
        self._note_changed(config, versions)
        return _Selection(versions, earlier, list(delivered.values()))

    def _note_changed(self, config: ConnectorConfig, versions: Sequence[ObjectVersion]) -> None:
        """Report objects of which an earlier version was delivered, by the newest jobs."""
        now = {version.key: version for version in versions}
        if not now:
            return
        done = islice(self.runtime.ledger.jobs.list(config.name, JobState.DONE), SEARCHED_JOBS)
        changed = {
            job.version.key: job
            for job in done
            if (current := now.get(job.version.key))
            and job.version != current
            and job.version.bucket == current.bucket
        }
        if changed:
            job, local = next(iter(changed.values())), config.endpoint_type == LOCAL_FILE
            files = ", as is a file with another modification time" if local else ""
            self.control.notify(
                f"changed since delivery: {counted(len(changed), 'object')}, as {job.version.uri}"
                f" (job {job.id}); the new version is delivered in full{files}"
            )

    def _failed(
        self, config: ConnectorConfig, revision: int, addresses: Sequence[str], *, made: bool
    ) -> tuple[FailedObject, ...]:
        """Return the objects that failed; Misconfigured where they did under other connectors."""
        runtime, notify = self.runtime, self.control.notify
        alike = partial(self._alike, config, config.name)
        others = self._others(config) if made else lambda _version: []
        found = failed_objects(
            runtime, config, revision, addresses, notify, alike=alike, others=others
        )
        elsewhere = list(failed_elsewhere(runtime, config, revision, addresses)) if made else []
        if elsewhere and not found:
            raise Misconfigured(elsewhere)
        for line in elsewhere:
            notify(line)
        return found

    def _completed(
        self,
        result: RunReport,
        found: _Selection,
        config: ConnectorConfig,
        revision: int,
        *,
        made: bool,
    ) -> RunReport:
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
        if not result.jobs:
            self.control.notify(f"there is nothing to deliver below {_source(config)}")
        note = partial(self._note_other_settings, config) if made else self._note_older
        note(result, revision)
        if count := sum(job.delivered_before for job in result.jobs):
            self.control.notify(
                f"delivered before and skipped: {count:,} of {counted(len(result.jobs), 'object')};"
                " --again delivers them a second time"
            )
        self._note_bad_records(config, result)
        return result

    def _connector(self, name: str, revision: int | None) -> tuple[ConnectorConfig, int]:
        connectors = self.runtime.connectors
        if revision is None:
            return connectors.latest(name)
        return connectors.revision(name, revision), revision

    def _note_formats(
        self,
        config: ConnectorConfig,
        versions: Sequence[ObjectVersion],
        recognised: Callable[[ObjectVersion], Content],
    ) -> None:
        """Report the formats of objects, and what decides them."""
        found: Counter[tuple[str, str]] = Counter()
        for version in versions:
            key = version.key
            with suppress(UnsupportedFormat):  # the checks report it
                content = recognised(version) if config.needs_content(key) else NOTHING_FOUND
                name = config.format_for(key, content.format)
                found[name, config.format_source(key)] += 1
        for (name, source), count in found.most_common():
            self.control.notify(
                f"format {name}, by {source}: {count:,} object{'' if count == 1 else 's'}"
            )

    def _create_topics(
        self,
        config: ConnectorConfig,
        versions: Sequence[ObjectVersion],
        recognised: Callable[[ObjectVersion], Content],
        wanted: NewTopics | None,
        *,
        automatic: bool,
    ) -> None:
        """Create missing topics as `wanted` says; `automatic`: as the brokers would by themselves.

        Producers do not let them: transactions begin with topics that exist.
        """
        broker, asked = self.runtime.broker, wanted
        wanted = self._created_as(wanted, automatic=automatic)
        if wanted is None:
            return
        names: dict[str, None] = {}
        for version in versions:
            with suppress(Misconfigured, UnsupportedFormat):  # the checks report it
                topic = preflight.route(config, version, recognised)
                names |= dict.fromkeys(config.written_topics(topic))
        written = list(names)
        if config.dead_letter_topic is not None:
            names[config.dead_letter_topic] = None
        missing = broker.missing_topics(list(names))
        existing = broker.topics([name for name in names if name not in missing])
        planned = (wanted.facts(name) for name in missing)
        preflight.require_accepting(config, [*existing, *planned], written)
        created = broker.create_topics(list(names), wanted)
        kept = [] if asked is None else [name for name in names if name not in created]
        for facts in broker.topics([*created, *kept]):
            many = f"{facts.partitions} partition{'' if facts.partitions == 1 else 's'}"
            if facts.name in created:
                self.control.notify(f"created topic {facts.name} with {many}")
            else:
                self.control.notify(
                    f"topic {facts.name} exists, with {many}; --create-topic does not change it"
                )

    def _created_as(self, wanted: NewTopics | None, *, automatic: bool) -> NewTopics | None:
        """Return how missing topics are created; None: they are not."""
        if wanted is None and automatic and self.runtime.broker.creates_topics:
            return NewTopics()
        return wanted

    def _checked_topics(
        self,
        config: ConnectorConfig,
        problems: list[str],
        wanted: NewTopics | None,
        *,
        made: bool,
    ) -> CheckedTopics:
        created = self._created_as(wanted, automatic=made) is not None
        notify = self.control.notify
        return CheckedTopics(config, self.runtime.broker, problems, notify, created=created)

    def _earlier(
        self,
        config: ConnectorConfig,
        revision: int,
        addresses: Sequence[str],
        versions: Sequence[ObjectVersion],
        *,
        made: bool,
    ) -> list[Job]:
        """Return the open jobs of objects that the addresses mean, but of other versions.

        Left by a run that ended early; the objects were replaced or deleted since.
        """
        jobs, current, scope = self.runtime.ledger.jobs, set(versions), KeyScope.of(config)
        means = match_missing(scope, addresses, (one.key for one in versions))
        # By id: between the two lists a job may change from one to the other.
        wanted: dict[str, None] = {}
        outside: dict[str, str] = {}
        for job in (job for state in OPEN for job in jobs.list(config.name, state)):
            if job.version in current or job.cluster != self.runtime.broker.cluster:
                continue
            if job.version.bucket != scope.bucket or not scope.holds(job.version.key):
                outside[job.id] = job.version.uri
            elif means(job.version.key):
                wanted[job.id] = None
        # Read again, because the index lags behind the items.
        known = (jobs.get(job_id) for job_id in wanted)
        store = self.runtime.objects.store(config, revision)
        found = [
            job
            for job in known
            # Current: it arrived since, or is not addressed.
            if job is not None and job.state.open and not is_current(store, job.version)
        ]
        if outside and not made:  # each command that makes the connector reads something else
            job_id, uri = next(iter(outside.items()))
            self.control.notify(
                f"{counted(len(outside), 'job')} of connector {config.name} left open, whose"
                f" objects are not below {_source(config)} any more, as {uri}: job {job_id};"
                f" `extentflow replay JOB` continues one, `extentflow stop {config.name}` cancels"
                f" all open jobs, and `extentflow resume {config.name}` lets the connector run"
                " again"
            )
        if found:
            self.control.notify(
                f"{counted(len(found), 'job')} of earlier runs included, whose objects were"
                " replaced or deleted since: one is continued if its version still exists, and ends"
                " if not"
            )
        return found

    def _others(
        self, config: ConnectorConfig
    ) -> Callable[[ObjectVersion], list[tuple[str, ObjectVersion]]]:
        """Return what names the connectors whose jobs deliver an object to the same topic.

        It names those of now: another command may make one at any time.
        """
        connectors = self.runtime.ledger.connectors
        stored: list[ConnectorVersion] = []
        found: list[ConnectorConfig] = []

        def others(version: ObjectVersion) -> list[tuple[str, ObjectVersion]]:
            nonlocal stored, found
            now = list(connectors.list(deleted=True))
            if now != stored:
                stored, found = now, list(sharing(config, now))
            seen = ((one.name, seen_by(one, version)) for one in found)
            return [(name, version) for name, version in seen if version is not None]

        return others

    def _alike(self, config: ConnectorConfig, name: str, revision: int) -> bool:
        """Return whether a revision has the same settings, what of its bucket it reads aside."""
        try:
            other = self.runtime.connectors.revision(name, revision)
        except Misconfigured:  # another release stored it, whose settings this one lacks
            return False
        here = replace(
            other,
            name=config.name,
            prefix=config.prefix,
            directory=config.directory,
            object_key=config.object_key,
        )
        return here == config

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
            began = datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds")
            self.control.notify(f"resuming the second delivery, begun at {began} and interrupted")
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

    def _replayable(self, connector: str) -> list[Job]:
        """Return the jobs of `replay_all`, without those whose object a later job delivers."""
        ledger, planner = self.runtime.ledger, self.runtime.planner()
        listed = [job.id for state in REPLAYABLE for job in ledger.jobs.list(connector, state)]
        # Read again, because the index lags behind the items.
        current = (ledger.jobs.get(job_id) for job_id in dict.fromkeys(listed))
        known = [job for job in current if job is not None and job.state in REPLAYABLE]
        jobs = [job for job in known if not job.state.open or job.reopened > 0]
        latest = [job for job in jobs if not planner.is_followed(job)]
        if left := len(jobs) - len(latest):
            self.control.notify(
                f"{counted(left, 'job')} left out, because the object was delivered again since; "
                "`extentflow replay JOB --accept-duplicates` replays one all the same"
            )
        # Without versions, the bytes that such a job is pinned to do not exist any more.
        unversioned = {job.id: job for job in latest if job.version.version_id is None}
        replaced = {
            job_id
            for job_id in delivered_since(ledger, unversioned.values())
            if self._is_replaced(unversioned[job_id])
        }
        if replaced:
            self.control.notify(
                f"{counted(len(replaced), 'job')} left out, because a later version of the object"
                " was delivered since"
            )
        return [job for job in latest if job.id not in replaced]

    def _is_replaced(self, job: Job) -> bool:
        """Whether the version of a job is gone; False where that cannot be found out."""
        runtime = self.runtime
        try:
            config = runtime.connectors.revision(job.connector, job.revision)
            return not is_current(runtime.objects.store(config, job.revision), job.version)
        except ExtentflowError as exc:  # the job's delivery reports it
            log.warning("%s: whether it was replaced is unknown: %s", job.version.uri, exc)
            return False

    def _deliverable(self, jobs: Sequence[Job]) -> tuple[list[Job], list[str]]:
        """Return the jobs that can be delivered here, and why the others cannot."""
        runtime = self.runtime
        found: list[Job] = []
        refused: list[str] = []
        # One check per revision, because each requests its topics and secrets.
        for revision in dict.fromkeys(job.revision for job in jobs):
            alike = [job for job in jobs if job.revision == revision]
            try:
                config = runtime.connectors.revision(alike[0].connector, revision)
                runtime.objects.store(config, revision)
                known = {job.version: job.content for job in alike}
                preflight.check(config, runtime.broker, known, known.__getitem__)
            except Misconfigured as exc:
                what = f"{counted(len(alike), 'job')} of revision {revision} left out"
                refused += [f"{what}: {problem}" for problem in exc.problems]
                continue
            for job in alike:
                try:
                    check_cluster(job, runtime.broker.cluster)
                except Conflict as exc:
                    refused.append(str(exc))
                else:
                    found.append(job)
        return found, refused

    def _driving_job(self, job: Job, engine: EngineChoice) -> AbstractContextManager[JobRunner]:
        """Open an engine for one job after all checks, because an engine may take long to start."""
        runtime = self.runtime
        preflight.require_running(runtime.ledger, job.connector)
        runtime.require_app()
        config = runtime.connectors.revision(job.connector, job.revision)
        if engine.remote:
            require_reachable(config, ())
        preflight.check(config, runtime.broker, [job.version], lambda _version: job.content)
        check_cluster(job, runtime.broker.cluster)

        def start(runs: SubmittedRuns) -> str:
            subject = f"shell-{uuid4().hex}"
            return runs.begin_job(job, subject=subject, then=OnCompletion.PERSON)

        return self._driving(engine, config.max_tasks, start)

    @contextmanager
    def _driving(
        self, engine: EngineChoice, max_tasks: int | None, start: Start | None
    ) -> Iterator[JobRunner]:
        """Open an engine; yield a driver of it that reports to the caller and stops for it."""
        runtime = self.runtime
        opened = self.open_engine(
            runtime,
            engine.name,
            cores=engine.cores,
            master=engine.master,
            max_tasks=max_tasks,
            start_run=start,
            say=self.control.notify,
        )
        with (
            closing(open_job_events(runtime)) as events,
            self.control.stop_on(opened.stop) as stopped,
            self.control.watch() as watch,
        ):
            planner, why = runtime.planner(), runtime.undeliverable_reason
            ledger, name = runtime.ledger, engine.name
            yield JobRunner(
                name,
                opened,
                planner,
                ledger,
                watch,
                stopped,
                events.publish,
                why,
                self.control.step,
            )

    def _note_bad_records(self, config: ConnectorConfig, result: RunReport) -> None:
        """Report where the bad records of this run are that the connector tolerates."""
        bad = sum(job.bad for job in result.jobs if not job.delivered_before)
        if config.dead_letter_topic is not None and bad:
            many = f"{bad:,} bad record{' is' if bad == 1 else 's are'}"
            self.control.notify(
                f"{many} in topic {config.dead_letter_topic}: `extentflow dead-letters -c"
                f" {config.name}` shows them"
            )

    def _note_older(self, result: RunReport, revision: int) -> None:
        # What follows a failure is said with it.
        older = [job for job in result.jobs if job.revision != revision and job.state not in ENDED]
        if older:
            job, more = older[0], len(older) - 1
            have = "object has" if more == 1 else "objects have"
            others = f" (and {more:,} more {have} an earlier one)" if more else ""
            self.control.notify(
                f"{job.uri}: job {job.job} uses revision {job.revision} of connector "
                f"{job.connector}, whose latest is {revision}{others}; `run --again` starts a full "
                "delivery under that (records already delivered are delivered twice)"
            )

    def _note_other_settings(
        self, config: ConnectorConfig, result: RunReport, revision: int
    ) -> None:
        """Report objects that were delivered with other settings of the command."""
        pinned = {(job.connector, job.revision) for job in result.jobs} - {(config.name, revision)}
        changed = {one for one in pinned if not self._alike(config, *one)}
        others = Counter(job.connector for job in result.jobs if job.connector != config.name)
        for name, count in others.items():
            self.control.notify(
                f"job of connector {name}, which delivers into the same topic: {count:,} of"
                f" {counted(len(result.jobs), 'object')}; no second one is begun"
            )
        if count := sum((job.connector, job.revision) in changed for job in result.jobs):
            self.control.notify(
                f"job with other settings than these: {count:,} of"
                f" {counted(len(result.jobs), 'object')}; --again delivers them in full with these"
                " (records already delivered are delivered twice)"
            )


def unreachable_reason(config: ConnectorConfig) -> str | None:
    """Return why a remote run can deliver nothing of a connector, and what to do."""
    if config.endpoint_type == LOCAL_FILE:
        return (
            f"connector {config.name} reads files of this machine, which a run of Spark elsewhere "
            f"cannot read; use {LOCAL_ENGINES}"
        )
    absent = absent_elsewhere(config)
    return absent and f"{absent}, or use {LOCAL_ENGINES}"


def require_reachable(config: ConnectorConfig, addresses: Sequence[str]) -> None:
    """Raise Misconfigured where one remote run cannot deliver the addresses."""
    if why := unreachable_reason(config):
        raise Misconfigured(why)
    if len(addresses) > MOST_ADDRESSES:  # they travel on the run's command line
        raise Misconfigured(
            f"{len(addresses)} addresses are more than one run takes ({MOST_ADDRESSES}); give a "
            "prefix or a glob"
        )


def _require_meaning(
    config: ConnectorConfig, unmatched: Mapping[str, NothingMatches], earlier: Sequence[Job]
) -> None:
    """Raise for addresses that match no object, unless they mean one of `earlier` jobs."""
    scope = KeyScope.of(config)
    problems: list[str] = []
    for address, error in unmatched.items():
        means = match_missing(scope, [address] if address else [], ())
        if not any(means(job.version.key) for job in earlier):
            problems += error.problems
    if problems:
        raise Misconfigured(problems)


def _source(config: ConnectorConfig) -> str:
    return KeyScope.of(config).source


def committed_records(runtime: Runtime, job_ids: Collection[str]) -> dict[tuple[str, int], int]:
    """Return the records that are committed of each extent that a worker holds now."""
    jobs = list(runtime.ledger.jobs.get_many(job_ids))
    extents = runtime.ledger.extents.list_many(jobs)
    held = (item for items in extents.values() for item in items if item.claim is not None)
    return {(item.job, item.ordinal): item.records for item in held}
