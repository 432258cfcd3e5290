"""An HTTP server on the loopback interface that ends all its threads when it stops."""

import socket
import sys
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from extentflow_local.ports import HOST


class Handler(BaseHTTPRequestHandler):
    """Common to all handlers: persistent connections, small responses without delay."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's
        """Print nothing; the owner of the server logs."""

    def answer(self, status: int, body: bytes, headers: Iterable[tuple[str, str]]) -> None:
        """Send a whole response; its length is added."""
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() != "content-length":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self, most_bytes: int) -> bytes:
        """Read the request's body.

        Raises:
            ValueError: its length is malformed.
            OverflowError: it has more than `most_bytes`; the rest is not read.
        """
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self._read(int(self.headers.get("Content-Length", "0")), most_bytes)
        found = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            found += self._read(size, most_bytes - len(found))
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _read(self, size: int, most_bytes: int) -> bytes:
        if not 0 <= size <= most_bytes:
            raise OverflowError(f"{size} bytes exceed the limit")
        return self.rfile.read(size)


class AnyMethod(Handler):
    """Handles requests of every method in the same way."""

    def __getattr__(self, name: str) -> Callable[[], None]:
        # The base class looks for do_GET, do_POST and so on.
        if name.startswith("do_"):
            return self.take
        raise AttributeError(name)

    def take(self) -> None:
        """Respond to one request."""
        raise NotImplementedError


class LoopbackServer(ThreadingHTTPServer):
    """Serves from `start` to `stop` on a thread of its own, with a thread per connection.

    `stop` completes requests in progress, and closes every other connection.
    """

    daemon_threads = False

    def __init__(self, handler: type[BaseHTTPRequestHandler], port: int = 0) -> None:
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__((HOST, port), handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.server_address[1])

    def start(self) -> Self:
        """Start to serve."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop serving; return when every thread has ended."""
        self.shutdown()
        self._thread.join()
        with self._lock:
            for connection in self._connections:
                _end_reading(connection)
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's
        """Register the connection."""
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - the base class's
        """Deregister the connection."""
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's
        """Log errors, except a closed connection: a killed process causes one."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _end_reading(connection: socket.socket) -> None:
    """End the read of a thread that waits for the connection's next request."""
    try:
        connection.shutdown(socket.SHUT_RD)
    except OSError:
        # The peer closed the connection first.
        return
