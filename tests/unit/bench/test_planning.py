"""Plans of objects that are too large to be stored: how much is asked for, and held."""

import json
import tracemalloc
from collections.abc import Sequence

import pytest
from bench.planning import CountingQueue
from bench.synthetic import Lines, SyntheticStore
from bench.synthetic_parquet import ParquetRows

from extentflow.formats import Format, FormatOptions
from extentflow.formats.parquet.parquet_format import Parquet
from extentflow.formats.text.text_format import open_text
from extentflow.jobs.planner import MAX_TEXT_EXTENTS, PAGE_EXTENTS, JobRequest, Planner
from extentflow.model import Extent, Job, JobState
from extentflow.queue import Queue
from extentflow.queue.dispatch import ExtentDispatcher
from extentflow.retry import Clock
from extentflow.storage.ranges import RangeReader
from extentflow.testing.ledger import MemoryLedger

GB, TB = 10**9, 10**12
MIB = 1 << 20


class Watching(CountingQueue):
    """Notes of every page its length, and how much of the plan the ledger had before it."""

    def __init__(self, ledger: MemoryLedger) -> None:
        super().__init__()
        self.pages: list[tuple[int, int]] = []
        self.ranges: list[tuple[int, int]] = []
        self._ledger = ledger

    def send(self, bodies: Sequence[str], *, reason: str = "", group: str = "") -> None:
        super().send(bodies, reason=reason, group=group)
        extents = [Extent.from_message(json.loads(body)) for body in bodies]
        job = self._ledger.jobs.get(extents[0].job)
        assert job is not None
        self.pages.append((len(bodies), job.plan.count))
        self.ranges += [(extent.start, extent.end) for extent in extents]


def plan(store: SyntheticStore, fmt: Format, ledger: MemoryLedger, queue: Queue) -> Job:
    """Do for the object `key` what the planner function does."""
    version = store.head("bucket", "key")
    planner = Planner(ledger, lambda job: (fmt, RangeReader(store, job.version)), Clock())
    job = planner.register(JobRequest("c", 1, version, "any", "cluster"))
    return ExtentDispatcher(planner, queue).start(job)


@pytest.mark.parametrize("size", [TB, 50 * TB])
def test_a_plan_of_text_takes_one_request_and_continues_page_by_page(size: int) -> None:
    store = SyntheticStore("bucket", {"key": Lines(size)})
    ledger = MemoryLedger()
    queue = Watching(ledger)

    job = plan(store, open_text(FormatOptions()), ledger, queue)

    assert store.requests == 1
    assert (job.state, job.plan.count) == (JobState.RUNNING, MAX_TEXT_EXTENTS)
    assert queue.pages == [
        (PAGE_EXTENTS, before) for before in range(0, MAX_TEXT_EXTENTS, PAGE_EXTENTS)
    ]
    ends = [0, *(end for _, end in queue.ranges)]
    assert [start for start, _ in queue.ranges] == ends[:-1]
    assert ends[-1] == size


def test_a_plan_takes_no_more_memory_for_more_extents() -> None:
    fmt = open_text(FormatOptions())

    def peak(size: int) -> int:
        store = SyntheticStore("bucket", {"key": Lines(size)})
        tracemalloc.start()
        try:
            plan(store, fmt, MemoryLedger(), CountingQueue())
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(GB)  # what is imported and remembered once
    one_page, hundred_pages = peak(PAGE_EXTENTS << 26), peak(50 * TB)

    assert hundred_pages < one_page + MIB


@pytest.mark.parametrize(
    ("groups", "pages", "requests"),
    [
        pytest.param(10, 2_000, 2, id="the footer lies in the tail"),
        pytest.param(1_000, 2_000, 2, id="so it does in a huge object, whose tail is larger"),
        pytest.param(1_000, 100, 3, id="the footer is longer than the tail"),
    ],
)
def test_a_plan_of_parquet_reads_the_footer_and_nothing_else(
    groups: int, pages: int, requests: int
) -> None:
    content = ParquetRows(groups=groups, pages=pages, columns=4)
    store = SyntheticStore("bucket", {"key": content})
    ledger = MemoryLedger()

    job = plan(store, Parquet(FormatOptions()), ledger, CountingQueue())

    assert store.requests == requests
    assert store.fetched_bytes < content.size / 5_000
    assert job.state is JobState.RUNNING
