"""`extentflow receive`: the HTTP receiver of notifications as a plain process."""

from __future__ import annotations

import ipaddress
import logging
import ssl
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from typer import Option

from extentflow.cli import output
from extentflow.cli.option_groups import ServerOptions, expand_options
from extentflow.cli.output import AsJson, MetricsAddress
from extentflow.config.files import read_if_present
from extentflow.discovery.receiver import Receiver
from extentflow.discovery.sources import SecretPathProof, Source, declared
from extentflow.errors import Misconfigured
from extentflow.http.receiving import ReceivingServer
from extentflow.http.requests import HttpRequest, HttpResponse
from extentflow.metric_table import BY_STATUS
from extentflow.services.metrics import Metric, Metrics, serve_metrics

if TYPE_CHECKING:
    from extentflow.queue import Queue

log = logging.getLogger(__name__)
T = TypeVar("T")

METRICS = tuple(map(Metric.of, BY_STATUS.values()))

Sources = Annotated[
    Path,
    Option(
        "--sources",
        dir_okay=False,
        help="A JSON file of the permitted senders, with their secrets; a change needs no restart.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """Where the receiver listens."""

    host: Annotated[
        str, Option("--host", help="The address to listen on; 0.0.0.0 for all of the machine's.")
    ] = "127.0.0.1"
    port: Annotated[
        int, Option("--port", min=0, max=65_535, help="The port to listen on; 0 takes a free one.")
    ] = 8480

    def loopback(self) -> bool:
        """Whether only this machine reaches it; a name other than localhost may be any address."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """The files of a receiver that serves HTTPS."""

    tls_certificate: Annotated[
        Path | None,
        Option(
            "--tls-certificate", dir_okay=False, help="Serve HTTPS with this certificate (PEM)."
        ),
    ] = None
    tls_key: Annotated[
        Path | None, Option("--tls-key", dir_okay=False, help="Its private key (PEM).")
    ] = None
    tls_client_ca: Annotated[
        Path | None,
        Option(
            "--tls-client-ca",
            dir_okay=False,
            help="Accept only clients with a certificate of this authority (PEM).",
        ),
    ] = None

    def context(self) -> ssl.SSLContext | None:
        """Return the context to serve with; None: HTTP. Misconfigured: a file cannot be used."""
        certificate, authority = self.tls_certificate, self.tls_client_ca
        if certificate is None:
            if self.tls_key is not None or authority is not None:
                raise Misconfigured("--tls-key and --tls-client-ca go with --tls-certificate")
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(certificate, self.tls_key)
            if authority is not None:
                context.load_verify_locations(authority)
                context.verify_mode = ssl.CERT_REQUIRED
        except OSError as exc:  # as ssl.SSLError is
            files = ", ".join(str(one) for one in (certificate, self.tls_key, authority) if one)
            raise Misconfigured(f"--tls-certificate: {files}: {exc}; correct the files") from exc
        return context


@expand_options
def receive(
    *,
    sources: Sources,
    listen: ListenOptions,
    tls: TlsOptions,
    metrics: MetricsAddress = None,
    servers: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Receive notifications of new objects over HTTP; `extentflow stream` delivers the objects.

    They are kept in the ledger's database (SQLite or PostgreSQL), or in the SQS queue of
    arrivals.queue.url. A sender gets 200 when its notification is stored.
    """
    from extentflow.cli.opening import open_runtime
    from extentflow.cli.progress import signals_stop
    from extentflow.wiring.arrivals import open_receiving_queue

    context, host = tls.context(), listen.host
    runtime = open_runtime(servers)
    allowed = SourcesFile(
        sources,
        open_allowed=runtime.settings.receiver_open_allowed and listen.loopback(),
        clear_text=context is None and not listen.loopback(),
    )
    allowed.read()
    queue = open_receiving_queue(runtime)
    ended = threading.Event()
    responder = Responder(allowed, queue)
    try:
        server = ReceivingServer(
            (host, listen.port), responder.answer, before_body=responder.before_body, tls=context
        )
    except OSError as exc:
        raise Misconfigured(
            f"--host {host} --port {listen.port}: the address cannot be used"
            f" ({exc.strerror or exc}); choose another one, or stop the process that uses it"
        ) from exc
    with (
        serve_metrics(responder.metrics.text, metrics) as scraped,
        signals_stop(ended.set, "stopping: answering what is under way"),
    ):
        server.start()
        if scraped:
            output.note(f"metrics for Prometheus: {scraped}")
        where = f"[{host}]" if ":" in host else host
        url = f"{'https' if context else 'http'}://{where}:{server.port}"
        output.show(
            {"receiver": url},
            f"receiving notifications at {url}, until Ctrl-C or SIGTERM",
            as_json=as_json,
        )
        sys.stdout.flush()  # a program that reads a pipe waits for this
        ended.wait()
        server.stop()


@dataclass(frozen=True, slots=True)
class SourcesFile:
    """The permitted sources in a file, as they are now.

    `clear_text`: requests cross a network without TLS, on which a secret path can be read.
    """

    path: Path
    open_allowed: bool
    clear_text: bool = False

    def read(self) -> tuple[Source, ...]:
        """Return the sources. Raises Misconfigured if the file does not declare any."""
        text = read_if_present(str(self.path))
        if text is None:
            raise Misconfigured(f"--sources {self.path}: no such file; correct the path")
        return _declared(self, text)


@dataclass(frozen=True)
class Responder:
    """Answers requests with the sources that are declared now, and counts them."""

    sources: SourcesFile
    queue: Queue
    metrics: Metrics = field(default_factory=lambda: Metrics(METRICS))

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Return the response to one request; 503 while the sources cannot be read."""
        response = self._by(lambda receiver: receiver.answer(request))
        self._count(response)
        return response

    def before_body(self, request: HttpRequest) -> HttpResponse | None:
        """Return the response to a request that needs no body, or None. As `answer` otherwise."""
        response = self._by(lambda receiver: receiver.before_body(request))
        if response is not None:
            self._count(response)
        return response

    def _count(self, response: HttpResponse) -> None:
        self.metrics.update({BY_STATUS[response.status // 100].prometheus: 1})

    def _by(self, call: Callable[[Receiver], T]) -> T | HttpResponse:
        try:
            receiver = Receiver(self.sources.read(), lambda body: self.queue.send([body]))
        except Misconfigured as exc:
            log.error("no sender is admitted: %s", exc)  # noqa: TRY400 - the message says it all
            return HttpResponse(503, "text/plain", "the receiver is misconfigured\n")
        return call(receiver)


@lru_cache(maxsize=1)
def _declared(file: SourcesFile, text: str) -> tuple[Source, ...]:
    found = declared(text, open_allowed=file.open_allowed)
    if file.clear_text and any(isinstance(source.proof, SecretPathProof) for source in found):
        output.note(
            f"--sources {file.path}: secret_path can be read on the network, without TLS; give"
            " --tls-certificate, or let a proxy end TLS and keep the way from it to here closed"
        )
    return found
