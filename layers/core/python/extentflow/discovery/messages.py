"""Bodies on the arrivals queue that came in through the receiver.

Owns: their wrapping, their size. Refuses to know: dialects, the queue.

    {"v": 1, "source": "http", "endpoint": E, "body": "<the document as it was sent>"}
    {"v": 1, "source": "http", "endpoint": E, "base64": "<the same, where it is no text>"}

Other origins (S3, EventBridge, SNS) put their documents on the queue unwrapped. A body is ASCII:
SQS refuses some characters, and its limit counts bytes. A document over the limit goes in several,
by the entries of its `Records`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from extentflow.discovery import documents
from extentflow.errors import Permanent

VERSION = 1
SOURCE = "http"

# SQS takes 256 KiB with the message's attributes; 8 KiB are left for those.
MAX_BODY_BYTES = 248 * 1024


_REFUSED = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class TooLarge(Permanent):
    """A document exceeds the queue's limit and has no list of entries to be split by."""


def wrapped(document: bytes, endpoint: str | None) -> str:
    """Return the queue body for a document that the source at `endpoint` sent."""
    head: dict[str, Any] = {"v": VERSION, "source": SOURCE, "endpoint": endpoint}
    try:
        content = {"body": document.decode()}
    except UnicodeDecodeError:
        content = {"base64": base64.b64encode(document).decode()}
    return json.dumps({**head, **content}, separators=(",", ":"))


def sendable(body: str) -> bool:
    """Return whether SQS takes every character of a body, as XML 1.0 would."""
    return _REFUSED.search(body) is None


def unwrapped(body: Mapping[str, Any]) -> tuple[bytes, str | None]:
    """Return the document in a queue body, and its endpoint.

    Raises:
        ValueError: another version of the wrapping, or it is damaged.
    """
    match body:
        case {"v": 1, "endpoint": str() | None as endpoint, "body": str(text)}:
            return text.encode(), endpoint
        case {"v": 1, "endpoint": str() | None as endpoint, "base64": str(text)}:
            return base64.b64decode(text, validate=True), endpoint
        case _:
            raise ValueError(f"a receiver's message of version {body.get('v')!a}, expected 1")


def bodies(document: bytes, endpoint: str | None, *, limit: int = MAX_BODY_BYTES) -> list[str]:
    """Return the queue bodies that carry a document: one, or one per part of its `Records`.

    Raises:
        TooLarge: a body would exceed `limit` bytes, whatever is split.
    """
    whole = wrapped(document, endpoint)
    if len(whole) <= limit:
        return [whole]
    return list(_halved(_splittable(document), endpoint, limit))


def _splittable(document: bytes) -> dict[str, Any]:
    try:
        found = documents.load(document)
    except ValueError as exc:
        raise TooLarge(f"{len(document)} bytes that are no JSON fit no message") from exc
    if not isinstance(found, dict) or not isinstance(found.get("Records"), list):
        raise TooLarge(f"{len(document)} bytes without Records fit no message")
    return found


def _halved(document: dict[str, Any], endpoint: str | None, limit: int) -> Iterator[str]:
    body = wrapped(documents.dump(document), endpoint)
    records = document["Records"]
    if len(body) <= limit:
        yield body
    elif len(records) > 1:
        middle = len(records) // 2
        yield from _halved({**document, "Records": records[:middle]}, endpoint, limit)
        yield from _halved({**document, "Records": records[middle:]}, endpoint, limit)
    else:
        raise TooLarge(f"an entry of Records needs a message of {len(body)} bytes, over {limit}")
