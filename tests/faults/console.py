"""Read topics with Kafka's own console consumer, an implementation that is not ours."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, TopicPartition

from extentflow_local.stack.servers import Toolbox

PROGRAM = "org.apache.kafka.tools.consumer.ConsoleConsumer"
# Not a tab, which keys of rows may hold.
FIELDS = "\x1d"
HEADERS = "\x1f"
# Not a newline: the bytes of a dead letter may hold one, such as those of a CSV record.
RECORDS = "\x1e"
IDLE_MS = 5_000
ATTEMPTS = 12
NULL = "\\N"
NO_HEADERS = "NO_HEADERS"
# Kafka's own loggers would write to standard output, among the records.
_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %m (%c)%n
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
"""
FOUND = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("position", pa.int64()),
        pa.field("headers", pa.string()),
        pa.field("key", pa.string()),
        pa.field("value", pa.string()),
    ]
)


class ConsoleFailedError(Exception):
    """The console consumer ended with an error."""


@dataclass(frozen=True)
class Console:
    """Runs the console consumer; `folder` takes its logging configuration."""

    toolbox: Toolbox
    bootstrap_servers: str
    folder: Path

    def read(self, topic: str) -> pa.Table:
        """Return all committed records of a topic, see FOUND.

        Raises:
            ConsoleFailedError: no attempt read to the end.
        """
        said = ""
        for attempt in range(1, ATTEMPTS + 1):
            group = f"console-{uuid4().hex}"
            # A busy machine may need longer for joining the group than the first attempt waits.
            command = self._command(topic, group, idle_ms=attempt * IDLE_MS)
            done = subprocess.run(command, capture_output=True, check=False, cwd=self.folder)
            if self._has_read_all(topic, group):
                return once(parsed(topic, done.stdout))
            said = f"exit code {done.returncode}: {done.stderr.decode(errors='replace')[-2_000:]}"
        raise ConsoleFailedError(f"{topic} was not read to its end: {said}")

    def _has_read_all(self, topic: str, group: str) -> bool:
        """Whether the consumer committed the end of every partition when it ended.

        It ends when no record comes for a while, which a broker that restarts causes, too.
        """
        settings = {"bootstrap.servers": self.bootstrap_servers, "log_level": 0}
        consumer = Consumer({**settings, "group.id": group, "isolation.level": "read_committed"})
        try:
            partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            places = [TopicPartition(topic, number) for number in partitions]
            ends = {one.partition: consumer.get_watermark_offsets(one, 30)[1] for one in places}
            read = {one.partition: one.offset for one in consumer.committed(places, timeout=30)}
        except KafkaException:
            return False
        finally:
            consumer.close()
        return all(read[number] == end or not end for number, end in ends.items())

    def _command(self, topic: str, group: str, *, idle_ms: int) -> list[str]:
        self.folder.mkdir(parents=True, exist_ok=True)
        logging = self.folder / "console-log4j2.properties"
        logging.write_text(_LOGGING, encoding="utf-8")
        libraries = [f"{self.toolbox.library(name)}/*" for name in ("kafka", "kafka-tools")]
        properties = {
            "print.partition": "true",
            "print.offset": "true",
            "print.headers": "true",
            "print.key": "true",
            "key.separator": FIELDS,
            "headers.separator": HEADERS,
            "line.separator": RECORDS,
            "null.literal": NULL,
        }
        return [
            str(self.toolbox.java()),
            # The JVM's own warnings would stand among the records, too.
            *("-Xlog:disable", "-Xlog:all=warning:stderr", "-XX:+DisplayVMOutputToStderr"),
            *("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
            "-Dfile.encoding=UTF-8",
            "-Dstdout.encoding=UTF-8",
            f"-Dlog4j2.configurationFile={logging}",
            *("-cp", ":".join(libraries), PROGRAM),
            *("--bootstrap-server", self.bootstrap_servers, "--topic", topic, "--from-beginning"),
            *("--isolation-level", "read_committed"),
            *("--group", group, "--timeout-ms", str(idle_ms)),
            *(word for pair in properties.items() for word in ("--property", "=".join(pair))),
        ]


def once(printed: pa.Table) -> pa.Table:
    """Return a topic's records without those that were printed before.

    A consumer that has to join its group again begins at its last commit: what it prints twice has
    the same partition and offset, and is one record.
    """
    places: dict[tuple[object, object], int] = {}
    columns = (printed.column(name).to_pylist() for name in ("partition", "position"))
    for row, place in enumerate(zip(*columns, strict=True)):
        places.setdefault(place, row)
    return printed.take(pa.array(places.values(), pa.int64()))


def parsed(topic: str, output: bytes) -> pa.Table:
    """Return the console consumer's records as a table; NULL stands for null keys and values."""
    columns: dict[str, list[object]] = {name: [] for name in FOUND.names}
    for record in output.decode().split(RECORDS):
        if not record:
            continue
        try:
            partition, position, headers, key, value = record.split(FIELDS, 4)
        except ValueError as exc:
            raise ConsoleFailedError(f"{topic}: this is no record: {record[:500]!r}") from exc
        columns["topic"].append(topic)
        columns["partition"].append(int(partition.removeprefix("Partition:")))
        columns["position"].append(int(position.removeprefix("Offset:")))
        columns["headers"].append(None if headers == NO_HEADERS else headers)
        columns["key"].append(None if key == NULL else key)
        columns["value"].append(None if value == NULL else value)
    return pa.table(columns, FOUND)
