"""Secrets Manager and EventBridge of the local stack, as functions and commands rely on them."""

from typing import TYPE_CHECKING

import boto3
import psutil
import pytest
from botocore.exceptions import ClientError

from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef


def event_on(bus: str) -> "PutEventsRequestEntryTypeDef":
    return {"Source": "a", "DetailType": "b", "Detail": "{}", "EventBusName": bus}


@pytest.fixture
def surroundings(aws: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a process that was given the stack's environment."""
    for name, value in aws.environment().items():
        monkeypatch.setenv(name, value)


def test_the_server_listens_on_the_loopback_interface_only(aws: Stack) -> None:
    (state,) = aws.state()

    listening = {
        connection.laddr.ip
        for connection in psutil.Process(state.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }

    assert listening == {"127.0.0.1"}


@pytest.mark.usefixtures("surroundings")
def test_secrets_are_kept_changed_and_found_by_name(unique: str) -> None:
    client = boto3.client("secretsmanager")

    client.create_secret(Name=unique, SecretString="first")
    client.put_secret_value(SecretId=unique, SecretString="second")

    assert client.get_secret_value(SecretId=unique)["SecretString"] == "second"
    client.close()


@pytest.mark.usefixtures("surroundings")
def test_the_default_bus_takes_events_and_another_is_not_there(unique: str) -> None:
    client = boto3.client("events")

    taken = client.put_events(Entries=[event_on("default")])

    assert taken["FailedEntryCount"] == 0
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        client.put_events(Entries=[event_on(unique)])
    client.close()
