"""The receiver function behind HTTP: what stores post is on a real queue, or is posted again."""

import base64
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import boto3
import pytest
from botocore import UNSIGNED
from botocore.auth import SIGV4_TIMESTAMP, SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from demo.eventpath import PROJECT
from tests.integration.faultproxy import Answer, FaultProxy, Hold, Request
from tests.support.eventpath import Ending, Ground
from tests.support.waiting import AWAITED_SECONDS
from tests.unit.discovery.posting import FORM, GRID, KEY, SEGMENT, event, form, notification, record

from extentflow.discovery import documents
from extentflow.discovery.notifications import parse_notification
from extentflow.model import JobState
from extentflow_local.aws.event_path import ELSEWHERE
from extentflow_local.aws.event_source.deployment import Queue
from extentflow_local.aws.event_source.http_events import HttpRequest, RouteMatch, event_of
from extentflow_local.aws.event_source.names import TemplateContext
from extentflow_local.aws.event_source.place import Place
from extentflow_local.aws.event_source.source import EventSource
from extentflow_local.aws.event_source.template import read_template
from extentflow_local.stack.servers import REGION
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sqs import SQSClient

TOPIC = "urn:grid:sns:eu-central-1:shop:uploads"
ELSEWHERE_GRID = "https://other.example.com"
SOURCES = [
    {
        "endpoint": GRID,
        "access_key_id": KEY.access_key_id,
        "secret_access_key": KEY.secret_access_key,
    },
    {"endpoint": ELSEWHERE_GRID, "secret_path": SEGMENT},
]
SECRET_PLACE = f"/hooks/{SEGMENT}"
JSON = "application/json"


@dataclass(frozen=True)
class Door:
    """The receiver and the queue behind it; `proxy` stands between the two."""

    source: EventSource
    queue: Queue
    sqs: "SQSClient"
    proxy: FaultProxy

    def post(
        self, body: bytes, path: str = SECRET_PLACE, *, method: str = "POST", **headers: str
    ) -> tuple[int, bytes]:
        """Send a request as it is; return status and body of the answer."""
        place = urlsplit(self.source.url)
        connection = HTTPConnection(str(place.hostname), place.port, timeout=60)
        try:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body=body, headers=sent)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def call(self, body: bytes, headers: dict[str, str], *, encoded: bool) -> int:
        """Hand a form over as API Gateway may, base64 or not; return the answer's status."""
        request = HttpRequest(
            method="POST",
            target="/",
            headers=tuple(headers.items()),
            body=body,
            source="192.0.2.10",
            received=0.0,
        )
        made = json.loads(event_of(request, RouteMatch(key="$default", front="http-api")))
        assert made["isBase64Encoded"] is True
        if not encoded:
            made |= {"body": base64.b64decode(made["body"]).decode(), "isBase64Encoded": False}
        outcome = self.source.invoke("receiver", json.dumps(made).encode())
        return int(json.loads(outcome.payload)["statusCode"])

    def queued(self) -> list[str]:
        """Take everything off the queue."""
        found = []
        url = self.queue.url
        while taken := self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get(
            "Messages"
        ):
            for message in taken:
                found.append(message["Body"])
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return found

    def announced(self) -> list[tuple[str, str | None]]:
        """Take everything off the queue; return the keys, and the endpoint that each came from."""
        parsed = [parse_notification(body) for body in self.queued()]
        assert not any(one.unparseable for one in parsed)
        return [(arrival.key, arrival.endpoint) for one in parsed for arrival in one.arrivals]


def declare(aws: Stack, name: str, sources: list[dict[str, str]]) -> dict[str, str]:
    """Keep a secret with sources; return what lets a function find it."""
    client = boto3.client("secretsmanager", endpoint_url=aws.endpoint("aws"))
    client.create_secret(Name=name, SecretString=json.dumps(sources))
    client.close()
    return {
        "EXTENTFLOW_RECEIVER_SECRET_ID": name,
        "AWS_ENDPOINT_URL_SECRETS_MANAGER": aws.endpoint("aws"),
    }


@pytest.fixture(scope="module")
def receiver(
    ground: Ground, queues: Stack, aws: Stack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Door]:
    """The template's receiver and queues, and no other function."""
    folder = tmp_path_factory.mktemp("receiver")
    name = folder.parent.name + folder.name
    sqs = boto3.client("sqs", endpoint_url=queues.endpoint("sqs"))
    with FaultProxy(queues.endpoint("sqs")) as proxy:
        around = TemplateContext(
            sqs=queues.endpoint("sqs"),
            prefix=f"{name}-",
            environment={
                **ELSEWHERE,
                **declare(aws, name, SOURCES),
                "EXTENTFLOW_BOOTSTRAP_SERVERS": "127.0.0.1:9",  # it asks no broker
                "AWS_ENDPOINT_URL_SQS": proxy.endpoint,
            },
        )
        deployment = read_template(ground.template, around)
        queue = deployment.queue_of("planner")
        alone = replace(deployment, mappings=(), schedules=())
        place = Place(
            directory=folder,
            functions=PROJECT / "functions",
            layers=[PROJECT / "layers" / "core" / "python"],
            processes=2,
            search_path=os.environ["PATH"],
        )
        with EventSource(alone, place) as source:
            yield Door(source, queue, sqs, proxy)
    sqs.close()


@pytest.fixture
def door(receiver: Door) -> Iterator[Door]:
    receiver.queued()
    yield receiver
    receiver.proxy.clear()


def grid(
    door: Door,
    key_id: str = KEY.access_key_id,
    secret: str = KEY.secret_access_key,
    *,
    signs: bool = True,
) -> "SNSClient":
    """StorageGRID, which speaks SNS's API."""
    return boto3.client(
        "sns",
        endpoint_url=door.source.url,
        region_name="eu-central-1",
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
        config=Config(
            retries={"total_max_attempts": 1}, signature_version="v4" if signs else UNSIGNED
        ),
    )


def refusal(client: "SNSClient", message: str) -> int:
    """Publish, which has to fail; return the answer's status."""
    with pytest.raises(ClientError) as caught:
        client.publish(TopicArn=TOPIC, Message=message)
    return int(caught.value.response["ResponseMetadata"]["HTTPStatusCode"])


class SignedAt(SigV4Auth):
    """A signer with a clock of its own."""

    def __init__(self, moment: datetime) -> None:
        credentials = Credentials(KEY.access_key_id, KEY.secret_access_key)
        super().__init__(credentials, "sns", "eu-central-1")
        self.moment = moment

    def _modify_request_before_signing(self, request: AWSRequest) -> None:
        request.context["timestamp"] = self.moment.strftime(SIGV4_TIMESTAMP)
        super()._modify_request_before_signing(request)  # type: ignore[misc]


def signed_headers(url: str, body: bytes, moment: datetime) -> dict[str, str]:
    headers = {"Host": urlsplit(url).netloc, "Content-Type": FORM}
    request = AWSRequest("POST", f"{url}/", headers, body)
    SignedAt(moment).add_auth(request)
    return dict(request.headers.items())


# -- signed, through SNS's API --------------------------------------------------------------------


def test_what_a_grid_publishes_is_on_the_queue_with_the_grids_endpoint(door: Door) -> None:
    answer = grid(door).publish(TopicArn=TOPIC, Message=event("storagegrid"))

    assert answer["MessageId"]
    assert door.announced() == [
        ("in/2026/red flower+100% ☃.csv", GRID),
        ("in/2026/orders.parquet", GRID),
    ]


@pytest.mark.parametrize("encoded", [True, False])
def test_a_signature_covers_the_decoded_bytes_however_they_are_handed_over(
    door: Door, *, encoded: bool
) -> None:
    body = form(notification("a%2Bb"))
    headers = signed_headers("http://127.0.0.1", body, datetime.now(UTC))

    status = door.call(body, headers, encoded=encoded)

    assert status == 200
    assert door.announced() == [("a+b", GRID)]


@pytest.mark.parametrize("place", [0, 20, -1])
def test_one_byte_changed_after_signing_is_rejected_and_nothing_queued(
    door: Door, place: int
) -> None:
    client = grid(door)

    def forge(request: AWSPreparedRequest, **_: object) -> None:
        body = bytearray(
            request.body if isinstance(request.body, bytes) else str(request.body).encode()
        )
        body[place] ^= 1
        request.body = bytes(body)

    client.meta.events.register("before-send.sns.Publish", forge)

    assert refusal(client, notification("a")) == 403
    assert door.queued() == []


def test_an_unsigned_request_is_rejected(door: Door) -> None:
    assert refusal(grid(door, signs=False), notification("a")) == 403
    assert door.queued() == []


@pytest.mark.parametrize(
    ("key_id", "secret"),
    [("AKIAOTHER", KEY.secret_access_key), (KEY.access_key_id, "another secret")],
)
def test_another_key_is_rejected(door: Door, key_id: str, secret: str) -> None:
    assert refusal(grid(door, key_id, secret), notification("a")) == 403
    assert door.queued() == []


@pytest.mark.parametrize(("minutes", "status"), [(-20, 403), (-10, 200), (10, 200), (20, 403)])
def test_clocks_may_differ_by_a_quarter_of_an_hour(door: Door, minutes: int, status: int) -> None:
    body = form(notification("a"))
    moment = datetime.now(UTC) + timedelta(minutes=minutes)
    headers = signed_headers(door.source.url, body, moment)

    answered, _ = door.post(body, "/", **{k.replace("-", "_"): v for k, v in headers.items()})

    assert answered == status
    assert len(door.queued()) == (status == 200)


def test_what_is_sent_again_is_queued_again_under_the_same_message_id(door: Door) -> None:
    body = form(notification("a"))
    headers = signed_headers(door.source.url, body, datetime.now(UTC))
    sent = {name.replace("-", "_"): value for name, value in headers.items()}

    first, second = door.post(body, "/", **sent), door.post(body, "/", **sent)

    assert first == second
    assert first[0] == 200
    assert door.announced() == [("a", GRID)] * 2


# -- posted as JSON, to a secret path -------------------------------------------------------------


def test_a_webhook_with_the_secret_path_is_queued_with_its_endpoint(door: Door) -> None:
    status, _ = door.post(notification("in/a.csv").encode(), Content_Type=JSON)

    assert status == 200
    assert door.announced() == [("in/a.csv", ELSEWHERE_GRID)]


@pytest.mark.parametrize("path", ["/", f"/hooks/{SEGMENT}x", f"/hooks?{SEGMENT}"])
def test_a_webhook_without_the_secret_path_is_rejected(door: Door, path: str) -> None:
    status, _ = door.post(notification("a").encode(), path, Content_Type=JSON)

    assert status == 403
    assert door.queued() == []


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (notification("a").encode()[:-7], JSON),
        (b'{"Records": 1}', "text/plain"),
        (b"\xff\x00\xfe", "application/octet-stream"),
        (b"Action=Unknown&Message=1", FORM),
    ],
)
def test_an_unparseable_notification_is_kept_and_never_rejected(
    door: Door, body: bytes, content_type: str
) -> None:
    status, _ = door.post(body, Content_Type=content_type)

    assert status == 200
    (kept,) = door.queued()
    assert documents.unwrapped(json.loads(kept)) == (body, ELSEWHERE_GRID)
    assert parse_notification(kept).unparseable


def test_a_document_larger_than_a_message_arrives_whole(door: Door) -> None:
    keys = [f"{number:05d}" for number in range(6_000)]
    document = json.dumps({"Records": [record(key) for key in keys]}).encode()
    assert documents.MAX_BODY_BYTES < len(document) < 1 << 20

    status, _ = door.post(document, Content_Type=JSON)

    assert status == 200
    assert sorted(door.announced()) == [(key, ELSEWHERE_GRID) for key in keys]


def test_more_than_a_mebibyte_is_too_large(door: Door) -> None:
    body = notification("a").encode()

    status, _ = door.post(body + b" " * ((1 << 20) + 1 - len(body)), Content_Type=JSON)

    assert status == 413
    assert door.queued() == []


# -- probes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("GET", "/", b""), ("HEAD", "/", b""), ("GET", SECRET_PLACE, b""), ("POST", "/", b"")],
)
def test_who_only_looks_is_answered(door: Door, method: str, path: str, body: bytes) -> None:
    status, _ = door.post(body, path, method=method)

    assert status == 200
    assert door.queued() == []


def test_the_grids_own_test_of_an_endpoint_succeeds(door: Door) -> None:
    answer = grid(door).publish(TopicArn=TOPIC, Message="StorageGRID test message")

    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert door.queued() == []


# -- the queue ------------------------------------------------------------------------------------


def is_sending(request: Request) -> bool:
    return request.headers.get("x-amz-target", "").startswith("AmazonSQS.SendMessage")


def test_no_answer_is_given_before_the_queue_has_the_document(door: Door) -> None:
    resume = threading.Event()
    rule = door.proxy.inject(Hold(resume), when=is_sending, times=1)

    with ThreadPoolExecutor(1) as executor:
        answering = executor.submit(door.post, notification("a").encode(), Content_Type=JSON)
        rule.await_hits()
        early = answering.done()
        resume.set()
        status, _ = answering.result(timeout=AWAITED_SECONDS)

    assert not early
    assert status == 200
    assert door.announced() == [("a", ELSEWHERE_GRID)]


def test_a_queue_that_rejects_makes_the_sender_try_again(door: Door) -> None:
    refused = Answer(503, content_type="application/x-amz-json-1.0")
    door.proxy.inject(refused, when=is_sending, times=None)
    answered = refusal(grid(door), notification("a"))
    door.proxy.clear()

    again = grid(door).publish(TopicArn=TOPIC, Message=notification("a"))

    assert answered == 503
    assert again["MessageId"]
    assert door.announced() == [("a", GRID)]


@pytest.mark.long
def test_a_queue_that_is_unavailable_makes_the_sender_try_again(door: Door, queues: Stack) -> None:
    queues.kill("sqs")
    answered, _ = door.post(notification("a").encode(), Content_Type=JSON)
    queues.up()

    again, _ = door.post(notification("a").encode(), Content_Type=JSON)

    assert (answered, again) == (503, 200)
    assert door.announced() == [("a", ELSEWHERE_GRID)]


# -- the whole way --------------------------------------------------------------------------------


def test_what_a_grid_publishes_twice_is_in_kafka_once(
    ground: Ground, aws: Stack, unique: str
) -> None:
    sources = [{**SOURCES[0], "endpoint": ground.stack.endpoint("s3")}]
    lines = [f"{unique} {number}".encode() for number in range(1_000)]
    with ground.open(environment=declare(aws, unique, sources)) as path:
        feed = path.feed()
        found = feed.put("lines.txt", b"\n".join(lines))
        envelope = json.loads(notification(found.version.key.replace("/", "%2F")))
        envelope["Records"][0]["s3"]["bucket"]["name"] = path.bucket
        client = boto3.client(
            "sns",
            endpoint_url=path.source.url,
            region_name=REGION,
            aws_access_key_id=KEY.access_key_id,
            aws_secret_access_key=KEY.secret_access_key,
        )

        for _ in range(2):
            client.publish(TopicArn=TOPIC, Message=json.dumps(envelope))

        feed.await_state(found, JobState.DONE)
        assert feed.ending(lines) == Ending(records=len(lines))
        client.close()
