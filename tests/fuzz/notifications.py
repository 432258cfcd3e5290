"""Targets `notifications` and `requests`: what stores, buses and HTTP senders send."""

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

from tests.fuzz.mutations import change_bytes, change_document, pack, plain_json, unpack, write_json
from tests.fuzz.targets import Target

from extentflow.discovery import documents, sources
from extentflow.discovery.notifications import parse_notification
from extentflow.discovery.receiver import Receiver
from extentflow.http.requests import HttpRequest
from extentflow.queue import UNSENDABLE, Backfill
from extentflow.retry import Clock

EVENTS = Path(__file__).parents[2] / "events"
_BACKFILL = Backfill("b1", "orders", ("s3://bucket/a/", "s3://bucket/b*.csv")).to_message()
_TEXTS = [path.read_bytes() for path in sorted(EVENTS.glob("*.json"))]
_TEXTS += [json.dumps(_BACKFILL).encode()]
_TEXTS += [urlencode({"Action": "Publish", "TopicArn": "urn:x:y", "Message": _TEXTS[1]}).encode()]
_DOCUMENTS = [json.loads(text) for text in _TEXTS[:-1]]


def _wrapped(random: Random, text: str) -> str:
    match random.randrange(6):
        case 0:
            return json.dumps({"Records": [{"eventSource": "aws:sqs", "body": text}]})
        case 1:
            return json.dumps({"Type": "Notification", "Message": text, "TopicArn": "arn"})
        case 2:
            return documents.wrapped(text.encode("utf-8", "replace"), "https://grid:9000")
        case 3:
            body = base64.b64encode(text.encode("utf-8", "replace")).decode()
            context = {"http": {"method": "POST"}}
            event = {"requestContext": context, "rawPath": "/", "body": body}
            return json.dumps({**event, "isBase64Encoded": True})
        case 4:
            context = {"http": {"method": "POST"}}
            return json.dumps({"requestContext": context, "rawPath": "/", "body": text})
        case _:
            return urlencode({"Action": "Publish", "Message": text}, errors="replace")


def _notification(random: Random) -> bytes:
    if random.random() < 0.35:
        return change_bytes(random, random.choice(_TEXTS), _TEXTS)
    text = write_json(change_document(random, random.choice(_DOCUMENTS)))
    while random.random() < 0.3:
        text = _wrapped(random, text)
    data = text.encode("utf-8", "surrogatepass")
    return change_bytes(random, data) if random.random() < 0.1 else data


def _run_notification(data: bytes) -> str:
    # A queue's body is text; those of SQS hold no lone surrogates, others may.
    body = data.decode("utf-8", "surrogateescape")

    parsed = parse_notification(body)

    parts = (parsed.arrivals, parsed.backfills, parsed.unparseable, parsed.tests, parsed.ignored)
    assert any(parts), "a document counts as something"
    for arrival in parsed.arrivals:
        assert arrival.uri
        message = documents.dump(arrival.to_message()).decode()
        assert parse_notification(message).arrivals == (arrival,)
    for backfill in parsed.backfills:
        message = documents.dump(backfill.to_message()).decode()
        assert parse_notification(message).backfills == (backfill,)
    for unread in parsed.unparseable:
        assert str(unread)
        assert not UNSENDABLE.search(unread.document), "a queue takes a dead letter"
        again = parse_notification(unread.document)
        assert not again.backfills, "a dead letter that is moved back starts no run"
        # What was wrapped too often is a document that can be read, without its wrappings.
        assert not again.arrivals or "wrapped more than" in unread.why
    names = ("arrival", "backfill", "unparseable", "test", "ignored")
    return next(name for name, part in zip(names, parts, strict=True) if part)


# -- requests --------------------------------------------------------------------------------------

_SEGMENT = "0123456789abcdef-secret"
_SIGNED = sources.SignatureProof("AKIDEXAMPLE", "secret-access-key")
_PROOFS: dict[str, Sequence[sources.Source]] = {
    "open": (sources.Source(None, sources.NoProof()),),
    "path": (sources.Source("https://grid", sources.SecretPathProof(_SEGMENT)),),
    "signed": (
        sources.Source("https://other", sources.SecretPathProof(_SEGMENT)),
        sources.Source("https://grid", _SIGNED),
    ),
}
_NOW = 1_770_000_000.0
_HTTP_EVENTS = [one for one in _DOCUMENTS if isinstance(one, dict) and "requestContext" in one]
_REST: dict[str, Any] = {
    "httpMethod": "POST",
    "requestContext": {"path": f"/dev/{_SEGMENT}"},
    "multiValueQueryStringParameters": {"a": ["1", "2"], "ü": [""]},
    "headers": {"Content-Type": "application/json"},
    "body": _TEXTS[1].decode(),
}


def _sign(event: dict[str, Any]) -> dict[str, Any]:
    """Return an HTTP event with the signature of the shared key, as a sender makes it."""
    when = datetime.fromtimestamp(_NOW, UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{when[:8]}/us-east-1/{sources.SERVICE}/{sources.TERMINATOR}"
    names = ("content-type", "host", "x-amz-date")
    kept = {"content-type": "application/x-www-form-urlencoded", "host": "h", "x-amz-date": when}
    request = replace(HttpRequest.of_event(event), headers=kept)
    canonical = sources._octets(sources._canonical(request, request.payload(), names))
    key = f"AWS4{_SIGNED.secret_access_key}".encode()
    digest = hashlib.sha256(canonical).hexdigest()
    text = f"{sources.ALGORITHM}\n{when}\n{scope}\n{digest}"
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    claim = f"Credential={_SIGNED.access_key_id}/{scope}, SignedHeaders={';'.join(names)}"
    signed = f"{sources.ALGORITHM} {claim}, Signature={key.hex()}"
    return {**event, "headers": {**kept, "authorization": signed}}


def _request(random: Random) -> bytes:
    event = dict(random.choice([*_HTTP_EVENTS, _REST]))
    proof = random.choice(("open", "open", "path", "signed"))
    if random.random() < 0.5:
        body = _notification(random)
        as_text = body.decode("utf-8", "surrogateescape")
        encoded = random.random() < 0.5
        event["body"] = base64.b64encode(body).decode() if encoded else as_text
        event["isBase64Encoded"] = encoded
    if random.random() < 0.6 and proof == "path":
        event["rawPath"] = f"/{_SEGMENT}/x"
    if proof == "signed" and random.random() < 0.8:
        event = _sign(event)
    if random.random() < 0.6:
        event = plain_json(change_document(random, event))
    limit = random.choice((documents.MAX_BODY_BYTES, documents.MAX_BODY_BYTES, 600, 200))
    return pack({"proof": proof, "limit": limit, "event": event}, b"")


def _run_request(data: bytes) -> str:
    given, _ = unpack(data)
    event, limit, queued = given["event"], given["limit"], list[str]()
    if not isinstance(event, dict):
        return "no event"
    try:
        request = HttpRequest.of_event(event)
    except ValueError:  # documented: the function's invocation fails
        return "refused: no HTTP event"
    receiver = Receiver(
        tuple(_PROOFS[given["proof"]]), queued.append, Clock(wall=lambda: _NOW), message_bytes=limit
    )

    answer = receiver.answer(request)

    assert answer.status in {200, 403, 405, 413, 503}
    assert json.dumps({"body": answer.body}).encode()
    assert all(len(body.encode("utf-8", "surrogatepass")) <= limit for body in queued)
    assert answer.status == 200 or not queued, "refused, and yet on the queue"
    for body in queued:
        assert not UNSENDABLE.search(body), "the queue takes it"
        parse_notification(body)
    return f"{answer.status}{' queued' if queued else ''}"


NOTIFICATIONS = Target("notifications", 34, _notification, _run_notification)
REQUESTS = Target("requests", 24, _request, _run_request)
