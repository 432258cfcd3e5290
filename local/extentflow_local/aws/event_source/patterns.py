"""EventBridge event patterns with exact values."""

from collections.abc import Mapping
from typing import Any

from extentflow_local.aws.event_source.intrinsics import UnresolvedValue


def wants(pattern: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Return whether an event has one of the values for every field of the pattern."""
    return all(_holds(wanted, event.get(name)) for name, wanted in pattern.items())


def check(pattern: Mapping[str, Any]) -> None:
    """Check that a pattern contains exact values only.

    Raises:
        UnresolvedValue: it has filters, such as a prefix.
    """
    for name, wanted in pattern.items():
        if isinstance(wanted, Mapping):
            check(wanted)
        elif not isinstance(wanted, list) or any(isinstance(one, Mapping) for one in wanted):
            raise UnresolvedValue(f"EventPattern.{name}: only exact values are emulated")


def _holds(wanted: Any, found: Any) -> bool:  # noqa: ANN401 - any JSON
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and wants(wanted, found)
    return found in wanted
