"""Compressed objects larger than one call can decompress."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

import pytest
from tests.support.memory_delivery import Bytewise, Ticker, World, expected
from tests.support.waiting import AWAITED_SECONDS

from extentflow.background import prefetch
from extentflow.delivery.resume import POINTS, PointLog
from extentflow.delivery.runner import TransactionLimits, run_extent
from extentflow.formats import Chunk, Format, ResumePoint, ResumePoints
from extentflow.model import Extent, Job, Outcome, Receipt
from extentflow.storage import RangeSource

# A byte stands for a GB of content; zlib decompresses 250 MB of text per second.
SECONDS_PER_GB = 4.0
CALL_SECONDS = 145.0
CONTENT = bytes(ord("a") + number % 26 for number in range(100))


@dataclass
class Compressed(Bytewise):
    """One stream: whatever precedes the position is decompressed, too."""

    ticker: Ticker = field(default_factory=Ticker)
    splittable = False

    def __post_init__(self) -> None:
        Bytewise.__init__(self, chunk=1)

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        return self.pass_over(source, extent, position, ResumePoints())

    def pass_over(
        self, source: RangeSource, extent: Extent, position: int, points: ResumePoints
    ) -> Iterator[Chunk]:
        chunks = Bytewise.decode(self, source, extent, position)
        for at in range(points.start.content if points.start else 0, extent.end):
            self.ticker.now += SECONDS_PER_GB
            if points.is_due(at + 1):
                points.add(ResumePoint(at + 1, at + 1, b"window"))
            if at >= position:
                yield next(chunks)


class Resumable(Compressed):
    def decode_from(
        self, source: RangeSource, extent: Extent, position: int, points: ResumePoints
    ) -> Iterator[Chunk]:
        points.every_bytes = 1
        return self.pass_over(source, extent, position, points)


def _is_over(ticker: Ticker, end: float) -> bool:
    return ticker.now >= end


def deliver(make: Callable[[Ticker], Format], calls: int) -> tuple[World, Job, list[Receipt]]:
    """Deliver 100 GB of content by calls of 145 s, each in a new process."""
    ticker = Ticker()
    limits = TransactionLimits(transaction_bytes=8, attempts=5)
    world = World(ticker=ticker, format=make(ticker), limits=limits)
    job = world.job(CONTENT, extent_bytes=len(CONTENT))
    (extent,) = world.extents(job)
    receipts: list[Receipt] = []
    for _ in range(calls):
        end = ticker.now + CALL_SECONDS
        worker = replace(world.worker(), stopping=partial(_is_over, ticker, end))
        receipts.append(run_extent(extent, worker))
        worker.slots.release()
        if receipts[-1].outcome is not Outcome.HANDED_BACK:
            break
    return world, job, receipts


def test_100_gb_of_compressed_content_are_delivered_by_calls_of_145_seconds() -> None:
    world, _, receipts = deliver(lambda ticker: Resumable(ticker=ticker), calls=10)

    assert [receipt.outcome for receipt in receipts][-1] is Outcome.DONE
    assert len(receipts) <= 4
    assert world.delivered() == expected(CONTENT)


def test_without_points_no_number_of_calls_delivers_them() -> None:
    world, _, receipts = deliver(lambda ticker: Compressed(ticker=ticker), calls=10)

    assert receipts[-1].outcome is not Outcome.DONE
    assert len(world.delivered()) < len(CONTENT)


def test_a_point_is_saved_when_the_position_has_reached_it() -> None:
    world = World()
    (extent,) = world.extents(world.job(b"abcd"))
    points = PointLog.open(world.ledger.notes, extent, 0)
    for place in (10, 20):
        points.points.add(ResumePoint(place, place, b"window" * place))

    starts = []
    for position in (9, 10, 19, 20):
        points.save(position)
        starts.append(PointLog.open(world.ledger.notes, extent, position).points.start)

    first, second = ResumePoint(10, 10, b"window" * 10), ResumePoint(20, 20, b"window" * 20)
    assert starts == [None, first, first, second]
    assert points.saved == 2


def test_a_saved_point_behind_the_position_is_not_used() -> None:
    """A ledger that was restored since may hold an earlier position."""
    world = World()
    (extent,) = world.extents(world.job(b"abcd"))
    points = PointLog.open(world.ledger.notes, extent, 0)
    points.points.add(ResumePoint(20, 20))
    points.save(20)

    assert PointLog.open(world.ledger.notes, extent, 19).points.start is None


@pytest.mark.parametrize(
    "facts", [{"place": "1"}, {"content": "1", "compressed": "x", "state": ""}, {"state": "???"}]
)
def test_an_unreadable_point_is_not_used(
    facts: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    (extent,) = world.extents(world.job(b"abcd"))
    world.ledger.notes.remember(f"{POINTS.prefix}{extent.job}#{extent.ordinal}", facts)

    points = PointLog.open(world.ledger.notes, extent, 2)

    assert points.points.start is None
    assert f"note {POINTS.prefix}{extent.job}#{extent.ordinal} is not used" in caplog.text


def test_an_unavailable_ledger_costs_a_point_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    (extent,) = world.extents(world.job(b"abcd"))
    points = PointLog.open(world.ledger.notes, extent, 0)
    points.points.add(ResumePoint(1, 1))
    world.ledger.refuse("remember")

    points.save(1)

    assert points.saved == 0
    assert "a resume point was not saved" in caplog.text


def test_content_that_is_read_again_counts_as_moving() -> None:
    world, counter = World(), count(1)
    (extent,) = world.extents(world.job(b"abcd"))
    points = PointLog.open(world.ledger.notes, extent, 0)

    moved = []
    for step in (0, 1, 0, 5):
        if step:
            points.points.is_due(next(counter))
        moved.append(points.save(0))

    assert moved == [False, True, False, True]


class Endless(Compressed):
    """Passes points before the position, and reaches the position only when it may."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.may_end = threading.Event()

    def decode_from(
        self, source: RangeSource, extent: Extent, position: int, points: ResumePoints
    ) -> Iterator[Chunk]:
        if not position:
            yield next(Bytewise.decode(self, source, extent, position))
            return
        points.add(ResumePoint(1, 1))
        assert self.may_end.wait(AWAITED_SECONDS)
        yield from Bytewise.decode(self, source, extent, position)


def test_a_call_that_only_reads_again_saves_a_point_and_uses_no_attempt() -> None:
    decoder = Endless()
    world = World(format=decoder)
    (extent,) = world.extents(job := world.job(b"abcd"))
    worker = world.worker()
    run_extent(extent, replace(worker, stopping=lambda: True))
    key = f"{job.id}#{extent.ordinal}"

    def saved() -> bool:
        found = POINTS.read(world.ledger.notes, key) is not None
        if found:
            decoder.may_end.set()
        return found

    read_ahead = partial(prefetch, size_bytes=lambda _chunk: 1, budget_bytes=1)
    receipt = run_extent(extent, replace(worker, stopping=saved, prefetch=read_ahead))

    item = world.ledger.extents.get(job.id, 0)
    assert (receipt.outcome, item.position, item.attempts) == (Outcome.HANDED_BACK, 1, 0)
