"""Writes topics of columnar values into files; see `extentflow.export.topic_export`.

Tests: integration/test_export.py
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

from extentflow.config.types import illegal_topic
from extentflow.errors import Misconfigured
from extentflow.export.partition_files import ExportedFile, ExportOptions
from extentflow.export.topic_export import FETCH, TopicExport
from extentflow.kafka.reading import RecordReader
from extentflow.retry import Clock
from extentflow.wiring.targets import open_folder


class TopicIds(Protocol):
    """Finds the ids of topics."""

    def topic_ids(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the ids of topics by their names, empty where brokers tell none."""


class ExportedCluster(Protocol):
    """The calls to Kafka that exports make."""

    def end_offsets(self, topic: str) -> Mapping[int, int]:
        """Return the end of each partition; Misconfigured where there is no such topic."""

    def open_admin(self) -> AbstractContextManager[TopicIds]:
        """Return an admin client; the block closes it."""

    def reader_settings(self, group: str) -> dict[str, Any]:
        """Return librdkafka's settings of a consumer of committed records."""


@dataclass(frozen=True, slots=True)
class Exports:
    """Exports topics of a cluster, which `broker` opens.

    `group` returns the name of a reader's group. Requests to S3 are repeated for `retry_seconds`.
    `notify` gets messages that are no errors.
    """

    broker: Callable[[], ExportedCluster]
    group: Callable[[], str]
    clock: Clock
    retry_seconds: float
    notify: Callable[[str], object]

    def run(
        self,
        topic: str,
        where: str,
        options: ExportOptions,
        *,
        stop: Callable[[], bool],
        settings: Mapping[str, str],
    ) -> Iterator[ExportedFile]:
        """Yield the files of a topic below an address as they are published, until `stop` is true.

        `settings` say how S3 is reached, as keys of connectors. Raises as `TopicExport.run` and
        `open_folder`, and Misconfigured where the topic does not exist.
        """
        if problem := illegal_topic(topic):
            raise Misconfigured(f"TOPIC: {problem}")
        target = open_folder(where, tuple(settings.items()), retry_seconds=self.retry_seconds)
        broker = self.broker()
        broker.end_offsets(topic)
        until = "until Ctrl-C or SIGTERM; --once ends at the end that it has now"
        until = "to the end that it has now" if options.once else until
        self.notify(f"writing {topic} to {where}, {until}")
        target.require_bucket()
        if not target.creates_once():
            self.notify(
                f"{where}: this server ignores If-None-Match, so that two processes that write at"
                " the same moment are not distinguished; let only one write into this target"
            )
        client = {**broker.reader_settings(self.group()), **FETCH}
        with RecordReader(client, f"topic {topic}") as source, broker.open_admin() as admin:
            alone = Lock()

            def identify() -> str:
                with alone:  # files are published by several threads
                    return admin.topic_ids([topic])[topic]

            exported = TopicExport(topic, source, target, options, stop, identify, self.clock)
            yield from exported.run()
