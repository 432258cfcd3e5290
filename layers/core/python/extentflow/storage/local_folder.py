"""A folder on a local disk, or a mounted one, for lake targets."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from extentflow.errors import ObjectGone
from extentflow.storage.local_target import file_errors, sync_folder


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """The Folder port; hidden files beside the target hold what is not complete yet."""

    root: Path

    @property
    def uri(self) -> str:
        """See `Folder`."""
        return self.root.as_uri()

    def create(self, name: str, content: bytes) -> bool:
        """See `Folder`; a hard link to a complete file is created once."""
        path = self.root / name
        with file_errors(str(path)), _written(path, content) as half:
            try:
                os.link(half, path)
            except FileExistsError:
                return False
            sync_folder(path.parent)
        return True

    def put(self, name: str, content: bytes) -> None:
        """See `Folder`."""
        path = self.root / name
        with file_errors(str(path)), _written(path, content) as half:
            half.replace(path)
            sync_folder(path.parent)

    def read(self, name: str) -> bytes | None:
        """See `Folder`."""
        path = self.root / name
        with file_errors(str(path)), suppress(FileNotFoundError):
            return path.read_bytes()
        return None

    def names(self, prefix: str) -> Iterator[str]:
        """See `Folder`."""
        found = (self.root / prefix).rglob("*")
        files = [path for path in found if path.is_file() and not path.name.startswith(".")]
        yield from sorted(path.relative_to(self.root).as_posix() for path in files)

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

    def _prune(self, path: Path) -> None:
        """Delete the folders above a path that are empty."""
        with suppress(OSError):  # not empty
            while path.parent != self.root:
                path = path.parent
                path.rmdir()

    def require_bucket(self) -> None:
        """See `Folder`."""

    def creates_once(self) -> bool:
        """See `Folder`."""
        return True


@contextmanager
def _written(path: Path, content: bytes) -> Iterator[Path]:
    """Give a complete, durable file beside `path`, which is deleted where it still exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        with half.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield half
    finally:
        half.unlink(missing_ok=True)
