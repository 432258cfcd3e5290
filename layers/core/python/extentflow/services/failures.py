"""Objects that failed under a connector, and what a run of only these does with each.

newest job of the current version    step
FAILED under the same revision       REPLAY   its failed and pending extents, at their positions
FAILED under another revision        AGAIN    the next generation, from the object's start
open                                 RESUME   such a run was interrupted
none: the object was replaced        NEW      its first job
DONE, CANCELLED                      left out
"""

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from extentflow.config.connector import ConnectorConfig
from extentflow.errors import ObjectGone
from extentflow.jobs.addresses import KeyScope, match_missing
from extentflow.ledger import summaries
from extentflow.model import Job, JobState, ObjectVersion
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

    `twice` are its records that were delivered before and are delivered again. `cause` is why the
    job FAILED.
    """

    version: ObjectVersion
    job: Job | None
    step: Step
    cause: str = ""
    twice: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "object": self.version.uri,
            "step": self.step.name,
            "delivered_twice": self.twice,
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
) -> tuple[FailedObject, ...]:
    """Return the addressed objects that failed, by key; nothing is written.

    Reads the ledger and the current version of each of these objects, and lists no bucket.
    """
    planner, scope = runtime.planner(), KeyScope.of(config)
    keys = {
        job.version.key
        for job in _sought(runtime, config.name)
        if job.version.bucket == scope.bucket and scope.holds(job.version.key)
    }
    means = match_missing(scope, addresses, keys)
    store = runtime.objects.store(config, revision)
    found: list[FailedObject] = []
    left: dict[str, list[str]] = {}
    for key in sorted(key for key in keys if means(key)):
        try:
            version = store.head(scope.bucket, key)
        except ObjectGone:
            left.setdefault("deleted", []).append(scope.uri(key))
            continue
        job = planner.newest_of(config.name, version)
        if job is not None and job.state is JobState.CANCELLED:
            left.setdefault("cancelled", []).append(scope.uri(key))
        elif job is None or job.state is not JobState.DONE:
            found.append(FailedObject(version, job, _step(job, revision)))
    for what, uris in left.items():
        notify(f"{_counted(uris)} left out, {what} since the failure, as {uris[0]}")
    facts = summaries(runtime.ledger, [one.job for one in found if one.job is not None])
    return tuple(
        replace(
            one,
            cause=facts[one.job.id].cause,
            twice=facts[one.job.id].progress.records if one.step is Step.AGAIN else 0,
        )
        if one.job
        else one
        for one in found
    )


def _sought(runtime: Runtime, connector: str) -> Iterable[Job]:
    jobs = runtime.ledger.jobs
    listed = (job for state in SOUGHT for job in jobs.list(connector, state))
    return (job for job in listed if not job.state.open or job.generation or job.reopened)


def _step(job: Job | None, revision: int) -> Step:
    if job is None:
        return Step.NEW
    if job.state is not JobState.FAILED:
        return Step.RESUME
    return Step.REPLAY if job.revision == revision else Step.AGAIN


def described(found: Sequence[FailedObject], revision: int) -> list[str]:
    """Return what a run of these objects does, a line per step."""
    lines = []
    for step in Step:
        alike = [one for one in found if one.step is step]
        if not alike:
            continue
        what = f"{_counted(alike)} to {step.value}"
        if step is Step.AGAIN:
            what = f"{_counted(alike)} to deliver in full under revision {revision}"
        more = ", ..." if len(alike) > 1 else ""
        twice = sum(one.twice for one in alike)
        doubled = f"; records of these that were delivered before, and are again: {twice:,}"
        lines.append(f"{what}: {alike[0].version.uri}{more}{doubled if twice else ''}")
    return lines


def _counted(objects: Sequence[object]) -> str:
    return f"{len(objects):,} object{'' if len(objects) == 1 else 's'}"
