"""The Folder adapter for S3: objects below a prefix of a bucket."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import IO

from extentflow.errors import ProcessExhausted
from extentflow.storage.folders import PROBE, Spool
from extentflow.storage.s3.object_lists import Listings
from extentflow.storage.s3.uploads import Uploads


@dataclass(frozen=True, slots=True)
class S3Folder:
    """Objects as files below `s3://bucket/prefix`; `prefix` is empty or ends with `/`.

    A spooled file is collected on the local disk (TMPDIR) and then uploaded: its key is known only
    when it is complete.
    """

    uploads: Uploads
    listings: Listings
    bucket: str
    prefix: str

    def uri(self, name: str = "") -> str:
        """See `Folder`."""
        return f"s3://{self.bucket}/{self.prefix}{name}"

    def below(self, folder: str) -> S3Folder:
        """See `Folder`."""
        return replace(self, prefix=f"{self.prefix}{folder}/")

    def names(self, prefix: str = "", start: str = "") -> Iterator[str]:
        """See `Folder`."""
        # The listing leaves the key itself out behind which it starts.
        after = f"{self.prefix}{_before(start)}" if start else ""
        for found in self.listings.keys(self.bucket, self.prefix + prefix, after):
            name = found.key.removeprefix(self.prefix)
            if name >= start and not name.rpartition("/")[2].startswith(PROBE):
                yield name

    def read(self, name: str) -> bytes:
        """See `Folder`."""
        return self.uploads.read(self.bucket, self.prefix + name)

    def create(self, name: str, content: bytes) -> bool:
        """See `Folder`; a conditional PUT (If-None-Match)."""
        return self.uploads.create(self.bucket, self.prefix + name, content)

    def put(self, name: str, content: bytes) -> None:
        """See `Folder`."""
        self.uploads.put(self.bucket, self.prefix + name, content)

    def move(self, name: str, target: str) -> None:
        """See `Folder`."""
        self.uploads.move(self.bucket, self.prefix + name, self.prefix + target)

    def delete(self, name: str) -> None:
        """See `Folder`."""
        self.uploads.delete(self.bucket, self.prefix + name)

    def spool(self) -> Spool:
        """See `Folder`."""
        return S3Spool(self)

    def clean(self) -> None:
        """See `Folder`."""
        self.uploads.abort_all(self.bucket, self.prefix)

    def require_bucket(self) -> None:
        """See `Folder`."""
        self.uploads.require_bucket(self.bucket)

    def creates_once(self) -> bool:
        """See `Folder`."""
        return self.uploads.creates_once(self.bucket, self.prefix)


class S3Spool:
    """See `Spool`; a file of the local disk without a name."""

    def __init__(self, folder: S3Folder) -> None:
        self._folder = folder
        self._file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - see `close`
        self._size = 0

    def write(self, data: bytes | memoryview) -> None:
        """See `Spool`."""
        left = memoryview(data)
        try:
            while left:
                written = os.write(self._file.fileno(), left)
                left, self._size = left[written:], self._size + written
        except OSError as exc:
            raise ProcessExhausted(
                f"{self._folder.uri()}: the file is collected below {tempfile.gettempdir()}:"
                f" {exc.strerror}; make room there, or set TMPDIR"
            ) from exc

    def publish(self, name: str) -> None:
        """See `Spool`."""
        folder = self._folder
        folder.uploads.put_file(folder.bucket, folder.prefix + name, self._file, self._size)

    def close(self) -> None:
        """See `Spool`."""
        self._file.close()


def _before(start: str) -> str:
    """Return a text before `start`, and behind all texts before it that are as long."""
    return start[:-1] + chr(ord(start[-1]) - 1)
