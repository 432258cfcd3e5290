"""What is sent to X-Ray's daemon."""

import pytest
from tests.support.xray import PARENT, ROOT, daemon

from extentflow.aws.trace_segments import DAEMON_VARIABLE, send_subsegment
from extentflow.work_context import INVOCATION


def test_a_subsegment_belongs_to_the_invocation_and_has_its_annotations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with daemon(monkeypatch) as received:
        send_subsegment("extent", started=5.0, failed=True, job="j", extent=3, object="o" * 2_000)
        (found,) = received()

    assert (found["trace_id"], found["parent_id"], found["type"]) == (ROOT, PARENT, "subsegment")
    assert len(found["id"]) == len(PARENT)
    assert found["start_time"] == 5.0 < found["end_time"]
    assert found["fault"]
    assert found["annotations"] == {"job": "j", "extent": 3, "object": "o" * 1_000}


def test_nothing_is_sent_of_an_invocation_that_is_not_sampled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with daemon(monkeypatch, sampled=False) as received:
        send_subsegment("extent", started=5.0)

        assert received() == []


def test_an_unreachable_daemon_is_logged_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(DAEMON_VARIABLE, "host.invalid:2000")
    monkeypatch.setenv(INVOCATION, f"Root={ROOT};Parent={PARENT};Sampled=1")

    send_subsegment("extent", started=5.0)

    assert "host.invalid:2000: the subsegment extent is lost" in caplog.text
