"""Objects that failed under a connector, and what a run of only these does with each.

newest job of the current version    step
FAILED under the same settings       REPLAY   its failed and pending extents, at their positions
FAILED under other settings          AGAIN    the next generation, from the object's start
open                                 RESUME   such a run was interrupted
none: the object was replaced        NEW      its first job
DONE, CANCELLED                      left out
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from extentflow.config.connector import ConnectorConfig
from extentflow.errors import ObjectGone, counted
from extentflow.jobs.addresses import KeyScope, match_missing
from extentflow.ledger import summaries
from extentflow.model import Job, JobState, ObjectVersion
from extentflow.services.connectors import seen_by, sharing
from extentflow.wiring import Runtime

# Open jobs count only where a run or a replay of failed ones opened them and did not finish.
SOUGHT = (JobState.FAILED, JobState.PLANNING, JobState.RUNNING)


class Step(enum.StrEnum):
    """What a run of failed objects does with one of them."""

    REPLAY = "continue where it failed"
    AGAIN = "deliver in full under the latest revision"
    RESUME = "resume"
    NEW = "deliver the new version"


@dataclass(frozen=True, slots=True)
class FailedObject:
    """The current version of an object that failed, its newest job, and what follows.

    `before` are its records that were delivered before: of this version, and delivered again, or of
    an earlier one. `cause` is why the job FAILED.
    """

    version: ObjectVersion
    job: Job | None
    step: Step
    cause: str = ""
    before: int = 0

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


def failed_objects(
    runtime: Runtime,
    config: ConnectorConfig,
    revision: int,
    addresses: Sequence[str],
    notify: Callable[[str], object],
    *,
    alike: Callable[[int], bool],
) -> tuple[FailedObject, ...]:
    """Return the addressed objects that failed, by key; nothing is written.

    Reads the ledger and the current version of each of these objects, and lists no bucket. `alike`
    says whether a revision has the settings of this one.
    """
    planner, scope = runtime.planner(), KeyScope.of(config)
    failed: dict[str, list[Job]] = {}
    for one in _sought(runtime, config.name):
        if one.version.bucket == scope.bucket and scope.holds(one.version.key):
            failed.setdefault(one.version.key, []).append(one)
    means = match_missing(scope, addresses, failed)
    store = runtime.objects.store(config, revision)
    found: list[FailedObject] = []
    left: dict[str, list[str]] = {}
    for key in sorted(key for key in failed if means(key)):
        try:
            version = store.head(scope.bucket, key)
        except ObjectGone:
            left.setdefault("deleted", []).append(scope.uri(key))
            continue
        job = planner.newest_of(config.name, version)
        if job is not None and job.state is JobState.CANCELLED:
            left.setdefault("cancelled", []).append(scope.uri(key))
        elif job is None or job.state is not JobState.DONE:
            same = job is not None and alike(job.revision)
            found.append(FailedObject(version, job, _step(job, same_settings=same)))
    for what, uris in left.items():
        notify(f"{counted(len(uris), 'object')} left out, {what} since the failure, as {uris[0]}")
    jobs_of = {one: [one.job] if one.job else failed[one.version.key] for one in found}
    facts = summaries(runtime.ledger, [job for jobs in jobs_of.values() for job in jobs])
    return tuple(
        replace(
            one,
            cause=facts[one.job.id].cause if one.job else "",
            before=sum(facts[job.id].progress.records for job in jobs)
            if one.step in {Step.AGAIN, Step.NEW}
            else 0,
        )
        for one, jobs in jobs_of.items()
    )


def failed_elsewhere(
    runtime: Runtime, config: ConnectorConfig, addresses: Sequence[str]
) -> Iterator[str]:
    """Yield a line for each addressed object that failed under a connector of another folder."""
    scope, ledger, planner = KeyScope.of(config), runtime.ledger, runtime.planner()
    for other in sharing(config, ledger.connectors.list(deleted=True)):
        failed = {
            seen.key: job
            for job in ledger.jobs.list(other.name, JobState.FAILED)
            if (seen := seen_by(config, job.version)) is not None and scope.holds(seen.key)
        }
        means = match_missing(scope, addresses, failed)
        for key in sorted(key for key in failed if means(key)):
            job = failed[key]
            if not planner.is_followed(job):
                yield (
                    f"{job.version.uri}: job {job.id} of connector {other.name} FAILED, which"
                    f" delivers to the same topic; `extentflow replay {job.id}` continues it, and"
                    " its own command with --failed delivers it with other settings"
                )


def _sought(runtime: Runtime, connector: str) -> Iterable[Job]:
    jobs = runtime.ledger.jobs
    listed = (job for state in SOUGHT for job in jobs.list(connector, state))
    return (job for job in listed if not job.state.open or job.generation or job.reopened)


def _step(job: Job | None, *, same_settings: bool) -> Step:
    if job is None:
        return Step.NEW
    if job.state is not JobState.FAILED:
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
        before = sum(one.before for one in alike)
        which = "of earlier versions of these that were delivered, and stay in the topic"
        if step is Step.AGAIN:
            which = "of these that were delivered before, and are again"
        records = f"; records {which}: {before:,}" if before else ""
        lines.append(f"{what}: {alike[0].version.uri}{more}{records}")
    return lines
