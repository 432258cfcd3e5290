"""Optional values of notifications: of their type, or None.

The planner reads all of them from the store, so a missing or invalid one is ignored.
"""

import math
from datetime import UTC, datetime


def text(value: object) -> str | None:
    """Return a string that is not empty."""
    return value if isinstance(value, str) and value else None


def version_id(value: object) -> str | None:
    """Return a version id. "null" is no pin: the next upload replaces that version."""
    return None if value == "null" else text(value)


def etag(value: object) -> str | None:
    """Return an ETag without its quotes, which some servers send along."""
    return text(value.strip('"')) if isinstance(value, str) else None


def size(value: object) -> int | None:
    """Return a size in bytes."""
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if fits and isinstance(value, int) else None


def seconds(value: object) -> float | None:
    """Return seconds since 1970."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def moment(value: object) -> float | None:
    """Return an ISO 8601 time as seconds since 1970; without a zone it is UTC."""
    try:
        when = datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
