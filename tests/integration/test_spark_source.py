"""`spark.read.format("extentflow")`: reading receipts delivers, exactly once."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.integration.faultproxy import Delay, FaultProxy
from tests.support.delivery import Delivery, joined, numbered_lines
from tests.support.spark import MARKS, kill_python_workers
from tests.support.waiting import AWAITED_SECONDS, eventually

from extentflow.engines import spark as engine
from extentflow.ledger import ConnectorState
from extentflow.spark import register
from extentflow.spark.source import ExtentflowSource
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = MARKS

LINES = numbered_lines("line-", 30_000)
OTHERS = numbered_lines("other-", 500)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    context = engine.local_context(2)
    session = SparkSession(context)
    register(session)
    register(session)
    yield session
    session.stop()


@pytest.fixture
def delivery(stack: Stack, s3: "S3Client", bucket: str, unique: str) -> Delivery:
    delivery = Delivery(stack, s3, bucket, unique)
    delivery.put("lines.txt", joined(LINES))
    delivery.put("others.txt", joined(OTHERS))
    delivery.connector({"extent.bytes": "64KiB"})
    return delivery


def receipts(spark: SparkSession, delivery: Delivery, **options: Any) -> DataFrame:  # noqa: ANN401
    reader = spark.read.format("extentflow").option("connector", delivery.connector_name)
    return reader.options(**delivery.settings.to_map(), **options).load(delivery.address)


def test_reading_delivers_every_record_once_and_returns_a_row_per_extent(
    spark: SparkSession, delivery: Delivery
) -> None:
    rows = receipts(spark, delivery).collect()

    assert sorted(delivery.values()) == sorted(LINES + OTHERS)
    assert {row.state for row in rows} == {"DONE"}
    assert len(rows) == sum(job.plan.count for job in delivery.jobs()) > 4
    assert sum(row.records for row in rows) == len(LINES) + len(OTHERS)
    assert {row.object for row in rows} == {job.version.uri for job in delivery.jobs()}
    assert all(row.position > 0 for row in rows)
    # A task that Spark repeated finds its extents delivered: 0 bytes, 0 seconds.
    assert sum(row.bytes for row in rows) > 0
    assert sum(row.seconds for row in rows) > 0
    sizes = {job.version.uri: job.version.size for job in delivery.jobs()}
    for uri, size in sizes.items():
        ends = sorted((row.start, row.end) for row in rows if row.object == uri)
        assert [end for _, end in ends[:-1]] == [start for start, _ in ends[1:]]
        assert (ends[0][0], ends[-1][1]) == (0, size)
    assert {job.state for job in delivery.jobs()} == {"DONE"}


def test_a_session_with_executors_elsewhere_refuses_the_ledger_of_one_machine(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = {
        "connector": "orders",
        "bootstrap.servers": "127.0.0.1:1",
        "ledger.url": f"sqlite:///{tmp_path / 'ledger.db'}",
    }
    spark.dataSource.register(ExtentflowSource.of("spark://host:7077"))
    try:
        reader = spark.read.format("extentflow").options(**options)

        with pytest.raises(PySparkException, match="executors of spark://host:7077 may run on"):
            reader.load("s3://shop/in/").collect()
    finally:
        register(spark)


def test_a_session_leaves_nothing_in_the_environment_of_later_processes(
    spark: SparkSession,
) -> None:
    assert spark.sparkContext.pythonExec
    assert not {"PYSPARK_PYTHON", "SPARK_LOCAL_IP", "SPARK_SUBMIT_OPTS"} & os.environ.keys()


@pytest.mark.long
def test_a_second_action_says_the_same_and_delivers_nothing(
    spark: SparkSession, delivery: Delivery
) -> None:
    read = receipts(spark, delivery)
    columns = ("job", "extent", "start", "end", "position", "records", "bad", "state", "reason")
    first = {tuple(row[name] for name in columns) for row in read.collect()}

    again = read.collect()

    assert {tuple(row[name] for name in columns) for row in again} == first
    assert {row.bytes for row in again} == {0}
    assert read.count() == len(first)
    again = receipts(spark, delivery).collect()
    assert {tuple(row[name] for name in columns) for row in again} == first
    assert {(row.bytes, row.seconds) for row in again} == {(0, 0.0)}
    assert len(delivery.values()) == len(LINES) + len(OTHERS)


@pytest.mark.long
def test_explaining_a_query_plans_and_delivers_nothing(
    spark: SparkSession, delivery: Delivery
) -> None:
    read = receipts(spark, delivery)
    assert delivery.jobs() == []

    read.explain()

    assert delivery.values() == []
    assert read.count() > 4
    assert len(delivery.values()) == len(LINES) + len(OTHERS)


@pytest.mark.long
def test_what_failed_fails_the_action_and_is_resumed_by_the_next(
    spark: SparkSession, delivery: Delivery
) -> None:
    large = b"x" * 40_000
    delivery.put("large.txt", joined([b"small", large]))
    max_message_bytes(delivery, 30_000)

    with pytest.raises(PySparkException, match=r"large\.txt: FAILED: .*too large"):
        receipts(spark, delivery).collect()
    assert set(delivery.values()) >= {*LINES, *OTHERS}
    rows = receipts(spark, delivery, mode="PERMISSIVE", replay="false").collect()
    (failed,) = [row for row in rows if row.state != "DONE"]
    assert failed.object.endswith("large.txt")
    assert "too large" in failed.reason

    max_message_bytes(delivery, 1_000_000)
    rows = receipts(spark, delivery).collect()

    assert {row.state for row in rows} == {"DONE"}
    assert sorted(delivery.values()) == sorted([*LINES, *OTHERS, b"small", large])


@pytest.mark.long
def test_an_object_that_cannot_be_cut_is_a_row_of_its_own(
    spark: SparkSession, delivery: Delivery
) -> None:
    delivery.put("odd.parquet", b"no parquet at all, although its name says so")

    with pytest.raises(PySparkException, match=r"odd\.parquet: FAILED"):
        receipts(spark, delivery).collect()
    assert sorted(delivery.values()) == sorted(LINES + OTHERS)
    rows = receipts(spark, delivery, mode="PERMISSIVE").collect()

    (odd,) = [row for row in rows if row.object.endswith("odd.parquet")]
    assert (odd.state, odd.extent, odd.records) == ("FAILED", None, 0)
    assert odd.reason
    assert sorted(delivery.values()) == sorted(LINES + OTHERS)


@pytest.mark.long
def test_killed_python_workers_lose_and_double_nothing(
    spark: SparkSession, delivery: Delivery, s3_proxy: FaultProxy
) -> None:
    delivery.connector({"aws.s3.endpoint": s3_proxy.endpoint, "extent.bytes": "64KiB"})
    s3_proxy.inject(Delay(0.3), when=lambda request: request.method == "GET", times=None)

    with ThreadPoolExecutor(1) as pool:
        action = pool.submit(receipts(spark, delivery).collect)
        eventually("extents are under way", delivery.claims)
        assert kill_python_workers() > 0
        rows = action.result(timeout=AWAITED_SECONDS)

    assert sorted(delivery.values()) == sorted(LINES + OTHERS)
    assert {row.state for row in rows} == {"DONE"}
    assert sum(row.records for row in rows) == len(LINES) + len(OTHERS)


@pytest.mark.variant
def test_two_actions_at_once_share_the_work(spark: SparkSession, delivery: Delivery) -> None:
    together = threading.Barrier(2)

    def act(_: int) -> int:
        together.wait()
        return sum(row.records for row in receipts(spark, delivery).collect())

    with ThreadPoolExecutor(2) as pool:
        totals = list(pool.map(act, range(2)))

    assert totals == [len(LINES) + len(OTHERS)] * 2
    assert sorted(delivery.values()) == sorted(LINES + OTHERS)


@pytest.mark.long
def test_where_there_is_nothing_there_are_no_rows(
    spark: SparkSession, delivery: Delivery, s3: "S3Client"
) -> None:
    for label in ("lines.txt", "others.txt"):
        s3.delete_object(Bucket=delivery.bucket, Key=f"{delivery.prefix}{label}")

    assert receipts(spark, delivery).collect() == []
    delivery.put("empty.txt", b"")
    assert receipts(spark, delivery).collect() == []
    assert [job.state for job in delivery.jobs()] == ["DONE"]


def test_a_user_schema_is_rejected_before_anything_is_delivered(
    spark: SparkSession, delivery: Delivery
) -> None:
    read = spark.read.format("extentflow").option("connector", delivery.connector_name)
    own = read.options(**delivery.settings.to_map()).schema("state string, job string")

    with pytest.raises(PySparkException, match="receipts have columns of their own"):
        own.load(delivery.address).collect()

    assert delivery.values() == []


@pytest.mark.long
def test_wrong_options_are_reported_in_the_librarys_words(
    spark: SparkSession, delivery: Delivery
) -> None:
    def read(**options: str) -> DataFrame:
        known = delivery.settings.to_map()
        return spark.read.format("extentflow").options(**known, **options).load()

    with pytest.raises(PySparkException, match="there is no connector nobodys"):
        read(connector="nobodys").collect()
    with pytest.raises(PySparkException, match="option connector: missing"):
        read().collect()


def test_a_paused_connector_delivers_nothing(spark: SparkSession, delivery: Delivery) -> None:
    delivery.runtime.ledger.connectors.set_state(delivery.connector_name, ConnectorState.PAUSED)

    with pytest.raises(PySparkException, match="is PAUSED; continue it with `extentflow resume"):
        receipts(spark, delivery).collect()

    assert delivery.jobs() == []


def max_message_bytes(delivery: Delivery, size: int) -> None:
    admin = AdminClient({"bootstrap.servers": delivery.settings.bootstrap_servers})
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, delivery.topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([topic]).values():
        future.result(timeout=60)
