"""Answers of AWS for tests, which must have the shapes in which botocore describes operations."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError
from botocore.session import get_session
from botocore.validate import validate_parameters

Answers = dict[tuple[str, str], Any]


def refused(code: str) -> ClientError:
    details = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {}}
    return ClientError(details, "an operation")  # type: ignore[arg-type]


@cache
def described(service: str) -> Any:  # noqa: ANN401 - botocore makes clients at run time
    """Return a client that only describes its service."""
    return get_session().create_client(
        service,
        region_name="eu-central-1",
        aws_access_key_id="none",
        aws_secret_access_key="none",
    )


def require_described(value: Any, shape: Any) -> None:  # noqa: ANN401 - JSON, and botocore's shape
    """Check that AWS has every member of an answer; tests leave the other members out."""
    if shape.type_name == "structure":
        for name, member in value.items():
            require_described(member, shape.members[name])
    elif shape.type_name == "list":
        for each in value:
            require_described(each, shape.member)


class Client:
    """A client of one service, with the answers of a test.

    Requests and answers must have the shapes in which botocore describes the operation.
    """

    def __init__(self, service: str, answers: Answers) -> None:
        self._service = service
        self._answers = answers

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        found = described(self._service)
        model = found.meta.service_model.operation_model(
            found.meta.method_to_api_mapping[operation]
        )
        answer = self._answers[self._service, operation]

        def call(**request: object) -> Any:  # noqa: ANN401 - JSON
            validate_parameters(request, model.input_shape)
            if isinstance(answer, Exception):
                raise answer
            made = answer(request) if callable(answer) else answer
            require_described(made, model.output_shape)
            return made

        return call


def account(name: str) -> Answers:
    """Return the answers that `accounts/<name>.json` records, by service and operation.

    An entry is an answer, `{"error": CODE}`, or a list of answers for parts of a request.
    """
    found = json.loads((Path(__file__).with_name("accounts") / f"{name}.json").read_text())
    return {_call(key): _answer(entry) for key, entry in found.items()}


def _call(key: str) -> tuple[str, str]:
    service, _, operation = key.rpartition(".")
    return service, operation


def _answer(entry: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(entry, dict):
        return refused(entry["error"]) if "error" in entry else entry

    def chosen(request: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
        return next(one["answer"] for one in entry if one["for"].items() <= request.items())

    return chosen
