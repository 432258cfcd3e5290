"""An HTTP/1.1 proxy that injects faults between a client and a real server.

Forwards byte for byte, the Host header too, so that signatures hold, and records every exchange.

    with FaultProxy("http://127.0.0.1:18333") as proxy:
        client = boto3.client("s3", endpoint_url=proxy.endpoint, ...)
        rule = proxy.inject(Answer(503), when=lambda request: request.method == "GET", times=2)
        ...
        assert rule.hits == 2

    request read --> rule? --no--> forwarded --> response passed on
                       | Answer, Reset        never reaches the server
                       | DropResponse         reaches the server, whose answer the client never sees
                       | CutBody, ShortBody   the answer's body ends early: noticeably, or not
                       | ChangedHead          the answer's status or headers are others
                       | Delay, Hold          forwarded later; when released
"""

import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Self
from urllib.parse import urlsplit

from tests.support.waiting import AWAITED_SECONDS

_BLOCK_BYTES = 256 * 1024
_SEEN_BODY_BYTES = 1024 * 1024
_IDLE_SECONDS = 120
_FINAL = 200
_NO_BODY = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Request:
    """What a rule decides on. Header names are in lower case; `body` is its first MiB."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """The target without its query, still percent-encoded."""
        return self.target.partition("?")[0]

    @property
    def byte_range(self) -> str | None:
        """The Range header."""
        return self.headers.get("range")


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer in the server's place, after taking the whole request in."""

    status: int
    body: bytes = b""
    content_type: str = "application/xml"


@dataclass(frozen=True, slots=True)
class Reset:
    """Reset the connection before the server receives anything."""


@dataclass(frozen=True, slots=True)
class DropResponse:
    """Let the server act, take its answer, and reset the connection: the outcome is unclear."""


@dataclass(frozen=True, slots=True)
class CutBody:
    """Pass on so many bytes of the answer's body, then end or reset the connection."""

    after_bytes: int
    reset: bool = False


@dataclass(frozen=True, slots=True)
class ShortBody:
    """Pass on so many bytes of the answer's body with a Content-Length that agrees."""

    body_bytes: int


@dataclass(frozen=True, slots=True)
class ChangedHead:
    """Pass the answer on with the head (status line, headers, empty line) that `change` returns."""

    change: Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Delay:
    """Forward the request that much later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Forward the request when the event is set; never, where the proxy is closed before."""

    until: threading.Event


Fault = Answer | Reset | DropResponse | CutBody | ShortBody | ChangedHead | Delay | Hold


@dataclass(slots=True)
class Rule:
    """A fault, the requests that it applies to, and how often it was injected."""

    fault: Fault
    when: Callable[[Request], bool]
    times: int | None
    skip: int
    hits: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition, repr=False)

    def applies_to(self, request: Request) -> bool:
        """Decide on one request, counting it."""
        with self._changed:
            if (self.times is not None and self.hits >= self.times) or not self.when(request):
                return False
            if self.skip > 0:
                self.skip -= 1
                return False
            self.hits += 1
            self._changed.notify_all()
            return True

    def await_hits(self, hits: int = 1, *, seconds: float = AWAITED_SECONDS) -> None:
        """Block until the fault was injected into `hits` requests."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.hits >= hits, timeout=seconds):
                raise TimeoutError(f"{self.fault} hit {self.hits} requests, not {hits}")


@dataclass(slots=True)
class Exchange:
    """One request that went through, counted before the client gets its answer.

    `status` is None where the client is sent no answer.
    """

    method: str
    target: str
    byte_range: str | None
    fault: Fault | None
    status: int | None = None
    request_body_bytes: int = 0
    response_body_bytes: int = 0


class FaultProxy:
    """Listens on a free loopback port until closed; at most `connections` clients at a time."""

    def __init__(self, upstream: str, *, connections: int = 128) -> None:
        parts = urlsplit(upstream)
        self.upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self.closing = threading.Event()
        self.accepted = 0
        self._exchanges: deque[Exchange] = deque(maxlen=1_000_000)
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(connections)
        self._threads: set[threading.Thread] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=connections)
        self._acceptor = threading.Thread(target=self._accept, name="fault-proxy", daemon=True)
        self._acceptor.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def endpoint(self) -> str:
        """What clients are given in the server's place."""
        host, port = self._listener.getsockname()
        return f"http://{host}:{port}"

    @property
    def exchanges(self) -> list[Exchange]:
        """What went through since the last `clear`, in the order in which it came."""
        with self._lock:
            return [replace(exchange) for exchange in self._exchanges]

    def inject(
        self,
        fault: Fault,
        *,
        when: Callable[[Request], bool] = lambda _request: True,
        times: int | None = 1,
        skip: int = 0,
    ) -> Rule:
        """Let a fault befall matching requests, `times` of them (None: all) after `skip` of them.

        The first rule that applies to a request decides.
        """
        rule = Rule(fault, when, times, skip)
        with self._lock:
            self._rules.append(rule)
        return rule

    def withdraw(self, rule: Rule) -> None:
        """Forget one rule; its counters stay readable."""
        with self._lock:
            self._rules = [one for one in self._rules if one is not rule]

    def clear(self) -> None:
        """Forget all rules and everything that went through."""
        with self._lock:
            self._rules.clear()
            self._exchanges.clear()

    def count(self, method: str | None = None) -> int:
        """Return how many requests went through."""
        return sum(1 for exchange in self.exchanges if method in {None, exchange.method})

    def response_body_bytes(self, method: str | None = None) -> int:
        """Return how many bytes of answers' bodies clients were sent."""
        return sum(
            exchange.response_body_bytes
            for exchange in self.exchanges
            if method in {None, exchange.method}
        )

    def close(self) -> None:
        """Reset every connection and stop listening."""
        self.closing.set()
        self._acceptor.join(timeout=10)
        self._listener.close()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(timeout=10)
        if any(thread.is_alive() for thread in threads):
            raise TimeoutError("a connection of the fault proxy does not end")

    def fault_for(self, request: Request) -> Fault | None:
        """Choose the fault of a request (called by connections)."""
        with self._lock:
            rules = list(self._rules)
        return next((rule.fault for rule in rules if rule.applies_to(request)), None)

    def record(self, exchange: Exchange) -> None:
        """Remember an exchange (called by connections)."""
        with self._lock:
            self._exchanges.append(exchange)

    def _accept(self) -> None:
        self._listener.settimeout(0.1)
        while not self.closing.is_set():
            if not self._room.acquire(timeout=0.1):
                continue
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                self._room.release()
                continue
            self.accepted += 1
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            with self._lock:
                self._threads.add(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        try:
            _Connection(self, client).run()
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
            self._room.release()


class _HangUp(Exception):  # noqa: N818 - not an error
    """The connection is over."""

    def __init__(self, *, reset: bool) -> None:
        super().__init__()
        self.reset = reset


class _Stream:
    """A socket to read HTTP from: heads, and bodies as raw blocks including chunk framing."""

    def __init__(self, peer: socket.socket, closing: threading.Event) -> None:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.settimeout(_IDLE_SECONDS)
        self.peer = peer
        self._closing = closing
        self._buffer = bytearray()

    def quiet(self) -> bool:
        """Whether nothing has arrived, not even the end."""
        return not self._buffer and not select.select([self.peer], [], [], 0)[0]

    def head(self) -> bytes | None:
        """Read a head with its empty line, or None at the end of the connection."""
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if not self._receive():
                return None
        return self._take(end + 4)

    def body(self, headers: Mapping[str, str]) -> Iterator[bytes]:
        """Yield a body's bytes as they are on the wire."""
        if "chunked" in headers.get("transfer-encoding", "").lower():
            yield from self._chunks()
        else:
            yield from self.exactly(int(headers.get("content-length", "0")))

    def exactly(self, length: int) -> Iterator[bytes]:
        while length > 0:
            if not self._buffer and not self._receive():
                raise _HangUp(reset=True)
            block = self._take(min(length, len(self._buffer)))
            length -= len(block)
            yield block

    def rest(self) -> Iterator[bytes]:
        """Yield everything until the peer ends the connection."""
        while self._buffer or self._receive():
            yield self._take(len(self._buffer))

    def send(self, data: bytes) -> None:
        self.peer.sendall(data)

    def close(self, *, reset: bool) -> None:
        if reset:
            self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.peer.close()

    def _chunks(self) -> Iterator[bytes]:
        while True:
            line = self._line()
            yield line
            size = int(line.split(b";")[0], 16)
            if size == 0:
                break
            yield from self.exactly(size + 2)
        while (trailer := self._line()) != b"\r\n":
            yield trailer
        yield trailer

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if not self._receive():
                raise _HangUp(reset=True)
        return self._take(end + 2)

    def _take(self, length: int) -> bytes:
        taken = bytes(self._buffer[:length])
        del self._buffer[:length]
        return taken

    def _receive(self) -> bool:
        while not select.select([self.peer], [], [], 0.1)[0]:
            if self._closing.is_set():
                raise _HangUp(reset=True)
        block = self.peer.recv(_BLOCK_BYTES)
        self._buffer += block
        return bool(block)


class _Connection:
    """One client's connection and its counterpart to the server, exchange after exchange."""

    def __init__(self, proxy: FaultProxy, client: socket.socket) -> None:
        self._proxy = proxy
        self._client = _Stream(client, proxy.closing)
        self._server: _Stream | None = None

    def run(self) -> None:
        reset = False
        try:
            while (head := self._client.head()) is not None:
                self._exchange(head)
        except _HangUp as end:
            reset = end.reset
        except OSError:
            # Client or server closed the connection: the other side gets the same.
            reset = True
        finally:
            self._client.close(reset=reset)
            if self._server is not None:
                self._server.close(reset=reset)

    def _exchange(self, head: bytes) -> None:
        start, headers = _parse(head)
        method, target = start.split(" ")[:2]
        if headers.get("expect", "").lower() == "100-continue":
            self._client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = _without(head, "expect")
        body = self._client.body(headers)
        seen = _first(body, _SEEN_BODY_BYTES)
        request = Request(method, target, headers, seen)
        exchange = Exchange(method, target, request.byte_range, self._proxy.fault_for(request))
        _Passage(self._proxy, self._client, self._reach, request, head, body, exchange).run()
        if headers.get("connection", "").lower() == "close":
            raise _HangUp(reset=False)

    def _reach(self) -> _Stream:
        """Return the connection to the server, a new one where the server has ended the last."""
        if self._server is not None and not self._server.quiet():
            self._server.close(reset=False)
            self._server = None
        if self._server is None:
            peer = socket.create_connection(self._proxy.upstream, timeout=60)
            self._server = _Stream(peer, self._proxy.closing)
        return self._server


@dataclass(frozen=True, slots=True)
class _Response:
    head: bytes
    headers: Mapping[str, str]
    status: int
    body: Iterator[bytes]


@dataclass(slots=True)
class _Passage:
    """One request's way to the server and its answer's way back, with its fault."""

    proxy: FaultProxy
    client: _Stream
    reach: Callable[[], _Stream]
    request: Request
    head: bytes
    unseen_body: Iterator[bytes]
    exchange: Exchange

    def run(self) -> None:
        self.proxy.record(self.exchange)
        self._go(self.exchange.fault)

    def _go(self, fault: Fault | None) -> None:
        match fault:
            case Reset():
                raise _HangUp(reset=True)
            case Answer():
                self._answer(fault)
            case DropResponse():
                _drain(self._forward().body)
                raise _HangUp(reset=True)
            case CutBody(after_bytes, reset):
                response = self._forward()
                self._pass_on(response, _upto(after_bytes, response.body))
                raise _HangUp(reset=reset)
            case ShortBody(body_bytes):
                self._shorten(self._forward(), body_bytes)
            case ChangedHead(change):
                response = self._forward()
                self._return(replace(response, head=change(response.head)))
            case Delay() | Hold():
                self._wait(fault)
                self._return(self._forward())
            case None:
                self._return(self._forward())

    def _answer(self, fault: Answer) -> None:
        _drain(self._request_body())
        head = (
            f"HTTP/1.1 {fault.status} Injected\r\nContent-Type: {fault.content_type}\r\n"
            f"Content-Length: {len(fault.body)}\r\n\r\n"
        )
        body = b"" if self.request.method == "HEAD" else fault.body
        self.exchange.status, self.exchange.response_body_bytes = fault.status, len(body)
        self.client.send(head.encode() + body)

    def _wait(self, fault: Delay | Hold) -> None:
        if isinstance(fault, Delay):
            self.proxy.closing.wait(fault.seconds)
            return
        while not fault.until.wait(0.05):
            if self.proxy.closing.is_set():
                raise _HangUp(reset=True)

    def _forward(self) -> _Response:
        server = self.reach()
        server.send(self.head)
        for block in self._request_body():
            server.send(block)
        while (head := server.head()) is not None:
            start, headers = _parse(head)
            status = int(start.split(" ")[1])
            if status >= _FINAL:
                body = self._body_of(server, headers, status)
                return _Response(head, headers, status, body)
        raise _HangUp(reset=True)

    def _body_of(self, server: _Stream, headers: Mapping[str, str], status: int) -> Iterator[bytes]:
        if self.request.method == "HEAD" or status in _NO_BODY:
            return iter(())
        if "content-length" in headers or "transfer-encoding" in headers:
            return server.body(headers)
        return server.rest()

    def _return(self, response: _Response) -> None:
        self._pass_on(response, response.body)
        framed = {"content-length", "transfer-encoding"} & response.headers.keys()
        bodiless = self.request.method == "HEAD" or response.status in _NO_BODY
        if not (framed or bodiless) or response.headers.get("connection", "").lower() == "close":
            raise _HangUp(reset=False)

    def _shorten(self, response: _Response, body_bytes: int) -> None:
        body = b"".join(_upto(body_bytes, response.body))
        head = _without(_without(response.head, "content-length"), "transfer-encoding")
        head = head.removesuffix(b"\r\n") + f"Content-Length: {len(body)}\r\n\r\n".encode()
        self._pass_on(replace(response, head=head), iter((body,)))
        raise _HangUp(reset=False)

    def _pass_on(self, response: _Response, body: Iterator[bytes]) -> None:
        self.exchange.status = response.status
        self.client.send(response.head)
        for block in body:
            self.exchange.response_body_bytes += len(block)
            self.client.send(block)

    def _request_body(self) -> Iterator[bytes]:
        for block in chain((self.request.body,), self.unseen_body):
            self.exchange.request_body_bytes += len(block)
            yield block


def _parse(head: bytes) -> tuple[str, dict[str, str]]:
    start, *lines = head.decode("iso-8859-1").removesuffix("\r\n\r\n").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return start, {name.strip().lower(): value.strip() for name, _, value in pairs}


def _without(head: bytes, name: str) -> bytes:
    lines = head.split(b"\r\n")
    prefix = f"{name}:".encode()
    return b"\r\n".join(line for line in lines if not line.lower().startswith(prefix))


def _first(body: Iterator[bytes], length: int) -> bytes:
    seen = bytearray()
    while len(seen) < length and (block := next(body, b"")):
        seen += block
    return bytes(seen)


def _upto(length: int, body: Iterator[bytes]) -> Iterator[bytes]:
    while length > 0 and (block := next(body, b"")):
        yield block[:length]
        length -= len(block)


def _drain(body: Iterator[bytes]) -> None:
    for _ in body:
        pass
