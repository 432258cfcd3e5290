"""Apicurio Registry as the schema registry."""

import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from extentflow_local.stack.ports import HOST
from extentflow_local.stack.servers import Toolbox, java_command
from extentflow_local.stack.servers.asking import ask

# Confluent's API, as Apicurio serves it.
_API = "/apis/ccompat/v7"


@dataclass(frozen=True, slots=True)
class Apicurio:
    """A schema registry with Confluent's API. It keeps schemas on disk, over restarts and kills."""

    heap: str = "384m"
    name: str = "registry"
    title: str = "Apicurio Registry"
    port_names: tuple[str, ...] = ("registry",)
    ready_seconds: float = 300
    stop_seconds: float = 10

    def prepare(self, directory: Path, ports: Mapping[str, int], toolbox: Toolbox) -> list[str]:
        """Unpack the distribution, and return the command."""
        program = directory / "app"
        if not program.exists():
            (archive,) = toolbox.library("registry").iterdir()
            partial = directory / "app.partial"
            with tarfile.open(archive) as packed:
                packed.extractall(partial, filter="data")
            partial.rename(program)
        (runner,) = program.glob("*-runner.jar")
        return [
            *java_command(toolbox, heap=self.heap, directory=directory),
            f"-Dquarkus.http.host={HOST}",
            f"-Dquarkus.http.port={ports['registry']}",
            "-Dquarkus.http.access-log.enabled=false",
            # By default the database writes a commit within half a second, which a kill loses.
            f"-Dapicurio.datasource.url=jdbc:h2:file:{directory / 'data'};WRITE_DELAY=0",
            "-jar",
            str(runner),
        ]

    def answers(self, ports: Mapping[str, int]) -> bool:
        """Return whether the compatibility level can be read."""
        return ask(ports["registry"], "GET", f"{_API}/config") is not None

    def leftovers(self, ports: Mapping[str, int]) -> tuple[Path, ...]:  # noqa: ARG002 - the port's
        """Nothing."""
        return ()

    def endpoint(self, ports: Mapping[str, int]) -> str:
        """The address of Confluent's API."""
        return f"http://{HOST}:{ports['registry']}{_API}"

    def environment(self, ports: Mapping[str, int]) -> dict[str, str]:  # noqa: ARG002 - the port's
        """Nothing: connectors name the registry."""
        return {}
