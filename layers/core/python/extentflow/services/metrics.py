"""Metrics of a process in Prometheus's text format, and the HTTP server that a scraper reads.

Names and meanings are those of `extentflow.metric_table`.
Format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

from extentflow.errors import Misconfigured
from extentflow.http.serving import Handler, HttpServer
from extentflow.metric_table import MetricEntry
from extentflow.wording import plain

PATH = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_SECONDS = 10.0
MOST_PORTS = 65_535


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; counters end in `_total`."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str

    @classmethod
    def of(cls, entry: MetricEntry) -> Metric:
        """Return a metric of the table."""
        meaning = f"{entry.meaning[0].upper()}{entry.meaning[1:]}."
        return cls(entry.prometheus, "gauge" if entry.gauge else "counter", meaning)


class Metrics:
    """Current values of metrics, those given 0 at the start. Safe from any thread."""

    def __init__(self, metrics: Iterable[Metric] = ()) -> None:
        # By metric, then by the text of its label.
        self._values: dict[Metric, dict[str, float]] = {metric: {"": 0.0} for metric in metrics}
        self._by_name = {metric.name: metric for metric in self._values}
        self._lock = threading.Lock()

    def update(self, values: Mapping[str, float]) -> None:
        """Add to counters and set gauges, all at once. Raises KeyError for an unknown name."""
        with self._lock:
            for name, value in values.items():
                self._put(self._by_name[name], "", value)

    def count(self, metric: Metric, value: float, *, function: str) -> None:
        """Add to one counter, or set one gauge, of a function: its label in the text."""
        with self._lock:
            self._put(metric, f'{{function="{function}"}}', value)

    def text(self) -> str:
        """Return the metrics as a scraper reads them."""
        with self._lock:
            return "".join(
                f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n"
                + "".join(f"{metric.name}{label} {value!r}\n" for label, value in values.items())
                for metric, values in self._values.items()
            )

    def _put(self, metric: Metric, label: str, value: float) -> None:
        values = self._values.setdefault(metric, {})
        values[label] = value + (values.get(label, 0.0) if metric.kind == "counter" else 0.0)


@contextmanager
def serve_metrics(text: Callable[[], str], address: str | None) -> Iterator[str]:
    """Answer `GET /metrics` at HOST:PORT with `text` until the block ends; yield the URL.

    `:PORT` is every interface. Port 0 is any free one. Without an address nothing is served, and
    the URL is empty. Raises Misconfigured for an address that is not one, or is taken.
    """
    if address is None:
        yield ""
        return

    class MetricsHandler(Handler):
        def do_GET(self) -> None:  # noqa: N802 - the base class's
            body = text().encode() if self.path.partition("?")[0] == PATH else None
            status = HTTPStatus.NOT_FOUND if body is None else HTTPStatus.OK
            # A scraper asks every few seconds; its connections do not wait for that.
            headers = [("Content-Type", CONTENT_TYPE), ("Connection", "close")]
            self.answer(status, body or b"", headers)

    host, port = _host_and_port(address)
    try:
        server = HttpServer((host, port), MetricsHandler, request_seconds=REQUEST_SECONDS)
    except OSError as exc:
        raise Misconfigured(
            f"--metrics {plain(address)}: {exc.strerror or exc}; write another HOST:PORT"
        ) from exc
    server.start()
    try:
        yield f"http://{host or '0.0.0.0'}:{server.port}{PATH}"  # noqa: S104 - shown
    finally:
        server.stop()


def _host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > MOST_PORTS:
        raise Misconfigured(
            f"--metrics {plain(address)}: write HOST:PORT, as 127.0.0.1:9108, or :9108 for every"
            " interface"
        )
    return host, int(port)
