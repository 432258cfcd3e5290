"""Progress: the arithmetic of a run's facts, on a terminal and in a pipe."""

import io
import threading
from collections.abc import Collection
from dataclasses import replace

import pytest
from rich.console import Console
from tests.support.golden import Golden

from extentflow.cli import progress as module
from extentflow.cli.progress import RunProgress
from extentflow.model import Extent, ObjectVersion, Outcome, Receipt

MIB = 1 << 20
VERSION = ObjectVersion("bucket", "key", None, "etag", 10 * MIB)


def extent(ordinal: int, size: int = MIB) -> Extent:
    return Extent("job", ordinal, "c", VERSION, ordinal * size, (ordinal + 1) * size, "text")


def receipt(ordinal: int, outcome: Outcome = Outcome.DONE, records: int = 1_000) -> Receipt:
    return Receipt("job", ordinal, extent(ordinal).uri, outcome, records=records)


def shown(*receipts: Receipt, extents: int = 2) -> list[str]:
    """Return the lines that a pipe gets."""
    console = Console(file=io.StringIO(), width=500)
    with RunProgress(console) as progress:
        for ordinal in range(extents):
            progress.on_extent(extent(ordinal))
        for each in receipts:
            progress.on_receipt(each)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_pipe_gets_a_line_when_the_last_extent_is_done() -> None:
    (line,) = shown(receipt(0), receipt(1))

    assert "2/2 extents, 2,000 records, 2.0 MiB at " in line


def test_a_pipe_gets_no_line_before_the_interval_has_passed() -> None:
    assert shown(receipt(0)) == []


def test_a_receipt_that_comes_twice_counts_once() -> None:
    (line,) = shown(receipt(0), receipt(0), receipt(1))

    assert "2/2 extents, 2,000 records, 2.0 MiB at " in line


def test_failed_extents_are_named() -> None:
    (line,) = shown(receipt(0), receipt(1, Outcome.FAILED, records=10))

    assert "2/2 extents, 1 failed, 1,010 records" in line


@pytest.mark.parametrize("outcome", [Outcome.BUSY, Outcome.JOB_CLOSED])
def test_an_extent_that_was_not_read_is_neither_delivered_nor_part_of_the_rate(
    outcome: Outcome,
    golden: Golden,
) -> None:
    (line,) = shown(receipt(0), receipt(1, outcome, records=0))

    golden(line)
    assert "1/2" in line


def test_of_a_failed_extent_only_what_was_read_counts(golden: Golden) -> None:
    failed = replace(receipt(1, Outcome.FAILED, records=0), bytes_read=MIB // 2)

    (line,) = shown(receipt(0), failed)

    golden(line)
    assert "2/2" in line


def test_a_handed_back_extent_counts_its_records_but_is_not_done() -> None:
    handed_back = receipt(0, Outcome.HANDED_BACK, records=7)

    assert shown(handed_back, receipt(1)) == []
    (line,) = shown(handed_back, receipt(1), replace(receipt(0), records=3))
    assert "2/2 extents, 1,010 records" in line


def test_a_terminal_gets_a_bar() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=200)

    with RunProgress(console) as progress:
        progress.on_extent(extent(0))
        progress.on_receipt(receipt(0))

    assert isinstance(console.file, io.StringIO)
    assert "100%" in console.file.getvalue()
    assert "1/1 extent" in console.file.getvalue()


def test_records_count_when_they_are_committed_not_only_when_an_extent_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(module, "LINE_SECONDS", 0.0)
    found, polled = iter([0, 500, 700]), threading.Event()

    def committed(jobs: Collection[str]) -> dict[tuple[str, int], int]:
        assert list(jobs) == ["job"]
        records = next(found, None)
        if records is None:
            polled.set()
        return {("job", 0): 700 if records is None else records}

    console = Console(file=io.StringIO(), width=500)
    with RunProgress(console, committed) as progress:
        progress.on_extent(extent(0))
        assert polled.wait(30)
        progress.on_receipt(receipt(0))

    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    # How many bytes were read is known when an extent ends.
    assert any(line.endswith("0/1 extent, 500 records") for line in lines)
    assert "1/1 extent, 1,000 records" in lines[-1]


def test_registering_and_planning_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_SECONDS", 0.0)
    console = Console(file=io.StringIO(), width=500)
    with RunProgress(console) as progress:
        progress.on_step("planning", 1_200)

    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().endswith("planning: 1,200 objects\n")
