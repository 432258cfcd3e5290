"""The SQS server of the local stack, as functions and their event source rely on it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import psutil
import pytest

from extentflow_local.stack.servers.sqs import ElasticMq
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


def client_of(stack: Stack) -> "SQSClient":
    return boto3.client("sqs", endpoint_url=stack.endpoint("sqs"))


def test_the_server_listens_on_the_loopback_interface_only(queues: Stack) -> None:
    (state,) = queues.state()

    listening = {
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in psutil.Process(state.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }

    assert listening == {"127.0.0.1"}
    assert queues.environment()["AWS_ENDPOINT_URL_SQS"] == queues.endpoint("sqs")


def test_a_queue_is_named_as_aws_would_name_it(
    queues: Stack, sqs: "SQSClient", unique: str
) -> None:
    url = sqs.create_queue(QueueName=unique)["QueueUrl"]

    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]

    assert url == f"{queues.endpoint('sqs')}/000000000000/{unique}"
    assert arn == {"QueueArn": f"arn:aws:sqs:us-east-1:000000000000:{unique}"}


@pytest.mark.parametrize("ending", [pytest.param("restart", marks=pytest.mark.variant), "kill"])
@pytest.mark.long
def test_messages_survive_and_what_was_deleted_stays_deleted(tmp_path: Path, ending: str) -> None:
    with Stack(tmp_path, services=[ElasticMq()], free_ports=True) as stack:
        stack.up()
        client = client_of(stack)
        url = client.create_queue(QueueName="kept")["QueueUrl"]
        client.send_message(QueueUrl=url, MessageBody="deleted")
        (first,) = client.receive_message(QueueUrl=url)["Messages"]
        client.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
        client.send_message(QueueUrl=url, MessageBody="waits")

        if ending == "kill":
            stack.kill("sqs")
        else:
            stack.down()
        stack.up()

        found = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
        assert [message["Body"] for message in found] == ["waits"]
        client.close()


def test_a_message_received_too_often_goes_to_the_dead_letter_queue(
    sqs: "SQSClient", unique: str
) -> None:
    dead = sqs.create_queue(QueueName=f"{unique}-dead")["QueueUrl"]
    arn = f"arn:aws:sqs:us-east-1:000000000000:{unique}-dead"
    redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    url = sqs.create_queue(
        QueueName=unique, Attributes={"VisibilityTimeout": "0", "RedrivePolicy": redrive}
    )["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="poison")

    first = sqs.receive_message(QueueUrl=url)
    second = sqs.receive_message(QueueUrl=url)

    assert len(first["Messages"]) == 1
    assert not second.get("Messages")
    moved = sqs.receive_message(QueueUrl=dead, WaitTimeSeconds=5)["Messages"]
    assert [message["Body"] for message in moved] == ["poison"]
