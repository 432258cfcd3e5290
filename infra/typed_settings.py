"""Settings have the types that their classes state: a text becomes a choice, the rest is refused.

    Cluster(auth="iam")         as Cluster(auth=Auth.IAM)
    Network(subnets=(one))      Network: subnets is a Subnet: write a tuple, (Subnet(...),)

Python checks none of it: a text would be a tuple of its letters, and equal to a choice that it is
not.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from types import UnionType
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from extentflow.errors import Misconfigured


class TypedSettings:
    """The base of settings; construction raises Misconfigured with all settings of a wrong type."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __post_init__(self) -> None:
        """Make choices of texts, and check the types."""
        hints = get_type_hints(type(self))
        problems: list[str] = []
        for one in fields(self):
            value, hint = getattr(self, one.name), hints[one.name]
            problems.extend(f"{self}: {one.name} {problem}" for problem in _problems(value, hint))
            if isinstance(hint, type) and issubclass(hint, StrEnum) and not problems:
                object.__setattr__(self, one.name, hint(value))
        if problems:
            raise Misconfigured(problems)

    def __str__(self) -> str:
        """Return what an error calls these settings."""
        return type(self).__name__


def _problems(value: object, hint: Any) -> Iterator[str]:  # noqa: ANN401 - of typing
    origin, kinds = get_origin(hint), get_args(hint)
    if origin is UnionType:
        if not any(_fits(value, kind) for kind in kinds):
            yield from _problems(value, kinds[0])
    elif origin is tuple:
        if isinstance(value, tuple):
            for one in value:
                yield from _problems(one, kinds[0])
        else:
            yield f"is {_shown(value)}: write a tuple, ({_literal(value)},)"
    elif origin is Mapping and isinstance(value, Mapping):
        yield from _problems_of_values(value, kinds[1])
    elif not _fits(value, hint):
        if issubclass(hint, StrEnum):
            yield f"is {_shown(value)}: write {' or '.join(map(repr, map(str, hint)))}"
        else:
            yield f"is {_shown(value)}: write {_ways(origin or hint)}"


def _problems_of_values(settings: Mapping[object, object], hint: Any) -> Iterator[str]:  # noqa: ANN401 - of typing
    for name, value in settings.items():
        if not isinstance(name, str):
            yield f"has the name {_shown(name)}: write a text"
        yield from (f"of {name} {problem}" for problem in _problems(value, hint))


def _fits(value: object, hint: Any) -> bool:  # noqa: ANN401 - of typing
    origin = get_origin(hint)
    if origin is tuple or (origin is Mapping and isinstance(value, Mapping)):
        return next(_problems(value, hint), None) is None
    if isinstance(origin or hint, type) and issubclass(origin or hint, StrEnum):
        return isinstance(value, str) and value in set(hint)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, origin or hint)


def _shown(value: object) -> str:
    if isinstance(value, str | int | float | None):
        return repr(value)
    return f"a {type(value).__name__}"


def _literal(value: object) -> str:
    return f"{type(value).__name__}(...)" if is_dataclass(value) else repr(value)


def _ways(kind: type) -> str:
    if kind is Mapping:
        return "a dictionary, {name: value}"
    plain = {str: 'a text, "..."', int: "a whole number", bool: "True or False"}
    return plain.get(kind, f"{kind.__name__}(...)")
