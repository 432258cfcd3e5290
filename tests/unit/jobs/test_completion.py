"""What happens to an object after its job is DONE, on doubles: once, pinned, and repaired."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest
from tests.support.golden import Golden
from tests.support.local_engine import until_final
from tests.support.memory_delivery import DEAD, TOPIC, World

from extentflow.config.connector import ConnectorConfig
from extentflow.config.parsing import parse
from extentflow.errors import Misconfigured, StoreUnavailable
from extentflow.jobs.completion import FAILURES, CompletionActions
from extentflow.jobs.events import JobEvents
from extentflow.model import Job, JobState
from extentflow.storage import ObjectProperties
from extentflow.testing.services import MemoryJobEvents
from extentflow.testing.stores import Fault, FaultyStore, MemoryStore

MOVED = {"after.completion": "move", "after.completion.move.prefix": "done/"}
DELETED = {"after.completion": "delete"}
TOLERANT = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": DEAD}
TAGGED = {"after.completion": "tag", "after.completion.tag": "delivered=yes"}


@dataclass
class Completed:
    """A world whose connector has `after.completion`."""

    keys: dict[str, str]
    versioned: bool = False
    faults: tuple[Fault, ...] = ()
    conditional_deletes: bool = True
    events: MemoryJobEvents = field(default_factory=MemoryJobEvents)

    def __post_init__(self) -> None:
        self.objects = MemoryStore(
            versioned=self.versioned, conditional_deletes=self.conditional_deletes
        )
        self.world = World(store=self.objects)
        self.store = FaultyStore(self.objects, *self.faults)
        self.world.ledger.connectors.put("c", {})

    @property
    def config(self) -> ConnectorConfig:
        where = {
            "name": "c",
            "topic": TOPIC,
            "aws.s3.bucket.name": "bucket",
            "aws.s3.prefix": "in/",
        }
        return parse({**where, **self.keys})

    @property
    def actions(self) -> CompletionActions:
        return CompletionActions(
            self.world.ledger, lambda _job: self.config, lambda _config, _revision: self.store
        )

    @property
    def job_events(self) -> JobEvents:
        return JobEvents(self.world.ledger, [self.events], lambda _: TOPIC, self.actions.apply)

    def done(self, key: str = "in/a", body: bytes = b"abc") -> Job:
        """Deliver an object; return its DONE job."""
        job = self.world.job(body, key)
        self.deliver(job)
        return self.now(job)

    def deliver(self, job: Job) -> None:
        """Deliver the rest of a job."""
        run = until_final(self.world.worker())
        for extent in self.world.extents(self.world.planner.plan(job)):
            run(extent)

    def now(self, job: Job) -> Job:
        found = self.world.ledger.jobs.get(job.id)
        assert found is not None
        return found

    def keys_left(self) -> list[str]:
        return [found.key for found in self.objects.list("bucket")]


def test_a_delivered_object_is_moved_with_its_metadata() -> None:
    world = Completed(MOVED)
    job = world.done("in/2026/a.csv")

    world.job_events.publish_ended(job)

    assert world.keys_left() == ["done/2026/a.csv"]
    assert world.now(job).published


def test_a_delivered_object_is_deleted() -> None:
    world = Completed(DELETED)

    world.job_events.publish_ended(world.done())

    assert world.keys_left() == []


@pytest.mark.parametrize(
    ("body", "keys", "left"),
    [
        (b"ab!d!", DELETED, ["in/a"]),
        (b"ab!d!", MOVED, ["in/a"]),
        (b"abd", DELETED, []),
        (b"abd", MOVED, ["done/a"]),
    ],
)
def test_an_object_with_dead_letters_is_neither_moved_nor_deleted(
    golden: Golden, body: bytes, keys: dict[str, str], left: list[str]
) -> None:
    """Trap: replays of dead letters read the object, which was gone, and so was the record."""
    world = Completed({**keys, **TOLERANT})
    world.world.tolerant = True
    job = world.done(body=body)

    golden(world.actions.apply(job))

    assert job.state is JobState.DONE
    assert world.keys_left() == left


def test_a_delivered_version_is_tagged() -> None:
    world = Completed(TAGGED, versioned=True)
    job = world.done()
    later = world.objects.put("bucket", "in/a", b"new")

    world.job_events.publish_ended(job)

    assert world.objects.tags(job.version) == {"delivered": "yes"}
    assert world.objects.tags(later) == {}


@pytest.mark.parametrize("keys", [MOVED, DELETED])
def test_equal_bytes_that_are_uploaded_again_are_delivered_before_they_go(
    keys: dict[str, str],
) -> None:
    world = Completed(keys)
    first = world.done()
    world.job_events.publish_ended(first)
    again = world.objects.put("bucket", "in/a", b"abc")

    world.job_events.publish([world.now(first)])  # as a run or notification of that object does
    assert "in/a" in world.keys_left()
    second = world.world.planner.admit(world.world.request(again, removed=True))
    world.deliver(second)
    world.job_events.publish_ended(world.now(second))

    assert (second.generation, second.version.modified) == (1, again.modified)
    assert world.world.delivered() == 2 * [b"0:a", b"1:b", b"2:c"]
    assert "in/a" not in world.keys_left()


def test_an_upload_between_the_delivery_and_its_action_stays() -> None:
    world = Completed(DELETED)
    job = world.done()
    again = world.objects.put("bucket", "in/a", b"abc")

    world.job_events.publish_ended(job)

    assert world.keys_left() == ["in/a"]
    assert world.world.planner.admit(world.world.request(again, removed=True)).generation == 1


def test_a_notification_of_the_same_upload_that_arrives_again_is_the_same_job() -> None:
    world = Completed(DELETED, faults=(Fault("unavailable", "delete", frozenset({1})),))
    job = world.done()
    request = world.world.request(job.version, removed=True)

    assert world.world.planner.admit(request).id == job.id
    assert world.world.planner.delivered("c", [job.version], removed=True)


def test_where_objects_stay_equal_bytes_are_delivered_once() -> None:
    world = Completed({})
    job = world.done()
    again = world.objects.put("bucket", "in/a", b"abc")

    assert world.world.planner.admit(world.world.request(again)).id == job.id
    assert world.world.planner.delivered("c", [again]) == {again: job}
    assert world.world.planner.delivered("c", [again], removed=True) == {}


def test_an_upload_that_no_job_records_stays() -> None:
    world = Completed(DELETED)
    version = world.objects.put("bucket", "in/a", b"abc")
    request = world.world.request(replace(version, modified=0))
    job = world.world.planner.plan(world.world.planner.register(request))
    world.deliver(job)

    failed = world.actions.apply(world.now(job))

    assert "does not record when the object was stored" in failed
    assert world.keys_left() == ["in/a"]


def test_without_after_completion_nothing_is_asked_of_the_store() -> None:
    world = Completed({})
    job = world.done()
    asked = len(world.objects.asked)

    world.job_events.publish_ended(job)

    assert len(world.objects.asked) == asked


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED, JobState.SUPERSEDED])
def test_the_object_of_a_job_that_is_not_done_stays(state: JobState) -> None:
    world = Completed(DELETED)
    job = world.world.job(b"abc", "in/a")

    world.job_events.publish_ended(world.world.ledger.jobs.end(job.id, state, "why"))

    assert world.keys_left() == ["in/a"]


def test_an_object_that_a_later_job_delivers_again_stays() -> None:
    world = Completed(DELETED)
    job = world.done()
    request = world.world.request(job.version)
    again = world.world.planner.register(request, again=world.world.ticker.now + 1)

    world.job_events.publish_ended(job)

    assert again.generation == 1
    assert world.keys_left() == ["in/a"]


@pytest.mark.parametrize("keys", [MOVED, DELETED])
def test_an_object_that_was_replaced_stays(keys: dict[str, str]) -> None:
    world = Completed(keys)
    job = world.done()
    world.objects.put("bucket", "in/a", b"a later object")

    world.job_events.publish_ended(job)

    assert world.keys_left() == ["in/a"]
    assert world.now(job).published


@pytest.mark.parametrize("keys", [MOVED, DELETED])
def test_of_a_versioned_object_only_the_delivered_version_goes(keys: dict[str, str]) -> None:
    world = Completed(keys, versioned=True)
    job = world.done()
    later = world.objects.put("bucket", "in/a", b"a later object")

    world.job_events.publish_ended(job)

    assert world.objects.head("bucket", "in/a") == later
    assert "in/a" in world.keys_left()


@pytest.mark.parametrize("operation", ["copy", "delete"])
def test_a_crash_between_done_and_its_action_is_repaired(operation: str) -> None:
    fault = Fault("unavailable", "copy" if operation == "copy" else "delete", frozenset({1}))
    world = Completed(MOVED, faults=(fault,))
    job = world.done()

    with pytest.raises(StoreUnavailable):
        world.job_events.publish_ended(job)
    before = world.keys_left()
    swept = world.job_events.sweep(10)

    assert "in/a" in before
    assert (swept, world.keys_left(), world.now(job).published) == (1, ["done/a"], True)
    assert len(world.events.events) == 1


def test_an_action_that_succeeded_before_a_crash_is_harmless_again() -> None:
    world = Completed(MOVED)
    job = world.done()
    world.actions.apply(job)

    world.job_events.publish_ended(job)

    assert world.keys_left() == ["done/a"]
    assert world.now(job).published


def test_another_run_of_a_published_job_repeats_what_was_left() -> None:
    world = Completed({})
    job = world.done()
    world.job_events.publish_ended(job)
    world.keys = DELETED

    world.job_events.publish([world.now(job)])

    assert world.keys_left() == []
    assert len(world.events.events) == 1


@pytest.mark.parametrize(
    ("keys", "conditional", "why"),
    [
        ({**MOVED, "after.completion.move.bucket": "elsewhere"}, True, "no such bucket"),
        (DELETED, False, "If-Match of DeleteObject is ignored"),
    ],
)
def test_an_action_that_cannot_succeed_is_reported_and_the_object_stays(
    keys: dict[str, str], *, conditional: bool, why: str
) -> None:
    world = Completed(keys, conditional_deletes=conditional)
    job = world.done()

    world.job_events.publish_ended(job)

    (event,) = world.events.events
    assert (event.state, world.now(job).published) == (JobState.DONE, True)
    assert why in event.completion
    assert "`extentflow run s3://bucket/in/a" in event.completion
    assert FAILURES.read(world.world.ledger.notes, job.id) == event.completion
    assert world.keys_left() == ["in/a"]


def test_the_command_that_repeats_an_action_names_no_version() -> None:
    """Trap: the address of a command is a pattern, in which `?` is any character."""
    world = Completed(DELETED, versioned=True, faults=(Fault("denied", "delete"),))

    world.job_events.publish_ended(world.done())

    (event,) = world.events.events
    assert "`extentflow run s3://bucket/in/a -c c`" in event.completion


def test_the_next_run_repeats_an_action_that_failed() -> None:
    world = Completed({**MOVED, "after.completion.move.bucket": "elsewhere"})
    job = world.done()
    world.job_events.publish_ended(job)
    world.objects.put("elsewhere", "other", b"x")

    world.job_events.publish([world.now(job)])

    assert world.keys_left() == []
    assert FAILURES.read(world.world.ledger.notes, job.id) is None


def test_a_refusal_of_one_object_holds_up_no_other() -> None:
    fault = Fault("denied", "delete", frozenset({1}))
    world = Completed(DELETED, faults=(fault,))
    for number in range(3):
        world.done(f"in/{number}")

    swept = world.job_events.sweep(10)

    assert swept == 3
    assert len(world.keys_left()) == 1


def test_one_connectors_outage_holds_up_no_other_jobs() -> None:
    world = Completed(DELETED, faults=(Fault("unavailable", "delete"),))
    world.world.ledger.connectors.put("z", {})
    for number in range(5):
        world.done(f"in/{number}")
    other = world.world.job(b"abc", "other")
    world.world.ledger.jobs.end(other.id, JobState.CANCELLED, "stopped")

    with pytest.raises(StoreUnavailable):
        world.job_events.sweep(2)

    assert [event.job for event in world.events.events] == [other.id]
    assert world.store.calls["delete"] == 1


def test_a_revision_that_cannot_be_read_changes_nothing() -> None:
    world = Completed(DELETED)
    job = world.done()

    def unreadable(_job: Job) -> ConnectorConfig:
        raise Misconfigured("no such revision")

    CompletionActions(world.world.ledger, unreadable, lambda *_: world.store).apply(job)

    assert world.keys_left() == ["in/a"]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"after.completion": "move"}, "after.completion.move.prefix: missing"),
        ({"after.completion": "tag"}, "after.completion.tag: missing"),
        (
            {"after.completion": "tag", "after.completion.tag": "x"},
            "after.completion.tag='x': write",
        ),
        (
            {**DELETED, "after.completion.move.prefix": "done/"},
            "after.completion.move.prefix: applies",
        ),
        ({**MOVED, "after.completion.move.prefix": "in/done/"}, "overlaps aws.s3.prefix"),
        ({**MOVED, "after.completion.move.prefix": "i"}, "overlaps aws.s3.prefix"),
        ({**MOVED, "after.completion.move.bucket": "bucket", "aws.s3.prefix": ""}, "overlaps"),
    ],
)
def test_a_move_into_the_connectors_own_prefix_is_refused(
    keys: dict[str, str], problem: str
) -> None:
    with pytest.raises(Misconfigured) as refused:
        parse(
            {
                "name": "c",
                "topic": "t",
                "aws.s3.bucket.name": "bucket",
                "aws.s3.prefix": "in/",
                **keys,
            }
        )

    assert problem in str(refused.value)


def test_another_bucket_takes_objects_under_any_prefix() -> None:
    config = Completed({**MOVED, "after.completion.move.bucket": "archive", "aws.s3.prefix": ""})

    assert config.config.moved_to("a/b") == ("archive", "done/a/b")


def test_the_double_keeps_properties_of_a_copy() -> None:
    store = MemoryStore()
    properties = ObjectProperties(datetime(2026, 1, 1, tzinfo=UTC), "text/csv", {"a": "b"})
    version = store.put("bucket", "a", b"x", properties=properties, tags={"t": "1"})

    store.copy(version, "bucket", "b")

    copied = store.head("bucket", "b")
    assert (store.properties(copied), store.tags(copied)) == (properties, {"t": "1"})
