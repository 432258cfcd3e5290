"""The Queue port: extents, arrivals and backfills as messages.

A queue delivers at least once and in any order. A received message is hidden for a while and
returns unless it is deleted; `delay` sets when. The dispatcher sends extents, the consumer
processes them; jobs are planned by `extentflow.jobs`, records move in `extentflow.delivery`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, Self

BATCH_MESSAGES = 10
# What SQS accepts in no body and no attribute: all that XML 1.0 leaves out.
UNSENDABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Message:
    """One delivery of a message.

    `handle` identifies this delivery; `received` counts deliveries including this one. `reason` is
    why it is in a dead letter queue, `sent` in seconds since 1970, `group` that of its sending.
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


class Queue(Protocol):
    """One queue. Every method may raise QueueUnavailable, or Misconfigured if it does not exist."""

    def send(self, bodies: Sequence[str], *, reason: str = "", group: str = "") -> None:
        """Return when every message is accepted; a repeated call may send some of them twice.

        Messages of one `group` (a connector's name) do not delay those of other groups: a queue
        prefers groups of which few messages are hidden. "" is no group.
        """

    def receive(
        self, *, wait_seconds: float = 0.0, hide_seconds: float = 30.0, most: int = BATCH_MESSAGES
    ) -> list[Message]:
        """Return `most` messages or fewer (ten at most), hidden for `hide_seconds`."""

    def delete(self, message: Message) -> None:
        """Delete a message."""

    def delay(self, message: Message, seconds: float) -> None:
        """Make this delivery visible again in `seconds` (0: at once, at most 11 hours)."""

    def depth(self) -> Depth:
        """Return the approximate depth."""


BACKFILL_VERSION = 1
MOST_ADDRESSES = 100
"""What a run's command line is sure to hold; a prefix or a glob says more with less."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """A request to deliver everything below some addresses with one Spark run.

    `id` identifies the request; without `addresses` it covers all objects of the connector.
    """

    MESSAGE_SOURCE: ClassVar[str] = "backfill"

    id: str
    connector: str
    addresses: tuple[str, ...] = ()

    def to_message(self) -> dict[str, Any]:
        """Return JSON-ready values; as JSON, a body for the arrivals queue."""
        values = {**asdict(self), "addresses": list(self.addresses)}
        return {"v": BACKFILL_VERSION, "source": self.MESSAGE_SOURCE, **values}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Rebuild a backfill from `to_message`. Raises ValueError if the message is invalid."""
        if message.get("v") != BACKFILL_VERSION:
            raise ValueError(f"backfill of schema version {message.get('v')!r}, expected 1")
        found, connector = message.get("id"), message.get("connector")
        if not (isinstance(found, str) and found and isinstance(connector, str) and connector):
            raise ValueError("backfill without id or connector")
        addresses = message.get("addresses")
        if not isinstance(addresses, list) or not all(isinstance(one, str) for one in addresses):
            raise ValueError("backfill whose addresses are no list of texts")
        if len(addresses) > MOST_ADDRESSES or any(one.startswith("-") for one in addresses):
            raise ValueError(f"backfill of more than {MOST_ADDRESSES} addresses, or of options")
        return cls(found, connector, tuple(addresses))
