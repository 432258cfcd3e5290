"""A run that ends by itself where there is no queue: looks and backlog together, without Spark.

Every query has a process of its own, which knows of those before it only what the ledger tells.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

import pytest
from tests.support.golden import Golden
from tests.support.memory_runtime import MemoryRuntime

from extentflow.errors import SinkUnavailable, StoreUnavailable
from extentflow.ledger import ConnectorState
from extentflow.model import JobState, ObjectVersion
from extentflow.spark.drain import FAILURES, MAX_IDLE_QUERIES, WHOLE_ROUNDS, DrainTracker
from extentflow.spark.query_options import StreamOptions
from extentflow.spark.scanner import FIRST_SECONDS, LISTING_SECONDS, JobScanner
from extentflow.storage import Page
from extentflow.testing.stores import Fault, FaultyStore, MemoryStore

TOO_MANY = 300
LISTED_SECONDS = 100.0
PAGE_SECONDS = 10.0
UNAVAILABLE_SECONDS = 20.0


class AwayBroker:
    """A broker that does not answer, whatever it is asked."""

    def __getattr__(self, name: str) -> NoReturn:
        raise SinkUnavailable("no broker answers")


class Slow(MemoryStore):
    """A store whose listings take so many seconds below some prefixes, in pages.

    Below those that are `unavailable`, there is no answer after `UNAVAILABLE_SECONDS`.
    """

    def __init__(
        self,
        runtime: MemoryRuntime,
        seconds: Mapping[str, float],
        *,
        unavailable: Collection[str] = (),
    ) -> None:
        super().__init__()
        self._sleep = runtime.ticker.sleep
        self._seconds = seconds
        self._unavailable = unavailable

    def pages(self, bucket: str, prefix: str = "", *, token: str | None = None) -> Iterator[Page]:
        if prefix in self._unavailable:
            self._sleep(UNAVAILABLE_SECONDS)
            raise StoreUnavailable(f"s3://{bucket}/{prefix}: no answer")
        pages = max(1, round(self._seconds.get(prefix, 0) / PAGE_SECONDS))
        for number in range(int(token or 0), pages):
            self._sleep(self._seconds.get(prefix, 0) / pages)
            last = number + 1 == pages
            (found,) = super().pages(bucket, prefix)
            yield Page(found.versions if last else (), None if last else str(number + 1))


class Refusing(MemoryStore):
    """A store that lists key by key, and of whose objects nothing is to be had for long."""

    def __init__(self, runtime: MemoryRuntime) -> None:
        super().__init__(page_keys=1)
        self._sleep = runtime.ticker.sleep

    def head(self, bucket: str, key: str, version_id: str | None = None) -> ObjectVersion:
        _ = version_id
        self._sleep(UNAVAILABLE_SECONDS)
        raise StoreUnavailable(f"s3://{bucket}/{key}: no answer")


@dataclass(frozen=True, slots=True)
class Once:
    """The number of queries of a run, and what it reported as undone."""

    queries: int
    undone: list[str]


@pytest.fixture
def runtime() -> MemoryRuntime:
    made = MemoryRuntime()
    made.put_connector()
    return made


def options_of(runtime: MemoryRuntime, run: str) -> StreamOptions:
    return StreamOptions(
        connector=None,
        work="listing",
        most_extents=100,
        most_seconds=60.0,
        listing_seconds=60.0,
        parallelism=8,
        run=run,
        settings=runtime.settings,
    )


def once(runtime: MemoryRuntime, *, delivering: bool = True, run: str = "r") -> Once:
    """Run queries as the program does; workers deliver what looks find, or nothing."""
    options = options_of(runtime, run)
    backlog = DrainTracker(runtime.memory, None, listing=run)
    for query in range(1, TOO_MANY):
        found = JobScanner(runtime, options, stopping=lambda: False).look()
        extents = [extent for one in found for extent in one.extents] if delivering else []
        for extent in extents:
            job = runtime.memory.jobs.get(extent.job)
            assert job is not None
            runtime.run(job, extent.ordinal)
        if not backlog.left(ended=len(extents)):
            return Once(query, backlog.undone())
    raise AssertionError(f"not over after {TOO_MANY} queries")


def test_waiting_objects_are_delivered_and_nothing_is_undone(runtime: MemoryRuntime) -> None:
    runtime.put(lines=3)

    ended = once(runtime)

    assert ended == Once(WHOLE_ROUNDS, [])
    assert runtime.states() == {"c/a.txt": JobState.DONE}


def test_without_work_a_run_ends_after_two_listings(runtime: MemoryRuntime) -> None:
    runtime.put("elsewhere/a.txt")

    assert once(runtime) == Once(WHOLE_ROUNDS, [])


def test_no_connectors_is_nothing_to_do() -> None:
    assert once(MemoryRuntime()) == Once(1, [])


# -- outages ---------------------------------------------------------------------------------------


def test_a_store_that_cannot_be_listed_is_reported_soon(
    runtime: MemoryRuntime,
    golden: Golden,
) -> None:
    runtime.put()
    runtime.reads = FaultyStore(runtime.memory_store, Fault("unavailable", "list"))

    ended = once(runtime)

    assert ended.queries <= FAILURES + MAX_IDLE_QUERIES
    (undone,) = ended.undone
    golden(undone)
    assert "connector c" in undone
    assert "no answer" in undone


def test_a_short_store_outage_loses_nothing(runtime: MemoryRuntime) -> None:
    runtime.put()
    twice = frozenset(range(1, FAILURES))
    runtime.reads = FaultyStore(runtime.memory_store, Fault("unavailable", "list", twice))

    ended = once(runtime)

    assert ended == Once(FAILURES - 1 + WHOLE_ROUNDS, [])
    assert runtime.states() == {"c/a.txt": JobState.DONE}


def test_a_broker_outage_leaves_jobs_open_and_is_reported(
    runtime: MemoryRuntime, golden: Golden
) -> None:
    runtime.planner().plan(runtime.job(lines=2))
    runtime.put("c/new.txt")
    runtime.__dict__["broker"] = AwayBroker()

    ended = once(runtime, delivering=False)

    assert ended.queries <= FAILURES + MAX_IDLE_QUERIES
    unlisted, left = ended.undone
    golden(unlisted)
    assert "connector c" in unlisted
    golden(left)
    assert "connector c" in left


def test_jobs_without_progress_are_left_open_and_reported(
    runtime: MemoryRuntime, golden: Golden
) -> None:
    runtime.put("c/a.txt")
    runtime.put("c/b.txt")

    ended = once(runtime, delivering=False)

    assert ended.queries == WHOLE_ROUNDS + MAX_IDLE_QUERIES
    (undone,) = ended.undone
    golden(undone)
    assert "connector c" in undone


def test_an_object_without_a_job_is_reported_and_delays_no_other(
    runtime: MemoryRuntime, caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    runtime.put("c/a.txt")
    runtime.put("c/b.txt")
    runtime.reads = FaultyStore(
        runtime.memory_store, Fault("denied", "head", frozenset(range(1, 100, 2)))
    )

    ended = once(runtime)

    assert ended.undone == []
    assert set(runtime.states().values()) == {JobState.DONE}
    assert "access denied (injected)" in caplog.text
    runtime.put("c/c.txt")
    runtime.reads = FaultyStore(runtime.memory_store, Fault("denied", "head"))
    (undone,) = once(runtime, run="next").undone
    golden(undone)
    assert "connector c" in undone


def test_only_a_paused_connector_with_jobs_is_reported(
    runtime: MemoryRuntime, golden: Golden
) -> None:
    runtime.put_connector("d")
    runtime.job()
    runtime.put("d/a.txt")
    for name in "cd":
        runtime.memory.connectors.set_state(name, ConnectorState.PAUSED)

    golden(*once(runtime).undone)


def test_a_scan_that_cannot_save_its_progress_is_no_success(
    runtime: MemoryRuntime, golden: Golden
) -> None:
    runtime.memory.refuse("remember", times=TOO_MANY)

    ended = once(runtime)

    assert ended.queries <= FAILURES + MAX_IDLE_QUERIES
    (undone,) = ended.undone
    golden(undone)
    assert "connector c" in undone


# -- large connectors -----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_long_listings_of_several_connectors_do_not_delay_each_other(
    count: int,
) -> None:
    runtime = MemoryRuntime()
    names = [f"c{number}" for number in range(count)]
    runtime.memory_store = runtime.reads = Slow(
        runtime, {f"{name}/": LISTED_SECONDS for name in names}
    )
    for name in names:
        runtime.put_connector(name)
        runtime.put(f"{name}/a.txt")

    ended = once(runtime)

    looks_per_round = LISTED_SECONDS / FIRST_SECONDS + 1
    assert ended.undone == []
    assert ended.queries <= count * WHOLE_ROUNDS * looks_per_round
    assert set(runtime.states().values()) == {JobState.DONE}
    assert len(runtime.states()) == count


def test_small_connectors_are_listed_beside_a_large_one_and_over_before_it() -> None:
    runtime = MemoryRuntime()
    runtime.memory_store = runtime.reads = Slow(runtime, {"large/": 10 * LISTED_SECONDS})
    for name in ("large", *(f"s{number}" for number in range(20))):
        runtime.put_connector(name)
        runtime.put(f"{name}/a.txt")

    ended = once(runtime)

    assert ended.undone == []
    assert len(runtime.states()) == 21
    assert ended.queries <= WHOLE_ROUNDS * (10 * LISTED_SECONDS / FIRST_SECONDS + 2)


def test_a_standing_query_scans_small_connectors_beside_a_large_one() -> None:
    runtime = MemoryRuntime()
    runtime.memory_store = runtime.reads = Slow(runtime, {"large/": 100 * LISTED_SECONDS})
    for name in ("large", "small"):
        runtime.put_connector(name)
    runtime.put("large/a.txt")
    look = JobScanner(runtime, options_of(runtime, "r"), stopping=lambda: False).look
    for _ in range(2 * WHOLE_ROUNDS):
        look()

    for number in range(3):
        runtime.put(f"small/{number}.txt")
        look()
        assert len(runtime.states()) == number + 1


def test_connectors_that_cannot_be_listed_keep_none_from_its_turn() -> None:
    runtime = MemoryRuntime()
    unavailable = [f"a{number}" for number in range(6)]
    store = Slow(runtime, {"c/": LISTED_SECONDS}, unavailable=[f"{name}/" for name in unavailable])
    runtime.memory_store = runtime.reads = store
    for name in ("c", *unavailable):
        runtime.put_connector(name)
    runtime.put()

    ended = once(runtime)

    assert runtime.states() == {"c/a.txt": JobState.DONE}
    assert [line.partition(":")[0] for line in ended.undone] == [
        f"connector {n}" for n in unavailable
    ]


def test_a_listing_that_does_not_get_on_is_given_up(runtime: MemoryRuntime, golden: Golden) -> None:
    runtime.put()
    runtime.memory.on_call = lambda name: runtime.ticker.sleep(
        LISTING_SECONDS + 1 if name == "find_registered" else 0
    )

    ended = once(runtime)

    assert ended.queries <= FAILURES + MAX_IDLE_QUERIES
    golden(*ended.undone)


def test_a_listing_that_only_leaves_objects_behind_is_given_up(
    runtime: MemoryRuntime, golden: Golden
) -> None:
    runtime.memory_store = runtime.reads = Refusing(runtime)
    for number in range(100):
        runtime.put(f"c/{number:02}.txt")

    ended = once(runtime)

    assert ended.queries <= FAILURES + MAX_IDLE_QUERIES
    (undone,) = ended.undone
    golden(undone)
    assert "connector c" in undone


def test_a_page_of_many_new_objects_may_take_long_while_it_progresses(
    runtime: MemoryRuntime,
) -> None:
    for number in range(12):
        runtime.put(f"c/{number:02}.txt")
    runtime.memory.on_call = lambda name: runtime.ticker.sleep(
        LISTING_SECONDS if name == "register" else 0
    )

    ended = once(runtime)

    assert ended.undone == []
    assert len(runtime.states()) == 12
