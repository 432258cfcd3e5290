"""Where work waits between functions: the Queue port and the messages that travel through it.

Owns: the contract. Refuses to know: SQS, what a message says.

A queue delivers at least once and in no order. A message that was received is hidden for a while
and comes back unless it is deleted; `delay` says when.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Message:
    """One delivery of a message.

    `handle` stands for this delivery; `received` counts deliveries so far, this one included;
    `reason` says why it is in a dead letter queue; `sent` is in seconds since the epoch.
    """

    id: str
    body: str
    handle: str = ""
    received: int = 1
    reason: str = ""
    sent: float = 0.0


@dataclass(frozen=True, slots=True)
class Depth:
    """About how many messages a queue holds: waiting, received and hidden, sent with a delay."""

    waiting: int
    hidden: int = 0
    delayed: int = 0


BATCH_MESSAGES = 10


class Queue(Protocol):
    """One queue. Every method may raise QueueUnavailable; Misconfigured where it is missing."""

    def send(self, bodies: Sequence[str], *, reason: str = "") -> None:
        """Return when every message was accepted; a repeated call may send some of them twice."""
        ...

    def receive(
        self,
        *,
        wait_seconds: float = 0.0,
        hide_seconds: float = 30.0,
        most: int = BATCH_MESSAGES,
    ) -> list[Message]:
        """Return up to `most` messages, ten at most, hidden from others for `hide_seconds`.

        None when none came.
        """
        ...

    def delete(self, message: Message) -> None:
        """Take a message off the queue for good."""
        ...

    def delay(self, message: Message, seconds: float) -> None:
        """Let this delivery come back after `seconds` from now (0: at once, at most 11 hours)."""
        ...

    def depth(self) -> Depth:
        """Return how much waits, approximately."""
        ...
