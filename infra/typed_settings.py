"""Settings have the types that their classes state: a text becomes a choice, the rest is refused.

    Cluster(auth="iam")         as Cluster(auth=Auth.IAM)
    Network(subnets=(one))      subnets is a Subnet: write a tuple, (Subnet(...),)
    Network(subnet=(one,))      subnet: there is no such setting; write subnets

Python checks no types: a text would be a tuple of its letters, and equal to a choice that it is
not. Settings keep what is wrong with them until `misfits` is called, because only the stage that
they are written for has a name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from types import UnionType
from typing import Any, ClassVar, get_args, get_origin, get_type_hints


class _Recording(type):
    """Creates settings of whatever is written, and records what does not fit their class."""

    def __call__(cls, *unnamed: object, **written: object) -> Any:  # noqa: ANN401 - settings
        own, hints = {one.name: one for one in fields(cls)}, get_type_hints(cls)  # type: ignore[arg-type] # dataclasses only
        wrong = [f"{_shown(value)} has no name: write NAME={_literal(value)}" for value in unnamed]
        wrong += [_unknown(name, own) for name in written if name not in own]
        given = {name: value for name, value in written.items() if name in own}
        for name, value in given.items():
            if found := [f"{name} {problem}" for problem in _problems(value, hints[name])]:
                wrong += found
            elif isinstance(hints[name], type) and issubclass(hints[name], StrEnum):
                given[name] = hints[name](value)
        for name, one in own.items():
            if name not in given and one.default is one.default_factory is MISSING:
                wrong.append(
                    f"{name} is missing: write {_ways(get_origin(hints[name]) or hints[name])}"
                )
                given[name] = None
        made = super().__call__(**given)
        object.__setattr__(made, "_wrong", tuple(wrong))
        return made


class TypedSettings(metaclass=_Recording):
    """The base of settings."""

    __slots__ = ("_wrong",)
    __dataclass_fields__: ClassVar[dict[str, Any]]
    _wrong: tuple[str, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """Create copies and pickled settings as written ones, with what does not fit."""
        written = {one.name: getattr(self, one.name) for one in fields(self)}
        return partial(type(self), **written), ()

    def misfits(self, place: str = "") -> Iterator[str]:
        """Yield what does not fit the classes of these settings, and of settings within them."""
        yield from (f"{place}{problem}" for problem in self._wrong)
        for one in fields(self):
            for name, value in items(one.name, getattr(self, one.name)):
                if isinstance(value, TypedSettings):
                    yield from value.misfits(f"{place}{name}.")


def items(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield a value with its setting's name, or the items of a tuple with theirs."""
    if not isinstance(value, tuple):
        yield name, value
        return
    for number, each in enumerate(value):
        own = getattr(each, "name", None)
        yield f"{name}[{own if isinstance(own, str) else number}]", each


def _unknown(name: str, known: Mapping[str, object]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"{name}: there is no such setting; write {near[0] if near else ', '.join(known)}"


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
