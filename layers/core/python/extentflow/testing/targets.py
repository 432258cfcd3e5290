"""MemoryTarget: the FileTarget port over a dict, in which a process can end at every step."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from extentflow.errors import ObjectGone
from extentflow.storage.targets import Spool, other_bytes

T = TypeVar("T")


@dataclass(slots=True)
class MemoryTarget:
    """Files by folder and name.

    `on_call` is called before and after each call that changes or reads files, with its name and
    `before` or `after`; what it raises ends the process that calls.
    """

    files: dict[tuple[str, str], bytes] = field(default_factory=dict)
    on_call: Callable[[str, str], None] = lambda _name, _when: None
    honours_conditions: bool = True
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def uri(self, folder: str, name: str = "") -> str:
        return f"memory://{folder}/{name}"

    def names(self, folder: str, start: str = "") -> list[str]:
        def names() -> list[str]:
            return sorted(name for at, name in self.files if at == folder and name >= start)

        return self.call("names", names)

    def read(self, folder: str, name: str) -> bytes:
        def read() -> bytes:
            if (folder, name) not in self.files:
                raise ObjectGone(f"{self.uri(folder, name)}: no such file")
            return self.files[folder, name]

        return self.call("read", read)

    def create(self, folder: str, name: str, content: bytes) -> bool:
        def create() -> bool:
            if self.honours_conditions and (folder, name) in self.files:
                return self.files[folder, name] == content
            self.files[folder, name] = content
            return True

        return self.call("create", create)

    def delete(self, folder: str, name: str) -> None:
        def delete() -> None:
            self.files.pop((folder, name), None)

        self.call("delete", delete)

    def spool(self, folder: str) -> Spool:
        return MemorySpool(self, folder)

    def clean(self, folder: str) -> None:
        _ = folder  # spools have no names here
        self.call("clean", lambda: None)

    def require_bucket(self) -> None:
        """Nothing is missing in memory."""

    def refuses_existing(self) -> bool:
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
    """A file of a MemoryTarget that is being written."""

    target: MemoryTarget
    folder: str
    content: bytearray = field(default_factory=bytearray)

    def write(self, data: bytes | memoryview) -> None:
        self.content += data

    def publish(self, name: str) -> None:
        def publish() -> None:
            key, content = (self.folder, name), bytes(self.content)
            if self.target.files.setdefault(key, content) != content:
                raise other_bytes(self.target.uri(self.folder, name))

        self.target.call("publish", publish)

    def close(self) -> None:
        self.content.clear()
