"""Bodies of the arrivals queue that the receiver sent.

    {"v": 1, "source": "http", "endpoint": E, "body": "<the document as it was sent>"}
    {"v": 1, "source": "http", "endpoint": E, "base64": "<the same, if it is not text>"}

Other sources (S3, EventBridge, SNS) send their documents unwrapped. A body is ASCII, because SQS
rejects some characters and its limit counts bytes. A document over the limit is split by the
entries of its `Records`.
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

# SQS accepts 256 KiB including the message's attributes; 8 KiB are reserved for those.
MAX_BODY_BYTES = 248 * 1024


_REFUSED = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class TooLarge(Permanent):
    """A document exceeds the queue's limit and has no entries to split."""


def wrapped(document: bytes, endpoint: str | None) -> str:
    """Return the queue body of a document from the source at `endpoint`."""
    head: dict[str, Any] = {"v": VERSION, "source": SOURCE, "endpoint": endpoint}
    try:
        content = {"body": document.decode()}
    except UnicodeDecodeError:
        content = {"base64": base64.b64encode(document).decode()}
    return json.dumps({**head, **content}, separators=(",", ":"))


def sendable(body: str) -> bool:
    """Return whether SQS accepts every character of a body (XML 1.0)."""
    return _REFUSED.search(body) is None


def unwrapped(body: Mapping[str, Any]) -> tuple[bytes, str | None]:
    """Return the document in a queue body, and its endpoint.

    Raises:
        ValueError: another version, or it is damaged.
    """
    match body:
        case {"v": 1, "endpoint": str() | None as endpoint, "body": str(text)}:
            return text.encode(), endpoint
        case {"v": 1, "endpoint": str() | None as endpoint, "base64": str(text)}:
            return base64.b64decode(text, validate=True), endpoint
        case _:
            raise ValueError(f"a receiver's message of version {body.get('v')!a}, expected 1")


def bodies(document: bytes, endpoint: str | None, *, limit: int = MAX_BODY_BYTES) -> list[str]:
    """Return the queue bodies of a document: one, or one per part of its `Records`.

    Raises:
        TooLarge: a body would exceed `limit` bytes.
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
