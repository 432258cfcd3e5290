"""Whether topics are still those that a member began to read, by their ids (KIP-516).

Kafka's client continues in a topic that was created again at the offset of the topic before. So
ids are asked for after a fetch, before its rows are yielded, and before a commit.

Tests: unit/consumer/test_lost_positions.py
"""

import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from typing import Protocol

from extentflow.consumer.group_starts import TopicOrigin
from extentflow.errors import ExtentflowError

# A request takes about a millisecond. Rows that are fetched sooner after one are yielded without.
FETCHED_SECONDS = 1.0
# How often a member asks while nothing arrives.
IDLE_SECONDS = 10.0


class Identities(Protocol):
    """What is asked of brokers; see `kafka.topic_admin.Admin`."""

    def topic_ids(self, names: list[str]) -> dict[str, str]:
        """Return the id of each topic, empty where brokers have none."""
        ...


@dataclass(frozen=True, slots=True)
class Gap:
    """The offset that was to be read next; `topic_id` was that of its topic, if it is another."""

    position: int
    topic_id: str = ""


@dataclass(slots=True)
class TopicWatch:
    """The topics of a member; `open_admin` returns a client, which stays open between requests."""

    open_admin: Callable[[], AbstractContextManager[Identities]]
    origins: dict[str, TopicOrigin] = field(default_factory=dict)
    _asked: float = field(default_factory=time.monotonic)
    _has_fetched: bool = False
    _client: Identities | None = None
    _open: ExitStack = field(default_factory=ExitStack)

    def begin(self, topic: str, origin: TopicOrigin) -> None:
        """Note which topic is read, as brokers state it now."""
        self.origins[topic] = origin
        self._asked = time.monotonic()

    def fetched(self) -> None:
        """Note that records arrived, perhaps of other topics."""
        self._has_fetched = True

    def is_due(self, *, before_commit: bool = False) -> bool:
        """Return whether brokers must be asked before rows are yielded, or positions committed."""
        waited = time.monotonic() - self._asked
        since_fetch = 0.0 if before_commit else FETCHED_SECONDS
        return waited >= IDLE_SECONDS or (self._has_fetched and waited >= since_fetch)

    def others(self, topics: Collection[str]) -> dict[str, str]:
        """Return the former ids of those topics that were created again; note their ids now.

        Raises as `Admin.topic_ids`.
        """
        if not topics:
            return {}
        try:
            if self._client is None:
                self._client = self._open.enter_context(self.open_admin())
            ids = self._client.topic_ids(sorted(topics))
        except ExtentflowError:
            self.close()
            raise
        self._asked, self._has_fetched = time.monotonic(), False
        before = {topic: self.origins[topic] for topic in ids}
        self.origins |= {topic: replace(before[topic], id=found) for topic, found in ids.items()}
        return {topic: one.id for topic, one in before.items() if one.is_other(ids[topic])}

    def close(self) -> None:
        """Close the client, if any; the next request opens another one."""
        self._client = None
        self._open.close()
