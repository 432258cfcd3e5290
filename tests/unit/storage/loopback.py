"""A small S3 server on the loopback interface with scripted responses and configurable faults.

It holds objects by path, the faults of a server, a script of responses that precede the
correct ones, and a log of requests. It does not check signatures.
"""

import contextlib
import re
import ssl
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SO_LINGER, SOL_SOCKET
from urllib.parse import parse_qs, quote_plus, unquote, unquote_plus, urlsplit
from xml.sax.saxutils import escape


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    client: tuple[str, int]


@dataclass(frozen=True, slots=True)
class Reply:
    """`cut`: close after so many bytes of the body; `reset`: a TCP reset instead of a response."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    reset: bool = False


Answer = Reply | Callable[[Request], Reply]


@dataclass(frozen=True, slots=True)
class Held:
    body: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class Version:
    """One version, or a delete marker, in a listing; the newest of a key comes first."""

    key: str
    id: str
    etag: str = ""
    size: int = 0
    latest: bool = True
    deleted: bool = False

    def to_xml(self, *, encoded: bool) -> str:
        kind = "DeleteMarker" if self.deleted else "Version"
        etag = "" if self.deleted else f"<ETag>&quot;{self.etag}&quot;</ETag>"
        size = "" if self.deleted else f"<Size>{self.size}</Size>"
        return (
            f"<{kind}><Key>{quote_plus(self.key) if encoded else escape(self.key)}</Key>"
            f"<VersionId>{self.id}</VersionId><IsLatest>{str(self.latest).lower()}</IsLatest>"
            f"{etag}{size}</{kind}>"
        )


def error(status: int, code: str, **headers: str) -> Reply:
    body = f"<Error><Code>{code}</Code><Message>scripted</Message></Error>".encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, body, {"Content-Type": "application/xml", **names})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Some tests close the connection in the middle of a response."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Loopback:
    """`objects` maps `/bucket/key` to what is held; `script` goes first, in order."""

    def __init__(self, *, context: ssl.SSLContext | None = None) -> None:
        self.objects: dict[str, Held] = {}
        self.script: deque[Answer] = deque()
        self.seen: list[Request] = []
        self.ignores_if_match = False
        self.ignores_range = False
        self.ignores_encoding_type = False
        self.versioning = ""
        self.versions: list[Version] = []
        self.ignores_versions = False
        self.name = "loopback"
        self.body_bytes_sent = 0
        self._idle = threading.Condition()
        self._busy = 0
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"double": self}))
        self._scheme = "http" if context is None else "https"
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    @property
    def methods(self) -> list[str]:
        return [request.method for request in self.seen]

    def hold(self, path: str, body: bytes, etag: str) -> None:
        self.objects[path] = Held(body, etag)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        with self._idle:
            self._busy += 1
        try:
            yield
        finally:
            with self._idle:
                self._busy -= 1
                self._idle.notify_all()

    def settle(self) -> None:
        """Wait until everything that was to be sent is sent, or its receiver is gone."""
        with self._idle:
            assert self._idle.wait_for(lambda: self._busy == 0, timeout=300)

    @contextlib.contextmanager
    def running(self) -> Iterator["Loopback"]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def answer(self, request: Request) -> Reply:
        if self.script:
            scripted = self.script.popleft()
            return scripted if isinstance(scripted, Reply) else scripted(request)
        if "versioning" in request.query:
            return self._versioning()
        lists = request.query.get("list-type") == "2" or "versions" in request.query
        if lists and self._knows(request.path.strip("/")):
            versions = "versions" in request.query and not self.ignores_versions
            return self._page_of_versions(request) if versions else self._page(request)
        held = self.objects.get(request.path)
        if held is None:
            bucket = request.path.split("/")[1]
            known = self._knows(bucket)
            if known and request.path == f"/{bucket}":
                return Reply()
            return error(404, "NoSuchKey" if known else "NoSuchBucket")
        return self._object(request, held)

    def _knows(self, bucket: str) -> bool:
        return any(path.startswith(f"/{bucket}/") for path in self.objects)

    def _object(self, request: Request, held: Held) -> Reply:
        expected = request.headers.get("if-match")
        if expected not in (None, f'"{held.etag}"') and not self.ignores_if_match:
            return error(412, "PreconditionFailed")
        headers = {"ETag": f'"{held.etag}"'}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))
        if wanted is None or self.ignores_range:
            return Reply(200, held.body, headers)
        size = len(held.body)
        start, end = int(wanted[1]), min(int(wanted[2]) + 1, size)
        if start >= size:
            return error(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        return Reply(206, held.body[start:end], headers)

    def _versioning(self) -> Reply:
        status = f"<Status>{self.versioning}</Status>" if self.versioning else ""
        return _xml(f"<VersioningConfiguration>{status}</VersioningConfiguration>")

    def _page(self, request: Request) -> Reply:
        bucket = f"{request.path.rstrip('/')}/"
        names = {
            path.removeprefix(bucket): path for path in self.objects if path.startswith(bucket)
        }
        prefix, after = (
            request.query.get("prefix", ""),
            unquote_plus(request.query.get("continuation-token", "")),
        )
        most = int(request.query.get("max-keys", "1000"))
        keys = sorted(k for k in names if k.startswith(prefix) and k > after)
        shown = keys[:most]
        wanted = request.query.get("encoding-type")
        encoded = wanted == "url" and not self.ignores_encoding_type
        contents = "".join(
            f"<Contents><Key>{quote_plus(k) if encoded else escape(k)}</Key>"
            f"<ETag>&quot;{self.objects[names[k]].etag}&quot;</ETag>"
            f"<Size>{len(self.objects[names[k]].body)}</Size></Contents>"
            for k in shown
        )
        more = len(keys) > most
        token = (
            f"<NextContinuationToken>{quote_plus(shown[-1])}</NextContinuationToken>"
            if more
            else ""
        )
        kind = "<EncodingType>url</EncodingType>" if encoded else ""
        truncated = f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        text = f"<ListBucketResult>{kind}{truncated}{token}{contents}</ListBucketResult>"
        return _xml(text)

    def _page_of_versions(self, request: Request) -> Reply:
        prefix, most = request.query.get("prefix", ""), int(request.query.get("max-keys", "1000"))
        after = request.query.get("key-marker", ""), request.query.get("version-id-marker", "")
        places = [(version.key, version.id) for version in self.versions]
        start = places.index(after) + 1 if after in places else 0
        found = [version for version in self.versions[start:] if version.key.startswith(prefix)]
        shown = found[:most]
        encoded = request.query.get("encoding-type") == "url" and not self.ignores_encoding_type
        more = len(found) > most
        markers = ""
        if more:
            key = quote_plus(shown[-1].key) if encoded else escape(shown[-1].key)
            markers = f"<NextKeyMarker>{key}</NextKeyMarker>"
            markers += f"<NextVersionIdMarker>{shown[-1].id}</NextVersionIdMarker>"
        kind = "<EncodingType>url</EncodingType>" if encoded else ""
        items = "".join(version.to_xml(encoded=encoded) for version in shown)
        truncated = f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        return _xml(f"<ListVersionsResult>{kind}{truncated}{markers}{items}</ListVersionsResult>")


def _xml(text: str) -> Reply:
    return Reply(200, text.encode(), {"Content-Type": "application/xml"})


class _Handler(BaseHTTPRequestHandler):
    double: Loopback
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        length = int(headers.get("content-length", "0"))
        posted = parse_qs(self.rfile.read(length).decode("latin-1"))
        query.update({name: values[0] for name, values in posted.items()})
        request = Request(self.command, unquote(parts.path), query, headers, self.client_address)
        self.double.seen.append(request)
        with self.double.answering():
            self._reply(self.double.answer(request))

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - the server's names

    def _reply(self, reply: Reply) -> None:
        if reply.reset:
            self.connection.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(reply.status)
        headers = {"Content-Length": str(len(reply.body)), **reply.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self._send(reply.body[: reply.cut])
        if reply.cut is not None:
            self.close_connection = True

    def _send(self, body: bytes) -> None:
        step = 256 << 10
        for at in range(0, len(body), step):
            try:
                self.wfile.write(body[at : at + step])
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True
                return
            self.double.body_bytes_sent += len(body[at : at + step])

    def version_string(self) -> str:
        return self.double.name

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited
        del format, args
