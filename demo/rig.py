"""The stack, buckets, topics and commands around a run, for demo and benchmarks.

Everything is done as a user would: with an S3 client, a Kafka client, and `extentflow` as a
process.
"""

import json
import os
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import boto3
import psutil
from boto3.s3.transfer import TransferConfig
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from extentflow_local.stack.stack import LIGHT, Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PARTITIONS = 8
PART_BYTES = 16 << 20
OF_LEDGERS = "EXTENTFLOW_LEDGER_"
NO_CONFIG: Mapping[str, str] = MappingProxyType({})
PROGRAM = Path(sysconfig.get_path("scripts")) / "extentflow"


class CommandError(Exception):
    """An `extentflow` command failed; its errors are on standard error."""


def broker_seconds(root: Path) -> float:
    """Return user and system time so far of the Kafka brokers of the stack below `root`."""
    found = (one.info for one in psutil.process_iter(["cmdline", "cpu_times"]))
    return sum(
        sum(one["cpu_times"][:2])
        for one in found
        if one["cpu_times"] and _is_broker(one["cmdline"] or (), root)
    )


def _is_broker(command: Sequence[str], root: Path) -> bool:
    return "kafka.Kafka" in command and any(word.startswith(str(root)) for word in command)


def bring_up(stack: Stack, names: Sequence[str] = ()) -> Mapping[str, str]:
    """Start services as `Stack.up`; if one fails, stop the others that were started here.

    Running services are left unchanged. Raises as `Stack.up`.
    """
    ran = set(stack.endpoints())
    try:
        return stack.up(names)
    except BaseException:
        started = [name for name in stack.endpoints() if name not in ran]
        if started:
            stack.down(started)
        raise


@dataclass(frozen=True, slots=True)
class Rig:
    """A running stack. `environment` is the environment of every command."""

    root: Path
    environment: Mapping[str, str]

    @classmethod
    def start(cls, root: Path, notify: Any = print) -> "Rig":  # noqa: ANN401 - print-like
        """Start the local stack below `root` if necessary, and create its ledger.

        That is SQLite, unless DynamoDB runs there.
        """
        stack = Stack(root, notify=notify)
        bring_up(stack, LIGHT)
        stack.create_ledger()
        # Variables of another ledger, or of this one before, would contradict it.
        around = {
            name: text for name, text in os.environ.items() if not name.startswith(OF_LEDGERS)
        }
        rig = cls(root, {**around, **stack.environment()})
        rig.extentflow("init", quiet=True)
        return rig

    @property
    def kafka(self) -> Mapping[str, str]:
        """Client settings of the stack's broker, without log output of warnings."""
        servers = self.environment["EXTENTFLOW_BOOTSTRAP_SERVERS"]
        return {"bootstrap.servers": servers, "log_level": "4"}

    @property
    def s3_endpoint(self) -> str:
        """Address of the stack's S3 server."""
        return self.environment["EXTENTFLOW_STACK_S3_ENDPOINT"]

    def s3_client(self) -> "S3Client":
        """Return a client of the stack's S3 server, to be closed."""
        return boto3.client(
            "s3",
            endpoint_url=self.s3_endpoint,
            aws_access_key_id=self.environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.environment["AWS_SECRET_ACCESS_KEY"],
            region_name=self.environment["AWS_REGION"],
        )

    def upload(self, path: Path, bucket: str, key: str) -> None:
        """Upload a file in parts; create the bucket if it is missing."""
        self.create_bucket(bucket)
        s3 = self.s3_client()
        parts = TransferConfig(multipart_chunksize=PART_BYTES, max_concurrency=2)
        s3.upload_file(str(path), bucket, key, Config=parts)
        s3.close()

    def create_bucket(self, bucket: str) -> None:
        """Create a bucket, unless it exists."""
        s3 = self.s3_client()
        if bucket not in {found["Name"] for found in s3.list_buckets()["Buckets"]}:
            s3.create_bucket(Bucket=bucket)
        s3.close()

    def create_topic(self, name: str, config: Mapping[str, str] = NO_CONFIG) -> None:
        """Create an empty topic."""
        admin = AdminClient({**self.kafka})  # must live until the response arrives
        topic = NewTopic(name, PARTITIONS, 1, config=dict(config))
        admin.create_topics([topic])[name].result()

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics and their data."""
        admin = AdminClient({**self.kafka})
        for future in admin.delete_topics(list(names)).values():
            future.result()

    def logged_bytes(self, topic: str) -> int:
        """Return the bytes of a topic's records in the broker's log, as they were sent."""
        files = (self.root / "var").rglob(f"{topic}-*/*.log")
        return sum(file.stat().st_size for file in files)

    def put_connector(self, config: Mapping[str, str]) -> None:
        """Store a connector that reads from the stack's S3 server, unless `config` overrides it."""
        folder = self.root / "var" / "connectors"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{config['name']}.json"
        server = {} if "endpoint.type" in config else {"aws.s3.endpoint": self.s3_endpoint}
        path.write_text(json.dumps({**server, **config}, indent=2))
        self.extentflow("connectors", "put", str(path), quiet=True)

    def extentflow(self, *arguments: str, quiet: bool = False) -> str:
        """Run the command line; return its standard output; errors go to standard error."""
        command = [str(PROGRAM), *arguments]
        done = subprocess.run(
            command, env=dict(self.environment), cwd=self.root, stdout=subprocess.PIPE, check=False
        )
        text = done.stdout.decode()
        if done.returncode != 0:
            raise CommandError(f"{' '.join(command)} ended with {done.returncode}\n{text}")
        if not quiet:
            print(text, end="")
        return text
