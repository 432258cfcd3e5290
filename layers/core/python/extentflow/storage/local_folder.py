"""The Folder adapter for local directories.

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
from extentflow.storage.folders import PROBE, TEMPORARY, Spool, other_bytes

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """The Folder port below `root`, which is created with its first file."""

    root: Path

    def uri(self, name: str = "") -> str:
        """See `Folder`."""
        return str(self.root / name)

    def below(self, folder: str) -> LocalFolder:
        """See `Folder`."""
        return LocalFolder(self.root / folder)

    def names(self, prefix: str = "", start: str = "") -> Iterator[str]:
        """See `Folder`."""
        found: list[str] = []
        with file_errors(self.uri(prefix)):
            for folder, _, files in os.walk(self.root / prefix):
                above = Path(folder).relative_to(self.root)
                own = (name for name in files if not name.startswith((TEMPORARY, PROBE)))
                found += [(above / name).as_posix() for name in own]
        yield from sorted(name for name in found if name >= start)

    def read(self, name: str) -> bytes:
        """See `Folder`."""
        path = self.root / name
        with file_errors(str(path)):
            try:
                return path.read_bytes()
            except FileNotFoundError as exc:
                raise ObjectGone(f"{path}: no such file") from exc

    def create(self, name: str, content: bytes) -> bool:
        """See `Folder`."""
        path = self.root / name
        with contextlib.closing(_spool(path.parent)) as spool:
            spool.write(content)
            return spool.link(path.name) or spool.has_bytes_of(path.name)

    def put(self, name: str, content: bytes) -> None:
        """See `Folder`."""
        path = self.root / name
        with contextlib.closing(_spool(path.parent)) as spool:
            spool.write(content)
            spool.replace(path.name)

    def move(self, name: str, target: str) -> None:
        """See `Folder`."""
        path = self.root / target
        with file_errors(str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                (self.root / name).replace(path)
            except FileNotFoundError as exc:
                if path.exists():
                    return
                neither = f"{path}: neither the file nor {self.root / name} exists"
                raise ObjectGone(neither) from exc
            sync_folder(path.parent)
        self._prune(self.root / name)

    def delete(self, name: str) -> None:
        """See `Folder`; folders that become empty are deleted, too."""
        path = self.root / name
        with file_errors(str(path)):
            path.unlink(missing_ok=True)
        self._prune(path)

    def spool(self) -> Spool:
        """See `Folder`."""
        return _spool(self.root)

    def clean(self) -> None:
        """See `Folder`."""
        with file_errors(str(self.root)):
            for path in self.root.glob(f"{TEMPORARY}*"):
                with contextlib.suppress(FileNotFoundError):
                    _remove_unlocked(path)

    def require_bucket(self) -> None:
        """See `Folder`."""

    def creates_once(self) -> bool:
        """See `Folder`: a link to a name that exists fails."""
        return True

    def _prune(self, path: Path) -> None:
        """Delete the folders between a path and the root that are empty."""
        with contextlib.suppress(OSError):  # not empty
            while path.parent != self.root:
                path = path.parent
                path.rmdir()


def _spool(folder: Path) -> LocalSpool:
    with file_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            name = folder / f"{TEMPORARY}{secrets.token_hex(8)}"
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
        if not (self.link(name) or self.has_bytes_of(name)):
            raise other_bytes(str(self.path.with_name(name)))

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

    def replace(self, name: str) -> None:
        """Store the file safely under a name, in place of any other file."""
        final = self.path.with_name(name)
        with file_errors(str(final)):
            os.fsync(self.file)
            self.path.replace(final)
            sync_folder(final.parent)

    def has_bytes_of(self, name: str) -> bool:
        """Return whether a file beside this one exists and has the same bytes."""
        final = self.path.with_name(name)
        with file_errors(str(final)), contextlib.suppress(FileNotFoundError):
            return filecmp.cmp(self.path, final, shallow=False)
        return False

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
