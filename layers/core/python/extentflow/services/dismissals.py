"""Jobs that nothing can deliver any more, and that a person closes: their objects were removed."""

from collections.abc import Sequence
from dataclasses import dataclass

from extentflow.errors import Misconfigured
from extentflow.jobs.connector_catalogue import ConnectorCatalogue
from extentflow.jobs.run import known_job
from extentflow.ledger import Ledger
from extentflow.model import Job, JobState
from extentflow.services.failures import (
    DISMISSED,
    ENDED,
    exists,
    is_current,
    is_unfinished,
    later_jobs,
)
from extentflow.wiring.objects import ObjectAccess

REASON = f"{DISMISSED}the object is not there in this version any more"


@dataclass(frozen=True, slots=True)
class Dismissed:
    """The jobs that became SUPERSEDED, and the addresses of objects that are still there."""

    jobs: tuple[Job, ...]
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dismissals:
    """Makes FAILED and CANCELLED jobs SUPERSEDED whose object version is gone.

    It also closes SUPERSEDED ones, which else count as undelivered, whatever version is there now.

    Only such jobs: an object that is still there would get its job back with the next run. An
    object that returns in the same version does so, too, and is delivered then.
    """

    ledger: Ledger
    connectors: ConnectorCatalogue
    objects: ObjectAccess

    def dismiss(self, job_ids: Sequence[str]) -> Dismissed:
        """Dismiss jobs, given by their ids or beginnings of these; none where one is refused.

        Raises Misconfigured for a job that is open, DONE or dismissed, or whose object is still
        there. Raises BucketGone, because a name may be wrong, and as `head` of the store does.
        """
        jobs = [known_job(self.ledger, job_id) for job_id in job_ids]
        problems = [problem for job in jobs if (problem := self._problem(job))]
        if problems:
            raise Misconfigured(problems)
        return Dismissed(tuple(self._close(job) for job in jobs))

    def dismiss_all(self, connector: str) -> Dismissed:
        """Dismiss the jobs of a connector whose object is gone, and no later job has; raises so."""
        self.connectors.latest(connector, deleted=True)  # an unknown name is a mistake
        jobs, states = self.ledger.jobs, (*ENDED, JobState.SUPERSEDED)
        listed = [job for state in states for job in jobs.list(connector, state)]
        listed = [job for job in listed if is_unfinished(job)]
        later = later_jobs(self.ledger, listed)
        left = [job for job in listed if job.id not in later]
        current = [job for job in left if self._is_there(job)]
        kept = {job.id for job in current}
        closed = tuple(self._close(job) for job in left if job.id not in kept)
        return Dismissed(closed, tuple(job.version.uri for job in current))

    def _problem(self, job: Job) -> str:
        """Return why a job is not dismissed, and what to do; "" where it can be."""
        what = f"job {job.id} is {job.state}"
        if job.state.open:
            return f"{what}; `extentflow stop {job.connector}` cancels the connector's open jobs"
        if not is_unfinished(job):
            return f"{what}; nothing of it is left to dismiss"
        if self._is_current(job):
            return (
                f"{job.version.uri} is still there, in the version of job {job.id}: remove it, then"
                f" repeat this command; or `extentflow replay {job.id}` delivers the rest"
            )
        return ""

    def _is_there(self, job: Job) -> bool:
        """Return whether an object is there in a job's version; of a SUPERSEDED one in any."""
        if job.state is not JobState.SUPERSEDED:
            return self._is_current(job)
        config = self.connectors.revision(job.connector, job.revision)
        return exists(self.objects.store(config, job.revision), job.version)

    def _is_current(self, job: Job) -> bool:
        config = self.connectors.revision(job.connector, job.revision)
        return is_current(self.objects.store(config, job.revision), job.version)

    def _close(self, job: Job) -> Job:
        return self.ledger.jobs.dismiss(job.id, f"{REASON}; it was {job.state}: {job.reason}")
