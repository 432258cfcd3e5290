"""An event of S3 through EventBridge.

Owns: its fields. Refuses to know: what the event arrived in. Its key is exact, not encoded. There
is no test event.
"""

import logging
from collections.abc import Mapping
from typing import Any

from extentflow.discovery import Arrival, Dialect, documents, hints
from extentflow.discovery.news import ParsedNotification, UnparseableNotification

log = logging.getLogger(__name__)

SOURCE = "aws.s3"
CREATED = "Object Created"


def read(event: Mapping[str, Any]) -> ParsedNotification:
    """Return the arrival that an event announces, or the detail type that is ignored.

    Raises:
        UnparseableNotification: no detail type, or no bucket and key where they should be.
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
                # Some emulators write it as direct notifications do.
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
