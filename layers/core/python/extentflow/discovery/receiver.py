"""The HTTP endpoint for notifications.

    GET, HEAD, empty body                        200   a probe of the endpoint
    over 1 MiB                                   413
    a body of unknown length or coding           411, 501    by the server (`serving`)
    no declared source, or wrong proof           403   always the same body; the log has the reason
    Publish of plain text: StorageGRID's test    200   logged
    anything else                                200   after it is on the queue, never before
    the queue rejected it                        503   the sender retries

Nothing is parsed or planned here. A 400 is never returned, because StorageGRID
then drops the event; it retries all other failures. Responses must be fast, because a backlog in
StorageGRID makes its clients' writes fail. Unparseable documents are queued too, and the
planner dead-letters them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from extentflow.discovery import documents, sources
from extentflow.errors import AccessDenied, ExtentflowError, Misconfigured
from extentflow.http import requests
from extentflow.http.requests import MAX_REQUEST_BYTES, HttpRequest, HttpResponse
from extentflow.retry import Clock

# Not __name__: Powertools drops records of loggers whose names contain that of its function.
log = logging.getLogger("extentflow.discovery.requests")


@dataclass(frozen=True, slots=True)
class Receiver:
    """Answers requests. Raises Misconfigured if no source is declared.

    `enqueue` returns when the arrivals queue has stored a body, and raises ExtentflowError
    otherwise. `message_bytes` is the queue's limit for one body.
    """

    sources: tuple[sources.Source, ...]
    enqueue: Callable[[str], object]
    clock: Clock = field(default_factory=Clock)
    message_bytes: int = documents.MAX_BODY_BYTES

    def __post_init__(self) -> None:
        if not self.sources:
            raise Misconfigured("the receiver has no sources; declare who may send notifications")

    def before_body(self, request: HttpRequest) -> HttpResponse | None:
        """Return the response to a request whose body is not read yet; None: it needs the body."""
        if request.method != "POST":
            return self.answer(request)
        try:
            sources.claimed(self.sources, request, now=self.clock.wall())
        except AccessDenied as exc:
            return _denied(exc)
        return None

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Return the response to one request, whatever its content. Raises nothing of its own."""
        if request.method in {"GET", "HEAD"}:
            return _probed(request)
        if request.method != "POST":
            return _refused(405, "MethodNotAllowed", "notifications are posted")
        try:
            payload = request.payload()
        except ValueError as exc:
            log.exception("the front door contradicts itself")
            return _refused(503, "ServiceUnavailable", str(exc))
        if not payload.strip():
            return _probed(request)
        if len(payload) > MAX_REQUEST_BYTES:
            return _refused(413, "RequestEntityTooLarge", f"over {MAX_REQUEST_BYTES} bytes")
        return self._admit(request, payload)

    def _admit(self, request: HttpRequest, payload: bytes) -> HttpResponse:
        try:
            source = sources.admitted(self.sources, request, payload, now=self.clock.wall())
        except AccessDenied as exc:
            return _denied(exc)
        return replace(self._stored(source.endpoint, payload), proven=True)

    def _stored(self, endpoint: str | None, payload: bytes) -> HttpResponse:
        published = requests.publication(payload)
        if published is not None and published.probe:
            log.info("test message for %.200r: %.200r", published.topic, published.message)
            return _accepted(payload, published)
        document = payload if published is None else published.message.encode()
        try:
            for body in documents.bodies(document, endpoint, limit=self.message_bytes):
                self.enqueue(body)
        except documents.TooLarge as exc:
            return _refused(413, "RequestEntityTooLarge", str(exc))
        except ExtentflowError:
            log.exception("the arrivals queue took nothing; the sender has to try again")
            return _refused(503, "ServiceUnavailable", "the arrivals queue took nothing")
        return _accepted(payload, published)


def _probed(request: HttpRequest) -> HttpResponse:
    # Without the path, which may contain a secret.
    log.info("probe: %s from %.200r", request.method, request.header("user-agent"))
    body = "" if request.method == "HEAD" else "extentflow receiver\n"
    return HttpResponse(200, "text/plain", body)


def _accepted(payload: bytes, published: requests.Publication | None) -> HttpResponse:
    if published is None:
        return HttpResponse(200, "text/plain", "queued\n")
    return HttpResponse(200, requests.CONTENT_TYPE, requests.accepted(payload))


def _denied(why: AccessDenied) -> HttpResponse:
    # The reason would reveal which access keys exist, and this clock.
    return _refused(403, "AccessDenied", str(why), shown="the proof is missing or wrong")


def _refused(status: int, code: str, why: str, *, shown: str | None = None) -> HttpResponse:
    log.warning("refused with %d %s: %s", status, code, why)
    return HttpResponse(status, requests.CONTENT_TYPE, requests.refused(code, shown or why))
