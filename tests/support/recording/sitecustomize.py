"""On the path of functions in tests: writes down every AWS call that their processes make.

One JSON line per call, in RECORDED_CALLS/<service>.jsonl: `api`, `operation`, `params` as the
caller gave them, `status` (0: no answer), `key` (the access key that signed).
"""

import json
import os
from pathlib import Path
from typing import Any

import botocore

FOLDER = "RECORDED_CALLS"
FUNCTION = "POWERTOOLS_SERVICE_NAME"
LONGEST = 2_000  # characters of any text; no resource's name is longer


def follow(session: Any) -> None:  # noqa: ANN401 - botocore's, untyped
    """Listen to all clients that a session makes."""
    session.register("before-parameter-build", note_params)
    session.register("before-call", note_key)
    session.register("after-call", answered)
    session.register("after-call-error", unanswered)


def note_params(*, params: dict[str, Any], context: dict[str, Any], **_: object) -> None:
    """Keep what the caller asked for; botocore changes it on its way."""
    context["recorded"] = {"params": shortened(params)}


def note_key(*, context: dict[str, Any], request_signer: Any, **_: object) -> None:  # noqa: ANN401
    """Keep who asks: roles of connectors are not the function's own."""
    context["recorded"]["key"] = request_signer._credentials.get_frozen_credentials().access_key


def answered(*, http_response: Any, model: Any, context: dict[str, Any], **_: object) -> None:  # noqa: ANN401
    """Record a call that was answered, errors included."""
    record(model, {**context["recorded"], "status": http_response.status_code})


def unanswered(*, event_name: str, context: dict[str, Any], **_: object) -> None:
    """Record a call without an answer; such an event names no model."""
    api, operation = event_name.split(".")[1:]
    write({"api": api, "operation": operation, **context["recorded"], "status": 0})


def record(model: Any, found: dict[str, Any]) -> None:  # noqa: ANN401 - botocore's, untyped
    """Write one call down."""
    api = model.service_model.service_id.hyphenize()
    write({"api": api, "operation": model.name, **found})


def write(call: dict[str, Any]) -> None:
    """Append a line in one piece: threads and processes share the file."""
    file = Path(os.environ[FOLDER]) / f"{os.environ[FUNCTION]}.jsonl"
    line = json.dumps(call, default=str) + "\n"
    place = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(place, line.encode())
    finally:
        os.close(place)


def shortened(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return parameters with long texts cut."""
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shortened(item) for item in value]
    return value[:LONGEST] if isinstance(value, str | bytes) else value


botocore.register_initializer(follow)
