"""Other releases of Kafka than the stack's: parts of the tests of other modules, on their brokers.

What is imported here is collected here, with the fixtures of this module.
"""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from tests.contracts.sink import SinkContract
from tests.integration import test_semantics as semantics
from tests.integration import test_topic_positions as positions
from tests.integration.conftest import MakeTopic
from tests.integration.test_sink_kafka import (
    QUICK,
    KafkaCluster,
    test_a_killed_process_leaves_nothing_visible_but_what_it_committed,
    test_a_pending_transaction_is_waited_for_and_never_taken_for_nothing,
    test_a_record_that_the_broker_rejects_is_never_taken_for_delivered,
    test_a_transaction_that_timed_out_counts_as_fenced,
    test_records_up_to_the_topics_limit_are_committed,
)
from tests.integration.test_topic_consumer import (
    test_from_the_latest_records_on_nothing_is_skipped,
    test_records_that_retention_deleted_are_an_error_and_the_gap_can_be_accepted,
)
from tests.integration.test_topic_positions import objects
from tests.support.columnar_topics import Reading, Topics
from tests.support.delivery import Delivery

from extentflow.kafka.broker import KafkaBroker
from extentflow_local.stack.servers import Toolbox
from extentflow_local.stack.servers.kafka import Kafka
from extentflow_local.stack.stack import Stack

__all__ = [
    "objects",
    "test_a_killed_process_leaves_nothing_visible_but_what_it_committed",
    "test_a_pending_transaction_is_waited_for_and_never_taken_for_nothing",
    "test_a_record_that_the_broker_rejects_is_never_taken_for_delivered",
    "test_a_transaction_that_timed_out_counts_as_fenced",
    "test_from_the_latest_records_on_nothing_is_skipped",
    "test_records_that_retention_deleted_are_an_error_and_the_gap_can_be_accepted",
    "test_records_up_to_the_topics_limit_are_committed",
]

pytestmark = pytest.mark.variant

RELEASES = OLDEST, NEWEST = "kafka-oldest", "kafka-newest"
CLAUSES = (
    "test_a_group_that_never_committed_reads_as_none",
    "test_a_zombies_commit_is_fenced_and_its_records_stay_invisible",
    "test_a_zombies_mark_is_fenced",
    "test_fencing_aborts_what_the_predecessor_left_open",
    "test_keys_land_where_javas_partitioner_puts_them",
    "test_lists_of_headers_keep_order_repeated_names_and_nulls",
    "test_trap_t29_the_topics_limit_rejects_one_record_alone",
)
MEMBER = Path(__file__).parents[1] / "support" / "ShareMember.java"


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Stack]]:
    """A broker of each release."""
    limits = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
    with ExitStack() as running:
        found: dict[str, Stack] = {}
        for component in RELEASES:
            service = Kafka(quick=True, component=component, properties=limits)
            root = tmp_path_factory.mktemp(component)
            stack = running.enter_context(Stack(root, services=[service], free_ports=True))
            stack.up()
            kafka = {"bootstrap.servers": stack.endpoint("kafka")}
            KafkaBroker(kafka, timeouts=QUICK).ensure_progress_topic()
            found[component] = stack
        yield found


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """The component of the release."""
    component: str = request.param
    return component


@pytest.fixture
def bootstrap_servers(releases: dict[str, Stack], release: str) -> str:
    return releases[release].endpoint("kafka")


@pytest.fixture
def cluster(bootstrap_servers: str) -> KafkaCluster:
    return KafkaCluster(bootstrap_servers)


@pytest.fixture
def topics(bootstrap_servers: str) -> Topics:
    return Topics(bootstrap_servers)


@pytest.fixture
def delivery(delivery: Delivery, bootstrap_servers: str) -> Delivery:
    """A delivery to the release's broker; objects and ledger are those of the stack."""
    delivery.changes["bootstrap_servers"] = bootstrap_servers
    return delivery


@pytest.mark.parametrize("clause", CLAUSES)
def test_sinks_keep_their_contract(cluster: KafkaCluster, clause: str) -> None:
    getattr(SinkContract(), clause)(cluster)


@pytest.mark.parametrize("kind", semantics.REFUSALS)
def test_a_record_that_the_topic_refuses_is_a_bad_record(
    delivery: Delivery, make_topic: MakeTopic, kind: str
) -> None:
    semantics.test_a_record_that_the_topic_refuses_stops_no_other_object(
        delivery, make_topic, "all", kind
    )


def test_reading_continues_at_an_object(objects: Reading) -> None:
    positions.test_reading_continues_at_an_object_or_an_extent(objects, "s3://b/2", None, 100)


def test_share_groups_have_their_isolation_level(
    releases: dict[str, Stack], release: str, make_topic: MakeTopic, unique: str
) -> None:
    servers = releases[release].endpoint("kafka")
    broker = KafkaBroker({"bootstrap.servers": servers})
    if release == OLDEST:
        assert broker.share_groups() == {}
        return
    join(releases[NEWEST].toolbox, servers, unique, make_topic())

    before = broker.share_groups()
    admin = AdminClient({"bootstrap.servers": servers})
    level = ConfigEntry(
        "share.isolation.level", "read_committed", incremental_operation=AlterConfigOpType.SET
    )
    group = ConfigResource(ConfigResource.Type.GROUP, unique, incremental_configs=[level])
    admin.incremental_alter_configs([group])[group].result(30)

    assert before[unique] == "read_uncommitted"
    assert broker.share_groups()[unique] == "read_committed"


def join(toolbox: Toolbox, servers: str, group: str, topic: str) -> None:
    """Let a share group have had a member."""
    classes = f"{toolbox.library(NEWEST)}/*"
    command = [str(toolbox.java()), "-cp", classes, str(MEMBER), servers, group, topic]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
