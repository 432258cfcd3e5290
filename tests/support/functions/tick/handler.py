"""A function that returns what it got."""

from typing import Any


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:  # noqa: ANN401 - Lambda's
    return event
