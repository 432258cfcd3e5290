"""The Runtime API as a runtime client sees it."""

import http.client
import queue
from collections.abc import Iterator

import pytest

from extentflow.retry import Clock
from extentflow_local.aws.event_source.runtime_api import (
    InitFailed,
    Invocation,
    InvocationError,
    InvocationResult,
    InvocationStart,
    RuntimeApi,
    Said,
)

NEXT = "/2018-06-01/runtime/invocation/next"
ASKED = Invocation("request-1", b'{"a": 1}', "arn:aws:lambda:::function:f", 2.5, "Root=1")
NOW = 1_795_169_700.25


class Client:
    """Speaks to the API over one connection, as awslambdaric does."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=300)

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        self._connection.request(method, path, body=body)
        self.response = self._connection.getresponse()
        return self.response.status, self.response.read()

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def said() -> "queue.SimpleQueue[Said]":
    return queue.SimpleQueue()


@pytest.fixture
def api(said: "queue.SimpleQueue[Said]") -> Iterator[RuntimeApi]:
    found = RuntimeApi(said.put, Clock(wall=lambda: NOW))
    yield found
    found.close()


@pytest.fixture
def client(api: RuntimeApi) -> Iterator[Client]:
    found = Client(api.address)
    yield found
    found.close()


def test_an_invocation_is_picked_up_with_its_deadline(
    api: RuntimeApi, client: Client, said: "queue.SimpleQueue[Said]"
) -> None:
    api.offer(ASKED)

    status, body = client.ask("GET", NEXT)

    headers = client.response.headers
    assert (status, body) == (200, b'{"a": 1}')
    assert headers["Lambda-Runtime-Aws-Request-Id"] == "request-1"
    assert headers["Lambda-Runtime-Deadline-Ms"] == "1795169702750"
    assert headers["Lambda-Runtime-Invoked-Function-Arn"] == ASKED.function_arn
    assert said.get(timeout=300) == InvocationStart()


@pytest.mark.parametrize(
    ("what", "expected"),
    [("response", InvocationResult(b"answer")), ("error", InvocationError(b"answer"))],
)
def test_an_answer_is_passed_on_once(
    api: RuntimeApi,
    client: Client,
    said: "queue.SimpleQueue[Said]",
    what: str,
    expected: Said,
) -> None:
    path = f"/2018-06-01/runtime/invocation/request-1/{what}"
    api.offer(ASKED)
    client.ask("GET", NEXT)

    first, _ = client.ask("POST", path, b"answer")
    second, _ = client.ask("POST", path, b"answer")

    assert (first, second) == (202, 400)
    assert [said.get(timeout=300), said.get(timeout=300)] == [InvocationStart(), expected]
    assert said.empty()


@pytest.mark.parametrize("name", ["another", "None", ""])
def test_a_response_to_another_request_is_rejected(
    client: Client, said: "queue.SimpleQueue[Said]", name: str
) -> None:
    status, _ = client.ask("POST", f"/2018-06-01/runtime/invocation/{name}/response", b"x")

    assert status == 400
    assert said.empty()


def test_a_failed_import_is_passed_on(client: Client, said: "queue.SimpleQueue[Said]") -> None:
    status, _ = client.ask("POST", "/2018-06-01/runtime/init/error", b"why")

    assert status == 202
    assert said.get(timeout=300) == InitFailed(b"why")


def test_other_paths_are_unknown(client: Client) -> None:
    assert client.ask("GET", "/2018-06-01/runtime/other")[0] == 404


def test_closing_ends_those_who_wait_and_is_harmless_when_repeated(
    said: "queue.SimpleQueue[Said]",
) -> None:
    api = RuntimeApi(said.put, Clock())
    client = Client(api.address)
    client._connection.request("GET", NEXT)

    api.close()
    api.close()

    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        client._connection.getresponse()
    client.close()
