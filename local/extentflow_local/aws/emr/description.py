"""The service description of EMR Serverless in boto3: operations, parameters, errors."""

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
    """The service rejects the request; `kind` is one of its errors."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the operation's name and its validated parameters."""

    name: str
    parameters: Mapping[str, Any]


@cache
def service() -> ServiceModel:
    """Return the description."""
    return botocore.session.get_session().get_service_model(SERVICE)


def call_of(method: str, target: str, body: bytes) -> Call:
    """Return the operation of a request.

    Raises:
        Refused: unknown operation (UnknownOperationException), or invalid parameters
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
            problems_text = "; ".join(found)
            raise Refused(
                "ValidationException", f"{len(found)} validation error(s) detected: {problems_text}"
            )
        return Call(operation.name, parameters)
    raise Refused(
        "UnknownOperationException", f"{method} {where.path} is not an operation of {SERVICE}"
    )


def status_of(kind: str) -> int:
    """Return the HTTP status of an error."""
    shapes = {shape.name: shape for shape in service().error_shapes}
    if kind not in shapes:
        return HTTPStatus.NOT_FOUND
    return int(shapes[kind].metadata["error"]["httpStatusCode"])


def answer_shape(name: str) -> StructureShape:
    """Return the shape of an operation's response."""
    return _required(service().operation_model(name).output_shape)


def problems(shape: Shape, value: Any, where: str = "") -> Iterator[str]:  # noqa: ANN401 - any JSON
    """Yield the differences between a value and a shape."""
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
            yield f"'{_below(where, name)}' is not a parameter"
        elif one is not None:
            yield from problems(shape.members[name], one, _below(where, name))


def _broken(shape: Shape, value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    """Yield the constraints of a shape that a value violates."""
    limits = shape.metadata
    size = len(value) if isinstance(value, str | list | dict) else value
    if "min" in limits and size < limits["min"]:
        yield f"at least {limits['min']}"
    if "max" in limits and size > limits["max"]:
        yield f"at most {limits['max']}"
    if "enum" in limits and value not in limits["enum"]:
        yield f"one of {limits['enum']}"
    # Matches the whole value, as Java's `matches`; DOTALL, because certificates have several lines.
    if "pattern" in limits and not re.fullmatch(limits["pattern"], value, re.DOTALL):
        yield f"must match {limits['pattern']}"


def _below(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _path(operation: OperationModel) -> re.Pattern[str]:
    return re.compile(_FIELD.sub(r"(?P<\1>[^/]+)", re.escape(operation.http["requestUri"])))


def _required(shape: StructureShape | None) -> StructureShape:
    if shape is None:
        raise TypeError("every operation of CALLS has parameters and a response")
    return shape


def _queried(wanted: StructureShape, query: str) -> dict[str, Any]:
    """Return the parameters of a query; numbers are converted."""
    members = wanted.members
    found: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
    for name, text in found.items():
        whole = name in members and members[name].type_name == "integer"
        if whole and text.isascii() and text.isdigit():
            found[name] = int(text)
    return found


def _written(body: bytes) -> dict[str, Any]:
    """Return the parameters of a body, if there is one."""
    try:
        found = json.loads(body or b"{}")
    except ValueError as exc:
        raise Refused("ValidationException", f"the body is not JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise Refused("ValidationException", "the body is not a JSON object")
    return found
