"""A connector with its own topic, and numbered rows that are uploaded for it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from demo.eventpath import Upload
from demo.rig import Rig

Encode = Callable[[range], bytes]


class Site(Protocol):
    """Where feeds are delivered: commands, a bucket, and uploads to it."""

    @property
    def rig(self) -> Rig:
        """Commands and topics."""

    @property
    def bucket(self) -> str:
        """The bucket of all feeds."""

    def upload(self, key: str, body: bytes, connector: str) -> Upload:
        """Put an object; return its job of `connector`."""


@dataclass
class Feed:
    """A connector with its own topic, and its uploads."""

    path: Site
    name: str
    suffix: str
    expected: list[range] = field(default_factory=list)
    tolerated: list[range] = field(default_factory=list)
    uploads: list[Upload] = field(default_factory=list)

    def declare(self, **config: str) -> None:
        """Store the connector; `create_topic` creates its topic."""
        self.path.rig.put_connector(
            {
                "name": self.name,
                "topic": self.name,
                "aws.s3.bucket.name": self.path.bucket,
                "aws.s3.prefix": f"{self.name}/",
                **config,
            }
        )

    def create_topic(self) -> None:
        """Create its topic."""
        self.path.rig.create_topic(self.name)

    def upload(self, numbers: range, encode: Encode, *, label: str = "") -> Upload:
        """Upload an object of expected rows."""
        self.expected.append(numbers)
        return self._put(numbers, encode, label)

    def upload_corrupt(self, numbers: range, encode: Encode, *, label: str) -> Upload:
        """Upload an object that cannot be decoded completely."""
        self.tolerated.append(numbers)
        return self._put(numbers, encode, label)

    def _put(self, numbers: range, encode: Encode, label: str) -> Upload:
        key = f"{self.name}/{label or numbers.start}.{self.suffix}"
        self.uploads.append(self.path.upload(key, encode(numbers), self.name))
        return self.uploads[-1]


@dataclass
class Numbers:
    """Returns rows with unique numbers."""

    rows: int
    taken: int = 0

    def take(self) -> range:
        """Return the next object's rows."""
        self.taken += self.rows
        return range(self.taken - self.rows, self.taken)
