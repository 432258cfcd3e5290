"""What happens to an object after its job: `after.completion` tags, moves or deletes it.

    job DONE ──> action on the pinned version ──> event ──> the end is marked as published

Until the mark is written, the reconciler repeats the action; the next run of the object repeats it
also after that. An action that fails for good is noted and part of the event. Every action is
idempotent and conditional on the version that was read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from extentflow.config.connector import ConnectorConfig
from extentflow.config.connector_keys import DELETE, MOVE, NONE, TAG
from extentflow.errors import (
    BucketGone,
    Misconfigured,
    ObjectChanged,
    ObjectGone,
    Permanent,
    reason,
)
from extentflow.jobs.planner import is_followed
from extentflow.ledger import Ledger
from extentflow.ledger.notes import NoteKind
from extentflow.model import Job, JobState
from extentflow.storage import ChangeableStore, changeable

log = logging.getLogger(__name__)

# Why the action of a job failed for good.
FAILURES: NoteKind[str] = NoteKind(
    "completion#", lambda why: {"why": why}, lambda facts: facts["why"]
)


@dataclass(frozen=True, slots=True)
class CompletionActions:
    """Applies what the revision that a job pins says about objects of DONE jobs.

    `config` returns that revision, `store` the connector's store.
    """

    ledger: Ledger
    config: Callable[[Job], ConnectorConfig]
    store: Callable[[ConnectorConfig, int], object]

    def apply(self, job: Job) -> str:
        """Tag, move or delete the object of a DONE job; return why that failed for good, or "".

        Does nothing for any other job, nor for one that a later generation delivers again: that
        reads the object, too. An object that was deleted or replaced meanwhile is no error. Raises
        Retryable.
        """
        if job.state is not JobState.DONE:
            return ""
        try:
            config = self.config(job)
        except Misconfigured as exc:
            log.warning("nothing is done to the object of job %s: %s", job.id, exc)
            return ""
        if config.after_completion == NONE or is_followed(self.ledger, job):
            return ""
        failed = self._failure(config, job)
        notes, before = self.ledger.notes, FAILURES.read(self.ledger.notes, job.id)
        if failed:
            log.error("job %s is DONE, but %s", job.id, failed)
            FAILURES.write(notes, job.id, failed)
        elif before:
            FAILURES.clear(notes, job.id)
        return failed

    def _failure(self, config: ConnectorConfig, job: Job) -> str:
        """Apply the action; return why it failed for good, with the remedy, or ""."""
        action = f"after.completion={config.after_completion}"
        try:
            self._change(changeable(self.store(config, job.revision), job.version.uri), config, job)
        except (Permanent, Misconfigured) as exc:
            if isinstance(exc, ObjectGone | ObjectChanged) and not isinstance(exc, BucketGone):
                log.info("%s of job %s: nothing is left to do: %s", action, job.id, exc)
                return ""
            again = f"`extentflow run {job.version.uri} -c {job.connector}` repeats it"
            return f"{action} failed: {reason(exc)}; {again}"
        return ""

    @staticmethod
    def _change(store: ChangeableStore, config: ConnectorConfig, job: Job) -> None:
        version, action = job.version, config.after_completion
        if action == TAG:
            name, _, value = (config.completion_tag or "").partition("=")
            store.tag(version, name, value)
        if action == MOVE:
            store.copy(version, *config.moved_to(version.key))
        if action in (MOVE, DELETE):
            store.delete(version)
