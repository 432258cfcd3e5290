"""ElasticMQ as the SQS server."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from extentflow_local.stack.ports import HOST
from extentflow_local.stack.servers import ACCOUNT, REGION, Toolbox, awsjson, java_command
from extentflow_local.stack.servers.awsjson import CREDENTIALS

_CONFIGURATION = """\
include classpath("application.conf")
pekko.loglevel = "INFO"
node-address {{ protocol = http, host = "{host}", port = {port}, context-path = "" }}
rest-sqs {{ enabled = true, bind-hostname = "{host}", bind-port = {port}, sqs-limits = strict }}
aws {{ region = "{region}", accountId = "{account}" }}
messages-storage {{ enabled = {durable}, uri = "jdbc:h2:./data/messages;WRITE_DELAY=0" }}
"""

_LOGGING = """\
<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %-5level %msg \\(%logger{0}\\)%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="console"/></root>
  <logger name="org.elasticmq.server" level="INFO"/>
</configuration>
"""


@dataclass(frozen=True, slots=True)
class ElasticMq:
    """An SQS server in one process. `durable` keeps messages over restarts and kills.

    A message that the server itself moved to a dead letter queue stays in the table of its old
    queue (1.7.1), and is visible there again after a restart. Retention periods are accepted and
    ignored.
    """

    durable: bool = True
    heap: str = "256m"
    name: str = "sqs"
    title: str = "ElasticMQ"
    port_names: tuple[str, ...] = ("sqs",)
    ready_seconds: float = 180
    stop_seconds: float = 10

    def prepare(self, directory: Path, ports: Mapping[str, int], toolbox: Toolbox) -> list[str]:
        """Write the configuration and return the command."""
        (directory / "data").mkdir(exist_ok=True)
        configuration = directory / "elasticmq.conf"
        text = _CONFIGURATION.format(
            host=HOST,
            port=ports["sqs"],
            region=REGION,
            account=ACCOUNT,
            durable=str(self.durable).lower(),
        )
        configuration.write_text(text, encoding="utf-8")
        logging = directory / "logback.xml"
        logging.write_text(_LOGGING, encoding="utf-8")
        return [
            *java_command(toolbox, heap=self.heap, directory=directory),
            f"-Dconfig.file={configuration}",
            f"-Dlogback.configurationFile={logging}",
            "-cp",
            f"{toolbox.library('sqs')}/*",
            "org.elasticmq.server.Main",
        ]

    def answers(self, ports: Mapping[str, int]) -> bool:
        """Return whether queues can be listed."""
        return awsjson.answers(ports["sqs"], "AmazonSQS.ListQueues", service="sqs", version="1.0")

    def leftovers(self, ports: Mapping[str, int]) -> tuple[Path, ...]:  # noqa: ARG002 - the port's
        """Nothing."""
        return ()

    def endpoint(self, ports: Mapping[str, int]) -> str:
        """The server's address."""
        return f"http://{HOST}:{ports['sqs']}"

    def environment(self, ports: Mapping[str, int]) -> dict[str, str]:
        """Address and credentials."""
        return {
            "AWS_ENDPOINT_URL_SQS": self.endpoint(ports),
            **CREDENTIALS,
        }
