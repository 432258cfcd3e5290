"""What happens to an object after its job: `after.completion` tags, moves or deletes it.

    job DONE ──> action on the pinned version ──> event ──> the end is marked as published

Until the mark is written, the reconciler repeats the action; the next run of the object repeats it
also after that. An action that fails for good is noted and part of the event. Every action is
idempotent, and applies only to the upload that was read. In a bucket without versions, an object of
equal bytes that was stored at another time stays; the next delivery is a job of its own.

An object with bad records is neither moved nor deleted: a dead letter may state only where its
record is, and others need the object's header.
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
from extentflow.jobs.planner import is_followed, is_other_upload
from extentflow.ledger import Ledger
from extentflow.ledger.notes import NoteKind
from extentflow.model import Job, JobState
from extentflow.storage import ChangeableStore, ObjectStore, changeable
from extentflow.wording import counted

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
    store: Callable[[ConnectorConfig, int], ObjectStore]

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
        action, version = f"after.completion={config.after_completion}", job.version
        if version.version_id is None and not version.modified:
            return (
                f"{action} was not applied: job {job.id} does not record when the object was"
                " stored, so that a later upload could be removed. An earlier release registered"
                " the job, or the server states no time. Remove the object by hand, or enable the"
                " bucket's versioning"
            )
        removes = config.after_completion in (MOVE, DELETE)
        if removes and (bad := self.ledger.jobs.progress(job.id).bad):
            return (
                f"{action} was not applied: {counted(bad, 'bad record')} went to topic"
                f" {config.dead_letter_topic}, and replays of dead letters read the object. Remove"
                " it by hand when they are delivered or discarded"
            )
        store = self.store(config, job.revision)
        try:
            _require_same_upload(store, job)
            self._change(changeable(store, job.version.uri), config, job)
        except (Permanent, Misconfigured) as exc:
            if isinstance(exc, ObjectGone | ObjectChanged) and not isinstance(exc, BucketGone):
                log.info("%s of job %s: nothing is left to do: %s", action, job.id, exc)
                return ""
            again = f"`extentflow run {job.version.address} -c {job.connector}` repeats it"
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


def _require_same_upload(store: ObjectStore, job: Job) -> None:
    """Raise ObjectChanged unless the object is known to be the upload that the job delivered.

    An upload between this and the change, of equal bytes, is not noticed: no server compares times.
    """
    version = job.version
    if version.version_id is not None:
        return
    now = store.head(version.bucket, version.key)
    if now != version or is_other_upload(job, now):
        raise ObjectChanged(f"{version.uri}: another upload is there than the job delivered")
