"""Folders into which files are written: the Folder port.

spool ──write──> publish(name): the file is there, whole, or it is not
create(name)     a small file, unless one has that name: decides between two writers

Tests: contracts/folder.py
"""

from collections.abc import Callable, Iterator
from typing import Protocol, Self

from extentflow.errors import Conflict

# Files of writers that ended early, and of probes, begin so; listings leave them out.
TEMPORARY = ".writing-"
PROBE = ".extentflow-probe-"


class Spool(Protocol):
    """A file that is being written; used by one thread at a time."""

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes. Raises ProcessExhausted where the disk is full."""
        ...

    def publish(self, name: str) -> None:
        """Make the file visible under a name, stored safely; then only `close` may be called.

        No effect where the name exists with the same bytes. Raises Conflict where it has others,
        else as `Folder`.
        """
        ...

    def close(self) -> None:
        """Drop what was not published. A second call has no effect."""
        ...


class Folder(Protocol):
    """Files below one address, of a bucket or of a disk; safe for use from several threads.

    Names are relative to the folder, with `/` between their parts. Folders exist from their first
    file on. All calls are idempotent. They raise AccessDenied, StoreUnavailable after bounded
    retries, and ObjectGone for a bucket that does not exist.
    """

    def uri(self, name: str = "") -> str:
        """Return the address of a file, or of the folder, for messages."""
        ...

    def below(self, folder: str) -> Self:
        """Return a folder of this one; `folder` has no slash at its end."""
        ...

    def names(self, prefix: str = "", start: str = "") -> Iterator[str]:
        """Yield the names that begin with `prefix` and are not before `start`, in order.

        `prefix` ends with `/` or is empty; `start` is empty or begins with it. Temporary files are
        left out.
        """
        ...

    def read(self, name: str) -> bytes:
        """Return a small file. Raises ObjectGone where there is none."""
        ...

    def create(self, name: str, content: bytes) -> bool:
        """Create a small file, durably and whole; False: the name exists with other bytes.

        A folder that `creates_once` creates it for one of several callers.
        """
        ...

    def put(self, name: str, content: bytes) -> None:
        """Write a file, durably and whole, in place of any other."""
        ...

    def move(self, name: str, target: str) -> None:
        """Give a file another name; nothing to do where only the target exists.

        On S3 the object is copied, then deleted: both names exist for a moment. Raises ObjectGone
        where neither exists.
        """
        ...

    def delete(self, name: str) -> None:
        """Delete a file. No effect where there is none."""
        ...

    def spool(self) -> Spool:
        """Begin a file of this folder, whose name has no slash."""
        ...

    def clean(self) -> None:
        """Remove what writers that ended early left in this folder."""
        ...

    def require_bucket(self) -> None:
        """Raise BucketGone for a bucket that does not exist; a local folder is created."""
        ...

    def creates_once(self) -> bool:
        """Return whether `create` is atomic; may put and delete a small hidden file."""
        ...


# Returns the folder of an address; workers of Spark receive it by pickle.
FolderOpener = Callable[[str], Folder]


def other_bytes(where: str) -> Conflict:
    """Return the error for a file that exists with other bytes than those to be written."""
    return Conflict(
        f"{where} exists with other bytes: another process writes there; let one process write"
        " into a target, or choose another target"
    )
