"""A worker that fetches its messages itself, where no event source brings them.

Owns: how many it takes, until when, what it does with a message after the answer. Refuses to know:
what is done for a message (`queue`), where it runs.

    one message at a time ──handle──> over: deleted
                                 └──> comes back: hidden for as long as the answer says
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
    """Takes messages one by one. `stopping` says that no further one is wanted."""

    worker: QueueWorker
    monotonic: Callable[[], float]
    stopping: Callable[[], bool]

    def answers(self, *, most: int, seconds: float) -> Iterator[tuple[Message, MessageDisposition]]:
        """Yield each message with what became of it, until the queue has none to give.

        At most `most` messages, and none is begun after `seconds`. A queue that is away has none:
        whoever counts on what was yielded before must have it.
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
        """Return one message: what is received waits for nobody else's extent to be done."""
        worker = self.worker
        return worker.queue.receive(
            wait_seconds=WAIT_SECONDS, hide_seconds=worker.hide_seconds, most=1
        )

    def _settled(self, message: Message) -> MessageDisposition:
        """Handle a message, then delete or delay it; where that fails it comes back by itself."""
        try:
            answer = self.worker.handle(message)
        except Exception:  # a defect of ours, which must not end whoever drains
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
