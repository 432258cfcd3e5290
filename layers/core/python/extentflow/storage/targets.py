"""Folders into which files are written: the FileTarget port.

spool ──write──> publish(name): the file is there, whole, or it is not
create(name)     a small file, unless one has that name: decides between two writers
"""

from typing import Protocol

from extentflow.errors import Conflict

# What writers leave behind that end early begins with a dot, as do other files for their own use.
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
        else as `FileTarget`.
        """
        ...

    def close(self) -> None:
        """Drop what was not published. A second call has no effect."""
        ...


class FileTarget(Protocol):
    """Files in folders below one address; safe for use from several threads.

    A folder is a relative path without a slash at its end; it exists from its first file on. All
    calls raise AccessDenied, StoreUnavailable after bounded retries, ObjectGone for a bucket that
    does not exist.
    """

    def uri(self, folder: str, name: str = "") -> str:
        """Return the address of a file, or of a folder, for messages."""
        ...

    def names(self, folder: str, start: str = "") -> list[str]:
        """Return the names in a folder that are not before `start`, in order.

        Without temporary files. Empty where there is no such folder. Names of files in folders of
        the folder have slashes.
        """
        ...

    def read(self, folder: str, name: str) -> bytes:
        """Return a small file. Raises ObjectGone where there is none."""
        ...

    def create(self, folder: str, name: str, content: bytes) -> bool:
        """Create a small file; False: the name exists, with other bytes.

        A target that `refuses_existing` creates it for one of several callers.
        """
        ...

    def delete(self, folder: str, name: str) -> None:
        """Delete a file. No effect where there is none."""
        ...

    def spool(self, folder: str) -> Spool:
        """Begin a file of a folder."""
        ...

    def clean(self, folder: str) -> None:
        """Remove what writers left in a folder that ended early."""
        ...

    def require_bucket(self) -> None:
        """Raise BucketGone for a bucket that does not exist; a local folder is created."""
        ...

    def refuses_existing(self) -> bool:
        """Whether `create` is atomic; may put and delete a small hidden file of its own."""
        ...


def other_bytes(where: str) -> Conflict:
    """Return the error for a file that exists with other bytes than those to be written."""
    return Conflict(
        f"{where} exists with other bytes: another process writes there; let one process write"
        " into a target, or choose another target"
    )
