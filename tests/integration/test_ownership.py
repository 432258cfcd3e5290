"""Who may deliver what: crashes, forgotten groups, several clusters, several ledgers, revisions."""

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.delivery import PATIENT, Delivery, joined, numbered_lines
from tests.support.real import Crash, at, crash, replay_here, run_here, take_over, the_job, worker
from tests.support.waiting import eventually

from extentflow.errors import Conflict, Fenced, ProgressUnknown
from extentflow.kafka import Records
from extentflow.ledger import Claim
from extentflow.model import Extent, ExtentState, JobState, Outcome
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LINES = numbered_lines("line ", 10_000)


def planned(delivery: Delivery, **config: str) -> list[Extent]:
    """Put the lines, store the connector, plan the job; return its extents."""
    delivery.put("lines.txt", joined(LINES))
    delivery.connector(config)
    runtime = delivery.runtime
    stored, revision = runtime.connectors.latest(delivery.connector_name)
    version = runtime.objects.store(stored, revision).head(
        delivery.bucket, f"{delivery.prefix}lines.txt"
    )
    planner = runtime.planner()
    job = planner.plan(planner.register(runtime.requests.make(stored, revision, version, 1)))
    return list(planner.extents(job))


# -- crashes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [pytest.param(1, marks=pytest.mark.variant), 4])
def test_the_next_worker_delivers_once_what_a_crash_left_uncommitted(
    delivery: Delivery, chunk: int
) -> None:
    delivery.put("lines.txt", joined(LINES))
    delivery.connector({})
    with pytest.raises(Crash):
        run_here(delivery, before=at(chunk, crash))
    assert take_over(delivery) == 1

    report = run_here(delivery)

    assert report.ok
    assert sorted(delivery.values()) == sorted(LINES)
    assert report.jobs[0].records == len(LINES)
    assert delivery.leftovers() == []


@pytest.mark.long
def test_after_an_unreported_crash_the_next_run_resumes_at_lease_end(
    delivery: Delivery,
) -> None:
    delivery.put("lines.txt", joined(LINES))
    delivery.connector({})
    with pytest.raises(Crash):
        run_here(delivery, before=at(3, crash))
    held = delivery.leftovers()

    report = run_here(delivery)

    assert len(held) == 2
    assert report.ok
    assert sorted(delivery.values()) == sorted(LINES)
    assert delivery.leftovers() == []


# -- a group that Kafka forgot --------------------------------------------------------------------


@pytest.mark.long
def test_a_deleted_group_is_a_loud_failure_that_only_a_person_can_accept(
    delivery: Delivery,
) -> None:
    delivery.put("lines.txt", joined(LINES))
    delivery.connector({})
    with pytest.raises(Crash):
        run_here(delivery, before=at(4, crash))
    _delete_groups(delivery)
    take_over(delivery)

    refused = run_here(delivery)

    assert (refused.ok, refused.jobs[0].state) == (False, "FAILED")
    assert refused.records_this_run == 0
    (item,) = delivery.items()
    assert item.progress_unknown
    assert "progress unknown" in item.error
    assert "--accept-duplicates" in item.error
    with pytest.raises(ProgressUnknown, match="--accept-duplicates"):
        replay_here(delivery, the_job(delivery))
    assert the_job(delivery).state is JobState.FAILED

    accepted = replay_here(delivery, the_job(delivery), accept_duplicates=True)

    assert accepted.ok
    counted = Counter(delivery.values())
    assert set(counted) == set(LINES)
    assert delivery.leftovers() == []


def _delete_groups(delivery: Delivery) -> None:
    ours = f"{delivery.settings.app_id}.{delivery.runtime.ledger.id}."
    admin = AdminClient({"bootstrap.servers": delivery.settings.bootstrap_servers})
    listed = admin.list_consumer_groups(request_timeout=60).result()
    groups = [group.group_id for group in listed.valid if group.group_id.startswith(ours)]
    assert groups
    for deleted in admin.delete_consumer_groups(groups, request_timeout=60).values():
        deleted.result()


# -- two clusters, one ledger ---------------------------------------------------------------------


class Elsewhere(Delivery):
    """A delivery to a topic that it did not create."""

    @property
    def topic(self) -> str:
        return f"records-{self.name}"


@pytest.fixture
def elsewhere(delivery: Delivery, second_broker: Stack) -> Delivery:
    """The same ledger, objects and connector before another cluster, which has the topic too."""
    brokers = second_broker.endpoint("kafka")
    topic = NewTopic(delivery.topic, num_partitions=4, replication_factor=1)
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([topic])[delivery.topic].result(timeout=60)
    changes = {"bootstrap_servers": brokers, "ledger_table": delivery.settings.ledger_table}
    other = Elsewhere(delivery.stack, delivery.s3, delivery.bucket, delivery.name, changes)
    other.runtime.broker.ensure_progress_topic()
    return other


@pytest.mark.long
def test_a_worker_of_another_cluster_gets_a_conflict_and_delivers_nothing(
    delivery: Delivery, elsewhere: Delivery
) -> None:
    extents = planned(delivery)

    with worker(elsewhere) as stranger, pytest.raises(Conflict) as caught:
        stranger.run(extents[0])

    assert delivery.runtime.broker.cluster in str(caught.value)
    assert elsewhere.runtime.broker.cluster in str(caught.value)
    assert extents[0].uri in str(caught.value)
    assert elsewhere.values() == []
    assert run_here(delivery).ok
    assert sorted(delivery.values()) == sorted(LINES)


@pytest.mark.long
def test_a_done_job_is_not_reported_done_to_another_cluster(
    delivery: Delivery, elsewhere: Delivery
) -> None:
    planned(delivery)
    assert run_here(delivery).ok

    with pytest.raises(Conflict, match="a connector of another name"):
        run_here(elsewhere)

    assert elsewhere.values() == []


@pytest.mark.long
def test_slots_of_two_clusters_never_mix(delivery: Delivery, elsewhere: Delivery) -> None:
    planned(delivery)
    assert run_here(delivery).ok
    here = delivery.slots()

    assert run_here(elsewhere, again=True).ok

    assert delivery.slots() == here
    assert {slot.cluster for slot in here} == {delivery.runtime.broker.cluster}
    assert {slot.cluster for slot in elsewhere.slots()} == {elsewhere.runtime.broker.cluster}
    assert sorted(delivery.values()) == sorted(elsewhere.values()) == sorted(LINES)


# -- two ledgers, one cluster ---------------------------------------------------------------------


@pytest.mark.long
def test_two_ledgers_on_one_cluster_do_not_fence_each_other(
    stack: Stack, s3: "S3Client", bucket: str, unique: str
) -> None:
    one = Delivery(stack, s3, bucket, unique, {"exactly_once_slots": 1})
    other = Delivery(stack, s3, bucket, f"{unique}-b", {"exactly_once_slots": 1})
    (extent,) = planned(one)
    slots = one.runtime.slots("slow")
    claim = slots.claim(extent, PATIENT)
    assert isinstance(claim, Claim)
    slots.sink.send(Records(one.topic, pa.array([b"from one"], pa.binary())))

    planned(other)
    assert run_here(other).ok

    slots.commit(claim, position=5, records=1, bad=0, filtered=0)
    slots.hand_back(claim, position=5, records=1, bad=0, filtered=0, keep_attempt=False)
    slots.release()
    assert one.values() == [b"from one"]
    assert sorted(other.values()) == sorted(LINES)
    assert one.runtime.ledger.id != other.runtime.ledger.id


def test_a_worker_that_takes_over_the_only_slot_fences_its_former_owner(
    stack: Stack, s3: "S3Client", bucket: str, unique: str
) -> None:
    delivery = Delivery(stack, s3, bucket, unique, {"exactly_once_slots": 1})
    (extent,) = planned(delivery)
    zombie = delivery.runtime.slots("here/zombie")
    claim = zombie.claim(extent, PATIENT)
    assert isinstance(claim, Claim)
    zombie.sink.send(Records(delivery.topic, pa.array([b"from a zombie"], pa.binary())))

    assert take_over(delivery) == 1
    assert run_here(delivery).ok

    with pytest.raises(Fenced):
        zombie.commit(claim, position=5, records=1, bad=0, filtered=0)
    zombie.drop()
    assert sorted(delivery.values()) == sorted(LINES)


# -- revisions ------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_job_keeps_its_connectors_revision_and_a_new_one_takes_the_new(
    delivery: Delivery,
) -> None:
    rows = [f"{n},{'x' if n % 2 else 'y'}" for n in range(3_000)]
    body = joined(row.encode() for row in ["n,v", *rows])
    delivery.put("rows.csv", body)
    delivery.connector({"extent.bytes": "8KiB", "csv.null": "x"})
    with pytest.raises(Crash):
        run_here(delivery, before=at(5, crash))
    take_over(delivery)
    assert delivery.values()
    later = delivery.make_topic("later")
    delivery.connector({"topic": later, "csv.null": "y", "message.key": "column:n"})

    assert run_here(delivery).ok
    delivery.put("rows.csv", body + b"3000,x\n")
    assert run_here(delivery).ok

    old, new = delivery.read(), delivery.read(later)
    assert sorted(record.value or b"" for record in old) == sorted(
        b'{"n":"%d","v":%s}' % (n, b"null" if n % 2 else b'"y"') for n in range(3_000)
    )
    assert {record.key for record in old} == {None}
    assert sorted(record.value or b"" for record in new) == sorted(
        b'{"n":"%d","v":%s}' % (n, b'"x"' if n % 2 or n == 3_000 else b"null") for n in range(3_001)
    )
    assert {record.key for record in new} == {str(n).encode() for n in range(3_001)}


# -- order ----------------------------------------------------------------------------------------


def test_an_ordered_job_delivers_nothing_after_its_first_failed_extent(
    delivery: Delivery,
) -> None:
    lines = numbered_lines("line ", 2_000)
    body = joined([*lines[:1_000], b"\xff", *lines[1_000:]])
    delivery.put("lines.txt", body)
    delivery.connector({"ordering": "object", "extent.bytes": "2KiB"})

    report = run_here(delivery)

    delivered = delivery.values()
    assert report.jobs[0].state == "FAILED"
    assert delivered == lines[: len(delivered)]
    assert 700 < len(delivered) <= 1_000
    states = [item.state for item in delivery.items()]
    assert states.count(ExtentState.FAILED) == 1
    assert states[-1] is ExtentState.FAILED
    eventually("nothing is claimed", lambda: not delivery.leftovers())


def test_an_ordered_job_is_delivered_in_file_order_into_one_partition(delivery: Delivery) -> None:
    delivery.put("lines.txt", joined(LINES))
    delivery.connector({"ordering": "object", "extent.bytes": "16KiB"})
    with pytest.raises(Crash):
        run_here(delivery, before=at(5, crash))
    take_over(delivery)

    report = run_here(delivery)

    assert report.ok
    assert delivery.values() == LINES
    assert len({record.partition for record in delivery.read()}) == 1


def test_running_a_done_extent_again_adds_nothing(delivery: Delivery) -> None:
    extents = planned(delivery, **{"extent.bytes": "32KiB"})
    with worker(delivery) as made:
        outcomes = [made.run(extent).outcome for extent in (*extents, *extents)]

    assert set(outcomes) == {Outcome.DONE}
    assert sorted(delivery.values()) == sorted(LINES)
