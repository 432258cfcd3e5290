"""The Queue port: extents and arrivals as messages.

A queue delivers at least once and in any order. A received message is hidden for a while and
returns unless it is deleted; `delay` sets when. The dispatcher sends extents, the consumer
processes them; jobs are planned by `extentflow.jobs`, records move in `extentflow.delivery`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Message:
    """One delivery of a message.

    `handle` identifies this delivery; `received` counts deliveries including this one; `reason` is
    why it is in a dead letter queue; `sent` is in seconds since 1970; `group` is the group with
    which it was sent.
    """

    id: str
    body: str
    handle: str = ""
    received: int = 1
    reason: str = ""
    sent: float = 0.0
    group: str = ""


@dataclass(frozen=True, slots=True)
class Depth:
    """Approximate numbers of messages: visible, hidden, delayed."""

    waiting: int
    hidden: int = 0
    delayed: int = 0


BATCH_MESSAGES = 10


class Queue(Protocol):
    """One queue. Every method may raise QueueUnavailable, or Misconfigured if it does not exist."""

    def send(self, bodies: Sequence[str], *, reason: str = "", group: str = "") -> None:
        """Return when every message is accepted; a repeated call may send some of them twice.

        Messages of one `group` (a connector's name) do not delay those of other groups: a queue
        prefers groups of which few messages are hidden. "" is no group.
        """
        ...

    def receive(
        self,
        *,
        wait_seconds: float = 0.0,
        hide_seconds: float = 30.0,
        most: int = BATCH_MESSAGES,
    ) -> list[Message]:
        """Return at most `most` messages (ten at most), hidden for `hide_seconds`.

        Returns none if the queue has none.
        """
        ...

    def delete(self, message: Message) -> None:
        """Delete a message."""
        ...

    def delay(self, message: Message, seconds: float) -> None:
        """Make this delivery visible again in `seconds` (0: at once, at most 11 hours)."""
        ...

    def depth(self) -> Depth:
        """Return the approximate depth."""
        ...
