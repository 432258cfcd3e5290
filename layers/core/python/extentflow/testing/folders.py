"""MemoryFolder: the Folder port over a dict, in which a process can end at every step."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

from extentflow.errors import ObjectGone
from extentflow.storage.folders import Spool, other_bytes

T = TypeVar("T")


@dataclass(slots=True)
class MemoryFolder:
    """Files by their whole names; `prefix` is empty or ends with `/`.

    `on_call` is called before and after each call that changes or reads files, with its name and
    `before` or `after`; what it raises ends the process that calls. With `moves_by_copy`, as on S3,
    a move is two steps, and `on_call` is called between them with `copied`.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    on_call: Callable[[str, str], None] = lambda _name, _when: None
    honours_conditions: bool = True
    moves_by_copy: bool = False
    prefix: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def uri(self, name: str = "") -> str:
        return f"memory://{self.prefix}{name}"

    def below(self, folder: str) -> Self:
        return replace(self, prefix=f"{self.prefix}{folder}/")

    def names(self, prefix: str = "", start: str = "") -> Iterator[str]:
        def names() -> list[str]:
            whole = self.prefix + prefix
            found = (one.removeprefix(self.prefix) for one in self.files if one.startswith(whole))
            return sorted(name for name in found if name >= start)

        yield from self.call("names", names)

    def read(self, name: str) -> bytes:
        def read() -> bytes:
            if self.prefix + name not in self.files:
                raise ObjectGone(f"{self.uri(name)}: no such file")
            return self.files[self.prefix + name]

        return self.call("read", read)

    def create(self, name: str, content: bytes) -> bool:
        def create() -> bool:
            key = self.prefix + name
            if self.honours_conditions and key in self.files:
                return self.files[key] == content
            self.files[key] = content
            return True

        return self.call("create", create)

    def put(self, name: str, content: bytes) -> None:
        self.call("put", lambda: self.files.update({self.prefix + name: content}))

    def move(self, name: str, target: str) -> None:
        def copy() -> bool:
            content = self.files.get(self.prefix + name)
            if content is not None:
                self.files[self.prefix + target] = content
                if not self.moves_by_copy:
                    del self.files[self.prefix + name]
            elif self.prefix + target not in self.files:
                raise ObjectGone(f"{self.uri(target)}: neither the file nor {name} exists")
            return content is not None and self.moves_by_copy

        if self.call("move", copy):
            self.on_call("move", "copied")
            self.delete(name)

    def delete(self, name: str) -> None:
        self.call("delete", lambda: self.files.pop(self.prefix + name, None))

    def spool(self) -> Spool:
        return MemorySpool(self)

    def clean(self) -> None:
        self.call("clean", lambda: None)  # spools have no names here

    def require_bucket(self) -> None:
        """Nothing is missing in memory."""

    def creates_once(self) -> bool:
        return self.honours_conditions

    def call(self, name: str, act: Callable[[], T]) -> T:
        """Return `act()`, which is atomic."""
        self.on_call(name, "before")
        with self._lock:
            found = act()
        self.on_call(name, "after")
        return found


@dataclass(slots=True)
class MemorySpool:
    """A file of a MemoryFolder that is being written."""

    folder: MemoryFolder
    content: bytearray = field(default_factory=bytearray)

    def write(self, data: bytes | memoryview) -> None:
        self.content += data

    def publish(self, name: str) -> None:
        def publish() -> None:
            content = bytes(self.content)
            if self.folder.files.setdefault(self.folder.prefix + name, content) != content:
                raise other_bytes(self.folder.uri(name))

        self.folder.call("publish", publish)

    def close(self) -> None:
        self.content.clear()
