"""Convert file changes of the S3 server's filer to S3 notifications.

    /buckets/B/in/a.csv                              key in/a.csv
    /buckets/B/in/a.csv.versions/v_<version id>      the same, in a versioned bucket
    /buckets/B/.uploads/..., /buckets/.system/...    multipart parts, internal files

A change contains a file before and after it. Changes of tags, of metadata and of "is the newest
version" do not move the data: an upload is a change after which the chunks differ.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_plus

from extentflow.model import ObjectVersion

_ROOT = "/buckets/"
_UPLOADS = ".uploads"
_VERSIONS = ".versions"
_ETAG = "Seaweed-X-Amz-ETag"
_VERSION = "Seaweed-X-Amz-Version-Id"
_DELETE_MARKER = "Seaweed-X-Amz-Delete-Marker"
_PARTS = "X-Seaweedfs-Multipart-Parts-Count"
_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Upload:
    """A new object version: number of parts (None: single PUT), time in ns since 1970."""

    version: ObjectVersion
    parts: int | None
    moment_ns: int


def upload_of(change: Mapping[str, Any]) -> Upload | None:
    """Return the upload of a file change, or None for any other change.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: the form of the change is unknown.
    """
    old, new = change["eventNotification"]["oldEntry"], change["eventNotification"]["newEntry"]
    if new is None or new["isDirectory"] or (old is not None and _data(old) == _data(new)):
        return None
    place = _place(f"{change['eventNotification']['newParentPath']}/{new['name']}", new)
    marks = _marks(new)
    if place is None or _DELETE_MARKER in marks:
        return None
    bucket, key = place
    version = ObjectVersion(
        bucket=bucket,
        key=key,
        version_id=marks.get(_VERSION),
        etag=marks.get(_ETAG) or base64.b64decode(new["attributes"]["md5"]).hex(),
        size=int(new["attributes"]["fileSize"]),
    )
    parts = marks.get(_PARTS)
    return Upload(version, int(parts) if parts else None, int(change["tsNs"]))


def notification(upload: Upload) -> str:
    """Return S3's notification of an upload, without a region."""
    version = upload.version
    moment = datetime.fromtimestamp(upload.moment_ns / _NANOSECONDS, UTC)
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventTime": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "eventName": f"ObjectCreated:{'CompleteMultipartUpload' if upload.parts else 'Put'}",
        "s3": {
            "s3SchemaVersion": "1.0",
            "bucket": {"name": version.bucket, "arn": f"arn:aws:s3:::{version.bucket}"},
            "object": {
                "key": quote_plus(version.key, safe="/"),
                "size": version.size,
                "eTag": version.etag,
                **({"versionId": version.version_id} if version.version_id else {}),
                "sequencer": f"{upload.moment_ns:016X}",
            },
        },
    }
    return json.dumps({"Records": [record]})


def documents(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the documents in indented JSON, each when its last line is complete."""
    found: list[str] = []
    for line in lines:
        found.append(line)
        if line.rstrip() == "}":
            yield json.loads("".join(found))
            found.clear()


def _place(path: str, entry: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return bucket and key of a file, or None if it is not an object."""
    bucket, _, key = path.removeprefix(_ROOT).partition("/")
    if not path.startswith(_ROOT) or not key or bucket.startswith("."):
        return None
    if key.partition("/")[0] == _UPLOADS:
        return None
    folder, _, name = key.rpartition("/")
    version = _marks(entry).get(_VERSION)
    if version and folder.endswith(_VERSIONS) and name == f"v_{version}":
        key = folder.removesuffix(_VERSIONS)
    return bucket, key


def _data(entry: Mapping[str, Any]) -> tuple[object, ...]:
    """Return a file's chunks; the same chunk may be listed by `fid` alone, or twice."""
    places = [(one["offset"], one["fid"] or one["fileId"]) for one in entry["chunks"]]
    return places, entry["content"]


def _marks(entry: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: base64.b64decode(value).decode("utf-8", "replace")
        for name, value in (entry["extended"] or {}).items()
    }
