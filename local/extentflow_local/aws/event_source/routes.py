"""The route of an HTTP request, by API Gateway's rules for route keys.

POST /sources/{name}     one segment      precedes    ANY /sources/{name}
ANY /sources/{rest+}     all that follow  precedes    $default
"""

import re
from collections.abc import Iterable

from extentflow_local.aws.event_source.deployment import Route
from extentflow_local.aws.event_source.http_events import RouteMatch

_VARIABLE = re.compile(r"\{(\w+)(\+?)\}")


def match(routes: Iterable[Route], method: str, path: str) -> tuple[Route, RouteMatch] | None:
    """Return the most specific route for a request, or None."""
    found = [
        (_rank(route), route, taken) for route in routes if (taken := _take(route, method, path))
    ]
    if not found:
        return None
    _, route, matched = min(found, key=lambda one: one[0])
    return route, matched


def _take(route: Route, method: str, path: str) -> RouteMatch | None:
    if route.key == "$default":
        return RouteMatch(key=route.key, front=route.front)
    wanted, _, pattern = route.key.partition(" ")
    found = re.fullmatch(_regular(pattern), path)
    if found is None or wanted not in {"ANY", method}:
        return None
    return RouteMatch(key=route.key, front=route.front, variables=found.groupdict())


def _regular(pattern: str) -> str:
    """Return a route's path as a regular expression."""
    parts, at = [], 0
    for found in _VARIABLE.finditer(pattern):
        one = f"(?P<{found[1]}>{'.+' if found[2] else '[^/]+'})"
        parts += [re.escape(pattern[at : found.start()]), one]
        at = found.end()
    return "".join([*parts, re.escape(pattern[at:])])


def _rank(route: Route) -> tuple[bool, bool, int, bool]:
    return (
        route.key == "$default",
        "+}" in route.key,
        route.key.count("{"),
        route.key.startswith("ANY "),
    )
