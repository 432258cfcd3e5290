"""An HTTP server of the standard library with limits: for the receiver, and for local emulators.

accept ──a place──> thread: (handshake) request ──> answer ──> next request
             │                             │ over its time: the connection ends
             └ none free: the oldest connection without a proof, of the address with most, ends
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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import Any, Self

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
# A mebibyte in chunks of 128 bytes; proxies send kilobytes.
MOST_CHUNKS = 8_192
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
        return self.framed(self.framing(length_required=length_required), most_bytes)

    def framing(self, *, length_required: bool = False) -> int | None:
        """Return the length of the body, None if it comes in chunks. Raises as `body`."""
        codings = [value.strip().lower() for value in self._stated("transfer-encoding")]
        lengths = {value.strip() for value in self._stated("content-length")}
        if codings and codings != ["chunked"]:
            raise UnknownCoding(f"the transfer coding is {', '.join(codings)!a:.200}, not chunked")
        if codings and lengths:
            raise ValueError("both a transfer coding and a length are stated")
        if codings:
            return None
        if not lengths and not length_required:
            return 0
        (length,) = lengths or {""}
        if not _DIGITS.fullmatch(length):
            raise ValueError(f"{length[:SHOWN_CHARACTERS]!r} is no length")
        return int(length)

    def framed(self, length: int | None, most_bytes: int) -> bytes:
        """Read the body that `framing` described. Raises as `body`."""
        return self._chunks(most_bytes) if length is None else self._read(length, most_bytes)

    def _stated(self, name: str) -> list[str]:
        # Blanks before the colon do not hide a header.
        return [value for key, value in self.headers.items() if key.strip().lower() == name]

    def _chunks(self, most_bytes: int) -> bytes:
        found, chunks = bytearray(), 0
        while size := self._chunk_bytes():
            chunks += 1
            if chunks > MOST_CHUNKS:
                raise OverflowError(f"more than {MOST_CHUNKS} chunks; send larger ones")
            found += self._read(size, most_bytes - len(found))
            if self.rfile.readline(LINE_BYTES).strip():
                raise ValueError("a chunk is longer than it states")
        for _ in range(MOST_TRAILERS):
            if not self.rfile.readline(LINE_BYTES).strip():
                return bytes(found)
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


@dataclass(slots=True)
class _Held:
    """A connection that has a place, until `ends` (seconds of the monotonic clock)."""

    address: str
    ends: float | None
    body_bytes: int = 0


@dataclass(slots=True)
class _Places:
    """The connections that are served; not safe for threads.

    Those without a proof are in groups by address, each in the order of their arrival. What a
    sender states without a proof does not matter: everybody can state it.
    """

    held: dict[socket.socket, _Held] = field(default_factory=dict)
    unproven: dict[str, dict[socket.socket, None]] = field(default_factory=dict)

    def take(self, connection: socket.socket, address: str, ends: float | None) -> None:
        self.held[connection] = _Held(address, ends)
        self.unproven.setdefault(address, {})[connection] = None

    def leave(self, connection: socket.socket) -> None:
        self._ungroup(connection)
        self.held.pop(connection, None)

    def extend(self, connection: socket.socket, ends: float, *, proven: bool) -> None:
        held = self.held.get(connection)
        if held is None:
            return
        held.ends = ends
        if proven:
            self._ungroup(connection)

    def displaced(self) -> socket.socket | None:
        """Return the connection that gives its place away, once; None if all have a proof."""
        if not self.unproven:
            return None
        address = max(self.unproven, key=lambda one: len(self.unproven[one]))
        connection = next(iter(self.unproven[address]))
        self._ungroup(connection)
        return connection

    def make_room(
        self, connection: socket.socket, size: int, most: int
    ) -> list[socket.socket] | None:
        """Count a body of `size` bytes; return the connections that give their room away, once.

        None: the address of this connection would have most of the `most` bytes. A body of a
        connection with a proof is not counted.
        """
        address = self.held[connection].address
        if connection not in self.unproven.get(address, {}):
            return []
        sizes = {
            one: sum(self.held[other].body_bytes for other in group)
            for one, group in self.unproven.items()
        }
        sizes[address] += size
        left = {one: self._bodies(group) for one, group in self.unproven.items()}
        total, ended = sum(sizes.values()), list[socket.socket]()
        while total > most:
            largest = max(sizes, key=sizes.__getitem__)
            oldest = next(left[largest], None)
            if oldest is None:
                return None
            freed = self.held[oldest].body_bytes
            total, sizes[largest] = total - freed, sizes[largest] - freed
            ended.append(oldest)
        for one in ended:
            self._ungroup(one)
        self.held[connection].body_bytes = size
        return ended

    def _bodies(self, group: Iterable[socket.socket]) -> Iterator[socket.socket]:
        return (one for one in group if self.held[one].body_bytes)

    def overdue(self, now: float) -> list[socket.socket]:
        return [one for one, held in self.held.items() if held.ends is not None and held.ends < now]

    def _ungroup(self, connection: socket.socket) -> None:
        """Remove a connection from those that give their place away, if it is one."""
        if (held := self.held.get(connection)) is None:
            return
        held.body_bytes = 0
        group = self.unproven.get(held.address, {})
        group.pop(connection, None)
        if not group:
            self.unproven.pop(held.address, None)


def _network(address: str) -> str:
    """Return what counts as one client: a host with IPv6 has 2^64 addresses."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv4Address):
        return address
    return str(found.ipv4_mapped or IPv6Network((found, 64), strict=False))


class HttpServer(ThreadingHTTPServer):
    """Serves from `start` to `stop` on a thread of its own, with a thread per connection.

    `tls` encrypts; a connection ends `request_seconds` after its begin, or as `extend` says (None:
    never). At most `most_connections` are served at once. Where time is limited, the next one takes
    the place of the oldest one without a proof, of the address that has most; otherwise it waits.
    `stop` completes requests in progress, and closes every other connection. OSError: the address
    cannot be used.
    """

    daemon_threads = False
    request_queue_size = 1_024

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
        self._free = threading.Semaphore(most_connections)
        self._places = _Places()
        self._looked = 0.0
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
            for connection in self._places.held:
                shut(connection, socket.SHUT_RD)
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's
        """Register the connection, when there is a place for it."""
        while not self._free.acquire(blocking=False):
            self._displace()
            if self._free.acquire(timeout=POLL_SECONDS):
                break
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
            self._places.take(request, _network(client_address[0]), self._from_now())
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's
        """Serve a connection until it ends."""
        if isinstance(request, ssl.SSLSocket):
            request.do_handshake()
        super().finish_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - the base class's
        """Deregister the connection."""
        with self._lock:
            self._places.leave(request)
        super().shutdown_request(request)
        self._free.release()

    def _from_now(self) -> float | None:
        return None if self._request_seconds is None else time.monotonic() + self._request_seconds

    def _displace(self) -> None:
        if self._request_seconds is None:
            return
        with self._lock:
            if (connection := self._places.displaced()) is not None:
                shut(connection, socket.SHUT_RDWR)

    def service_actions(self) -> None:
        """End connections whose request takes too long, or that are idle."""
        now = time.monotonic()
        # The base class calls this for each connection, of which hostile senders make thousands.
        if self._request_seconds is None or now < self._looked + POLL_SECONDS:
            return
        self._looked = now
        with self._lock:
            for connection in self._places.overdue(now):
                shut(connection, socket.SHUT_RDWR)

    def extend(self, request: socket.socket, seconds: float, *, proven: bool = False) -> None:
        """Let a connection end so many seconds from now; a proof is kept for all its requests."""
        with self._lock:
            self._places.extend(request, time.monotonic() + seconds, proven=proven)

    def make_room(self, request: socket.socket, size: int, most: int) -> bool:
        """Return whether a body of `size` bytes may be read, until its connection ends.

        All bodies without a proof have at most `most` bytes. Where they would have more, the oldest
        ones end, of the address that has most; False: it is this one's.
        """
        with self._lock:
            ended = self._places.make_room(request, size, most)
            for connection in ended or ():
                shut(connection, socket.SHUT_RDWR)
        return ended is not None

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's
        """Log errors, except a closed connection: a killed process causes one."""
        error = sys.exception()
        if isinstance(error, (ConnectionError, TimeoutError)):
            return
        if isinstance(error, OSError):  # of TLS
            log.warning("connection of %s: %s", client_address[0], error)
            return
        super().handle_error(request, client_address)


def shut(connection: socket.socket, how: int) -> None:
    """End the connection's read, or both directions.

    That of TLS would write the rest in plain text: its method forgets the session.
    """
    try:
        socket.socket.shutdown(connection, how)
    except OSError:
        # The peer closed the connection first.
        return
