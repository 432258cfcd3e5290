"""A run that ends by itself where there is no queue: looks and backlog together, without Spark.

Every query has a process of its own, which knows of those before it only what the ledger tells.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

import pytest
from tests.support.memorysite import MemorySite

from extentflow.errors import SinkUnavailable, StoreUnavailable
from extentflow.ledger import ConnectorState
from extentflow.model import JobState, ObjectVersion
from extentflow.spark.backlog import VAIN_QUERIES, Backlog
from extentflow.spark.options import StreamOptions
from extentflow.spark.rounds import FAILURES, WHOLE_ROUNDS
from extentflow.spark.standing import FIRST_SECONDS, LISTING_SECONDS, Standing
from extentflow.storage import Page
from extentflow.testing.stores import Fault, FaultyStore, MemoryStore

TOO_MANY = 300
LISTED_SECONDS = 100.0
PAGE_SECONDS = 10.0
AWAY_SECONDS = 20.0


class AwayBroker:
    """A broker that does not answer, whatever it is asked."""

    def __getattr__(self, name: str) -> NoReturn:
        raise SinkUnavailable("no broker answers")


class Slow(MemoryStore):
    """A store whose listings take so many seconds below some prefixes, in pages.

    Below those that are `away`, there is no answer after `AWAY_SECONDS`.
    """

    def __init__(
        self, site: MemorySite, seconds: Mapping[str, float], *, away: Collection[str] = ()
    ) -> None:
        super().__init__()
        self._sleep = site.ticker.sleep
        self._seconds = seconds
        self._away = away

    def pages(self, bucket: str, prefix: str = "", *, token: str | None = None) -> Iterator[Page]:
        if prefix in self._away:
            self._sleep(AWAY_SECONDS)
            raise StoreUnavailable(f"s3://{bucket}/{prefix}: no answer")
        pages = max(1, round(self._seconds.get(prefix, 0) / PAGE_SECONDS))
        for number in range(int(token or 0), pages):
            self._sleep(self._seconds.get(prefix, 0) / pages)
            last = number + 1 == pages
            (found,) = super().pages(bucket, prefix)
            yield Page(found.versions if last else (), None if last else str(number + 1))


class Refusing(MemoryStore):
    """A store that lists key by key, and of whose objects nothing is to be had for long."""

    def __init__(self, site: MemorySite) -> None:
        super().__init__(page_keys=1)
        self._sleep = site.ticker.sleep

    def head(self, bucket: str, key: str, version_id: str | None = None) -> ObjectVersion:
        _ = version_id
        self._sleep(AWAY_SECONDS)
        raise StoreUnavailable(f"s3://{bucket}/{key}: no answer")


@dataclass(frozen=True, slots=True)
class Once:
    """After how many queries a run was over, and what it told."""

    queries: int
    undone: list[str]


@pytest.fixture
def site() -> MemorySite:
    made = MemorySite()
    made.put_connector()
    return made


def options_of(site: MemorySite, run: str) -> StreamOptions:
    return StreamOptions(
        connector=None,
        listing=True,
        most_extents=100,
        most_seconds=60.0,
        listing_seconds=60.0,
        parallelism=8,
        run=run,
        settings=site.settings,
    )


def once(site: MemorySite, *, delivering: bool = True, run: str = "r") -> Once:
    """Run queries as the program does; workers deliver what looks find, or nothing."""
    options = options_of(site, run)
    backlog = Backlog(site.memory, None, listing=run)
    for query in range(1, TOO_MANY):
        found = Standing(site, options, stopping=lambda: False).look()
        extents = [extent for one in found for extent in one.extents] if delivering else []
        for extent in extents:
            job = site.memory.job(extent.job)
            assert job is not None
            site.run(job, extent.ordinal)
        if not backlog.left(ended=len(extents)):
            return Once(query, backlog.undone())
    raise AssertionError(f"not over after {TOO_MANY} queries")


def test_what_waits_is_delivered_and_nothing_is_told(site: MemorySite) -> None:
    site.put(lines=3)

    ended = once(site)

    assert ended == Once(WHOLE_ROUNDS, [])
    assert site.states() == {"c/a.txt": JobState.DONE}


def test_where_nothing_waits_a_run_is_over_after_two_listings(site: MemorySite) -> None:
    site.put("elsewhere/a.txt")

    assert once(site) == Once(WHOLE_ROUNDS, [])


def test_no_connectors_is_nothing_to_do() -> None:
    assert once(MemorySite()) == Once(1, [])


# -- what is away ---------------------------------------------------------------------------------


def test_a_store_that_cannot_be_listed_is_told_and_not_waited_for_long(site: MemorySite) -> None:
    site.put()
    site.reads = FaultyStore(site.objects, Fault("unavailable", "list"))

    ended = once(site)

    assert ended.queries <= FAILURES + VAIN_QUERIES
    (told,) = ended.undone
    assert told.startswith("connector c: not all of its objects have jobs: s3://shop/c/")
    assert "no answer" in told


def test_a_store_that_is_back_soon_loses_nothing(site: MemorySite) -> None:
    site.put()
    twice = frozenset(range(1, FAILURES))
    site.reads = FaultyStore(site.objects, Fault("unavailable", "list", twice))

    ended = once(site)

    assert ended == Once(FAILURES - 1 + WHOLE_ROUNDS, [])
    assert site.states() == {"c/a.txt": JobState.DONE}


def test_a_broker_that_is_away_leaves_jobs_and_says_so(site: MemorySite) -> None:
    site.planner().plan(site.job(lines=2))
    site.put("c/new.txt")
    site.__dict__["broker"] = AwayBroker()

    ended = once(site, delivering=False)

    assert ended.queries <= FAILURES + VAIN_QUERIES
    unlisted, left = ended.undone
    assert unlisted == "connector c: not all of its objects have jobs: no broker answers"
    assert left == "connector c: 1 job is not over: no broker answers"


def test_jobs_that_workers_do_not_get_on_with_are_left_and_told(site: MemorySite) -> None:
    site.put("c/a.txt")
    site.put("c/b.txt")

    ended = once(site, delivering=False)

    assert ended.queries == WHOLE_ROUNDS + VAIN_QUERIES
    (told,) = ended.undone
    assert told.startswith("connector c: 2 jobs are not over: nobody got on with that")


def test_an_object_that_cannot_be_taken_on_is_told_and_holds_up_no_other(
    site: MemorySite, caplog: pytest.LogCaptureFixture
) -> None:
    site.put("c/a.txt")
    site.put("c/b.txt")
    site.reads = FaultyStore(site.objects, Fault("denied", "head", frozenset(range(1, 100, 2))))

    ended = once(site)

    assert ended.undone == []
    assert set(site.states().values()) == {JobState.DONE}
    assert "refused, by script" in caplog.text
    site.put("c/c.txt")
    site.reads = FaultyStore(site.objects, Fault("denied", "head"))
    (told,) = once(site, run="next").undone
    assert told.startswith("connector c: not all of its objects have jobs: s3://shop/c/c.txt")


def test_a_paused_connector_is_told_and_one_without_jobs_is_not(site: MemorySite) -> None:
    site.put_connector("d")
    site.job()
    site.put("d/a.txt")
    for name in "cd":
        site.memory.set_connector_state(name, ConnectorState.PAUSED)

    assert once(site).undone == [
        "connector c: 1 job is not over: connector c is PAUSED; `extentflow resume c` lets it go on"
    ]


def test_what_looks_cannot_note_is_no_success(site: MemorySite) -> None:
    site.memory.refuse("remember", times=TOO_MANY)

    ended = once(site)

    assert ended.queries <= FAILURES + VAIN_QUERIES
    (told,) = ended.undone
    assert told.startswith("connector c: not all of its objects have jobs: ")


# -- large connectors -----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_connectors_whose_listings_take_longer_than_looks_do_not_wait_for_each_other(
    count: int,
) -> None:
    site = MemorySite()
    names = [f"c{number}" for number in range(count)]
    site.objects = site.reads = Slow(site, {f"{name}/": LISTED_SECONDS for name in names})
    for name in names:
        site.put_connector(name)
        site.put(f"{name}/a.txt")

    ended = once(site)

    looks_per_round = LISTED_SECONDS / FIRST_SECONDS + 1
    assert ended.undone == []
    assert ended.queries <= count * WHOLE_ROUNDS * looks_per_round
    assert set(site.states().values()) == {JobState.DONE}
    assert len(site.states()) == count


def test_small_connectors_are_listed_beside_a_large_one_and_over_before_it() -> None:
    site = MemorySite()
    site.objects = site.reads = Slow(site, {"large/": 10 * LISTED_SECONDS})
    for name in ("large", *(f"s{number}" for number in range(20))):
        site.put_connector(name)
        site.put(f"{name}/a.txt")

    ended = once(site)

    assert ended.undone == []
    assert len(site.states()) == 21
    assert ended.queries <= WHOLE_ROUNDS * (10 * LISTED_SECONDS / FIRST_SECONDS + 2)


def test_a_query_that_goes_on_looks_at_small_connectors_beside_a_large_one() -> None:
    site = MemorySite()
    site.objects = site.reads = Slow(site, {"large/": 100 * LISTED_SECONDS})
    for name in ("large", "small"):
        site.put_connector(name)
    site.put("large/a.txt")
    look = Standing(site, options_of(site, "r"), stopping=lambda: False).look
    for _ in range(2 * WHOLE_ROUNDS):
        look()

    for number in range(3):
        site.put(f"small/{number}.txt")
        look()
        assert len(site.states()) == number + 1


def test_connectors_that_cannot_be_listed_keep_none_from_its_turn() -> None:
    site = MemorySite()
    away = [f"a{number}" for number in range(6)]
    store = Slow(site, {"c/": LISTED_SECONDS}, away=[f"{name}/" for name in away])
    site.objects = site.reads = store
    for name in ("c", *away):
        site.put_connector(name)
    site.put()

    ended = once(site)

    assert site.states() == {"c/a.txt": JobState.DONE}
    assert [line.partition(":")[0] for line in ended.undone] == [f"connector {n}" for n in away]


def test_a_listing_that_does_not_get_on_is_given_up(site: MemorySite) -> None:
    site.put()
    site.memory.on_call = lambda name: site.ticker.sleep(
        LISTING_SECONDS + 1 if name == "known" else 0
    )

    ended = once(site)

    assert ended.queries <= FAILURES + VAIN_QUERIES
    assert ended.undone == ["connector c: not all of its objects have jobs: listing did not get on"]


def test_a_listing_that_only_leaves_objects_behind_is_given_up(site: MemorySite) -> None:
    site.objects = site.reads = Refusing(site)
    for number in range(100):
        site.put(f"c/{number:02}.txt")

    ended = once(site)

    assert ended.queries <= FAILURES + VAIN_QUERIES
    (told,) = ended.undone
    assert told.startswith("connector c: not all of its objects have jobs: s3://shop/c/")


def test_a_page_of_many_new_objects_is_waited_for_as_long_as_it_gets_on(site: MemorySite) -> None:
    for number in range(12):
        site.put(f"c/{number:02}.txt")
    site.memory.on_call = lambda name: site.ticker.sleep(
        LISTING_SECONDS if name == "register" else 0
    )

    ended = once(site)

    assert ended.undone == []
    assert len(site.states()) == 12
