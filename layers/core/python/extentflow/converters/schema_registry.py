"""Schemas in a registry: the port, and how a converter settles its schema before the first record.

find --known--> write
| new
revise by the subject's versions, find again
| new
check --preview--> nothing is registered
|
register --> write
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from extentflow.errors import IncompatibleSchema

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"

# Returns the schema to register after those that a subject has, whose texts it receives, the newest
# first. Raises IncompatibleSchema.
Revision: TypeAlias = Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a subject; `id` "": not registered. `prefix` begins every payload."""

    id: str
    text: str
    prefix: bytes
    is_compressed: bool = False


class SchemaRegistry(Protocol):
    """Schemas of one kind by subject. Every call can be repeated.

    All raise RegistryUnavailable, AccessDenied, Misconfigured.
    """

    def find(self, subject: str, text: str) -> RegisteredSchema | None:
        """Return the schema `text` if the subject has it, by content."""

    def check(self, subject: str, text: str) -> None:
        """Raise IncompatibleSchema for a schema that the subject's rule excludes."""

    def register(self, subject: str, text: str) -> RegisteredSchema:
        """Make the schema the subject's latest one; the same text gets the same id.

        Raises IncompatibleSchema with the registry's reason.
        """

    def versions(self, subject: str) -> Sequence[str]:
        """Return the texts of the subject's schemas, the newest first."""

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the latest schema of the subject. Raises IncompatibleSchema."""

    def describe(self) -> str:
        """Return what the registry says of itself, for checks."""


@dataclass(slots=True)
class SettledSchemas:
    """What this process settled with one registry: each schema once. Safe for threads."""

    registry: SchemaRegistry
    may_register: bool
    _known: dict[tuple[str, str], RegisteredSchema] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def settle(
        self, subject: str, text: str, *, preview: bool = False, revise: Revision | None = None
    ) -> RegisteredSchema:
        """Return the schema `text` as the subject has it, registered if it is new.

        A new one is what `revise` makes of the subject's versions. With `preview`, it is checked,
        not registered, and has no id.
        Raises IncompatibleSchema with the reason; RegistryUnavailable; AccessDenied.
        """
        with self._lock:
            found = self._known.get((subject, text))
            if found is None:
                found = self._settled(subject, text, revise, preview=preview)
                if found.id:
                    self._known[subject, text] = found
            return found

    def _settled(
        self, subject: str, text: str, revise: Revision | None, *, preview: bool
    ) -> RegisteredSchema:
        known = self.registry.find(subject, text)
        if known is None and revise is not None and (versions := self.registry.versions(subject)):
            text = revise(versions)
            known = self.registry.find(subject, text)
        if known is not None:
            return known
        if not self.may_register:
            raise IncompatibleSchema(
                f"the subject {subject} has no such schema; register it, or set"
                f" auto.register.schemas=true. The schema: {text}"
            )
        self.registry.check(subject, text)
        if preview:
            return RegisteredSchema("", text, b"")
        return self.registry.register(subject, text)
