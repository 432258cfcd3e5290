"""Parse S3 events from EventBridge; their keys are not encoded."""

import logging
from collections.abc import Mapping
from typing import Any

from extentflow.discovery import Arrival, Dialect, documents, hints
from extentflow.discovery.parsed import ParsedNotification, UnparseableNotification

log = logging.getLogger(__name__)

SOURCE = "aws.s3"
CREATED = "Object Created"


def read(event: Mapping[str, Any]) -> ParsedNotification:
    """Return the arrival of an event, or the ignored detail type.

    Raises:
        UnparseableNotification: no detail type, or no bucket and key.
    """
    match event:
        case {
            "detail-type": "Object Created",
            "detail": {"bucket": {"name": str(bucket)}, "object": {"key": str(key), **found}},
        } if bucket and key:
            arrival = Arrival(
                bucket=bucket,
                key=key,
                dialect=Dialect.EVENTBRIDGE,
                version_id=hints.version_id(found.get("version-id")),
                # Some emulators write the field as in direct notifications.
                etag=hints.etag(found.get("etag", found.get("eTag"))),
                size=hints.size(found.get("size")),
                sequencer=hints.text(found.get("sequencer")),
                event_time=hints.moment(event.get("time")),
                region=hints.text(event.get("region")),
            )
            return ParsedNotification(arrivals=(arrival,))
        case {"detail-type": str(name)} if name != CREATED:
            log.debug("ignored %r of %r", name, event.get("detail"))
            return ParsedNotification(ignored=(name,))
        case _:
            why = "an EventBridge event without detail-type, detail.bucket.name, detail.object.key"
            raise UnparseableNotification(why, documents.dump(event).decode())
