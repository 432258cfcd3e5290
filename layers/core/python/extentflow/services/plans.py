"""What dry runs show: how objects would be cut, what is wrong, which topics a run would create.

Tests: unit/cli/test_dry_runs.py
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from extentflow.config.connector import ConnectorConfig
from extentflow.errors import Misconfigured
from extentflow.jobs import preflight
from extentflow.model import ObjectVersion
from extentflow.services.failures import FailedObject


class Again(enum.StrEnum):
    """What a second delivery would do with an object."""

    FULL = "deliver in full"
    CONTINUE = "continue the second delivery"
    NOTHING = "nothing: this second delivery ended"


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    """How one object would be cut, and the job that delivered it before, if any.

    `state` is `new` where there is no job. `facts` are what the format found (`model.Content`).
    `extents` are half-open byte ranges under the latest revision; an existing job keeps the plan of
    its own `revision`.

    Of a second delivery (`--again`), `again` says what it would do with the object.
    `delivered_before` counts the records that earlier jobs committed, also of other connectors that
    write the same topics. Both are None otherwise.
    """

    version: ObjectVersion
    format: str
    format_source: str
    compression: str
    compression_source: str
    facts: str
    topic: str
    job: str
    state: str
    revision: int
    extent_bytes: int
    extents: tuple[tuple[int, int], ...]
    again: Again | None = None
    delivered_before: int | None = None


@dataclass(frozen=True, slots=True)
class Plans:
    """The objects below `source`; `problems` name those that cannot be delivered.

    `prevented`: a run would deliver none of them, and end before it starts.
    """

    source: str
    objects: tuple[ObjectPlan, ...] = ()
    problems: tuple[str, ...] = ()
    prevented: bool = False


@dataclass(frozen=True, slots=True)
class FailedPlans:
    """The objects that failed, and what prevents that a run delivers them.

    `prevented`: it would deliver none of them, and end before it starts.
    """

    objects: tuple[FailedObject, ...]
    problems: tuple[str, ...] = ()
    prevented: bool = False


class Topics(preflight.Cluster, Protocol):
    """The calls to Kafka that plans make."""

    def missing_topics(self, names: Sequence[str]) -> Sequence[str]:
        """Return those topics that do not exist. Raises as `topics`."""


@dataclass(frozen=True, slots=True)
class CheckedTopics:
    """Checks each topic of a plan once, as a run does, and adds what is wrong to `problems`.

    `created`: a run creates missing topics, which `notify` receives.
    """

    config: ConnectorConfig
    cluster: Topics
    problems: list[str]
    notify: Callable[[str], object]
    created: bool
    _checked: dict[str, bool] = field(default_factory=dict)
    _noted: set[str] = field(default_factory=set)

    def usable(self, topics: Sequence[str]) -> bool:
        """Return whether all of the topics exist and take records of the connector."""
        queue = self.config.dead_letter_topic
        for topic in (one for one in topics if one not in self._checked):
            names = [topic] if queue is None else [topic, queue]
            missing = self.cluster.missing_topics(names) if self.created else []
            for name in missing:
                self.note(name, f"topic {name} does not exist; a run creates it")
            try:
                preflight.check_topics(self.config, self.cluster, [topic], missing)
            except Misconfigured as exc:
                self.problems.extend(exc.problems)
                self._checked[topic] = False
            else:
                self._checked[topic] = topic not in missing
        return all(self._checked[topic] for topic in topics)

    def note(self, topic: str, line: str) -> None:
        """Notify about a topic; only the first line of each is."""
        if topic not in self._noted:
            self._noted.add(topic)
            self.notify(line)
