"""Process deaths, freezes and duplicate messages on the event path: each record arrives once.

Each test ends with the same verdict: a reader of committed records finds every line once, the jobs
are DONE, no extent is claimed, the dead-letter queues are empty.

A test that needs a worker in the middle of an extent holds back the object's last window: what came
before is read, sent and partly committed, and the worker waits in an open transaction.
"""

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from tests.integration.faultproxy import DropResponse, Fault, FaultProxy, Hold, Request, Reset, Rule
from tests.support.delivery import joined, numbered_lines
from tests.support.eventpath import (
    Ending,
    EventPath,
    Feed,
    Ground,
    announcement,
)
from tests.support.waiting import eventually

from extentflow.ledger import ClaimMark
from extentflow.model import JobState
from extentflow.queue.dispatch import body_of
from extentflow_local.aws.event_source.delivery import Delivery
from extentflow_local.aws.event_source.execution import Verdict
from extentflow_local.stack.stack import Stack

# Two windows of a worker, three chunks in the first: one is committed at once, as an extent's first
# transaction is small; the other two wait in an open transaction for the last window.
LINES = numbered_lines(f"line-{'.' * 50}-", 150_000)
BODY = joined(LINES)
# No transaction ends by timeout: its producer is fenced, or commits before the function's deadline.
SETTINGS = {
    "transaction.max.bytes": "8MiB",
    "transaction.max.seconds": "110",
    "transaction.timeout.ms": "240000",
}
FENCED = "fenced by a newer instance"
FEW = numbered_lines("few-", 2_000)

patiently = eventually


@pytest.fixture(scope="module")
def ledger_way(stack: Stack) -> Iterator[FaultProxy]:
    with FaultProxy(stack.endpoint("dynamodb")) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def path(ground: Ground, ledger_way: FaultProxy) -> Iterator[EventPath]:
    way = {"EXTENTFLOW_LEDGER_ENDPOINT": ledger_way.endpoint}
    with ground.open(settings=SETTINGS, environment=way) as path:
        yield path


@pytest.fixture(scope="module")
def hurried(ground: Ground) -> Iterator[EventPath]:
    """A path whose workers have less time than they want to have left: one chunk, and back."""
    with ground.open(
        lambda deployment: deployment.with_function("worker", timeout_seconds=15.0),
        settings={**SETTINGS, "extent.attempts.max": "1000"},  # each attempt may fail
    ) as path:
        yield path


def held_feed(path: EventPath, proxy: FaultProxy, **config: str) -> Feed:
    return path.feed(aws_s3_endpoint=proxy.endpoint, **config)


class HeldReads(NamedTuple):
    """The rule that counts reads which wait, and the event that lets them go on."""

    rule: Rule
    released: threading.Event


@contextmanager
def last_window_held(proxy: FaultProxy, size: int = len(BODY)) -> Iterator[HeldReads]:
    """Block reads of an object's end until they are released or the block is left."""
    released = threading.Event()
    last = f"-{size - 1}"
    rule = proxy.inject(
        Hold(released), when=lambda one: (one.byte_range or "").endswith(last), times=None
    )
    try:
        yield HeldReads(rule, released)
    finally:
        released.set()


def ended(path: EventPath, pid: int, verdict: Verdict, *, since: int = 0) -> Delivery:
    """Wait for the end of an invocation in a process, with that verdict; return the first one."""

    def found(seen: list[Delivery]) -> list[Delivery]:
        ours = (one for one in seen[since:] if one.outcome.pid == pid)
        return [one for one in ours if one.outcome.verdict is verdict]

    return found(path.seen.until(lambda seen: bool(found(seen))))[0]


def seen_since(path: EventPath, before: int) -> list[Delivery]:
    """Return what workers were called with since so many invocations."""
    return [one for one in path.seen.deliveries[before:] if one.function == "worker"]


def claim_of(feed: Feed) -> ClaimMark:
    """Return who holds the feed's only extent."""
    (item,) = feed.items()
    assert item.claim is not None
    return item.claim


# -- workers --------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_worker_killed_within_an_extent_loses_and_duplicates_nothing(
    path: EventPath, s3_proxy: FaultProxy
) -> None:
    feed = held_feed(path, s3_proxy)
    with last_window_held(s3_proxy):
        feed.upload("lines.txt", BODY)
        patiently("a worker is in the middle of an extent", feed.is_mid_extent)

        pid = path.signal("worker", signal.SIGKILL)
        ended(path, pid, Verdict.DIED)

    assert feed.ending(LINES) == Ending(records=len(LINES))
    # Records that the killed worker committed are not delivered again; it left no receipt.
    assert 0 < sum(receipt["records"] for receipt in feed.receipts()) < len(LINES)


@pytest.mark.outage
def test_a_worker_killed_at_its_functions_deadline_is_made_up_for(
    hurried: EventPath, s3_proxy: FaultProxy
) -> None:
    feed = held_feed(hurried, s3_proxy)
    with last_window_held(s3_proxy):
        before = len(hurried.seen.deliveries)
        feed.upload("lines.txt", BODY)
        patiently(
            "a worker has an extent of which a part is committed",
            lambda: any(item.position > 0 and item.claim is not None for item in feed.items()),
        )
        pid = hurried.signal("worker", signal.SIGSTOP)  # a store that hangs is no reason any more
        ended(hurried, pid, Verdict.TIMED_OUT, since=before)

    assert feed.ending(LINES) == Ending(records=len(LINES))


@pytest.mark.long
def test_before_its_deadline_a_worker_hands_its_extent_to_a_continuation(
    hurried: EventPath,
) -> None:
    feed = hurried.feed()
    before = len(hurried.seen.deliveries)

    feed.upload("lines.txt", BODY)

    assert feed.ending(LINES) == Ending(records=len(LINES))
    outcomes = Counter(receipt["outcome"] for receipt in feed.receipts())
    messages = {name for one in seen_since(hurried, before) for name in one.received}
    assert outcomes["HANDED_BACK"] > 1
    assert len(messages) == 1 + outcomes["HANDED_BACK"]


@pytest.mark.outage
def test_a_worker_frozen_past_its_lease_is_fenced_and_adds_nothing(
    path: EventPath, s3_proxy: FaultProxy, ledger_way: FaultProxy
) -> None:
    feed = held_feed(path, s3_proxy)
    ledger_answers = threading.Event()
    with last_window_held(s3_proxy) as reads:
        upload = feed.upload("lines.txt", BODY)
        patiently("a worker is in the middle of an extent", feed.is_mid_extent)
        pid, since = path.signal("worker", signal.SIGSTOP), len(path.seen.deliveries)
        try:
            reads.released.set()
            feed.await_state(upload, JobState.DONE)
            without_it = feed.delivery.values()
            ledger_way.inject(Hold(ledger_answers), times=None)
            before = len(path.output("worker"))
        finally:
            os.kill(pid, signal.SIGCONT)
    # It cannot hear from the ledger that its lease is over.
    try:
        patiently("Kafka fences it", lambda: FENCED in path.output("worker")[before:])
    finally:
        ledger_answers.set()
    thawed = ended(path, pid, Verdict.RETURNED, since=since)

    assert sorted(without_it) == sorted(LINES)
    assert feed.ending(LINES) == Ending(records=len(LINES))
    shares = {one["function_request_id"]: one["records"] for one in feed.receipts()}
    assert 0 < shares[thawed.outcome.request_id] < len(LINES)
    assert sum(shares.values()) == len(LINES)


# -- messages that come twice ---------------------------------------------------------------------


@pytest.mark.long
def test_a_doubled_extent_message_waits_for_the_first_and_adds_nothing(
    path: EventPath, s3_proxy: FaultProxy
) -> None:
    feed = held_feed(path, s3_proxy)
    with last_window_held(s3_proxy) as reads:
        upload = feed.upload("lines.txt", BODY)
        # Not by an open transaction: a busy machine may make the worker commit before it waits.
        reads.rule.await_hits()
        job = feed.await_state(upload, JobState.RUNNING)
        (extent,) = feed.delivery.runtime.planner().extents(job)
        before = len(path.seen.deliveries)

        held = claim_of(feed)
        feed.send(path.deployment.queue_of("worker"), [body_of(extent)])
        patiently(
            "the double came back",
            lambda: any(
                one.failed not in {(), (held.message,)} for one in seen_since(path, before)
            ),
        )
        still = claim_of(feed)

    assert still == held
    assert feed.ending(LINES) == Ending(records=len(LINES))


@pytest.mark.long
def test_a_message_redelivered_while_its_worker_still_runs_adds_nothing(
    ground: Ground, s3_proxy: FaultProxy
) -> None:
    # Renewed every 20 s, hidden for one second: delivered again and again.
    with ground.open(settings={**SETTINGS, "lease.seconds": "60"}, most_hidden_seconds=1) as path:
        feed = held_feed(path, s3_proxy)
        with last_window_held(s3_proxy):
            feed.upload("lines.txt", BODY)
            patiently(
                "its message comes back again and again",
                lambda: sum(bool(one.failed) for one in seen_since(path, 0)) >= 3,
            )
            held = claim_of(feed)

        # A slow planner sees the arrival again, too, and sends the extent in a second message.
        assert held.message in {name for one in seen_since(path, 0) for name in one.received}
        assert feed.ending(LINES) == Ending(records=len(LINES))


# -- notifications --------------------------------------------------------------------------------


@pytest.mark.long
def test_repeated_and_reordered_notifications_deliver_each_version_once(
    path: EventPath, versioned_bucket: str
) -> None:
    feed = path.feed(versioned_bucket)
    older, newer = (numbered_lines(f"{age}-", 2_000) for age in ("older", "newer"))
    first = feed.put("lines.txt", joined(older))
    second = feed.put("lines.txt", joined(newer))
    other = feed.put("others.txt", joined(FEW))

    feed.send(
        path.deployment.queue_of("planner"),
        [
            together(announcement(second), announcement(first), announcement(second)),
            *map(announcement, (second, other, first, other, second, first)),
        ],
    )

    everything = [*older, *newer, *FEW]
    assert feed.ending(everything) == Ending(records=len(everything), jobs={"DONE": 3})


@pytest.mark.long
def test_without_versioning_a_late_event_belongs_to_the_newer_objects_job(
    path: EventPath,
) -> None:
    feed = path.feed()
    newer = numbered_lines("newer-", 2_000)
    first = feed.put("lines.txt", joined(FEW))
    second = feed.put("lines.txt", joined(newer))

    feed.announce(second)
    feed.await_state(second, JobState.DONE)
    feed.announce(first, second, first)

    assert feed.ending(newer) == Ending(records=len(newer))


def together(*messages: str) -> str:
    """Return one message with the records of several."""
    records = [record for message in messages for record in json.loads(message)["Records"]]
    return json.dumps({"Records": records})


# -- planners -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Reset(), DropResponse()], ids=["unsent", "sent, not noted"])
@pytest.mark.long
def test_a_planner_killed_between_registering_and_sending_is_made_up_for(
    path: EventPath, fault: Fault
) -> None:
    feed = path.feed(extent_bytes="1KiB")  # two pages of extents
    seen: list[Any] = []

    def sends_extents(request: Request) -> bool:
        return asks(request, "SendMessageBatch") and b'{"v":1' in request.body.replace(b"\\", b"")

    def strikes(request: Request) -> bool:
        if not sends_extents(request) or seen:
            return False
        seen.extend(feed.jobs())
        ended_pid.append(path.signal("planner", signal.SIGKILL))
        return True

    ended_pid: list[int] = []
    rule = path.proxy.inject(fault, when=strikes)
    feed.upload("lines.txt", joined(FEW))
    rule.await_hits()
    ended(path, ended_pid[0], Verdict.DIED)

    assert [(job.state, job.plan.count) for job in seen] == [(JobState.PLANNING, 0)]
    assert feed.ending(FEW) == Ending(records=len(FEW))


def asks(request: Request, operation: str) -> bool:
    return request.headers.get("x-amz-target") == f"AmazonSQS.{operation}"


# -- objects --------------------------------------------------------------------------------------


@pytest.mark.parametrize("home", ["bucket", "versioned_bucket"])
@pytest.mark.long
def test_an_object_replaced_between_planning_and_delivery_is_never_spliced(
    path: EventPath, s3_proxy: FaultProxy, home: str, request: pytest.FixtureRequest
) -> None:
    feed = held_feed(path, s3_proxy, bucket=request.getfixturevalue(home))
    newer = numbered_lines("newer-", 2_000)
    released = threading.Event()
    rule = s3_proxy.inject(Hold(released), when=lambda one: one.method == "GET")

    old = feed.upload("lines.txt", joined(FEW))
    rule.await_hits()
    new = feed.upload("lines.txt", joined(newer))
    released.set()
    feed.await_state(new, JobState.DONE)

    kept = home == "versioned_bucket"
    feed.await_state(old, JobState.DONE if kept else JobState.SUPERSEDED)
    lines = [*FEW, *newer] if kept else newer
    jobs = {"DONE": 2} if kept else {"DONE": 1, "SUPERSEDED": 1}
    assert feed.ending(lines) == Ending(records=len(lines), jobs=jobs)


@pytest.mark.long
def test_an_object_replaced_in_the_midst_of_its_delivery_is_never_spliced(
    path: EventPath, s3_proxy: FaultProxy
) -> None:
    feed = held_feed(path, s3_proxy)
    with last_window_held(s3_proxy):
        old = feed.upload("lines.txt", BODY)
        patiently("a worker is in the middle of an extent", feed.is_mid_extent)
        new = feed.upload("lines.txt", joined(FEW))
        feed.await_state(new, JobState.DONE)

    feed.await_state(old, JobState.SUPERSEDED)
    (left,) = feed.delivery.runtime.ledger.extents.list(old.job)
    delivered = [*LINES[: left.records], *FEW]
    jobs = {"DONE": 1, "SUPERSEDED": 1}
    assert 0 < left.records < len(LINES)
    assert feed.ending(delivered) == Ending(records=len(delivered), jobs=jobs)
