"""Read topics with Kafka's own console consumer, an implementation that is not ours."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from extentflow_local.services import Toolbox

PROGRAM = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FIELDS = "\t"
HEADERS = "\x1f"
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

    def read(self, topic: str, *, idle_seconds: float) -> pa.Table:
        """Return all committed records of a topic, see FOUND; ends when none comes for a while."""
        done = subprocess.run(
            self._command(topic, idle_seconds), capture_output=True, check=False, cwd=self.folder
        )
        errors = done.stderr.decode(errors="replace")
        # It reports the end by `idle_seconds` as an error, too.
        if "Processed a total of" not in errors:
            raise ConsoleFailedError(f"{topic}: exit code {done.returncode}\n{errors[-4_000:]}")
        return parsed(topic, done.stdout)

    def _command(self, topic: str, idle_seconds: float) -> list[str]:
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
            "null.literal": NULL,
        }
        return [
            str(self.toolbox.java()),
            *("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
            "-Dfile.encoding=UTF-8",
            "-Dstdout.encoding=UTF-8",
            f"-Dlog4j2.configurationFile={logging}",
            *("-cp", ":".join(libraries), PROGRAM),
            *("--bootstrap-server", self.bootstrap_servers, "--topic", topic, "--from-beginning"),
            *("--isolation-level", "read_committed"),
            *("--timeout-ms", str(int(idle_seconds * 1_000))),
            *(word for pair in properties.items() for word in ("--property", "=".join(pair))),
        ]


def parsed(topic: str, output: bytes) -> pa.Table:
    """Return the console consumer's lines as a table; NULL stands for null keys and values."""
    columns: dict[str, list[object]] = {name: [] for name in FOUND.names}
    for line in output.decode().split("\n"):
        if not line:
            continue
        partition, position, headers, key, value = line.split(FIELDS, 4)
        columns["topic"].append(topic)
        columns["partition"].append(int(partition.removeprefix("Partition:")))
        columns["position"].append(int(position.removeprefix("Offset:")))
        columns["headers"].append(None if headers == NO_HEADERS else headers)
        columns["key"].append(None if key == NULL else key)
        columns["value"].append(None if value == NULL else value)
    return pa.table(columns, FOUND)
