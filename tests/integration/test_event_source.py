"""The local event source around toy functions, on a real SQS server."""

import http.client
import json
import os
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psutil
import pytest
from tests.support.toy_functions import CORE, FUNCTIONS, Seen, order, toys
from tests.support.waiting import AWAITED_SECONDS, eventually

from extentflow.errors import Misconfigured
from extentflow_local.aws.event_source.deployment import Deployment, Queue
from extentflow_local.aws.event_source.execution import Verdict
from extentflow_local.aws.event_source.place import Place
from extentflow_local.aws.event_source.source import EventSource
from extentflow_local.stack.errors import PortTaken
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageTypeDef

Run = Callable[[Deployment], EventSource]


@pytest.fixture
def deployment(queues: Stack, unique: str) -> Deployment:
    """The toys, one at a time, whose messages come back after a second."""
    found = toys(queues.endpoint("sqs"), prefix=f"{unique}-")
    return found.with_queue("toy", visibility_seconds=1).with_mapping("toy", most_concurrent=1)


@pytest.fixture
def web(deployment: Deployment) -> Deployment:
    """The toys behind HTTP only."""
    return replace(deployment, mappings=(), schedules=())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    search_path = os.environ["PATH"]
    return Place(directory=tmp_path, functions=FUNCTIONS, layers=[CORE], search_path=search_path)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def run(place: Place, seen: Seen) -> Iterator[Run]:
    """Start event sources; they are stopped at the end, at once."""
    with ExitStack() as running:

        def start(deployment: Deployment) -> EventSource:
            source = EventSource(deployment, place, observe=seen)
            running.callback(source.stop, grace_seconds=0)
            source.start()
            return source

        yield start


def send(sqs: "SQSClient", queue: Queue, *bodies: str) -> None:
    entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(bodies)]
    assert not sqs.send_message_batch(QueueUrl=queue.url, Entries=entries).get("Failed")  # type: ignore[arg-type]


def exists(sqs: "SQSClient", queue: Queue) -> bool:
    try:
        return left(sqs, queue) >= 0
    except sqs.exceptions.QueueDoesNotExist:
        return False


def left(sqs: "SQSClient", queue: Queue) -> int:
    """Count the messages that wait or are hidden."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=queue.url, AttributeNames=names)  # type: ignore[arg-type]
    return sum(int(count) for count in found["Attributes"].values())


def receive(sqs: "SQSClient", queue: Queue) -> "MessageTypeDef":
    """Wait for one message. A message that the server itself moves wakes no poll that waits."""
    for _ in range(int(AWAITED_SECONDS)):
        found = sqs.receive_message(
            QueueUrl=queue.url, WaitTimeSeconds=1, MessageSystemAttributeNames=["All"]
        )
        for message in found.get("Messages", []):
            return message
    raise AssertionError(f"nothing came to {queue.name}")


def await_entry(place: Path) -> None:
    """Wait until a handler is in its meeting place."""
    while not any((place / "inside").iterdir()):
        time.sleep(0.01)


def answered(payload: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(payload)
    return found


# -- queues ---------------------------------------------------------------------------------------


def test_messages_that_were_dealt_with_are_deleted(
    run: Run, deployment: Deployment, sqs: "SQSClient", seen: Seen
) -> None:
    run(deployment)
    queue = deployment.queue_of("toy")

    send(sqs, queue, order(), order(), order())

    deliveries = seen.over(3)
    assert {one.outcome.verdict for one in deliveries} == {Verdict.RETURNED}
    assert not any(one.failed for one in deliveries)
    assert left(sqs, queue) == 0


def test_only_failed_messages_are_redelivered_after_their_timeout(
    run: Run, deployment: Deployment, sqs: "SQSClient", seen: Seen
) -> None:
    queue = deployment.queue_of("toy")
    run(deployment)

    send(sqs, queue, order(), order("fail", until=2), order())

    seen.over(3)
    (returned,) = {name for one in seen.deliveries for name in one.failed}
    rounds = [one for one in seen.deliveries if returned in one.received]
    assert [bool(one.failed) for one in rounds] == [True, False]
    assert sum(len(one.received) for one in seen.deliveries) == 4
    assert left(sqs, queue) == 0


def test_an_exception_brings_the_whole_batch_back(
    run: Run, deployment: Deployment, sqs: "SQSClient", seen: Seen
) -> None:
    queue = deployment.queue_of("toy")
    send_first = [order("raise", until=2), order()]

    source = run(deployment)
    send(sqs, queue, *send_first)

    deliveries = seen.over(2)
    raised = next(one for one in deliveries if one.outcome.verdict is Verdict.RAISED)
    assert answered(raised.outcome.payload)["errorType"] == "ValueError"
    assert raised.failed == raised.received
    # An exception costs no environment.
    assert raised.outcome.pid in source.pids("toy")


def test_without_partial_responses_only_exceptions_bring_messages_back(
    run: Run, deployment: Deployment, sqs: "SQSClient", seen: Seen
) -> None:
    queue = deployment.queue_of("toy")
    run(deployment.with_mapping("toy", reports_failures=False))

    send(sqs, queue, order("fail"))

    (delivery,) = seen.over(1)
    assert answered(delivery.outcome.payload)["batchItemFailures"]
    assert left(sqs, queue) == 0


def test_a_handler_that_dies_is_replaced_and_its_message_redelivered(
    run: Run, deployment: Deployment, sqs: "SQSClient", seen: Seen
) -> None:
    queue = deployment.queue_of("toy")
    source = run(deployment)

    send(sqs, queue, order("die", until=2))

    died, again = seen.first(2)
    assert (died.outcome.verdict, died.outcome.payload) == (Verdict.DIED, b"signal 9")
    assert died.failed == died.received == again.received
    assert again.outcome.ok
    assert again.outcome.pid != died.outcome.pid
    assert died.outcome.pid not in source.pids("toy")
    assert left(sqs, queue) == 0


def test_a_function_over_its_timeout_is_killed_and_its_message_redelivered(
    run: Run, deployment: Deployment, sqs: "SQSClient", seen: Seen
) -> None:
    queue = deployment.queue_of("toy")
    run(deployment.with_function("toy", timeout_seconds=1.0))

    send(sqs, queue, order("hang", until=2))

    late, again = seen.first(2)
    assert late.outcome.verdict is Verdict.TIMED_OUT
    assert 1.0 <= late.outcome.seconds < 10
    assert not psutil.pid_exists(late.outcome.pid)
    assert again.outcome.ok
    assert left(sqs, queue) == 0


@pytest.mark.long
def test_a_process_stopped_at_work_is_killed_at_its_deadline(
    run: Run, deployment: Deployment, sqs: "SQSClient", seen: Seen, tmp_path: Path
) -> None:
    (tmp_path / "inside").mkdir()
    source = run(deployment.with_function("toy", timeout_seconds=3.0))
    send(sqs, deployment.queue_of("toy"), order("meet", at=str(tmp_path), together=9, until=2))
    await_entry(tmp_path)
    (pid,) = source.pids("toy")

    psutil.Process(pid).suspend()

    stopped, again = seen.first(2)
    assert (stopped.outcome.pid, stopped.outcome.verdict) == (pid, Verdict.TIMED_OUT)
    assert again.outcome.ok


def test_a_frozen_process_is_thawed_by_the_next_invocation(
    run: Run, deployment: Deployment, sqs: "SQSClient", seen: Seen
) -> None:
    source = run(deployment)
    send(sqs, deployment.queue_of("toy"), order())
    seen.over(1)

    (pid,) = source.freeze("toy")
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    send(sqs, deployment.queue_of("toy"), order())

    warm, thawed = seen.over(2)
    assert (warm.outcome.pid, thawed.outcome.pid) == (pid, pid)
    assert answered(thawed.outcome.payload)["calls"] == 2


def test_no_more_environments_run_at_once_than_the_mapping_allows(
    run: Run, deployment: Deployment, sqs: "SQSClient", seen: Seen, tmp_path: Path
) -> None:
    deployment = deployment.with_mapping("toy", batch_size=1, most_concurrent=2)
    deployment = deployment.with_queue("toy", visibility_seconds=180)
    (tmp_path / "inside").mkdir()
    run(deployment)

    send(sqs, deployment.queue_of("toy"), *[order("meet", at=str(tmp_path), together=2)] * 8)

    deliveries = seen.over(8)
    assert (tmp_path / "met").exists()
    assert not (tmp_path / "crowded").exists()
    assert len({one.outcome.pid for one in deliveries}) == 2


def test_environments_stay_warm(
    run: Run, deployment: Deployment, sqs: "SQSClient", seen: Seen
) -> None:
    run(deployment)

    for count in range(1, 4):
        send(sqs, deployment.queue_of("toy"), order())
        seen.over(count)

    assert len({one.outcome.pid for one in seen.deliveries}) == 1
    calls = [answered(one.outcome.payload)["calls"] for one in seen.deliveries]
    assert calls == [1, 2, 3]


def test_a_message_received_too_often_goes_to_the_dead_letter_queue(
    run: Run, deployment: Deployment, sqs: "SQSClient", seen: Seen
) -> None:
    run(deployment)

    send(sqs, deployment.queue_of("toy"), order("raise"))

    dead = receive(sqs, deployment.dead_letter_queue_of("toy"))
    assert dead["Body"] == order("raise")
    assert len(seen.deliveries) == 3
    assert left(sqs, deployment.queue_of("toy")) == 0


@pytest.mark.long
def test_polling_continues_after_an_outage_of_the_server(
    run: Run, deployment: Deployment, sqs: "SQSClient", queues: Stack, seen: Seen
) -> None:
    run(deployment)
    send(sqs, deployment.queue_of("toy"), order())
    seen.over(1)

    queues.kill("sqs")
    queues.up()
    # The server answers before it has restored its queues.
    eventually("the queue is restored", lambda: exists(sqs, deployment.queue_of("toy")))
    send(sqs, deployment.queue_of("toy"), order())

    seen.over(2)


# -- what a function sees -------------------------------------------------------------------------


def test_a_function_sees_its_time_its_name_and_its_environment(
    run: Run, deployment: Deployment
) -> None:
    source = run(deployment.with_function("toy", timeout_seconds=40.0))

    outcome = source.invoke("toy", json.dumps({"Records": []}).encode())

    found = answered(outcome.payload)
    environment = found["environment"]
    assert 30_000 < found["remaining_ms"] < 41_000  # by wall clocks, which may be set right
    assert found["arn"] == deployment.functions["toy"].arn
    assert found["function"] == deployment.functions["toy"].deployed_name
    assert found["path"][1:3] == [str(FUNCTIONS / "toy"), str(CORE)]
    assert environment["EXTENTFLOW_TOYS_QUEUE_URL"] == deployment.queue_of("toy").url
    assert environment["AWS_EXECUTION_ENV"] == "AWS_Lambda_python3.13"
    assert environment["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] == "1769"
    assert "EXTENTFLOW_KAFKA_SECURITY_PROTOCOL" not in environment
    assert "PYTEST_CURRENT_TEST" not in environment


def test_a_schedule_sends_eventbridges_event_at_its_rate(
    run: Run, deployment: Deployment, seen: Seen
) -> None:
    run(deployment.with_schedule("tick", every_seconds=0.2))

    first, second = seen.first(2)

    event = answered(first.outcome.payload)
    assert (event["source"], event["detail-type"]) == ("aws.events", "Scheduled Event")
    assert event["resources"] == [deployment.schedules[0].arn]
    assert answered(second.outcome.payload)["id"] != event["id"]


def test_a_scheduled_function_can_be_called_at_once(
    run: Run, deployment: Deployment, seen: Seen
) -> None:
    outcome = run(deployment).trigger("tick")

    assert answered(outcome.payload)["source"] == "aws.events"
    assert [one.function for one in seen.deliveries] == ["tick"]


def test_output_goes_to_the_functions_log(
    run: Run, deployment: Deployment, sqs: "SQSClient", seen: Seen, place: Place
) -> None:
    run(deployment)

    send(sqs, deployment.queue_of("toy"), order("raise"))

    seen.first(1)
    assert "[ERROR] ValueError: as the message asks" in place.log_of("toy").read_text()


# -- HTTP -----------------------------------------------------------------------------------------


def ask(
    source: EventSource, method: str, target: str, body: bytes = b"", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    place = urlsplit(source.url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
    try:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, target, body=body, headers=sent)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("content_type", "encoded"),
    [
        ("application/json", False),
        ("application/json; charset=utf-8", False),
        ("text/plain", False),
        ("application/x-www-form-urlencoded; charset=utf-8", True),
        ("application/octet-stream", True),
    ],
)
def test_bodies_are_base64_as_aws_does_it(
    run: Run, web: Deployment, content_type: str, *, encoded: bool
) -> None:
    body = "a=1&b=ü".encode()

    _, answer = ask(run(web), "POST", "/", body, Content_Type=content_type)

    event = json.loads(answer)
    assert event["isBase64Encoded"] is encoded
    assert (b64decode(event["body"]) if encoded else event["body"].encode()) == body


def test_a_request_becomes_an_event_of_payload_format_2(run: Run, web: Deployment) -> None:
    source = run(web)

    response, answer = ask(source, "PUT", "/a%20b?x=1&x=2&y=%20", b"{}", X_Own="Kept")

    event = json.loads(answer)
    assert response.status == 200
    assert (event["version"], event["routeKey"]) == ("2.0", "$default")
    assert (event["rawPath"], event["rawQueryString"]) == ("/a b", "x=1&x=2&y=%20")
    assert event["queryStringParameters"] == {"x": "1,2", "y": " "}
    assert event["headers"]["x-own"] == "Kept"
    assert event["headers"]["host"] == source.url.removeprefix("http://")
    assert event["requestContext"]["http"]["method"] == "PUT"


def test_binary_answers_cookies_and_status_come_through(run: Run, web: Deployment) -> None:
    response, body = ask(run(web), "GET", "/binary")

    assert (response.status, body) == (202, b"\x00\xff")
    assert response.getheader("content-type") == "application/octet-stream"
    assert response.headers.get_all("set-cookie") == ["a=1", "b=2"]


def test_what_has_no_status_is_json_and_a_failure_is_500(run: Run, web: Deployment) -> None:
    source = run(web)

    plain, body = ask(source, "GET", "/plain")
    failed, message = ask(source, "GET", "/raise")

    assert (plain.status, json.loads(body)) == (200, {"no": "status"})
    assert (failed.status, json.loads(message)) == (500, {"message": "Internal Server Error"})


def test_chunked_bodies_are_read_and_large_ones_rejected(run: Run, web: Deployment) -> None:
    source = run(web)
    place = urlsplit(source.url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)

    chunks = iter([b"one,", b"two"])
    connection.request("POST", "/", body=chunks, encode_chunked=True)
    event = json.loads(connection.getresponse().read())
    connection.request("POST", "/", body=b"", headers={"Content-Length": str(11 << 20)})
    refused = connection.getresponse()

    assert b64decode(event["body"]) == b"one,two"
    assert refused.status == 413
    connection.close()


# -- the end --------------------------------------------------------------------------------------


def test_stopping_lets_what_runs_end_and_leaves_no_process(
    deployment: Deployment, place: Place, sqs: "SQSClient", seen: Seen, tmp_path: Path
) -> None:
    (tmp_path / "inside").mkdir()
    source = EventSource(deployment, place, observe=seen)
    source.start()
    send(sqs, deployment.queue_of("toy"), order("meet", at=str(tmp_path), together=9))
    ask(source, "GET", "/")
    await_entry(tmp_path)
    pids = [*source.pids("toy"), *source.pids("echo")]

    stopping = threading.Thread(target=source.stop)
    stopping.start()
    (tmp_path / "met").touch()
    stopping.join()

    assert len(pids) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert [one.outcome.ok for one in seen.deliveries if one.function == "toy"] == [True]
    assert left(sqs, deployment.queue_of("toy")) == 0


def test_stopping_at_once_ends_invocations_and_redelivers_their_messages(
    deployment: Deployment, place: Place, sqs: "SQSClient", seen: Seen, tmp_path: Path
) -> None:
    (tmp_path / "inside").mkdir()
    queue = deployment.queue_of("toy")
    source = EventSource(deployment, place, observe=seen)
    source.start()
    send(sqs, queue, order("meet", at=str(tmp_path), together=9))
    await_entry(tmp_path)
    (pid,) = source.pids("toy")

    source.stop(grace_seconds=0)

    assert not psutil.pid_exists(pid)
    assert [one.outcome.verdict for one in seen.deliveries] == [Verdict.DIED]
    back = receive(sqs, queue)
    assert back["Attributes"]["ApproximateReceiveCount"] == "2"


def test_a_process_killed_from_outside_between_invocations_is_replaced(
    run: Run, deployment: Deployment
) -> None:
    source = run(deployment)
    event = json.dumps({"Records": []}).encode()
    first = source.invoke("toy", event)

    psutil.Process(first.pid).kill()
    while source.pids("toy"):
        time.sleep(0.01)
    second = source.invoke("toy", event)

    assert second.ok
    assert second.pid != first.pid


def test_missing_code_is_named_before_anything_starts(
    deployment: Deployment, place: Place, tmp_path: Path
) -> None:
    elsewhere = Place(directory=place.directory, functions=tmp_path, layers=[])

    with pytest.raises(Misconfigured) as caught:
        EventSource(deployment, elsewhere)

    assert [line.split(":")[0] for line in caught.value.problems] == [
        str(tmp_path / name) for name in ("toy", "echo", "tick")
    ]


def test_a_used_http_port_is_reported(run: Run, deployment: Deployment, place: Place) -> None:
    port = urlsplit(run(deployment).url).port
    second = EventSource(
        deployment,
        Place(directory=place.directory, functions=FUNCTIONS, layers=[], http_port=port or 0),
    )

    with pytest.raises(PortTaken, match=str(port)):
        second.start()
