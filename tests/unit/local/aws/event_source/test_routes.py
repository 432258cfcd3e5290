"""Which function an HTTP request goes to."""

import pytest

from extentflow_local.aws.event_source.deployment import Route
from extentflow_local.aws.event_source.routes import match

KEYS = (
    "$default",
    "ANY /sources/{rest+}",
    "ANY /sources/{name}",
    "POST /sources/{name}",
    "GET /sources/health",
    "GET /a.b",
)
ROUTES = [Route(function=key, key=key, front="http-api") for key in KEYS]


@pytest.mark.parametrize(
    ("method", "path", "key", "variables"),
    [
        ("GET", "/", "$default", {}),
        ("GET", "/sources/health", "GET /sources/health", {}),
        ("POST", "/sources/health", "POST /sources/{name}", {"name": "health"}),
        ("PUT", "/sources/grid", "ANY /sources/{name}", {"name": "grid"}),
        ("PUT", "/sources/grid/x", "ANY /sources/{rest+}", {"rest": "grid/x"}),
        ("GET", "/sources/", "$default", {}),
        ("GET", "/aXb", "$default", {}),
        ("GET", "/a.b", "GET /a.b", {}),
    ],
)
def test_the_most_specific_route_wins(
    method: str, path: str, key: str, variables: dict[str, str]
) -> None:
    found = match(ROUTES, method, path)

    assert found is not None
    route, matched = found
    assert (route.function, matched.key, dict(matched.variables)) == (key, key, variables)


def test_without_a_default_there_may_be_no_route() -> None:
    assert match(ROUTES[3:], "DELETE", "/sources/grid") is None
