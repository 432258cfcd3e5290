"""Process messages of the extents queue.

    the extent                  the message
    DONE, its job closed        is deleted
    FAILED now                  moves to the dead letter queue with the reason
    FAILED before               is a replay: the extent is reopened and run
    handed back                 is sent again as a copy
    busy, or no slot available  returns when the lease may have ended
    waiting: paused connector,  returns later; no attempt is counted
      unavailable service
    of an ended job             is deleted
    of a stopped connector      cancels its job and is deleted
    unknown                     moves to the dead letter queue with the reason

A message is deleted only if its extent is final, its job has ended, or a copy was sent. Another
message for the same extent is not sufficient: its worker may have frozen before the claim. Attempts
are counted in the ledger, never by the receive count. Each return is delayed longer; a paused
connector's message is sent again as a copy before the receive count ends it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

from extentflow.background import LeaseRenewer
from extentflow.delivery.runner import DeliveryContext
from extentflow.engines import run_or_fail
from extentflow.errors import ExtentflowError, Permanent, ProgressUnknown, contain_defects, reason
from extentflow.ledger import ConnectorState, Ledger
from extentflow.model import JOB_ID_DIGITS, Extent, ExtentState, Job, JobState, Outcome, Receipt
from extentflow.queue import Message, Queue
from extentflow.queue.dispatch import ExtentDispatcher
from extentflow.work_context import working_on

log = logging.getLogger(__name__)

PAUSED_RECEIVES = 50  # well below the queue's maxReceiveCount
MAX_INTEGER = 1 << 63
MAX_ORDINAL = 10**8  # eight digits in the ledger
MAX_TEXT_CHARACTERS = 4_096
JOB_ID = re.compile(f"[0-9a-f]{{{JOB_ID_DIGITS}}}")


@dataclass(frozen=True, slots=True)
class MessageDisposition:
    """The result of a message: delete it, or show it after `again_seconds`; and the receipt.

    `ended` is its job if that ended and its event is not yet published. `error`: it returns because
    of an error, not because its extent is busy or its connector paused. `dead`: it was moved to the
    dead letter queue. `extent` is None if the message contains none.
    """

    again_seconds: float | None = None
    receipt: Receipt | None = None
    ended: Job | None = None
    error: bool = False
    dead: bool = False
    extent: Extent | None = None


@dataclass(frozen=True, slots=True)
class QueueWorker:
    """Processes messages in one worker process, one at a time.

    `hide_seconds` is the visibility timeout while an extent is in work; it is renewed with the
    lease, every `renew_seconds`. A returned message is delayed by about `first_delay_seconds`,
    doubled with every receive, up to `longest_delay_seconds`. `ended` publishes a job's end; if it
    fails, the reconciler publishes it later.
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
        """Process a message. One that is not done returns; so does one whose defect is raised."""
        extent = read_extent(message.body)
        with working_on(**_keys(extent)):
            try:
                found = self._handle(message, extent)
            except ExtentflowError as exc:
                log.warning("message %s returns to the queue: %s", message.id, exc)
                found = MessageDisposition(self._delay(message), error=True)
        return replace(found, extent=extent)

    def _handle(self, message: Message, extent: Extent | None) -> MessageDisposition:
        if extent is None:
            return self._dead_letter(message, "not an extent of schema version 1; it was not read")
        # Not what was received: versions without groups sent messages too.
        message = replace(message, group=extent.connector)
        try:
            early = self._before(extent, message)
            return early or self._after(extent, message, self._run(extent, message))
        except Permanent as exc:  # nothing that a claim could record: another job, another cluster
            return self._dead_letter(message, reason(exc))

    def _before(self, extent: Extent, message: Message) -> MessageDisposition | None:
        """Return the result if no worker is needed; None means that the extent must run."""
        wanted = self.ledger.connectors.state(extent.connector)
        if wanted is ConnectorState.PAUSED:
            if message.received < PAUSED_RECEIVES:
                return MessageDisposition(self._delay(message))
            # Neither receive count nor retention may end it.
            self.queue.send([message.body], group=message.group)
            return MessageDisposition()
        failed = self.ledger.extents.get(extent.job, extent.ordinal).state is ExtentState.FAILED
        if wanted is ConnectorState.STOPPED:
            return self._stopped(extent, message, failed=failed)
        return self._reopen(extent, message) if failed else None

    def _stopped(self, extent: Extent, message: Message, *, failed: bool) -> MessageDisposition:
        why = f"connector {extent.connector} was stopped"
        job = self.ledger.jobs.get(extent.job)
        if job is None or job.connector != extent.connector:
            owner = "is unknown" if job is None else f"belongs to connector {job.connector}"
            return self._dead_letter(message, f"{why}, and job {extent.job} {owner}")
        job = self.ledger.jobs.end(extent.job, JobState.CANCELLED, why)
        found = MessageDisposition()
        if failed:
            remedy = f"`extentflow resume {job.connector}`, then `extentflow replay {job.id}`"
            found = self._dead_letter(message, f"{why}, job {job.id} is {job.state}; {remedy}")
        return self._publish_end(job, found)

    def _reopen(self, extent: Extent, message: Message) -> MessageDisposition | None:
        job = self.ledger.jobs.get(extent.job)
        if job is None:
            run = f"`extentflow run {extent.version.address} -c {extent.connector}`"
            why = f"the ledger has no job {extent.job}; {run} delivers the object"
            return self._dead_letter(message, why)
        if job.state is JobState.CANCELLED:
            continued = f"`extentflow replay {job.id}` delivers the rest of it"
            return self._dead_letter(message, f"job {job.id} is CANCELLED; {continued}")
        if self.dispatch.planner.is_followed(job):
            why = (
                f"a later job delivers {job.version.uri} again, and a replay would double its"
                f" records; `extentflow replay {job.id} --accept-duplicates` does it all the same"
            )
            return self._dead_letter(message, why)
        try:
            self.ledger.extents.reopen(job.id, extent.ordinal)
        except ProgressUnknown as exc:  # a slot's next owner found out, it looks at no job
            job = self.ledger.jobs.close(job.id)
            return self._publish_end(job, self._dead_letter(message, reason(exc)))
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
            again_seconds = max(receipt.retry_after_seconds, self._delay(message))
            return MessageDisposition(again_seconds, receipt)
        if receipt.outcome is Outcome.HANDED_BACK:
            self.queue.send([message.body], group=message.group)
        job = self.ledger.jobs.get(extent.job)
        if receipt.outcome is Outcome.DONE and job is not None:
            job = self.dispatch.follow(job, extent)
        superseded = job is not None and job.state is JobState.SUPERSEDED
        found = MessageDisposition()
        if receipt.outcome is Outcome.FAILED and not superseded:
            found = self._dead_letter(message, receipt.reason)
        return self._publish_end(job, replace(found, receipt=receipt))

    def _publish_end(self, job: Job | None, answer: MessageDisposition) -> MessageDisposition:
        """Publish a job's end after everything else; this never changes the disposition.

        It is last, because a message that returns after its extent FAILED would be a replay.
        """
        if job is None or job.state.open or job.published:
            return answer
        try:
            with contain_defects(f"publishing the end of job {job.id}"):
                self.ended(job)
        except ExtentflowError as exc:
            log.warning("the end of job %s is published later: %s", job.id, exc)
        return replace(answer, ended=job)

    def _dead_letter(self, message: Message, why: str) -> MessageDisposition:
        """Move a message to the dead letter queue: send first, so that it is never lost."""
        log.warning("message %s goes to the dead letter queue: %s", message.id, why)
        self.dead.send([message.body], reason=why, group=message.group)
        return MessageDisposition(dead=True)

    def _delay(self, message: Message) -> float:
        return return_seconds(
            message.received,
            self.random,
            first_seconds=self.first_delay_seconds,
            longest_seconds=self.longest_delay_seconds,
        )


def _keys(extent: Extent | None) -> dict[str, object]:
    """Return the keys of the log lines about an extent."""
    if extent is None:
        return {}
    return {"connector": extent.connector, "job": extent.job, "extent": extent.ordinal}


def return_seconds(
    received: int, random: Random, *, first_seconds: float = 5.0, longest_seconds: float = 300.0
) -> float:
    """Return after how long a message that is not done is received again, by its count so far."""
    bound = min(longest_seconds, first_seconds * 2.0 ** min(received - 1, 20))
    return bound * (0.5 + random.random() / 2)


def read_extent(body: str) -> Extent | None:
    """Return the extent of a message, or None if the message is invalid."""
    try:
        extent = Extent.from_message(json.loads(body))
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        log.warning("not an extent: %s: %s", type(exc).__name__, exc)
        return None
    version = extent.version
    names: tuple[object, ...] = (extent.connector, extent.format, version.bucket, version.key)
    texts: tuple[object, ...] = (extent.job, version.etag, *names)
    numbers: tuple[object, ...] = (extent.ordinal, extent.start, extent.end, version.size)
    possible = (  # each field has its type, and a value that the ledger accepts
        all(_is_text(text) for text in texts)
        and (version.version_id is None or _is_text(version.version_id))
        and all(names)
        and JOB_ID.fullmatch(extent.job) is not None
        and all(type(number) is int and 0 <= number < MAX_INTEGER for number in numbers)
        and extent.ordinal < MAX_ORDINAL
        and extent.start <= extent.end <= version.size
    )
    return extent if possible else None


def _is_text(value: object) -> bool:
    """Return whether a value is a string without lone surrogates, which no service accepts."""
    return (
        isinstance(value, str)
        and len(value) <= MAX_TEXT_CHARACTERS
        and value == value.encode("utf-8", "replace").decode()
    )


WAIT_SECONDS = 1.0
RETURNED = MessageDisposition(60.0)


class MessageWorker(Protocol):
    """Processes messages of `queue`, each hidden for `hide_seconds`."""

    @property
    def queue(self) -> Queue:
        """Where messages come from, and return to."""

    @property
    def hide_seconds(self) -> float:
        """How long a received message is hidden."""

    def handle(self, message: Message) -> MessageDisposition:
        """Process a message; return what becomes of it."""


@dataclass(frozen=True, slots=True)
class QueueDrain:
    """Takes messages one by one, and waits `wait_seconds` for one.

    `stopping` returns whether to take no further one.
    """

    worker: MessageWorker
    monotonic: Callable[[], float]
    stopping: Callable[[], bool]
    wait_seconds: float = WAIT_SECONDS

    def answers(self, *, most: int, seconds: float) -> Iterator[tuple[Message, MessageDisposition]]:
        """Yield each message with its disposition, until the queue is empty.

        Takes at most `most` messages, and starts none after `seconds`. An unavailable queue counts
        as empty: the caller has everything that was yielded before.
        """
        queue, hide = self.worker.queue, self.worker.hide_seconds
        until = self.monotonic() + seconds
        taken = 0
        while taken < most and self.monotonic() < until and not self.stopping():
            try:  # one message: a received message never waits for another one's extent
                found = queue.receive(wait_seconds=self.wait_seconds, hide_seconds=hide, most=1)
            except ExtentflowError as exc:
                log.warning("no further message is taken now: %s", exc)
                return
            if not found:
                return
            for message in found:
                taken += 1
                yield message, self._settled(message)

    def _settled(self, message: Message) -> MessageDisposition:
        """Process a message, then delete or delay it; if that fails, it returns by itself."""
        answer = RETURNED
        try:
            with contain_defects(f"message {message.id}"):
                answer = self.worker.handle(message)
        except ExtentflowError as exc:
            log.warning("message %s returns to the queue: %s", message.id, exc)
        try:
            if answer.again_seconds is None:
                self.worker.queue.delete(message)
            else:
                self.worker.queue.delay(message, answer.again_seconds)
        except ExtentflowError as exc:
            log.warning("message %s returns to the queue by itself: %s", message.id, exc)
        return answer
