"""Folders of objects that a lake target writes: whole objects by name, and their listing.

Names are relative to the folder, with `/` between their parts. All calls are idempotent, and retry
an unavailable store.
"""

from collections.abc import Iterator
from typing import Protocol


class Folder(Protocol):
    """A folder of a bucket or of a local disk."""

    @property
    def uri(self) -> str:
        """The folder's address, for messages."""
        ...

    def create(self, name: str, content: bytes) -> bool:
        """Write an object, durably and whole, unless its name exists; return whether it was new.

        Of several callers at once, one creates it. A repeated request may find its own object,
        so that the caller compares the content where that matters.
        """
        ...

    def put(self, name: str, content: bytes) -> None:
        """Write an object, whole, in place of any other."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return an object's content; None: there is none."""
        ...

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names that begin with `prefix`, which ends with `/` or is empty, sorted."""
        ...

    def move(self, name: str, target: str) -> None:
        """Give an object another name; nothing to do where only the target exists.

        On S3 it is copied, then deleted: both names exist for a moment. Raises ObjectGone where
        neither exists.
        """
        ...

    def delete(self, name: str) -> None:
        """Delete an object, if it exists."""
        ...

    def require_bucket(self) -> None:
        """Raise BucketGone for a bucket that does not exist; a local folder is created."""
        ...

    def creates_once(self) -> bool:
        """Return whether the store refuses to create a name that exists; may probe it."""
        ...
