"""The FileTarget adapter for local directories.

.writing-3f…  ──fsync, link──> 0…0-0…9.parquet     then the temporary name is removed
     └ locked by its writer, until that ends: `clean` removes those without a lock
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import filecmp
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from extentflow.errors import (
    AccessDenied,
    Misconfigured,
    ObjectGone,
    ProcessExhausted,
    StoreUnavailable,
)
from extentflow.storage.targets import TEMPORARY, Spool, other_bytes

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


@dataclass(frozen=True, slots=True)
class LocalTarget:
    """Folders below `root`, which is created with its first file."""

    root: Path

    def uri(self, folder: str, name: str = "") -> str:
        """See `FileTarget`."""
        return str(self.root / folder / name)

    def names(self, folder: str, start: str = "") -> list[str]:
        """See `FileTarget`."""
        with file_errors(self.uri(folder)), contextlib.suppress(FileNotFoundError):
            found = os.listdir(self.root / folder)  # noqa: PTH208 - names, not paths
            return sorted(one for one in found if one >= start and not one.startswith(TEMPORARY))
        return []

    def read(self, folder: str, name: str) -> bytes:
        """See `FileTarget`."""
        where = self.uri(folder, name)
        with file_errors(where):
            try:
                return Path(where).read_bytes()
            except FileNotFoundError as exc:
                raise ObjectGone(f"{where}: no such file") from exc

    def create(self, folder: str, name: str, content: bytes) -> bool:
        """See `FileTarget`."""
        with contextlib.closing(self._spool(folder)) as spool:
            spool.write(content)
            return spool.link(name)

    def delete(self, folder: str, name: str) -> None:
        """See `FileTarget`."""
        with file_errors(self.uri(folder, name)):
            (self.root / folder / name).unlink(missing_ok=True)

    def spool(self, folder: str) -> Spool:
        """See `FileTarget`."""
        return self._spool(folder)

    def clean(self, folder: str) -> None:
        """See `FileTarget`."""
        with file_errors(self.uri(folder)):
            for path in (self.root / folder).glob(f"{TEMPORARY}*"):
                with contextlib.suppress(FileNotFoundError):
                    _remove_unlocked(path)

    def require_bucket(self) -> None:
        """See `FileTarget`."""

    def refuses_existing(self) -> bool:
        """See `FileTarget`: a link to a name that exists fails."""
        return True

    def _spool(self, folder: str) -> LocalSpool:
        path = self.root / folder
        with file_errors(str(path)):
            path.mkdir(parents=True, exist_ok=True)
            while True:
                name = path / f"{TEMPORARY}{secrets.token_hex(8)}"
                file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                fcntl.flock(file, fcntl.LOCK_EX)
                # Another process may have removed it before it was locked.
                if os.fstat(file).st_nlink:
                    return LocalSpool(file, name)
                os.close(file)


@dataclass(slots=True)
class LocalSpool:
    """See `Spool`; `file` is the descriptor of `path`, -1 when it is closed."""

    file: int
    path: Path

    def write(self, data: bytes | memoryview) -> None:
        """See `Spool`."""
        left = memoryview(data)
        with file_errors(str(self.path)):
            while left:
                left = left[os.write(self.file, left) :]

    def publish(self, name: str) -> None:
        """See `Spool`."""
        final = self.path.with_name(name)
        if self.link(name):
            return
        with file_errors(str(final)):
            if not filecmp.cmp(self.path, final, shallow=False):
                raise other_bytes(str(final))

    def link(self, name: str) -> bool:
        """Store the file safely under a name; return False where that exists."""
        final = self.path.with_name(name)
        with file_errors(str(final)):
            os.fsync(self.file)
            try:
                os.link(self.path, final)
            except FileExistsError:
                return False
            self.path.unlink()
            sync_folder(final.parent)
        return True

    def close(self) -> None:
        """See `Spool`."""
        file, self.file = self.file, -1
        if file >= 0:
            with file_errors(str(self.path)):
                self.path.unlink(missing_ok=True)
                os.close(file)


def _remove_unlocked(path: Path) -> None:
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except BlockingIOError:  # its writer is at work
        pass
    finally:
        os.close(file)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextlib.contextmanager
def file_errors(where: str) -> Iterator[None]:
    """Raise errors of the system about a file or folder as those of this project."""
    try:
        yield
    except OSError as exc:
        if exc.errno in _FULL:
            raise ProcessExhausted(f"{where}: {exc.strerror}; make room, then repeat") from exc
        if exc.errno in _NO_LINKS and exc.filename2 is not None:
            raise Misconfigured(
                f"{where}: its file system has no hard links, by which a file becomes visible as a"
                " whole, and never over another one; choose another folder"
            ) from exc
        if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise AccessDenied(f"{where}: {exc.strerror}; change its mode") from exc
        raise StoreUnavailable(f"{where}: {exc}") from exc
