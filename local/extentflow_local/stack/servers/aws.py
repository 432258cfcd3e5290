"""Moto as server of the AWS services that functions call beside S3, DynamoDB and SQS."""

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from extentflow_local.stack.errors import ProgramMissing
from extentflow_local.stack.ports import HOST
from extentflow_local.stack.servers import Toolbox, awsjson
from extentflow_local.stack.servers.awsjson import CREDENTIALS


@dataclass(frozen=True, slots=True)
class MotoServer:
    """Secrets Manager, EventBridge and Glue in one process, in memory: a restart deletes all."""

    name: str = "aws"
    title: str = "Moto (secrets, events, schemas)"
    port_names: tuple[str, ...] = ("aws",)
    ready_seconds: float = 180
    stop_seconds: float = 5

    def prepare(
        self,
        directory: Path,  # noqa: ARG002 - the port's
        ports: Mapping[str, int],
        toolbox: Toolbox,  # noqa: ARG002 - the port's
    ) -> list[str]:
        """Return the command."""
        if any(importlib.util.find_spec(module) is None for module in ("moto", "flask_cors")):
            raise ProgramMissing(
                "moto (Secrets Manager, EventBridge and Glue on this machine) is not installed:"
                " install it with `pip install 'moto[events,glue,secretsmanager]' flask flask-cors`"
            )
        return [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(ports["aws"])]

    def answers(self, ports: Mapping[str, int]) -> bool:
        """Return whether secrets can be listed."""
        return awsjson.answers(
            ports["aws"], "secretsmanager.ListSecrets", service="secretsmanager", version="1.1"
        )

    def leftovers(self, ports: Mapping[str, int]) -> tuple[Path, ...]:  # noqa: ARG002 - the port's
        """Nothing."""
        return ()

    def endpoint(self, ports: Mapping[str, int]) -> str:
        """The server's address."""
        return f"http://{HOST}:{ports['aws']}"

    def environment(self, ports: Mapping[str, int]) -> dict[str, str]:
        """Addresses and credentials."""
        return {
            "AWS_ENDPOINT_URL_SECRETS_MANAGER": self.endpoint(ports),
            "AWS_ENDPOINT_URL_EVENTBRIDGE": self.endpoint(ports),
            "AWS_ENDPOINT_URL_GLUE": self.endpoint(ports),
            **CREDENTIALS,
        }
