r"""An object store whose objects are computed, for objects of any size.

    line      0        1              lines - 1
    object    |000...0 ....\n|000...1 ....\n| ... |000...n ....      \n|
              '- line_bytes -'                     '- the rest, too ----'

`bench.synthetic_parquet` computes Parquet content.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from extentflow.errors import BucketGone, ObjectGone
from extentflow.model import ObjectVersion
from extentflow.storage import ListedObject, Page, ranges
from extentflow.storage.ranges import TransferCounters

DIGITS = 15
LINE_BYTES = 100
_LAST_DIGITS = np.array([list(b"%03d" % number) for number in range(1000)], np.uint8)
_PREFIX_DIGITS = DIGITS - _LAST_DIGITS.shape[1]
_FILLING = b"the quick brown fox jumps over the lazy dog; "


class Content(Protocol):
    """The content of an object. Immutable and thread-safe."""

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    @property
    def identity(self) -> str:
        """Text that differs if the bytes differ; ETags are derived from it."""
        ...

    def read(self, start: int, end: int) -> bytes:
        """Return `[start, end)`, in time and memory proportional to the range."""
        ...


@dataclass(frozen=True, slots=True)
class Lines:
    """Numbered lines of ASCII text: DIGITS digits, a space, filler, LF.

    All lines have `line_bytes` bytes; the last one also has the rest of `size`.

    Raises:
        ValueError: a line is too short for its number, or the object for a line.
    """

    size: int
    line_bytes: int = LINE_BYTES

    def __post_init__(self) -> None:
        if not DIGITS + 2 <= self.line_bytes <= self.size:
            raise ValueError(f"no lines of {self.line_bytes} bytes make {self.size} bytes")
        if self.count > 10**DIGITS:
            raise ValueError(f"{self.count} lines cannot be numbered by {DIGITS} digits")

    @property
    def count(self) -> int:
        """Number of lines; they are numbered from 0."""
        return self.size // self.line_bytes

    @property
    def identity(self) -> str:
        """See `Content`."""
        return repr(self)

    def read(self, start: int, end: int) -> bytes:
        """See `Content`."""
        numbered = self.count * self.line_bytes - 1  # behind it only what ends the last line
        return self._numbered(start, min(end, numbered)) + self._ending(max(start, numbered), end)

    def _numbered(self, start: int, end: int) -> bytes:
        """Return the bytes of numbered lines, a thousand at a time: only their prefixes differ."""
        if start >= end:
            return b""
        thousand = self.line_bytes * len(_LAST_DIGITS)
        first, last = start // thousand, -(-end // thousand)
        lines = np.empty((last - first, len(_LAST_DIGITS), self.line_bytes), np.uint8)
        lines[:, :, _PREFIX_DIGITS:DIGITS] = _LAST_DIGITS
        lines[:, :, DIGITS:] = np.frombuffer(self._filling(), np.uint8)
        for prefix in range(first, last):
            digits = f"{prefix:0{_PREFIX_DIGITS}d}".encode()
            lines[prefix - first, :, :_PREFIX_DIGITS] = np.frombuffer(digits, np.uint8)
        return lines.reshape(-1)[start - first * thousand : end - first * thousand].tobytes()

    def _filling(self) -> bytes:
        """Return the text after each number: a space, and filler up to the end of the line."""
        room = self.line_bytes - DIGITS - 2
        return b" " + (_FILLING * (room // len(_FILLING) + 1))[:room] + b"\n"

    def _ending(self, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        return b"." * (end - start - 1) + (b"\n" if end == self.size else b".")


class SyntheticStore:
    """The ObjectStore port over contents by key, in one unversioned bucket."""

    def __init__(
        self, bucket: str, objects: Mapping[str, Content], *, page_keys: int = 1000
    ) -> None:
        self._bucket = bucket
        self._objects = dict(objects)
        self._page_keys = page_keys
        self._counters = TransferCounters()

    @property
    def fetched_bytes(self) -> int:
        """Bytes returned by reads so far."""
        return self._counters.fetched_bytes

    @property
    def requests(self) -> int:
        """Requests so far; a page of a listing is one."""
        return self._counters.requests

    def head(self, bucket: str, key: str, version_id: str | None = None) -> ObjectVersion:
        """Return the object's pin; see the port."""
        self._counters.count(requests=1)
        return self._found(bucket, key, version_id)

    def read(self, version: ObjectVersion, start: int, end: int) -> bytes:
        """Return exactly `[start, end)`; see the port.

        Raises:
            ValueError: not a range of the object, or more than 64 MiB at once.
        """
        ranges.check_request(version, start, end)
        self._counters.count(requests=1)
        found = self._found(version.bucket, version.key, version.version_id)
        where = ranges.range_uri(version, start, end)
        ranges.check_etag(version, found.etag, where=where, endpoint="the synthetic store")
        body = self._objects[version.key].read(start, end)
        self._counters.count(body_bytes=len(body))
        ranges.check_length(version, start, end, body=body, source="the synthetic store")
        return body

    def list(self, bucket: str, prefix: str = "") -> Iterator[ListedObject]:
        """Yield every key below `prefix`, in the order of its UTF-8 bytes; see the port."""
        for page in self.pages(bucket, prefix):
            for version in page.versions:
                yield ListedObject(bucket, version.key, version.etag, version.size)

    def pages(self, bucket: str, prefix: str = "", *, token: str | None = None) -> Iterator[Page]:
        """Yield the objects, `page_keys` to a page; a token is the last key. See the port."""
        self._require(bucket)
        below = sorted((key for key in self._objects if key.startswith(prefix)), key=str.encode)
        while True:
            self._counters.count(requests=1)
            left = [key for key in below if token is None or key.encode() > token.encode()]
            page = left[: self._page_keys]
            token = page[-1] if len(left) > len(page) else None
            yield Page(tuple(self._pinned(key) for key in page), token)
            if token is None:
                return

    def _found(self, bucket: str, key: str, version_id: str | None) -> ObjectVersion:
        self._require(bucket)
        if key not in self._objects or version_id is not None:
            what = "key" if version_id is None else f"version {version_id}"
            raise ObjectGone(f"s3://{bucket}/{key}: no such {what}")
        return self._pinned(key)

    def _require(self, bucket: str) -> None:
        if bucket != self._bucket:
            raise BucketGone(f"s3://{bucket}: no such bucket")

    def _pinned(self, key: str) -> ObjectVersion:
        content = self._objects[key]
        etag = hashlib.sha256(content.identity.encode()).hexdigest()[:32]
        return ObjectVersion(self._bucket, key, None, etag, content.size)
