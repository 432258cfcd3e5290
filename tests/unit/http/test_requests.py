"""Requests are what the sender sent, whichever front door handed them on."""

import base64
import json
from typing import Any

import pytest
from tests.unit.discovery.posting import KEY, form, notification, request_of, signed, signing_time

from extentflow.http.requests import HttpRequest


def event(**changes: object) -> dict[str, Any]:
    context = {"http": {"method": "post"}}
    return {"version": "2.0", "rawPath": "/a%20b", "requestContext": context, **changes}


def test_a_form_is_the_same_encoded_or_not() -> None:
    encoded, plain = request_of("http-api-sns-base64"), request_of("http-api-sns-plain")

    assert (encoded.is_base64, plain.is_base64) == (True, False)
    assert encoded.payload() == plain.payload() == plain.body
    assert encoded.headers == plain.headers


def test_what_an_event_leaves_out_is_empty() -> None:
    request = HttpRequest.of_event(event(headers=None, body=None))

    assert request == HttpRequest("POST", "/a%20b", {}, b"")


def test_path_query_and_headers_are_as_they_were_sent() -> None:
    request = HttpRequest.of_event(event(rawQueryString="b=%20&a", headers={"X-Name": " v "}))

    assert (request.path, request.query) == ("/a%20b", "b=%20&a")
    assert request.header("x-name") == " v "


def test_lone_surrogates_in_a_body_are_bytes() -> None:
    request = HttpRequest.of_event(event(body=json.loads('"\\ud800"')))

    assert request.payload() == b"\xed\xa0\x80"


@pytest.mark.parametrize("body", ["QUJD!", "QUJ", "QUJD QUJD", "☃"])
def test_base64_that_is_none_is_an_error(body: str) -> None:
    request = HttpRequest.of_event(event(body=body, isBase64Encoded=True))

    with pytest.raises(ValueError, match="base64 does not decode"):
        request.payload()


def test_base64_is_decoded_to_the_byte() -> None:
    every = bytes(range(256))
    body = base64.b64encode(every).decode()

    assert HttpRequest.of_event(event(body=body, isBase64Encoded=True)).payload() == every


@pytest.mark.parametrize(
    "other",
    [
        {},
        event(rawPath=None),
        event(requestContext={}),
        event(requestContext={"http": {"method": None}}),
        event(body=7),
        event(headers=["a"]),
    ],
)
def test_other_events_are_an_error(other: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"payload format 1\.0 or 2\.0"):
        HttpRequest.of_event(other)


def rest_event(request: HttpRequest, **changes: object) -> dict[str, Any]:
    """The event of a REST API, which encodes every body as base64."""
    return {
        "httpMethod": request.method,
        "path": "/",  # without the API's stage
        "headers": dict(request.headers),
        "multiValueQueryStringParameters": None,
        "requestContext": {"path": request.path, "httpMethod": request.method},
        "body": base64.b64encode(request.body).decode(),
        "isBase64Encoded": True,
        **changes,
    }


def test_a_request_through_a_rest_api_keeps_the_path_that_its_sender_signed() -> None:
    sent = signed(form(notification("a")), "https://id.execute-api.example.com/live/")

    request = HttpRequest.of_event(rest_event(sent))

    assert request.path == "/live/"
    KEY.check(request, request.payload(), now=signing_time(sent))


@pytest.mark.parametrize("queries", [7, "a", ["a"]])
def test_a_rest_event_whose_queries_are_none_is_an_error(queries: object) -> None:
    event = rest_event(
        HttpRequest("POST", "/live", {}, b""), multiValueQueryStringParameters=queries
    )

    with pytest.raises(ValueError, match=r"payload format 1\.0 or 2\.0"):
        HttpRequest.of_event(event)


def test_a_query_through_a_rest_api_is_encoded_again() -> None:
    sent = signed(b"", "https://id.execute-api.example.com/live/?a=b%20c&a=d")
    queries = {"multiValueQueryStringParameters": {"a": ["b c", "d"]}}

    request = HttpRequest.of_event(rest_event(sent, **queries))

    assert request.query == "a=b%20c&a=d"
    KEY.check(request, b"", now=signing_time(sent))
