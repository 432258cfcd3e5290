"""A folder on a local disk, or a mounted one, for lake targets."""

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from extentflow.errors import AccessDenied, ObjectGone, StoreUnavailable
from extentflow.storage.local_target import sync_folder


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
        half = self._written(path, content)
        try:
            os.link(half, path)
        except FileExistsError:
            return False
        except OSError as exc:
            raise _translated(exc, path) from exc
        finally:
            half.unlink(missing_ok=True)
        sync_folder(path.parent)
        return True

    def put(self, name: str, content: bytes) -> None:
        """See `Folder`."""
        path = self.root / name
        half = self._written(path, content)
        try:
            half.replace(path)
        except OSError as exc:
            raise _translated(exc, path) from exc

    def read(self, name: str) -> bytes | None:
        """See `Folder`."""
        path = self.root / name
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise _translated(exc, path) from exc

    def names(self, prefix: str) -> Iterator[str]:
        """See `Folder`."""
        found = (self.root / prefix).rglob("*")
        files = [path for path in found if path.is_file() and not path.name.startswith(".")]
        yield from sorted(path.relative_to(self.root).as_posix() for path in files)

    def move(self, name: str, target: str) -> None:
        """See `Folder`."""
        path = self.root / target
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).replace(path)
        except FileNotFoundError as exc:
            if not path.exists():
                raise ObjectGone(f"{path}: neither the file nor {self.root / name} exists") from exc
            return
        except OSError as exc:
            raise _translated(exc, path) from exc
        sync_folder(path.parent)
        self._prune(self.root / name)

    def delete(self, name: str) -> None:
        """See `Folder`; folders that become empty are deleted, too."""
        path = self.root / name
        try:
            path.unlink(missing_ok=True)
        except OSError as exc:
            raise _translated(exc, path) from exc
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

    def _written(self, path: Path, content: bytes) -> Path:
        """Return a complete, durable file beside `path`."""
        half = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with half.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as exc:
            with suppress(OSError):  # there may be none
                half.unlink()
            raise _translated(exc, path) from exc
        return half


def _translated(exc: OSError, path: Path) -> AccessDenied | StoreUnavailable:
    if isinstance(exc, PermissionError):
        return AccessDenied(f"{path}: {exc.strerror}; let this user write there")
    return StoreUnavailable(f"{path}: {exc.strerror or exc}")
