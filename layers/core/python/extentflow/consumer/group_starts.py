"""Where a group began to read a topic, which the metadata of each of its offsets states.

    the group's offset of a partition   reading begins
    there is one                        there
    none, start="earliest"              at the beginning of the partition
    none, start="latest"                at its end, which is committed at once: the next member
                                        continues there, whatever arrived meanwhile
    none, and the partition was added   at its beginning
    since the group began

Two members that begin at the same moment see each other's first offsets. So these state how many
partitions the topic had: one behind them was added. A topic that was created again has another id.

Tests: unit/consumer/test_lost_positions.py
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from extentflow.errors import Misconfigured
from extentflow.kafka.reading import is_another

STARTS = ("earliest", "latest")
# Of a group: members of other protocols keep partitions during a rebalance, and positions of joins
# and of `seek` belong to whole assignments.
INCREMENTAL = {
    "partition.assignment.strategy": "cooperative-sticky",
    "group.protocol": "consumer",
}


@dataclass(frozen=True, slots=True)
class TopicOrigin:
    """The id of a topic (empty: not known), and its partitions where a group began at its end.

    With `partitions` 0, the group began at the beginning, or it is not known where.
    """

    id: str = ""
    partitions: int = 0

    def added_to(self, metadata: str) -> str:
        """Return the metadata of an offset, a JSON object or empty, with this origin."""
        members: dict[str, object] = json.loads(metadata or "{}")
        if self.id:
            members["topic"] = self.id
        if self.partitions:
            members["partitions"] = self.partitions
        return json.dumps(members, separators=(",", ":")) if members else ""

    @classmethod
    def of(cls, metadata: str | None) -> Self:
        """Return the origin in the metadata of an offset; that of other clients states none."""
        try:
            found: Any = json.loads(metadata or "{}")
            topic, partitions = found.get("topic", ""), found.get("partitions", 0)
        except (ValueError, AttributeError, RecursionError):
            return cls()
        # Not isinstance: JSON's true would be a number.
        if type(topic) is not str or type(partitions) is not int or partitions < 0:
            return cls()
        return cls(topic, partitions)

    def is_other(self, now: str) -> bool:
        """Whether the topic of this name, whose id is `now`, is another one."""
        return is_another(self.id, now)


def partitions_at_start(metadata: Iterable[str | None], *, without: int) -> int:
    """Return how many partitions a topic had when a group began at its end.

    `metadata` are those of the group's offsets of the topic. `without`: there is no offset.
    """
    return min((TopicOrigin.of(one).partitions for one in metadata), default=without)


def require_settings(kafka: Mapping[str, str], start: str) -> None:
    """Raise Misconfigured for settings with which no member can read."""
    problems = [
        f"{key}={kafka[key]}: members that keep partitions during a rebalance are not supported;"
        " remove the key"
        for key, refused in INCREMENTAL.items()
        if refused in kafka.get(key, "")
    ]
    if start not in STARTS:
        problems.append(f"start={start}: choose one of {', '.join(STARTS)}")
    if problems:
        raise Misconfigured(problems)
