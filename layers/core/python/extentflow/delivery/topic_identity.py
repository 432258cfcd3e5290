"""Whether the topics of a job are still those that its first worker wrote to.

A topic that is deleted and created again has another id (KIP-516) and none of the records that were
committed to the former one. Transactions do not notice: their commit names topics, so it succeeds
although the records of the transaction went to the former topic. Ids are therefore asked for before
the first record of an extent and again behind its last commit, before it is DONE.

Tests: unit/delivery/test_recreated_topics.py
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from extentflow.errors import SinkUnavailable, TopicLost
from extentflow.kafka import Broker
from extentflow.retry import Clock

log = logging.getLogger(__name__)

# How old an answer may be between the first record and the last commit of an extent.
RECENT_SECONDS = 1.0


@dataclass(slots=True, eq=False)
class TopicIdentities:
    """The ids of topics as one process last knew them."""

    broker: Broker
    clock: Clock
    _known: dict[str, str] = field(default_factory=dict)
    _asked: float = -math.inf

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the ids of topics that are about to be pinned; none where brokers have no ids.

        Raises as `changed`.
        """
        found = self._recent(topics)
        if absent := [topic for topic in topics if topic not in found]:
            raise TopicLost.of(absent[0])
        return {topic: found[topic] for topic in topics if found[topic]}

    def changed(
        self, pinned: Mapping[str, str], *, recent: bool = False
    ) -> dict[str, tuple[str, str]]:
        """Return the former and the present id of each pinned topic that has another one now.

        The present id is empty for a topic that does not exist. With `recent`, an answer of the
        last RECENT_SECONDS will do, and an older one while brokers do not answer.

        Raises Misconfigured for a missing permission; SinkUnavailable without an answer.
        """
        if not pinned:
            return {}
        try:
            found = self._recent(pinned) if recent else self._ask(pinned)
        except SinkUnavailable as exc:
            if not recent:
                raise
            log.info("the ids of topics are asked for later: %s", exc)
            return {}
        pairs = {topic: (before, found.get(topic)) for topic, before in pinned.items()}
        # Brokers without ids answer with an empty one.
        others = {topic: pair for topic, pair in pairs.items() if pair[1] not in ("", pair[0])}
        return {topic: (before, now or "") for topic, (before, now) in others.items()}

    def _recent(self, topics: Collection[str]) -> Mapping[str, str]:
        is_old = self.clock.monotonic() - self._asked > RECENT_SECONDS
        if is_old or any(topic not in self._known for topic in topics):
            return self._ask(topics)
        return self._known

    def _ask(self, topics: Collection[str]) -> Mapping[str, str]:
        asked = self.clock.monotonic()
        found = self.broker.present_topics(sorted(topics))
        self._known, self._asked = dict(found), asked
        return found
