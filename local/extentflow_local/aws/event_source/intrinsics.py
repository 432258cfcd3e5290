"""CloudFormation's intrinsic functions: Ref, GetAtt, Join, Sub, Select, Split."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

_IN_SUB = re.compile(r"\$\{(!?)([^}]+)\}")

# Result of Ref, or with an attribute of Fn::GetAtt, for a name; raises UnresolvedValue.
Look = Callable[[str, str | None], str]

# Result of Ref for AWS::NoValue: the property is removed.
NO_VALUE: Final = object()


class UnresolvedValue(Exception):  # noqa: N818 - read_template collects it into Misconfigured
    """A value depends on something unknown here."""


def resolve(value: Any, look: Look) -> Any:  # noqa: ANN401 - any JSON
    """Return `value`, any JSON, with every intrinsic function replaced by its result.

    Raises:
        UnresolvedValue: it contains an unknown function or name.
    """
    if isinstance(value, list):
        found = [resolve(item, look) for item in value]
        return [item for item in found if item is not NO_VALUE]
    if not isinstance(value, Mapping):
        return value
    if len(value) == 1:
        ((name, arguments),) = value.items()
        if name == "Ref":
            return NO_VALUE if arguments == "AWS::NoValue" else look(arguments, None)
        if name.startswith("Fn::"):
            return _call(name, arguments, look)
    members = {key: resolve(item, look) for key, item in value.items()}
    return {key: item for key, item in members.items() if item is not NO_VALUE}


def _call(name: str, arguments: Any, look: Look) -> Any:  # noqa: ANN401 - any JSON
    function = _FUNCTIONS.get(name)
    if function is None:
        raise UnresolvedValue(f"{name} is not supported here")
    try:
        return function(arguments, look)
    except (ValueError, TypeError, IndexError) as exc:
        raise UnresolvedValue(f"{name} of {arguments} is malformed: {exc}") from exc


def _get_att(arguments: Any, look: Look) -> str:  # noqa: ANN401 - any JSON
    name, attribute = arguments.split(".", 1) if isinstance(arguments, str) else arguments
    return look(name, attribute)


def _join(arguments: Any, look: Look) -> str:  # noqa: ANN401 - any JSON
    delimiter, items = arguments
    return str(delimiter).join(str(item) for item in resolve(items, look))


def _split(arguments: Any, look: Look) -> list[str]:  # noqa: ANN401 - any JSON
    delimiter, text = arguments
    return str(resolve(text, look)).split(delimiter)


def _select(arguments: Any, look: Look) -> Any:  # noqa: ANN401 - any JSON
    index, items = arguments
    return resolve(items, look)[int(resolve(index, look))]


def _sub(arguments: Any, look: Look) -> str:  # noqa: ANN401 - any JSON
    text, given = (arguments, {}) if isinstance(arguments, str) else arguments

    def replacement(found: re.Match[str]) -> str:
        literal, name = found[1], found[2].strip()
        if literal:
            return f"${{{name}}}"
        if name in given:
            return str(resolve(given[name], look))
        name, _, attribute = name.partition(".")
        return look(name, attribute or None)

    return _IN_SUB.sub(replacement, text)


_FUNCTIONS: Mapping[str, Callable[[Any, Look], Any]] = {
    "Fn::GetAtt": _get_att,
    "Fn::Join": _join,
    "Fn::Select": _select,
    "Fn::Split": _split,
    "Fn::Sub": _sub,
}
