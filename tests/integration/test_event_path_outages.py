"""Long outages, operator actions and bursts: no record is lost, none is duplicated.

`path` has few attempts and short times, so that many receives cost more than extents may fail; what
it knows of the ledger passes `ledger_way`.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from gzip import compress
from typing import Any
from uuid import uuid4

import psutil
import pytest
from demo.eventpath import Upload
from tests.integration.faultproxy import Answer, Delay, Fault, FaultProxy, Request, Reset
from tests.support.delivery import PROGRAM, joined, numbered_lines
from tests.support.eventpath import Ending, EventPath, Feed, Ground
from tests.support.waiting import AWAITED_SECONDS, eventually

from extentflow.ledger import ConnectorState, ExtentItem
from extentflow.model import ExtentState, JobState
from extentflow.wiring import Runtime
from extentflow_local.aws.event_source.delivery import Delivery
from extentflow_local.aws.event_source.lineage import MOST_VISITS
from extentflow_local.stack.servers.kafka import Kafka
from extentflow_local.stack.servers.sqs import ElasticMq
from extentflow_local.stack.stack import Stack

# A broker that comes back and hundreds of objects take their time on a busy machine.
ATTEMPTS = 3
RECEIVES = ATTEMPTS + 1
IMPATIENT = {"extent.attempts.max": str(ATTEMPTS), "retry.timeout.seconds": "0"}
HIDDEN_SECONDS = 2
EXTENT = "64KiB"
LINE_BYTES = 1_024
IDLE_MS = 2_000
LATE = "late"
SMALL_OBJECTS = 120
SMALL_LINES = 10


@pytest.fixture(scope="module")
def quick_queues(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    root = tmp_path_factory.mktemp("quick")
    with Stack(root, services=[ElasticMq(durable=False)], free_ports=True) as running:
        running.up()
        yield running


@pytest.fixture(scope="module")
def quick_ground(ground: Ground, quick_queues: Stack) -> Ground:
    return replace(ground, queues=quick_queues)


@pytest.fixture(scope="module")
def ledger_way(stack: Stack) -> Iterator[FaultProxy]:
    with FaultProxy(stack.endpoint("dynamodb")) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def opened(quick_ground: Ground, ledger_way: FaultProxy) -> Iterator[EventPath]:
    way = {"EXTENTFLOW_LEDGER_ENDPOINT": ledger_way.endpoint}
    with quick_ground.open(
        settings=IMPATIENT, environment=way, most_hidden_seconds=HIDDEN_SECONDS
    ) as path:
        yield path


@pytest.fixture
def path(opened: EventPath) -> EventPath:
    opened.purge()
    return opened


# -- outages ------------------------------------------------------------------------------------


@pytest.mark.outage
def test_a_broker_unavailable_for_many_receives_costs_no_attempt(path: EventPath) -> None:
    warm, lines = wide_lines("warm-", 10), wide_lines("broker-", 10)
    feed = path.feed(extent_bytes=EXTENT)
    feed.await_state(feed.upload("warm.txt", joined(warm)), JobState.DONE)

    since = Mark(path)
    path.ground.stack.kill("kafka")
    try:
        during = feed.upload("during.txt", joined(lines))
        since.in_vain("worker", RECEIVES)
        attempts, dead = most_attempts(feed.delivery.runtime, during), path.dead()
    finally:
        path.ground.stack.up(["kafka"])

    assert (attempts <= 1, dead) == (True, 0)
    assert feed.ending([*warm, *lines]) == Ending(len(warm) + len(lines), jobs={"DONE": 2})


@pytest.mark.outage
def test_a_ledger_unavailable_for_many_receives_costs_no_attempt(
    path: EventPath, ledger_way: FaultProxy
) -> None:
    lines, later = wide_lines("ledger-", 1_200), wide_lines("later-", 10)
    feed = path.feed(extent_bytes=EXTENT)
    direct = Runtime(
        replace(path.settings, ledger_endpoint=path.ground.stack.endpoint("dynamodb")),
    )

    first = feed.upload("first.txt", joined(lines))
    eventually("a part is done", lambda: done(direct, first.job))
    since = Mark(path)
    ledger_way.inject(Reset(), times=None)
    try:
        feed.upload("later.txt", joined(later))
        since.in_vain("worker", RECEIVES)
        since.in_vain("planner", RECEIVES)
        attempts, dead = most_attempts(direct, first), path.dead()
    finally:
        ledger_way.clear()

    assert (attempts <= 1, dead) == (True, 0)
    assert feed.ending([*lines, *later]) == Ending(len(lines) + len(later), jobs={"DONE": 2})


@pytest.mark.outage
def test_a_store_unavailable_for_many_receives_costs_no_attempt(
    path: EventPath, s3_proxy: FaultProxy
) -> None:
    lines, later = wide_lines("store-", 300), wide_lines("later-", 10)
    feed = path.feed(extent_bytes=EXTENT, aws_s3_endpoint=s3_proxy.endpoint)

    since = Mark(path)
    s3_proxy.inject(Answer(503), when=is_method("GET"), times=None)
    first = feed.upload("first.txt", joined(lines))
    feed.await_state(first, JobState.RUNNING)
    s3_proxy.inject(Answer(503), when=is_method("HEAD"), times=None)
    feed.upload("later.txt", joined(later))
    since.in_vain("worker", RECEIVES)
    since.in_vain("planner", RECEIVES)
    attempts, dead = most_attempts(feed.delivery.runtime, first), path.dead()
    s3_proxy.clear()

    assert (attempts <= 1, dead) == (True, 0)
    assert feed.ending([*lines, *later]) == Ending(len(lines) + len(later), jobs={"DONE": 2})


@pytest.mark.outage
def test_a_worker_frozen_past_the_brokers_idle_limit_delivers_at_once(
    quick_ground: Ground, tmp_path_factory: pytest.TempPathFactory
) -> None:
    broker = Kafka(heap="384m", quick=True, properties={"connections.max.idle.ms": str(IDLE_MS)})
    root = tmp_path_factory.mktemp("idle")
    warm, lines = wide_lines("warm-", 10), wide_lines("thawed-", 10)
    with Stack(root, services=[broker], free_ports=True) as kafka:
        kafka.up()
        around = {"EXTENTFLOW_BOOTSTRAP_SERVERS": kafka.endpoint("kafka")}
        with quick_ground.open(environment=around, most_hidden_seconds=60) as path:
            feed = path.feed()
            feed.await_state(feed.upload("warm.txt", joined(warm)), JobState.DONE)
            eventually("nothing is in work", path.is_drained)
            (frozen,) = path.source.freeze("worker")
            eventually("the broker hung up", lambda: not connected(frozen, kafka))

            since = Mark(path)
            feed.upload("thawed.txt", joined(lines))
            ending = feed.ending([*warm, *lines])
            thawed = since.of("worker")[0]

    seconds = thawed.outcome.seconds
    sys.stdout.write(f"thawed, delivered {seconds:.2f} s later\n")  # it depends on the machine
    assert (thawed.outcome.pid, thawed.failed) == (frozen, ())  # delivered, not handed on
    assert ending == Ending(len(warm) + len(lines), jobs={"DONE": 2})


# -- replays ------------------------------------------------------------------------------------


@pytest.mark.outage
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Delay(600), id="arrives late"),
        pytest.param(Reset(), id="never arrives", marks=pytest.mark.soak),
    ],
)
def test_an_interrupted_replay_delivers_the_pinned_version_once(
    path: EventPath, versioned_bucket: str, fault: Fault
) -> None:
    lines = wide_lines("pinned-", 600)
    feed = feed_without_topic(path, versioned_bucket)
    upload = feed.upload("day.txt", joined(lines))
    dead = await_dead(feed, upload)
    feed.put("day.txt", joined(wide_lines("newer-", 10)))  # without a notification

    looked = replayed(feed, "--dry-run")
    feed.delivery.make_topic(LATE)
    with FaultProxy(path.ground.queues.endpoint("sqs")) as way:
        held = way.inject(fault, when=is_call("SendMessageBatch"), times=None, skip=dead // 2)
        with replay(feed, way=way.endpoint) as process:
            held.await_hits()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=AWAITED_SECONDS)
    left = path.dead()
    again = replayed(feed)

    # Of a planner that was seen as too slow an extent has two messages; one of them stays.
    assert len(looked["moved"]) + looked["left"] == dead
    assert (process.returncode, 0 < left < dead) == (130, True)
    assert len(again["moved"]) + again["left"] == left
    while again["left"]:
        again = replayed(feed)
    assert feed.ending(lines) == Ending(len(lines))
    assert feed.await_state(upload, JobState.DONE).version == upload.version


@pytest.mark.long
def test_a_replay_takes_the_dead_letters_of_a_job_or_of_a_time(path: EventPath) -> None:
    lines, others = wide_lines("one-", 10), wide_lines("other-", 10)
    feed = feed_without_topic(path)
    wanted = feed.upload("one.txt", joined(lines))
    other = feed.upload("other.txt", joined(others))
    dead = await_dead(feed, wanted, other)
    feed.delivery.make_topic(LATE)

    none = replayed(feed, "--since", "0s")
    of_job = replayed(feed, wanted.job)
    feed.await_state(wanted, JobState.DONE)
    stays = feed.job(other)
    moved = list(of_job["moved"])
    # Of a planner that was seen as too slow an extent has two messages. The second one stays, its
    # body is that of a moved one: each replay takes one of them.
    while (again := replayed(feed, wanted.job))["moved"]:
        moved += again["moved"]
    of_time = replayed(feed, "--since", "1h")

    assert dead >= 2
    assert (none["moved"], none["left"]) == ([], dead)
    assert {one["job"] for one in moved} == {wanted.job}
    assert of_job["left"] == dead - len(of_job["moved"])
    assert stays is not None
    assert stays.state is JobState.FAILED
    assert {one["job"] for one in of_time["moved"]} == {other.job}
    assert len(of_time["moved"]) + of_time["left"] == dead - len(moved)
    while of_time["left"]:
        of_time = replayed(feed)
    assert feed.ending([*lines, *others]) == Ending(20, jobs={"DONE": 2})


@pytest.mark.soak
@pytest.mark.variant
def test_the_queues_own_redrive_replays_as_the_command_does(path: EventPath) -> None:
    lines = wide_lines("redriven-", 300)
    feed = feed_without_topic(path)
    await_dead(feed, feed.upload("day.txt", joined(lines)))
    feed.delivery.make_topic(LATE)

    source = path.deployment.dead_letter_queue_of("worker").arn
    path.sqs.start_message_move_task(SourceArn=source)

    eventually("the dead letters were moved", lambda: path.dead() == 0)
    assert feed.ending(lines) == Ending(len(lines))


@pytest.mark.variant
def test_a_corrected_object_is_a_new_job_and_supersedes_the_old_one(
    path: EventPath,
) -> None:
    lines = wide_lines("corrected-", 100)
    whole = compress(joined(lines))
    feed = path.feed()
    broken = feed.upload("day.txt.gz", whole[: len(whole) // 2])
    assert await_dead(feed, broken) >= 1

    corrected = feed.upload("day.txt.gz", whole)
    feed.await_state(corrected, JobState.DONE)
    replayed(feed)
    feed.await_state(broken, JobState.SUPERSEDED)
    # A planner slower than its message's visibility sends an extent twice, each a dead letter.
    eventually("no dead letter is left", lambda: feed.path.dead() == 0 or not replayed(feed))
    ending = feed.ending(lines)

    assert replace(ending, records=0, doubled=0) == Ending(0, jobs={"DONE": 1, "SUPERSEDED": 1})
    # What was readable of the broken object may have been delivered, once.
    assert ending.records - ending.doubled == len(lines)


# -- long chains of messages ----------------------------------------------------------------------


@pytest.mark.long
def test_an_ordered_object_has_more_extents_than_lambdas_limit_of_recursion(
    path: EventPath,
) -> None:
    """Each extent's invocation sends the next extent to the queue that led to it."""
    extents = MOST_VISITS + 4
    lines = wide_lines("ordered-", extents * 64)
    feed = path.feed(extent_bytes=EXTENT, ordering="object")

    upload = feed.upload("ordered.txt", joined(lines))
    feed.await_state(upload, JobState.DONE)

    assert len(items(feed.delivery.runtime, upload.job)) >= extents
    assert feed.ending(lines) == Ending(records=len(lines))


# -- what people want of a connector ------------------------------------------------------------


@pytest.mark.long
def test_a_paused_connector_waits_without_attempts_and_continues(path: EventPath) -> None:
    lines, later = wide_lines("paused-", 2_000), wide_lines("later-", 10)
    feed = path.feed(extent_bytes=EXTENT)
    runtime = feed.delivery.runtime
    first = feed.upload("first.txt", joined(lines))
    eventually("a part is done", lambda: done(runtime, first.job))

    want_paused(feed)
    second = feed.upload("later.txt", joined(later))
    since = Mark(path)
    since.in_vain("planner", RECEIVES)
    since.in_vain("worker", RECEIVES)
    before = items(runtime, first.job)
    Mark(path).in_vain("worker", RECEIVES)
    after = items(runtime, first.job)

    waiting = [item for item in after if item.state is ExtentState.PENDING]
    assert after == before  # no worker claims it
    assert [item for item in waiting if item.attempts or item.claim] == []
    assert (feed.job(second), path.dead()) == (None, 0)
    command(feed, "resume", feed.delivery.connector_name)
    assert feed.ending([*lines, *later]) == Ending(len(lines) + len(later), jobs={"DONE": 2})


@pytest.mark.long
def test_a_stopped_connector_cancels_its_jobs_and_leaves_arrivals_alone(path: EventPath) -> None:
    lines, later = wide_lines("stopped-", 2_000), wide_lines("later-", 10)
    feed = path.feed(extent_bytes=EXTENT)
    first = feed.upload("first.txt", joined(lines))
    eventually("a part is done", lambda: done(feed.delivery.runtime, first.job))

    want_paused(feed)  # at once: a command needs a second, and the job might be DONE
    command(feed, "stop", feed.delivery.connector_name)
    stopped = feed.ending(lines)
    ignored = feed.upload("later.txt", joined(later))
    eventually("the arrival is over", path.is_drained)
    unplanned, dead = feed.job(ignored), path.dead()
    command(feed, "resume", feed.delivery.connector_name)
    feed.announce(ignored)
    feed.await_state(ignored, JobState.DONE)

    assert stopped == Ending(
        stopped.records, missing=len(lines) - stopped.records, jobs={"CANCELLED": 1}
    )
    assert (unplanned, dead) == (None, 0)
    resumed = feed.ending([*lines, *later])
    assert (resumed.doubled, resumed.foreign) == (0, 0)
    assert resumed.records == stopped.records + len(later)


# -- masses -------------------------------------------------------------------------------------


@pytest.mark.variant
def test_many_small_objects_arrive_exactly_once(path: EventPath) -> None:
    feed = path.feed()
    lines = numbered_lines("small-" + "x" * (LINE_BYTES - 16), SMALL_OBJECTS * SMALL_LINES)
    bodies = [lines[first : first + SMALL_LINES] for first in range(0, len(lines), SMALL_LINES)]

    uploads = [feed.put(f"{number}.txt", joined(body)) for number, body in enumerate(bodies)]
    for first in range(0, len(uploads), 10):
        feed.announce(*uploads[first : first + 10])
    eventually("all were planned and delivered", path.is_drained)

    assert feed.ending(lines) == Ending(len(lines), jobs={"DONE": SMALL_OBJECTS})


# -- errands ------------------------------------------------------------------------------------


class Mark:
    """What invocations came to after this was made."""

    def __init__(self, path: EventPath) -> None:
        self._seen = path.seen
        self._since = len(path.seen.deliveries)

    def of(self, function: str) -> list[Delivery]:
        """Return a function's invocations until now."""
        return [one for one in self._seen.deliveries[self._since :] if one.function == function]

    def in_vain(self, function: str, times: int) -> None:
        """Wait until one message was given to a function so often, and came back."""

        def enough() -> bool:
            failed = Counter(name for one in self.of(function) for name in one.failed)
            return max(failed.values(), default=0) >= times

        eventually(f"{times} failed receives by the {function}", enough)


def wide_lines(label: str, count: int) -> list[bytes]:
    """Return lines of which 64 make up about an extent."""
    return numbered_lines(label + "x" * (LINE_BYTES - len(label) - 5), count)


def items(runtime: Runtime, job: str) -> list[ExtentItem]:
    return list(runtime.ledger.extents.list(job))


def done(runtime: Runtime, job: str) -> bool:
    """Whether an extent is DONE and the job is not."""
    found = runtime.ledger.jobs.get(job)
    parts = [item.state is ExtentState.DONE for item in items(runtime, job)]
    return any(parts) and found is not None and found.state is JobState.RUNNING


def most_attempts(runtime: Runtime, *uploads: Upload) -> int:
    """Return how many attempts the ledger counts at most for extents of these objects."""
    found = [item.attempts for one in uploads for item in items(runtime, one.job)]
    return max(found, default=0)


def is_method(method: str) -> Any:  # noqa: ANN401 - a rule
    return lambda request: request.method == method


def is_call(operation: str) -> Any:  # noqa: ANN401 - a rule
    def asks(request: Request) -> bool:
        return request.headers.get("x-amz-target", "").endswith(f".{operation}")

    return asks


def connected(pid: int, kafka: Stack) -> bool:
    """Whether a process has a connection that the broker has not closed."""
    port = int(kafka.endpoint("kafka").rpartition(":")[2])
    open_ones = (
        one
        for one in psutil.Process(pid).net_connections("tcp")
        if one.status == psutil.CONN_ESTABLISHED
    )
    return any(one.raddr.port == port for one in open_ones)


def feed_without_topic(path: EventPath, bucket: str | None = None) -> Feed:
    """Declare a connector whose topic is missing until a test creates it as LATE."""
    name = f"feed-{uuid4().hex[:8]}"
    delivery = path.delivery(name, bucket)
    delivery.topic = f"{LATE}-{name}"
    delivery.connector({"extent.bytes": EXTENT})
    return Feed(path, delivery)


def await_dead(feed: Feed, *uploads: Upload) -> int:
    """Wait until jobs are FAILED and their messages are dead letters; count those."""
    for upload in uploads:
        feed.await_state(upload, JobState.FAILED)
    eventually("the queues are empty", feed.path.is_drained)
    return feed.path.dead()


def want_paused(feed: Feed) -> None:
    """Let a feed's connector rest."""
    name = feed.delivery.connector_name
    assert feed.delivery.runtime.ledger.connectors.set_state(name, ConnectorState.PAUSED)


def replay(feed: Feed, *words: str, way: str | None = None) -> "subprocess.Popen[str]":
    """Start `extentflow redrive`; `way` is where it finds the queues."""
    return program(feed, "redrive", *words, way=way)


def replayed(feed: Feed, *words: str) -> dict[str, Any]:
    """Replay dead letters and return what the command says."""
    with replay(feed, *words) as process:
        output, errors = process.communicate(timeout=AWAITED_SECONDS)
    assert process.returncode == 0, errors
    return dict(json.loads(output))


def command(feed: Feed, *words: str) -> None:
    """Run a command to its end."""
    with program(feed, *words) as process:
        _, errors = process.communicate(timeout=AWAITED_SECONDS)
    assert process.returncode == 0, errors


def program(feed: Feed, *words: str, way: str | None = None) -> "subprocess.Popen[str]":
    endpoint = way or feed.path.ground.queues.endpoint("sqs")
    environment: Mapping[str, str] = {
        **os.environ,
        **feed.delivery.environment,
        "AWS_ENDPOINT_URL_SQS": endpoint,
    }
    return subprocess.Popen(
        [str(PROGRAM), *words, "--json"],
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
