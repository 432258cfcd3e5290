"""What this thread works on, for its log lines, and the trace to which that belongs.

    working_on(connector="orders", job="6c1a...", extent=3)   keys of every line logged within
    traced("Root=1-5759e988-...;Sampled=1")                   what messages sent within carry on

A function's invocation has a trace of its own. A message keeps the trace of what announced its
object, so that the lines of planner and workers have one value of `trace`.
Format: https://docs.aws.amazon.com/xray/latest/devguide/xray-concepts.html#xray-concepts-tracingheader
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

INVOCATION = "_X_AMZN_TRACE_ID"  # the header of the current invocation, set by Lambda

_ROOT, _SAMPLED, _PARENT = "Root", "Sampled", "Parent"
_keys: ContextVar[Mapping[str, object]] = ContextVar("_keys", default={})  # noqa: B039 - not changed


@contextmanager
def working_on(**keys: object) -> Iterator[None]:
    """Add these keys to the lines that this thread logs within the block."""
    before = _keys.set({**_keys.get(), **keys})
    try:
        yield
    finally:
        _keys.reset(before)


@contextmanager
def traced(header: str | None) -> Iterator[None]:
    """Continue the trace of a received message; without one, that of the invocation."""
    root = fields(header or "").get(_ROOT) or fields(os.environ.get(INVOCATION, "")).get(_ROOT)
    with working_on(**({"trace": root} if root else {})):
        yield


def outgoing_header() -> str | None:
    """Return the trace header for a message; None where the SDK's own is right.

    The SDK sends that of the invocation. Its other fields are kept: Lambda counts loops with them.
    """
    own = fields(os.environ.get(INVOCATION, ""))
    root = _keys.get().get("trace")
    if not own or root is None or own.get(_ROOT) == root:
        return None
    # The parent is a segment of the other trace.
    kept = {name: value for name, value in own.items() if name != _PARENT}
    return ";".join(f"{name}={value}" for name, value in {**kept, _ROOT: root}.items())


def fields(header: str) -> dict[str, str]:
    """Return the fields of a trace header; what is none is left out."""
    parts = (part.partition("=") for part in header.split(";"))
    return {name.strip(): value for name, equals, value in parts if equals}


class WorkFilter(logging.Filter):
    """Gives each record the keys of `working_on` that it does not have itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the keys; every record passes."""
        for name, value in _keys.get().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


def label_lines(*handlers: logging.Handler) -> None:
    """Give the lines that these handlers and those of the root logger write the current keys."""
    for handler in (*logging.getLogger().handlers, *handlers):
        if not any(isinstance(one, WorkFilter) for one in handler.filters):
            handler.addFilter(WorkFilter())
