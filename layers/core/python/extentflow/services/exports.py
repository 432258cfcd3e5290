"""Writes topics of columnar values into files; see `extentflow.export.topic_export`.

Tests: integration/test_export.py
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from threading import Lock

from extentflow.config.types import illegal_topic
from extentflow.errors import Misconfigured
from extentflow.export.partition_files import ExportedFile, ExportOptions
from extentflow.export.topic_export import FETCH, TopicExport
from extentflow.kafka.reading import RecordReader
from extentflow.wiring import Runtime
from extentflow.wiring.targets import open_folder


@dataclass(frozen=True, slots=True)
class Exports:
    """Exports topics of a runtime's cluster. `notify` gets messages that are no errors."""

    runtime: Runtime
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
        runtime = self.runtime
        if problem := illegal_topic(topic):
            raise Misconfigured(f"TOPIC: {problem}")
        retry_seconds = runtime.settings.retry_timeout_seconds
        target = open_folder(where, tuple(settings.items()), retry_seconds=retry_seconds)
        runtime.broker.end_offsets(topic)
        until = "to the end that it has now" if options.once else "until Ctrl-C or SIGTERM"
        self.notify(f"writing {topic} to {where}, {until}")
        target.require_bucket()
        if not target.creates_once():
            self.notify(
                f"{where}: this server ignores If-None-Match, so that two processes that write at"
                " the same moment are not distinguished; let only one write into this target"
            )
        group = f"{runtime.settings.app_id}.{runtime.random.getrandbits(64):x}.export"
        client = {**runtime.broker.reader_settings(group), **FETCH}
        with (
            RecordReader(client, f"topic {topic}") as source,
            runtime.broker.open_admin() as admin,
        ):
            alone = Lock()

            def identify() -> str:
                with alone:  # files are published by several threads
                    return admin.topic_ids([topic])[topic]

            exported = TopicExport(topic, source, target, options, stop, identify, runtime.clock)
            yield from exported.run()
