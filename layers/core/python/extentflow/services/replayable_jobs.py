"""The jobs that a replay continues: those of one connector, and whether one may be continued.

Tests: unit/services/test_runs.py
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from extentflow.config.connector import ConnectorConfig
from extentflow.errors import Conflict, ExtentflowError, Misconfigured
from extentflow.jobs import preflight
from extentflow.jobs.connector_catalogue import ConnectorCatalogue
from extentflow.jobs.planner import Planner, check_cluster
from extentflow.ledger import Ledger
from extentflow.ledger.summaries import leased_work
from extentflow.model import Job, JobState
from extentflow.services import run_notes
from extentflow.services.failures import delivered_since, is_current
from extentflow.services.run_topics import RunCluster
from extentflow.services.selections import OPEN
from extentflow.wiring.objects import ObjectAccess
from extentflow.wording import counted

log = logging.getLogger(__name__)

REPLAYABLE = (JobState.FAILED, JobState.CANCELLED, *OPEN)


@dataclass(frozen=True, slots=True)
class ReplayableJobs:
    """Finds jobs to replay, in the cluster that `broker` opens.

    `notify` receives which of them are left out. `queued`: functions deliver open jobs.
    """

    ledger: Ledger
    connectors: ConnectorCatalogue
    objects: ObjectAccess
    planner: Planner
    broker: Callable[[], RunCluster]
    notify: Callable[[str], object]
    queued: bool = False

    def of_connector(self, connector: str) -> list[Job]:
        """Return a connector's jobs to replay, without those whose object a later job delivers.

        These are jobs that ended, replays of such jobs that were interrupted, and, while no worker
        holds any job of the connector, the jobs that its commands left open.
        """
        ledger, planner = self.ledger, self.planner
        listed = [job.id for state in REPLAYABLE for job in ledger.jobs.list(connector, state)]
        # Read again, because the index lags behind the items.
        current = (ledger.jobs.get(job_id) for job_id in dict.fromkeys(listed))
        known = [job for job in current if job is not None and job.state in REPLAYABLE]
        left_open = [job for job in known if job.state.open and not job.reopened]
        working = leased_work(ledger, {job.cluster for job in known if job.state.open}).jobs
        in_work = {job.connector for job in ledger.jobs.get_many(working)}
        left_out = {job.id for job in left_open} if self.queued or connector in in_work else set()
        if left_out and not self.queued:
            self.notify(run_notes.describe_in_work(connector, len(left_out)))
        jobs = [job for job in known if job.id not in left_out]
        latest = [job for job in jobs if not planner.is_followed(job)]
        if left := len(jobs) - len(latest):
            self.notify(run_notes.describe_followed(left))
        # Without versions, the bytes that such a job is pinned to do not exist any more. An open
        # job is run all the same, which ends it.
        unversioned = {
            job.id: job for job in latest if job.version.version_id is None and not job.state.open
        }
        replaced = {
            job_id
            for job_id in delivered_since(ledger, unversioned.values())
            if self._is_replaced(unversioned[job_id])
        }
        if replaced:
            self.notify(run_notes.describe_replaced(len(replaced)))
        return [job for job in latest if job.id not in replaced]

    def deliverable(self, jobs: Sequence[Job]) -> tuple[list[Job], list[str]]:
        """Return the jobs that can be delivered here, and why the others cannot."""
        found: list[Job] = []
        refused: list[str] = []
        # One check per revision, because each requests its topics and secrets.
        for revision in dict.fromkeys(job.revision for job in jobs):
            alike = [job for job in jobs if job.revision == revision]
            try:
                config = self.connectors.revision(alike[0].connector, revision)
                self.objects.store(config, revision)
                known = {job.version: job.content for job in alike}
                preflight.check(config, self.broker(), known, known.__getitem__)
            except Misconfigured as exc:
                what = f"{counted(len(alike), 'job')} of revision {revision} left out"
                refused += [f"{what}: {problem}" for problem in exc.problems]
                continue
            for job in alike:
                try:
                    check_cluster(job, self.broker().cluster)
                except Conflict as exc:
                    refused.append(str(exc))
                else:
                    found.append(job)
        return found, refused

    def require_deliverable(self, job: Job, config: ConnectorConfig) -> None:
        """Raise where a job, whose revision is `config`, cannot be delivered here."""
        broker = self.broker()
        preflight.check(config, broker, [job.version], lambda _version: job.content)
        check_cluster(job, broker.cluster)

    def require_latest(self, job: Job) -> None:
        """Raise Conflict where another generation delivers the object since."""
        if later := self.planner.later(job):
            raise Conflict(
                f"{job.version.uri}: job {later.id}, {later.state}, delivers the object since;"
                f" `extentflow status {later.id}` shows it. `extentflow replay {job.id}"
                " --accept-duplicates` continues this one all the same (records that both deliver"
                " are in the topic twice)"
            )

    def note_pinned(self, jobs: Sequence[Job], latest: int) -> None:
        """Report, before a replay, the jobs that use an earlier revision, and where it delivers."""
        stored = bool(jobs) and self.ledger.connectors.get(jobs[0].connector) is not None
        for revision in dict.fromkeys(job.revision for job in jobs if job.revision != latest):
            alike = [job for job in jobs if job.revision == revision]
            topic = self.connectors.revision(jobs[0].connector, revision).topic
            self.notify(run_notes.describe_pinned(alike, topic=topic, latest=latest, stored=stored))

    def _is_replaced(self, job: Job) -> bool:
        """Return whether the version of a job is gone; False where that cannot be found out."""
        try:
            config = self.connectors.revision(job.connector, job.revision)
            return not is_current(self.objects.store(config, job.revision), job.version)
        except ExtentflowError as exc:  # the job's delivery reports it
            log.warning("%s: whether it was replaced is unknown: %s", job.version.uri, exc)
            return False
