"""SeaweedFS as the S3 server."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from extentflow_local.stack.ports import HOST
from extentflow_local.stack.servers import ACCESS_KEY, SECRET_KEY, Toolbox
from extentflow_local.stack.servers.asking import ask
from extentflow_local.stack.servers.awsjson import CREDENTIALS

_IDENTITIES = {
    "identities": [
        {
            "name": ACCESS_KEY,
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
    ]
}


@dataclass(frozen=True, slots=True)
class SeaweedS3:
    """Master, volume server, filer and S3 gateway in one process."""

    name: str = "s3"
    title: str = "SeaweedFS S3"
    port_names: tuple[str, ...] = (
        "s3",
        "s3_grpc",
        "master",
        "master_grpc",
        "volume",
        "volume_grpc",
        "filer",
        "filer_grpc",
    )
    ready_seconds: float = 180
    # Volumes close at once; then its filer waits for its own gateway without end.
    stop_seconds: float = 2

    def prepare(self, directory: Path, ports: Mapping[str, int], toolbox: Toolbox) -> list[str]:
        """Write the credentials and the growth rule, and return the command."""
        (directory / "data").mkdir(exist_ok=True)
        identities = directory / "s3.json"
        identities.write_text(json.dumps(_IDENTITIES, indent=2), encoding="utf-8")
        # One volume per bucket instead of seven: tests make many buckets.
        growth = "[master.volume_growth]\ncopy_1 = 1\n"
        (directory / "master.toml").write_text(growth, encoding="utf-8")
        return [
            str(toolbox.weed()),
            "-logtostderr=true",
            "server",
            f"-ip={HOST}",
            f"-ip.bind={HOST}",
            "-dir=data",
            "-filer",
            "-s3",
            f"-s3.config={identities}",
            # Each port would also open one 10,000 higher, and the catalogs theirs, by default.
            f"-s3.port={ports['s3']}",
            f"-s3.port.grpc={ports['s3_grpc']}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-master.port={ports['master']}",
            f"-master.port.grpc={ports['master_grpc']}",
            f"-volume.port={ports['volume']}",
            f"-volume.port.grpc={ports['volume_grpc']}",
            f"-filer.port={ports['filer']}",
            f"-filer.port.grpc={ports['filer_grpc']}",
            # Relative, because the path of a socket is limited to about 100 characters.
            "-filer.localSocket=filer.sock",
            "-s3.localSocket=s3.sock",
            "-master.telemetry=false",
            # A single master needs no election.
            "-master.peers=none",
            "-master.volumeSizeLimitMB=1024",
            "-volume.max=0",
            "-volume.preStopSeconds=0",
        ]

    def answers(self, ports: Mapping[str, int]) -> bool:
        """Return whether the gateway is healthy and a volume server accepts writes."""
        if ask(ports["s3"], "GET", "/healthz") is None:
            return False
        status = ask(ports["master"], "GET", "/dir/status")
        return status is not None and json.loads(status)["Topology"]["Max"] > 0

    def leftovers(self, ports: Mapping[str, int]) -> tuple[Path, ...]:
        """Sockets, whose location cannot be configured."""
        temporary = Path(os.sep, "tmp")
        return tuple(
            temporary / f"seaweedfs-{part}-grpc-{ports[f'{part}_grpc']}.sock"
            for part in ("s3", "master", "volume", "filer")
        )

    def endpoint(self, ports: Mapping[str, int]) -> str:
        """The gateway's address."""
        return f"http://{HOST}:{ports['s3']}"

    def environment(self, ports: Mapping[str, int]) -> dict[str, str]:
        """Address and credentials."""
        return {
            "EXTENTFLOW_STACK_S3_ENDPOINT": self.endpoint(ports),
            "AWS_ENDPOINT_URL_S3": self.endpoint(ports),
            **CREDENTIALS,
        }


def follow_command(weed: Path, ports: Mapping[str, int], seconds: int) -> list[str]:
    """Return the command that prints every change of a file below the buckets.

    Starts `seconds` ago and follows. Prints indented JSON to standard output; the log that it
    reads is on disk.
    """
    return [
        str(weed),
        "filer.meta.tail",
        f"-filer={HOST}:{ports['filer']}.{ports['filer_grpc']}",
        "-pathPrefix=/buckets/",
        f"-timeAgo={seconds}s",
    ]
