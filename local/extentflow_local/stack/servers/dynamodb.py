"""DynamoDB Local."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from extentflow_local.stack.ports import HOST
from extentflow_local.stack.servers import Toolbox, awsjson, java_command
from extentflow_local.stack.servers.awsjson import CREDENTIALS

_LAUNCHER = Path(__file__).with_name("LoopbackDynamoDb.java")


@dataclass(frozen=True, slots=True)
class DynamoDbLocal:
    """Amazon's DynamoDB in one process, on SQLite, bound to the loopback interface."""

    heap: str = "512m"
    name: str = "dynamodb"
    title: str = "DynamoDB Local"
    port_names: tuple[str, ...] = ("dynamodb",)
    ready_seconds: float = 180
    stop_seconds: float = 5

    def prepare(self, directory: Path, ports: Mapping[str, int], toolbox: Toolbox) -> list[str]:
        """Write the launcher's source and return the command.

        The server itself would listen on every interface. Janino, from PySpark's jars, runs the
        launcher from source, so a JRE without a compiler suffices.
        """
        (directory / "data").mkdir(exist_ok=True)
        (directory / "launcher").mkdir(exist_ok=True)
        shutil.copy(_LAUNCHER, directory / "launcher")
        library = toolbox.library("dynamodb")
        jars = (f"{library}/*", toolbox.spark_jar("janino"), toolbox.spark_jar("commons-compiler"))
        return [
            *java_command(toolbox, heap=self.heap, directory=directory),
            f"-Djava.library.path={library}",
            f"-Dsqlite4java.library.path={library}",
            "-cp",
            ":".join(map(str, jars)),
            "org.codehaus.janino.JavaSourceClassLoader",
            "-sourcepath",
            "launcher",
            _LAUNCHER.stem,
            "-port",
            str(ports["dynamodb"]),
            "-dbPath",
            "data",
            "-sharedDb",
            "-disableTelemetry",
        ]

    def answers(self, ports: Mapping[str, int]) -> bool:
        """Return whether tables can be listed."""
        return awsjson.answers(
            ports["dynamodb"], "DynamoDB_20120810.ListTables", service="dynamodb", version="1.0"
        )

    def leftovers(self, ports: Mapping[str, int]) -> tuple[Path, ...]:  # noqa: ARG002 - the port's
        """Nothing."""
        return ()

    def endpoint(self, ports: Mapping[str, int]) -> str:
        """The server's address."""
        return f"http://{HOST}:{ports['dynamodb']}"

    def environment(self, ports: Mapping[str, int]) -> dict[str, str]:
        """Address and credentials."""
        return {
            "EXTENTFLOW_LEDGER_ENDPOINT": self.endpoint(ports),
            **CREDENTIALS,
        }
