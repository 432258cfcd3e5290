"""Finds records that a topic refuses before they are sent, so that no batch is rejected for them.

Brokers remain the judge: what is close to a limit is sent, and `delivery.rejections` finds the
record if they reject it.

Tests: unit/delivery/test_rejections.py
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from extentflow.kafka.topic_limits import TopicLimits

# Clocks of workers and brokers that differ more cannot use S3 either.
SLACK_MS = 15 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What topics take. `wall` are seconds since 1970.

    `limits` are those of a topic, of some minutes ago at most. `current` reads them again, so that
    a limit that was raised meanwhile refuses no record. `aged` receives the limits of a topic that
    deletes records soon, how many of a batch, and of how many; it is called with each such batch.
    """

    limits: Callable[[str], TopicLimits]
    current: Callable[[str], TopicLimits]
    wall: Callable[[], float]
    aged: Callable[[TopicLimits, int, int], None] = lambda _limits, _count, _of: None

    def refused(
        self, topic: str, timestamps: pa.Int64Array | None, keys: pa.Array | None, keyed: int
    ) -> Mapping[int, str]:
        """Return the places of records that a topic refuses, with one reason each.

        The first `keyed` records must have keys where the topic needs them.
        """
        limits = self.limits(topic)
        if timestamps is not None and (old := limits.deleted(timestamps, self.wall() * 1000)):
            self.aged(limits, old, len(timestamps))
        if not self._refused(limits, timestamps, keys, keyed):
            return {}
        return self._refused(self.current(topic), timestamps, keys, keyed)

    def _refused(
        self,
        limits: TopicLimits,
        timestamps: pa.Int64Array | None,
        keys: pa.Array | None,
        keyed: int,
    ) -> dict[int, str]:
        now_ms = self.wall() * 1000
        found = dict.fromkeys(limits.without_keys(keys, keyed).tolist(), limits.why_without_key)
        if timestamps is not None:
            for place in limits.outside(timestamps, now_ms, SLACK_MS).tolist():
                found[place] = limits.why_outside(timestamps[place].as_py(), now_ms)
        return found


def places_by_topic(
    topic: str, topics: pa.StringArray | None, count: int
) -> Mapping[str, NDArray[np.int64] | None]:
    """Return the places of each topic's records; None: all of them."""
    if topics is None:
        return {topic: None} if count else {}
    return {
        one.as_py(): np.flatnonzero(pc.equal(topics, one).to_numpy(zero_copy_only=False))
        for one in topics.unique()
    }
