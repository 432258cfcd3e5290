"""Parse one entry of `Records`, as AWS S3 and StorageGRID write it.

    eventSource   aws:s3 | sgws:s3     eventVersion  2.x: minor versions only add fields
    eventName     ObjectCreated:*      any other name has no new object
    s3.object.key                      form-encoded: a space is "+", a plus sign "%2B"

StorageGRID differs: no awsRegion, versionId may be missing, its own ARN (not parsed; the bucket's
name is beside it), times in whole seconds.
"""

import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus

from extentflow.discovery import Arrival, Dialect, documents, hints
from extentflow.discovery.parsed import ParsedNotification, UnparseableNotification

log = logging.getLogger(__name__)

SOURCES = {"aws:s3": Dialect.AWS, "sgws:s3": Dialect.STORAGEGRID}
VERSION = "2"
CREATED = "ObjectCreated:"


def read(record: Mapping[str, Any]) -> ParsedNotification:
    """Return the arrival of an entry, or the ignored event name.

    Raises:
        UnparseableNotification: another source or major version, or no bucket or key.
    """
    match record:
        case {"eventSource": str(source), "eventVersion": str(version), "eventName": str(name)}:
            _check(record, source, version)
            name = name.removeprefix("s3:")
            return _created(record, source) if name.startswith(CREATED) else _ignored(record, name)
        case _:
            why = "an entry of Records without eventSource, eventVersion, eventName"
            raise unreadable(why, record)


def unreadable(why: str, record: object) -> UnparseableNotification:
    """Return the error for one entry; its document is a list with that entry alone."""
    return UnparseableNotification(why, documents.dump({"Records": [record]}).decode())


def _check(record: Mapping[str, Any], source: str, version: str) -> None:
    if source not in SOURCES:
        raise unreadable(f"eventSource {source!a}, expected one of {', '.join(SOURCES)}", record)
    if version.partition(".")[0] != VERSION:
        raise unreadable(f"eventVersion {version!a}, expected {VERSION}.x", record)


def _created(record: Mapping[str, Any], source: str) -> ParsedNotification:
    match record:
        case {"s3": {"bucket": {"name": str(bucket)}, "object": {"key": str(key), **found}}} if (
            bucket and key
        ):
            arrival = Arrival(
                bucket=bucket,
                key=_exact(key, record),
                dialect=SOURCES[source],
                version_id=hints.version_id(found.get("versionId")),
                etag=hints.etag(found.get("eTag")),
                size=hints.size(found.get("size")),
                sequencer=hints.text(found.get("sequencer")),
                event_time=hints.moment(record.get("eventTime")),
                region=hints.text(record.get("awsRegion")),
            )
            return ParsedNotification(arrivals=(arrival,))
        case _:
            raise unreadable("no s3.bucket.name or no s3.object.key", record)


def _exact(key: str, record: Mapping[str, Any]) -> str:
    try:
        return unquote_plus(key, errors="strict")
    except UnicodeDecodeError as exc:
        raise unreadable(f"the key {key!a} does not decode to UTF-8", record) from exc


def _ignored(record: Mapping[str, Any], name: str) -> ParsedNotification:
    log.debug("ignored %r of %r", name, record.get("s3"))
    return ParsedNotification(ignored=(name,))
