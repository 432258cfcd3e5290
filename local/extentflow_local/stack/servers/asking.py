"""One HTTP request to a server on this machine, to find out whether it is ready."""

import http.client
from collections.abc import Mapping

from extentflow_local.stack.ports import HOST


def ask(
    port: int,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes | None:
    """Return the body of a response with status 200, else None; takes at most one second."""
    connection = http.client.HTTPConnection(HOST, port, timeout=1)
    try:
        connection.request(method, path, body=body, headers=headers or {})
        response = connection.getresponse()
        found = response.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return found if response.status == http.HTTPStatus.OK else None
