"""What all engines share: packing extents, driving jobs, waiting for busy extents."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.local_engine import CallingThreadEngine, RecordingListener, until_final
from tests.support.memory_delivery import Bytewise, World, expected

from extentflow.delivery.pipeline import Pipeline
from extentflow.engines import (
    SMALL_TASK_BYTES,
    SMALL_TASK_EXTENTS,
    RunListener,
    Task,
    pack,
    run_in_turn,
    run_until_final,
)
from extentflow.errors import Conflict, CorruptRecord, LedgerUnavailable
from extentflow.jobs.preflight import CACHE_SECONDS, ConnectorStateCache
from extentflow.jobs.run import WAVE_EXTENTS, JobRunner
from extentflow.kafka import ProducerSettings
from extentflow.ledger import Claim, ConnectorState
from extentflow.model import Extent, ExtentState, Job, JobState, ObjectVersion, Outcome, Receipt
from extentflow.storage import RangeSource
from extentflow.testing.stores import MemoryStore

MIB = 1 << 20


def extent(ordinal: int, size: int, *, job: str = "job", start: int = 0) -> Extent:
    version = ObjectVersion("bucket", "key", None, "etag", start + size)
    return Extent(job, ordinal, "c", version, start, start + size, "text")


def never(_job: str) -> bool:
    return False


def driven(
    world: World,
    jobs: Sequence[Job],
    engine: CallingThreadEngine,
    watch: RecordingListener | None = None,
) -> list[Job]:
    listener = watch or RecordingListener()
    runner = JobRunner("calling", engine, world.planner, world.ledger, listener)
    return runner.drive(jobs, listener)


# -- packing --------------------------------------------------------------------------------------


def test_nothing_packs_into_nothing() -> None:
    assert pack([], never, cores=4) == []


def test_a_large_extent_is_a_task_of_its_own() -> None:
    extents = [extent(n, 64 * MIB) for n in range(5)]

    tasks = pack(extents, never, cores=2)

    assert {task.extents for task in tasks} == {(one,) for one in extents}
    assert len(tasks) == 5


def test_small_extents_share_a_task_of_a_few_mebibytes() -> None:
    extents = [extent(n, MIB // 2) for n in range(2_000)]

    tasks = pack(extents, never, cores=2)

    assert {task.size for task in tasks} == {SMALL_TASK_BYTES}
    assert len(tasks) == 125


def test_many_tiny_extents_are_so_many_tasks_that_progress_moves() -> None:
    """Trap: Spark reports the extents of a task at its end, and 2,000 objects were eight tasks."""
    tasks = pack([extent(n, 10) for n in range(2_000)], never, cores=2)

    assert max(len(task.extents) for task in tasks) == SMALL_TASK_EXTENTS
    assert len(tasks) == 32


def test_few_small_extents_are_spread_over_all_cores() -> None:
    extents = [extent(n, 10) for n in range(64)]

    tasks = pack(extents, never, cores=4)

    assert len(tasks) == 16


def test_an_ordered_job_is_one_task_in_file_order() -> None:
    ordered = [extent(n, 64 * MIB, job="ordered", start=n * 64 * MIB) for n in range(6)]
    others = [extent(n, 100 * MIB, job="other") for n in range(2)]
    mixed = [ordered[0], others[0], *ordered[1:4], others[1], *ordered[4:]]

    tasks = pack(mixed, lambda job: job == "ordered", cores=2)

    assert Task(tuple(ordered)) in tasks
    assert len(tasks) == 3


def test_the_largest_task_is_handed_out_first() -> None:
    sizes = [9 * MIB, 100 * MIB, 20 * MIB, 64 * MIB]

    tasks = pack([extent(n, size) for n, size in enumerate(sizes)], never, cores=1)

    assert [task.size for task in tasks] == sorted(sizes, reverse=True)


@given(
    sizes=st.lists(st.integers(1, 200 * MIB), max_size=60),
    ordered=st.sets(st.sampled_from("abc")),
    cores=st.integers(1, 16),
)
def test_every_extent_is_in_exactly_one_task(
    sizes: list[int], ordered: set[str], cores: int
) -> None:
    extents = [extent(n, size, job="abc"[n % 3]) for n, size in enumerate(sizes)]

    tasks = pack(extents, lambda job: job in ordered, cores=cores)

    packed = Counter(one for task in tasks for one in task.extents)
    assert packed == Counter(extents)
    for job in ordered:
        assert sum(any(one.job == job for one in task.extents) for task in tasks) <= 1
    for task in tasks:
        if len(task.extents) > 1 and not ordered:
            assert Task(task.extents[:-1]).size < SMALL_TASK_BYTES


# -- driving --------------------------------------------------------------------------------------


def test_jobs_are_planned_run_and_closed() -> None:
    world = World()
    first = world.planner.register(world.request(world.put(b"abcdefgh", "one")))
    second = world.planner.register(world.request(world.put(b"xyz", "two")))
    watch = RecordingListener()

    ended = driven(world, [first, second], CallingThreadEngine(until_final(world.worker())), watch)

    assert [job.state for job in ended] == [JobState.DONE, JobState.DONE]
    assert sorted(world.delivered()) == sorted(expected(b"abcdefgh") + expected(b"xyz"))
    assert len(watch.expected) == len(watch.receipts) == 3


def test_a_job_that_is_final_is_reported_as_it_stands_and_not_run() -> None:
    world = World()
    job = world.job(b"!bc")
    driven(world, [job], CallingThreadEngine(until_final(world.worker())))
    engine = CallingThreadEngine(until_final(world.worker()))

    (ended,) = driven(world, [world.ledger.jobs.close(job.id)], engine)

    assert ended.state is JobState.FAILED
    assert engine.runs == []


def test_only_what_is_left_of_a_job_is_run() -> None:
    world = World()
    job = world.job(b"abcdefgh")
    first, _ = world.extents(job)
    run_until_final(first, world.worker())
    engine = CallingThreadEngine(until_final(world.worker()))

    (ended,) = driven(world, [job], engine)

    assert engine.extents == [(job.id, 1)]
    assert ended.state is JobState.DONE
    assert world.delivered() == expected(b"abcdefgh")


def test_trap_t09_a_job_that_cannot_be_planned_stops_no_other() -> None:
    memory = MemoryStore()
    world = World(store=memory)
    bad = world.planner.register(world.request(world.put(b"!", "bad")))
    gone = world.planner.register(world.request(world.put(b"abc", "gone")))
    good = world.planner.register(world.request(world.put(b"xyz", "good")))
    memory.remove("bucket", "gone")

    ended = driven(world, [bad, gone, good], CallingThreadEngine(until_final(world.worker())))

    states = [JobState.FAILED, JobState.FAILED, JobState.DONE]
    assert [job.state for job in ended] == states
    assert world.delivered() == expected(b"xyz")


class Looking(Bytewise):
    """A format that reads the object to cut it, as Parquet does."""

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        source.read(0, 1)
        return super().plan(source, target_bytes)


@pytest.mark.parametrize(
    ("changed", "state"), [(False, JobState.FAILED), (True, JobState.SUPERSEDED)]
)
def test_a_planned_object_that_cannot_be_cut_again_ends_only_its_own_job(
    changed: bool,  # noqa: FBT001
    state: JobState,
) -> None:
    world = World(format=Looking())
    lost, kept = world.job(b"abcd", "lost"), world.job(b"efgh", "kept")
    assert isinstance(world.store, MemoryStore)
    if changed:
        world.store.put("bucket", "lost", b"other")
    else:
        world.store.remove("bucket", "lost")

    ended = driven(world, [lost, kept], CallingThreadEngine(until_final(world.worker())))

    assert [job.state for job in ended] == [state, JobState.DONE]
    assert sorted(world.delivered()) == sorted(expected(b"efgh"))


class Damaged(Bytewise):
    """A format that finds damage in one key while it looks for cuts."""

    damaged: str | None = None

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        if source.version.key == self.damaged:
            raise CorruptRecord(f"{source.version.uri}: no cut found")
        return super().plan(source, target_bytes)


def test_damage_found_when_an_object_is_cut_again_ends_only_its_job() -> None:
    damaged = Damaged()
    world = World(format=damaged)
    lost, kept = world.job(b"abcd", "lost"), world.job(b"efgh", "kept")
    damaged.damaged = "lost"

    ended = driven(world, [lost, kept], CallingThreadEngine(until_final(world.worker())))

    assert [job.state for job in ended] == [JobState.FAILED, JobState.DONE]
    assert "no cut found" in ended[0].reason


def test_many_extents_are_driven_in_waves() -> None:
    world = World()
    job = world.job(b"x" * (WAVE_EXTENTS + 904), extent_bytes=1)
    engine = CallingThreadEngine()

    (ended,) = driven(world, [job], engine)

    waves = [sum(len(task.extents) for task in run) for run in engine.runs]
    assert waves == [WAVE_EXTENTS, 904]
    assert len(set(engine.extents)) == WAVE_EXTENTS + 904
    assert ended.state is JobState.RUNNING


def test_a_job_not_reached_before_a_stop_stays_planning() -> None:
    world = World()
    job = world.planner.register(world.request(world.put(b"abc")))
    engine = CallingThreadEngine(until_final(world.worker()))

    listener = RecordingListener()
    runner = JobRunner(
        "calling", engine, world.planner, world.ledger, listener, stopped=lambda: True
    )

    (left,) = runner.drive([job], listener)

    assert left.state is JobState.PLANNING
    assert engine.runs == []


# -- until final ----------------------------------------------------------------------------------


def test_a_busy_extent_is_taken_over_when_its_lease_ends() -> None:
    world = World()
    (one,) = world.extents(world.job(b"abc"))
    world.slots("paused").claim(one, ProducerSettings())
    began = world.ticker.now

    receipt = run_until_final(one, world.worker())

    assert receipt.outcome is Outcome.DONE
    assert world.ticker.now - began >= 3
    assert world.delivered() == expected(b"abc")


def test_a_stopping_worker_returns_a_busy_extent() -> None:
    world = World()
    (one,) = world.extents(world.job(b"abc"))
    world.slots("paused").claim(one, ProducerSettings())

    receipt = run_until_final(one, world.worker(stopping=lambda: True))

    assert receipt.outcome is Outcome.BUSY
    assert receipt.retry_after_seconds > 0


def test_a_defect_fails_its_extent_and_names_the_error() -> None:
    world = World()
    one, other = world.extents(world.job(b"abcdefgh"))
    work = world.worker()
    pipeline = work.open

    def defective(extent: Extent) -> Pipeline:
        if extent == one:
            raise ZeroDivisionError("a defect")
        return pipeline(extent)

    receipts = [run_until_final(each, replace(work, open=defective)) for each in (one, other)]

    assert [receipt.outcome for receipt in receipts] == [Outcome.FAILED, Outcome.DONE]
    assert receipts[0].reason == f"{one.uri}: unexpected ZeroDivisionError: a defect"
    assert world.ledger.extents.get(one.job, 0).state is ExtentState.FAILED


@pytest.mark.parametrize("error", [LedgerUnavailable("unavailable"), Conflict("another range")])
def test_our_own_errors_are_raised_to_the_engine(error: Exception) -> None:
    world = World()
    (one,) = world.extents(world.job(b"abc"))

    def failing(_extent: Extent) -> ProducerSettings:
        raise error

    with pytest.raises(type(error)):
        run_until_final(one, replace(world.worker(), client=failing))


# -- paused and stopped connectors ----------------------------------------------------------------


PAUSED = "connector c is PAUSED; continue it with `extentflow resume c`"


def want(world: World, state: ConnectorState) -> None:
    world.ledger.connectors.put("c", {})
    assert world.ledger.connectors.set_state("c", state)


@pytest.mark.parametrize("state", [ConnectorState.PAUSED, ConnectorState.STOPPED])
def test_an_extent_of_a_paused_or_stopped_connector_is_not_claimed(state: ConnectorState) -> None:
    world = World()
    (one,) = world.extents(world.job(b"abc"))
    want(world, state)
    skip_reason = ConnectorStateCache(world.ledger, world.ticker.read).skip_reason

    receipt = run_until_final(one, world.worker(), skip_reason)

    assert (receipt.outcome, receipt.records) == (Outcome.SKIPPED, 0)
    assert f"connector c is {state}" in receipt.reason
    assert world.ledger.extents.get(one.job, 0).attempts == 0
    assert world.delivered() == []
    assert list(world.ledger.slots.list(world.broker.cluster)) == []


def test_an_extent_in_progress_is_skipped_once_its_holder_released_it() -> None:
    world = World()
    (one,) = world.extents(world.job(b"abc"))
    holder = world.slots("holder")
    claim = holder.claim(one, ProducerSettings())
    assert isinstance(claim, Claim)
    looks: list[float] = []

    def skip_reason(_connector: str) -> str:
        looks.append(world.ticker.now)
        if len(looks) == 4:
            holder.hand_back(claim, position=0, records=0, bad=0, filtered=0, keep_attempt=False)
        elif len(looks) < 4:
            holder.renew()
        return PAUSED

    receipt = run_until_final(one, world.worker(), skip_reason)

    assert receipt.outcome is Outcome.SKIPPED
    assert len(looks) == 4
    assert world.delivered() == []


def test_an_extent_of_a_dead_worker_is_skipped_after_its_lease_ended() -> None:
    world = World()
    (one,) = world.extents(world.job(b"abc"))
    world.slots("dead").claim(one, ProducerSettings())
    began = world.ticker.now

    receipt = run_until_final(one, world.worker(), lambda _connector: PAUSED)

    assert receipt.outcome is Outcome.SKIPPED
    assert 3 <= world.ticker.now - began < 10


def test_an_extent_counts_as_held_while_the_ledger_is_unavailable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    (one,) = world.extents(world.job(b"abc"))
    world.ledger.refuse("extent", times=1)

    receipt = run_until_final(one, world.worker(), lambda _connector: PAUSED)

    assert receipt.outcome is Outcome.SKIPPED
    assert "cannot read whether a worker holds it" in caplog.text


def test_a_stopping_worker_does_not_wait_for_the_holder_of_an_extent() -> None:
    world = World()
    (one,) = world.extents(world.job(b"abc"))
    world.slots("holder").claim(one, ProducerSettings())
    began = world.ticker.now

    stopping = world.worker(stopping=lambda: True)
    receipt = run_until_final(one, stopping, lambda _connector: PAUSED)

    assert (receipt.outcome, world.ticker.now) == (Outcome.SKIPPED, began)


def test_a_skipped_extent_skips_the_later_extents_of_its_job_in_the_task() -> None:
    """After a resume, the later extents of an ordered job would wait for it forever."""
    world = World()
    first, second = world.extents(world.job(b"abcdefgh", ordered=True))
    (other,) = world.extents(world.job(b"xyz", "other"))
    answers = iter([PAUSED, "", "", ""])
    work = world.worker()

    receipts = list(
        run_in_turn(
            [first, second, other],
            lambda extent: run_until_final(extent, work, lambda _connector: next(answers)),
        )
    )

    assert [(one.job, one.ordinal, one.outcome) for one in receipts] == [
        (first.job, 0, Outcome.SKIPPED),
        (first.job, 1, Outcome.SKIPPED),
        (other.job, 0, Outcome.DONE),
    ]
    assert receipts[1].uri == second.uri


def test_a_driver_neither_plans_nor_sends_extents_of_a_paused_connector() -> None:
    world = World()
    begun = world.job(b"abc", "begun")
    new = world.planner.register(world.request(world.put(b"abc", "new")))
    want(world, ConnectorState.PAUSED)
    engine = CallingThreadEngine()

    ended = driven(world, [begun, new], engine)

    assert [job.state for job in ended] == [JobState.RUNNING, JobState.PLANNING]
    assert engine.runs == []


@dataclass
class StateChange(CallingThreadEngine):
    """An engine during whose first run the connector changes its state."""

    world: World | None = None
    state: ConnectorState = ConnectorState.PAUSED
    seconds: float = CACHE_SECONDS

    def run(self, tasks: Sequence[Task], watch: RunListener) -> None:
        assert self.world is not None
        if not self.runs:
            want(self.world, self.state)
            self.world.ticker.sleep(self.seconds)
        super().run(tasks, watch)


def test_a_wave_after_a_pause_is_not_sent() -> None:
    world = World()
    job = world.job(b"x" * (WAVE_EXTENTS + 904), extent_bytes=1)
    engine = StateChange(world=world)

    (ended,) = driven(world, [job], engine)

    assert len(engine.runs) == 1
    assert ended.state is JobState.RUNNING


def test_later_waves_skip_a_job_that_a_worker_skipped_even_after_a_resume() -> None:
    world = World()
    job = world.job(b"x" * (WAVE_EXTENTS + 904), extent_bytes=1, ordered=True)

    def leave(extent: Extent) -> Receipt:
        return Receipt(extent.job, extent.ordinal, extent.uri, Outcome.SKIPPED, reason=PAUSED)

    engine, watch = CallingThreadEngine(leave), RecordingListener()

    (ended,) = driven(world, [job], engine, watch)

    assert len(engine.runs) == 1
    assert len(watch.receipts) == WAVE_EXTENTS
    assert ended.state is JobState.RUNNING


def test_a_stop_cancels_open_jobs_and_leaves_complete_jobs_done() -> None:
    world = World()
    done, missed = world.job(b"abc", "done"), world.job(b"x" * WAVE_EXTENTS, extent_bytes=1)
    (whole,) = world.extents(done)
    run_until_final(whole, world.worker())
    engine = StateChange(world=world, state=ConnectorState.STOPPED, seconds=0)

    ended = driven(world, [done, missed], engine)

    assert [job.state for job in ended] == [JobState.DONE, JobState.CANCELLED]
    assert ended[1].reason == "connector c was stopped"
