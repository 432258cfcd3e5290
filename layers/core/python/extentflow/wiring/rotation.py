"""A store that is read with secrets, which may be rotated while it is read.

Owns: what a refusal means then. Refuses to know: where secrets are kept, how a store is asked.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from extentflow.errors import AccessDenied, StoreUnavailable
from extentflow.model import ObjectVersion
from extentflow.storage import Listed, ObjectStore, Page


class RotatedStore:
    """An `ObjectStore` that says StoreUnavailable where refused secrets are no longer the newest.

    `rotated` looks the secrets up anew and returns whether they are others than the store has.
    Whoever tries again asks for a store again, and gets one with the new ones.
    """

    def __init__(self, store: ObjectStore, rotated: Callable[[], bool]) -> None:
        self._store = store
        self._rotated = rotated

    @property
    def fetched_bytes(self) -> int:
        """Bytes that the store returned so far, where it counts them."""
        return getattr(self._store, "fetched_bytes", 0)

    def head(self, bucket: str, key: str, version_id: str | None = None) -> ObjectVersion:
        """See `ObjectStore.head`."""
        with self._judged():
            return self._store.head(bucket, key, version_id)

    def read(self, version: ObjectVersion, start: int, end: int) -> bytes:
        """See `ObjectStore.read`."""
        with self._judged():
            return self._store.read(version, start, end)

    def list(self, bucket: str, prefix: str = "") -> Iterator[Listed]:
        """See `ObjectStore.list`."""
        with self._judged():
            yield from self._store.list(bucket, prefix)

    def pages(self, bucket: str, prefix: str = "", *, token: str | None = None) -> Iterator[Page]:
        """See `ObjectStore.pages`."""
        with self._judged():
            yield from self._store.pages(bucket, prefix, token=token)

    @contextmanager
    def _judged(self) -> Iterator[None]:
        try:
            yield
        except AccessDenied as exc:
            if self._rotated():
                raise StoreUnavailable(f"{exc}; the secrets were rotated since") from exc
            raise
