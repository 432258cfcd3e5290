"""The receiver function: what it imports, and what it opens once per execution environment."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import boto3.session
import pytest
from tests.unit.discovery.posting import SEGMENT, event

from extentflow.errors import Misconfigured

FUNCTIONS = Path(__file__).parents[3] / "functions"
IMPORTS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import handler
json.dump(sorted(sys.modules), sys.stdout)
"""
# Arrow, the Kafka client, what reads columns, and other functions' adapters.
NOT_IMPORTED = {
    "confluent_kafka",
    "numpy",
    "pyarrow",
    "pydantic",
    "rich",
    "typer",
    "aws_lambda_powertools.utilities.parameters",
    "extentflow.delivery",
    "extentflow.formats",
    "extentflow.ledger",
    "extentflow.kafka",
    "extentflow.storage",
    "extentflow.wiring",
}
QUEUE = "https://sqs.eu-central-1.amazonaws.com/111122223333/arrivals"
SECRET = "sources"
CONTEXT = SimpleNamespace(
    function_name="receiver",
    memory_limit_in_mb=512,
    invoked_function_arn="arn:aws:lambda:us-east-1:000000000000:function:receiver",
    aws_request_id="request",
)


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """Return the modules that a cold start imports."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, str(FUNCTIONS / "receiver")],
        env={**os.environ, "POWERTOOLS_METRICS_NAMESPACE": "x", "POWERTOOLS_SERVICE_NAME": "x"},
        capture_output=True,
        check=True,
    )
    return set(json.loads(done.stdout))


def test_a_cold_start_imports_neither_arrow_nor_the_kafka_client(imported: set[str]) -> None:
    assert {"extentflow.discovery.receiver", "extentflow.queue.sqs_queue"} <= imported
    assert imported & NOT_IMPORTED == set()


class Aws:
    """AWS's services as the receiver calls them; `opened` are the clients that were made."""

    def __init__(self, sources: str) -> None:
        self.sources = sources
        self.opened: list[str] = []
        self.sent: list[str] = []
        self.reads = 0

    def client(self, service: str, **_options: object) -> "Aws":
        self.opened.append(service)
        return self

    def get_secret_value(self, **_: object) -> dict[str, str]:
        self.reads += 1
        return {"SecretString": self.sources}

    def send_message_batch(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        self.sent += [entry["MessageBody"] for entry in request["Entries"]]
        return {"Successful": [{"Id": entry["Id"]} for entry in request["Entries"]]}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Aws:
    found = Aws(json.dumps([{"secret_path": SEGMENT}]))
    monkeypatch.setattr(boto3.session.Session, "client", found.client)
    monkeypatch.setenv("EXTENTFLOW_BOOTSTRAP_SERVERS", "broker:9092")
    monkeypatch.setenv("EXTENTFLOW_ARRIVALS_QUEUE_URL", QUEUE)
    monkeypatch.setenv("EXTENTFLOW_RECEIVER_SECRET_ID", SECRET)
    return found


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The handler's module, as a cold start imports it."""
    monkeypatch.syspath_prepend(str(FUNCTIONS / "receiver"))
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "receiver")
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "extentflow")
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
    import handler  # type: ignore[import-not-found]  # noqa: PLC0415 - of this function

    yield handler
    del sys.modules["handler"]


def test_an_environment_opens_one_client_per_service_for_all_requests(
    aws: Aws, receiver: ModuleType
) -> None:
    request = json.loads(event("http-api-webhook"))

    answers = [receiver.handler(request, CONTEXT) for _ in range(5)]

    assert [answer["statusCode"] for answer in answers] == [200] * 5
    assert len(aws.sent) == 5
    assert (sorted(aws.opened), aws.reads) == (["secretsmanager", "sqs"], 1)


@pytest.mark.filterwarnings("ignore:No application metrics")
def test_a_deployed_receiver_refuses_an_open_source(aws: Aws, receiver: ModuleType) -> None:
    aws.sources = '[{"open": true}]'

    with pytest.raises(Misconfigured, match="a public endpoint needs a proof"):
        receiver.handler(json.loads(event("http-api-webhook")), CONTEXT)

    assert aws.sent == []


def test_a_changed_secret_is_in_effect_when_it_is_read_again(
    aws: Aws, receiver: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = json.loads(event("http-api-webhook"))
    first = receiver.handler(request, CONTEXT)
    aws.sources = json.dumps([{"secret_path": "another-secret-segment"}])
    monkeypatch.setattr("extentflow.aws.secrets_manager.CACHED_SECONDS", -1.0)

    second = receiver.handler(request, CONTEXT)

    assert (first["statusCode"], second["statusCode"]) == (200, 403)
