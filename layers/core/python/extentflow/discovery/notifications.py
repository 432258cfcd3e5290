"""Parse notifications: find the dialect of a document inside its envelopes.

    Records[]    aws:sqs ─> body       aws:s3, sgws:s3 ─> an entry
    EventBridge  source aws.s3         SNS envelope    Type Notification ─> Message
    test event   s3:TestEvent          receiver        source http ─> body
    HTTP event   requestContext.http ─> body           Publish form ─> Message
    our own      source arrival        our own, unwrapped only   source backfill

Each envelope may contain any other. An entry that matches no line is an `UnparseableNotification`;
the other entries of its list are parsed. A backfill is accepted unwrapped only, so that no sender
of notifications can submit one.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from extentflow.discovery import Arrival, documents, eventbridge, messages, records, sns_api
from extentflow.discovery.parsed import ParsedNotification, UnparseableNotification
from extentflow.discovery.request import HttpRequest
from extentflow.queue.backfill import Backfill

log = logging.getLogger(__name__)

MAX_WRAPPINGS = 8
UNWRAPPED = MAX_WRAPPINGS - 1  # how many wrappings a body itself has left


def parse_notification(body: str) -> ParsedNotification:
    """Return what a queue body says: of every origin, in every dialect.

    Also reads an event of an HTTP front door or of SQS for a function, and a bare form. Never
    raises: a part that cannot be parsed is in `unreadable`. Never empty: a document without an
    event counts as a test message of its sender.
    """
    parsed = _parse(body, MAX_WRAPPINGS)
    return replace(parsed, unreadable=tuple(_sendable(one) for one in parsed.unreadable))


def _sendable(unread: UnparseableNotification) -> UnparseableNotification:
    # What stood escaped in a wrapping may be a character that no queue takes.
    if messages.sendable(unread.document):
        return unread
    return _rewrapped(unread, None)


def _parse(text: str, wrappings: int) -> ParsedNotification:
    try:
        return _of_text(text, wrappings - 1)
    except UnparseableNotification as exc:
        return ParsedNotification(unreadable=(exc,))


def _of_text(text: str, wrappings: int) -> ParsedNotification:
    if wrappings < 0:
        raise UnparseableNotification(f"wrapped more than {MAX_WRAPPINGS} times", text)
    try:
        document = documents.load(text)
    except ValueError as exc:
        published = sns_api.publication(text.encode("utf-8", "surrogatepass"))
        if published is None:
            raise UnparseableNotification(f"neither JSON nor a Publish form ({exc})", text) from exc
        return _of_publication(published, wrappings)
    if not isinstance(document, dict):
        raise UnparseableNotification("JSON, but no object", text)
    if wrappings == UNWRAPPED and document.get("source") == Backfill.MESSAGE_SOURCE:
        return _of_backfill(document, text)
    return _of_object(document, text, wrappings)


def _of_publication(published: sns_api.Publication, wrappings: int) -> ParsedNotification:
    if published.probe:
        return _tested(published.topic)
    return _parse(published.message, wrappings)


def _of_object(document: Mapping[str, Any], text: str, wrappings: int) -> ParsedNotification:
    match document:
        case {"Records": []}:
            return _tested("an empty list of Records")
        case {"Records": list(entries)}:
            return ParsedNotification.merged(_of_entry(entry, wrappings) for entry in entries)
        case {"Type": "Notification", "Message": str(message)}:
            return _parse(message, wrappings)
        case {"requestContext": {"http": dict()}}:
            return _of_request(document, text, wrappings)
        case {"source": messages.SOURCE}:
            return _of_message(document, text, wrappings)
        case _:
            return _of_event(document, text)


def _of_event(event: Mapping[str, Any], text: str) -> ParsedNotification:
    match event:
        case {"source": eventbridge.SOURCE}:
            return eventbridge.read(event)
        case {"source": Arrival.MESSAGE_SOURCE}:
            return _of_arrival(event, text)
        case {"Event": "s3:TestEvent"}:
            return _tested(str(event.get("Bucket", "")))
        case _:
            raise UnparseableNotification("JSON of no known dialect", text)


def _of_entry(entry: object, wrappings: int) -> ParsedNotification:
    try:
        match entry:
            case {"eventSource": "aws:sqs", "body": str(body)}:
                return _parse(body, wrappings)
            case dict():
                return records.read(entry)
            case _:
                raise records.unreadable("an entry of Records that is no object", entry)
    except UnparseableNotification as exc:
        return ParsedNotification(unreadable=(exc,))


def _of_message(message: Mapping[str, Any], text: str, wrappings: int) -> ParsedNotification:
    try:
        document, endpoint = messages.unwrapped(message)
        parsed = _parse(document.decode(), wrappings)
    except ValueError as exc:
        raise UnparseableNotification(str(exc), text) from exc
    # The wrapping was written behind the receiver's checks; whatever a sender claims inside is not.
    return replace(
        parsed,
        arrivals=tuple(replace(one, endpoint=endpoint) for one in parsed.arrivals),
        unreadable=tuple(_rewrapped(one, endpoint) for one in parsed.unreadable),
    )


def _rewrapped(unread: UnparseableNotification, endpoint: str | None) -> UnparseableNotification:
    document = unread.document.encode("utf-8", "surrogatepass")
    return UnparseableNotification(unread.why, messages.wrapped(document, endpoint))


def _of_arrival(message: Mapping[str, Any], text: str) -> ParsedNotification:
    try:
        return ParsedNotification(arrivals=(Arrival.from_message(message),))
    except ValueError as exc:
        raise UnparseableNotification(str(exc), text) from exc


def _of_backfill(message: Mapping[str, Any], text: str) -> ParsedNotification:
    try:
        return ParsedNotification(backfills=(Backfill.from_message(message),))
    except ValueError as exc:
        raise UnparseableNotification(str(exc), text) from exc


def _of_request(event: Mapping[str, Any], text: str, wrappings: int) -> ParsedNotification:
    try:
        body = HttpRequest.of_event(event).payload().decode()
    except ValueError as exc:
        raise UnparseableNotification(f"an HTTP event whose body is no text ({exc})", text) from exc
    return _parse(body, wrappings) if body.strip() else _tested("an empty request")


def _tested(origin: str) -> ParsedNotification:
    log.info("test message from %r", origin)
    return ParsedNotification(tests=(origin,))
