"""EventBridge's patterns: which events a rule wants.

Owns: exact values, at any depth. Refuses to know: who sends events, what becomes of them.
"""

from collections.abc import Mapping
from typing import Any

from extentflow_local.event_source.intrinsics import Unresolved


def wants(pattern: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Whether every field that a pattern names has one of its values in an event."""
    return all(_holds(wanted, event.get(name)) for name, wanted in pattern.items())


def check(pattern: Mapping[str, Any]) -> None:
    """Check that a pattern names fields and their exact values, and nothing else.

    Raises:
        Unresolved: it has filters, such as a prefix.
    """
    for name, wanted in pattern.items():
        if isinstance(wanted, Mapping):
            check(wanted)
        elif not isinstance(wanted, list) or any(isinstance(one, Mapping) for one in wanted):
            raise Unresolved(f"EventPattern.{name}: only exact values are emulated")


def _holds(wanted: Any, found: Any) -> bool:  # noqa: ANN401 - any JSON
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and wants(wanted, found)
    return found in wanted
