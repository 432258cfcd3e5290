"""What is reported of a log of changes that holds something odd, and that the end is heard of."""

import base64
import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from extentflow.discovery.notifications import parse_notification
from extentflow.http.receiving import ReceivingServer
from extentflow.http.requests import HttpRequest, HttpResponse
from extentflow_local.aws.event_source.notifier import Follow, Notifier, to_receiver
from extentflow_local.stack.ports import HOST

PATIENCE_SECONDS = 300
COUNT = "X-Seaweedfs-Multipart-Parts-Count"


def change(number: int, *, md5: str | None = "YQ==", **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """What the server says of a new file, after the start of any notifier of these tests."""
    entry = {
        "name": f"k{number}",
        "isDirectory": False,
        "chunks": [],
        "content": "YQ==",
        "extended": None,
        "attributes": {"md5": md5, "fileSize": "1"},
        **changes,
    }
    reported = {"oldEntry": None, "newEntry": entry, "newParentPath": "/buckets/b"}
    moment = time.time_ns() + 10**12 + number
    return {"tsNs": str(moment), "eventNotification": reported}


def printing(folder: Path, *changes: dict[str, Any]) -> Follow:
    """Return a command that prints a log and ends."""
    log = folder / "log.json"
    log.write_text("".join(f"{json.dumps(one, indent=2)}\n" for one in changes))
    program = f"import pathlib; print(pathlib.Path({str(log)!r}).read_text(), end='')"
    return lambda _seconds: [sys.executable, "-c", program]


@pytest.mark.parametrize(
    "odd",
    [
        change(1, md5=None),
        change(1, md5="a"),
        change(1, extended={COUNT: base64.b64encode(b"many").decode()}),
        change(1, extended=[1]),
        {"tsNs": change(1)["tsNs"]},
        {**change(1), "eventNotification": None},
    ],
    ids=["no digest", "half a digest", "parts", "marks", "nothing", "null"],
)
def test_an_unparseable_change_is_skipped(
    odd: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys: list[str] = []
    reported, ended = threading.Event(), threading.Event()

    def send(document: str) -> None:
        keys.extend(arrival.key for arrival in parse_notification(document).arrivals)
        reported.set()

    follow = printing(tmp_path, odd, change(2))
    notifier = Notifier(follow, send, tmp_path / "output", ended=ended.set)
    notifier.start()

    assert reported.wait(PATIENCE_SECONDS)
    assert not ended.is_set()
    notifier.stop()
    notifier.join(PATIENCE_SECONDS)
    assert keys == ["k2"]
    assert ended.is_set()
    assert "a change could not be parsed" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_notifier_that_ends_reports_it(tmp_path: Path) -> None:
    ended = threading.Event()

    def follow(_seconds: int) -> Sequence[str]:
        raise FileNotFoundError("no such program")

    notifier = Notifier(follow, print, tmp_path / "output", ended=ended.set)
    notifier.start()

    assert ended.wait(PATIENCE_SECONDS)
    notifier.join(PATIENCE_SECONDS)


def test_what_a_receiver_refuses_is_posted_again(tmp_path: Path) -> None:
    posted: list[HttpRequest] = []
    accepted = threading.Event()

    def answer(request: HttpRequest) -> HttpResponse:
        posted.append(request)
        if len(posted) == 1:
            return HttpResponse(503, "text/plain", "try again\n")
        accepted.set()
        return HttpResponse(200, "text/plain", "queued\n")

    server = ReceivingServer((HOST, 0), answer).start()
    send = to_receiver(f"http://{HOST}:{server.port}/a-secret-segment")
    notifier = Notifier(printing(tmp_path, change(1)), send, tmp_path / "output")
    notifier.start()

    assert accepted.wait(PATIENCE_SECONDS)
    notifier.stop()
    notifier.join(PATIENCE_SECONDS)
    server.stop()
    assert [(one.method, one.path) for one in posted] == [("POST", "/a-secret-segment")] * 2
    assert posted[0].body == posted[1].body
    assert [one.key for one in parse_notification(posted[0].body.decode()).arrivals] == ["k1"]
