"""Object stores and range sources in memory, and injected faults; all of them count their calls."""

from __future__ import annotations

import hashlib
import itertools
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal, get_args

from extentflow.errors import (
    AccessDenied,
    BucketGone,
    ExtentflowError,
    NotOffered,
    ObjectGone,
    StoreUnavailable,
)
from extentflow.model import ObjectVersion
from extentflow.storage import (
    ChangeableStore,
    DescribedStore,
    ListedObject,
    ObjectProperties,
    ObjectStore,
    Page,
    changeable,
    described,
    ranges,
    untaggable,
)
from extentflow.storage.ranges import TransferCounters

Operation = Literal["head", "read", "list", "properties", "tags", "tag", "copy", "delete"]
_PROPERTIES = ObjectProperties(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
FaultKind = Literal["unavailable", "short", "changed", "gone", "denied"]


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """One request that reached a store; `start` and `end` are 0 where it was no read."""

    operation: Operation
    bucket: str
    key: str
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class _Stored:
    version: ObjectVersion
    body: bytes
    deleted: bool = False
    properties: ObjectProperties = _PROPERTIES
    tags: dict[str, str] = field(default_factory=dict)


class MemoryStore:
    """The ObjectStore port over a dict. A bucket exists from its first `put` on.

    `versioned=False`: a put replaces the object, and reads of the old pin raise ObjectChanged. The
    ETag is a digest of the body, so that A, B, A ends with A's ETag. Each put is a second later
    than the one before. `versioned=True`: every put is a version of its own, a delete only covers
    it. `asked` lists every request.
    `conditional_deletes=False`: a server that ignores If-Match, so that nothing is deleted.
    """

    def __init__(
        self, *, versioned: bool = False, page_keys: int = 1000, conditional_deletes: bool = True
    ) -> None:
        self._conditional_deletes = conditional_deletes
        self._versioned = versioned
        self._page_keys = page_keys
        self._objects: dict[str, dict[str, list[_Stored]]] = {}
        self._ordinals = itertools.count(1)
        self._puts = itertools.count(1)
        self._lock = threading.Lock()
        self._counters = TransferCounters()
        self.asked: list[StoreRequest] = []

    @property
    def fetched_bytes(self) -> int:
        return self._counters.fetched_bytes

    @property
    def requests(self) -> int:
        return self._counters.requests

    def put(
        self,
        bucket: str,
        key: str,
        body: bytes,
        *,
        properties: ObjectProperties | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> ObjectVersion:
        """Store an object, in place of the one that had the key; return its pin."""
        with self._lock:
            stored = self._put(bucket, key, body, deleted=False)
            made = replace(
                stored, properties=properties or stored.properties, tags={**(tags or {})}
            )
            self._objects[bucket][key][-1] = made
            return made.version

    def remove(self, bucket: str, key: str) -> None:
        """Delete the current version; on a versioned store older ones stay readable."""
        with self._lock:
            if self._versioned:
                self._put(bucket, key, b"", deleted=True)
            else:
                self._objects.get(bucket, {}).pop(key, None)

    def head(self, bucket: str, key: str, version_id: str | None = None) -> ObjectVersion:
        self._note(StoreRequest("head", bucket, key))
        return self._found(bucket, key, version_id).version

    def read(self, version: ObjectVersion, start: int, end: int) -> bytes:
        """Return exactly `[start, end)`; ValueError for more than 64 MiB or another range."""
        self._note(StoreRequest("read", version.bucket, version.key, start, end))
        ranges.check_request(version, start, end)
        stored = self._found(version.bucket, version.key, version.version_id)
        where = ranges.range_uri(version, start, end)
        ranges.check_etag(version, stored.version.etag, where=where, endpoint="the memory store")
        body = stored.body[start:end]
        self._counters.count(body_bytes=len(body))
        return body

    def list(self, bucket: str, prefix: str = "") -> Iterator[ListedObject]:
        self._note(StoreRequest("list", bucket, prefix))
        for version in self._current(bucket, prefix):
            yield ListedObject(bucket, version.key, version.etag, version.size)

    def pages(self, bucket: str, prefix: str = "", *, token: str | None = None) -> Iterator[Page]:
        while True:
            self._note(StoreRequest("list", bucket, prefix))
            behind = (token or "").encode()
            found = [one for one in self._current(bucket, prefix) if one.key.encode() > behind]
            page = tuple(found[: self._page_keys])
            token = page[-1].key if len(found) > len(page) else None
            yield Page(page, token)
            if token is None:
                return

    def properties(self, version: ObjectVersion) -> ObjectProperties:
        self._note(StoreRequest("properties", version.bucket, version.key))
        return self._pinned(version).properties

    def tags(self, version: ObjectVersion) -> Mapping[str, str]:
        self._note(StoreRequest("tags", version.bucket, version.key))
        return dict(self._pinned(version).tags)

    def tag(self, version: ObjectVersion, name: str, value: str) -> None:
        self._note(StoreRequest("tag", version.bucket, version.key))
        if version.version_id is None:
            raise NotOffered(untaggable(version))
        self._pinned(version).tags[name] = value

    def copy(self, version: ObjectVersion, bucket: str, key: str) -> None:
        self._note(StoreRequest("copy", version.bucket, version.key))
        found = self._pinned(version)
        if bucket not in self._objects:
            raise BucketGone(f"s3://{bucket}: no such bucket")
        self.put(bucket, key, found.body, properties=found.properties, tags=found.tags)

    def delete(self, version: ObjectVersion) -> None:
        """Delete the pinned version, for good; nothing happens if it is not there."""
        self._note(StoreRequest("delete", version.bucket, version.key))
        if version.version_id is None:
            self.require_conditional_deletes(version.bucket, "")
        with self._lock:
            kept = self._objects[version.bucket]
            if version.version_id is None and version.key in kept:
                self._pinned(version)
                del kept[version.key]
            elif version.key in kept:
                left = [one for one in kept[version.key] if one.version != version]
                kept[version.key] = left
                if not left:
                    del kept[version.key]

    def require_conditional_deletes(self, bucket: str, folder: str) -> None:
        if not self._conditional_deletes:
            raise NotOffered(f"s3://{bucket}/{folder}: If-Match of DeleteObject is ignored")

    def _pinned(self, version: ObjectVersion) -> _Stored:
        stored = self._found(version.bucket, version.key, version.version_id)
        ranges.check_etag(
            version, stored.version.etag, where=version.uri, endpoint="the memory store"
        )
        return stored

    def _current(self, bucket: str, prefix: str) -> Sequence[ObjectVersion]:
        if bucket not in self._objects:
            raise ObjectGone(f"s3://{bucket}: no such bucket")
        latest = [versions[-1] for versions in self._objects[bucket].values()]
        found = [stored.version for stored in latest if not stored.deleted]
        below = [version for version in found if version.key.startswith(prefix)]
        return sorted(below, key=lambda version: version.key.encode())

    def _put(self, bucket: str, key: str, body: bytes, *, deleted: bool) -> _Stored:
        etag = hashlib.sha256(body).hexdigest()[:32]
        version_id = f"v{next(self._ordinals)}" if self._versioned else None
        version = ObjectVersion(bucket, key, version_id, etag, len(body), next(self._puts))
        stored = _Stored(version, body, deleted)
        versions = self._objects.setdefault(bucket, {}).setdefault(key, [])
        if not self._versioned:
            versions.clear()
        versions.append(stored)
        return stored

    def _found(self, bucket: str, key: str, version_id: str | None) -> _Stored:
        if bucket not in self._objects:
            raise ObjectGone(f"s3://{bucket}: no such bucket")
        versions = self._objects[bucket].get(key, [])
        if version_id is not None:
            versions = [stored for stored in versions if stored.version.version_id == version_id]
        if not versions or versions[-1].deleted:
            what = f"version {version_id}" if version_id else "key"
            raise ObjectGone(f"s3://{bucket}/{key}: no such {what}")
        return versions[-1]

    def _note(self, asked: StoreRequest) -> None:
        self._counters.count(requests=1)
        with self._lock:
            self.asked.append(asked)


@dataclass(frozen=True, slots=True)
class Fault:
    """When a store fails, and how.

    `calls` are the numbers, from 1, of the calls of `operation` that fail; empty: all. `touching`
    narrows that to reads that overlap the range. `short` returns one byte too few; every other
    kind raises.
    """

    kind: FaultKind
    operation: Operation = "read"
    calls: frozenset[int] = frozenset()
    touching: tuple[int, int] | None = None

    def hits(self, number: int, asked: StoreRequest) -> bool:
        """Whether call `number` of its operation fails."""
        if asked.operation != self.operation or (self.calls and number not in self.calls):
            return False
        start, end = self.touching or (-1, math.inf)
        return asked.start < end and start < asked.end


class FaultyStore:
    """Any store with injected faults; the first fault that hits a call decides.

    `calls` counts the calls of each operation, failed ones included.
    """

    def __init__(self, store: ObjectStore, *faults: Fault) -> None:
        self._store = store
        self._faults = faults
        self._lock = threading.Lock()
        self.calls: dict[Operation, int] = dict.fromkeys(get_args(Operation), 0)

    def head(self, bucket: str, key: str, version_id: str | None = None) -> ObjectVersion:
        self._strike(StoreRequest("head", bucket, key))
        return self._store.head(bucket, key, version_id)

    def read(self, version: ObjectVersion, start: int, end: int) -> bytes:
        kind = self._strike(StoreRequest("read", version.bucket, version.key, start, end))
        body = self._store.read(version, start, end)
        return body[:-1] if kind == "short" else body

    def list(self, bucket: str, prefix: str = "") -> Iterator[ListedObject]:
        self._strike(StoreRequest("list", bucket, prefix))
        yield from self._store.list(bucket, prefix)

    def pages(self, bucket: str, prefix: str = "", *, token: str | None = None) -> Iterator[Page]:
        self._strike(StoreRequest("list", bucket, prefix))
        yield from self._store.pages(bucket, prefix, token=token)

    def properties(self, version: ObjectVersion) -> ObjectProperties:
        return self._described("properties", version).properties(version)

    def tags(self, version: ObjectVersion) -> Mapping[str, str]:
        return self._described("tags", version).tags(version)

    def tag(self, version: ObjectVersion, name: str, value: str) -> None:
        self._changeable("tag", version).tag(version, name, value)

    def copy(self, version: ObjectVersion, bucket: str, key: str) -> None:
        self._changeable("copy", version).copy(version, bucket, key)

    def delete(self, version: ObjectVersion) -> None:
        self._changeable("delete", version).delete(version)

    def require_conditional_deletes(self, bucket: str, folder: str) -> None:
        changeable(self._store, bucket).require_conditional_deletes(bucket, folder)

    def _described(self, operation: Operation, version: ObjectVersion) -> DescribedStore:
        self._strike(StoreRequest(operation, version.bucket, version.key))
        return described(self._store, version.uri)

    def _changeable(self, operation: Operation, version: ObjectVersion) -> ChangeableStore:
        self._strike(StoreRequest(operation, version.bucket, version.key))
        return changeable(self._store, version.uri)

    def _strike(self, asked: StoreRequest) -> FaultKind | None:
        with self._lock:
            self.calls[asked.operation] += 1
            number = self.calls[asked.operation]
        kind = next((fault.kind for fault in self._faults if fault.hits(number, asked)), None)
        where = f"s3://{asked.bucket}/{asked.key}[{asked.start}-{asked.end})"
        match kind:
            case "changed":
                raise ranges.object_changed(where, "injected")
            case "gone":
                raise ObjectGone(f"{where}: no such key (injected)")
            case "denied":
                raise AccessDenied(f"{where}: access denied (injected)")
            case "unavailable":
                raise StoreUnavailable(f"{where}: no answer (injected)")
        return kind


class MemorySource:
    """A RangeSource over bytes, without a store and without threads, for tests of formats.

    `window_bytes` is the default window of `stream`: 2 forces every edge. `faults` raise for every
    read or window that contains the byte at their position. `reads` lists the requested ranges.
    """

    def __init__(
        self,
        body: bytes,
        *,
        window_bytes: int = 7,
        faults: Mapping[int, ExtentflowError] | None = None,
        version: ObjectVersion | None = None,
    ) -> None:
        self._body = body
        self._window_bytes = window_bytes
        self._faults = dict(faults or {})
        etag = hashlib.sha256(body).hexdigest()[:32]
        self.version = version or ObjectVersion("memory", "object", None, etag, len(body))
        self.reads: list[tuple[int, int]] = []

    def read(self, start: int, end: int) -> bytes:
        """Return exactly `[start, end)`; ValueError for more than 64 MiB or another range."""
        ranges.check_request(self.version, start, end)
        self.reads.append((start, end))
        for position, fault in sorted(self._faults.items(), key=lambda item: item[0]):
            if start <= position < end:
                raise fault
        return self._body[start:end]

    def stream(self, start: int, end: int, *, window_bytes: int | None = None) -> Iterator[bytes]:
        if not 0 <= start <= end <= self.version.size:
            raise ValueError(f"[{start}-{end}) is not a range of {self.version.size} bytes")
        window = window_bytes or self._window_bytes
        return (self.read(at, min(at + window, end)) for at in range(start, end, window))
