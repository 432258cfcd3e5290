"""An HTTP request and its answer, whichever server took it.

Owns: both values, the event that API Gateway (payload format 2.0) and function URLs make of a
request. Refuses to know: what requests mean.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. `path` and `query` are as they were sent, percent-encoding included.

    `is_base64` says that the front door encoded `body`, as AWS does with everything that it does
    not take for text, forms included. `payload` is what the sender sent, and signed.
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
            ValueError: the front door says base64, and it is none.
        """
        if not self.is_base64:
            return self.body
        try:
            return base64.b64decode(self.body, validate=True)
        except binascii.Error as exc:
            raise ValueError(f"the front door's base64 does not decode: {exc}") from exc

    def header(self, name: str) -> str | None:
        """Return a header's value; names are compared without case."""
        found = (value for key, value in self.headers.items() if key.lower() == name)
        return next(found, None)

    @classmethod
    def of_event(cls, event: Mapping[str, Any]) -> Self:
        """Return the request in an event of API Gateway (payload format 2.0) or a function URL.

        Raises:
            ValueError: it is no such event.
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
                    # JSON can escape lone surrogates; they are no reason to fail.
                    body=body.encode("utf-8", "surrogatepass"),
                    is_base64=event.get("isBase64Encoded") is True,
                    query=str(event.get("rawQueryString") or ""),
                )
            case _:
                raise ValueError("not an HTTP event of payload format 2.0")


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What goes back. Every status below 300 means: kept, or nothing to keep."""

    status: int
    content_type: str
    body: str
