"""`Publish` of the SNS API, as far as StorageGRID speaks it.

Owns: the form's fields, the XML of answers. Refuses to know: signatures, what messages say.
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

# Ten message attributes of three fields each are allowed, and some ten fields of Publish itself.
MAX_FIELDS = 100

_BLANK = "\ufeff \t\r\n"


@dataclass(frozen=True, slots=True)
class Publication:
    """A published message. `topic` is the URN that the grid's endpoint was given."""

    topic: str
    message: str

    @property
    def probe(self) -> bool:
        """Whether this is the grid's own test of the endpoint: plain words, no attempt at JSON.

        What begins like a document and is none was one before something cut it.
        """
        return not self.message.lstrip(_BLANK).startswith(("{", "["))


def publication(body: bytes) -> Publication | None:
    """Return the message that a form publishes; None when the body is no such form."""
    try:
        fields = parse_qs(
            body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"
        )
    except ValueError:  # not UTF-8, or a form of something else
        return None
    match fields:
        case {"Action": ["Publish"], "Message": [message]}:
            return Publication(topic=fields.get("TopicArn", [""])[0], message=message)
        case _:
            return None


def accepted(body: bytes) -> str:
    """Return the answer to a Publish. The ids are a digest of the body: a retry gets them again."""
    digest = hashlib.sha256(body).digest()
    message, request = uuid.UUID(bytes=digest[:16]), uuid.UUID(bytes=digest[16:])
    return (
        f'<PublishResponse xmlns="{NAMESPACE}">'
        f"<PublishResult><MessageId>{message}</MessageId></PublishResult>"
        f"<ResponseMetadata><RequestId>{request}</RequestId></ResponseMetadata>"
        "</PublishResponse>"
    )


def refused(code: str, why: str) -> str:
    """Return the answer to a request that failed; `why` is shown by the sender's client."""
    return (
        f'<ErrorResponse xmlns="{NAMESPACE}">'
        f"<Error><Code>{escape(code)}</Code><Message>{escape(why)}</Message></Error>"
        "</ErrorResponse>"
    )
