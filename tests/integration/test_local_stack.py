"""The local stack itself: what everything else under integration stands on."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.integration.conftest import MakeTopic, dynamodb_client, s3_client
from tests.support.waiting import running_seconds
from typer.testing import CliRunner

from extentflow_local.cli import app
from extentflow_local.stack.errors import LocalStackError, PortTaken, ServiceFailed
from extentflow_local.stack.servers import Service
from extentflow_local.stack.servers.dynamodb import DynamoDbLocal
from extentflow_local.stack.servers.kafka import Kafka
from extentflow_local.stack.servers.s3 import SeaweedS3
from extentflow_local.stack.stack import Stack
from extentflow_local.stack.toolbox import spark_kafka_jars

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client


@pytest.fixture
def own_root(tmp_path: Path) -> Path:
    return tmp_path / "own"


def produce(bootstrap_servers: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def values_in(bootstrap_servers: str, topic: str, count: int) -> list[bytes | None]:
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "reader"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, timeout=60)]
    finally:
        consumer.close()


def make_table(client: "DynamoDBClient", name: str) -> None:
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


def test_kafka_takes_and_returns_records_as_soon_as_it_is_up(
    bootstrap_servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()

    produce(bootstrap_servers, topic, b"one")

    assert values_in(bootstrap_servers, topic, 1) == [b"one"]


def test_kafka_commits_transactions(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)

    producer.begin_transaction()
    producer.produce(topic, b"aborted", partition=0)
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"committed", partition=0)
    producer.commit_transaction(30)

    assert values_in(bootstrap_servers, topic, 1) == [b"committed"]


def test_s3_answers_ranges_and_conditions(s3: "S3Client", bucket: str, prefix: str) -> None:
    key = f"{prefix}a b+c%20ü.txt"
    etag = s3.put_object(Bucket=bucket, Key=key, Body=b"0123456789")["ETag"]

    middle = s3.get_object(Bucket=bucket, Key=key, Range="bytes=3-5", IfMatch=etag)
    last = s3.get_object(Bucket=bucket, Key=key, Range="bytes=-2")

    assert middle["ContentRange"] == "bytes 3-5/10"
    assert (middle["Body"].read(), last["Body"].read()) == (b"345", b"89")
    with pytest.raises(s3.exceptions.ClientError, match="PreconditionFailed"):
        s3.get_object(Bucket=bucket, Key=key, IfMatch='"another"')
    with pytest.raises(s3.exceptions.ClientError, match="InvalidRange"):
        s3.get_object(Bucket=bucket, Key=key, Range="bytes=10-")


def test_s3_keeps_versions(s3: "S3Client", versioned_bucket: str, prefix: str) -> None:
    key = f"{prefix}versioned"

    first = s3.put_object(Bucket=versioned_bucket, Key=key, Body=b"first")["VersionId"]
    second = s3.put_object(Bucket=versioned_bucket, Key=key, Body=b"second")["VersionId"]

    assert first != second
    old = s3.get_object(Bucket=versioned_bucket, Key=key, VersionId=first)
    assert old["Body"].read() == b"first"


def test_dynamodb_keeps_conditions(dynamodb: "DynamoDBClient", table_name: str) -> None:
    make_table(dynamodb, table_name)
    item = {"pk": {"S": "once"}}
    only_new = "attribute_not_exists(pk)"
    dynamodb.put_item(TableName=table_name, Item=item, ConditionExpression=only_new)

    with pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException):
        dynamodb.put_item(TableName=table_name, Item=item, ConditionExpression=only_new)


@pytest.mark.parametrize("ending", [pytest.param("restart", marks=pytest.mark.soak), "kill"])
@pytest.mark.long
def test_data_survive(
    stack: Stack,
    make_topic: MakeTopic,
    bucket: str,
    unique: str,
    ending: str,
) -> None:
    topic, table, key = make_topic(ending), f"{ending}-{unique}", f"{unique}/{ending}"
    s3, dynamodb = s3_client(stack.endpoint("s3")), dynamodb_client(stack.endpoint("dynamodb"))
    before = stack.endpoints()
    produce(stack.endpoint("kafka"), topic, b"kept")
    s3.put_object(Bucket=bucket, Key=key, Body=b"kept")
    make_table(dynamodb, table)
    dynamodb.put_item(TableName=table, Item={"pk": {"S": "kept"}})

    if ending == "kill":
        for name in stack.endpoints():
            stack.kill(name)
    else:
        stack.down()
    assert stack.endpoints() == {}
    stack.up()

    assert stack.endpoints() == before
    assert values_in(stack.endpoint("kafka"), topic, 1) == [b"kept"]
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == b"kept"
    assert "Item" in dynamodb.get_item(TableName=table, Key={"pk": {"S": "kept"}})
    for client in (s3, dynamodb):
        client.close()


def test_the_commands_agree_with_the_stack(stack: Stack) -> None:
    directory = ["--dir", str(stack.state()[0].directory.parent.parent)]
    runner = CliRunner()

    up = runner.invoke(app, ["up", "kafka", *directory])
    shown = runner.invoke(app, ["stack", *directory])
    exports = runner.invoke(app, ["stack", "--env", *directory])
    document = runner.invoke(app, ["stack", "--json", *directory])

    assert "kafka already running at" in up.stderr
    assert shown.stdout.count("running") == 3
    assert f"export EXTENTFLOW_BOOTSTRAP_SERVERS={stack.endpoint('kafka')}" in exports.stdout
    assert all(line.startswith("export ") for line in exports.stdout.splitlines())
    assert json.loads(document.stdout) == stack.summary()


@pytest.mark.long
def test_a_second_broker_shares_nothing_with_the_first(
    bootstrap_servers: str, second_broker: Stack, make_topic: MakeTopic
) -> None:
    other = second_broker.endpoint("kafka")
    topic = make_topic()
    make_topic(on=other)

    produce(bootstrap_servers, topic, b"first broker")
    produce(other, topic, b"second broker")

    assert values_in(bootstrap_servers, topic, 1) == [b"first broker"]
    assert values_in(other, topic, 1) == [b"second broker"]


@pytest.mark.long
def test_a_paused_service_answers_nothing_until_it_is_resumed(second_broker: Stack) -> None:
    ports = {"kafka": int(second_broker.endpoint("kafka").rpartition(":")[2])}
    service = Kafka()

    second_broker.pause("kafka")
    paused = service.answers(ports)
    second_broker.resume("kafka")

    assert not paused
    second_broker.up(["kafka"])
    assert service.answers(ports)


@pytest.mark.variant
def test_kafka_keeps_its_data_when_it_moves_to_another_port(own_root: Path, unique: str) -> None:
    broker = [Kafka(heap="384m", quick=True, properties={"auto.create.topics.enable": "true"})]
    with Stack(own_root, services=broker, free_ports=True) as first:
        first.up()
        old = first.endpoint("kafka")
        produce(old, unique, b"kept")

    with Stack(own_root, services=broker, free_ports=True) as second:
        second.up()

        assert second.endpoint("kafka") != old
        assert values_in(second.endpoint("kafka"), unique, 1) == [b"kept"]


def test_everything_listens_on_the_loopback_interface_only(stack: Stack) -> None:
    listening = {
        connection.laddr.ip.removeprefix("::ffff:")
        for state in stack.state()
        for connection in psutil.Process(state.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }

    assert listening == {"127.0.0.1"}


def test_up_on_a_running_stack_starts_nothing(stack: Stack) -> None:
    before = [state.pid for state in stack.state()]

    outcomes = stack.up()

    assert set(outcomes.values()) == {"already running"}
    assert [state.pid for state in stack.state()] == before


def test_another_process_finds_the_stack_by_its_directory(stack: Stack) -> None:
    kafka = stack.state()[0]
    root = kafka.directory.parent.parent

    other = Stack(root)
    summary = json.loads((root / "var" / "stack.json").read_text())

    assert other.endpoints() == stack.endpoints()
    assert summary["services"]["kafka"]["pid"] == kafka.pid
    assert summary["environment"]["EXTENTFLOW_BOOTSTRAP_SERVERS"] == stack.endpoint("kafka")


@pytest.fixture
def small(own_root: Path) -> Iterator[Stack]:
    with Stack(own_root, services=[SeaweedS3(), DynamoDbLocal()], free_ports=True) as running:
        running.up()
        yield running


@pytest.mark.long
def test_down_leaves_no_process_no_port_and_no_file_outside(small: Stack, own_root: Path) -> None:
    states = small.state()
    leftovers = SeaweedS3().leftovers(states[0].ports)
    assert any(path.exists() for path in leftovers)

    stopped = small.down()

    assert stopped == ["s3", "dynamodb"]
    assert not any(psutil.pid_exists(state.pid) for state in states if state.pid)
    assert not any(path.exists() for path in leftovers)
    for port in (port for state in states for port in state.ports.values()):
        with socket.create_server(("127.0.0.1", port)):
            pass
    assert json.loads((own_root / "var" / "stack.json").read_text())["services"] == {}
    assert small.down() == []


def test_a_clash_names_port_service_and_remedy_and_nothing_is_started(own_root: Path) -> None:
    services: list[Service] = [SeaweedS3(), DynamoDbLocal()]
    with socket.create_server(("127.0.0.1", 0)) as occupant:
        port = occupant.getsockname()[1]
        with Stack(own_root, {"dynamodb": port}, services=services, free_ports=True) as stack:
            with pytest.raises(PortTaken) as caught:
                stack.up()

            running = list(stack.endpoints())

    assert str(caught.value).count("\n") == 0
    assert f"port {port} (dynamodb) is taken" in str(caught.value)
    assert "--dynamodb-port" in str(caught.value)
    assert running == []


def test_a_service_that_dies_is_explained_with_the_end_of_its_log(own_root: Path) -> None:
    broken = [Kafka(properties={"log.retention.bytes": "plenty"})]
    with (
        Stack(own_root, services=broken, free_ports=True) as stack,
        pytest.raises(LocalStackError, match="plenty"),
    ):
        stack.up()


def test_a_stopped_service_is_reported_with_the_command_that_starts_it(
    own_root: Path,
) -> None:
    stack = Stack(own_root)

    with pytest.raises(ServiceFailed, match="extentflow up kafka"):
        stack.endpoint("kafka")


@pytest.mark.long
def test_the_whole_stack_stops_in_seconds(small: Stack) -> None:
    started = running_seconds()

    small.down()

    assert running_seconds() - started < 15


@pytest.mark.long
def test_the_baseline_of_the_benchmark_is_at_hand() -> None:
    names = [jar.name for jar in spark_kafka_jars()]

    assert "spark-sql-kafka-0-10_2.13-4.0.0.jar" in names
    assert "kafka-clients-3.9.0.jar" in names
