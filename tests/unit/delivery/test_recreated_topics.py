"""A topic that is deleted and created again during a job loses records: the job is never DONE."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from tests.support.memory_delivery import DEAD, TOPIC, World, expected

from extentflow.delivery.runner import run_extent
from extentflow.delivery.topic_identity import RECENT_SECONDS
from extentflow.errors import SinkUnavailable, TopicLost
from extentflow.kafka import SlotProgress
from extentflow.ledger import Claim
from extentflow.model import Job, JobState, Outcome
from extentflow.testing.broker import MemoryBroker, MemorySink

BODY = b"abcdefgh"
GUARANTEES = pytest.mark.parametrize("exactly_once", [True, False])


def ended(world: World, job: Job) -> tuple[JobState, str]:
    found = world.ledger.jobs.get(job.id)
    assert found is not None
    return found.state, found.reason


def require_named(world: World, job: Job, *ids: str) -> None:
    """The job ended, names the topic with both ids, and says how its object is delivered."""
    state, reason = ended(world, job)
    assert state is JobState.FAILED
    assert all(each in reason for each in (*ids, "extentflow run "))


@GUARANTEES
def test_extents_of_a_job_go_to_one_topic(*, exactly_once: bool) -> None:
    """Also those that another worker delivers after an interruption."""
    world = World(exactly_once=exactly_once)
    job = world.job(BODY)
    first, second = world.extents(job)

    assert run_extent(first, world.worker()).outcome is Outcome.DONE
    world.broker.create_topic(TOPIC)
    receipt = run_extent(second, world.worker())

    assert receipt.outcome is not Outcome.DONE
    require_named(world, job, "topic-1", "topic-3", TOPIC)
    assert not world.delivered()


@GUARANTEES
def test_a_topic_created_again_between_two_commits_ends_the_job(
    *, exactly_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(exactly_once=exactly_once)
    job = world.job(BODY * 4, extent_bytes=100)
    (extent,) = world.extents(job)
    recreate_at(world, monkeypatch, commits=2)

    assert run_extent(extent, world.worker()).outcome is not Outcome.DONE

    require_named(world, job, "topic-1", "topic-3")


@GUARANTEES
def test_a_topic_created_again_before_the_last_commit_ends_the_job(
    *, exactly_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit itself succeeds: it names the topic, and the records went to the former one."""
    world = World(exactly_once=exactly_once)
    job = world.job(b"ab")
    (extent,) = world.extents(job)
    recreate_at(world, monkeypatch, commits=1)

    assert run_extent(extent, world.worker()).outcome is not Outcome.DONE

    require_named(world, job, "topic-1", "topic-3")
    assert not world.delivered()


def test_a_worker_that_died_behind_its_last_commit_leaves_no_job_that_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka's progress says that the extent is done, and the topic lacks its records."""
    world = World()
    job = world.job(b"ab")
    (extent,) = world.extents(job)

    def dies(claim: Claim, **_totals: object) -> None:
        raise KeyboardInterrupt(claim.extent.uri)

    with monkeypatch.context() as patched:
        patched.setattr(world.ledger.extents, "complete", dies)
        with pytest.raises(KeyboardInterrupt):
            run_extent(extent, world.worker())
    world.broker.create_topic(TOPIC)
    world.ticker.now += 1_000

    assert run_extent(extent, world.worker()).outcome is not Outcome.DONE
    require_named(world, job, "topic-1", "topic-3")


def test_a_topic_that_is_absent_keeps_the_job_open(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(limits=replace(World().limits, retry_seconds=1))
    job = world.job(b"ab")
    (extent,) = world.extents(job)
    commit = MemorySink.commit

    def deletes(self: MemorySink, progress: SlotProgress) -> None:
        commit(self, progress)
        if progress.done:
            world.broker.delete_topic(TOPIC)

    with monkeypatch.context() as patched:
        patched.setattr(MemorySink, "commit", deletes)
        with pytest.raises(TopicLost, match=TOPIC):
            run_extent(extent, world.worker())
    assert ended(world, job)[0] is JobState.RUNNING
    world.broker.create_topic(TOPIC)
    world.ticker.now += 1_000

    run_extent(extent, world.worker())

    require_named(world, job, "topic-1", "topic-3")


def test_another_delivery_of_the_object_goes_to_the_topic_of_now() -> None:
    world = World()
    job = world.job(BODY)
    first, second = world.extents(job)
    run_extent(first, world.worker())
    world.broker.create_topic(TOPIC)
    run_extent(second, world.worker())
    world.ticker.now += 1
    now = world.ticker.now

    again = world.planner.plan(world.planner.register(world.request(job.version), again=now))
    for extent in world.extents(again):
        assert run_extent(extent, world.worker()).outcome is Outcome.DONE

    assert ended(world, again)[0] is JobState.DONE
    assert sorted(world.delivered()) == sorted(expected(BODY))


@pytest.mark.parametrize(("body", "state"), [(b"abcdefgh", JobState.DONE), (b"ab!d", None)])
def test_a_dead_letter_queue_counts_once_it_has_letters(
    body: bytes, state: JobState | None
) -> None:
    world = World(tolerant=True)
    job = world.job(body + b"efgh")
    first, *others = world.extents(job)
    run_extent(first, world.worker())

    world.broker.create_topic(DEAD)
    for extent in others:
        run_extent(extent, world.worker())

    if state is None:
        require_named(world, job, DEAD, "topic-2", "topic-3", "if any, are gone")
    else:
        assert ended(world, job)[0] is state


def test_brokers_without_ids_are_taken_at_their_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(_: MemoryBroker, names: Sequence[str]) -> Mapping[str, str]:
        return dict.fromkeys(names, "")

    monkeypatch.setattr(MemoryBroker, "present_topics", answer)
    world = World()
    job = world.job(BODY)

    assert all(
        run_extent(one, world.worker()).outcome is Outcome.DONE for one in world.extents(job)
    )
    found = world.ledger.jobs.get(job.id)
    assert found is not None
    assert (found.state, found.topics) == (JobState.DONE, {})


def test_brokers_are_asked_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice for an extent, and once within seconds where one follows another."""
    asked, ask = list[float](), MemoryBroker.present_topics
    world = World()

    def counted(self: MemoryBroker, names: Sequence[str]) -> Mapping[str, str]:
        asked.append(world.ticker.now)
        return ask(self, names)

    monkeypatch.setattr(MemoryBroker, "present_topics", counted)
    worker = world.worker()
    job = world.job(BODY * 8)
    extents = world.extents(job)
    begun = world.ticker.now
    for extent in extents:
        assert run_extent(extent, worker).outcome is Outcome.DONE
    seconds = world.ticker.now - begun

    assert len(asked) <= len(extents) + 2 + seconds / RECENT_SECONDS


def test_an_outage_of_brokers_between_commits_aborts_no_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last answer has to come: an extent is not DONE without it."""
    answers, ask = list[bool](), MemoryBroker.present_topics
    world = World()

    def flaky(self: MemoryBroker, names: Sequence[str]) -> Mapping[str, str]:
        answers.append(len(answers) % 3 == 0)
        if not answers[-1]:
            raise SinkUnavailable("no answer")
        return ask(self, names)

    monkeypatch.setattr(MemoryBroker, "present_topics", flaky)
    job = world.job(BODY * 4, extent_bytes=100)
    (extent,) = world.extents(job)

    assert run_extent(extent, world.worker()).outcome is Outcome.DONE
    assert world.delivered() == expected(BODY * 4)
    assert ended(world, job)[0] is JobState.DONE


def recreate_at(world: World, monkeypatch: pytest.MonkeyPatch, *, commits: int) -> None:
    """Create the topic again as commit number `commits` begins, behind its records."""
    commit, seen = MemorySink.commit, list[SlotProgress]()

    def recreated(self: MemorySink, progress: SlotProgress) -> None:
        seen.append(progress)
        if len(seen) == commits:
            world.broker.create_topic(TOPIC)
            world.ticker.now += RECENT_SECONDS / 2
        commit(self, progress)

    monkeypatch.setattr(MemorySink, "commit", recreated)
