"""`make demo-onprem`: a site without AWS delivers uploads while a machine and the receiver die.

S3 server ──webhook──> extentflow receive ──> PostgreSQL <──> Spark query ──> Kafka
                       is killed once          ledger, queue   one of two machines is killed

No process has a setting or a credential of AWS: the connectors name the S3 server and a file with
its keys.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from demo.eventpath import Upload, put
from demo.eventrows import compare
from demo.feeds import Feed, Numbers
from demo.frame import ROOT, Demo, Outcome, console, ended
from demo.rig import PROGRAM, CommandError, Rig, bring_up
from demo.streaming import EXTENT, OBJECTS, ROWS, Story, show, submitted_query, two_feeds, upload
from extentflow_local.aws.event_source.notifier import notifying, to_receiver
from extentflow_local.stack.ports import HOST
from extentflow_local.stack.servers import ACCESS_KEY, REGION, SECRET_KEY
from extentflow_local.stack.servers.kafka import Kafka
from extentflow_local.stack.servers.postgres import Postgres
from extentflow_local.stack.servers.s3 import SeaweedS3
from extentflow_local.stack.spark_cluster import SparkCluster
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

POSTGRES_PORT = 15_432
SECRET_PATH = "a-segment-of-the-demo"  # noqa: S105 - of a receiver on the loopback interface
SERVICES = (Kafka(), SeaweedS3(), Postgres())


@dataclass(frozen=True, slots=True)
class OnPremises:
    """A site without AWS: commands without credentials, and an S3 client with its own."""

    rig: Rig
    bucket: str
    s3: "S3Client"
    keys: Path

    def upload(self, key: str, body: bytes, connector: str) -> Upload:
        """Put an object; return its job of `connector`."""
        return put(self.s3, self.bucket, key, body, connector)

    def declare(self, feed: Feed) -> None:
        """Store a connector as for a grid, with references to the file of keys."""
        feed.declare(
            **{
                "endpoint.type": "storagegrids3",
                "aws.s3.endpoint": self.rig.environment["EXTENTFLOW_STACK_S3_ENDPOINT"],
                "aws.s3.region": REGION,
                "aws.access.key.id": f"${{file:{self.keys}:access_key_id}}",
                "aws.secret.access.key": f"${{file:{self.keys}:secret_access_key}}",
                "extent.bytes": EXTENT,
            }
        )

    def depths(self) -> dict[str, int]:
        """Return how many messages each queue holds."""
        found = json.loads(self.rig.extentflow("status", "--json", quiet=True))["queues"]
        return {name: sum(one.values()) for name, one in found.items()}


@dataclass
class ReceiverProcess:
    """`extentflow receive`, which can be killed and started again on the same port."""

    environment: Mapping[str, str]
    folder: Path
    port: int = 0
    _process: "subprocess.Popen[str] | None" = field(default=None, init=False)

    @property
    def url(self) -> str:
        """Where the S3 server's webhook posts to."""
        return f"http://{HOST}:{self.port}/{SECRET_PATH}"

    def start(self) -> None:
        """Start it and wait until it is ready. Raises CommandError: it ended instead."""
        sources = self.folder / "sources.json"
        endpoint = self.environment["EXTENTFLOW_STACK_S3_ENDPOINT"]
        sources.write_text(json.dumps([{"endpoint": endpoint, "secret_path": SECRET_PATH}]))
        command = [str(PROGRAM), "receive", "--sources", str(sources), "--json"]
        log = self.folder / "receiver.log"
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                [*command, "--host", HOST, "--port", str(self.port)],
                env=dict(self.environment),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        text = ""
        for line in self._process.stdout or ():
            text += line
            if line.startswith("}"):
                self.port = int(json.loads(text)["receiver"].rpartition(":")[2])
                return
        raise CommandError(f"`extentflow receive` ended with {self._process.wait()}; see {log}")

    def kill(self) -> None:
        """Kill it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


@contextmanager
def on_premises(work: Path, run: str) -> Iterator[tuple[Stack, OnPremises]]:
    """Start the servers, and yield the site; PostgreSQL ends with it, the others stay."""
    stack = Stack(ROOT, {"postgres": POSTGRES_PORT}, services=SERVICES, notify=console.print)
    began = bring_up(stack)
    try:
        servers = stack.environment()
        environment = without_aws({**os.environ, **servers})
        database, schema = servers["EXTENTFLOW_LEDGER_URL"], f"run_{run.replace('-', '_')}"
        with psycopg.connect(database, autocommit=True) as administrator:
            administrator.execute(f"CREATE SCHEMA {schema}".encode())
        environment["EXTENTFLOW_LEDGER_URL"] = f"{database}?options=-csearch_path%3D{schema}"
        # Transactional ids of other ledgers on the same brokers begin with another one.
        environment["EXTENTFLOW_APP_ID"] = f"onprem-{run}"
        rig = Rig(ROOT, environment)
        rig.extentflow("init", quiet=True)
        keys = work / "s3.properties"
        keys.write_text(f"access_key_id={ACCESS_KEY}\nsecret_access_key={SECRET_KEY}\n")
        keys.chmod(0o600)
        s3 = Rig(ROOT, servers).s3_client()
        bucket = f"onprem-{run}"
        s3.create_bucket(Bucket=bucket)
        yield stack, OnPremises(rig, bucket, s3, keys)
        s3.close()
    finally:
        if began["postgres"] == "started":  # `extentflow down` does not stop it
            stack.down(["postgres"])


def without_aws(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without anything that the SDK of AWS reads."""
    return {name: text for name, text in environment.items() if not name.startswith("AWS_")}


def _tell(run: str, objects: int) -> Outcome:
    work = ROOT / "var" / "demo" / "onprem" / run
    work.mkdir(parents=True)
    console.rule("Kafka, S3 server, PostgreSQL; no AWS")
    with on_premises(work, run) as (stack, site):
        environment = site.rig.environment
        feeds = two_feeds(site, run)
        for feed in feeds:
            site.declare(feed)
        receiver, numbers = ReceiverProcess(environment, work), Numbers(ROWS)
        first = objects // 2

        def lose_receiver(_done: int) -> None:
            receiver.kill()
            console.print("killed the receiver; uploads go on, and notifications are repeated")
            upload(feeds, numbers, objects - first)
            receiver.start()
            console.print("started the receiver again")

        console.rule("the receiver, a Spark cluster of two machines, the query")
        try:
            receiver.start()
            with (
                notifying(stack, to_receiver(receiver.url), work / "uploads.log"),
                SparkCluster(work / "cluster") as cluster,
                # Listing is for what no notification announced; here all are to be announced.
                submitted_query(
                    environment, cluster, work, "--listing-interval-seconds", "3600"
                ) as query,
            ):
                upload(feeds, numbers, first)
                summary = Story(environment, cluster, query, feeds).run_story(
                    objects, lose_receiver
                )
            depths = site.depths()
        finally:
            receiver.kill()
        summary |= {
            "receivers_killed": 1,
            "notifications_left": depths["arrivals.queue"],
            "dead_letters": depths["arrivals.dlq"],
        }
        console.rule("reading the topics back with read_committed")
        found = [compare(site.rig.kafka, one.name, one.expected, []) for one in feeds]
    return Outcome(summary, found)


DEMO = Demo("demo-onprem", __doc__, OBJECTS, 4, _tell, show, dead_letters="dead_letters")

if __name__ == "__main__":
    sys.exit(ended(DEMO.target, DEMO.main))
