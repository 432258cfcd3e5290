"""Deliveries that this process drives: plan, run, replay and resume."""

import hashlib
import math
import os
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from uuid import uuid4

from extentflow.engines.submitted_runs import OnCompletion, SubmittedRuns
from extentflow.errors import (
    Conflict,
    CorruptRecord,
    Defect,
    Misconfigured,
    Permanent,
    TransactionsRefused,
    UnsupportedFormat,
)
from extentflow.jobs import preflight
from extentflow.jobs.addresses import KeyScope
from extentflow.jobs.planner import JobRequest
from extentflow.jobs.run import JobRunner, RunReport, known_job, report, report_of
from extentflow.kafka.topic_admin import NewTopics
from extentflow.ledger import Ledger
from extentflow.ledger.notes import NoteKind
from extentflow.model import Job, JobState, ObjectVersion
from extentflow.services import run_notes
from extentflow.services.addressed import without_coverage
from extentflow.services.driving import Drivers, require_reachable
from extentflow.services.failures import ENDED
from extentflow.services.orders import MadeOrder, Order
from extentflow.services.plans import FailedPlans, ObjectPlan, Plans
from extentflow.services.replayable_jobs import ReplayableJobs
from extentflow.services.run_checks import RunChecks
from extentflow.services.run_control import INLINE_HERE, EngineChoice, RunControl
from extentflow.services.selections import Selection, Selections

# An interrupted second delivery continues within this time; later, `--again` is a new one.
AGAIN: NoteKind[float] = NoteKind(
    "again#",
    lambda since: {"since": repr(since)},
    lambda facts: float(facts["since"]),
    keep_seconds=30 * 86_400.0,
)


@dataclass(frozen=True, slots=True)
class Runs:
    """Plans, runs and replays jobs."""

    control: RunControl
    ledger: Ledger
    selections: Selections
    checks: RunChecks
    drivers: Drivers
    replayable: ReplayableJobs

    def plan(
        self,
        order: Order,
        *,
        cores: int | None = None,
        again: bool = False,
        topics: NewTopics | None = None,
    ) -> Plans:
        """Return how a connector cuts the addressed objects now; nothing is written.

        With `again` also what a second delivery would do with each.

        Problems are topics that take no records, or are missing and not created as in `run`. Others
        are missing secrets and files of the producer, and first records that cannot be delivered.
        """
        config = order.config
        problems = self.checks.deliverability.problems(config)
        if held := preflight.skip_reason(self.ledger, config.name):
            problems.append(held)
        checked = self.checks.topics.checks(order, topics, problems)
        since = (AGAIN.read(self.ledger.notes, delivery_id(order)) or math.inf) if again else None
        plans: list[ObjectPlan] = []
        single: list[str] = []
        fails = False
        with self.control.counting("planning") as count:

            def counted() -> Iterator[ObjectVersion]:
                for version in self.selections.versions(order):
                    count(len(plans))
                    yield version

            for request in self.selections.job_requests(order, counted(), cores or _cores()):
                try:
                    plans.append(self.checks.object_plan(config, request, checked, since))
                except (Misconfigured, Permanent, CorruptRecord, Defect) as exc:
                    single.append(str(exc))
                    fails |= isinstance(exc, CorruptRecord)  # the run begins, and its job fails
        new = [one.version for one in plans if one.state == "new"]
        self.selections.note_changed(config, new)
        self.selections.note_names(order, new)
        source = KeyScope.of(config).source
        prevented = bool(problems or (single and not plans and not fails))
        found = tuple(dict.fromkeys((*problems, *single)))
        return Plans(source, tuple(plans), found, prevented)

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

        With `failed` only those whose jobs FAILED or are CANCELLED; see `FailedObjects`. Missing
        topics are created as `topics` says. For a connector that a command made, they are also
        created where the brokers create topics at their first use. Raises where nothing was
        started; later errors are part of the report.
        """
        config = order.config
        # Cheap checks first: all of them before an engine starts, which may take minutes.
        preflight.require_running(self.ledger, config.name)
        self.checks.require_startable(order, engine)
        found = (
            self.selections.find_failed(order)
            if failed
            else self.selections.find(order, again=again)
        )
        self.checks.prepare(order, found.versions, topics)
        if not found.versions and not found.earlier:
            # Without an engine, which may take minutes to start.
            return self._completed(RunReport(engine.name), found, order, failed=failed)

        def start(runs: SubmittedRuns) -> str:
            # A person started it, and decides what follows its end. The subject is unique: a run's
            # token depends on it, and the service starts one run per token.
            subject, addresses = f"shell-{uuid4().hex}", list(order.addresses)
            return runs.begin_shared(subject, config.name, addresses, then=OnCompletion.PERSON)

        delivery = delivery_id(order)
        since = self._second_delivery(delivery) if again else None
        with self.drivers.open(engine, config.max_tasks, start) as driver:
            cores = driver.engine.cores
            requests = self.selections.job_requests(order, found.versions, cores)
            if again and engine.remote:
                requests = self._finished_first(requests)
            try:
                result = driver.deliver(requests, again=since, failed=failed, earlier=found.earlier)
            except TransactionsRefused:
                self.control.notify(run_notes.describe_refused())
                raise
        if again and not (result.stopped or result.left_out or result.broken):
            AGAIN.clear(self.ledger.notes, delivery)
        return self._completed(result, found, order, failed=failed, again=again)

    def failed(self, order: Order, *, topics: NewTopics | None = None) -> FailedPlans:
        """Return what a run of only the failed objects would do; nothing is written."""
        config = order.config
        found = self.selections.failed(order)
        problems = self.checks.deliverability.problems(config) if found else []
        if held := preflight.skip_reason(self.ledger, config.name):
            problems.append(held)
        checked = self.checks.topics.checks(order, topics, problems)
        self.checks.topics.note_recreated(order, [one.job for one in found if one.job is not None])
        recognised = self.checks.recognised(order)
        single: list[str] = []
        deliverable = 0
        for one in found:
            if one.job is not None:
                try:
                    self.selections.require_same_cluster(one.job)
                except Conflict as exc:
                    single.append(str(exc))
                    continue
            try:
                topic = preflight.route(config, one.version, recognised)
            except (Misconfigured, UnsupportedFormat) as exc:
                single.append(str(exc))
            else:
                deliverable += 1
                checked.usable(config.written_topics(topic))
        prevented = bool(problems or (single and not deliverable))
        return FailedPlans(found, tuple(dict.fromkeys((*problems, *single))), prevented)

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
        ledger = self.ledger
        job = known_job(ledger, job_id)
        if not accept_duplicates:
            self.replayable.require_latest(job)
        latest = ledger.connectors.get(job.connector)
        if job.state is JobState.DONE and extent is None:
            self.control.notify(run_notes.describe_done(job, stored=latest is not None))
            done = replace(report(ledger, job), delivered_before=True)
            return RunReport(engine.name, jobs=(done,))
        if latest is not None:
            self.replayable.note_pinned([job], latest.revision)
        with self._driver_of(job, engine) as driver:
            return driver.replay(job, ordinal=extent, accept_duplicates=accept_duplicates)

    def replay_all(
        self, connector: str, *, engine: EngineChoice = INLINE_HERE, accept_duplicates: bool = False
    ) -> RunReport:
        """Replay all FAILED and CANCELLED jobs of a connector, and those that were interrupted.

        Raises Misconfigured where none of its jobs can run here.
        """
        replayable, connectors = self.replayable, self.replayable.connectors
        _, latest = connectors.latest(connector, deleted=True)
        preflight.require_running(self.ledger, connector)
        self.checks.require_app()
        jobs, refused = replayable.deliverable(replayable.of_connector(connector))
        if refused and not jobs:
            raise Misconfigured(refused)
        if not jobs:
            self.control.notify(run_notes.describe_no_replay(connector))
            return RunReport(engine.name)
        # Jobs of several revisions share one engine, which keeps to the least `tasks.max`.
        bounds = [connectors.revision(connector, job.revision).max_tasks for job in jobs]
        least = min((most for most in bounds if most), default=None)
        replayable.note_pinned(jobs, latest)
        with self.drivers.open(engine, least, None) as driver:
            return driver.replay_all(jobs, refused=refused, accept_duplicates=accept_duplicates)

    def resume(self, job_id: str, *, engine: EngineChoice = INLINE_HERE) -> RunReport:
        """Deliver what a job has left, failed extents excluded; a final job is only reported."""
        job = known_job(self.ledger, job_id)
        with self._driver_of(job, engine) as driver:
            return driver.resume(job)

    def _driver_of(self, job: Job, engine: EngineChoice) -> AbstractContextManager[JobRunner]:
        """Open a driver for one job after all checks, because an engine may take long to start."""
        preflight.require_running(self.ledger, job.connector)
        self.checks.require_app()
        config = self.replayable.connectors.revision(job.connector, job.revision)
        if engine.remote:
            require_reachable(config, ())
        self.replayable.require_deliverable(job, config)

        def start(runs: SubmittedRuns) -> str:
            subject = f"shell-{uuid4().hex}"
            return runs.begin_job(job, subject=subject, then=OnCompletion.PERSON)

        return self.drivers.open(engine, config.max_tasks, start)

    def _completed(
        self,
        result: RunReport,
        found: Selection,
        order: Order,
        *,
        failed: bool,
        again: bool = False,
    ) -> RunReport:
        """Add the objects that were delivered before to a report, and say what they mean."""
        if found.delivered:
            totals = self.ledger.jobs.progress_of(found.delivered)
            before = (
                replace(report_of(job, totals[job.id]), delivered_before=True)
                for job in found.delivered
            )
            result = replace(result, jobs=(*result.jobs, *before))
            self.drivers.publish(found.delivered)
        for line in self._result_notes(result, order, failed=failed, again=again):
            self.control.notify(line)
        done = [job.job for job in result.jobs if job.state == JobState.DONE]
        self.checks.topics.note_recreated(order, list(self.ledger.jobs.get_many(done)))
        return result

    def _result_notes(
        self, result: RunReport, order: Order, *, failed: bool = False, again: bool = False
    ) -> Iterator[str]:
        """Yield what the jobs of a run mean, beside their states."""
        config, jobs = order.config, result.jobs
        if not jobs and failed:
            yield run_notes.describe_nothing_failed(config)
        elif not jobs:
            yield run_notes.describe_nothing(config)
        if isinstance(order, MadeOrder):
            own = (config.name, order.revision)
            pinned = {(job.connector, job.revision) for job in jobs} - {own}
            changed = {one for one in pinned if not self.selections.is_alike(config, *one)}
            yield from run_notes.describe_other_connectors(config, jobs)
            alike = [job for job in jobs if (job.connector, job.revision) in changed]
            # What follows a failure is said with it.
            if count := sum(not job.untried for job in alike):
                yield run_notes.describe_other_settings(count, len(jobs))
        elif older := [
            job for job in jobs if job.revision != order.revision and job.state not in ENDED
        ]:
            yield run_notes.describe_older(older, order.revision)
        yield from run_notes.describe_delivered(jobs, again=again)
        yield from run_notes.describe_bad_records(config, jobs)

    def _second_delivery(self, name: str) -> float:
        """Return when the second delivery of these addresses began: now, unless one is unfinished.

        Otherwise a repeated command would deliver a third time what the interrupted one finished.
        """
        notes = self.ledger.notes
        since = AGAIN.read(notes, name)
        if since is None:
            since = self.ledger.now()  # hosts have other clocks
            AGAIN.write(notes, name, since)
        else:
            self.control.notify(run_notes.describe_second_delivery(since))
        return since

    def _finished_first(self, requests: Iterator[JobRequest]) -> Iterator[JobRequest]:
        planner = self.drivers.planner
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


def delivery_id(order: Order) -> str:
    """Return the name of a delivery: with other settings, `--again` is another one."""
    settings: object = order.revision
    if isinstance(order, MadeOrder):
        settings = sorted(without_coverage(order.settings).items())
    text = "\n".join((order.config.name, str(settings), *sorted(order.addresses)))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def committed_records(ledger: Ledger, job_ids: Collection[str]) -> dict[tuple[str, int], int]:
    """Return the records that are committed of each extent that a worker holds now."""
    jobs = list(ledger.jobs.get_many(job_ids))
    extents = ledger.extents.list_many(jobs)
    held = (item for items in extents.values() for item in items if item.claim is not None)
    return {(item.job, item.ordinal): item.records for item in held}
