"""The receiver's HTTP server: framing, limits, TLS, and its stop."""

import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.support.secured import Certified

from extentflow.http.requests import MAX_REQUEST_BYTES, HttpRequest, HttpResponse
from extentflow.http.serving import HttpServer, receiving_server

HOST = "127.0.0.1"
WAIT_SECONDS = 60.0


@dataclass
class Answering:
    """Answers requests, and remembers them; `before` runs first."""

    requests: list[HttpRequest] = field(default_factory=list)
    before: Callable[[], object] = lambda: None

    def __call__(self, request: HttpRequest) -> HttpResponse:
        self.before()
        self.requests.append(request)
        return HttpResponse(200, "text/plain", "queued\n")


@contextmanager
def serving(
    answer: Answering,
    tls: ssl.SSLContext | None = None,
    request_seconds: float = WAIT_SECONDS,
    most_connections: int = 8,
) -> Iterator[HttpServer]:
    server = receiving_server(
        (HOST, 0),
        answer,
        tls=tls,
        request_seconds=request_seconds,
        most_connections=most_connections,
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
    """The status of the next response; 0 where the connection ended."""
    found = connection.makefile("rb").readline()
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


def test_more_connections_than_places_wait() -> None:
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

    server = receiving_server((HOST, 0), Answering(before=wait)).start()
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
