"""A proxy for DynamoDB that counts requests by operation, and may delay the responses."""

import json
import threading
import time
from collections import Counter
from contextlib import closing
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

_HOPS = frozenset({"connection", "keep-alive", "transfer-encoding"})


class RequestCounter:
    """Listens on a free loopback port inside its context; clients use `endpoint`.

    Every response is delayed by `delay_seconds`.
    """

    def __init__(self, upstream: str, *, delay_seconds: float = 0.0) -> None:
        self._server = _Server(upstream, delay_seconds)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def endpoint(self) -> str:
        """The address for clients, instead of the server's."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def take(self) -> Counter[str]:
        """Return the counts since the last call: requests by operation, and `items` written."""
        with self._server.lock:
            counts, self._server.counts = self._server.counts, Counter()
        return counts


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, upstream: str, delay_seconds: float) -> None:
        super().__init__(("127.0.0.1", 0), _Passage)
        self.delay_seconds = delay_seconds
        parts = urlsplit(upstream)
        self.upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self.lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    def note(self, operation: str, body: bytes) -> None:
        """Count one request."""
        written = int(operation in {"PutItem", "UpdateItem", "DeleteItem"})
        if operation == "TransactWriteItems":
            written = len(json.loads(body)["TransactItems"])
        with self.lock:
            self.counts[operation] += 1
            self.counts["items"] += written


class _Passage(BaseHTTPRequestHandler):
    """A client's connection; each request has its own one to the server, which closes idle ones."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.note(self.headers["x-amz-target"].rpartition(".")[2], body)
        upstream = HTTPConnection(*self.server.upstream)
        with closing(upstream):
            upstream.request("POST", self.path, body, dict(self.headers))
            answer = upstream.getresponse()
            body = answer.read()
        time.sleep(self.server.delay_seconds)
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOPS:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
