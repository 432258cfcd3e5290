"""The resources of a template, with properties that are resolved when they are asked for.

Owns: finding resources by type, typed access to properties. Refuses to know: what they mean.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from extentflow_local.event_source.intrinsics import Unresolved
from extentflow_local.event_source.names import Names


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource. Every question may raise Unresolved."""

    logical_id: str
    given: Mapping[str, Any]
    names: Names

    @property
    def ref(self) -> str:
        """What Ref gives."""
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
        """Return a property, None where it is not given."""
        return self.names.value(self.given.get(key))

    def text(self, key: str) -> str:
        """Return a property that has to be given."""
        found = self.value(key)
        if not isinstance(found, str):
            raise Unresolved(f"{key} is missing")
        return found

    def whole(self, key: str, default: int) -> int:
        """Return a number."""
        found = self.value(key)
        return default if found is None else int(found)

    def refuse(self, *keys: str) -> None:
        """Raise Unresolved where a property is given that would have to be emulated."""
        given = [key for key in keys if self.given.get(key)]
        if given:
            raise Unresolved(f"{', '.join(given)}: not emulated on one machine")


def resources_of(template: Mapping[str, Any], names: Names, kind: str) -> Iterator[Resource]:
    """Yield the resources of one type, in the template's order."""
    for name, resource in template.get("Resources", {}).items():
        if resource.get("Type") == kind:
            yield Resource(name, resource.get("Properties", {}), names)
