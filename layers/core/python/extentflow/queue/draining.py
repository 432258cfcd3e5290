"""A worker that polls its messages itself, without an event source.

one message at a time ──handle──> done: deleted
└──> returns: hidden as the disposition says
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from extentflow.errors import ExtentflowError
from extentflow.queue import Message
from extentflow.queue.consumer import MessageDisposition, QueueWorker

log = logging.getLogger(__name__)

WAIT_SECONDS = 1.0
DEFECT = MessageDisposition(60.0)


@dataclass(frozen=True, slots=True)
class QueueDrain:
    """Takes messages one by one. `stopping` returns whether to take no further one."""

    worker: QueueWorker
    monotonic: Callable[[], float]
    stopping: Callable[[], bool]

    def answers(self, *, most: int, seconds: float) -> Iterator[tuple[Message, MessageDisposition]]:
        """Yield each message with its disposition, until the queue is empty.

        Takes at most `most` messages, and starts none after `seconds`. An unavailable queue counts
        as empty: the caller has everything that was yielded before.
        """
        until = self.monotonic() + seconds
        taken = 0
        while taken < most and self.monotonic() < until and not self.stopping():
            try:
                messages = self._receive()
            except ExtentflowError as exc:
                log.warning("no further message is taken now: %s", exc)
                return
            if not messages:
                return
            for message in messages:
                taken += 1
                yield message, self._settled(message)

    def _receive(self) -> list[Message]:
        """Return one message: a received message never waits for another one's extent."""
        worker = self.worker
        return worker.queue.receive(
            wait_seconds=WAIT_SECONDS, hide_seconds=worker.hide_seconds, most=1
        )

    def _settled(self, message: Message) -> MessageDisposition:
        """Process a message, then delete or delay it; if that fails, it returns by itself."""
        try:
            answer = self.worker.handle(message)
        except Exception:  # a defect must not end the caller's loop
            log.exception("message %s comes back: unexpected error", message.id)
            answer = DEFECT
        try:
            if answer.again_seconds is None:
                self.worker.queue.delete(message)
            else:
                self.worker.queue.delay(message, answer.again_seconds)
        except ExtentflowError as exc:
            log.warning("message %s comes back by itself: %s", message.id, exc)
        return answer
