"""Parse notifications: find the dialect of a document inside its envelopes.

    Records[]    aws:sqs ─> body       aws:s3, sgws:s3, minio:s3, ceph:s3 ... ─> an entry
    EventBridge  source aws.s3         SNS envelope    Type Notification ─> Message
    test event   s3:TestEvent          receiver        source http ─> body
    events[]     b2:ObjectCreated:...
    HTTP event   requestContext.http ─> body           Publish form ─> Message
    our own      source arrival        our own, unwrapped only   source backfill

Each envelope may contain any other. An entry that matches no line is an `UnparseableNotification`;
the other entries of its list are parsed. A backfill is accepted unwrapped only, so that no sender
of notifications can submit one.

Entries of `Records` are those of AWS S3 and StorageGRID, of eventVersion 2.x, whose minor versions
only add fields. Their key is form-encoded: a space is "+", a plus sign "%2B". StorageGRID differs:
no awsRegion, versionId may be missing, its own ARN (not parsed; the bucket's name is beside it),
times in whole seconds. EventBridge does not encode keys.

Other servers send the same entries with an eventSource of their own: `minio:s3` encodes keys, and
`ceph:s3`, `vast:s3` and others do not say whether they do. Of such a source, a key that decoding
changes becomes two arrivals, one for each reading: an arrival without an object is no error.
Backblaze B2 has a form of its own, whose names are not encoded.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any
from urllib.parse import unquote_plus

from extentflow.discovery import Arrival, Dialect, documents
from extentflow.errors import Permanent
from extentflow.http import requests
from extentflow.http.requests import HttpRequest
from extentflow.queue import UNSENDABLE, Backfill

log = logging.getLogger(__name__)

_ENCODED_SOURCES = {
    "aws:s3": Dialect.AWS,
    "sgws:s3": Dialect.STORAGEGRID,
    "minio:s3": Dialect.S3_COMPATIBLE,
}
_OTHER_SOURCE = re.compile(r"[A-Za-z0-9._-]+:(?i:s3)")
_B2_CREATED = "b2:ObjectCreated:"
_B2_TEST = "b2:TestEvent"
_RECORD_VERSION = "2"
# Ceph's zones announce what they copied from others as synced.
_RECORD_CREATED = re.compile(r"(?i)ObjectCreated\b|ObjectSynced:Create\b")
EXCERPT_CHARACTERS = 200
MAX_WRAPPINGS = 8
UNWRAPPED = MAX_WRAPPINGS - 1  # how many wrappings a body itself has left


class UnparseableNotification(Permanent):
    """A document, or a part of one, that no dialect explains.

    `document` is a body for the arrivals queue, so a later version can process it after a replay.
    `why` is what was expected.
    """

    def __init__(self, why: str, document: str) -> None:
        super().__init__(why, document)
        self.why = why
        self.document = document

    def __str__(self) -> str:
        begins = self.document[:EXCERPT_CHARACTERS]
        return (
            f"notification not understood: {self.why}; it begins with {begins!a}. If it announces "
            "an object, deliver that with `extentflow submit s3://bucket/key`"
        )


@dataclass(frozen=True, slots=True)
class ParsedNotification:
    """The complete content of one document.

    `ignored` are names of events without a new object, `tests` the bucket or topic of each test
    message. A caller that processes `arrivals` must dead-letter `unparseable`. `backfills` come
    from the command line only.
    """

    arrivals: tuple[Arrival, ...] = ()
    ignored: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    unparseable: tuple[UnparseableNotification, ...] = ()
    backfills: tuple[Backfill, ...] = ()

    @classmethod
    def merged(cls, parts: Iterable[ParsedNotification]) -> ParsedNotification:
        """Return the content of all parts, in their order."""
        every = tuple(parts)
        names = [field.name for field in fields(cls)]
        return cls(**{name: tuple(chain(*(getattr(one, name) for one in every))) for name in names})


def parse_notification(body: str) -> ParsedNotification:
    """Return what a queue body says: of every origin, in every dialect.

    Also reads an event of an HTTP front door or of SQS for a function, and a bare form. Never
    raises: a part that cannot be parsed is in `unparseable`. Never empty: a document without an
    event counts as a test message of its sender.
    """
    parsed = _parse(body, MAX_WRAPPINGS)
    return replace(parsed, unparseable=tuple(_sendable(one, body) for one in parsed.unparseable))


def _sendable(unread: UnparseableNotification, body: str) -> UnparseableNotification:
    # What stood escaped in a wrapping may be a character that no queue takes. A backfill that
    # came in one must not be accepted when its dead letter is moved back.
    unwrapped = unread.document != body and _is_backfill(unread.document)
    if unwrapped or UNSENDABLE.search(unread.document):
        return _rewrapped(unread, None)
    return unread


def _is_backfill(text: str) -> bool:
    try:
        document = documents.load(text)
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("source") == Backfill.MESSAGE_SOURCE


def _parse(text: str, wrappings: int) -> ParsedNotification:
    """Parse a document that may contain `wrappings` further ones; the functions below raise."""
    try:
        return _of_text(text, wrappings - 1)
    except ValueError as exc:
        return _unparseable(str(exc), text)


def _unparseable(why: str, document: str) -> ParsedNotification:
    return ParsedNotification(unparseable=(UnparseableNotification(why, document),))


def _of_text(text: str, wrappings: int) -> ParsedNotification:
    if wrappings < 0:
        raise ValueError(f"wrapped more than {MAX_WRAPPINGS} times")
    try:
        document = documents.load(text)
    except ValueError as exc:
        published = requests.publication(text.encode("utf-8", "surrogatepass"))
        if published is None:
            raise ValueError(f"neither JSON nor an SNS Publish request ({exc})") from exc
        return _tested(published.topic) if published.probe else _parse(published.message, wrappings)
    match document:
        case dict() if wrappings == UNWRAPPED and document.get("source") == Backfill.MESSAGE_SOURCE:
            return ParsedNotification(backfills=(Backfill.from_message(document),))
        case dict():
            return _of_object(document, wrappings)
        case _:
            raise ValueError("JSON, but no object")


def _of_object(document: Mapping[str, Any], wrappings: int) -> ParsedNotification:
    match document:
        case {"Records": []}:
            return _tested("an empty list of Records")
        case {"Records": list(entries)}:
            return ParsedNotification.merged(_of_entry(entry, wrappings) for entry in entries)
        case {"Type": "Notification", "Message": str(message)}:
            return _parse(message, wrappings)
        case {"requestContext": {"http": dict()}}:
            return _of_request(document, wrappings)
        case {"source": documents.SOURCE}:
            return _of_message(document, wrappings)
        case _:
            return _of_event(document)


def _of_event(event: Mapping[str, Any]) -> ParsedNotification:
    match event:
        case {"events": list(entries)} if entries:
            return ParsedNotification.merged(map(_of_b2_event, entries))
        case {"source": "aws.s3"}:
            return _read_event(event)
        case {"source": Arrival.MESSAGE_SOURCE}:
            return ParsedNotification(arrivals=(Arrival.from_message(event),))
        case {"Event": "s3:TestEvent"}:
            return _tested(str(event.get("Bucket", "")))
        case _:
            raise ValueError("JSON of no known dialect")


def _of_entry(entry: object, wrappings: int) -> ParsedNotification:
    try:
        match entry:
            case {"eventSource": "aws:sqs", "body": str(body)}:
                return _parse(body, wrappings)
            case dict():
                return _read_record(entry)
            case _:
                why = "an entry of Records that is no object"
    except ValueError as exc:
        why = str(exc)
    return _unparseable(why, documents.dump({"Records": [entry]}).decode())


def _of_message(message: Mapping[str, Any], wrappings: int) -> ParsedNotification:
    document, endpoint = documents.unwrapped(message)
    parsed = _parse(document.decode(), wrappings)
    # The wrapping was written behind the receiver's checks; whatever a sender claims inside is not.
    return replace(
        parsed,
        arrivals=tuple(replace(one, endpoint=endpoint) for one in parsed.arrivals),
        unparseable=tuple(_rewrapped(one, endpoint) for one in parsed.unparseable),
    )


def _rewrapped(unread: UnparseableNotification, endpoint: str | None) -> UnparseableNotification:
    document = unread.document.encode("utf-8", "surrogatepass")
    return UnparseableNotification(unread.why, documents.wrapped(document, endpoint))


def _of_request(event: Mapping[str, Any], wrappings: int) -> ParsedNotification:
    try:
        body = HttpRequest.of_event(event).payload().decode()
    except ValueError as exc:
        raise ValueError(f"an HTTP event whose body is no text ({exc})") from exc
    return _parse(body, wrappings) if body.strip() else _tested("an empty request")


def _tested(origin: str) -> ParsedNotification:
    log.info("test message from %r", origin)
    return ParsedNotification(tests=(origin,))


def _read_record(record: Mapping[str, Any]) -> ParsedNotification:
    """Return the arrival of an entry of `Records`, or the ignored event name."""
    match record:
        case {"eventSource": str(source), "eventVersion": str(version), "eventName": str(name)}:
            name = re.sub(r"(?i)\As3:", "", name)
        case _:
            raise ValueError("an entry of Records without eventSource, eventVersion, eventName")
    if not _OTHER_SOURCE.fullmatch(source):
        raise ValueError(f"eventSource {source!a}, expected aws:s3, or that of another S3 server")
    if version.partition(".")[0] != _RECORD_VERSION:
        raise ValueError(f"eventVersion {version!a}, expected {_RECORD_VERSION}.x")
    if not _RECORD_CREATED.match(name):
        log.debug("ignored %r of %r", name, record.get("s3"))
        return ParsedNotification(ignored=(name,))
    match record:
        case {"s3": {"bucket": {"name": str(bucket)}, "object": {"key": str(key), **found}}} if (
            bucket and key
        ):
            dialect = _ENCODED_SOURCES.get(source.lower())
            names = _readings(key) if dialect is None else [_decoded(key)]
            one = dialect or Dialect.S3_COMPATIBLE
            return ParsedNotification.merged(
                _created(one, bucket, name, found, record) for name in names
            )
        case _:
            raise ValueError("no s3.bucket.name or no s3.object.key")


def _decoded(key: str) -> str:
    try:
        return unquote_plus(key, errors="strict")
    except UnicodeDecodeError as exc:
        raise ValueError(f"the key {key!a} does not decode to UTF-8") from exc


def _readings(key: str) -> list[str]:
    """Return the keys that a text may mean: as it is, and decoded."""
    found = [key]
    with suppress(ValueError):  # the text is no encoded key
        found.append(_decoded(key))
    return list(dict.fromkeys(found))


def _of_b2_event(event: object) -> ParsedNotification:
    """Return the arrival of an event of Backblaze B2, or the ignored name."""
    match event:
        case {
            "eventType": str(name),
            "bucketName": str(bucket),
            "objectName": str(key),
            **found,
        } if name.startswith(_B2_CREATED) and bucket and key:
            milliseconds = documents.seconds(found.get("eventTimestamp"))
            arrival = Arrival(
                bucket=bucket,
                key=key,
                dialect=Dialect.BACKBLAZE,
                version_id=documents.version_id(found.get("objectVersionId")),
                size=documents.size(found.get("objectSize")),
                event_time=None if milliseconds is None else milliseconds / 1000,
            )
            return ParsedNotification(arrivals=(arrival,))
        case {"eventType": str(name), **found} if name.startswith(_B2_TEST):
            return _tested(str(found.get("bucketName", "")))
        case {"eventType": str(name)} if not name.startswith(_B2_CREATED):
            log.debug("ignored %r", name)
            return ParsedNotification(ignored=(name,))
        case _:
            why = "an entry of events without eventType, bucketName, objectName"
    return _unparseable(why, documents.dump({"events": [event]}).decode())


def _read_event(event: Mapping[str, Any]) -> ParsedNotification:
    """Return the arrival of an event of EventBridge, or the ignored detail type."""
    match event:
        case {
            "detail-type": "Object Created",
            "detail": {"bucket": {"name": str(bucket)}, "object": {"key": str(key), **found}},
        } if bucket and key:
            return _created(Dialect.EVENTBRIDGE, bucket, key, found, event)
        case {"detail-type": str(name)} if name != "Object Created":
            log.debug("ignored %r of %r", name, event.get("detail"))
            return ParsedNotification(ignored=(name,))
        case _:
            raise ValueError(
                "an EventBridge event without detail-type, detail.bucket.name, detail.object.key"
            )


def _created(
    dialect: Dialect, bucket: str, key: str, found: Mapping[Any, Any], event: Mapping[str, Any]
) -> ParsedNotification:
    """Return an arrival with what `event` says about the object, and in it the `found` part.

    Names are those of `Records` or of EventBridge; some emulators mix them. The region counts only
    of AWS: other servers name a zone of their own.
    """
    regional = dialect in {Dialect.AWS, Dialect.EVENTBRIDGE}
    region = event.get("awsRegion", event.get("region")) if regional else None
    arrival = Arrival(
        bucket=bucket,
        key=key,
        dialect=dialect,
        version_id=documents.version_id(found.get("version-id", found.get("versionId"))),
        etag=documents.etag(found.get("etag", found.get("eTag"))),
        size=documents.size(found.get("size")),
        sequencer=documents.text(found.get("sequencer")),
        event_time=documents.moment(event.get("eventTime", event.get("time"))),
        region=documents.text(region),
    )
    return ParsedNotification(arrivals=(arrival,))
