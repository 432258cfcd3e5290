"""What a worker does with one message of the extents queue.

Owns: when a message is over, when it comes back, when it goes to the dead letter queue. Refuses to
know: SQS, Lambda, how a message gets there (`dispatch`).

    the extent is               the message
    DONE, its job closed        is over
    FAILED now                  moves to the dead letter queue with the reason
    FAILED before               is a replay: the extent is reopened and run
    handed back                 goes on as a copy
    busy, or no slot is free    comes back when the lease may have ended, whoever holds it
    waiting: paused connector,  comes back later; no attempt is used up
      broker, table or store away
    of a job that has ended     is over
    of a stopped connector      cancels its job and is over
    no extent, or nobody's      moves to the dead letter queue with the reason

No message is over before its extent is final, its job has ended or a copy was sent. That another
message holds the extent is no reason: it may be gone, when its worker froze before it claimed.
Attempts are the ledger's, never the receive count's. What comes back is delayed longer every time;
a paused connector's message goes on as a copy before the receive count can end it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from extentflow.background import LeaseRenewer
from extentflow.delivery.runner import DeliveryContext
from extentflow.engines import run_or_fail
from extentflow.errors import ExtentflowError, Permanent, ProgressUnknown, reason
from extentflow.ledger import ConnectorState, Ledger
from extentflow.model import (
    JOB_ID_DIGITS,
    Extent,
    ExtentState,
    Job,
    JobState,
    Outcome,
    Receipt,
)
from extentflow.queue import Message, Queue
from extentflow.queue.dispatch import ExtentDispatcher

log = logging.getLogger(__name__)

PAUSED_RECEIVES = 50  # well below the queue's maxReceiveCount
MAX_INTEGER = 1 << 63
MAX_ORDINAL = 10**8  # eight digits in the ledger
MAX_TEXT_CHARACTERS = 4_096
JOB_ID = re.compile(f"[0-9a-f]{{{JOB_ID_DIGITS}}}")


@dataclass(frozen=True, slots=True)
class MessageDisposition:
    """What becomes of a message: over, or back after `again_seconds`; and what was done.

    `ended` is its job where that came to an end that nobody had announced before.
    """

    again_seconds: float | None = None
    receipt: Receipt | None = None
    ended: Job | None = None

    @property
    def over(self) -> bool:
        """Whether the message may be deleted."""
        return self.again_seconds is None


@dataclass(frozen=True, slots=True)
class QueueWorker:
    """One worker process's way with messages, one at a time.

    `hide_seconds` is how long a message stays hidden while its extent is in work; it is renewed
    with the lease, every `renew_seconds`. A message that comes back does so after about
    `first_delay_seconds`, doubled with every receive, at most `longest_delay_seconds`. `ended`
    announces a job's end; where it fails, whoever sweeps announces it later.
    """

    work: DeliveryContext
    dispatch: ExtentDispatcher
    queue: Queue
    dead: Queue
    ledger: Ledger
    random: Random
    hide_seconds: float = 120.0
    renew_seconds: float = 20.0
    first_delay_seconds: float = 5.0
    longest_delay_seconds: float = 300.0
    ended: Callable[[Job], None] = lambda _job: None

    def handle(self, message: Message) -> MessageDisposition:
        """Do what a message asks for.

        Everything that is not over comes back; only defects of ours raise, and what raised comes
        back as well.
        """
        try:
            return self._handle(message)
        except ExtentflowError as exc:
            log.warning("message %s comes back: %s", message.id, exc)
            return MessageDisposition(self._delay(message))

    def _handle(self, message: Message) -> MessageDisposition:
        extent = read_extent(message.body)
        if extent is None:
            return self._bury(message, "not an extent of schema version 1; it was not read")
        try:
            answer = self._before(extent, message)
            if answer is not None:
                return answer
            return self._after(extent, message, self._run(extent, message))
        except Permanent as exc:  # nothing that a claim could record: another job, another cluster
            return self._bury(message, reason(exc))

    def _before(self, extent: Extent, message: Message) -> MessageDisposition | None:
        """Answer what needs no worker; None: run the extent."""
        wanted = self.ledger.connectors.state(extent.connector)
        if wanted is ConnectorState.PAUSED:
            return self._paused(message)
        failed = self.ledger.extents.get(extent.job, extent.ordinal).state is ExtentState.FAILED
        if wanted is ConnectorState.STOPPED:
            return self._stopped(extent, message, failed=failed)
        return self._reopen(extent, message) if failed else None

    def _paused(self, message: Message) -> MessageDisposition:
        """Wait, for days if need be: neither receive count nor retention may end the message."""
        if message.received < PAUSED_RECEIVES:
            return MessageDisposition(self._delay(message))
        self.queue.send([message.body])
        return MessageDisposition()

    def _stopped(self, extent: Extent, message: Message, *, failed: bool) -> MessageDisposition:
        why = f"connector {extent.connector} was stopped"
        job = self.ledger.jobs.end(extent.job, JobState.CANCELLED, why)
        if failed:
            self._bury(message, f"{why}; resume it before a replay")
        return self._told(job, MessageDisposition())

    def _reopen(self, extent: Extent, message: Message) -> MessageDisposition | None:
        job = self.ledger.jobs.get(extent.job)
        if job is None or job.state is JobState.CANCELLED:
            return self._bury(message, f"job {extent.job} is CANCELLED or unknown; no replay")
        try:
            self.ledger.extents.reopen(job.id, extent.ordinal)
        except ProgressUnknown as exc:
            job = self.ledger.jobs.close(
                job.id
            )  # a slot's next owner found out, it looks at no job
            return self._told(job, self._bury(message, reason(exc)))
        return None

    def _run(self, extent: Extent, message: Message) -> Receipt:
        def renew() -> None:
            try:
                self.work.slots.renew()
                self.queue.delay(message, self.hide_seconds)
            except ExtentflowError as exc:
                log.warning("%s: lease or message was not renewed: %s", extent.uri, exc)

        with LeaseRenewer(renew, self.renew_seconds):
            return run_or_fail(extent, self.work, message=message.id)

    def _after(self, extent: Extent, message: Message, receipt: Receipt) -> MessageDisposition:
        if receipt.outcome is Outcome.BUSY:
            return MessageDisposition(
                max(receipt.retry_after_seconds, self._delay(message)), receipt
            )
        if receipt.outcome is Outcome.HANDED_BACK:
            self.queue.send([message.body])
        job = self.ledger.jobs.get(extent.job)
        if receipt.outcome is Outcome.DONE and job is not None:
            job = self.dispatch.follow(job, extent)
        superseded = job is not None and job.state is JobState.SUPERSEDED
        if receipt.outcome is Outcome.FAILED and not superseded:
            self._bury(message, receipt.reason)
        return self._told(job, MessageDisposition(receipt=receipt))

    def _told(self, job: Job | None, answer: MessageDisposition) -> MessageDisposition:
        """Announce a job's end when all else is done; that never changes what becomes of a message.

        Last, because a message that comes back after its extent FAILED would be a replay.
        """
        if job is None or job.state.open or job.announced:
            return answer
        try:
            self.ended(job)
        except ExtentflowError as exc:
            log.warning("the end of job %s is announced later: %s", job.id, exc)
        except Exception:
            log.exception("the end of job %s is announced later: unexpected error", job.id)
        return replace(answer, ended=job)

    def _bury(self, message: Message, why: str) -> MessageDisposition:
        """Move a message to the dead letter queue: sent there first, so that it is never lost."""
        log.warning("message %s goes to the dead letter queue: %s", message.id, why)
        self.dead.send([message.body], reason=why)
        return MessageDisposition()

    def _delay(self, message: Message) -> float:
        doublings = min(message.received - 1, 20)
        bound = min(self.longest_delay_seconds, self.first_delay_seconds * 2.0**doublings)
        return bound * (0.5 + self.random.random() / 2)


def read_extent(body: str) -> Extent | None:
    """Return the extent that a message asks for; None where it asks for none that could be."""
    try:
        extent = Extent.from_message(json.loads(body))
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        log.warning("not an extent: %s: %s", type(exc).__name__, exc)
        return None
    return extent if _possible(extent) else None


def _possible(extent: Extent) -> bool:
    """Whether every field is of its type, and such that a ledger may be asked about it."""
    version = extent.version
    names: tuple[object, ...] = (extent.connector, extent.format, version.bucket, version.key)
    texts: tuple[object, ...] = (extent.job, version.etag, *names)
    numbers: tuple[object, ...] = (extent.ordinal, extent.start, extent.end, version.size)
    return (
        all(_is_text(text) for text in texts)
        and (version.version_id is None or _is_text(version.version_id))
        and all(names)
        and JOB_ID.fullmatch(extent.job) is not None
        and all(type(number) is int and 0 <= number < MAX_INTEGER for number in numbers)
        and extent.ordinal < MAX_ORDINAL
        and extent.start <= extent.end <= version.size
    )


def _is_text(value: object) -> bool:
    """Whether a value is a text without lone surrogates, which no service takes."""
    return (
        isinstance(value, str)
        and len(value) <= MAX_TEXT_CHARACTERS
        and value == value.encode("utf-8", "replace").decode()
    )
