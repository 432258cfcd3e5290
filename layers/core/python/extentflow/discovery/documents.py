"""JSON documents: strict parsing, optional values, and wrapping for the arrivals queue.

Strict: no NaN, no lone surrogates, limited nesting, because parts are written again. An optional
value is of its type or None: the planner reads all of them from the store, so a missing or invalid
one is ignored.

The receiver wraps what it sends; other sources (S3, EventBridge, SNS) send theirs unwrapped:

    {"v": 1, "source": "http", "endpoint": E, "body": "<the document as it was sent>"}
    {"v": 1, "source": "http", "endpoint": E, "base64": "<the same, if it is not text>"}

A body is ASCII, because SQS rejects some characters and its limit counts bytes. A document over the
limit is split by the entries of its `Records`.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from extentflow.errors import Permanent

SOURCE = "http"

# SQS accepts 256 KiB including the message's attributes; 8 KiB are reserved for those.
MAX_BODY_BYTES = 248 * 1024


class TooLarge(Permanent):
    """A document exceeds the queue's limit and has no entries to split."""


def wrapped(document: bytes, endpoint: str | None) -> str:
    """Return the queue body of a document from the source at `endpoint`."""
    message: dict[str, Any] = {"v": 1, "source": SOURCE, "endpoint": endpoint}
    try:
        message["body"] = document.decode()
    except UnicodeDecodeError:
        message["base64"] = base64.b64encode(document).decode()
    return json.dumps(message, separators=(",", ":"))


def unwrapped(body: Mapping[str, Any]) -> tuple[bytes, str | None]:
    """Return the document in a queue body, and its endpoint. Raises ValueError if damaged."""
    match body:
        case {"v": 1, "endpoint": str() | None as endpoint, "body": str(text)}:
            return text.encode(), endpoint
        case {"v": 1, "endpoint": str() | None as endpoint, "base64": str(text)}:
            return base64.b64decode(text, validate=True), endpoint
        case _:
            raise ValueError(f"a receiver's message of version {body.get('v')!a}, expected 1")


def bodies(document: bytes, endpoint: str | None, *, limit: int = MAX_BODY_BYTES) -> list[str]:
    """Return the queue bodies of a document: one, or one per part of its `Records`.

    Raises TooLarge if a body would exceed `limit` bytes.
    """
    whole = wrapped(document, endpoint)
    if len(whole) <= limit:
        return [whole]
    try:
        found = load(document)
    except ValueError as exc:
        raise TooLarge(f"{len(document)} bytes that are no JSON fit no message") from exc
    records = found.get("Records") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(records, list):
        raise TooLarge(f"{len(document)} bytes without Records fit no message")
    whole = wrapped(dump(found), endpoint)
    if len(whole) <= limit:
        return [whole]
    if len(records) <= 1:
        raise TooLarge(f"an entry of Records needs a message of {len(whole)} bytes, over {limit}")
    middle = len(records) // 2
    halves = [dump({**found, "Records": half}) for half in (records[:middle], records[middle:])]
    return [body for half in halves for body in bodies(half, endpoint, limit=limit)]


def load(text: str | bytes) -> object:
    """Return the document. Raises ValueError if it is not JSON, or nested too deep."""
    document = orjson.loads(text)
    try:
        orjson.dumps(document)
    except orjson.JSONEncodeError as exc:
        raise ValueError(f"JSON that cannot be written again: {exc}") from exc
    return document


def dump(document: object) -> bytes:
    """Return the compact JSON of a document, or of a part of one, that `load` returned."""
    return orjson.dumps(document)


def text(value: object) -> str | None:
    """Return a string that is not empty."""
    return value if isinstance(value, str) and value else None


def version_id(value: object) -> str | None:
    """Return a version id. "null" is no pin: the next upload replaces that version."""
    return None if value == "null" else text(value)


def etag(value: object) -> str | None:
    """Return an ETag without its quotes, which some servers send along."""
    return text(value.strip('"')) if isinstance(value, str) else None


def size(value: object) -> int | None:
    """Return a size in bytes."""
    return value if type(value) is int and value >= 0 else None


def seconds(value: object) -> float | None:
    """Return seconds since 1970."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def moment(value: object) -> float | None:
    """Return an ISO 8601 time as seconds since 1970; without a zone it is UTC."""
    try:
        when = datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
