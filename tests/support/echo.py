"""A small stand-in for a server of the stack: a real process and port, nothing to install."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from extentflow_local.stack.ports import accepts
from extentflow_local.stack.servers import Toolbox

SERVE = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    while True:
        server.accept()[0].close()
"""


@dataclass(frozen=True)
class Echo:
    """A server that listens, or does what `program` says."""

    name: str = "echo"
    program: str = SERVE
    port_names: tuple[str, ...] = ("echo", "spare")
    ready_seconds: float = 20
    stop_seconds: float = 10
    title: str = "Echo"

    def prepare(self, directory: Path, ports: Mapping[str, int], toolbox: Toolbox) -> list[str]:  # noqa: ARG002 - the port's
        (directory / "prepared").touch()
        return [sys.executable, "-c", self.program, str(ports["echo"])]

    def answers(self, ports: Mapping[str, int]) -> bool:
        return accepts(ports["echo"])

    def leftovers(self, ports: Mapping[str, int]) -> tuple[Path, ...]:
        assert ports
        return ()

    def endpoint(self, ports: Mapping[str, int]) -> str:
        return f"echo:{ports['echo']}"

    def environment(self, ports: Mapping[str, int]) -> dict[str, str]:
        return {f"{self.name.upper()}_ENDPOINT": self.endpoint(ports)}
