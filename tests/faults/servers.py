"""The servers of a campaign, up over all rounds, and the proxies between them and the product.

broker <── link (TCP) ──┐
S3     <── store        ├── commands, workers, functions, Spark       harness ──> servers directly
ledger <── table        │
queues <── path.proxy ──┘

Functions and queues run where the ledger is DynamoDB Local, which `table` is before; `ledger` is
another one.
"""

import os
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import uuid4

import boto3
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from demo.eventpath import synthesise
from tests.faults.ledgers import FAST, LedgerName, LedgerServer, SqliteFile, linked_server
from tests.integration.faultproxy import FaultProxy
from tests.support.delivery import Delivery
from tests.support.eventpath import SHORT, EventPath, Ground
from tests.support.slow_link import SlowLink, slow_link

from extentflow.config.worker import WorkerSettings
from extentflow.wiring import Runtime
from extentflow_local.stack.ports import HOST, free_run
from extentflow_local.stack.servers import ACCESS_KEY, REGION, SECRET_KEY, Service
from extentflow_local.stack.servers.dynamodb import DynamoDbLocal
from extentflow_local.stack.servers.kafka import Kafka, new_id
from extentflow_local.stack.servers.postgres import Postgres
from extentflow_local.stack.servers.s3 import SeaweedS3
from extentflow_local.stack.servers.sqs import ElasticMq
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONNECTIONS = 512
SETTINGS = {
    "exactly.once.slots": "48",
    "transaction.max.bytes": "16KiB",
    "retry.timeout.seconds": "20",
    # A worker that is killed again and again costs attempts, and so do frozen ones.
    "extent.attempts.max": "20",
}
BROKER = {
    # A killed broker may come back only when its old session has ended.
    "broker.session.timeout.ms": "4000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
# Denies nothing without an ACL. Controllers of several nodes would need users of their own: they
# elect a leader before any of them has read the ACLs.
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True)
class Broker:
    """One broker, and the link through which the product reaches it."""

    name: str
    node: int
    port: int
    link: SlowLink

    @property
    def linked(self) -> str:
        """Its address for the product."""
        return f"{HOST}:{self.link.port}"


@dataclass(frozen=True)
class Servers:
    """Everything that runs in a campaign; `direct` reads ledger and brokers past the proxies."""

    folder: Path
    stack: Stack
    brokers: tuple[Broker, ...]
    store: FaultProxy
    table: FaultProxy | None
    path: EventPath | None
    ledger: LedgerServer | None
    settings: WorkerSettings
    bucket: str
    s3: "S3Client"

    @property
    def functions(self) -> EventPath:
        """The event path, where there is one."""
        assert self.path is not None, "no functions run with this ledger"
        return self.path

    def delivery(self, name: str) -> Delivery:
        """Return a delivery with a unique name in the campaign's ledger."""
        same = {one.name: getattr(self.settings, one.name) for one in fields(self.settings)}
        return Delivery(self.stack, self.s3, self.bucket, name, same)

    @property
    def bootstrap(self) -> str:
        """The brokers past the links."""
        return ",".join(f"{HOST}:{one.port}" for one in self.brokers)

    @cached_property
    def direct(self) -> Runtime:
        """The product's clients past the proxies, for the harness."""
        settings = replace(self.settings, bootstrap_servers=self.bootstrap)
        if self.ledger is not None:
            return Runtime(replace(settings, ledger_url=self.ledger.direct))
        return Runtime(replace(settings, ledger_endpoint=self.stack.endpoint("dynamodb")))

    @cached_property
    def admin(self) -> AdminClient:
        """An admin client past the links."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def versioned_bucket(self) -> str:
        """Return a new bucket with versions."""
        name = f"versions-{uuid4().hex[:8]}"
        self.s3.create_bucket(Bucket=name)
        self.s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        return name

    def make_topic(
        self, name: str, config: Mapping[str, str] = MappingProxyType({}), partitions: int = 4
    ) -> None:
        """Create a topic with its own configuration; it may exist."""
        created = self.admin.create_topics([NewTopic(name, partitions, config=dict(config))])
        try:
            created[name].result(timeout=60)
        except KafkaException as exc:
            if exc.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise

    def delete_topics(self, names: list[str]) -> None:
        """Delete topics."""
        for future in self.admin.delete_topics(names, operation_timeout=60).values():
            future.result(timeout=60)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition before an offset, as retention does."""
        place = TopicPartition(topic, partition, before)
        self.admin.delete_records([place])[place].result(timeout=30)

    def leader_of(self, topic: str, partition: int) -> Broker | None:
        """Return the broker that leads a partition; None if there is none now."""
        found = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
        node = found[partition].leader if partition in found else -1
        return next((one for one in self.brokers if one.node == node), None)


@contextmanager
def open_servers(
    folder: Path, *, brokers: int = 1, ledger: LedgerName = "dynamodb"
) -> Iterator[Servers]:
    """Start the servers, and the functions where they run, below `folder`; stop all at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(CREDENTIALS)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        os.environ.pop(name, None)
    dice = random.SystemRandom()
    with ExitStack() as opened:
        nodes = tuple(
            Broker(
                f"kafka-{node}" if node > 1 else "kafka",
                node,
                free_run(3, dice),
                opened.enter_context(slow_link(FAST)),
            )
            for node in range(1, brokers + 1)
        )
        for one in nodes:
            one.link.target = one.port + 2
        stack = Stack(
            folder / "stack",
            ports={one.name: one.port for one in nodes},
            services=[*_kafka(nodes), SeaweedS3(), *SERVICES[ledger]],
            free_ports=True,
        )
        opened.enter_context(stack)
        stack.up()
        store = opened.enter_context(FaultProxy(stack.endpoint("s3"), connections=CONNECTIONS))
        s3 = boto3.client("s3", endpoint_url=stack.endpoint("s3"))
        opened.callback(s3.close)
        linked = ",".join(one.linked for one in nodes)
        if ledger == "dynamodb":
            table = opened.enter_context(
                FaultProxy(stack.endpoint("dynamodb"), connections=CONNECTIONS)
            )
            path = opened.enter_context(_functions(folder, stack, linked, table))
            yield Servers(
                folder, stack, nodes, store, table, path, None, path.settings, path.bucket, s3
            )
            return
        server = opened.enter_context(_ledger(ledger, folder, stack))
        settings = WorkerSettings.from_map(
            {
                **SHORT,
                **SETTINGS,
                "bootstrap.servers": linked,
                "ledger.url": server.address.url,
            }
        )
        bucket = f"campaign-{uuid4().hex[:8]}"
        s3.create_bucket(Bucket=bucket)
        servers = Servers(folder, stack, nodes, store, None, None, server, settings, bucket, s3)
        servers.direct.ledger.admin.create()
        servers.direct.broker.ensure_progress_topic()
        server.prepare()
        yield servers


SERVICES: Mapping[LedgerName, Sequence[Service]] = {
    "dynamodb": (DynamoDbLocal(), ElasticMq(durable=False)),
    "sqlite": (),
    "postgresql": (Postgres(),),
}


@contextmanager
def _functions(
    folder: Path, stack: Stack, bootstrap: str, table: FaultProxy
) -> Iterator[EventPath]:
    os.environ["AWS_ENDPOINT_URL_SQS"] = stack.endpoint("sqs")
    ground = Ground(stack, stack, _template(folder), folder / "functions")
    environment = {
        "EXTENTFLOW_BOOTSTRAP_SERVERS": bootstrap,
        "EXTENTFLOW_LEDGER_ENDPOINT": table.endpoint,
    }
    with ground.open(settings=SETTINGS, environment=environment) as path:
        yield path


@contextmanager
def _ledger(name: LedgerName, folder: Path, stack: Stack) -> Iterator[LedgerServer]:
    if name == "sqlite":
        yield SqliteFile(folder / "ledger.db")
        return
    with linked_server(stack) as server:
        yield server
    stack.down(["postgres"])
    home = Postgres().home(folder.resolve() / "stack" / "var" / "postgres")
    shutil.rmtree(home, ignore_errors=True)


def _kafka(nodes: tuple[Broker, ...]) -> list[Kafka]:
    """Return the brokers: one, or a cluster in which two of three must have every record."""
    shared = {**BROKER, **(REPLICATED if len(nodes) > 1 else AUTHORIZED)}
    shared["controller.quorum.bootstrap.servers"] = ",".join(
        f"{HOST}:{one.port + 1}" for one in nodes
    )
    cluster = new_id()
    controllers = ",".join(f"{one.node}@{HOST}:{one.port + 1}:{new_id()}" for one in nodes)
    return [
        Kafka(
            properties={**shared, **_listeners(one), "node.id": str(one.node)},
            cluster=cluster,
            controllers=controllers,
            heap="512m" if len(nodes) == 1 else "384m",
            quick=True,
            name=one.name,
        )
        for one in nodes
    ]


def _listeners(broker: Broker) -> dict[str, str]:
    """Let clients of the third port be sent through the link."""
    first = broker.port
    usual = f"PLAINTEXT://{HOST}:{first},CONTROLLER://{HOST}:{first + 1}"
    return {
        "listeners": f"{usual},LINKED://{HOST}:{first + 2}",
        "advertised.listeners": f"{usual},LINKED://{broker.linked}",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LINKED:PLAINTEXT"
        ),
    }


def _template(folder: Path) -> Path:
    # Without the assets, which nothing here reads.
    before = os.environ.get("CDK_CONTEXT_JSON")
    os.environ["CDK_CONTEXT_JSON"] = '{"aws:cdk:disable-asset-staging": true}'
    try:
        return synthesise(folder / "cdk.out")
    finally:
        if before is None:
            del os.environ["CDK_CONTEXT_JSON"]
        else:
            os.environ["CDK_CONTEXT_JSON"] = before
