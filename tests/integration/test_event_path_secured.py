"""The event path where brokers want TLS, and a password that Secrets Manager keeps."""

from collections.abc import Iterator
from dataclasses import replace

import boto3
import pytest
from confluent_kafka.admin._resource import ResourceType
from infra.config import Auth, Cluster
from infra.stages import STAGES
from moto.server import ThreadedMotoServer
from tests.support.delivery import joined, numbered_lines
from tests.support.eventpath import Ending, EventPath, Feed, Ground
from tests.support.secured import PASSWORD, Secured, secured_stack

from extentflow.config.worker import variable
from extentflow.model import JobState
from extentflow_local.stack.servers.dynamodb import DynamoDbLocal
from extentflow_local.stack.servers.s3 import SeaweedS3

pytestmark = pytest.mark.secured

USER = "functions"
LINES = numbered_lines("line-", 5_000)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker whose user may do what a deployment's ACLs allow, and nothing else."""
    with secured_stack(tmp_path_factory.mktemp("secured"), SeaweedS3(), DynamoDbLocal()) as opened:
        opened.user(USER)
        for kind in (ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
            opened.allow(USER, kind, f"{STAGES[0].app_id}.")
        opened.allow(USER, ResourceType.TOPIC, "extentflow.")
        opened.allow(USER, ResourceType.TOPIC, "records-")
        yield opened


@pytest.fixture(scope="module")
def secret_arn() -> Iterator[str]:
    """Store the credentials in a secret in MSK's format, at boto3's endpoint."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", f"http://{host}:{port}")
        client = boto3.client("secretsmanager")
        held = f'{{"username": "{USER}", "password": "{PASSWORD}"}}'
        yield client.create_secret(Name="AmazonMSK_functions", SecretString=held)["ARN"]
        client.close()
    server.stop()


@pytest.fixture(scope="module")
def path(ground: Ground, secured: Secured, secret_arn: str) -> Iterator[EventPath]:
    """Run the functions with the broker settings of a stage with auth=scram."""
    cluster = Cluster(bootstrap_servers=secured.servers, auth=Auth.SCRAM, secret_arn=secret_arn)
    kafka = {
        **cluster.client_settings(),
        "kafka.ssl.ca.location": str(secured.certificate),
    }
    environment = {variable(key): value for key, value in kafka.items()}
    environment["AWS_ENDPOINT_URL_SECRETS_MANAGER"] = boto3.client(
        "secretsmanager"
    ).meta.endpoint_url
    with replace(ground, stack=secured.stack).open(environment=environment) as path:
        yield path


@pytest.fixture
def feed(path: EventPath) -> Feed:
    """A connector whose records are read back through the administrator's door."""
    return path.feed_by_admin()


def test_an_object_becomes_records_behind_tls_and_a_password(path: EventPath, feed: Feed) -> None:
    given = path.deployment.functions["worker"].environment
    assert given["EXTENTFLOW_KAFKA_SECURITY_PROTOCOL"] == "SASL_SSL"
    assert given["EXTENTFLOW_KAFKA_SASL_MECHANISM"] == "SCRAM-SHA-512"

    uploaded = feed.upload("lines.txt", joined(LINES))

    feed.await_state(uploaded, JobState.DONE)
    assert feed.ending(LINES) == Ending(records=len(LINES))


def test_the_password_is_written_down_nowhere(path: EventPath, feed: Feed) -> None:
    feed.upload("lines.txt", joined(LINES))
    assert feed.ending(LINES) == Ending(records=len(LINES))
    table = boto3.client("dynamodb", endpoint_url=path.settings.ledger_endpoint)

    items = table.scan(TableName=str(path.settings.ledger_table))["Items"]
    logs = [file.read_text() for file in path.ground.folder.rglob("*.log")]
    table.close()

    assert items
    assert any(logs)
    assert not [text for text in (*map(str, items), *logs) if PASSWORD in text]
