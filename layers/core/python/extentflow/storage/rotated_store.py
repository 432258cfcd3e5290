"""A store whose secrets may be rotated while it is open."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from extentflow.errors import AccessDenied, StoreUnavailable
from extentflow.model import ObjectVersion
from extentflow.storage import (
    ListedObject,
    ObjectProperties,
    ObjectStore,
    Page,
    changeable,
    described,
)


@dataclass(frozen=True, slots=True)
class RotatedStore:
    """Turns AccessDenied into StoreUnavailable if resolved secrets `rotated`: retries reopen it."""

    _store: ObjectStore
    _rotated: Callable[[], bool]

    @property
    def fetched_bytes(self) -> int:
        return getattr(self._store, "fetched_bytes", 0)

    def head(self, bucket: str, key: str, version_id: str | None = None) -> ObjectVersion:
        with self._retry_after_rotation():
            return self._store.head(bucket, key, version_id)

    def read(self, version: ObjectVersion, start: int, end: int) -> bytes:
        with self._retry_after_rotation():
            return self._store.read(version, start, end)

    def list(self, bucket: str, prefix: str = "") -> Iterator[ListedObject]:
        with self._retry_after_rotation():
            yield from self._store.list(bucket, prefix)

    def pages(self, bucket: str, prefix: str = "", *, token: str | None = None) -> Iterator[Page]:
        with self._retry_after_rotation():
            yield from self._store.pages(bucket, prefix, token=token)

    def properties(self, version: ObjectVersion) -> ObjectProperties:
        with self._retry_after_rotation():
            return described(self._store, version.uri).properties(version)

    def tags(self, version: ObjectVersion) -> Mapping[str, str]:
        with self._retry_after_rotation():
            return described(self._store, version.uri).tags(version)

    def tag(self, version: ObjectVersion, name: str, value: str) -> None:
        with self._retry_after_rotation():
            changeable(self._store, version.uri).tag(version, name, value)

    def copy(self, version: ObjectVersion, bucket: str, key: str) -> None:
        with self._retry_after_rotation():
            changeable(self._store, version.uri).copy(version, bucket, key)

    def delete(self, version: ObjectVersion) -> None:
        with self._retry_after_rotation():
            changeable(self._store, version.uri).delete(version)

    def require_conditional_deletes(self, bucket: str, folder: str) -> None:
        with self._retry_after_rotation():
            changeable(self._store, f"s3://{bucket}").require_conditional_deletes(bucket, folder)

    @contextmanager
    def _retry_after_rotation(self) -> Iterator[None]:
        try:
            yield
        except AccessDenied as exc:
            if self._rotated():
                raise StoreUnavailable(f"{exc}; the secrets were rotated since") from exc
            raise
