"""Settles the schemas of columnar values: in the topic `extentflow.schemas`, before their rows.

known? ──yes──> use it
  │ no
read what was added ──conflict──> IncompatibleSchema
  │
add it, read up to it ──allowed by those before it──> use it
"""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from extentflow.columnar.evolution import TopicSchema, conflict
from extentflow.errors import IncompatibleSchema, PositionGone
from extentflow.kafka import SCHEMAS_TOPIC
from extentflow.kafka.reading import ConsumedRecord

log = logging.getLogger(__name__)


class SchemaLog(Protocol):
    """The calls to Kafka by which schemas are settled; all raise as the broker's."""

    def ensure_schemas_topic(self) -> None:
        """Create `extentflow.schemas` unless it exists."""

    def missing_topics(self, names: Sequence[str]) -> Sequence[str]:
        """Return those topics that do not exist."""

    def add_schema(self, key: bytes, value: bytes) -> None:
        """Add a record to `extentflow.schemas`, and wait until brokers have it."""

    def read_from(
        self, topic: str, begin: Mapping[int, int], *, end: Mapping[int, int], group: str
    ) -> Iterator[list[ConsumedRecord]]:
        """Yield the records from these offsets on; an empty `end` is the end of now.

        Raises PositionGone where records were deleted, or the topic was created again.
        """


@dataclass(slots=True)
class TopicSchemas:
    """Settled schemas of topics, as one process has read them; safe for threads.

    `group` begins with `app.id`, on which ACLs are granted.
    """

    log: SchemaLog
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
            self.log.ensure_schemas_topic()
            self._read()
            if self._knows(wanted):
                return
            self._require_compatible(wanted)
            self.log.add_schema(*wanted.record())
            self._read()
            if not self._knows(wanted):
                # Another worker added one at the same moment, and was first.
                self._require_compatible(wanted)

    def check(self, topic: str, schema: pa.Schema) -> None:
        """Raise as `settle`, and add nothing."""
        wanted = TopicSchema(topic, schema)
        with self._lock:
            if self._knows(wanted) or self.log.missing_topics([SCHEMAS_TOPIC]):
                return
            self._read()
            if not self._knows(wanted):
                self._require_compatible(wanted)

    def _knows(self, wanted: TopicSchema) -> bool:
        return wanted.identity in self._accepted.get(wanted.topic, {})

    def _read(self) -> None:
        """Read what was added to the log, and accept what those before it allow."""
        try:
            self._read_on()
        except PositionGone as gone:
            # Of a log that lost records, what is left decides: for other processes it does, too.
            log.warning("%s; the schemas that are left count", gone)
            self._next = gone.first
            self._read_on()

    def _read_on(self) -> None:
        begin = {0: self._next}
        for records in self.log.read_from(SCHEMAS_TOPIC, begin, end={}, group=self.group):
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
