"""Objects whose jobs failed or were cancelled, and what a run of only these does with each.

newest job of the current version    step
ended, under the same settings       REPLAY   its failed and pending extents, at their positions
ended, under other settings          AGAIN    the next generation, from the object's start
open                                 RESUME   such a run was interrupted
none: the object was replaced        NEW      its first job
DONE                                 left out

Ended means FAILED, or CANCELLED by `extentflow stop`, as for `extentflow replay -c`. A job that is
SUPERSEDED, because its object was replaced, counts until a later version is delivered.
"""

import enum
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from extentflow.errors import BucketGone, ObjectGone, Permanent
from extentflow.jobs.addresses import KeyScope, match_missing
from extentflow.jobs.connector_catalogue import ConnectorCatalogue
from extentflow.jobs.planner import AGAIN_BEGAN, OTHERS_DELIVER, Planner
from extentflow.ledger import Ledger
from extentflow.ledger.summaries import summaries
from extentflow.model import Job, JobState, ObjectVersion, job_id
from extentflow.services.coverage import Coverage
from extentflow.services.orders import Order
from extentflow.services.places import seen_by
from extentflow.storage import ObjectStore
from extentflow.wiring.objects import ObjectAccess
from extentflow.wording import counted

log = logging.getLogger(__name__)

Others = Callable[[ObjectVersion], Iterable[Job]]

# Bounds the requests that find jobs of other versions of an object.
SEARCHED_JOBS = 1_000
ENDED = (JobState.FAILED, JobState.CANCELLED)
# Open jobs count only where a run or a replay of ended ones opened them and did not finish.
SOUGHT = (*ENDED, JobState.SUPERSEDED, JobState.PLANNING, JobState.RUNNING)
# Of a later job of an object, best first.
LATER = (JobState.DONE, JobState.RUNNING, JobState.PLANNING, *ENDED, JobState.SUPERSEDED)
# How the reason of a job begins that a person closed.
DISMISSED = "dismissed: "


class Step(enum.StrEnum):
    """What a run of failed objects does with one of them."""

    REPLAY = "continue where it ended"
    AGAIN = "deliver in full under the latest revision"
    RESUME = "resume under its own revision"
    NEW = "deliver the new version"


@dataclass(frozen=True, slots=True)
class FailedObject:
    """The current version of an object that was not delivered, its newest job, and what follows.

    `before` are its records that were delivered before: of this version, or of earlier ones where
    it has no job yet. Only the step AGAIN delivers them again. `cause` is why the job ended.
    """

    version: ObjectVersion
    job: Job | None
    step: Step
    cause: str = ""
    before: int = 0

    @property
    def again(self) -> int:
        """How many records are delivered a second time."""
        return self.before if self.step is Step.AGAIN else 0

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "object": self.version.uri,
            "step": self.step.name,
            "delivered_before": self.before,
            "job": self.job.id if self.job else None,
            "revision": self.job.revision if self.job else None,
            "cause": self.cause,
        }


@dataclass(frozen=True, slots=True)
class FailedObjects:
    """Finds objects whose jobs failed or were cancelled."""

    ledger: Ledger
    connectors: ConnectorCatalogue
    objects: ObjectAccess
    planner: Planner

    def find(
        self,
        order: Order,
        notify: Callable[[str], object],
        *,
        alike: Callable[[int], bool],
        others: Others = lambda _version: (),
    ) -> tuple[FailedObject, ...]:
        """Return the addressed objects whose jobs ended without them, by key; writes nothing.

        Reads the ledger and the current version of each of these objects, and lists no bucket.
        `alike` says whether a revision has the settings of this one, `others` which jobs of other
        connectors deliver an object as well. Raises BucketGone.
        """
        config, planner, scope = order.config, self.planner, KeyScope.of(order.config)
        failed: dict[str, list[Job]] = {}
        for one in _sought(self.ledger, config.name):
            if one.version.bucket == scope.bucket and scope.holds(one.version.key):
                failed.setdefault(one.version.key, []).append(one)
        means = match_missing(scope, order.addresses, failed)
        store = self.objects.store(config, order.revision)
        found: list[FailedObject] = []
        gone: list[str] = []
        for key in sorted(key for key in failed if means(key)):
            try:
                version = store.head(scope.bucket, key)
            except BucketGone:  # not a deletion: a name is wrong, or a folder is not mounted
                raise
            except ObjectGone:
                gone.append(scope.uri(key))
                continue
            except Permanent as exc:  # its job ends with this cause, and the others run
                log.warning("%s: the version of its newest job is taken: %s", scope.uri(key), exc)
                version = failed[key][0].version
            job = planner.newest_of(config.name, version)
            if any(one.state is JobState.DONE for one in ([job] if job else others(version))):
                continue
            # Of a cancelled job of which nothing is left, a replay finds out that it is DONE.
            same = job is not None and (alike(job.revision) or planner.is_complete(job))
            found.append(FailedObject(version, job, _step(job, same_settings=same)))
        if gone:
            notify(
                f"{counted(len(gone), 'object')} left out, deleted since, as {gone[0]};"
                f" `extentflow dismiss -c {config.name}` closes their jobs"
            )
        jobs_of = {one: _jobs_of(self.ledger, one, failed[one.version.key]) for one in found}
        facts = summaries(self.ledger, [job for jobs in jobs_of.values() for job in jobs])
        return tuple(
            replace(
                one,
                cause=facts[one.job.id].cause if one.job else "",
                before=sum(facts[job.id].progress.records for job in jobs),
            )
            for one, jobs in jobs_of.items()
        )

    def elsewhere(self, order: Order, coverage: Coverage) -> Iterator[str]:
        """Yield a line for each such object whose job belongs to a connector of another folder."""
        config, ledger, planner = order.config, self.ledger, self.planner
        scope, store = KeyScope.of(config), self.objects.store(config, order.revision)
        for name in dict.fromkeys(other.name for other in coverage.others()):
            failed = {
                seen: job
                for state in ENDED
                for job in ledger.jobs.list(name, state)
                if (seen := seen_by(config, job.version)) is not None
                and scope.holds(seen.key)
                and coverage.is_same(job)
            }
            means = match_missing(scope, order.addresses, {seen.key: None for seen in failed})
            for seen, job in sorted(failed.items(), key=lambda one: one[0].key):
                if means(seen.key) and not planner.is_followed(job) and is_current(store, seen):
                    yield (
                        f"{job.version.uri}: job {job.id} of connector {name}, which delivers"
                        f" to the same topic, is {job.state}; `extentflow replay {job.id}`"
                        " continues it, and its own command with --failed delivers it with other"
                        " settings"
                    )


def is_unfinished(job: Job) -> bool:
    """Return whether a job ended without its object: FAILED, CANCELLED, or the object was replaced.

    Not where a person dismissed it, or another connector delivers the object to the same topic.
    """
    if job.state is not JobState.SUPERSEDED:
        return job.state in ENDED
    return not job.reason.startswith(DISMISSED) and not job.reason.endswith(OTHERS_DELIVER)


def is_current(store: ObjectStore, version: ObjectVersion) -> bool:
    """Return whether an object exists in this version; raises as `head` for all else."""
    return _current(store, version) == version


def exists(store: ObjectStore, version: ObjectVersion) -> bool:
    """Return whether an object exists, in whatever version; raises as `head` for all else."""
    return _current(store, version) is not None


def _current(store: ObjectStore, version: ObjectVersion) -> ObjectVersion | None:
    try:
        return store.head(version.bucket, version.key)
    except BucketGone:
        raise
    except ObjectGone:
        return None


def delivered_since(ledger: Ledger, jobs: Iterable[Job]) -> dict[str, Job]:
    """Return, by the id of each of these jobs, one that delivered another version after it began.

    That version may have been replaced in turn, also by the job's own.
    """
    asked = list(jobs)
    later = later_jobs(ledger, asked, (JobState.DONE,))
    versions = {job.id: job.version for job in asked}
    return {key: one for key, one in later.items() if one.version != versions[key]}


def later_jobs(
    ledger: Ledger,
    jobs: Iterable[Job],
    states: Sequence[JobState] = LATER,
    *,
    least: int = SEARCHED_JOBS,
) -> dict[str, Job]:
    """Return, by the id of each of these jobs, one that has its object since: best a DONE one.

    It is a later generation, or of another version and later: created since, or DONE since. Reads
    each connector's jobs in `states`, as far back as the oldest of `jobs`, and at
    `least` so many.
    """
    asked: dict[tuple[str, str, str], list[Job]] = {}
    oldest: dict[str, float] = {}
    for job in jobs:
        asked.setdefault(_target(job), []).append(job)
        oldest[job.connector] = min(job.created, oldest.get(job.connector, job.created))
    found: dict[str, Job] = {}
    for connector, since in oldest.items():
        for state in states:
            for count, other in enumerate(ledger.jobs.list(connector, state)):
                if count >= least and other.created < since:
                    break
                if other.state is JobState.SUPERSEDED and not is_unfinished(other):
                    continue
                for job in asked.get(_target(other), ()):
                    if job.id not in found and _is_later(other, job):
                        found[job.id] = other
    return found


def _target(job: Job) -> tuple[str, str, str]:
    return job.connector, job.version.bucket, job.version.key


def _is_later(other: Job, job: Job) -> bool:
    if other.version == job.version:
        return other.generation > job.generation
    ended = other.ended if other.state is JobState.DONE else 0.0
    return (ended or other.created) > job.created


def _jobs_of(ledger: Ledger, one: FailedObject, of_key: list[Job]) -> list[Job]:
    """Return the jobs that say what is known of an object, and what it was delivered before."""
    newest = one.job
    if newest is None:
        return of_key
    earlier = (
        ledger.jobs.get(job_id(newest.connector, newest.version, number))
        for number in range(newest.generation)
    )
    return [*filter(None, earlier), newest]


def _sought(ledger: Ledger, connector: str) -> Iterable[Job]:
    jobs = ledger.jobs
    listed = (job for state in SOUGHT for job in jobs.list(connector, state))
    ended = (
        job
        for job in listed
        if is_unfinished(job) or (job.state.open and (job.generation or job.reopened))
    )
    # The interrupted `run --again` continues with the next generation.
    return (job for job in ended if job.reason != AGAIN_BEGAN)


def _step(job: Job | None, *, same_settings: bool) -> Step:
    if job is None:
        return Step.NEW
    if job.state not in ENDED:
        return Step.RESUME
    return Step.REPLAY if same_settings else Step.AGAIN


def described(found: Sequence[FailedObject], revision: int) -> list[str]:
    """Return what a run of these objects does, a line per step."""
    lines = []
    for step in Step:
        alike = [one for one in found if one.step is step]
        if not alike:
            continue
        what = f"{counted(len(alike), 'object')} to {step.value}"
        if step is Step.AGAIN:
            what = f"{counted(len(alike), 'object')} to deliver in full under revision {revision}"
        more = ", ..." if len(alike) > 1 else ""
        # What continues sends nothing of these again.
        before = sum(one.before for one in alike if step in {Step.AGAIN, Step.NEW})
        which = "of earlier versions, which their jobs delivered and which stay in the topic"
        if step is Step.AGAIN:
            which = "of these that were delivered before, and are again"
        records = f"; records {which}: {before:,}" if before else ""
        lines.append(f"{what}: {alike[0].version.uri}{more}{records}")
    return lines
