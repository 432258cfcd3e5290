"""HTTP requests and responses in payload format 2.0 of HTTP APIs and function URLs.

Source: "AWS Lambda integrations for HTTP APIs" in the API Gateway Developer Guide.
"""

import base64
import binascii
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote
from uuid import uuid4

from extentflow_local.aws.event_source.deployment import FrontKind

# Types that AWS passes unencoded. All others are base64: forms, and bodies without a type.
_TEXTS = {"application/json", "application/javascript", "application/xml"}
# Hop-by-hop headers, and those that the event contains in another form.
_NOT_PASSED_ON = {
    "connection",
    "content-length",
    "cookie",
    "expect",
    "keep-alive",
    "te",
    "transfer-encoding",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A received request; `headers` in order, `target` with its query."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    source: str
    received: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteMatch:
    """The route of a request, with the values of its path variables."""

    key: str
    front: FrontKind
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A response; a header may occur several times."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def event_of(request: HttpRequest, matched: RouteMatch) -> bytes:
    """Return the function's event, as JSON."""
    path, _, query = request.target.partition("?")
    # HTTP APIs decode the path, function URLs do not; neither decodes the raw query.
    raw_path = unquote(path) if matched.front == "http-api" else path
    headers = _joined(_passed_on(request))
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": matched.key,
        "rawPath": raw_path,
        "rawQueryString": query,
        "headers": {
            **headers,
            "x-amzn-trace-id": f"Root=1-{int(request.received):08x}-{uuid4().hex[:24]}",
            "x-forwarded-for": request.source,
            "x-forwarded-port": headers.get("host", "").partition(":")[2] or "80",
            "x-forwarded-proto": "http",
        },
        "requestContext": _context(request, matched, raw_path, headers),
    }
    cookies = [value for name, value in request.headers if name.lower() == "cookie"]
    if cookies:
        event["cookies"] = [one.strip() for value in cookies for one in value.split(";")]
    if query:
        event["queryStringParameters"] = _joined(parse_qsl(query, keep_blank_values=True))
    if matched.variables:
        event["pathParameters"] = dict(matched.variables)
    text = is_text(headers.get("content-type"))
    if request.body:
        body = request.body if text else base64.b64encode(request.body)
        event["body"] = body.decode("utf-8", "replace")
    event["isBase64Encoded"] = bool(request.body) and not text
    return json.dumps(event, ensure_ascii=False).encode()


def is_text(content_type: str | None) -> bool:
    """Return whether AWS passes a body of this type unencoded."""
    media = (content_type or "").partition(";")[0].strip().lower()
    return media.startswith("text/") or media in _TEXTS


def answer_of(payload: bytes) -> HttpAnswer:
    """Return the response in a function's result.

    Raises:
        ValueError: it is malformed; AWS responds with an error of its own.
    """
    given = json.loads(payload)
    if not isinstance(given, dict) or "statusCode" not in given:
        return HttpAnswer(200, (("content-type", "application/json"),), payload)
    try:
        headers = {
            str(name).lower(): _text(value) for name, value in given.get("headers", {}).items()
        }
        cookies = [("set-cookie", str(value)) for value in given.get("cookies", ())]
        return HttpAnswer(
            status=int(given["statusCode"]),
            headers=(*{"content-type": "text/plain", **headers}.items(), *cookies),
            body=_body(given),
        )
    except (TypeError, AttributeError, binascii.Error) as exc:
        raise ValueError(f"not a response in payload format 2.0: {exc}") from exc


def _body(given: Mapping[str, Any]) -> bytes:
    body = given.get("body")
    if body is None:
        return b""
    text = body if isinstance(body, str) else json.dumps(body)
    return base64.b64decode(text, validate=True) if given.get("isBase64Encoded") else text.encode()


def _passed_on(request: HttpRequest) -> Iterator[tuple[str, str]]:
    for name, value in request.headers:
        if name.lower() not in _NOT_PASSED_ON:
            yield name.lower(), value
    if request.body:
        yield "content-length", str(len(request.body))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in pairs:
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def _context(
    request: HttpRequest, matched: RouteMatch, path: str, headers: Mapping[str, str]
) -> dict[str, Any]:
    domain = headers.get("host", "")
    return {
        "accountId": "anonymous" if matched.front == "function-url" else "000000000000",
        "apiId": "local",
        "domainName": domain,
        "domainPrefix": domain.partition(".")[0],
        "http": {
            "method": request.method,
            "path": path,
            "protocol": "HTTP/1.1",
            "sourceIp": request.source,
            "userAgent": headers.get("user-agent", ""),
        },
        "requestId": str(uuid4()),
        "routeKey": matched.key,
        "stage": "$default",
        "time": time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(request.received)),
        "timeEpoch": int(request.received * 1000),
    }
