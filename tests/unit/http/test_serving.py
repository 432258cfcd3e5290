"""The receiver's HTTP server: framing, limits, TLS, and its stop."""

import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.support.secured import Certified

from extentflow.http.receiving import ReceivingServer
from extentflow.http.requests import MAX_REQUEST_BYTES, HttpRequest, HttpResponse
from extentflow.http.serving import HttpServer, _network

HOST = "127.0.0.1"
WAIT_SECONDS = 60.0


@dataclass
class Answering:
    """Answers requests, and remembers them; `before` runs first."""

    requests: list[HttpRequest] = field(default_factory=list)
    before: Callable[[], object] = lambda: None
    proven: bool = True

    def __call__(self, request: HttpRequest) -> HttpResponse:
        self.before()
        self.requests.append(request)
        return HttpResponse(200, "text/plain", "queued\n", proven=self.proven)


@contextmanager
def serving(
    answer: Answering,
    tls: ssl.SSLContext | None = None,
    *,
    request_seconds: float = WAIT_SECONDS,
    most_connections: int = 8,
    most_body_bytes: int = 1 << 20,
    head_seconds: float = WAIT_SECONDS,
    before_body: Callable[[HttpRequest], HttpResponse | None] = lambda _request: None,
) -> Iterator[HttpServer]:
    server = ReceivingServer(
        (HOST, 0),
        answer,
        before_body=before_body,
        tls=tls,
        head_seconds=head_seconds,
        request_seconds=request_seconds,
        most_connections=most_connections,
        most_body_bytes=most_body_bytes,
    ).start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def connected(server: HttpServer) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, server.port), timeout=WAIT_SECONDS) as connection:
        yield connection


def status(connection: socket.socket) -> int:
    """Read the next response as a whole, and no more; 0 where the connection ended."""
    # Without a buffer: what a buffer has read of the next response ends with it.
    reader = connection.makefile("rb", buffering=0)
    found = reader.readline()
    left = int(http.client.parse_headers(reader).get("Content-Length", "0"))
    while left and (part := reader.read(left)):
        left -= len(part)
    return int(found.split()[1]) if found else 0


def post(server: HttpServer, body: bytes, path: str = "/s?a=b%20c") -> int:
    client = http.client.HTTPConnection(HOST, server.port, timeout=WAIT_SECONDS)
    try:
        client.request("POST", path, body, {"X-Name": "value"})
        return client.getresponse().status
    finally:
        client.close()


def test_a_request_is_passed_on_as_it_was_sent() -> None:
    answer = Answering()
    with serving(answer) as server:
        assert post(server, b'{"a": 1}') == 200

    (request,) = answer.requests
    assert (request.method, request.path, request.query) == ("POST", "/s", "a=b%20c")
    assert request.header("x-name") == "value"
    assert request.payload() == b'{"a": 1}'


def test_a_connection_serves_several_requests_in_chunks() -> None:
    answer = Answering()
    chunked = (
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    with serving(answer) as server, connected(server) as connection:
        connection.sendall(chunked + chunked)
        responses = connection.makefile("rb")
        while len(answer.requests) < 2:
            assert responses.readline()

    assert [one.body for one in answer.requests] == [b"abcde", b"abcde"]


@pytest.mark.parametrize(
    "head",
    [
        "Transfer-Encoding: Chunked \r\n\r\n5\r\nabcde\r\n0\r\nX-Trailer: a\r\n",
        "TRANSFER-ENCODING:chunked\r\n\r\n5 ;a=b\r\nabcde\r\n0\r\n",
        "Content-Length: 5 \r\n\r\nabcde",
        "Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
    ],
)
def test_a_body_is_read_however_its_headers_are_written(head: str) -> None:
    answer = Answering()
    ending = "\r\n" if "chunked" in head.lower() else ""
    with serving(answer) as server, connected(server) as connection:
        for _ in range(2):
            connection.sendall(f"POST / HTTP/1.1\r\n{head}{ending}".encode())
        responses = connection.makefile("rb")
        while len(answer.requests) < 2:
            assert responses.readline()

    assert [one.body for one in answer.requests] == [b"abcde", b"abcde"]


def test_a_request_without_a_body_is_passed_on() -> None:
    answer = Answering()
    with serving(answer) as server, connected(server) as connection:
        responses = connection.makefile("rb")
        connection.sendall(b"GET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        while len(answer.requests) < 2:
            assert responses.readline()

    assert [(one.method, one.body) for one in answer.requests] == [("GET", b""), ("POST", b"")]


@pytest.mark.parametrize(
    ("head", "refused"),
    [
        (f"Content-Length: {MAX_REQUEST_BYTES + 2}", 413),
        ("Content-Length: -1", 411),
        ("Content-Length: +5", 411),
        ("Content-Length: 1_0", 411),
        ("Content-Length: \u0665", 411),
        ("Content-Length:", 411),
        ("Content-Length: many", 411),
        ("Content-Length: 2\r\nContent-Length: 5", 411),
        ("Content-Length: 5, 5", 411),
        ("Host: a", 411),
        ("no header\r\nContent-Length: 5", 411),
        ("Transfer-Encoding: gzip", 501),
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Transfer-Encoding: chunked, chunked", 501),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 501),
        ("Transfer-Encoding: identity\r\nContent-Length: 5", 501),
        ("Transfer-Encoding:\r\nContent-Length: 5", 501),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", 411),
        ("Transfer-Encoding : chunked\r\nContent-Length: 5", 411),
        ("Transfer-Encoding: chunked\r\n\r\nnone", 411),
        ("Transfer-Encoding: chunked\r\n\r\n-1", 411),
        ("Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc", 411),
        ("Transfer-Encoding: chunked\r\n\r\n3\r\nabcde\r\n0", 411),
        (f"Transfer-Encoding: chunked\r\n\r\n{MAX_REQUEST_BYTES + 2:x}", 413),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_but_never_with_400(head: str, refused: int) -> None:
    answer = Answering()
    with serving(answer) as server, connected(server) as connection:
        connection.sendall(f"POST / HTTP/1.1\r\n{head}\r\n\r\n".encode())

        assert status(connection) == refused
        assert connection.makefile("rb").read() is not None  # until the connection ends

    assert answer.requests == []


def test_a_body_that_ends_early_is_no_request() -> None:
    answer = Answering()
    with serving(answer) as server:
        with connected(server) as connection:
            connection.sendall(b'POST / HTTP/1.1\r\nContent-Length: 20\r\n\r\n{"Records": []')
            connection.shutdown(socket.SHUT_WR)
            assert status(connection) == 0
        assert post(server, b"whole") == 200

    assert [one.body for one in answer.requests] == [b"whole"]


def test_a_slow_request_loses_its_connection() -> None:
    answer = Answering()
    with serving(answer, request_seconds=0.2) as server, connected(server) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n")

        assert status(connection) == 0

    assert answer.requests == []


def test_a_slow_head_loses_its_connection_while_a_body_has_more_time() -> None:
    opening = serving(Answering(), head_seconds=0.2)
    with opening as server, connected(server) as other, connected(server) as slow:
        other.sendall(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n")
        slow.sendall(b"POST / HTTP/1.1\r\nHost: a\r\n")
        assert status(slow) == 0
        other.sendall(b"a")

        assert status(other) == 200


@pytest.mark.parametrize(
    ("head", "refused"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 33_000, 431),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200, 431),
        (b"GET / HTTP/9.9\r\n\r\n", 505),
        (b"no request at all\r\n\r\n", 501),
    ],
)
def test_a_head_that_cannot_be_read_is_refused_but_never_with_400(
    head: bytes, refused: int
) -> None:
    with serving(Answering()) as server, connected(server) as connection:
        connection.sendall(head)

        assert status(connection) == refused


def test_a_log_repeats_little_of_a_head_that_cannot_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    line = b"\xff" * 31_000
    with serving(Answering()) as server:
        for head in (line + b" a b c", b"POST / HTTP/1.1\r\nTransfer-Encoding: " + line):
            with connected(server) as connection:
                connection.sendall(head + b"\r\n\r\n")
                assert status(connection) == 501

    assert len(caplog.text) < 1_000


def refused_early(_request: HttpRequest) -> HttpResponse:
    return HttpResponse(403, "text/plain", "refused\n")


@pytest.mark.parametrize("framing", [b"Content-Length: 1000000", b"Transfer-Encoding: chunked"])
def test_a_request_that_is_refused_by_its_head_is_answered_before_its_body(framing: bytes) -> None:
    answer = Answering()
    with serving(answer, before_body=refused_early) as server, connected(server) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\n" + framing + b"\r\n\r\n")
        response = connection.makefile("rb").read()

    assert response.startswith(b"HTTP/1.1 403 ")
    assert response.endswith(b"refused\n")

    assert answer.requests == []


def test_a_sender_that_sends_its_body_at_once_reads_why_it_is_refused() -> None:
    with serving(Answering(), before_body=refused_early) as server:
        assert post(server, b"a" * MAX_REQUEST_BYTES) == 403


def test_a_sender_that_waits_for_it_is_asked_for_the_body() -> None:
    with serving(Answering()) as server, connected(server) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n")
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"a")

        assert status(connection) == 200


def test_a_connection_without_a_proof_has_one_request() -> None:
    with serving(Answering(proven=False)) as server, connected(server) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        response = connection.makefile("rb").read()

    assert response.startswith(b"HTTP/1.1 200 ")
    assert b"\r\nConnection: close\r\n" in response


def test_a_newcomer_takes_the_place_of_the_oldest_without_a_proof() -> None:
    begun = b"POST / HTTP/1.1\r\n"
    with serving(Answering(), most_connections=3) as server, connected(server) as proven:
        client = http.client.HTTPConnection(HOST)
        client.sock = proven
        client.request("POST", "/", b"a")
        assert client.getresponse().read() == b"queued\n"
        with connected(server) as oldest, connected(server) as newer:
            oldest.sendall(begun)
            newer.sendall(begun)

            assert post(server, b"a") == 200
            assert status(oldest) == 0
        client.request("POST", "/", b"b")
        assert client.getresponse().read() == b"queued\n"


def test_a_newcomer_takes_the_place_of_the_address_that_has_most() -> None:
    begun = b"POST / HTTP/1.1\r\n"
    with serving(Answering(), most_connections=3) as server, ExitStack() as opened:

        def stranger(address: str) -> socket.socket:
            found = socket.create_connection((HOST, server.port), WAIT_SECONDS, (address, 0))
            opened.enter_context(found).sendall(begun)
            return found

        alone, first, _ = (stranger(f"127.0.0.{host}") for host in (2, 3, 3))

        assert post(server, b"a") == 200
        assert status(first) == 0
        alone.sendall(b"Content-Length: 1\r\n\r\na")
        assert status(alone) == 200


def test_a_claim_without_a_body_gives_no_precedence() -> None:
    """The access key id is no proof: it is part of each request."""
    claim = b"POST / HTTP/1.1\r\nContent-Length: 1\r\n"
    with serving(Answering(), most_connections=3) as server, ExitStack() as opened:

        def stranger(address: str) -> socket.socket:
            found = socket.create_connection((HOST, server.port), WAIT_SECONDS, (address, 0))
            return opened.enter_context(found)

        def claiming() -> socket.socket:
            found = stranger("127.0.0.3")
            found.sendall(claim + b"Expect: 100-continue\r\n\r\n")
            assert status(found) == 100
            return found

        first, second = claiming(), claiming()
        genuine = stranger("127.0.0.2")
        claiming()
        assert status(first) == 0
        claiming()
        assert status(second) == 0

        genuine.sendall(claim + b"\r\na")
        assert status(genuine) == 200


def test_bodies_without_a_proof_have_a_limit_of_memory_in_all() -> None:
    head = b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with serving(Answering(), most_body_bytes=100) as server, ExitStack() as opened:

        def stranger(address: str, size: int) -> tuple[socket.socket, int]:
            found = socket.create_connection((HOST, server.port), WAIT_SECONDS, (address, 0))
            opened.enter_context(found).sendall(head % size)
            return found, status(found)

        first, _ = stranger("127.0.0.3", 50)
        second, _ = stranger("127.0.0.3", 40)
        genuine, answered = stranger("127.0.0.2", 20)
        assert answered == 100
        assert status(first) == 0
        assert stranger("127.0.0.4", 60)[1] == 503
        genuine.sendall(b"a" * 20)
        second.sendall(b"a" * 40)

        assert status(genuine) == 200
        assert status(second) == 200
        # A proof does not count, and neither does a body that was answered.
        genuine.sendall(head % 90)
        assert status(genuine) == 100
        assert stranger("127.0.0.4", 100)[1] == 100


def test_more_connections_than_places_wait_for_those_with_a_proof() -> None:
    answer = Answering()
    with serving(answer, most_connections=1) as server, connected(server) as first:
        first.sendall(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\na")
        assert status(first) == 200
        with connected(server) as second:
            second.sendall(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nb")
            assert [one.body for one in answer.requests] == [b"a"]
            first.shutdown(socket.SHUT_RDWR)

            assert status(second) == 200

    assert [one.body for one in answer.requests] == [b"a", b"b"]


def test_a_stop_answers_the_request_in_progress_and_ends_idle_connections() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go_on.wait(WAIT_SECONDS)

    server = ReceivingServer((HOST, 0), Answering(before=wait)).start()
    with connected(server) as idle, connected(server) as working:
        working.sendall(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\na")
        assert begun.wait(WAIT_SECONDS)
        stopping = threading.Thread(target=server.stop)
        stopping.start()

        assert status(idle) == 0
        go_on.set()
        assert status(working) == 200
        stopping.join(WAIT_SECONDS)
        assert not stopping.is_alive()


@pytest.fixture
def certified(tmp_path: Path) -> tuple[Path, Path]:
    made = Certified.make("receiver")
    certificate, key = tmp_path / "receiver.pem", tmp_path / "receiver.key"
    certificate.write_text(made.certificate)
    key.write_text(made.key)
    return certificate, key


def client_of(certified: tuple[Path, Path] | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certified is not None:
        context.load_cert_chain(*certified)
    return context


def post_secretly(server: HttpServer, context: ssl.SSLContext) -> int:
    client = http.client.HTTPSConnection(HOST, server.port, timeout=WAIT_SECONDS, context=context)
    try:
        client.request("POST", "/", b"secret")
        return client.getresponse().status
    finally:
        client.close()


def test_tls_is_served_while_another_client_does_not_greet(certified: tuple[Path, Path]) -> None:
    answer = Answering()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certified)
    with serving(answer, tls) as server, connected(server), connected(server) as plain:
        plain.sendall(b"POST / HTTP/1.1\r\n\r\n")

        assert post_secretly(server, client_of(None)) == 200

    assert [one.body for one in answer.requests] == [b"secret"]


def test_a_client_without_a_certificate_of_the_authority_is_refused(
    certified: tuple[Path, Path],
) -> None:
    answer = Answering()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certified)
    tls.load_verify_locations(certified[0])
    tls.verify_mode = ssl.CERT_REQUIRED
    with serving(answer, tls) as server:
        with pytest.raises(OSError):  # noqa: PT011 - TLS's, or the end of the connection
            post_secretly(server, client_of(None))
        assert post_secretly(server, client_of(certified)) == 200

    assert [one.body for one in answer.requests] == [b"secret"]


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        ("2001:db8:1::1", "2001:db8:1:0:ffff::2", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2", True),
        ("192.0.2.1", "192.0.2.2", False),
    ],
)
def test_addresses_of_one_host_with_ipv6_count_as_one(
    first: str, second: str, *, is_one: bool
) -> None:
    assert (_network(first) == _network(second)) is is_one
