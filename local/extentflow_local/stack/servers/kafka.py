"""Apache Kafka: one node as broker and controller, alone or one of several."""

import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from extentflow_local.stack.errors import ServiceFailed
from extentflow_local.stack.ports import HOST, accepts
from extentflow_local.stack.servers import Toolbox, java_command

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers={host}:{controller}
listeners=PLAINTEXT://{host}:{kafka},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{kafka},CONTROLLER://{host}:{controller}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=data
num.partitions=4
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""

_LOGGING = """\
status = warn
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
logger.partitions.name = kafka.log
logger.partitions.level = warn
logger.storage.name = org.apache.kafka.storage.internals.log
logger.storage.level = warn
logger.clients.name = org.apache.kafka.clients
logger.clients.level = warn
"""

ALONE = ("--standalone",)


@dataclass(frozen=True, slots=True)
class Kafka:
    """A Kafka node; `properties` override its configuration.

    A node of a cluster of several has the `cluster` id and the `controllers` of all, as
    `id@host:port:directory id,...`. A `quick` node takes less CPU, but delivers fewer records per
    second at full load. `component` is the release.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    cluster: str = ""
    controllers: str = ""
    heap: str = "512m"
    quick: bool = False
    component: str = "kafka"
    name: str = "kafka"
    title: str = "Kafka"
    port_names: tuple[str, ...] = ("kafka", "controller")
    ready_seconds: float = 180
    stop_seconds: float = 20

    def prepare(self, directory: Path, ports: Mapping[str, int], toolbox: Toolbox) -> list[str]:
        """Write server.properties, format new storage, and return the command."""
        extra = "".join(f"{key}={value}\n" for key, value in self.properties.items())
        server = directory / "server.properties"
        server.write_text(_PROPERTIES.format(host=HOST, **ports) + extra, encoding="utf-8")
        logging = directory / "log4j2.properties"
        logging.write_text(_LOGGING, encoding="utf-8")
        java = java_command(toolbox, heap=self.heap, directory=directory, quick=self.quick)
        java += [
            f"-Dlog4j2.configurationFile={logging}",
            "-cp",
            f"{toolbox.library(self.component)}/*",
        ]
        if not (directory / "data" / "meta.properties").exists():
            quorum = ["--initial-controllers", self.controllers] if self.controllers else ALONE
            _format(java, server, directory, cluster=self.cluster or new_id(), quorum=quorum)
        return [*java, "kafka.Kafka", str(server)]

    def answers(self, ports: Mapping[str, int]) -> bool:
        """Return whether an admin request succeeds; an open port is not enough."""
        if not accepts(ports["kafka"]):
            return False
        admin = AdminClient({"bootstrap.servers": self.endpoint(ports), "log_level": 0})
        try:
            return bool(admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def leftovers(self, ports: Mapping[str, int]) -> tuple[Path, ...]:  # noqa: ARG002 - the port's
        """Nothing."""
        return ()

    def endpoint(self, ports: Mapping[str, int]) -> str:
        """The bootstrap server."""
        return f"{HOST}:{ports['kafka']}"

    def environment(self, ports: Mapping[str, int]) -> dict[str, str]:
        """The bootstrap servers."""
        return {"EXTENTFLOW_BOOTSTRAP_SERVERS": self.endpoint(ports)}


def new_id() -> str:
    """Return an id of a cluster or of a directory, which must not look like an option."""
    return next(token for token in iter(lambda: secrets.token_urlsafe(16), "") if token[0] != "-")


def _format(
    java: list[str], server: Path, directory: Path, *, cluster: str, quorum: Sequence[str]
) -> None:
    tool = ["kafka.tools.StorageTool", "format", *quorum, "--ignore-formatted"]
    run = subprocess.run(
        [*java, *tool, "-t", cluster, "-c", str(server)],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        raise ServiceFailed(f"kafka: its storage could not be formatted: {run.stdout}{run.stderr}")
