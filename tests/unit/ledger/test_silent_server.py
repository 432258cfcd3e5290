"""A ledger that accepts connections and never answers ends each write of progress in time."""

import socket
import threading
from collections.abc import Iterator

import pytest
from tests.support.waiting import running_seconds

from extentflow.background import LatestCall
from extentflow.errors import LedgerUnavailable
from extentflow.ledger import LedgerOptions, open_ledger

BOUND_SECONDS = 60.0


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "local")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local")


def test_a_write_without_an_answer_does_not_stop_the_later_ones(silent: str) -> None:
    options = LedgerOptions(
        "table",
        endpoint=silent,
        region="eu-central-1",
        retry_seconds=0.5,
        connect_seconds=0.2,
        read_seconds=0.2,
    )
    ledger, writes = open_ledger(options), LatestCall()
    begun, failed, later = threading.Event(), threading.Event(), threading.Event()

    def write() -> None:
        begun.set()
        with pytest.raises(LedgerUnavailable, match="no usable response within"):
            ledger.extents.get("job", 0)
        failed.set()

    began = running_seconds()
    writes.submit(write)
    assert begun.wait(BOUND_SECONDS)
    writes.submit(later.set)

    assert failed.wait(BOUND_SECONDS)
    assert later.wait(BOUND_SECONDS)
    assert running_seconds() - began < BOUND_SECONDS


def test_every_request_to_the_ledger_has_short_timeouts() -> None:
    usual = LedgerOptions("table")

    # docs/exactly-once.md: a write of progress has up to three requests.
    assert usual.retry_seconds + usual.connect_seconds + usual.read_seconds == 38
