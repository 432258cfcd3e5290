"""Where objects are read from: the ObjectStore port and the pinned ranges that formats read.

Owns: the contracts. Refuses to know: boto3, file systems, formats.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from extentflow.model import ObjectVersion


@dataclass(frozen=True, slots=True)
class Listed:
    """One key of a listing, as the store reported it; no request per key was made."""

    bucket: str
    key: str
    etag: str
    size: int


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing: current versions, and the `token` of the next part; None: there is none.

    A page may be empty and not the last.
    """

    versions: tuple[ObjectVersion, ...]
    token: str | None = None


class ObjectStore(Protocol):
    """Pinned, ranged access to objects. Safe for use from several threads."""

    def head(self, bucket: str, key: str, version_id: str | None = None) -> ObjectVersion:
        """Return the current (or the given) version, to be pinned.

        Raises:
            ObjectGone: no such bucket, key or version (the message says which).
            AccessDenied: credentials are missing or refused.
            StoreUnavailable: still no answer after bounded retries.
        """
        ...

    def read(self, version: ObjectVersion, start: int, end: int) -> bytes:
        """Return exactly the bytes `[start, end)` of that version; `0 <= start < end <= size`.

        Conditional on the pin: the response's ETag, Content-Range and length are compared on
        every read. Short bodies and 5xx are retried with capped, jittered back-off.

        Raises:
            ObjectChanged: the bytes are no longer those of the pinned version.
            ObjectGone, AccessDenied, StoreUnavailable: as `head`.
        """
        ...

    def list(self, bucket: str, prefix: str = "") -> Iterator[Listed]:
        """Yield every key below `prefix` (nested prefixes included), in key order, page by page.

        Raises:
            ObjectGone: no such bucket.
            AccessDenied, StoreUnavailable: as `head`.
        """
        ...

    def pages(self, bucket: str, prefix: str = "", *, token: str | None = None) -> Iterator[Page]:
        """Yield the current versions of all keys below `prefix`, page by page, as `head` pins them.

        No request per key. In the store's own order; `token`, of any page that any process ever
        saw of this bucket and prefix, goes on behind that page. What is put or deleted meanwhile
        may be missed or found. A delete marker is no object. Version ids are None where the server
        keeps none, and where it does not list them (it is then logged as a warning).

        Raises:
            ObjectGone: no such bucket.
            Permanent: the token means nothing to this store (any more), or the server's answer
                makes no listing.
            AccessDenied, StoreUnavailable: as `head`.
        """
        ...


class RangeSource(Protocol):
    """What a format sees of an object: pinned bytes by position, and nothing else."""

    @property
    def version(self) -> ObjectVersion:
        """The pinned version; `version.size` bounds every position."""
        ...

    def read(self, start: int, end: int) -> bytes:
        """Return exactly `[start, end)`, both within the object; one request, no read-ahead."""
        ...

    def stream(self, start: int, end: int, *, window_bytes: int | None = None) -> Iterator[bytes]:
        """Yield `[start, end)` in order, in windows (the last may be shorter), reading ahead.

        Bounded: at most three windows are in flight or waiting. Closing the iterator cancels
        what was not yet requested. A fault raises at the window where it happened.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What a connector says about its object store. None: the SDK's own chain or default.

    `path_style` None: on where an `endpoint` is set. `verify` is the path of a CA bundle.
    `retry_seconds` shortens the store's own patience with a server that is away.
    """

    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    verify: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    role_arn: str | None = None
    role_external_id: str | None = None
    retry_seconds: float | None = field(default=None, compare=False)


_registry: dict[str, Callable[[StoreOptions], ObjectStore]] = {}


def register(endpoint_type: str, factory: Callable[[StoreOptions], ObjectStore]) -> None:
    """Add a store under the name that `endpoint.type` uses; the last registration wins."""
    _registry[endpoint_type] = factory


def names() -> list[str]:
    """Return the registered endpoint types, sorted."""
    return sorted(_registry)


def open_store(endpoint_type: str, options: StoreOptions) -> ObjectStore:
    """Return the store for `endpoint_type`.

    Raises:
        KeyError: no such type is registered; `connectors` reports that to the user.
    """
    return _registry[endpoint_type](options)
