"""Messages of the arrivals queue become jobs in a process of one's own, whatever fails."""

import json
from dataclasses import dataclass, field

import pytest
from tests.support.golden import Golden
from tests.support.memory_runtime import BUCKET, MemoryRuntime

from extentflow.discovery import Arrival, Dialect
from extentflow.discovery.documents import wrapped
from extentflow.errors import QueueUnavailable
from extentflow.ledger import ConnectorState
from extentflow.model import JobState
from extentflow.queue import Backfill
from extentflow.queue.consumer import PAUSED_RECEIVES
from extentflow.testing.services import MemoryQueue
from extentflow.testing.stores import Fault, FaultyStore
from extentflow.wiring.arrivals import ArrivalIntake


@dataclass
class Site:
    """A runtime in memory with an arrivals queue; `stopping` requests the end of the intake."""

    runtime: MemoryRuntime = field(default_factory=MemoryRuntime)
    stopping: bool = False

    def __post_init__(self) -> None:
        self.arrivals = MemoryQueue(self.runtime.ticker.read)
        self.dead = MemoryQueue(self.runtime.ticker.read)
        self.runtime.put_connector()

    def announce(self, *keys: str) -> None:
        records = [
            {
                "eventVersion": "2.1",
                "eventSource": "aws:s3",
                "eventName": "ObjectCreated:Put",
                "s3": {"bucket": {"name": BUCKET}, "object": {"key": key, "size": 4}},
            }
            for key in keys
        ]
        self.arrivals.send([wrapped(json.dumps({"Records": records}).encode(), None)])

    def intake(self) -> ArrivalIntake:
        return ArrivalIntake(self.runtime, self.arrivals, self.dead, lambda: self.stopping)

    def take(self) -> int:
        return self.intake().take(most=100)


@pytest.fixture
def site() -> Site:
    return Site()


def test_an_announced_object_gets_a_job_that_is_cut(site: Site) -> None:
    site.runtime.put(lines=3)
    site.announce("c/a.txt")

    assert site.take() == 1

    assert site.runtime.states() == {"c/a.txt": JobState.RUNNING}
    (job,) = site.runtime.memory.jobs.list()
    assert job.plan.count == 3
    assert site.arrivals.messages == []


def test_a_repeated_notification_meets_the_same_job(site: Site) -> None:
    site.runtime.put()
    for _ in range(3):
        site.announce("c/a.txt")

    assert site.take() == 3

    assert len(list(site.runtime.memory.jobs.list())) == 1


@pytest.mark.parametrize("moment", ["receive", "delete"])
def test_a_process_that_dies_leaves_the_message_to_the_next_one(site: Site, moment: str) -> None:
    class Killed(BaseException):
        pass

    def die(name: str) -> None:
        if name == moment:
            raise Killed

    site.runtime.put()
    site.announce("c/a.txt")
    # After the message was received; before it is deleted, that is after the job is registered.
    if moment == "receive":
        site.arrivals.on_answer = die
    else:
        site.arrivals.on_call = die
    with pytest.raises(Killed):
        site.take()
    site.arrivals.on_call = site.arrivals.on_answer = lambda _: None
    assert site.take() == 0
    site.runtime.ticker.sleep(121)

    assert site.take() == 1

    assert site.runtime.states() == {"c/a.txt": JobState.RUNNING}
    assert site.arrivals.messages == []


def test_an_object_whose_store_is_unavailable_is_tried_again(site: Site) -> None:
    site.runtime.put()
    site.announce("c/a.txt")
    fault = Fault("unavailable", "head", calls=frozenset({1}))
    site.runtime.reads = FaultyStore(site.runtime.memory_store, fault)

    assert site.take() == 1
    assert site.runtime.states() == {}
    site.runtime.ticker.sleep(300)
    site.take()

    assert site.runtime.states() == {"c/a.txt": JobState.RUNNING}
    assert site.dead.messages == []


def test_what_no_connector_reads_is_dead_lettered_with_the_reason(
    site: Site, golden: Golden
) -> None:
    site.announce("elsewhere/a.txt")
    site.arrivals.send(["{", json.dumps(Backfill("b1", "c").to_message())])

    assert site.take() == 3

    assert site.arrivals.messages == []
    reasons = [one.reason for one in site.dead.messages]
    assert len(reasons) == 3
    golden(reasons[0])
    assert "s3://shop/elsewhere/a.txt" in reasons[0]
    golden(reasons[2])
    assert "`extentflow run -c c --engine spark`" in reasons[2]


def test_arrivals_of_a_paused_connector_wait_as_long_as_it_is_paused(site: Site) -> None:
    site.runtime.put()
    site.announce("c/a.txt")
    site.runtime.memory.connectors.set_state("c", ConnectorState.PAUSED)

    for _ in range(PAUSED_RECEIVES + 10):
        site.take()
        site.runtime.ticker.sleep(301)
    assert site.runtime.states() == {}
    assert len(site.arrivals.messages) == 1
    site.runtime.memory.connectors.set_state("c", ConnectorState.ENABLED)
    site.take()

    assert site.runtime.states() == {"c/a.txt": JobState.RUNNING}
    assert site.arrivals.messages == []


def test_a_stop_ends_the_intake_and_leaves_the_rest(site: Site) -> None:
    for number in range(3):
        site.runtime.put(f"c/{number}.txt")
        site.announce(f"c/{number}.txt")
    registered: list[str] = []

    def stop(name: str) -> None:
        if name == "register":
            registered.append(name)
            site.stopping = True

    site.runtime.memory.on_call = stop

    assert site.take() == 1

    assert len(site.runtime.states()) == 1
    assert len(site.arrivals.messages) == 2


def test_time_that_is_up_in_a_message_makes_messages_of_the_rest(site: Site) -> None:
    for number in range(3):
        site.runtime.put(f"c/{number}.txt")
    site.announce("c/0.txt", "c/1.txt", "c/2.txt")
    site.runtime.memory.on_call = lambda name: site.runtime.ticker.sleep(
        11 if name == "register" else 0
    )

    site.take()

    assert set(site.runtime.states()) == {"c/0.txt"}
    assert len(site.arrivals.messages) == 2
    for _ in range(2):
        site.take()
    assert set(site.runtime.states()) == {"c/0.txt", "c/1.txt", "c/2.txt"}


def test_an_unavailable_queue_counts_as_empty(site: Site) -> None:
    site.arrivals.failures = 1

    assert site.take() == 0


def test_arrivals_that_a_command_announces_are_taken_too(site: Site) -> None:
    site.runtime.put()
    arrival = Arrival(BUCKET, "c/a.txt", Dialect.COMMAND)
    site.arrivals.send([json.dumps(arrival.to_message())])

    site.take()

    assert site.runtime.states() == {"c/a.txt": JobState.RUNNING}


def test_a_dead_letter_queue_that_fails_keeps_the_message(site: Site) -> None:
    site.announce("elsewhere/a.txt")
    site.dead.failures = 1

    site.take()

    assert len(site.arrivals.messages) == 1
    assert site.dead.messages == []
    site.runtime.ticker.sleep(300)
    site.take()
    assert site.arrivals.messages == []
    assert len(site.dead.messages) == 1


def test_a_message_that_cannot_be_deleted_returns_by_itself(site: Site) -> None:
    site.runtime.put()
    site.announce("c/a.txt")

    def refuse(name: str) -> None:
        if name == "delete":
            raise QueueUnavailable("injected")

    site.arrivals.on_call = refuse

    site.take()

    assert site.runtime.states() == {"c/a.txt": JobState.RUNNING}
    assert len(site.arrivals.messages) == 1
