"""An HTTP request and its response, and the `Publish` operation of the SNS API.

StorageGRID sends notifications by Publish. Source: SNS API reference 2010-03-31, Publish; the query
protocol's error response.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import parse_qs, quote, unquote_plus, urlencode
from xml.sax.saxutils import escape

NAMESPACE = "http://sns.amazonaws.com/doc/2010-03-31/"
CONTENT_TYPE = "text/xml"
# Ten message attributes of three fields each, and about ten fields of Publish itself.
MAX_FIELDS = 100
# The largest body that the receiver takes.
MAX_REQUEST_BYTES = 1 << 20
_BLANK = "\ufeff \t\r\n"


@dataclass(frozen=True, slots=True)
class Publication:
    """A published message. `topic` is the URN that is configured in the StorageGRID endpoint."""

    topic: str
    message: str

    @property
    def probe(self) -> bool:
        """Whether this is StorageGRID's test of the endpoint: it does not start like JSON.

        Neither does JSON that was encoded twice, which is no test: the planner dead-letters it.
        """
        texts = (self.message, unquote_plus(self.message))
        return not any(text.lstrip(_BLANK).startswith(("{", "[")) for text in texts)


def publication(body: bytes) -> Publication | None:
    """Return the message in a form; None if the body is not such a form."""
    try:
        fields = parse_qs(
            body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"
        )
    except ValueError:  # not UTF-8, or another form
        return None
    match fields:
        case {"Action": ["Publish"], "Message": [message]}:
            return Publication(topic=fields.get("TopicArn", [""])[0], message=message)
        case _:
            return None


def accepted(body: bytes) -> str:
    """Return the response to a Publish. The ids are a digest of the body, equal for retries."""
    digest = hashlib.sha256(body).digest()
    message, request = uuid.UUID(bytes=digest[:16]), uuid.UUID(bytes=digest[16:])
    return (
        f'<PublishResponse xmlns="{NAMESPACE}"><PublishResult><MessageId>{message}</MessageId>'
        f"</PublishResult><ResponseMetadata><RequestId>{request}</RequestId></ResponseMetadata>"
        "</PublishResponse>"
    )


def refused(code: str, why: str) -> str:
    """Return the response to a failed request; the sender's client shows `why`."""
    return (
        f'<ErrorResponse xmlns="{NAMESPACE}">'
        f"<Error><Code>{escape(code)}</Code><Message>{escape(why)}</Message></Error>"
        "</ErrorResponse>"
    )


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. `path` and `query` are as sent, with percent-encoding.

    `is_base64` means that the gateway encoded `body`, as AWS does for non-text types, forms
    included. `payload` is the body that the sender sent and signed.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    is_base64: bool = False
    query: str = ""

    def payload(self) -> bytes:
        """Return the body as it was sent. Raises ValueError if its base64 is none."""
        if not self.is_base64:
            return self.body
        try:
            return base64.b64decode(self.body, validate=True)
        except binascii.Error as exc:
            raise ValueError(f"the front door's base64 does not decode: {exc}") from exc

    def header(self, name: str) -> str | None:
        """Return a header's value; names are case-insensitive."""
        return next((value for key, value in self.headers.items() if key.lower() == name), None)

    @classmethod
    def of_event(cls, event: Mapping[str, Any]) -> Self:
        """Return the request in an event of format 1.0 or 2.0. Raises ValueError for others."""
        body, headers = event.get("body") or "", event.get("headers") or {}
        queries = event.get("multiValueQueryStringParameters") or {}
        ok = isinstance(body, str) and isinstance(headers, Mapping) and isinstance(queries, Mapping)
        match event:
            case {"httpMethod": str(method), "requestContext": {"path": str(path)}} if ok:
                # Format 1.0, of REST APIs: the path begins with their stage, which senders sign.
                query = urlencode(queries, doseq=True, quote_via=quote)
            case {"requestContext": {"http": {"method": str(method)}}, "rawPath": str(path)} if ok:
                query = str(event.get("rawQueryString") or "")
            case _:
                raise ValueError("not an HTTP event of payload format 1.0 or 2.0")
        return cls(
            method=method.upper(),
            path=path,
            headers={str(name): str(value) for name, value in headers.items()},
            # JSON can contain escaped lone surrogates; they are not an error here.
            body=body.encode("utf-8", "surrogatepass"),
            is_base64=event.get("isBase64Encoded") is True,
            query=query,
        )


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response. A status below 300 means: stored, or nothing to store.

    `proven`: the sender's proof was right, so that its connection may continue.
    """

    status: int
    content_type: str
    body: str
    proven: bool = False
