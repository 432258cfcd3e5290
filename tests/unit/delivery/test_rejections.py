"""Records that a topic refuses: found before they are sent, or after brokers rejected a batch."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from random import Random
from typing import Literal

import pyarrow as pa
import pytest
from tests.support.golden import Golden
from tests.support.memory_delivery import BAD, DEAD, TOPIC, Bytewise, Ticker, World

from extentflow.columnar import BatchFacts
from extentflow.config.column_lists import LAST_MODIFIED
from extentflow.converters import Converter
from extentflow.delivery.acceptance import SLACK_MS, Acceptance
from extentflow.delivery.attributes import Attributes
from extentflow.delivery.columnvalues import ColumnValues
from extentflow.delivery.rejections import Rejections
from extentflow.delivery.runner import TransactionLimits, run_extent
from extentflow.errors import RecordsRejected
from extentflow.formats import Chunk
from extentflow.kafka.record_headers import by_name
from extentflow.kafka.topic_limits import TopicLimits
from extentflow.model import Extent, Outcome, Receipt
from extentflow.storage import ObjectProperties, RangeSource
from extentflow.testing.broker import MemoryBroker

NOW = 1_800_000_000
FUTURE, KEYLESS = ord("F"), ord("K")
COMPACTED = {"cleanup.policy": "compact"}
TOMORROW = ObjectProperties(datetime.fromtimestamp(NOW + 86_400, UTC), "", {})
LATE = Attributes(timestamp=LAST_MODIFIED, properties=lambda: TOMORROW)


class Stamped(Bytewise):
    """As Bytewise, with a key and a timestamp: `F` is of another day, `K` has no key.

    With the unit `row`, positions count from the start of the extent, as those of Parquet do.
    """

    def __init__(self, chunk: int = 8, unit: Literal["offset", "row"] = "offset") -> None:
        super().__init__(chunk)
        self.location_unit = unit

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        base = extent.start if self.location_unit == "row" else 0
        for chunk in super().decode(source, extent, base + position):
            texts = chunk.batch.column("value").to_pylist()
            bytes_ = [text[-1] for text in texts]
            columns = {
                "value": chunk.batch.column("value"),
                "key": pa.array([None if one == KEYLESS else b"k" for one in bytes_], pa.binary()),
                "at": pa.array(
                    [(NOW + 86_400 * (one == FUTURE)) * 1000 for one in bytes_], pa.int64()
                ),
            }
            batch = pa.record_batch(columns)
            yield replace(chunk, batch=batch, next_position=chunk.next_position - base)


def keys(_schema: pa.Schema) -> Converter:
    return lambda batch: batch.column("key")


@dataclass
class Case:
    """One way to deliver: with which guarantee, and whether limits are read beforehand."""

    exactly_once: bool
    known: bool

    def world(self, *, tolerant: bool = False, unit: Literal["offset", "row"] = "offset") -> World:
        ticker = Ticker(NOW)
        broker = MemoryBroker({DEAD: 1}, wall=ticker.read)
        broker.create_topic(TOPIC, 2, config=COMPACTED)
        return World(
            ticker=ticker,
            broker=broker,
            format=Stamped(unit=unit),
            limits=TransactionLimits(transaction_bytes=100, attempts=3, retry_seconds=30),
            tolerant=tolerant,
            exactly_once=self.exactly_once,
            attributes=Attributes(timestamp="at"),
            key=keys,
            acceptance=Acceptance(broker.limits, broker.limits, ticker.read)
            if self.known
            else None,
        )


@pytest.fixture(
    params=[Case(once, known) for once in (True, False) for known in (True, False)],
    ids=["once-known", "once-rejected", "at_least_once-known", "at_least_once-rejected"],
)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


def run_object(world: World, body: bytes, key: str = "key", extent_bytes: int = 1_000) -> Receipt:
    (extent,) = world.extents(world.job(body, key, extent_bytes=extent_bytes))
    return run_extent(extent, world.worker())


def records_of(body: bytes, *left_out: int) -> list[bytes]:
    return [f"{at}:{chr(one)}".encode() for at, one in enumerate(body) if one not in left_out]


def places(world: World) -> list[int]:
    """Where the dead letters say that their records are."""
    letters = world.broker.read_committed(DEAD)
    return sorted(int(by_name(one.headers)["extentflow.offset"] or b"") for one in letters)


@pytest.mark.parametrize("bad", ["F", "K"])
def test_a_refused_record_fails_its_extent_and_no_other(
    case: Case, bad: str, golden: Golden
) -> None:
    world = case.world()
    bodies = [b"abcdefghijklmnopqrst", b"abcdefghijk" + bad.encode() + b"mnopqrst", b"uvwxyz"]

    receipts = [run_object(world, body, f"{at}.txt") for at, body in enumerate(bodies)]

    assert [one.outcome for one in receipts] == [Outcome.DONE, Outcome.FAILED, Outcome.DONE]
    delivered = Counter(world.delivered())
    assert delivered >= Counter(records_of(bodies[0])) + Counter(records_of(bodies[2]))
    assert f"11:{bad}".encode() not in delivered
    assert receipts[1].reason.startswith("s3://bucket/1.txt")
    assert "bad record at offset 11: " in receipts[1].reason
    if case.exactly_once:
        golden(receipts[1].reason)


@pytest.mark.parametrize("unit", ["offset", "row"])
@pytest.mark.parametrize(
    "body",
    [
        b"F",
        b"Fbcdefghijklmnop",
        b"abcdefghijklmnoK",
        b"FabcKdef!ghiF!!jklKKmnop!F",
        b"FFFFFFFFFFFFFFFFKKKKKKKKKKKKKKKK",
    ],
)
def test_refused_records_become_dead_letters(
    case: Case, body: bytes, unit: Literal["offset", "row"]
) -> None:
    world = case.world(tolerant=True, unit=unit)

    receipt = run_object(world, body)

    assert receipt.outcome is Outcome.DONE, receipt.reason
    good = records_of(body, FUTURE, KEYLESS, BAD)
    assert set(world.delivered()) == set(good)
    refused = [at for at, one in enumerate(body) if one in (FUTURE, KEYLESS, BAD)]
    assert sorted(set(places(world))) == refused
    if case.exactly_once:
        assert sorted(world.delivered()) == sorted(good)
        assert places(world) == refused
    progress = world.ledger.jobs.progress(receipt.job)
    assert (progress.records, progress.bad) == (len(good), len(refused))


@pytest.mark.parametrize("seed", range(12))
def test_any_mixture_of_refused_and_undecodable_records_arrives_once(seed: int) -> None:
    draw = Random(seed)
    body = bytes(draw.choices(b"abcdefghijFK!", k=120))
    world = Case(exactly_once=True, known=False).world(tolerant=True)
    world.format = Stamped(draw.randint(1, 40), draw.choice(["offset", "row"]))

    worker = world.worker()

    for extent in world.extents(world.job(body, extent_bytes=draw.randint(1, 120))):
        assert run_extent(extent, worker).outcome is Outcome.DONE

    assert sorted(world.delivered()) == sorted(records_of(body, FUTURE, KEYLESS, BAD))
    assert places(world) == [at for at, one in enumerate(body) if one in (FUTURE, KEYLESS, BAD)]


def test_the_record_is_found_in_few_transactions_and_at_once() -> None:
    calls: Counter[str] = Counter()
    ticker = Ticker(NOW)
    broker = MemoryBroker({DEAD: 1}, wall=ticker.read, on_call=lambda name: calls.update([name]))
    broker.create_topic(TOPIC)
    world = replace(Case(exactly_once=True, known=False).world(), broker=broker, ticker=ticker)
    world.format = Stamped(1_000)
    world.limits = TransactionLimits(attempts=2, retry_seconds=1)
    body = b"a" * 700 + b"F" + b"a" * 299

    receipt = run_object(world, body)

    assert receipt.outcome is Outcome.FAILED
    assert "bad record at offset 700" in receipt.reason
    assert calls["fence"] <= 2 * 10 + 2
    assert ticker.now == NOW
    assert len(world.delivered()) == 700


def test_a_queue_that_rejects_dead_letters_fails_their_extent(golden: Golden) -> None:
    world = Case(exactly_once=True, known=True).world(tolerant=True)
    world.broker.create_topic(DEAD, config=COMPACTED)

    receipts = [run_object(world, body, f"{body[0]}.txt") for body in (b"a!c", b"bcd")]

    assert [one.outcome for one in receipts] == [Outcome.FAILED, Outcome.DONE]
    golden(receipts[0].reason)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("tolerant", [True, False])
def test_rows_of_a_refused_columnar_value_are_bad_records(known: bool, tolerant: bool) -> None:  # noqa: FBT001
    columns = ColumnValues(
        encoding="arrow",
        compression="none",
        batch_bytes=1,
        groups=(),
        limit_bytes=100_000,
        partitions=lambda _topic: 1,
    )
    world = Case(exactly_once=True, known=known).world(tolerant=tolerant)
    world.broker.create_topic(TOPIC)
    late = replace(world, key=None, columns=columns, attributes=LATE)
    late.ledger = world.ledger
    usual = replace(world, key=None, columns=columns, attributes=None)
    usual.ledger = world.ledger

    refused = run_object(late, b"abcdefghij", "late.txt")
    taken = run_object(usual, b"abc", "usual.txt")

    assert taken.outcome is Outcome.DONE
    values = world.broker.read_committed(TOPIC)
    facts = [BatchFacts.of(one.headers) for one in values]
    assert [(one.rows, one.object) for one in facts if one] == [(1, "s3://bucket/usual.txt")] * 3
    if tolerant:
        assert refused.outcome is Outcome.DONE
        assert places(world) == list(range(10))
    else:
        assert refused.outcome is Outcome.FAILED
        assert "bad record at offset 0: " in refused.reason


def test_a_limit_that_was_raised_meanwhile_refuses_nothing() -> None:
    narrow, wide = TopicLimits("t", after_ms=1_000), TopicLimits("t", after_ms=10**9)
    times = pa.array([NOW * 1000 + SLACK_MS + 5_000], pa.int64())

    def refused(limits: TopicLimits, current: TopicLimits) -> bool:
        found = Acceptance(lambda _: limits, lambda _: current, lambda: NOW)
        return bool(found.refused("t", times, None, 0))

    assert refused(narrow, narrow)
    assert not refused(narrow, wide)
    assert not refused(wide, narrow)  # the brokers judge


def test_the_search_halves_and_grows_until_it_is_over() -> None:
    rejections, error = Rejections(), RecordsRejected("slot 1: no", topic="t", why="no")
    sizes = []
    for units in (100, 50, 25, 12, 6, 3, 1):
        rejections.rejected(error, units, [700] if units == 1 else [])
        sizes.append(rejections.most_units())
    found = dict(rejections.found)
    while rejections.is_searching:
        rejections.committed()
        sizes.append(rejections.most_units())

    assert sizes[:7] == [50, 25, 12, 6, 3, 1, 1]
    assert sizes[7:-1] == [2, 4, 8, 16, 32, 64]
    assert found == {700: "no"}
