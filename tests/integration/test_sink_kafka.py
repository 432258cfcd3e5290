"""The sink on a real broker: the contract, and what only Kafka can get wrong."""

import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.contracts.sink import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    PROGRESS,
    SinkContract,
    lines,
    values_of,
)
from tests.support.delivery import is_stable
from tests.support.waiting import running_seconds

from extentflow.errors import Fenced, Misconfigured, ProgressUnknown, SinkUnavailable
from extentflow.kafka import PROGRESS_TOPIC, ProducerSettings, SlotProgress
from extentflow.kafka.broker import KafkaBroker
from extentflow.kafka.native import Library, trusted_library
from extentflow.kafka.reading import ConsumedRecord, read_committed
from extentflow.kafka.settings import Timeouts
from extentflow.kafka.transaction import group_metadata
from extentflow_local.stack.servers.kafka import Kafka
from extentflow_local.stack.stack import Stack

MARKED_SECONDS = 3.0
QUICK = Timeouts(
    request_seconds=10,
    topic_seconds=1,
    fence_seconds=30,
    read_seconds=20,
    commit_seconds=20,
    abort_seconds=1,
)


def noise(size: int) -> bytes:
    """Bytes that no codec makes smaller."""
    return os.urandom(size)


@dataclass
class KafkaCluster:
    """Fresh names on one broker."""

    bootstrap_servers: str
    numbers: Iterator[int] = field(default_factory=itertools.count)
    prefix: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    find_library: Callable[[], Library | None] = trusted_library

    def __post_init__(self) -> None:
        self.broker = self.impatient()
        self.reconnect()

    def reconnect(self) -> None:
        """Ask through a new client: an old one may wait long for what a paused broker lost."""
        self.admin = AdminClient({**self.kafka, "log_level": 0})

    @property
    def kafka(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap_servers}

    def impatient(self, timeout_ms: int = 30_000, **seconds: float) -> KafkaBroker:
        timeouts = replace(QUICK, **seconds)  # type: ignore[arg-type]
        return KafkaBroker(
            # Otherwise a slow end of a transaction, on a busy machine, is its producer's last.
            {**self.kafka, "retry.backoff.ms": "1000"},
            transaction_timeout_ms=timeout_ms,
            timeouts=timeouts,
            find_library=self.find_library,
        )

    def topic(
        self, partitions: int = 1, *, max_message_bytes: int | None = None, compacted: bool = False
    ) -> str:
        name = f"{self.prefix}.topic-{next(self.numbers)}"
        config = {"max.message.bytes": str(max_message_bytes)} if max_message_bytes else {}
        config |= {"cleanup.policy": "compact"} if compacted else {}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        for created in self.admin.create_topics([topic]).values():
            created.result(timeout=60)
        while self.admin.list_topics(name, timeout=60).topics[name].error is not None:
            time.sleep(0.05)  # created, but not yet visible to every broker thread
        return name

    def identity(self) -> str:
        return f"{self.prefix}.ledger.slot-{next(self.numbers)}"

    def read_committed(self, topic: str) -> list[ConsumedRecord]:
        until = running_seconds() + MARKED_SECONDS
        while not is_stable(self.admin, topic) and running_seconds() < until:
            time.sleep(0.02)  # unless a test keeps a transaction open
        batches = read_committed(self.kafka, topic, idle_seconds=20, timeouts=QUICK)
        return sorted(itertools.chain.from_iterable(batches), key=lambda one: one[:2])

    def forget_group(self, identity: str) -> None:
        for deleted in self.admin.delete_consumer_groups([identity]).values():
            deleted.result(timeout=60)

    def end_offset(self, topic: str) -> int:
        """Count what partition 0's log holds, committed or not."""
        settings = {"group.id": self.prefix, "isolation.level": "read_uncommitted"}
        consumer = Consumer({**self.kafka, **settings})
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        consumer.close()
        return end


@pytest.fixture(scope="module", autouse=True)
def _progress_topic(stack: Stack) -> None:
    kafka = {"bootstrap.servers": stack.endpoint("kafka")}
    KafkaBroker(kafka, timeouts=QUICK).ensure_progress_topic()


@pytest.fixture
def cluster(bootstrap_servers: str) -> KafkaCluster:
    return KafkaCluster(bootstrap_servers)


class TestKafkaBroker(SinkContract):
    @pytest.fixture
    def cluster(self, bootstrap_servers: str) -> KafkaCluster:
        return KafkaCluster(bootstrap_servers)


@pytest.mark.variant
class TestKafkaBrokerRecordByRecord(SinkContract):
    @pytest.fixture
    def cluster(self, bootstrap_servers: str) -> KafkaCluster:
        return KafkaCluster(bootstrap_servers, find_library=lambda: None)


def test_arrays_without_keys_reach_every_partition_each_record_once(cluster: KafkaCluster) -> None:
    topic = cluster.topic(3)
    values = [b"%d" % number for number in range(30_000)]

    with closing(cluster.broker.fence(cluster.identity(), EXACTLY_ONCE).open()) as sink:
        for start in range(0, len(values), 10_000):
            sink.send(lines(topic, *values[start : start + 10_000]))
        sink.commit(PROGRESS)
    delivered = cluster.read_committed(topic)

    assert sorted(record.value or b"" for record in delivered) == sorted(values)
    assert {record.partition for record in delivered} == {0, 1, 2}


@pytest.mark.parametrize("partitioner", ["consistent", "murmur2", "fnv1a"])
def test_a_partitioner_that_keeps_records_without_keys_together_is_obeyed(
    cluster: KafkaCluster, partitioner: str
) -> None:
    topic = cluster.topic(3)
    client = ProducerSettings({"partitioner": partitioner})

    with closing(cluster.broker.fence(cluster.identity(), client).open()) as sink:
        for _ in range(20):
            sink.send(lines(topic, b"x"))
        sink.commit(PROGRESS)

    assert len({record.partition for record in cluster.read_committed(topic)}) == 1


def test_whole_arrays_are_queued_here() -> None:
    """Otherwise the tests above prove the same thing twice."""
    assert trusted_library() is not None


@contextmanager
def paused(stack: Stack, cluster: KafkaCluster) -> Iterator[None]:
    """A broker that keeps its connections and answers nothing; recovered when this ends."""
    stack.pause("kafka")
    try:
        yield
    finally:
        stack.resume("kafka")
        until(lambda: takes_topics(cluster), seconds=240)


def takes_topics(cluster: KafkaCluster) -> bool:
    """Whether the controller trusts the broker again: after a long pause it does not at once."""
    cluster.reconnect()
    try:
        cluster.topic()
    except (KafkaException, TimeoutError):  # the request reached the broker before its recovery
        return False
    return True


def until(condition: Callable[[], bool], seconds: float = 240) -> None:
    end = running_seconds() + seconds
    while not condition():
        assert running_seconds() < end, "condition not met in time"
        time.sleep(0.1)


# -- the cluster ------------------------------------------------------------------------------


def test_the_clusters_id_is_the_brokers(cluster: KafkaCluster) -> None:
    reported = cluster.admin.describe_cluster().result(timeout=60).cluster_id

    assert cluster.broker.cluster == reported


def test_the_progress_topic_may_be_ensured_by_many_at_once(cluster: KafkaCluster) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: cluster.broker.ensure_progress_topic(), range(8)))

    found = cluster.admin.list_topics(PROGRESS_TOPIC, timeout=60).topics[PROGRESS_TOPIC]
    assert len(found.partitions) == 1


def test_topic_facts_are_the_clusters(cluster: KafkaCluster) -> None:
    small, large = cluster.topic(3, max_message_bytes=20_000), cluster.topic(1)

    facts = cluster.broker.topics([small, large])

    assert [(fact.name, fact.partitions) for fact in facts] == [(small, 3), (large, 1)]
    assert [fact.max_message_bytes for fact in facts] == [20_000, 1_048_588]


def test_all_missing_topics_are_named_at_once(cluster: KafkaCluster) -> None:
    with pytest.raises(Misconfigured) as caught:
        cluster.broker.topics(["no.such.topic", cluster.topic(), "nor.this"])

    assert [problem.split()[1] for problem in caught.value.problems] == [
        "no.such.topic",
        "nor.this",
    ]
    remedies = [problem.partition("; ")[2] for problem in caught.value.problems]
    assert remedies[1] == (
        "`extentflow run` with --create-topic partitions=8 (in Python"
        " create_topic={'partitions': 8}) creates it where objects are to deliver; otherwise your"
        " Kafka tools do, for example `kafka-topics.sh"
        f" --bootstrap-server {cluster.bootstrap_servers}"
        " --create --topic nor.this --partitions 8`"
    )


@pytest.mark.long
def test_no_question_creates_a_topic_on_brokers_that_create_topics(tmp_path: Path) -> None:
    creating = Kafka(heap="384m", quick=True, properties={"auto.create.topics.enable": "true"})
    with Stack(tmp_path, services=[creating], free_ports=True) as stack:
        stack.up()
        cluster = KafkaCluster(stack.endpoint("kafka"))

        assert cluster.broker.cluster
        with pytest.raises(Misconfigured, match=r"topic asked\.about does not exist"):
            cluster.broker.topics(["asked.about"])
        cluster.broker.ensure_progress_topic()
        sink = cluster.broker.fence(cluster.identity(), EXACTLY_ONCE).open()
        with pytest.raises(SinkUnavailable, match=r"topic sent\.to does not exist"):
            sink.send(lines("sent.to", b"a"))
        sink.close()

        # A listing of all topics names none, and so creates none.
        found = cluster.admin.list_topics(timeout=60).topics
    own = {name: len(topic.partitions) for name, topic in found.items() if name[0] != "_"}
    assert own == {PROGRESS_TOPIC: 1}


@pytest.mark.long
def test_a_broker_that_is_unavailable_is_reported_in_time() -> None:
    unavailable = KafkaBroker(
        {"bootstrap.servers": "127.0.0.1:1"},
        timeouts=replace(QUICK, fence_seconds=2, request_seconds=2),
    )
    began = running_seconds()

    with pytest.raises(SinkUnavailable, match=r"127\.0\.0\.1:1"):
        _ = unavailable.cluster
    with pytest.raises(SinkUnavailable, match=r"slot-1: no answer.*Connection refused"):
        unavailable.fence("slot-1", EXACTLY_ONCE)

    assert running_seconds() - began < 30


def test_settings_that_cannot_work_are_reported_before_any_connection(
    cluster: KafkaCluster,
) -> None:
    with pytest.raises(Misconfigured, match=r"no\.such\.setting"):
        cluster.broker.fence("slot-1", ProducerSettings({"no.such.setting": "1"}))


def test_a_transaction_timeout_beyond_the_brokers_limit_is_a_mistake(
    cluster: KafkaCluster,
) -> None:
    broker = cluster.impatient(timeout_ms=901_000)

    with pytest.raises(Misconfigured, match=r"transaction\.max\.timeout\.ms"):
        broker.fence(cluster.identity(), EXACTLY_ONCE)


def test_nothing_stays_behind_what_is_closed_or_has_failed(cluster: KafkaCluster) -> None:
    identity, topic = cluster.identity(), cluster.topic()
    running_seconds()  # its thread starts with the first call, and stays
    before = psutil.Process().num_threads()

    assert cluster.broker.cluster
    cluster.broker.topics([topic])
    zombies = [cluster.broker.fence(identity, EXACTLY_ONCE).open() for _ in range(3)]
    owner = cluster.broker.fence(identity, EXACTLY_ONCE)
    owner.read()
    for zombie in zombies:
        with pytest.raises(Fenced):
            zombie.commit(PROGRESS)
    owner.close()

    until(lambda: psutil.Process().num_threads() <= before, 30)
    assert len(zombies) == 3  # still referred to: it is the failure that ends a producer


# -- progress ---------------------------------------------------------------------------------


def test_a_pending_transaction_is_waited_for_and_never_taken_for_nothing(
    cluster: KafkaCluster,
) -> None:
    identity = cluster.identity()
    other = Producer({**cluster.kafka, "transactional.id": f"{identity}.other"})
    other.init_transactions(30)
    other.begin_transaction()
    offset = TopicPartition(
        PROGRESS_TOPIC, 0, 12, metadata=SlotProgress(3, position=12).to_metadata()
    )
    other.send_offsets_to_transaction([offset], group_metadata(identity), 30)
    hasty = cluster.impatient(read_seconds=1.5).fence(identity, EXACTLY_ONCE)
    patient = cluster.broker.fence(identity, EXACTLY_ONCE)

    with pytest.raises(SinkUnavailable):
        hasty.read()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(patient.read)
        other.commit_transaction(30)

    assert answer.result() == SlotProgress(3, position=12)
    hasty.close()
    patient.close()


def test_an_offset_of_another_writer_is_an_error(cluster: KafkaCluster) -> None:
    identity = cluster.identity()
    stranger = Producer({**cluster.kafka, "transactional.id": identity})
    stranger.init_transactions(30)
    stranger.begin_transaction()
    offset = TopicPartition(
        PROGRESS_TOPIC, 0, 12, metadata=SlotProgress(3, position=11).to_metadata()
    )
    stranger.send_offsets_to_transaction([offset], group_metadata(identity), 30)
    stranger.commit_transaction(30)
    fence = cluster.broker.fence(identity, EXACTLY_ONCE)

    with pytest.raises(ProgressUnknown, match="offset 12"):
        fence.read()

    fence.close()


def test_the_longest_metadata_that_is_allowed_is_read_back(cluster: KafkaCluster) -> None:
    identity = cluster.identity()
    filler = 4_095 - len(SlotProgress(epoch=1).to_metadata())
    longest = SlotProgress(epoch=1, job="j" * filler)

    with closing(cluster.broker.fence(identity, EXACTLY_ONCE).open()) as sink:
        sink.commit(longest)

    assert cluster.broker.fence(identity, EXACTLY_ONCE).read() == longest


# -- deaths and outages -----------------------------------------------------------------------

WORKER = """
import sys
import pyarrow as pa
from extentflow.kafka import ProducerSettings, SlotProgress, Records
from extentflow.kafka.broker import KafkaBroker

servers, identity, topic = sys.argv[1:]
settings = {"bootstrap.servers": servers, "retry.backoff.ms": "1000"}
sink = KafkaBroker(settings).fence(identity, ProducerSettings()).open()
sink.send(Records(topic, pa.array([b"first"], pa.binary())))
sink.commit(SlotProgress(epoch=1, job="j", position=1, records=1))
sink.send(Records(topic, pa.array([b"lost"] * 1_000, pa.binary())))
print("sent", flush=True)
sys.stdin.read()
"""


def test_a_killed_process_leaves_nothing_visible_but_what_it_committed(
    cluster: KafkaCluster,
) -> None:
    identity, topic = cluster.identity(), cluster.topic()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [sys.executable, "-c", WORKER, cluster.bootstrap_servers, identity, topic]
    with subprocess.Popen(
        arguments, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"sent\n"
        until(lambda: cluster.end_offset(topic) >= 1_001)
        worker.send_signal(signal.SIGKILL)

    fence = cluster.broker.fence(identity, EXACTLY_ONCE)
    found = fence.read()
    fence.close()

    assert found == SlotProgress(epoch=1, job="j", position=1, records=1)
    assert values_of(cluster.read_committed(topic)) == [b"first"]


@pytest.mark.long
def test_a_commit_survives_a_paused_broker_or_its_outcome_is_left_to_kafka(
    cluster: KafkaCluster, stack: Stack
) -> None:
    """The client sometimes never answers after a pause; then the next owner finds nothing lost."""
    identity, topic = cluster.identity(), cluster.topic()
    sink = cluster.broker.fence(identity, EXACTLY_ONCE).open()
    sink.send(lines(topic, b"a", b"b"))

    stack.pause("kafka")
    threading.Timer(5, lambda: stack.resume("kafka")).start()
    try:
        sink.commit(PROGRESS)
        committed = True
    except (SinkUnavailable, Fenced):
        committed = False
    sink.close()

    found = cluster.broker.fence(identity, EXACTLY_ONCE).read()
    assert found == PROGRESS or not committed
    delivered = [b"a", b"b"] if found == PROGRESS else []
    assert values_of(cluster.read_committed(topic)) == delivered


@pytest.mark.outage
@pytest.mark.parametrize(
    "client",
    [EXACTLY_ONCE, pytest.param(AT_LEAST_ONCE, marks=pytest.mark.soak)],
    ids=["exactly", "at-least"],
)
def test_a_commit_gives_up_in_time_and_closing_does_not_wait(
    cluster: KafkaCluster, stack: Stack, client: ProducerSettings
) -> None:
    sink = cluster.impatient(commit_seconds=3).fence(cluster.identity(), client).open()
    topic = cluster.topic()
    sink.send(lines(topic, b"a"))

    with paused(stack, cluster):
        sink.send(lines(topic, b"b"))  # at least once, the first may have been delivered before
        began = running_seconds()
        with pytest.raises(SinkUnavailable):
            sink.commit(PROGRESS)
        gave_up = running_seconds()
        sink.close()
        closed = running_seconds()

    assert gave_up - began < 45
    assert closed - gave_up < 5


@pytest.mark.outage
def test_a_full_queue_does_not_wait_for_a_broker_for_ever(
    cluster: KafkaCluster, stack: Stack
) -> None:
    topic = cluster.topic()
    client = ProducerSettings({"queue.buffering.max.messages": "10"})
    sink = cluster.impatient(timeout_ms=3_000).fence(cluster.identity(), client).open()
    sink.send(lines(topic, b"met"))
    sink.commit(PROGRESS)

    with paused(stack, cluster), pytest.raises(SinkUnavailable):
        sink.send(lines(topic, *[b"x"] * 100))

    sink.close()


def test_after_a_failure_the_error_names_topic_partition_and_reason(
    cluster: KafkaCluster,
) -> None:
    """Arrays have no delivery reports; the records that follow a failure go one by one."""
    topic = cluster.topic(max_message_bytes=2_000)
    errors: list[str] = []
    for _ in range(2):
        sink = cluster.broker.fence(cluster.identity(), ProducerSettings()).open()
        sink.send(lines(topic, noise(5_000)))
        with pytest.raises(SinkUnavailable) as caught:
            sink.commit(PROGRESS)
        errors.append(str(caught.value))
        sink.close()

    assert re.search(rf"{topic} ?\[0\].*too large", errors[1])


@pytest.mark.long
def test_arrays_keep_their_order_through_a_full_queue(cluster: KafkaCluster) -> None:
    topic = cluster.topic()
    client = ProducerSettings({"queue.buffering.max.messages": "100"})
    values = [b"%d" % number for number in range(20_000)]

    sink = cluster.broker.fence(cluster.identity(), client).open()
    sink.send(lines(topic, *values))
    sink.commit(PROGRESS)
    sink.close()

    assert values_of(cluster.read_committed(topic)) == values


def test_a_transaction_that_timed_out_counts_as_fenced(cluster: KafkaCluster) -> None:
    identity, topic = cluster.identity(), cluster.topic()
    broker = cluster.impatient(timeout_ms=1_000)
    sink = broker.fence(identity, EXACTLY_ONCE).open()
    sink.send(lines(topic, b"late"))
    until(lambda: cluster.end_offset(topic) >= 2)  # the record, then the broker's abort marker

    with pytest.raises(Fenced):
        sink.commit(PROGRESS)
    sink.close()

    with closing(broker.fence(identity, EXACTLY_ONCE).open()) as again:
        again.send(lines(topic, b"in time"))
        again.commit(PROGRESS)
    assert values_of(cluster.read_committed(topic)) == [b"in time"]


# -- records ----------------------------------------------------------------------------------


def test_records_up_to_the_topics_limit_are_committed(
    cluster: KafkaCluster,
) -> None:
    limit = 5_000
    topic = cluster.topic(max_message_bytes=limit)
    values = [noise(size) for size in range(limit - 130, limit + 10)]

    client = ProducerSettings(max_message_bytes=limit)
    with closing(cluster.broker.fence(cluster.identity(), client).open()) as sink:
        refused = sink.send(lines(topic, *values))
        sink.commit(PROGRESS)

    delivered = values_of(cluster.read_committed(topic))
    assert delivered == values[: len(delivered)]
    assert [refusal.index for refusal in refused] == list(range(len(delivered), len(values)))
    assert limit - 100 <= len(values[len(delivered)]) <= limit


@pytest.mark.parametrize("client", [EXACTLY_ONCE, AT_LEAST_ONCE], ids=["exactly", "at-least"])
def test_a_record_that_the_broker_rejects_is_never_taken_for_delivered(
    cluster: KafkaCluster, client: ProducerSettings
) -> None:
    topic = cluster.topic(max_message_bytes=2_000)
    sink = cluster.broker.fence(cluster.identity(), client).open()
    sink.send(lines(topic, noise(5_000)))

    # A commit after the transaction has failed names no topic; the log does.
    with pytest.raises(SinkUnavailable, match=rf"{topic} ?\[0\]|Erroneous state"):
        sink.commit(PROGRESS)

    sink.close()
    assert cluster.read_committed(topic) == []


def test_at_least_once_continues_in_order_after_an_abort(cluster: KafkaCluster) -> None:
    topic = cluster.topic()
    client = ProducerSettings({"linger.ms": "5000"}, exactly_once=False)
    sink = cluster.broker.fence(cluster.identity(), client).open()

    sink.send(lines(topic, b"a"))
    sink.commit(PROGRESS)
    for number in range(10):
        sink.send(lines(topic, *[b"discarded"] * 1_000))
        sink.abort()
        sink.send(lines(topic, b"%d" % number))
        sink.commit(PROGRESS)
    sink.close()

    kept = [b"a", *(b"%d" % number for number in range(10))]
    assert values_of(cluster.read_committed(topic)) == kept


def test_many_chunks_keep_their_order(cluster: KafkaCluster) -> None:
    topic = cluster.topic()
    values: Sequence[bytes] = [b"%06d" % number for number in range(50_000)]

    with closing(cluster.broker.fence(cluster.identity(), EXACTLY_ONCE).open()) as sink:
        for start in range(0, len(values), 7_000):
            sink.send(lines(topic, *values[start : start + 7_000]))
            sink.commit(PROGRESS)

    assert values_of(cluster.read_committed(topic)) == values
