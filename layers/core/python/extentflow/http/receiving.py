"""The HTTP server of the receiver: what needs no body is answered before it is read.

head ──claim──> body ──> answer ──proof──> next request
  │       └ none: answered, and the connection ends  └ none: it ends
  └ over `HEAD_SECONDS`, later over `request_seconds`: it ends

Tests: unit/http/test_serving.py
"""

from __future__ import annotations

import http.client
import io
import logging
import resource
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus

from extentflow.http.requests import MAX_REQUEST_BYTES, HttpRequest, HttpResponse
from extentflow.http.serving import AnyMethod, HttpServer, UnknownCoding, shut

log = logging.getLogger(__name__)

REQUEST_SECONDS = 60.0
# Until the handshake and the head of a connection's first request have arrived.
HEAD_SECONDS = 10.0
# How long the rest of a refused request is read, so that its sender reads the answer.
DRAIN_SECONDS = 2.0
MOST_CONNECTIONS = 1_024
# Requests whose claim holds that are answered at once: each needs a connection of the database.
MOST_ANSWERS = 64
# Descriptors for all but connections: the database, the logs, the queue.
OTHER_DESCRIPTORS = 128
MOST_HEAD_BYTES = 32_768
# Of all bodies whose sender has not proven itself yet: the proof needs the whole body.
MOST_BODY_BYTES = 64 << 20


class _Head(io.BufferedIOBase):
    """The lines of a request's head, up to `MOST_HEAD_BYTES`; `stream` continues with the body."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self.stream = stream
        self._left = MOST_HEAD_BYTES

    def readline(self, size: int | None = -1) -> bytes:
        """Return the next line. HTTPException, which the base class answers with 431: too many."""
        if self._left <= 0:
            raise http.client.HTTPException(f"the head has more than {MOST_HEAD_BYTES} bytes")
        wanted = self._left if size is None or size < 0 else min(size, self._left)
        line = self.stream.readline(wanted)
        self._left -= len(line)
        return line


def descriptors(wanted: int) -> int:
    """Let this process open `wanted` files, or as many as it may; return how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


class ReceivingServer(HttpServer):
    """Serves requests, from `start`, with the responses of `answer`. Raises as `HttpServer`.

    `before_body` gets a request without its body, and answers what needs none. A connection
    continues after a response that is `proven`. All times are in seconds.
    """

    def __init__(
        self,
        address: tuple[str, int],
        answer: Callable[[HttpRequest], HttpResponse],
        *,
        before_body: Callable[[HttpRequest], HttpResponse | None] = lambda _request: None,
        tls: ssl.SSLContext | None = None,
        head_seconds: float = HEAD_SECONDS,
        request_seconds: float = REQUEST_SECONDS,
        most_connections: int = MOST_CONNECTIONS,
        most_body_bytes: int = MOST_BODY_BYTES,
    ) -> None:
        self.answer = answer
        self.before_body = before_body
        self.seconds = request_seconds
        self.most_body_bytes = most_body_bytes
        self.answering = threading.Semaphore(MOST_ANSWERS)
        possible = descriptors(most_connections + OTHER_DESCRIPTORS) - OTHER_DESCRIPTORS
        super().__init__(
            address,
            _Receiving,
            tls=tls,
            request_seconds=head_seconds,
            most_connections=max(1, min(most_connections, possible)),
        )


class _Receiving(AnyMethod):
    server: ReceivingServer

    def handle_one_request(self) -> None:
        stream = self.rfile
        self.rfile = _Head(stream)
        try:
            super().handle_one_request()
        finally:
            self.rfile = stream

    def handle_expect_100(self) -> bool:
        # `take` asks for the body, when the head did not suffice for an answer.
        return True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a head that the base class cannot read; after 400, senders drop an event."""
        bad = code == HTTPStatus.BAD_REQUEST
        status = HTTPStatus.NOT_IMPLEMENTED if bad else HTTPStatus(code)
        # It is that of HTTP/0.9, which has no status, until a head is read.
        self.request_version = self.protocol_version
        self._refuse(status, message or explain or "the head cannot be read")

    def take(self) -> None:
        self._begin_body()
        try:
            self._respond(self.framing(length_required=self.command == "POST"))
        except UnknownCoding as exc:
            self._refuse(HTTPStatus.NOT_IMPLEMENTED, str(exc))
        except ValueError as exc:
            self._refuse(HTTPStatus.LENGTH_REQUIRED, str(exc))
        except OverflowError as exc:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(exc))

    def _begin_body(self) -> None:
        if isinstance(self.rfile, _Head):
            self.rfile = self.rfile.stream

    def _respond(self, length: int | None) -> None:
        path, _, query = self.path.partition("?")
        headers = dict(self.headers.items())
        request = HttpRequest(self.command, path, headers, b"", query=query)
        # Without a body nothing is stored, so that no place at the database is waited for.
        response = self.server.answer(request) if length == 0 else self.server.before_body(request)
        if response is not None:
            self._send(response, unread=length != 0)
            return
        expected = MAX_REQUEST_BYTES if length is None else min(length, MAX_REQUEST_BYTES)
        if not self.server.make_room(self.connection, expected, self.server.most_body_bytes):
            # The sender repeats the notification.
            why = "bodies without a proof take all the memory that they may have"
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, why)
            return
        self.server.extend(self.connection, self.server.seconds)
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(HTTPStatus.CONTINUE)
            self.end_headers()
        # One byte more than is taken, so that the receiver answers, and logs.
        request = replace(request, body=self.framed(length, MAX_REQUEST_BYTES + 1))
        with self.server.answering:
            response = self.server.answer(request)
        self._send(response, unread=False)

    def _send(self, response: HttpResponse, *, unread: bool) -> None:
        content = response.body.encode("utf-8", "backslashreplace")
        headers = [("Content-Type", response.content_type)]
        ends = unread or not response.proven
        if ends:
            headers.append(("Connection", "close"))
        else:
            self.server.extend(self.connection, self.server.seconds, proven=True)
        self.answer(response.status, content, headers)
        if unread:
            self._drain()

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        # The unread rest of the request would be read as the next one.
        log.warning("refused with %d %s: %.200s", status, status.phrase, why)
        headers = [("Content-Type", "text/plain"), ("Connection", "close")]
        self.answer(status, status.phrase.encode(), headers)
        self._begin_body()
        self._drain()

    def _drain(self) -> None:
        # Closed with bytes unread, the connection is reset before its sender reads the answer.
        self.server.extend(self.connection, DRAIN_SECONDS)
        shut(self.connection, socket.SHUT_WR)
        left = MAX_REQUEST_BYTES
        while left > 0 and (found := self.rfile.read1(left)):
            left -= len(found)
