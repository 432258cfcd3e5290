"""Writes topics of columnar values into files; see `extentflow.export.topic_export`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from extentflow.export.partition_files import IngestedFile, IngestOptions
from extentflow.export.topic_export import Ingestion
from extentflow.export.topic_source import TopicSource
from extentflow.wiring import Runtime
from extentflow.wiring.targets import open_target, require_topic


@dataclass(frozen=True, slots=True)
class Ingestions:
    """Ingests topics of a runtime's cluster. `notify` gets messages that are no errors."""

    runtime: Runtime
    notify: Callable[[str], object]

    def run(
        self,
        topic: str,
        where: str,
        options: IngestOptions,
        *,
        stop: Callable[[], bool],
        settings: Mapping[str, str],
    ) -> Iterator[IngestedFile]:
        """Yield the files of a topic below an address as they are published, until `stop` is true.

        `settings` say how S3 is reached, as keys of connectors. Raises as `Ingestion.run` and
        `open_target`, and Misconfigured where the topic does not exist.
        """
        runtime = self.runtime
        require_topic(topic)
        retry_seconds = runtime.settings.retry_timeout_seconds
        target = open_target(where, settings, runtime.secrets, retry_seconds=retry_seconds)
        runtime.broker.end_offsets(topic)
        until = "to the end that it has now" if options.once else "until Ctrl-C or SIGTERM"
        self.notify(f"writing {topic} to {where}, {until}")
        target.require_bucket()
        if not target.refuses_existing():
            self.notify(
                f"{where}: this server ignores If-None-Match, so that two processes that write at"
                " the same moment are not distinguished; let only one write into this target"
            )
        group = f"{runtime.settings.app_id}.{runtime.random.getrandbits(64):x}.ingest"
        with TopicSource(runtime.broker.reader_settings(group), topic) as source:
            ingestion = Ingestion(topic, source, target, options, stop, runtime.clock)
            yield from ingestion.run()
