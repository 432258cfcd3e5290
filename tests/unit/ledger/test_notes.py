"""Typed notes, and the texts in which each kind is stored."""

from collections.abc import Mapping
from typing import Any

import pytest

from extentflow.discovery.listing import POSITIONS, SEEN
from extentflow.discovery.stalled_jobs import MARKS, ROUNDS, _Mark
from extentflow.engines.submitted_runs import RUNS, RUNS_OF, OnCompletion, SubmittedRun
from extentflow.ledger.notes import NoteKind
from extentflow.spark.drain import ROUNDS as LISTINGS
from extentflow.spark.drain import ListingProgress
from extentflow.spark.tasks import STOPS
from extentflow.testing.ledger import MemoryLedger

DAY = 86_400.0
NUMBERS: NoteKind[int] = NoteKind(
    "number#", lambda value: {"value": str(value)}, lambda facts: int(facts["value"]), 60.0
)


def test_a_note_reads_as_the_value_that_was_written_last() -> None:
    notes = MemoryLedger().notes
    NUMBERS.write(notes, "a", 1)
    NUMBERS.write(notes, "a", 2)

    assert NUMBERS.read(notes, "a") == 2
    assert NUMBERS.read(notes, "b") is None
    assert notes.recall("number#a") == {"value": "2"}


def test_a_cleared_note_reads_as_none() -> None:
    notes = MemoryLedger().notes
    NUMBERS.write(notes, "a", 1)

    NUMBERS.clear(notes, "a")

    assert NUMBERS.read(notes, "a") is None


def test_a_note_expires_after_the_seconds_of_its_kind() -> None:
    now = [0.0]
    notes = MemoryLedger(clock=lambda: now[0]).notes
    NUMBERS.write(notes, "a", 1)

    now[0] = 61.0

    assert NUMBERS.read(notes, "a") is None


RUN = SubmittedRun(
    subject="s",
    number=2,
    connector="orders",
    addresses=("s3://b/x", "s3://b/y"),
    then=OnCompletion.RUN,
    begun=1.5,
)
PROGRESS = ListingProgress(goes=1, whole=1, found=3, at="0a")


@pytest.mark.parametrize(
    ("kind", "prefix", "keep_seconds", "value", "facts"),
    [
        (POSITIONS, "listing#", None, ("p", "t"), {"place": "p", "token": "t"}),
        (POSITIONS, "listing#", None, ("p", None), {"place": "p"}),
        (SEEN, "seen#", 14 * DAY, ("e", 7), {"etag": "e", "size": "7"}),
        (ROUNDS, "round#", None, 3, {"behind": "3"}),
        (
            MARKS,
            "watch#",
            14 * DAY,
            _Mark("0:1:0", "c", 1.5, 2, 0.0),
            {"seen": "0:1:0", "claims": "c", "since": "1.5", "resent": "2", "resent_at": "0.0"},
        ),
        (
            RUNS,
            "run#",
            14 * DAY,
            RUN,
            {
                "subject": "s",
                "number": "2",
                "connector": "orders",
                "job": "",
                "addresses": '["s3://b/x", "s3://b/y"]',
                "then": "run",
                "begun": "1.5",
            },
        ),
        (RUNS_OF, "runs-of#", 14 * DAY, ["00f", "01a"], {"runs": "00f,01a"}),
        (RUNS_OF, "runs-of#", 14 * DAY, [], {"runs": ""}),
        (
            LISTINGS,
            "rounds#",
            DAY,
            {"orders": PROGRESS},
            {
                "orders": '{"goes": 1, "whole": 1, "failed": 0, "found": 3, "at": "0a",'
                ' "refused": false, "unlisted": "", "held_up": ""}'
            },
        ),
        (STOPS, "stop#", DAY, True, {"stop": "true"}),
    ],
)
def test_the_texts_of_a_kind(
    kind: NoteKind[Any],
    prefix: str,
    keep_seconds: float | None,
    value: object,
    facts: Mapping[str, str],
) -> None:
    assert (kind.prefix, kind.keep_seconds) == (prefix, keep_seconds)
    assert kind.encode(value) == facts
    assert kind.decode(facts) == value
