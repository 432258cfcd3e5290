"""The topics of a run: those that are missing are created, the others are checked.

Tests: unit/cli/test_first_record.py
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from extentflow.errors import Misconfigured, SinkUnavailable, UnsupportedFormat
from extentflow.jobs import preflight
from extentflow.kafka.reading import is_another
from extentflow.kafka.topic_admin import NewTopics
from extentflow.model import Content, Job, ObjectVersion
from extentflow.services.orders import MadeOrder, Order
from extentflow.services.plans import CheckedTopics, Topics
from extentflow.services.run_notes import describe_lost, describe_topic


class RunCluster(Topics, Protocol):
    """The calls to Kafka that runs make themselves; workers make others."""

    @property
    def cluster(self) -> str:
        """The id of the cluster. Raises as `topics`."""

    @property
    def creates_topics(self) -> bool:
        """Whether the brokers create a topic at its first use, as far as they say so."""

    def create_topics(self, names: Sequence[str], wanted: NewTopics) -> Sequence[str]:
        """Create the topics that do not exist; return them."""

    def present_topics(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the ids of those topics that exist, as `kafka.Broker`."""


@dataclass(frozen=True, slots=True)
class RunTopics:
    """Creates and checks the topics of orders in the cluster that `broker` opens.

    `notify` receives what was created.
    """

    broker: Callable[[], RunCluster]
    notify: Callable[[str], object]

    def create(
        self,
        order: Order,
        versions: Sequence[ObjectVersion],
        recognised: Callable[[ObjectVersion], Content],
        wanted: NewTopics | None,
    ) -> None:
        """Create missing topics as `wanted` says, or as the brokers would by themselves.

        Producers do not let brokers create topics, because transactions begin with topics that
        exist.
        """
        broker, config, creation = self.broker(), order.config, self._creation(order, wanted)
        if creation is None:
            return
        names: dict[str, None] = {}
        for version in versions:
            with suppress(Misconfigured, UnsupportedFormat):  # the checks report it
                topic = preflight.route(config, version, recognised)
                names |= dict.fromkeys(config.written_topics(topic))
        written = list(names)
        if config.dead_letter_topic is not None:
            names[config.dead_letter_topic] = None
        missing = broker.missing_topics(list(names))
        existing = broker.topics([name for name in names if name not in missing])
        letters = creation.without_keys()
        planned = ((creation if one in written else letters).facts(one) for one in missing)
        preflight.require_accepting(config, [*existing, *planned], written)
        created = list(broker.create_topics(written, creation))
        if others := [name for name in names if name not in written]:
            created += broker.create_topics(others, letters)
        kept = [] if wanted is None else [name for name in names if name not in created]
        for facts in broker.topics([*created, *kept]):
            self.notify(describe_topic(facts, created=facts.name in created))

    def require(
        self,
        order: Order,
        versions: Sequence[ObjectVersion],
        recognised: Callable[[ObjectVersion], Content],
    ) -> None:
        """Raise when a run could deliver none of the objects; see `preflight.check`."""
        preflight.check(order.config, self.broker(), versions, recognised)

    def note_recreated(self, order: Order, delivered: Sequence[Job]) -> None:
        """Notify of topics that were deleted, or created again, since jobs delivered to them.

        A run does not fail for a note: without an answer, the note says so.
        """
        queue = order.config.dead_letter_topic
        pinned = {topic for job in delivered for topic in job.topics} - {queue}
        if not pinned:
            return
        try:
            present = self.broker().present_topics(sorted(pinned))
        except SinkUnavailable as exc:
            self.notify(f"whether topics were created again since is not known: {exc}")
            return
        for topic in sorted(pinned):
            lost = [
                job
                for job in delivered
                if topic in job.topics
                and (topic not in present or is_another(job.topics[topic], present[topic]))
            ]
            if lost:
                self.notify(describe_lost(topic, len(lost), again=topic in present))

    def checks(self, order: Order, wanted: NewTopics | None, problems: list[str]) -> CheckedTopics:
        """Return the checks of a dry run, which add to `problems`."""
        created = self._creation(order, wanted) is not None
        return CheckedTopics(order.config, self.broker(), problems, self.notify, created=created)

    def _creation(self, order: Order, wanted: NewTopics | None) -> NewTopics | None:
        """Return how missing topics are created; None: they are not."""
        automatic = wanted is None and isinstance(order, MadeOrder)
        return NewTopics() if automatic and self.broker().creates_topics else wanted
