"""Moto as the server of the AWS services that functions call beside S3, DynamoDB and SQS.

Owns: its command line and readiness. Refuses to know: secrets, buses.
"""

import http.client
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from extentflow_local.errors import ProgramMissing
from extentflow_local.ports import HOST
from extentflow_local.services import ACCESS_KEY, REGION, SECRET_KEY, Toolbox


@dataclass(frozen=True, slots=True)
class MotoServer:
    """Secrets Manager and EventBridge in one process, in memory: a restart forgets everything."""

    name: str = "aws"
    title: str = "Moto (secrets, events)"
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
                "moto (Secrets Manager and EventBridge on this machine) is not installed: install"
                " it with `pip install 'moto[events,secretsmanager]' flask flask-cors`"
            )
        return [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(ports["aws"])]

    def answers(self, ports: Mapping[str, int]) -> bool:
        """Whether secrets can be listed."""
        scope = f"{ACCESS_KEY}/20250101/{REGION}/secretsmanager/aws4_request"
        headers = {
            "Content-Type": "application/x-amz-json-1.1",
            "X-Amz-Target": "secretsmanager.ListSecrets",
            # It tells services apart by the scope but does not check the signature.
            "Authorization": f"AWS4-HMAC-SHA256 Credential={scope},SignedHeaders=host,Signature=0",
        }
        connection = http.client.HTTPConnection(HOST, ports["aws"], timeout=1)
        try:
            connection.request("POST", "/", body=b"{}", headers=headers)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

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
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
        }
