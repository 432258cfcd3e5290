"""Which records a topic takes, as far as its configuration says so.

    refused     earliest                 now                latest       refused
    ────────────────┼─────────────────────┼──────────────────┼─────────────────> timestamp
                    └ before.max.ms ──────┴─ after.max.ms ───┘

The rules are those of Kafka's `LogValidator`. They do not apply where brokers replace timestamps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["TopicLimits", "instant", "is_compacted"]

_ANY_TIME = 2**63 - 1
_BEFORE, _AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
# Of brokers before Kafka 4, for both; used where the later ones have their default.
_DIFFERENCE = "message.timestamp.difference.max.ms"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """The keys and timestamps that a topic takes, and keeps. Milliseconds; None: any.

    Records may be `before_ms` older and `after_ms` newer than the brokers' clock. Those older than
    `retention_ms` are taken, and deleted.
    """

    topic: str
    needs_keys: bool = False
    before_ms: int | None = None
    after_ms: int | None = None
    retention_ms: int | None = None

    @classmethod
    def of(cls, topic: str, config: Mapping[str, str]) -> Self:
        """Return the limits that a topic's configuration states; what is missing limits nothing."""
        policy, own_time = config.get("cleanup.policy", "delete"), True
        if config.get("message.timestamp.type") == "LogAppendTime":
            own_time = False
        retention = int(config.get("retention.ms", "-1"))
        deletes = own_time and "delete" in policy and retention >= 0
        return cls(
            topic,
            needs_keys=is_compacted(policy),
            before_ms=_limit(config, _BEFORE) if own_time else None,
            after_ms=_limit(config, _AFTER) if own_time else None,
            retention_ms=retention if deletes else None,
        )

    def outside(
        self, timestamps: pa.Int64Array, now_ms: float, slack_ms: float = 0
    ) -> NDArray[np.int64]:
        """Return the places of timestamps that the topic refuses, by a clock that shows `now_ms`.

        That clock and the brokers' may differ by `slack_ms`. A timestamp of 0 is the client's.
        """
        late, early = self._late(now_ms + slack_ms), self._early(now_ms - slack_ms)
        if not len(timestamps) or (late is None and early is None):
            return np.empty(0, np.int64)
        bounds = pc.min_max(timestamps).as_py()
        refused = None
        if late is not None and bounds["max"] is not None and bounds["max"] > late:
            refused = pc.greater(timestamps, late)
        # The client's own time, 0, is below any limit: only a closer look distinguishes it.
        if early is not None and bounds["min"] is not None and bounds["min"] < early:
            found = pc.and_(pc.less(timestamps, early), pc.not_equal(timestamps, 0))
            refused = found if refused is None else pc.or_(refused, found)
        if refused is None:
            return np.empty(0, np.int64)
        return np.flatnonzero(refused.fill_null(False).to_numpy(zero_copy_only=False))  # noqa: FBT003

    def without_keys(self, keys: pa.Array | None, count: int) -> NDArray[np.int64]:
        """Return the places of those of `count` records whose missing keys the topic refuses."""
        if not self.needs_keys or (keys is not None and not keys.null_count):
            return np.empty(0, np.int64)
        if keys is None:
            return np.arange(count)
        return np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))

    def deleted(self, timestamps: pa.Int64Array, now_ms: float) -> int:
        """Return how many records are older than the topic keeps them."""
        if self.retention_ms is None or not len(timestamps):
            return 0
        old = now_ms - self.retention_ms
        oldest = pc.min(timestamps).as_py()
        if oldest is None or oldest >= old:
            return 0
        found = pc.and_(pc.less(timestamps, int(old)), pc.not_equal(timestamps, 0))
        return int(pc.sum(found).as_py() or 0)

    def why_outside(self, timestamp: int, now_ms: float) -> str:
        """Return why the topic refuses a timestamp, and the remedy."""
        ahead = timestamp > now_ms
        setting, limit = (_AFTER, self.after_ms) if ahead else (_BEFORE, self.before_ms)
        return (
            f"timestamp {instant(timestamp)} is {_duration(abs(timestamp - now_ms))}"
            f" {'ahead of' if ahead else 'behind'} the clock, and topic {self.topic} takes"
            f" {_duration(limit or 0)} ({setting}={limit}); correct message.timestamp, or raise"
            f" {setting} or set message.timestamp.type=LogAppendTime on the topic"
        )

    def describe_times(self) -> list[str]:
        """Describe which timestamps the topic refuses, and which it deletes."""
        limits = ((self.after_ms, _AFTER, "ahead of"), (self.before_ms, _BEFORE, "behind"))
        found = [
            f"timestamps more than {_duration(limit)} {where} the clock are bad records ({setting})"
            for limit, setting, where in limits
            if limit is not None
        ]
        if self.retention_ms is not None:
            kept = _duration(self.retention_ms)
            found.append(f"Kafka deletes records with timestamps older than {kept} (retention.ms)")
        return found

    def describe_deleted(self, count: int, of: int) -> str:
        """Describe that so many of some timestamps are older than the topic keeps records."""
        kept = f"retention.ms={self.retention_ms}, {_duration(self.retention_ms or 0)}"
        return (
            f"{count:,} of {of:,} timestamps are older than topic {self.topic} keeps records"
            f" ({kept}), so that Kafka deletes them; raise retention.ms or set"
            " message.timestamp.type=LogAppendTime on the topic"
        )

    @property
    def why_without_key(self) -> str:
        """Why the topic refuses a record without a key, and the remedy."""
        return (
            f"the key is null, and topic {self.topic} is compacted (cleanup.policy=compact): it"
            " takes only records with keys; correct the column of message.key, or set"
            " cleanup.policy=delete on the topic"
        )

    def _late(self, now_ms: float) -> int | None:
        return None if self.after_ms is None else min(_ANY_TIME, int(now_ms) + self.after_ms)

    def _early(self, now_ms: float) -> int | None:
        return None if self.before_ms is None else int(now_ms) - self.before_ms


def is_compacted(policy: str) -> bool:
    """Whether a topic with that `cleanup.policy` is compacted, and therefore requires keys."""
    return "compact" in (word.strip() for word in policy.split(","))


def instant(milliseconds: int) -> str:
    """Return an instant as text; its number where no calendar has it."""
    try:
        found = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} (milliseconds since 1970)"
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _limit(config: Mapping[str, str], setting: str) -> int | None:
    stated = int(config.get(setting, _ANY_TIME))
    if stated == _ANY_TIME:
        stated = int(config.get(_DIFFERENCE, _ANY_TIME))
    return None if stated == _ANY_TIME else stated


def _duration(milliseconds: float) -> str:
    seconds = milliseconds / 1000
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} seconds"
