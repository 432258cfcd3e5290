"""EMR Serverless' own description, as boto3 has it: which request is which call, and what fits.

Owns: finding a call by method and path, its parameters, what is wrong with them, what errors look
like. Refuses to know: runs, and how requests come in.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import botocore.session
from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StructureShape

SERVICE = "emr-serverless"
CALLS = ("StartJobRun", "GetJobRun", "CancelJobRun")
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "structure": dict,
    "map": dict,
    "list": list,
    "string": str,
    "integer": int,
    "long": int,
    "boolean": bool,
    "double": (int, float),
    "timestamp": (int, float),
}
_FIELD = re.compile(r"\\\{(\w+)\\\}")


class Refused(Exception):  # noqa: N818 - it reads as an outcome
    """The service says no; `kind` is one of its errors."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the call's name and its parameters, which fit."""

    name: str
    parameters: Mapping[str, Any]


@cache
def service() -> ServiceModel:
    """Return the description."""
    return botocore.session.get_session().get_service_model(SERVICE)


def call_of(method: str, target: str, body: bytes) -> Call:
    """Return what is asked for.

    Raises:
        Refused: no call is like that (UnknownOperationException), or its parameters do not fit
            (ValidationException).
    """
    where = urlsplit(target)
    for operation in map(service().operation_model, CALLS):
        matched = _path(operation).fullmatch(where.path)
        if operation.http["method"] != method or matched is None:
            continue
        given = {name: unquote(text) for name, text in matched.groupdict().items()}
        wanted = _required(operation.input_shape)
        parameters = {**given, **_queried(wanted, where.query), **_written(body)}
        found = list(problems(wanted, parameters))
        if found:
            told = "; ".join(found)
            raise Refused(
                "ValidationException", f"{len(found)} validation error(s) detected: {told}"
            )
        return Call(operation.name, parameters)
    raise Refused("UnknownOperationException", f"{method} {where.path} is no call of {SERVICE}")


def status_of(kind: str) -> int:
    """Return the HTTP status of an error."""
    shapes = {shape.name: shape for shape in service().error_shapes}
    if kind not in shapes:
        return HTTPStatus.NOT_FOUND
    return int(shapes[kind].metadata["error"]["httpStatusCode"])


def answer_shape(name: str) -> StructureShape:
    """Return the shape of a call's answer."""
    return _required(service().operation_model(name).output_shape)


def problems(shape: Shape, value: Any, where: str = "") -> Iterator[str]:  # noqa: ANN401 - any JSON
    """Yield in what a value does not fit a shape."""
    odd = not isinstance(value, _TYPES[shape.type_name])
    if odd or (isinstance(value, bool) and shape.type_name != "boolean"):
        yield f"Value at '{where}' failed to satisfy constraint: must be a {shape.type_name}"
        return
    for constraint in _broken(shape, value):
        yield f"Value at '{where}' failed to satisfy constraint: {constraint}"
    if isinstance(shape, StructureShape):
        yield from _members(shape, value, where)
    elif isinstance(shape, MapShape):
        for key, one in value.items():
            yield from problems(shape.key, key, where)
            yield from problems(shape.value, one, f"{where}.{key}")
    elif isinstance(shape, ListShape):
        for index, one in enumerate(value):
            yield from problems(shape.member, one, f"{where}[{index}]")


def _members(shape: StructureShape, value: Mapping[str, Any], where: str) -> Iterator[str]:
    for name in shape.required_members:
        if value.get(name) is None:
            yield f"Value null at '{_below(where, name)}' failed to satisfy constraint: not null"
    for name, one in value.items():
        if name not in shape.members:
            yield f"'{_below(where, name)}' is no parameter"
        elif one is not None:
            yield from problems(shape.members[name], one, _below(where, name))


def _broken(shape: Shape, value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    """Yield the constraints of a shape that a value does not satisfy."""
    limits = shape.metadata
    size = len(value) if isinstance(value, str | list | dict) else value
    if "min" in limits and size < limits["min"]:
        yield f"at least {limits['min']}"
    if "max" in limits and size > limits["max"]:
        yield f"at most {limits['max']}"
    if "enum" in limits and value not in limits["enum"]:
        yield f"one of {limits['enum']}"
    # The whole of it, as Java's `matches`; over several lines, or no certificate would do.
    if "pattern" in limits and not re.fullmatch(limits["pattern"], value, re.DOTALL):
        yield f"must match {limits['pattern']}"


def _below(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _path(operation: OperationModel) -> re.Pattern[str]:
    return re.compile(_FIELD.sub(r"(?P<\1>[^/]+)", re.escape(operation.http["requestUri"])))


def _required(shape: StructureShape | None) -> StructureShape:
    if shape is None:
        raise TypeError("every call of CALLS has parameters and an answer")
    return shape


def _queried(wanted: StructureShape, query: str) -> dict[str, Any]:
    """Return the parameters of a query, those that are numbers as such."""
    members = wanted.members
    found: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
    for name, text in found.items():
        whole = name in members and members[name].type_name == "integer"
        if whole and text.isascii() and text.isdigit():
            found[name] = int(text)
    return found


def _written(body: bytes) -> dict[str, Any]:
    """Return the parameters of a body, if it has one."""
    try:
        found = json.loads(body or b"{}")
    except ValueError as exc:
        raise Refused("ValidationException", f"the body is no JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise Refused("ValidationException", "the body is no JSON object")
    return found
