"""The `Publish` operation of the SNS API, as StorageGRID uses it.

Source: SNS API reference 2010-03-31, Publish; the query protocol's error response.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

NAMESPACE = "http://sns.amazonaws.com/doc/2010-03-31/"
CONTENT_TYPE = "text/xml"

# Ten message attributes of three fields each, and about ten fields of Publish itself.
MAX_FIELDS = 100

_BLANK = "\ufeff \t\r\n"


@dataclass(frozen=True, slots=True)
class Publication:
    """A published message. `topic` is the URN that is configured in the StorageGRID endpoint."""

    topic: str
    message: str

    @property
    def probe(self) -> bool:
        """Whether this is StorageGRID's test of the endpoint: plain text that is not JSON.

        Text that starts like a document but is not one is a truncated document.
        """
        return not self.message.lstrip(_BLANK).startswith(("{", "["))


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
        f'<PublishResponse xmlns="{NAMESPACE}">'
        f"<PublishResult><MessageId>{message}</MessageId></PublishResult>"
        f"<ResponseMetadata><RequestId>{request}</RequestId></ResponseMetadata>"
        "</PublishResponse>"
    )


def refused(code: str, why: str) -> str:
    """Return the response to a failed request; the sender's client shows `why`."""
    return (
        f'<ErrorResponse xmlns="{NAMESPACE}">'
        f"<Error><Code>{escape(code)}</Code><Message>{escape(why)}</Message></Error>"
        "</ErrorResponse>"
    )
