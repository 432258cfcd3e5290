"""What a worker does with one message of the extents queue.

Owns: when a message is over, when it comes back, when it goes to the dead letter queue. Refuses to
know: SQS, Lambda, how a message gets there (`dispatch`).

    the extent is               the message
    DONE, its job closed        is over
    FAILED now                  moves to the dead letter queue with the reason
    FAILED before               is a replay: the extent is reopened and run
    handed back                 goes on as a copy
    busy: by this message, by   comes back when the lease may have ended
      nobody's, no free slot
    busy: by another message    is over; the holder's own comes back by itself
    waiting: paused connector,  comes back later; no attempt is used up
      broker, table or store away

Attempts are the ledger's, never the receive count's.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from random import Random

from extentflow.engines.dispatch import Dispatch
from extentflow.errors import (
    ExtentflowError,
    Misconfigured,
    Permanent,
    ProgressUnknown,
    Retryable,
    reason,
)
from extentflow.keeper import Keeper
from extentflow.ledger import ConnectorState, Ledger
from extentflow.model import Extent, ExtentState, JobState, Outcome, Receipt
from extentflow.queues import Message, Queue
from extentflow.runner import Work, fail_extent, run_extent

log = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 5.0
LONGEST_DELAY_SECONDS = 300.0
PAUSED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of a message: over, or back after `again_seconds`; and what was done."""

    again_seconds: float | None = None
    receipt: Receipt | None = None

    @property
    def over(self) -> bool:
        """Whether the message may be deleted."""
        return self.again_seconds is None


@dataclass(frozen=True, slots=True)
class QueueWorker:
    """One worker process's way with messages, one at a time.

    `hide_seconds` is how long a message stays hidden while its extent is in work; it is renewed
    with the lease, every `renew_seconds`.
    """

    work: Work
    dispatch: Dispatch
    queue: Queue
    dead: Queue
    ledger: Ledger
    random: Random
    hide_seconds: float = 180.0
    renew_seconds: float = 20.0

    def handle(self, message: Message) -> Answer:
        """Do what a message asks for.

        Everything that is not over comes back; only defects of ours raise, before any claim.
        """
        extent = _read(message.body)
        if extent is None:
            return self._bury(message, "not an extent of schema version 1; it was not read")
        try:
            answer = self._before(extent, message)
            if answer is None:
                receipt = self._run(extent, message)
                answer = self._after(extent, message, receipt)
        except Retryable as exc:
            log.warning("%s: %s; its message comes back", extent.uri, exc)
            return Answer(self._delay(message))
        except Permanent as exc:  # nothing that a claim could record: another job, another cluster
            return self._bury(message, reason(exc))
        return answer

    def _before(self, extent: Extent, message: Message) -> Answer | None:
        """Answer what needs no worker; None: run the extent."""
        state = self.ledger.connector_state(extent.connector)
        if state is ConnectorState.PAUSED:
            return Answer(PAUSED_SECONDS * (0.5 + self.random.random()))
        if state is ConnectorState.STOPPED:
            self.ledger.end(
                extent.job, JobState.CANCELLED, f"connector {extent.connector} was stopped"
            )
            return Answer()
        if self.ledger.extent(extent.job, extent.ordinal).state is ExtentState.FAILED:
            return self._reopen(extent, message)
        return None

    def _reopen(self, extent: Extent, message: Message) -> Answer | None:
        job = self.ledger.job(extent.job)
        if job is None or job.state is JobState.CANCELLED:
            return self._bury(message, f"job {extent.job} is CANCELLED or unknown; no replay")
        try:
            self.ledger.reopen(job.id, extent.ordinal)
        except ProgressUnknown as exc:
            return self._bury(message, reason(exc))
        return None

    def _run(self, extent: Extent, message: Message) -> Receipt:
        def renew() -> None:
            self.work.slots.renew()
            try:
                self.queue.delay(message, self.hide_seconds)
            except ExtentflowError as exc:
                log.warning("%s: its message was not hidden for longer: %s", extent.uri, exc)

        with Keeper(renew, self.renew_seconds):
            try:
                return run_extent(extent, self.work, message=message.id)
            except Misconfigured as exc:
                return fail_extent(extent, self.work, reason(exc))
            except ExtentflowError:
                raise
            except Exception as exc:
                log.exception("%s: unexpected error", extent.uri)
                what = f"{extent.uri}: unexpected {type(exc).__name__}: {exc}"
                return fail_extent(extent, self.work, what)

    def _after(self, extent: Extent, message: Message, receipt: Receipt) -> Answer:
        if receipt.outcome is Outcome.BUSY:
            if receipt.holder not in ("", message.id):
                return Answer(receipt=receipt)
            return Answer(receipt.retry_after_seconds, receipt)
        if receipt.outcome is Outcome.HANDED_BACK:
            self.queue.send([message.body])
        job = self.ledger.job(extent.job)
        if receipt.outcome is Outcome.DONE and job is not None:
            self.dispatch.follow(job, extent)
        superseded = job is not None and job.state is JobState.SUPERSEDED
        if receipt.outcome is Outcome.FAILED and not superseded:
            return replace(self._bury(message, receipt.reason), receipt=receipt)
        return Answer(receipt=receipt)

    def _bury(self, message: Message, why: str) -> Answer:
        """Move a message to the dead letter queue: sent there first, so that it is never lost."""
        log.warning("message %s goes to the dead letter queue: %s", message.id, why)
        self.dead.send([message.body], reason=why)
        return Answer()

    def _delay(self, message: Message) -> float:
        bound = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(message.received, 20))
        return bound * (0.5 + self.random.random() / 2)


def _read(body: str) -> Extent | None:
    try:
        return Extent.from_message(json.loads(body))
    except (ValueError, KeyError, TypeError) as exc:
        log.warning("not an extent: %s", exc)
        return None
