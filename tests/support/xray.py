"""X-Ray's daemon for tests: receives what a function sends within a sampled invocation."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from extentflow.aws.trace_segments import DAEMON_VARIABLE, HEADER
from extentflow.work_context import INVOCATION

ROOT, PARENT = "1-5759e988-bd862e3fe1be46a994272793", "53995c3f42cd8ad8"


@contextmanager
def daemon(
    monkeypatch: pytest.MonkeyPatch, *, sampled: bool = True
) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Yield what returns the documents received so far."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(0.0)  # on the loopback interface, what was sent is there
        host, port = listener.getsockname()
        monkeypatch.setenv(DAEMON_VARIABLE, f"{host}:{port}")
        monkeypatch.setenv(INVOCATION, f"Root={ROOT};Parent={PARENT};Sampled={int(sampled)}")

        def received() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = []
            while True:
                try:
                    text = listener.recv(65_536).decode()
                except BlockingIOError:
                    return found
                assert text.startswith(HEADER)
                found.append(json.loads(text.removeprefix(HEADER)))

        yield received
