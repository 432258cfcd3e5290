"""Requests as functions get them behind HTTP APIs and function URLs, and their answers."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extentflow_local.aws.event_source.deployment import FrontKind
from extentflow_local.aws.event_source.http_events import (
    HttpRequest,
    RouteMatch,
    answer_of,
    event_of,
    is_text,
)

EVENTS = Path(__file__).parents[5] / "events"
RECORDED = sorted(
    file
    for pattern in ("http-api-*.json", "function-url-*.json")
    for file in EVENTS.glob(pattern)
    # Of a front door that does not encode forms; AWS does.
    if file.stem != "http-api-sns-plain"
)
# What the front door adds by itself, and what differs from request to request.
ADDED = {"x-amzn-trace-id", "x-forwarded-for", "x-forwarded-port", "x-forwarded-proto"}
OWN = {"accountId", "apiId", "requestId"}
DEFAULT = RouteMatch(key="$default", front="http-api")


def request(
    target: str = "/", *headers: tuple[str, str], body: bytes = b"", method: str = "POST"
) -> HttpRequest:
    return HttpRequest(
        method=method,
        target=target,
        headers=(("Host", "127.0.0.1:8080"), *headers),
        body=body,
        source="127.0.0.1",
        received=1_795_169_700.0,
    )


def event(asked: HttpRequest, front: FrontKind = "http-api") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(event_of(asked, RouteMatch(key="$default", front=front)))
    return found


def as_sent(recorded: dict[str, Any]) -> HttpRequest:
    """Return the request of which AWS made a recorded event."""
    body = recorded.get("body", "").encode()
    context = recorded["requestContext"]
    headers = [one for one in recorded["headers"].items() if one[0] not in ADDED]
    return HttpRequest(
        method=context["http"]["method"],
        target=recorded["rawPath"],
        headers=tuple(headers),
        body=base64.b64decode(body) if recorded["isBase64Encoded"] else body,
        source=context["http"]["sourceIp"],
        received=context["timeEpoch"] / 1000,
    )


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_a_request_becomes_the_event_that_aws_makes_of_it(file: Path) -> None:
    recorded = json.loads(file.read_text())
    front: FrontKind = "function-url" if file.stem.startswith("function-url") else "http-api"

    found = event(as_sent(recorded), front)

    for one in (found, recorded):
        one["headers"] = {name: one["headers"][name] for name in one["headers"].keys() - ADDED}
        one["requestContext"] = {
            name: one["requestContext"][name] for name in one["requestContext"].keys() - OWN
        }
    assert found == recorded


@pytest.mark.parametrize(
    ("content_type", "text"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/xml", True),
        ("application/javascript", True),
        ("text/plain", True),
        ("text/xml;charset=iso-8859-1", True),
        ("application/x-www-form-urlencoded", False),
        ("multipart/form-data; boundary=x", False),
        ("application/octet-stream", False),
        ("application/vnd.api+json", False),
        ("", False),
        (None, False),
    ],
)
def test_what_is_text(content_type: str | None, *, text: bool) -> None:
    assert is_text(content_type) is text


@given(body=st.binary(min_size=1))
def test_bodies_that_are_no_text_come_through_byte_by_byte(body: bytes) -> None:
    found = event(request("/", ("Content-Type", "application/x-www-form-urlencoded"), body=body))

    assert found["isBase64Encoded"] is True
    assert base64.b64decode(found["body"], validate=True) == body


def test_without_a_body_there_is_none() -> None:
    found = event(request(method="GET"))

    assert "body" not in found
    assert found["isBase64Encoded"] is False


def test_http_apis_decode_the_path_and_function_urls_do_not() -> None:
    asked = request("/a%2Fb%20c?q=%20")

    assert event(asked)["rawPath"] == "/a/b c"
    assert event(asked, "function-url")["rawPath"] == "/a%2Fb%20c"
    assert (
        event(asked)["rawQueryString"] == event(asked, "function-url")["rawQueryString"] == "q=%20"
    )


def test_repeated_headers_and_parameters_are_joined_but_not_cookies() -> None:
    found = event(
        request("/?a=1&a=2&b", ("X-One", "1"), ("x-one", "2"), ("Cookie", "c=1; d=2"), ("TE", "x"))
    )

    assert found["headers"]["x-one"] == "1,2"
    assert found["queryStringParameters"] == {"a": "1,2", "b": ""}
    assert found["cookies"] == ["c=1", "d=2"]
    assert not found["headers"].keys() & {"cookie", "te", "X-One"}


def test_the_length_is_the_bodys_however_it_was_sent() -> None:
    found = event(request("/", ("Transfer-Encoding", "chunked"), body=b"four"))

    assert found["headers"]["content-length"] == "4"
    assert "transfer-encoding" not in found["headers"]


def test_path_variables_are_handed_over() -> None:
    matched = RouteMatch(key="POST /{name}", front="http-api", variables={"name": "x"})

    found = json.loads(event_of(request("/x"), matched))

    assert (found["routeKey"], found["pathParameters"]) == ("POST /{name}", {"name": "x"})


def test_an_answer_with_a_status_is_taken_apart() -> None:
    payload = {
        "statusCode": 201,
        "headers": {"Content-Type": "text/xml", "X-Count": 3, "X-Yes": True},
        "cookies": ["a=1"],
        "body": "<ok/>",
    }

    answer = answer_of(json.dumps(payload).encode())

    assert (answer.status, answer.body) == (201, b"<ok/>")
    assert answer.headers == (
        ("content-type", "text/xml"),
        ("x-count", "3"),
        ("x-yes", "true"),
        ("set-cookie", "a=1"),
    )


@pytest.mark.parametrize("payload", [b'"text"', b"null", b"[1]", b'{"body": "x"}'])
def test_an_answer_without_status_is_json_itself(payload: bytes) -> None:
    answer = answer_of(payload)

    assert (answer.status, answer.body) == (200, payload)
    assert answer.headers == (("content-type", "application/json"),)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"statusCode": "many"}',
        b'{"statusCode": null}',
        b'{"statusCode": 200, "headers": 7}',
        b'{"statusCode": 200, "cookies": 7}',
        b'{"statusCode": 200, "isBase64Encoded": true, "body": "?"}',
        b"not json",
    ],
)
def test_malformed_responses_are_reported(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        answer_of(payload)
