"""The artifacts of each component and their hashes: components.toml and its lock file."""

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Self

from extentflow_local.stack.errors import LockInvalid

COMPONENTS = Path(__file__).with_name("components.toml")
LOCK = Path(__file__).with_name("components.lock.json")

_COORDINATE = re.compile(
    r"(?P<group>[\w.-]+):(?P<artifact>[\w.-]+):(?P<version>[\w.+-]+)"
    r"(?::(?P<classifier>[\w.-]+))?(?:@(?P<extension>[\w.]+))?",
    re.ASCII,
)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, order=True)
class Coordinate:
    """The name of one artifact, written `group:artifact:version[:classifier][@extension]`."""

    group: str
    artifact: str
    version: str
    classifier: str = ""
    extension: str = "jar"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a coordinate.

        Raises:
            LockInvalid: `text` is not a coordinate.
        """
        match = _COORDINATE.fullmatch(text)
        if match is None:
            raise LockInvalid(
                f"{text!r} is not an artifact: write "
                "group:artifact:version[:classifier][@extension]"
            )
        parts = match.groupdict()
        return cls(
            parts["group"],
            parts["artifact"],
            parts["version"],
            parts["classifier"] or "",
            parts["extension"] or "jar",
        )

    @property
    def file_name(self) -> str:
        """The file name in Maven repositories and in library folders."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{classifier}.{self.extension}"

    def __str__(self) -> str:
        classifier = f":{self.classifier}" if self.classifier else ""
        extension = "" if self.extension == "jar" else f"@{self.extension}"
        return f"{self.group}:{self.artifact}:{self.version}{classifier}{extension}"


@dataclass(frozen=True, slots=True)
class Component:
    """A wanted component, before resolution."""

    name: str
    roots: tuple[Coordinate, ...]
    transitive: bool = True
    without: tuple[str, ...] = ()

    def keeps(self, coordinate: Coordinate) -> bool:
        """Return whether an artifact of the closure is part of the component."""
        return not any(fnmatchcase(str(coordinate), pattern) for pattern in self.without)


@dataclass(frozen=True, slots=True)
class LockedComponent:
    """The exact artifacts of a component, each with its SHA-256 in hexadecimal."""

    name: str
    artifacts: Mapping[Coordinate, str] = field(hash=False)

    @property
    def digest(self) -> str:
        """Changes with any artifact; part of the library folder's name."""
        lines = (f"{coordinate} {sha256}" for coordinate, sha256 in sorted(self.artifacts.items()))
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def read_components(path: Path = COMPONENTS) -> dict[str, Component]:
    """Read the wanted components."""
    return {
        name: Component(
            name=name,
            roots=tuple(Coordinate.parse(root) for root in table["roots"]),
            transitive=table.get("transitive", True),
            without=tuple(table.get("without", ())),
        )
        for name, table in tomllib.loads(path.read_text(encoding="utf-8")).items()
    }


def read_lock(path: Path = LOCK) -> dict[str, LockedComponent]:
    """Read the lock file.

    Raises:
        LockInvalid: it is missing, is not JSON, or contains invalid artifacts or hashes.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        locked = {name: _locked(name, artifacts) for name, artifacts in document.items()}
    except (OSError, ValueError, AttributeError, LockInvalid) as cause:
        raise LockInvalid(
            f"{path} is not a valid lock file: {cause}; restore it from version control"
        ) from cause
    return locked


def write_lock(components: Mapping[str, LockedComponent], path: Path = LOCK) -> None:
    """Write the lock file, sorted, so that a changed artifact is one changed line."""
    document = {
        name: {str(key): value for key, value in sorted(component.artifacts.items())}
        for name, component in components.items()
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def sha256_of(path: Path) -> str:
    """Hash a file in constant memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _locked(name: str, artifacts: Mapping[str, object]) -> LockedComponent:
    parsed: dict[Coordinate, str] = {}
    file_names: set[str] = set()
    for text, sha256 in artifacts.items():
        coordinate = Coordinate.parse(text)
        if not isinstance(sha256, str) or _SHA256.fullmatch(sha256) is None:
            raise LockInvalid(f"{name}: {text} has no SHA-256")
        if coordinate.file_name in file_names:
            raise LockInvalid(f"{name}: two artifacts are called {coordinate.file_name}")
        file_names.add(coordinate.file_name)
        parsed[coordinate] = sha256
    if not parsed:
        raise LockInvalid(f"{name} has no artifacts")
    return LockedComponent(name, parsed)
