"""Requests as the senders of notifications make them, and a receiver to take them."""

import calendar
import io
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import botocore.session
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.credentials import Credentials

from extentflow.discovery.receiver import Receiver
from extentflow.discovery.sources import (
    NoProof,
    Proof,
    SecretPathProof,
    SignatureProof,
    Source,
)
from extentflow.errors import SinkUnavailable
from extentflow.http.requests import HttpRequest, HttpResponse
from extentflow.retry import Clock

EVENTS = Path(__file__).parents[3] / "events"
GRID = "https://grid.example.com:10443"
HOST = "receiver.example.com"
TOPIC = "urn:grid:sns:eu-central-1:shop:uploads"
KEY = SignatureProof("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
SEGMENT = "example-secret-segment"
FORM = "application/x-www-form-urlencoded; charset=utf-8"

SIGNED = KEY
SECRET = SecretPathProof(SEGMENT)
ANYONE = NoProof()


def event(name: str) -> str:
    return (EVENTS / f"{name}.json").read_text()


def request_of(name: str) -> HttpRequest:
    return HttpRequest.of_event(json.loads(event(name)))


def notification(*keys: str) -> str:
    """What StorageGRID says about new objects; the keys are encoded already."""
    return json.dumps({"Records": [record(key) for key in keys]})


def record(key: str, **changes: object) -> dict[str, Any]:
    found = {"eventVersion": "2.0", "eventSource": "sgws:s3", "eventName": "ObjectCreated:Put"}
    return {**found, "s3": {"bucket": {"name": "shop"}, "object": {"key": key}}, **changes}


def form(message: str) -> bytes:
    fields = {"Action": "Publish", "Version": "2010-03-31", "TopicArn": TOPIC, "Message": message}
    return urlencode(fields).encode()


def post(body: bytes, path: str = "/", **headers: str) -> HttpRequest:
    return HttpRequest("POST", path, {"Host": HOST, **headers}, body)


def signed(
    body: bytes,
    url: str = f"https://{HOST}/",
    *,
    key: SignatureProof = KEY,
    service: str = "sns",
    region: str = "eu-central-1",
    headers: Iterable[tuple[str, str]] = (("Content-Type", FORM),),
) -> HttpRequest:
    """A request with the signature that botocore makes, at this moment."""
    parts = urlsplit(url)
    unsigned = AWSRequest("POST", url, {"Host": parts.netloc, **dict(headers)}, body)
    credentials = Credentials(key.access_key_id, key.secret_access_key)
    SigV4Auth(credentials, service, region).add_auth(unsigned)
    return HttpRequest("POST", parts.path, dict(unsigned.headers.items()), body, query=parts.query)


def signing_time(request: HttpRequest) -> float:
    date = request.header("x-amz-date") or ""
    return calendar.timegm(time.strptime(date, "%Y%m%dT%H%M%SZ"))


@dataclass
class Post:
    """A receiver with a queue that remembers; `taking` is how many bodies the queue still takes."""

    proof: Proof
    endpoint: str | None = GRID
    now: float | None = None
    message_bytes: int = 100_000
    taking: int = 1_000
    queued: list[str] = field(default_factory=list)

    def take(self, body: str, /) -> None:
        if len(self.queued) == self.taking:
            raise SinkUnavailable("the queue is unavailable; wait")
        self.queued.append(body)

    def answer(self, request: HttpRequest) -> HttpResponse:
        now = self.now if self.now is not None else time.time()
        receiver = Receiver(
            sources=(Source(self.endpoint, self.proof),),
            enqueue=self.take,
            clock=Clock(wall=lambda: now),
            message_bytes=self.message_bytes,
        )
        return receiver.answer(request)


class _Raw(io.BytesIO):
    def stream(self, **_: object) -> Iterator[bytes]:
        yield self.read()


def publish(
    post: Post, message: str, *, key: SignatureProof = KEY, **fields: object
) -> dict[str, Any]:
    """Publish through botocore's SNS client, with the receiver where the network would be."""

    def respond(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        parts = urlsplit(request.url)
        body = request.body if isinstance(request.body, bytes) else str(request.body).encode()
        headers = {name: _text(value) for name, value in request.headers.items()}
        headers.setdefault("Host", parts.netloc)
        answer = post.answer(HttpRequest("POST", parts.path, headers, body))
        content = HTTPHeaders.from_dict({"content-type": answer.content_type})
        return AWSResponse(request.url, answer.status, content, _Raw(answer.body.encode()))

    client: Any = botocore.session.get_session().create_client(
        "sns",
        region_name="eu-central-1",
        endpoint_url=f"https://{HOST}",
        aws_access_key_id=key.access_key_id,
        aws_secret_access_key=key.secret_access_key,
        config=Config(retries={"total_max_attempts": 1}),
    )
    client.meta.events.register("before-send.sns", respond)
    answered: dict[str, Any] = client.publish(TopicArn=TOPIC, Message=message, **fields)
    return answered


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()
