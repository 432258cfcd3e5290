"""An HTTP request and its response, independent of the server."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. `path` and `query` are as sent, with percent-encoding.

    `is_base64` means that the gateway encoded `body`, as AWS does for non-text types, forms
    included. `payload` is the body that the sender sent and signed.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    is_base64: bool = False
    query: str = ""

    def payload(self) -> bytes:
        """Return the body as it was sent.

        Raises:
            ValueError: it is declared as base64 but is not.
        """
        if not self.is_base64:
            return self.body
        try:
            return base64.b64decode(self.body, validate=True)
        except binascii.Error as exc:
            raise ValueError(f"the front door's base64 does not decode: {exc}") from exc

    def header(self, name: str) -> str | None:
        """Return a header's value; names are case-insensitive."""
        found = (value for key, value in self.headers.items() if key.lower() == name)
        return next(found, None)

    @classmethod
    def of_event(cls, event: Mapping[str, Any]) -> Self:
        """Return the request in an event of API Gateway (payload format 2.0) or a function URL.

        Raises:
            ValueError: it is not such an event.
        """
        body, headers = event.get("body") or "", event.get("headers") or {}
        match event:
            case {"requestContext": {"http": {"method": str(method)}}, "rawPath": str(path)} if (
                isinstance(body, str) and isinstance(headers, Mapping)
            ):
                return cls(
                    method=method.upper(),
                    path=path,
                    headers={str(name): str(value) for name, value in headers.items()},
                    # JSON can contain escaped lone surrogates; they are not an error here.
                    body=body.encode("utf-8", "surrogatepass"),
                    is_base64=event.get("isBase64Encoded") is True,
                    query=str(event.get("rawQueryString") or ""),
                )
            case _:
                raise ValueError("not an HTTP event of payload format 2.0")


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response. A status below 300 means: stored, or nothing to store."""

    status: int
    content_type: str
    body: str
