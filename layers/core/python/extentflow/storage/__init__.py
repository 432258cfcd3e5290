"""Object storage: the ObjectStore port, and the pinned ranges that formats read.

Adapters read S3 and compatible servers (`s3`) or local directories (`local`). Every read is
conditional on the version that was pinned at planning. What the bytes mean is the subject of
`extentflow.formats`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from extentflow.config.specs import STORES
from extentflow.config.trust import Trust
from extentflow.errors import NotOffered
from extentflow.model import ObjectVersion


@dataclass(frozen=True, slots=True)
class Link:
    """One of several names of a file. `file` is the same for all of them.

    `target` is the key that a symbolic link leads to; empty for a hard link. `problem` says why a
    symbolic link is no name of any file here: nothing is to be read under its key.
    """

    file: str
    target: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ListedObject:
    """One key of a listing, with the ETag and size that the listing contains.

    `modified` as in `ObjectVersion`. `link` is None for a file with one name, and in S3.
    """

    bucket: str
    key: str
    etag: str
    size: int
    modified: int = field(default=0, compare=False)
    link: Link | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing: current versions, and the `token` of the next page.

    `token` is None on the last page. An empty page may be followed by others. `links` has, by key,
    the objects that may be listed under another key, too.
    """

    versions: tuple[ObjectVersion, ...]
    token: str | None = None
    links: Mapping[str, Link] = field(default_factory=dict, compare=False)


@dataclass(slots=True)
class FileNames:
    """Which of a file's names a listing means: one, and the target rather than a symbolic link.

    Of several hard links it is the first one, in the order of keys. `is_meant` says of a key
    whether the listing would have it.
    """

    is_meant: Callable[[str], bool]
    _first: dict[str, str] = field(default_factory=dict)

    def is_another(self, key: str, link: Link | None) -> bool:
        """Return whether a listed key is another name of a file that the listing has.

        Also where it is a name of no file.
        """
        if link is None:
            return False
        if link.problem:
            return True
        if link.target and self.is_meant(link.target):
            return True
        return self._first.setdefault(link.file, key) != key


class ObjectStore(Protocol):
    """Pinned, ranged access to objects. Safe for use from several threads."""

    def head(self, bucket: str, key: str, version_id: str | None = None) -> ObjectVersion:
        """Return the current version, or the given one, for pinning.

        Raises:
            ObjectGone: no such bucket, key or version (the message names which).
            AccessDenied: credentials are missing, invalid or lack a permission.
            StoreUnavailable: no usable response after bounded retries.
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

    def list(self, bucket: str, prefix: str = "") -> Iterator[ListedObject]:
        """Yield every key below `prefix` (nested prefixes included), in key order, page by page.

        Raises as `head`; ObjectGone where there is no such bucket.
        """
        ...

    def pages(self, bucket: str, prefix: str = "", *, token: str | None = None) -> Iterator[Page]:
        """Yield the current versions of all keys below `prefix`, page by page, as `head` pins them.

        Makes no request per key. Pages come in the store's own order. `token` is that of an earlier
        page of the same bucket and prefix, from any process; the listing continues after that page.
        Objects that are put or deleted during the listing may be included or not. Delete markers
        are left out. Version ids are None where the server keeps none, and where it cannot list
        them (then a warning is logged). Raises as `list`, and Permanent where the token is invalid
        or expired, or the server's response is no valid listing.
        """
        ...


@dataclass(frozen=True, slots=True)
class ObjectProperties:
    """What a store has about an object beside its bytes; `metadata` is the user's."""

    last_modified: datetime
    content_type: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class DescribedStore(Protocol):
    """A store that also returns properties and tags of pinned objects. Raises as `ObjectStore`."""

    def properties(self, version: ObjectVersion) -> ObjectProperties:
        """Return the properties of the pinned version."""
        ...

    def tags(self, version: ObjectVersion) -> Mapping[str, str]:
        """Return the tags that the pinned version has now; they may change without a version."""
        ...


@runtime_checkable
class ChangeableStore(Protocol):
    """A store that changes objects, each change on condition of the pin, and idempotent.

    Raises ObjectGone, ObjectChanged (there is nothing to change), AccessDenied, StoreUnavailable;
    NotOffered where the server cannot make the change conditional.
    """

    def tag(self, version: ObjectVersion, name: str, value: str) -> None:
        """Set one tag and keep the others. Raises NotOffered for an object without version id."""
        ...

    def copy(self, version: ObjectVersion, bucket: str, key: str) -> None:
        """Copy the object within the store, in parts where it is large, with its metadata."""
        ...

    def delete(self, version: ObjectVersion) -> None:
        """Delete the pinned version, for good."""
        ...

    def require_conditional_deletes(self, bucket: str, folder: str) -> None:
        """Raise NotOffered unless objects without version ids are deleted only if they match.

        May put and delete a small hidden object of its own in the folder.
        """
        ...


def described(store: object, what: str) -> DescribedStore:
    """Return the store; NotOffered if it has no properties, which `what` needs."""
    if isinstance(store, DescribedStore):
        return store
    raise NotOffered(f"{what}: the store {type(store).__name__} returns bytes only; remove the key")


def changeable(store: object, what: str) -> ChangeableStore:
    """Return the store; NotOffered if it changes no objects, which `what` needs."""
    if isinstance(store, ChangeableStore):
        return store
    raise NotOffered(f"{what}: the store {type(store).__name__} changes no objects; write none")


def untaggable(version: ObjectVersion) -> str:
    """Return why an object without a version id gets no tag, with the remedy."""
    return (
        f"{version.uri}: after.completion=tag needs a bucket with versions: S3 tags no object on"
        " condition of its ETag, so that a later object could get the tag. Enable the bucket's"
        " versioning, or write another after.completion"
    )


class RangeSource(Protocol):
    """Read access of a format to one pinned object, by byte position."""

    @property
    def version(self) -> ObjectVersion:
        """The pinned version; `version.size` bounds every position."""
        ...

    def read(self, start: int, end: int) -> bytes:
        """Return exactly `[start, end)`, both within the object; one request, no read-ahead."""
        ...

    def stream(self, start: int, end: int, *, window_bytes: int | None = None) -> Iterator[bytes]:
        """Yield `[start, end)` in order, in windows (the last may be shorter), reading ahead.

        At most three windows are in flight or waiting, which bounds memory. Closing the iterator
        drops windows that were not requested yet. An error is raised at its own window.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """A connector's settings for its object store; None selects the SDK's default.

    `path_style` defaults to true where an `endpoint` is set. `verify` is the path of a CA bundle.
    `retry_seconds` shortens the time for which the store retries an unavailable server. `trust`
    says which local folders may be read; None: all that the process may.
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
    trust: Trust | None = field(default=None, compare=False, repr=False)


def open_store(endpoint_type: str, options: StoreOptions) -> ObjectStore:
    """Return the store for `endpoint_type`.

    Raises KeyError without a store of that name (the connector's table reports it to the user), and
    Misconfigured where the package that defines it cannot be loaded.
    """
    store: ObjectStore = STORES.get(endpoint_type)(options)
    return store
