"""Settles the schemas of columnar values: in the topic `extentflow.schemas`, before their rows.

known? ──yes──> use it
  │ no
read what was added ──conflict──> IncompatibleSchema
  │
add it, read up to it ──allowed by those before it──> use it
"""

import threading
from dataclasses import dataclass, field

import pyarrow as pa

from extentflow.columnar.evolution import TopicSchema, conflict
from extentflow.errors import IncompatibleSchema
from extentflow.kafka import SCHEMAS_TOPIC
from extentflow.kafka.broker import KafkaBroker


@dataclass(slots=True)
class TopicSchemas:
    """What one process knows of the schemas of topics; safe for threads.

    `group` begins with `app.id`, on which ACLs are granted.
    """

    broker: KafkaBroker
    group: str
    _next: int = 0
    _accepted: dict[str, dict[str, pa.Schema]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def settle(self, topic: str, schema: pa.Schema) -> None:
        """Make a plain schema one of a topic's, unless it is.

        Raises IncompatibleSchema, whose message names the column and the way out; SinkUnavailable;
        Misconfigured without permission on the topic of schemas.
        """
        wanted = TopicSchema(topic, schema)
        with self._lock:
            if self._knows(wanted):
                return
            self.broker.ensure_schemas_topic()
            self._read()
            if self._knows(wanted):
                return
            self._require_compatible(wanted)
            self.broker.add_schema(*wanted.record())
            self._read()
            if not self._knows(wanted):
                # Another worker added one at the same moment, and was first.
                self._require_compatible(wanted)

    def check(self, topic: str, schema: pa.Schema) -> None:
        """Raise as `settle`, and add nothing."""
        wanted = TopicSchema(topic, schema)
        with self._lock:
            if self._knows(wanted) or self.broker.missing_topics([SCHEMAS_TOPIC]):
                return
            self._read()
            if not self._knows(wanted):
                self._require_compatible(wanted)

    def _knows(self, wanted: TopicSchema) -> bool:
        return wanted.identity in self._accepted.get(wanted.topic, {})

    def _read(self) -> None:
        """Read what was added to the log, and accept what those before it allow."""
        begin = {0: self._next}
        for records in self.broker.read_from(SCHEMAS_TOPIC, begin, end={}, group=self.group):
            for record in records:
                self._next = record.offset + 1
                found = TopicSchema.of(record.value)
                if found is None:
                    continue
                before = self._accepted.setdefault(found.topic, {})
                if not conflict(before.values(), found.schema):
                    before[found.identity] = found.schema

    def _require_compatible(self, wanted: TopicSchema) -> None:
        before = self._accepted.get(wanted.topic, {})
        if why := conflict(before.values(), wanted.schema):
            raise IncompatibleSchema(
                f"topic {wanted.topic}: {why}, so that readers would find no type for it; cast the"
                " column by a transform, leave it out by select, or name another topic"
            )
