"""The resources of a template, with properties that are resolved on access."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from extentflow_local.aws.event_source.intrinsics import UnresolvedValue
from extentflow_local.aws.event_source.names import Names


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource. Every access may raise UnresolvedValue."""

    logical_id: str
    given: Mapping[str, Any]
    names: Names

    @property
    def ref(self) -> str:
        """The result of Ref."""
        return self.names.look(self.logical_id)

    @property
    def arn(self) -> str:
        """Its ARN."""
        return self.names.look(self.logical_id, "Arn")

    @property
    def physical(self) -> str:
        """Its own name."""
        return self.names.physical(self.logical_id)

    def value(self, key: str) -> Any:  # noqa: ANN401 - any JSON
        """Return a property, or None if it is missing."""
        return self.names.value(self.given.get(key))

    def text(self, key: str) -> str:
        """Return a mandatory property."""
        found = self.value(key)
        if not isinstance(found, str):
            raise UnresolvedValue(f"{key} is missing")
        return found

    def whole(self, key: str, default: int) -> int:
        """Return a number."""
        found = self.value(key)
        return default if found is None else int(found)

    def refuse(self, *keys: str) -> None:
        """Raise UnresolvedValue if a property is present that is not emulated."""
        given = [key for key in keys if self.given.get(key)]
        if given:
            raise UnresolvedValue(f"{', '.join(given)}: not emulated on one machine")


def resources_of(template: Mapping[str, Any], names: Names, kind: str) -> Iterator[Resource]:
    """Yield the resources of one type, in the template's order."""
    for name, resource in template.get("Resources", {}).items():
        if resource.get("Type") == kind:
            yield Resource(name, resource.get("Properties", {}), names)
