"""Real servers for integration tests: one stack for the whole session, unique names per test.

stack               the running servers; `stack.kill("kafka")`, `.up(["kafka"])`, `.restart("s3")`
second_broker       a second, independent Kafka; starts when the first test asks for it
queues, sqs         an SQS server, which starts when the first test asks for it; a client
registry            a schema registry, which starts when the first test asks for it
postgres            a PostgreSQL server, likewise
aws                 Secrets Manager and EventBridge, which start when the first test asks for them
bootstrap_servers   of the stack's broker          make_topic   creates a topic, returns its name
s3, bucket, versioned_bucket, prefix               a client, two buckets, a test's own prefix
dynamodb, table_name                               a client, a unique name
s3_proxy, dynamodb_proxy                           fault proxies before the two
delivery            objects, connectors and topics of one test; modules may have their own
lake                a target of `extentflow lake`, of the kind that is the parameter
deliver             prepares a delivery that takes its time
spark_cluster       a standalone Spark cluster of this test, two workers with one core each
ground              what event paths stand on, with the synthesised template; see eventpath
"""

import fcntl
import os
import shutil
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.config import Config
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from demo.eventpath import synthesise
from tests.integration.faultproxy import Delay, FaultProxy
from tests.support import quick_java
from tests.support.delivery import SLOW_LINES, Delivery, joined
from tests.support.eventpath import Ground

from extentflow_local.stack.servers import ACCESS_KEY, REGION, SECRET_KEY, Service
from extentflow_local.stack.servers.aws import MotoServer
from extentflow_local.stack.servers.dynamodb import DynamoDbLocal
from extentflow_local.stack.servers.kafka import Kafka
from extentflow_local.stack.servers.postgres import Postgres
from extentflow_local.stack.servers.registry import Apicurio
from extentflow_local.stack.servers.s3 import SeaweedS3
from extentflow_local.stack.servers.sqs import ElasticMq
from extentflow_local.stack.spark_cluster import SparkCluster
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient
    from pyspark.sql import SparkSession
    from tests.support.lakes import Lake

MakeTopic = Callable[..., str]
Deliver = Callable[..., Delivery]


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """A shell lets programs in its background ignore Ctrl-C, and what we start inherited that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _quick_java() -> None:
    """Start JVMs of Spark with the archive of classes, once `make rest` or `soak` wrote it."""
    quick_java.use()


@pytest.fixture(scope="session", autouse=True)
def _only_local_credentials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    nowhere = tmp_path_factory.mktemp("aws") / "absent"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        environment.setenv("AWS_REGION", REGION)
        environment.setenv("AWS_DEFAULT_REGION", REGION)
        environment.setenv("AWS_DEFAULT_REGION", REGION)
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        environment.setenv("AWS_CONFIG_FILE", str(nowhere))
        environment.setenv("AWS_SHARED_CREDENTIALS_FILE", str(nowhere))
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
            environment.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    broker = Kafka(
        quick=True,
        properties={
            # A killed broker may come back only when its old session has ended.
            "broker.session.timeout.ms": "4000",
            # How often transactions are looked at that took longer than they may.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        },
    )
    services: list[Service] = [broker, SeaweedS3(), DynamoDbLocal()]
    with Stack(tmp_path_factory.mktemp("stack"), services=services, free_ports=True) as running:
        running.up()
        yield running


@pytest.fixture(scope="session")
def second_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    root = tmp_path_factory.mktemp("second")
    # A change of `message.max.bytes` restarts the log cleaner, whose 128 MiB are then there twice.
    with Stack(root, services=[Kafka(heap="768m", quick=True)], free_ports=True) as running:
        running.up()
        yield running


@pytest.fixture(scope="session")
def queues(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    root = tmp_path_factory.mktemp("queues")
    with Stack(root, services=[ElasticMq()], free_ports=True) as running:
        running.up()
        yield running


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    root = tmp_path_factory.mktemp("aws-services")
    with Stack(root, services=[MotoServer()], free_ports=True) as running:
        running.up()
        yield running


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    root = tmp_path_factory.mktemp("registry")
    with Stack(root, services=[Apicurio()], free_ports=True) as running:
        running.up()
        yield running


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    root = tmp_path_factory.mktemp("postgres")
    service = Postgres()
    with Stack(root, services=[service], free_ports=True) as running:
        running.up()
        yield running
    shutil.rmtree(service.home(root.resolve() / "var" / "postgres"), ignore_errors=True)


@pytest.fixture
def unique() -> str:
    return uuid.uuid4().hex[:12]


@pytest.fixture
def delivery(stack: Stack, s3: "S3Client", bucket: str, unique: str) -> Delivery:
    """Objects, connectors and topics of one test."""
    return Delivery(stack, s3, bucket, unique)


@pytest.fixture
def lake(
    request: pytest.FixtureRequest, delivery: Delivery, spark: "SparkSession", tmp_path: Path
) -> "Lake":
    """A target of the kind that is the parameter; the module has the session."""
    from tests.support.lakes import Lake  # noqa: PLC0415 - PySpark, which few modules need

    return Lake(delivery, spark, request.param, tmp_path)


@pytest.fixture
def bootstrap_servers(stack: Stack) -> str:
    return stack.endpoint("kafka")


@pytest.fixture
def make_topic(bootstrap_servers: str, unique: str) -> MakeTopic:
    """Create a topic in the stack's broker, or in another one; return its name."""

    def make(
        label: str = "topic",
        *,
        partitions: int = 4,
        config: dict[str, str] | None = None,
        on: str = bootstrap_servers,
    ) -> str:
        name = f"{label}-{unique}"
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
        admin = AdminClient({"bootstrap.servers": on})
        for created in admin.create_topics([topic]).values():
            created.result(timeout=60)
        return name

    return make


def s3_client(endpoint: str) -> "S3Client":
    """A client that does not retry, so that tests see every fault."""
    config = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
    return boto3.client("s3", endpoint_url=endpoint, config=config)


def dynamodb_client(endpoint: str) -> "DynamoDBClient":
    """A client that does not retry, so that tests see every fault."""
    config = Config(retries={"total_max_attempts": 1})
    return boto3.client("dynamodb", endpoint_url=endpoint, config=config)


@pytest.fixture(scope="session")
def s3(stack: Stack) -> Iterator["S3Client"]:
    client = s3_client(stack.endpoint("s3"))
    yield client
    client.close()


@pytest.fixture(scope="session")
def dynamodb(stack: Stack) -> Iterator["DynamoDBClient"]:
    client = dynamodb_client(stack.endpoint("dynamodb"))
    yield client
    client.close()


@pytest.fixture(scope="session")
def sqs(queues: Stack) -> Iterator["SQSClient"]:
    client = boto3.client("sqs", endpoint_url=queues.endpoint("sqs"))
    yield client
    client.close()


@pytest.fixture(scope="session")
def bucket(s3: "S3Client") -> str:
    name = f"plain-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture(scope="session")
def versioned_bucket(s3: "S3Client") -> str:
    name = f"versioned-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=name)
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    return name


@pytest.fixture
def prefix(unique: str) -> str:
    return f"{unique}/"


@pytest.fixture
def table_name(unique: str) -> str:
    return f"ledger-{unique}"


@pytest.fixture
def s3_proxy(stack: Stack) -> Iterator[FaultProxy]:
    with FaultProxy(stack.endpoint("s3")) as proxy:
        yield proxy


@pytest.fixture
def dynamodb_proxy(stack: Stack) -> Iterator[FaultProxy]:
    with FaultProxy(stack.endpoint("dynamodb")) as proxy:
        yield proxy


@pytest.fixture
def deliver(
    stack: Stack, s3: "S3Client", bucket: str, unique: str, s3_proxy: FaultProxy
) -> Deliver:
    """Prepare a slow delivery of SLOW_LINES under changed settings."""

    def prepare(**changes: float) -> Delivery:
        delivery = Delivery(stack, s3, bucket, unique, changes)
        delivery.put("lines.txt", joined(SLOW_LINES))
        delivery.connector({"aws.s3.endpoint": s3_proxy.endpoint, "extent.bytes": "128KiB"})
        s3_proxy.inject(Delay(0.5), when=lambda request: request.method == "GET", times=None)
        return delivery

    return prepare


@pytest.fixture(scope="session")
def ground(stack: Stack, queues: Stack, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    folder = tmp_path_factory.mktemp("ground")
    # Below the folder of the whole run, when several processes share its tests.
    shared = folder.parent.parent if "PYTEST_XDIST_WORKER" in os.environ else folder.parent
    return Ground(stack, queues, synthesised_once(shared / "cdk"), folder)


def synthesised_once(folder: Path) -> Path:
    """Synthesise the template in the first process that asks; the others wait for it."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for template in (folder / "done").glob("*.template.json"):
            return template
        with pytest.MonkeyPatch.context() as environment:
            # The assets, 180 MB of layers, are not read by any test here.
            environment.setenv("CDK_CONTEXT_JSON", '{"aws:cdk:disable-asset-staging": true}')
            made = synthesise(folder / "cdk.out")
        (folder / "cdk.out").rename(folder / "done")
        return folder / "done" / made.name


@pytest.fixture
def spark_cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path / "spark") as running:
        yield running


# Files that take minutes, in the order in which processes take them: the last ones decide when a
# run ends. All others follow in random order.
LONGEST_FIRST = (
    "test_campaign.py",
    "test_lake_commands.py",
    "test_on_premises.py",
    "test_event_path_outages.py",
    "test_spark_stream.py",
    "test_emr_runs.py",
    "test_lake_cluster.py",
    "test_spark_stream_cluster.py",
    "test_lake.py",
    "test_lake_values.py",
    "test_broker_versions.py",
    "test_columnar.py",
    "test_semantics.py",
    "test_chaos.py",
    "test_spark_submit.py",
    "test_permissions.py",
    "test_registry_records.py",
    "test_command_line.py",
    "test_export.py",
    "test_worker_death.py",
    "test_clean_stop.py",
    "test_sink_kafka.py",
    "test_topic_commands.py",
    "test_columnar_objects.py",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first; `--no-loadscope-reorder` keeps them there."""
    rank = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))
