"""Process messages of the arrivals queue in a process of one's own, without functions.

What becomes of a message:

    all of its arrivals have their jobs    deleted
    a connector is paused                  returns later; sent again as a copy in time
    a service is unavailable, a setting    returns later, as often as necessary
      or a permission is wrong
    unparseable, or no connector reads it  deleted, and dead-lettered with the reason
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from random import Random

from extentflow.discovery.admission import ArrivalHandler, ArrivalPaused
from extentflow.errors import ExtentflowError
from extentflow.queue import Message, Queue
from extentflow.queue.consumer import MessageDisposition, return_seconds

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ArrivalWorker:
    """Registers jobs for the arrivals of messages, one message at a time.

    A message whose process dies returns after `hide_seconds`; a second one meets the same jobs.
    """

    handler: ArrivalHandler
    queue: Queue
    random: Random
    hide_seconds: float = 120.0

    def handle(self, message: Message) -> MessageDisposition:
        """Process a message, and return what becomes of it. One that is not done returns."""
        try:
            self.handler.take(message.body, received=message.received)
        except ArrivalPaused as exc:
            log.info("message %s waits: %s", message.id, exc)
            return MessageDisposition(return_seconds(message.received, self.random))
        except ExtentflowError as exc:
            log.warning("message %s returns to the queue: %s", message.id, exc)
            return MessageDisposition(return_seconds(message.received, self.random), error=True)
        return MessageDisposition()
