"""A backlog of one connector does not delay another connector's extents."""

import json
from collections import Counter
from dataclasses import replace

from tests.support.memory_delivery import expected
from tests.support.queued import Queued

from extentflow.ledger import ConnectorState
from extentflow.model import Extent, Job
from extentflow.queue import Message
from extentflow.queue.consumer import PAUSED_RECEIVES

BACKLOG = 400
WORKERS = 20
HIDE_SECONDS = 180.0


def planned(queued: Queued, connector: str, extents: int) -> Job:
    """Register an object of a connector, and send its extents."""
    version = queued.world.put(b"x" * 4 * extents, f"{connector}/{extents}")
    request = replace(queued.world.request(version), connector=connector)
    return queued.dispatch.start(queued.world.planner.register(request))


def pause(queued: Queued, connector: str) -> None:
    queued.world.ledger.connectors.put(connector, {"name": connector})
    assert queued.world.ledger.connectors.set_state(connector, ConnectorState.PAUSED)


def connectors(messages: list[Message]) -> list[str]:
    return [json.loads(message.body)["connector"] for message in messages]


def take(queued: Queued, count: int) -> list[Message]:
    """Receive message by message, as that many workers do; none is deleted."""
    return [
        message
        for _ in range(count)
        for message in queued.queue.receive(hide_seconds=HIDE_SECONDS, most=1)
    ]


def test_extents_of_a_small_object_do_not_wait_behind_a_backfill() -> None:
    queued = Queued()
    planned(queued, "bulk", BACKLOG)
    busy = take(queued, WORKERS)
    planned(queued, "orders", 3)

    following = take(queued, 3)

    assert connectors(busy) == ["bulk"] * WORKERS
    assert connectors(following) == ["orders"] * 3


def test_two_backlogs_share_the_workers() -> None:
    queued = Queued()
    planned(queued, "bulk", BACKLOG)
    planned(queued, "orders", BACKLOG // 4)

    shares = Counter(connectors(take(queued, WORKERS)))

    assert shares == {"bulk": WORKERS // 2, "orders": WORKERS // 2}


def test_one_connector_alone_uses_all_workers() -> None:
    queued = Queued()
    planned(queued, "bulk", BACKLOG)

    assert len(take(queued, WORKERS)) == WORKERS


def test_a_paused_backlog_does_not_delay_another_connector() -> None:
    """Its messages are received and returned; between two of them another one's are delivered."""
    queued = Queued()
    planned(queued, "bulk", 50)
    pause(queued, "bulk")
    body = b"x" * 12
    planned(queued, "orders", 3)
    worker = queued.worker()

    for _ in range(6):
        (message,) = take(queued, 1)
        queued.settle(message, worker.handle(message))

    assert queued.world.delivered() == expected(body)


# -- every way to send keeps the group ------------------------------------------------------------


def test_extents_sent_again_are_in_their_connectors_group() -> None:
    queued = Queued()
    job = planned(queued, "orders", 3)

    queued.dispatch.resend(job)

    assert {message.group for message in queued.queue.messages} == {"orders"}


def test_a_paused_connectors_copy_is_in_its_group_even_without_one_before() -> None:
    """Messages of versions without groups are in none."""
    queued = Queued()
    job = planned(queued, "orders", 1)
    (extent,) = queued.world.extents(job)
    pause(queued, "orders")

    queued.worker().handle(_old(extent, received=PAUSED_RECEIVES))

    assert [message.group for message in queued.queue.messages] == ["orders", "orders"]


def test_a_dead_letter_keeps_its_group() -> None:
    queued = Queued()
    job = planned(queued, "orders", 1)
    (extent,) = queued.world.extents(job)
    unknown = replace(extent, job="0" * len(extent.job))

    queued.worker().handle(_old(unknown))

    assert [message.group for message in queued.dead.messages] == ["orders"]


def _old(extent: Extent, *, received: int = 1) -> Message:
    return Message("old", json.dumps(extent.to_message()), "handle", received)
