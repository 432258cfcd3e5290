"""From an object to a job and its extents: sizes, generations, the life of a plan."""

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.golden import Golden
from tests.support.memory_delivery import Bytewise, World, expected

from extentflow.delivery.runner import run_extent
from extentflow.errors import (
    Conflict,
    CorruptObject,
    Misconfigured,
    ObjectChanged,
    ProgressUnknown,
    StoreUnavailable,
)
from extentflow.formats import Format
from extentflow.jobs.planner import PAGE_EXTENTS, JobRequest, target_bytes
from extentflow.kafka import ProducerSettings
from extentflow.ledger import ExtentItem
from extentflow.model import Extent, ExtentState, Job, JobState, ObjectVersion, Outcome
from extentflow.storage import RangeSource

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40


class Rowwise(Bytewise):
    """A columnar format, as far as planning goes."""

    location_unit: Literal["offset", "row"] = "row"
    extent_bytes: int | None = 32 << 20
    cut_version = 1


@dataclass
class Breaking(Bytewise):
    """A format that cannot plan while it has an error to raise."""

    error: Exception | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        yield from super().plan(source, target_bytes)
        if self.error is not None:
            raise self.error


def claim(world: World, extent: Extent) -> None:
    """Let a worker claim an extent and stop without a receipt."""
    world.slots().claim(extent, ProducerSettings())


def forget_progress(world: World) -> None:
    """Lose every group's offset."""
    for number in range(4):
        world.broker.forget_group(f"app.{world.ledger.id}.slot-{number}")


def failed_with_unknown_progress(world: World) -> Job:
    """Return a job whose first extent has unknown progress; its second one is bad."""
    job = world.job(b"abcd!fgh")
    first, second = world.extents(job)
    claim(world, first)
    forget_progress(world)
    world.ticker.sleep(60)
    worker = world.worker()
    assert run_extent(first, worker).outcome is Outcome.FAILED
    assert run_extent(second, worker).outcome is Outcome.FAILED
    return world.ledger.jobs.close(job.id)


# -- extent sizes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fmt", "size", "cores", "expected_bytes"),
    [
        (Bytewise(), 1 * GIB, 1, 64 * MIB),
        (Bytewise(), 1 * GIB, 4, 64 * MIB),
        (Bytewise(), 100 * MIB, 4, 25 * MIB),
        (Bytewise(), 100 * MIB + 1, 4, 25 * MIB + 1),
        (Bytewise(), 2 * MIB, 8, 1 * MIB),
        (Bytewise(), 10, 8, 1 * MIB),
        (Bytewise(), 0, 8, 1 * MIB),
        (Bytewise(), 1 * TIB, 4, 109_951_163),
        (Rowwise(), 1 * GIB, 4, 32 * MIB),
        (Rowwise(), 1 * TIB, 4, 32 * MIB),
        (Rowwise(), 48 * MIB, 4, 12 * MIB),
    ],
)
def test_an_automatic_extent_fits_its_format_the_object_and_the_cores(
    fmt: Format, size: int, cores: int, expected_bytes: int
) -> None:
    assert target_bytes(fmt, size, extent_bytes=None, cores=cores) == expected_bytes


def test_a_named_extent_size_is_taken_as_it_is() -> None:
    assert target_bytes(Bytewise(), 1 * GIB, extent_bytes=7, cores=64) == 7


@given(size=st.integers(0, 1 << 50), cores=st.integers(1, 512))
def test_there_are_as_many_extents_as_cores_down_to_one_mebibyte(size: int, cores: int) -> None:
    target = target_bytes(Bytewise(), size, extent_bytes=None, cores=cores)

    assert target >= MIB
    assert -(-size // target) >= min(cores, size // MIB)
    assert -(-size // target) <= max(10_000, cores)


def test_what_a_job_was_registered_with_is_never_recomputed() -> None:
    world = World()
    version = world.put(b"abcdefgh")
    first = world.planner.register(world.request(version, extent_bytes=4))

    again = world.planner.register(world.request(version, extent_bytes=1))

    assert again == first
    assert [(e.start, e.end) for e in world.planner.extents(again)] == [(0, 4), (4, 8)]


class Uncounted(Bytewise):
    """A format whose extents must not be counted one by one."""

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        raise AssertionError(f"{source.version.uri} was to be cut by {target_bytes}, not looked at")


class Whole(Uncounted):
    """A format that cannot be cut, such as lines inside a compression."""

    splittable = False


class Rows(Uncounted):
    """A format that is cut where its rows allow it."""

    location_unit: Literal["offset", "row"] = "row"
    extent_bytes: int | None = 32 << 20
    cut_version = 1


def huge(world: World, size: int, extent_bytes: int) -> JobRequest:
    """Return what a job for an object of that size is made of; there is no such object."""
    return world.request(ObjectVersion("bucket", "huge.csv", None, "etag", size), extent_bytes)


def test_too_many_extents_are_rejected_before_anything_is_stored(golden: Golden) -> None:
    world = World(format=Uncounted())
    request = huge(world, 1 * TIB, 1_000)

    for refuse in (world.planner.register, world.planner.dry_run):
        with pytest.raises(Misconfigured) as caught:
            refuse(request)

        golden(caught.value)
        assert "s3://bucket/huge.csv" in str(caught.value)
    assert list(world.ledger.jobs.list()) == []


@pytest.mark.parametrize(("size", "fits"), [(7_000_000, True), (7_000_001, False)])
def test_a_million_extents_are_not_too_many(size: int, golden: Golden, *, fits: bool) -> None:
    world = World(format=Uncounted())
    request = huge(world, size, 7)

    if fits:
        assert world.planner.register(request).plan.target_bytes == 7
    else:
        with golden.raises(Misconfigured, match=r"extent\.bytes"):
            world.planner.register(request)


def test_the_size_that_a_rejection_names_will_do() -> None:
    world = World(format=Uncounted())

    job = world.planner.register(huge(world, 1 * TIB, 1_099_512))

    assert job.plan.target_bytes == 1_099_512


@pytest.mark.parametrize("fmt", [Whole(), Rows()], ids=["whole", "rows"])
def test_small_extents_are_allowed_where_the_format_decides_the_cuts(fmt: Format) -> None:
    world = World(format=fmt)

    job = world.planner.register(huge(world, 1 * TIB, 1_000))

    assert job.plan.target_bytes == 1_000


def test_a_job_keeps_its_plan_when_its_connector_changes() -> None:
    world = World(format=Uncounted())
    first = world.planner.register(huge(world, 1 * TIB, 64 * MIB))

    again = world.planner.register(huge(world, 1 * TIB, 1))

    assert again == first


# -- registering ----------------------------------------------------------------------------------


def test_a_dry_run_stores_nothing_and_shows_what_a_run_would_do() -> None:
    world = World()
    request = world.request(world.put(b"abcdefgh"))

    shown, extents = world.planner.dry_run(request)

    assert list(world.ledger.jobs.list()) == []
    job = world.planner.plan(world.planner.register(request))
    assert (job.id, job.plan.target_bytes) == (shown.id, shown.plan.target_bytes)
    assert list(world.planner.extents(job)) == extents


def test_another_connector_or_version_or_generation_is_another_job() -> None:
    world = World()
    request = world.request(world.put(b"abc"))
    other = JobRequest("d", 1, request.version, "bytewise", request.cluster, extent_bytes=4)
    first = world.planner.register(request)

    found = {
        world.planner.register(request).id,
        world.planner.register(other).id,
        world.planner.register(request, again=math.inf).id,
        world.planner.register(world.request(world.put(b"new"))).id,
    }

    assert first.id in found
    assert len(found) == 4


def test_again_takes_the_next_generation_every_time() -> None:
    world = World()
    request = world.request(world.put(b"abc"))

    jobs = []
    for _ in range(3):
        jobs.append(world.planner.register(request, again=math.inf))
        world.ledger.jobs.end(jobs[-1].id, JobState.CANCELLED, "enough")

    assert [job.generation for job in jobs] == [0, 1, 2]


def test_a_later_run_uses_the_newest_generation() -> None:
    """A later success with `--again` replaces the failure in reports."""
    world = World()
    request = world.request(world.put(b"abc"))
    failed = world.planner.register(request)
    world.ledger.jobs.end(failed.id, JobState.FAILED, "a connector's fault")
    repaired = world.planner.register(request, again=math.inf)
    world.ledger.jobs.end(repaired.id, JobState.CANCELLED, "final")

    found = world.planner.register(request)

    assert (found.id, found.generation) == (repaired.id, 1)


def test_again_resumes_an_interrupted_second_delivery() -> None:
    world = World()
    request = world.request(world.put(b"abc"))
    world.planner.register(request)
    interrupted = world.planner.register(request, again=math.inf)

    again = world.planner.register(request, again=math.inf)

    assert again.id == interrupted.id


def test_a_job_that_yielded_to_another_connectors_counts_for_nothing() -> None:
    """Two commands may yield to each other; the next one delivers the object."""
    world = World()
    version = world.put(b"abc", "key")
    ours = JobRequest(
        "a",
        1,
        version,
        "bytewise",
        "memory",
        others=lambda: world.planner.generations("b", version),
    )
    theirs = replace(ours, connector="b", others=lambda: world.planner.generations("a", version))
    for request in (ours, theirs):
        job = world.planner.register(request)
        world.ledger.jobs.end(job.id, JobState.SUPERSEDED, "the other one delivers it")

    first = world.planner.admit(ours)
    second = world.planner.admit(theirs)

    assert (first.connector, first.state) == ("a", JobState.PLANNING)
    assert second.id == first.id


def test_a_job_of_another_kafka_cluster_is_rejected_although_it_is_done(golden: Golden) -> None:
    world = World()
    job = world.job(b"abc")
    run_extent(world.extents(job)[0], world.worker())
    assert world.ledger.jobs.close(job.id).state is JobState.DONE
    elsewhere = JobRequest("c", 1, job.version, "bytewise", "another-cluster")

    with golden.raises(Conflict, match="another-cluster"):
        world.planner.register(elsewhere)


def test_an_object_that_reappears_reopens_its_superseded_job() -> None:
    world = World()
    job = world.job(b"abcdefgh")
    first, second = world.extents(job)
    worker = world.worker()
    run_extent(first, worker)
    world.put(b"ABCDEFGH")
    run_extent(second, worker)
    assert world.ledger.jobs.close(job.id).state is JobState.SUPERSEDED
    version = world.put(b"abcdefgh")

    reopened = world.planner.register(world.request(version))

    assert (reopened.id, reopened.state) == (job.id, JobState.RUNNING)
    assert [e.ordinal for e in world.planner.pending(reopened)] == [1]
    run_extent(second, worker)
    assert world.delivered() == expected(b"abcdefgh")
    assert world.ledger.jobs.close(job.id).state is JobState.DONE


# -- planning -------------------------------------------------------------------------------------


def test_trap_t19_an_empty_object_is_done_with_no_records() -> None:
    world = World()

    job = world.job(b"")

    assert (job.state, job.plan.count) == (JobState.DONE, 0)
    assert world.ledger.jobs.progress(job.id).records == 0


def test_a_planned_job_is_not_planned_again() -> None:
    world = World()
    job = world.job(b"abcdefgh")

    again = world.planner.plan(job)

    assert again is job


def test_a_permanent_error_fails_the_job_and_a_replay_plans_it_again() -> None:
    fmt = Breaking(error=CorruptObject("s3://bucket/key: its footer is damaged"))
    world = World(format=fmt)

    job = world.job(b"abcdefgh")

    assert (job.state, job.reason) == (JobState.FAILED, "s3://bucket/key: its footer is damaged")
    assert job.plan.count == 0
    fmt.error = None
    replayed = world.planner.plan(world.planner.replay(job))
    assert (replayed.state, replayed.plan.count) == (JobState.RUNNING, 2)


def test_an_object_that_changes_while_it_is_planned_supersedes_its_job() -> None:
    world = World(format=Breaking(error=ObjectChanged("s3://bucket/key: replaced")))

    job = world.job(b"abcdefgh")

    assert job.state is JobState.SUPERSEDED


def test_an_unavailable_store_leaves_the_job_planning() -> None:
    fmt = Breaking(error=StoreUnavailable("s3://bucket/key: no answer"))
    world = World(format=fmt)

    with pytest.raises(StoreUnavailable):
        world.job(b"abcdefgh")

    (job,) = world.ledger.jobs.list()
    assert job.state is JobState.PLANNING
    fmt.error = None
    assert world.planner.plan(job).plan.count == 2


def test_a_plan_of_one_page_is_stored_once() -> None:
    world = World()
    job = world.planner.register(world.request(world.put(b"abcdefgh")))
    calls: list[str] = []
    world.ledger.on_call = calls.append

    planned = world.planner.plan(job, send=lambda _page: None)

    assert (planned.state, planned.plan.count) == (JobState.RUNNING, 2)
    assert calls.count("plan") == 1


def test_only_extents_that_are_not_final_are_pending() -> None:
    world = World()
    job = world.job(b"ab!defghijkl")
    first, second, _ = world.extents(job)
    worker = world.worker()
    run_extent(first, worker)
    run_extent(second, worker)

    pending = list(world.planner.pending(job))

    assert world.ledger.extents.get(job.id, 0).state is ExtentState.FAILED
    assert world.ledger.extents.get(job.id, 1).state is ExtentState.DONE
    assert [extent.ordinal for extent in pending] == [2]


# -- replaying ------------------------------------------------------------------------------------


def test_a_replay_resumes_failed_extents_at_their_position() -> None:
    world = World()
    job = world.job(b"abcd" + b"ef!h" + b"ijkl" + b"mn!p", extent_bytes=4)
    worker = world.worker()
    for extent in world.extents(job):
        run_extent(extent, worker)
    failed = world.ledger.jobs.close(job.id)
    assert (failed.state, failed.reason) == (JobState.FAILED, "2 of 4 extents failed")

    replayed = world.planner.replay(failed)

    assert replayed.state is JobState.RUNNING
    assert [extent.ordinal for extent in world.planner.pending(replayed)] == [1, 3]
    assert [world.ledger.extents.get(job.id, n).position for n in (1, 3)] == [6, 14]


def test_a_replay_of_one_extent_leaves_the_others_failed() -> None:
    world = World()
    job = world.job(b"!bcd" + b"!fgh")
    worker = world.worker()
    for extent in world.extents(job):
        run_extent(extent, worker)

    replayed = world.planner.replay(world.ledger.jobs.close(job.id), ordinal=1)

    assert [extent.ordinal for extent in world.planner.pending(replayed)] == [1]
    assert world.ledger.extents.get(job.id, 0).state is ExtentState.FAILED


@pytest.mark.parametrize("ordinal", [1, 99])
def test_a_replay_of_an_extent_that_did_not_fail_is_rejected(
    ordinal: int,
    golden: Golden,
) -> None:
    world = World()
    job = world.job(b"!bcd" + b"efgh")
    worker = world.worker()
    for extent in world.extents(job):
        run_extent(extent, worker)
    failed = world.ledger.jobs.close(job.id)

    with golden.raises(Misconfigured, match=f"extent {ordinal}.*job {job.id}"):
        world.planner.replay(failed, ordinal=ordinal)

    assert world.ledger.jobs.get(job.id) == failed


def test_unknown_progress_rejects_the_whole_replay_and_changes_nothing() -> None:
    world = World()
    failed = failed_with_unknown_progress(world)
    before = list(world.ledger.extents.list(failed.id))

    with pytest.raises(ProgressUnknown, match=r"progress unknown.*--accept-duplicates"):
        world.planner.replay(failed)

    assert world.ledger.jobs.get(failed.id) == failed
    assert list(world.ledger.extents.list(failed.id)) == before


def test_an_extent_with_known_progress_can_be_replayed_alone() -> None:
    world = World()
    failed = failed_with_unknown_progress(world)

    replayed = world.planner.replay(failed, ordinal=1)

    assert [extent.ordinal for extent in world.planner.pending(replayed)] == [1]


def test_unknown_progress_is_replayed_when_duplicates_are_accepted() -> None:
    world = World()
    failed = failed_with_unknown_progress(world)

    replayed = world.planner.replay(failed, accept_duplicates=True)

    assert [extent.ordinal for extent in world.planner.pending(replayed)] == [0, 1]
    assert not any(item.progress_unknown for item in world.ledger.extents.list(failed.id))


def test_a_replay_of_a_job_that_is_done_adds_nothing() -> None:
    world = World()
    job = world.job(b"abc")
    worker = world.worker()
    run_extent(world.extents(job)[0], worker)
    done = world.ledger.jobs.close(job.id)

    replayed = world.planner.replay(done)

    assert replayed == done


# -- second deliveries ----------------------------------------------------------------------------


def test_a_second_delivery_cancels_the_open_first_one() -> None:
    world = World()
    request = world.request(world.put(b"abcdefgh"))
    first = world.planner.plan(world.planner.register(request))

    second = world.planner.register(request, again=math.inf)

    cancelled = world.ledger.jobs.get(first.id)
    assert cancelled is not None
    assert cancelled.state is JobState.CANCELLED
    assert world.planner.register(request).id == second.id


def test_an_interrupted_second_delivery_does_not_repeat_finished_objects() -> None:
    world = World()
    done, left = (world.request(world.put(b"abcd", key)) for key in ("done", "left"))
    for request in (done, left):
        run_job(world, world.planner.register(request))
    world.ticker.sleep(10)
    began = world.ticker.now
    second = world.planner.register(done, again=began)
    run_job(world, second)

    again = [world.planner.register(request, again=began) for request in (done, left)]

    assert again[0].id == second.id
    assert [job.generation for job in again] == [1, 1]
    world.ticker.sleep(10)
    assert world.planner.register(done, again=world.ticker.now).generation == 2


def run_job(world: World, job: Job) -> None:
    for extent in world.extents(world.planner.plan(job)):
        assert run_extent(extent, world.worker()).outcome is Outcome.DONE


# -- what DONE proves -----------------------------------------------------------------------------


class CutsAtThreeQuarters(Bytewise):
    """The next release of a format, which cuts smaller extents."""

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        return super().plan(source, max(1, target_bytes * 3 // 4))


def half_delivered(world: World) -> Job:
    job = world.job(b"abcdefghijkl", extent_bytes=4)
    for extent in world.extents(job)[:2]:
        run_extent(extent, world.worker())
    return job


def test_extents_of_two_cuts_never_make_a_job_done() -> None:
    world = World()
    job = half_delivered(world)
    world.format = CutsAtThreeQuarters()

    for extent in world.planner.pending(job):
        with suppress(Conflict):  # a number beyond the plan's
            run_extent(extent, world.worker())

    closed = world.ledger.jobs.close(job.id)
    assert closed.state is JobState.FAILED
    assert "cover 11 bytes instead of 12" in closed.reason


def test_an_extent_beyond_the_plan_is_refused(golden: Golden) -> None:
    world = World()
    job = half_delivered(world)

    with golden.raises(Conflict, match="number 3"):
        run_extent(job.extent(3, 8, 12), world.worker())


def test_another_version_of_the_cut_does_not_continue_a_job(golden: Golden) -> None:
    world = World()
    job = half_delivered(world)
    world.format = CutsAtThreeQuarters()
    world.format.cut_version = 2

    with golden.raises(Misconfigured, match="version 1"):
        list(world.planner.pending(job))


def test_the_version_that_cuts_a_job_is_stored_with_it(golden: Golden) -> None:
    world = World()
    job = world.planner.register(world.request(world.put(b"abcdefghijkl"), 4))
    world.format = CutsAtThreeQuarters()
    world.format.cut_version = 2

    planned = world.planner.plan(job)

    assert (planned.state, planned.plan.cut_version) == (JobState.RUNNING, 2)
    assert len(list(world.planner.pending(planned))) == 4
    world.format = Bytewise()
    with golden.raises(Misconfigured, match="version 2"):
        list(world.planner.pending(planned))


def test_planners_of_two_versions_never_mix_their_cuts(golden: Golden) -> None:
    world = World()
    size = 4 * 2 * PAGE_EXTENTS
    job = world.planner.register(world.request(world.put(b"x" * size), 4))
    world.format = CutsAtThreeQuarters()
    world.format.cut_version = 2

    def older_planner(_page: Sequence[Extent]) -> None:
        world.ledger.jobs.plan(job.id, count=1, cursor=4, complete=False, cut_version=1)

    with golden.raises(Misconfigured, match="version 1"):
        world.planner.plan(job, send=older_planner)


def test_a_format_that_leaves_bytes_out_fails_the_job() -> None:
    class LeavesOut(Bytewise):
        def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
            return itertools.islice(super().plan(source, target_bytes), 2)

    world = World(format=LeavesOut())

    job = world.job(b"abcdefghijkl", extent_bytes=4)

    assert job.state is JobState.FAILED
    assert "cuts 8 of 12 bytes into extents" in job.reason


def test_pending_extents_are_read_as_they_are_needed() -> None:
    """A set of the final ones would grow with the object."""
    world = World()
    job = half_delivered(world)
    listed: list[int] = []
    items = world.ledger.extents.list

    def noted(job_id: str) -> Iterator[ExtentItem]:
        for item in items(job_id):
            listed.append(item.ordinal)
            yield item

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.ledger.extents, "list", noted)
        pending = world.planner.pending(job)
        assert listed == []
        assert [extent.ordinal for extent in pending] == [2]
