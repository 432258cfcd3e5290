"""One question over HTTP to a server on this machine, as somebody asks who waits for its start.

Owns: how long an answer may take, what counts as one. Refuses to know: any server.
"""

import http.client
from collections.abc import Mapping

from extentflow_local.ports import HOST


def ask(
    port: int,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes | None:
    """Return the body of an answer with status 200, else None; takes a second at most."""
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
