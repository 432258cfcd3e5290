"""Listings find objects without notifications, in any order; known objects cost no request."""

import tracemalloc
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.memory_delivery import World, expected
from tests.support.queued import Queued
from tests.support.reconciled import BUCKET, Reconciled

from extentflow.config.connector import ConnectorConfig
from extentflow.config.connector_keys import LOCAL_FILE
from extentflow.discovery import Arrival, Dialect
from extentflow.discovery.admission import AdmissionResult
from extentflow.discovery.listing import ListedPrefix, ListingScan
from extentflow.discovery.report import Report
from extentflow.errors import AccessDenied, Misconfigured, Permanent, StoreUnavailable
from extentflow.jobs import contents
from extentflow.ledger import ConnectorState
from extentflow.model import Job, JobState, ObjectVersion, Plan, job_id
from extentflow.storage import Page, StoreOptions
from extentflow.storage.local import LocalStore
from extentflow.testing.ledger import MemoryLedger
from extentflow.testing.stores import Fault, FaultyStore, MemoryStore


def opened(*, versioned: bool = False, page_keys: int = 3) -> Reconciled:
    store = MemoryStore(versioned=versioned, page_keys=page_keys)
    return Reconciled(Queued(World(store=store)))


@pytest.fixture
def reconciled() -> Reconciled:
    """Three keys to a page."""
    return opened()


def store_of(reconciled: Reconciled) -> MemoryStore:
    assert isinstance(reconciled.world.store, MemoryStore)
    return reconciled.world.store


def _arrived(reconciled: Reconciled, count: int) -> bool:
    return len(reconciled.arrived) >= count


def heads(reconciled: Reconciled) -> list[str]:
    return [asked.key for asked in store_of(reconciled).asked if asked.operation == "head"]


# -- what is found --------------------------------------------------------------------------------


@pytest.mark.parametrize("versioned", [False, True])
def test_objects_whose_events_were_lost_are_delivered_once(*, versioned: bool) -> None:
    reconciled = opened(versioned=versioned)
    for number in range(7):
        reconciled.put(f"{number}", b"%d" % number)

    first, second = reconciled.run(), reconciled.run()
    reconciled.work()

    assert (first.keys_listed, first.jobs_new) == (7, 7)
    assert (second.keys_listed, second.jobs_new) == (7, 0)
    assert first.listings_finished == second.listings_finished == ("c",)
    assert reconciled.states() == {f"{number}": JobState.DONE for number in range(7)}
    assert sorted(reconciled.world.delivered()) == [b"0:%d" % number for number in range(7)]


def test_an_arrival_of_a_listing_says_what_the_listing_said(reconciled: Reconciled) -> None:
    reconciled.connector("c", prefix="in/", endpoint="http://grid:1", region="eu-test-1")
    version = reconciled.put("in/key")

    reconciled.run()

    assert reconciled.arrived == [
        Arrival(
            BUCKET,
            "in/key",
            Dialect.LISTING,
            version_id=None,
            etag=version.etag,
            size=8,
            endpoint="http://grid:1",
            region="eu-test-1",
        )
    ]


def test_trap_t16_what_has_a_job_costs_no_request_of_its_own(reconciled: Reconciled) -> None:
    """Trap: every listed key cost a HEAD request."""
    for number in range(7):
        reconciled.put(f"{number}")
    reconciled.run()
    store_of(reconciled).asked.clear()

    reconciled.run()

    assert [asked.operation for asked in store_of(reconciled).asked] == ["list"] * 3


def test_a_new_version_of_a_known_key_is_news() -> None:
    reconciled = opened(versioned=True)
    reconciled.put("key", b"old")
    reconciled.run()
    reconciled.put("key", b"new")

    report = reconciled.run()
    reconciled.work()

    assert report.jobs_new == 1
    assert reconciled.world.delivered() == [b"0:o", b"1:l", b"2:d", b"0:n", b"1:e", b"2:w"]


def test_an_object_that_came_back_reopens_its_superseded_job(reconciled: Reconciled) -> None:
    """A, then B before A was delivered, then A again: its arrival was lost, too."""
    job = reconciled.sent("key", b"aaaa")
    reconciled.ledger.jobs.end(job.id, JobState.SUPERSEDED, "replaced by b")
    reconciled.lose_messages()

    reconciled.run()
    reconciled.work()

    assert reconciled.state_of(job) is JobState.DONE
    assert reconciled.world.delivered() == expected(b"aaaa")


def test_what_is_no_data_by_its_name_is_left_out(reconciled: Reconciled) -> None:
    reconciled.connector("c", prefix="in/")
    for key in ("in/_SUCCESS", "in/.x.crc", "in/_tmp/a", "out/a", "in/_year=2026/a"):
        reconciled.put(key)
    reconciled.put("in/folder/", b"")

    reconciled.run()

    assert list(reconciled.states()) == ["in/_year=2026/a"]
    assert [arrival.key for arrival in reconciled.arrived] == ["in/_year=2026/a"]


def test_of_a_connector_of_one_object_only_that_is_found(reconciled: Reconciled) -> None:
    reconciled.connector("c", prefix="in/", object_key="in/_a")
    for key in ("in/_a", "in/_a.bak", "in/b"):
        reconciled.put(key)

    reconciled.run()

    assert [arrival.key for arrival in reconciled.arrived] == ["in/_a"]


@pytest.mark.parametrize("state", [ConnectorState.PAUSED, ConnectorState.STOPPED])
def test_only_connectors_that_run_are_listed(reconciled: Reconciled, state: ConnectorState) -> None:
    reconciled.put("key")
    reconciled.want(state)
    idle = reconciled.run()

    reconciled.want(ConnectorState.ENABLED)
    running = reconciled.run()

    assert (idle.keys_listed, idle.listings_finished) == (0, ())
    assert (running.jobs_new, running.listings_finished) == (1, ("c",))


def test_a_deleted_connector_is_not_listed(reconciled: Reconciled) -> None:
    reconciled.put("key")
    reconciled.ledger.connectors.delete("c")

    assert reconciled.run().keys_listed == 0


# -- over many runs -------------------------------------------------------------------------------


def test_a_listing_continues_in_the_next_run_where_time_ran_out(reconciled: Reconciled) -> None:
    for number in range(12):
        reconciled.put(f"{number:02}")
    reports: list[Report] = []

    while not reports or not reports[-1].listings_finished:
        arrived = len(reconciled.arrived)
        reports.append(reconciled.run(late=partial(_arrived, reconciled, arrived + 4)))

    assert len(reconciled.states()) == 12
    assert len(reports) == 4
    assert [arrival.key for arrival in reconciled.arrived] == [
        f"{number:02}" for number in range(12)
    ]


def test_trap_t13_a_key_before_the_token_is_found_by_the_next_listing(
    reconciled: Reconciled,
) -> None:
    """Trap: keys that sort before a stored cursor were never found."""
    for number in range(5, 10):
        reconciled.put(f"{number}")
    reconciled.run(late=lambda: len(reconciled.arrived) >= 4)
    reconciled.put("0")

    rest, following = reconciled.run(), reconciled.run()

    assert ("0" in reconciled.states(), rest.jobs_new, following.jobs_new) == (True, 1, 1)


def test_a_run_that_is_killed_in_a_page_loses_nothing(reconciled: Reconciled) -> None:
    for number in range(9):
        reconciled.put(f"{number}")

    class Killed(BaseException):
        """The process is gone."""

    def late() -> bool:
        if len(reconciled.arrived) == 5:
            raise Killed
        return False

    with pytest.raises(Killed):
        reconciled.run(late)
    reconciled.arrived.clear()

    report = reconciled.run()

    assert report.listings_finished == ("c",)
    assert len(reconciled.states()) == 9
    assert [arrival.key for arrival in reconciled.arrived] == ["5", "6", "7", "8"]


def test_a_token_of_another_place_is_not_used(reconciled: Reconciled) -> None:
    for key in ("a/1", "a/2", "a/3", "a/4", "b/1", "b/2"):
        reconciled.put(key)
    reconciled.run(late=lambda: len(reconciled.arrived) >= 4)

    reconciled.connector("c", prefix="a/")
    report = reconciled.run()

    assert report.keys_listed == 4


def test_a_token_that_the_store_does_not_take_any_more_is_forgotten(reconciled: Reconciled) -> None:
    for number in range(9):
        reconciled.put(f"{number}")
    reconciled.run(late=lambda: len(reconciled.arrived) >= 4)
    reconciled.stores["c"] = ForgetfulStore(store_of(reconciled))

    broken, report = reconciled.run(), reconciled.run()

    assert (broken.problems, report.problems) == (1, 0)
    assert report.listings_finished == ("c",)
    assert len(reconciled.states()) == 9


class ForgetfulStore(FaultyStore):
    """A store whose tokens mean nothing in the next process."""

    def pages(self, bucket: str, prefix: str = "", *, token: str | None = None) -> Iterator[Page]:
        if token is not None:
            raise Permanent(f"{token}: no such token")
        return super().pages(bucket, prefix)


# -- what goes wrong ------------------------------------------------------------------------------


def test_trap_t09_an_object_that_makes_trouble_holds_up_no_other(reconciled: Reconciled) -> None:
    for number in range(7):
        reconciled.put(f"{number}")
    reconciled.broken["1"] = StoreUnavailable("unavailable")
    reconciled.broken["3"] = AccessDenied("an object's own")
    reconciled.broken["4"] = ZeroDivisionError("a defect")

    first = reconciled.run()
    reconciled.broken.clear()
    second = reconciled.run()

    assert (first.jobs_new, first.problems, first.listings_finished) == (4, 3, ("c",))
    assert (second.jobs_new, second.problems) == (3, 0)


def test_objects_that_use_up_all_time_do_not_hold_up_the_pages_behind_them(
    reconciled: Reconciled,
) -> None:
    """Listings with a limit of 0 or 1 wait until no time is left."""
    for number in range(7):
        reconciled.put(f"{number}")
    spent = []

    class Slow(StoreUnavailable):
        def __str__(self) -> str:
            spent.append(self)
            return "gave up"

    reconciled.broken.update({"0": Slow(), "1": Slow()})

    for _ in range(3):
        spent.clear()
        reconciled.run(late=lambda: bool(spent))

    assert set(reconciled.states()) == {"3", "4", "5", "6"}  # 2 waits for the next round
    reconciled.broken.clear()
    reconciled.run()
    reconciled.run()
    assert len(reconciled.states()) == 7


def test_a_bucket_that_cannot_be_listed_holds_up_no_other_connector(reconciled: Reconciled) -> None:
    reconciled.put("key")
    for name in ("denied", "gone", "unread"):
        reconciled.connector(name)
    reconciled.stores["denied"] = FaultyStore(store_of(reconciled), Fault("denied", "list"))
    reconciled.stores["gone"] = FaultyStore(store_of(reconciled), Fault("gone", "list"))
    reconciled.broken["unread"] = Misconfigured("its secret is not there")

    report = reconciled.run()

    assert report.problems == 3
    assert report.listings_finished == ("c",)


def test_a_listing_continues_after_an_outage_of_the_store(reconciled: Reconciled) -> None:
    for number in range(9):
        reconciled.put(f"{number}")
    reconciled.run(late=lambda: len(reconciled.arrived) >= 4)
    reconciled.arrived.clear()
    whole = reconciled.world.store
    reconciled.stores["c"] = FaultyStore(whole, Fault("unavailable", "list", frozenset({1})))

    unavailable, back = reconciled.run(), reconciled.run()

    assert (unavailable.problems, unavailable.keys_listed) == (1, 0)
    assert (back.problems, back.keys_listed) == (0, 6)


def test_with_little_time_every_connector_gets_its_turn_over_several_runs() -> None:
    reconciled = opened(page_keys=1_000)
    for name in "abcdefgh":
        reconciled.connector(name, prefix=f"{name}/")
        for number in range(5):
            reconciled.put(f"{name}/{number}")

    for _ in range(12):
        arrived = len(reconciled.arrived)
        reconciled.run(late=lambda arrived=arrived: len(reconciled.arrived) >= arrived + 8)  # type: ignore[misc]

    begun = {arrival.key[0] for arrival in reconciled.arrived}
    assert begun == set("abcdefgh")


def test_busy_connector_leaves_time_for_the_others() -> None:
    """One object may be received per run, and `a` has a new one each time, before all others."""
    reconciled = opened()
    reconciled.ledger.connectors.delete("c")
    for name in "abd":
        reconciled.connector(name, prefix=f"{name}/")
        reconciled.put(f"{name}/0")

    for number in range(1, 30):
        reconciled.put(f"a/{1_000 - number}")
        arrived = len(reconciled.arrived)
        reconciled.run(late=lambda arrived=arrived: len(reconciled.arrived) > arrived)  # type: ignore[misc]

    assert {"b/0", "d/0"} <= set(reconciled.states())


def test_without_version_ids_in_the_listing_an_object_is_pinned_again() -> None:
    reconciled = opened(versioned=True)
    version = reconciled.put("key")
    reconciled.stores["c"] = Fixed([replace(version, version_id=None)])
    first = reconciled.run()
    reconciled.world.ticker.now += 1

    second = reconciled.run()

    assert (first.jobs_new, second.jobs_new) == (1, 0)
    assert heads(reconciled) == ["key", "key"]
    assert len(reconciled.states()) == 1


# -- what may still be written ---------------------------------------------------------------------


def test_a_file_is_read_once_two_listings_show_the_same_state() -> None:
    reconciled = opened()
    reconciled.settling = frozenset({"c"})
    reconciled.put("ready", b"ready")
    reconciled.put("growing", b"g")
    jobs = [reconciled.run().jobs_new]
    reconciled.put("growing", b"gr")
    jobs.append(reconciled.run().jobs_new)
    reconciled.put("growing", b"gro")
    jobs.append(reconciled.run().jobs_new)
    jobs.append(reconciled.run().jobs_new)
    reconciled.work()

    assert jobs == [0, 1, 0, 1]
    assert sorted(reconciled.world.delivered()) == sorted(expected(b"ready") + expected(b"gro"))


def test_a_size_that_changes_under_the_same_etag_is_a_change() -> None:
    reconciled = opened()
    version = reconciled.put("key", b"gr")
    listed = [replace(version, size=1), replace(version, size=2), version]
    ledger, received = MemoryLedger(), list[Arrival]()

    def receive(arrival: Arrival) -> AdmissionResult:
        received.append(arrival)
        return AdmissionResult()

    config = ConnectorConfig(name="c", topic="t", s3_bucket=BUCKET)
    sums = []
    for look in listed:
        discovery = ListingScan(ledger, receive, lambda: False, 0.0)
        list(discovery.scan(ListedPrefix(config, Fixed([look]), settles=True)))
        sums.append(len(received))

    assert sums == [0, 0, 1]


def test_a_file_that_was_touched_since_its_job_is_found_until_its_content_is_known() -> None:
    version = ObjectVersion("/data", "a.csv", None, "1-2-3", 3, 5)
    ledger, received = MemoryLedger(), list[Arrival]()
    ledger.jobs.register(
        Job(job_id("c", version), "c", 1, version, "csv", "cluster", plan=Plan(target_bytes=1))
    )

    def receive(arrival: Arrival) -> AdmissionResult:
        received.append(arrival)
        return AdmissionResult()

    def scan(look: ObjectVersion) -> int:
        config = ConnectorConfig(name="c", topic="t", directory="/data", endpoint_type=LOCAL_FILE)
        store = Fixed([look], "/data")
        list(ListingScan(ledger, receive, lambda: False, 0.0).scan(ListedPrefix(config, store)))
        return len(received)

    touched = replace(version, modified=6)
    assert [scan(version), scan(touched)] == [0, 1]
    known = contents.StoredContent(version.etag, version.modified, "digest", version.etag)
    contents.remember(ledger.notes, "c", touched, known)
    assert scan(touched) == 1


def test_a_link_to_a_listed_file_does_not_arrive(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.csv").write_bytes(b"1")
    (tmp_path / "in" / "a.csv").symlink_to("b.csv")
    (tmp_path / "in" / "c.csv").hardlink_to(tmp_path / "in" / "b.csv")
    received = list[str]()

    def receive(arrival: Arrival) -> AdmissionResult:
        received.append(arrival.key)
        return AdmissionResult()

    config = ConnectorConfig(name="c", topic="t", directory=str(tmp_path), endpoint_type=LOCAL_FILE)
    listed = ListedPrefix(config, LocalStore(StoreOptions(), page_keys=1))
    list(ListingScan(MemoryLedger(), receive, lambda: False, 0.0).scan(listed))

    assert received == ["in/b.csv"]


class Fixed(MemoryStore):
    """A store that lists the given objects in one page."""

    def __init__(self, versions: Iterable[ObjectVersion], bucket: str = BUCKET) -> None:
        super().__init__()
        self._listed, self._bucket = tuple(versions), bucket

    def pages(self, bucket: str, prefix: str = "", *, token: str | None = None) -> Iterator[Page]:
        assert (bucket, prefix, token) == (self._bucket, "", None)
        yield Page(self._listed)


# -- memory ---------------------------------------------------------------------------------------


class Vast(MemoryStore):
    """A bucket of `count` keys that exist only while they are listed."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def pages(self, bucket: str, prefix: str = "", *, token: str | None = None) -> Iterator[Page]:
        begin = int(token or 0)
        for start in range(begin, self._count, 1_000):
            numbers = range(start, min(self._count, start + 1_000))
            keys = [f"{prefix}year=2026/part-{number:08}.parquet" for number in numbers]
            found = [ObjectVersion(bucket, key, None, f"{hash(key):032x}", 1) for key in keys]
            following = numbers[-1] + 1
            yield Page(tuple(found), str(following) if following < self._count else None)


class RegisteredJobs:
    """Jobs of a ledger that has one for every object."""

    def find_registered(self, job_ids: Iterable[str]) -> set[str]:
        return set(job_ids)


def listed_with_peak(count: int) -> tuple[int, int]:
    """List a vast bucket; return how many keys came, and the peak of memory in bytes."""

    def receive(arrival: Arrival) -> AdmissionResult:
        raise AssertionError(f"{arrival.uri} is known")

    config = ConnectorConfig(name="c", topic="t", s3_bucket=BUCKET)
    ledger: Any = SimpleNamespace(jobs=RegisteredJobs(), notes=MemoryLedger().notes)
    discovery = ListingScan(ledger, receive, lambda: False, 0.0)
    tracemalloc.start()
    try:
        listed = sum(step.keys_listed for step in discovery.scan(ListedPrefix(config, Vast(count))))
        return listed, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_number_of_keys() -> None:
    few, few_bytes = listed_with_peak(3_000)
    many, many_bytes = listed_with_peak(12_000)

    assert (few, many) == (3_000, 12_000)
    assert many_bytes < few_bytes + (64 << 10)
    assert many_bytes < 4 << 20
