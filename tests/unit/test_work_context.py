"""Keys of log lines, and the trace that messages carry on."""

import logging

import pytest

from extentflow.work_context import (
    INVOCATION,
    WorkFilter,
    label_lines,
    outgoing_header,
    traced,
    working_on,
)

OWN = "Root=1-2-own;Parent=53995c3f42cd8ad8;Sampled=1;Lineage=1:abc:0"


def labelled(**given: object) -> dict[str, object]:
    """Return the keys of a record that a handler writes now; `given` are its own."""
    record = logging.makeLogRecord({"msg": "x", **given})
    assert WorkFilter().filter(record)
    return {name: value for name, value in vars(record).items() if name in {"connector", "job"}}


def test_lines_have_the_keys_of_the_blocks_around_them() -> None:
    with working_on(connector="orders"):
        with working_on(job="a"):
            inner = labelled()
        outer = labelled()

    assert inner == {"connector": "orders", "job": "a"}
    assert outer == {"connector": "orders"}
    assert labelled() == {}


def test_a_line_keeps_what_it_says_itself() -> None:
    with working_on(job="a"):
        assert labelled(job="b") == {"job": "b"}


def test_a_handler_is_labelled_once() -> None:
    handler = logging.NullHandler()

    label_lines(handler)
    label_lines(handler)

    assert len(handler.filters) == 1


def test_messages_carry_on_the_trace_of_the_message_that_caused_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(INVOCATION, OWN)

    with traced("Root=1-1-planner;Sampled=0"):
        header = outgoing_header()

    # Lambda counts loops by the lineage; the parent is a segment of another trace.
    assert header == "Root=1-1-planner;Sampled=1;Lineage=1:abc:0"


@pytest.mark.parametrize("received", [None, "", "Sampled=0", "Root=1-2-own"])
def test_the_sdks_own_header_is_right_at_the_start_of_a_trace(
    monkeypatch: pytest.MonkeyPatch, received: str | None
) -> None:
    monkeypatch.setenv(INVOCATION, OWN)

    with traced(received):
        assert outgoing_header() is None


def test_outside_of_functions_there_is_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(INVOCATION, raising=False)

    with traced(None):
        assert outgoing_header() is None
