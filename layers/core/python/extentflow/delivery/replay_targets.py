"""The topics to which replays of dead letters deliver, and which of these lost their records.

Tests: unit/services/test_dead_letter_queues.py
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from extentflow.errors import TopicLost
from extentflow.kafka import Broker
from extentflow.kafka.reading import created_again, is_another
from extentflow.ledger.notes import NoteKind, NoteStore

TARGETS: NoteKind[dict[str, str]] = NoteKind(
    "deadletters-targets#",
    lambda ids: {"topics": json.dumps(ids)},
    lambda facts: dict(json.loads(facts["topics"])),
)


@dataclass(slots=True)
class ReplayTargets:
    """The ids of the topics that got records of a connector's dead letters from one queue.

    The ledger notes an id under `key` before records go to the topic, so that a later replay
    compares what a killed one sent.
    """

    broker: Broker
    notes: NoteStore
    key: str
    connector: str
    _ids: dict[str, str] = field(default_factory=dict)

    def pin(self, topic: str) -> None:
        """Note the id of a topic before the first record; raises TopicLost, SinkUnavailable."""
        if topic in self._ids:
            return
        present = self.broker.present_topics([topic])
        if topic not in present:
            raise TopicLost.of(topic)
        self._ids[topic] = present[topic]
        TARGETS.write(self.notes, self.key, self._ids)

    def replaced(self) -> Iterator[str]:
        """Yield what is lost with each topic that is another one now. The next call leaves it out.

        Raises Misconfigured for a missing permission; SinkUnavailable without an answer.
        """
        self._ids = TARGETS.read(self.notes, self.key) or {}
        if not self._ids:
            return
        present = self.broker.present_topics(sorted(self._ids))
        lost = [
            topic
            for topic, before in self._ids.items()
            if topic not in present or is_another(before, present[topic])
        ]
        for topic in lost:
            before = self._ids.pop(topic)
            what = f"topic {topic} does not exist any more"
            if topic in present:
                what = created_again(topic, before, present[topic])
            yield (
                f"{what}; what replays delivered to the former topic is gone, and `extentflow run"
                f" -c {self.connector} --again` delivers the objects in full"
            )
        if lost:
            TARGETS.write(self.notes, self.key, self._ids)
