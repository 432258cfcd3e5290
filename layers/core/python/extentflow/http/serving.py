"""An HTTP server of the standard library with limits: for the receiver, and for local emulators.

accept ──a free place──> thread: (handshake) request ──> answer ──> next request
                                    │ over `request_seconds`: the connection ends
stop: requests in progress are answered, every other connection ends, all threads have ended
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from extentflow.http.requests import MAX_REQUEST_BYTES, HttpRequest, HttpResponse

log = logging.getLogger(__name__)

REQUEST_SECONDS = 60.0
MOST_CONNECTIONS = 64
POLL_SECONDS = 0.05
LINE_BYTES = 1_024
MOST_TRAILERS = 32
SHOWN_CHARACTERS = 40
# int() also accepts signs, underscores, blanks and digits of other scripts.
_DIGITS = re.compile(r"[0-9]{1,18}")
_HEX_DIGITS = re.compile(rb"[0-9A-Fa-f]{1,15}")


class UnknownCoding(ValueError):  # noqa: N818 - an answer
    """A body has a transfer coding that is not read here."""


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

    def body(self, most_bytes: int, *, length_required: bool = False) -> bytes:
        """Read the request's body. RFC 9112, section 6: what the headers leave open is refused.

        Without a length there is no body; `length_required`: this is an error.

        Raises:
            UnknownCoding: its transfer coding is another one than chunked.
            ValueError: its length is missing, malformed or ambiguous.
            OverflowError: it has more than `most_bytes`; the rest is not read.
            ConnectionError: the connection ended before the body did.
        """
        codings = [value.strip().lower() for value in self._stated("transfer-encoding")]
        lengths = {value.strip() for value in self._stated("content-length")}
        if codings and codings != ["chunked"]:
            raise UnknownCoding(f"the transfer coding is {', '.join(codings)}, not chunked")
        if codings and lengths:
            raise ValueError("both a transfer coding and a length are stated")
        if codings:
            return self._chunks(most_bytes)
        if not lengths and not length_required:
            return b""
        (length,) = lengths or {""}
        if not _DIGITS.fullmatch(length):
            raise ValueError(f"{length[:SHOWN_CHARACTERS]!r} is no length")
        return self._read(int(length), most_bytes)

    def _stated(self, name: str) -> list[str]:
        # Blanks before the colon do not hide a header.
        return [value for key, value in self.headers.items() if key.strip().lower() == name]

    def _chunks(self, most_bytes: int) -> bytes:
        found = b""
        while size := self._chunk_bytes():
            found += self._read(size, most_bytes - len(found))
            if self.rfile.readline(LINE_BYTES).strip():
                raise ValueError("a chunk is longer than it states")
        for _ in range(MOST_TRAILERS):
            if not self.rfile.readline(LINE_BYTES).strip():
                return found
        raise ValueError(f"more than {MOST_TRAILERS} lines behind the last chunk")

    def _chunk_bytes(self) -> int:
        stated = self.rfile.readline(LINE_BYTES).partition(b";")[0].strip()
        if not _HEX_DIGITS.fullmatch(stated):
            raise ValueError("a chunk states no length")
        return int(stated, 16)

    def _read(self, size: int, most_bytes: int) -> bytes:
        if size > most_bytes:
            raise OverflowError(f"{size} bytes exceed the limit")
        found = self.rfile.read(size)
        if len(found) < size:
            raise ConnectionError(f"the connection ended after {len(found)} of {size} bytes")
        return found


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


class HttpServer(ThreadingHTTPServer):
    """Serves from `start` to `stop` on a thread of its own, with a thread per connection.

    `tls` encrypts; a connection ends `request_seconds` after its last response (None: never). At
    most `most_connections` are served at once; others wait. `stop` completes requests in progress,
    and closes every other connection. OSError: the address cannot be used.
    """

    daemon_threads = False
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        *,
        tls: ssl.SSLContext | None = None,
        request_seconds: float | None = None,
        most_connections: int = 1_000,
    ) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._tls = tls
        self._request_seconds = request_seconds
        self._places = threading.Semaphore(most_connections)
        self._begun: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        super().__init__(address, handler)
        self._thread = threading.Thread(
            target=self.serve_forever, args=(POLL_SECONDS,), daemon=True
        )

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
        self._stopping.set()
        self.shutdown()
        self._thread.join()
        with self._lock:
            for connection in self._begun:
                _shut(connection, socket.SHUT_RD)
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's
        """Register the connection, when there is a place for it."""
        while not self._places.acquire(timeout=POLL_SECONDS):
            self.service_actions()
            if self._stopping.is_set():
                super().shutdown_request(request)
                return
        if self._tls is not None:
            # The handshake waits for the client: it is made on the connection's own thread.
            request = self._tls.wrap_socket(
                request, server_side=True, do_handshake_on_connect=False
            )
        with self._lock:
            self._begun[request] = time.monotonic()
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's
        """Serve a connection until it ends."""
        if isinstance(request, ssl.SSLSocket):
            request.do_handshake()
        super().finish_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - the base class's
        """Deregister the connection."""
        with self._lock:
            self._begun.pop(request, None)
        super().shutdown_request(request)
        self._places.release()

    def service_actions(self) -> None:
        """End connections whose request takes too long, or that are idle."""
        if self._request_seconds is None:
            return
        oldest = time.monotonic() - self._request_seconds
        with self._lock:
            for connection, begun in self._begun.items():
                if begun < oldest:
                    _shut(connection, socket.SHUT_RDWR)

    def renew(self, request: Any) -> None:  # noqa: ANN401 - as the base class's
        """Count the time of a connection from now: it was answered."""
        with self._lock:
            if request in self._begun:
                self._begun[request] = time.monotonic()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's
        """Log errors, except a closed connection: a killed process causes one."""
        error = sys.exception()
        if isinstance(error, (ConnectionError, TimeoutError)):
            return
        if isinstance(error, OSError):  # of TLS
            log.warning("connection of %s: %s", client_address[0], error)
            return
        super().handle_error(request, client_address)


def _shut(connection: socket.socket, how: int) -> None:
    """End the connection's read, or both directions.

    That of TLS would write the rest in plain text: its method forgets the session.
    """
    try:
        socket.socket.shutdown(connection, how)
    except OSError:
        # The peer closed the connection first.
        return


def receiving_server(
    address: tuple[str, int],
    answer: Callable[[HttpRequest], HttpResponse],
    *,
    tls: ssl.SSLContext | None = None,
    request_seconds: float = REQUEST_SECONDS,
    most_connections: int = MOST_CONNECTIONS,
) -> HttpServer:
    """Return a server, not started yet, whose requests `answer` answers. Raises as `HttpServer`."""

    class Receiving(AnyMethod):
        def take(self) -> None:
            try:
                # One byte more than is taken, so that the receiver answers, and logs.
                body = self.body(MAX_REQUEST_BYTES + 1, length_required=self.command == "POST")
            except UnknownCoding as exc:
                self._refuse(HTTPStatus.NOT_IMPLEMENTED, exc)
                return
            except ValueError as exc:
                self._refuse(HTTPStatus.LENGTH_REQUIRED, exc)
                return
            except OverflowError as exc:
                self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, exc)
                return
            path, _, query = self.path.partition("?")
            headers = dict(self.headers.items())
            response = answer(HttpRequest(self.command, path, headers, body, query=query))
            content = response.body.encode("utf-8", "backslashreplace")
            self.answer(response.status, content, [("Content-Type", response.content_type)])
            server.renew(self.connection)

        def _refuse(self, status: HTTPStatus, why: Exception) -> None:
            # The unread rest of the request would be read as the next one.
            self.close_connection = True
            log.warning("refused with %d %s: %s", status, status.phrase, why)
            self.answer(status, status.phrase.encode(), [("Content-Type", "text/plain")])

    server = HttpServer(
        address,
        Receiving,
        tls=tls,
        request_seconds=request_seconds,
        most_connections=most_connections,
    )
    return server
