"""The data source and the streaming query on a standalone cluster, the library in a zip."""

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.integration.faultproxy import Delay, FaultProxy
from tests.support.delivery import Delivery, joined, numbered_lines
from tests.support.submitting import (
    LAYER,
    ROOT,
    SPECULATION,
    await_,
    clean_python,
    submitted,
    surroundings,
)
from tests.support.waiting import AWAITED_SECONDS

from extentflow.model import JobState
from extentflow_local.stack.spark_cluster import SparkCluster
from extentflow_local.stack.spark_submit import Submitter, library_zip
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

JOB = ROOT / "jobs" / "spark_stream.py"
LINES = numbered_lines("line-", 40_000)
CONFIG = {"extent.bytes": str(48 << 10)}
BATCH = """
import sys
from pyspark.sql import SparkSession
from extentflow.spark import register

spark = SparkSession.builder.getOrCreate()
register(spark)
source = spark.read.format("extentflow").options(connector=sys.argv[1], parallelism="2")
rows = source.load(sys.argv[2]).collect()
print("reported:", sum(row.records for row in rows), sorted({row.state for row in rows}))
"""


@pytest.fixture
def delivery(
    stack: Stack,
    s3: "S3Client",
    bucket: str,
    unique: str,
    s3_proxy: FaultProxy,
    *,
    queues: Stack,
    monkeypatch: pytest.MonkeyPatch,
) -> Delivery:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", queues.endpoint("sqs"))
    delivery = Delivery(stack, s3, bucket, unique, {"retry_timeout_seconds": 120.0})
    s3_proxy.inject(Delay(0.5), when=lambda request: request.method == "GET", times=None)
    return delivery


@pytest.fixture
def submitter(
    delivery: Delivery, spark_cluster: SparkCluster, sqs: "SQSClient", tmp_path: Path
) -> Submitter:
    delivery.make_queues(sqs)
    environment = {**delivery.environment, **surroundings(clean_python(tmp_path))}
    return Submitter(
        spark_cluster.master_url, library_zip(LAYER, tmp_path), environment, SPECULATION
    )


def test_a_query_survives_the_loss_of_a_machine_and_of_its_driver(
    delivery: Delivery,
    spark_cluster: SparkCluster,
    submitter: Submitter,
    s3_proxy: FaultProxy,
    tmp_path: Path,
) -> None:
    delivery.connector({**CONFIG, "aws.s3.endpoint": s3_proxy.endpoint})
    delivery.arrive("lines.txt", joined(LINES))
    words = ("--every", "0.5", "--json", "--checkpoint", (tmp_path / "checkpoint").as_uri())

    with submitted(submitter, JOB, *words, log=tmp_path / "first.log") as first:
        await_("extents are under way", delivery.under_way, first)
        spark_cluster.kill_worker(0)
        before = final(delivery)
        await_("the other worker continues", lambda: final(delivery) > before, first)
        spark_cluster.start_worker(0, "127.0.0.1")
        os.killpg(first.process.pid, signal.SIGKILL)
        first.process.wait()
    left = [job.state for job in delivery.jobs()]
    with submitted(submitter, JOB, *words, log=tmp_path / "second.log") as second:
        await_("a second one is at work", lambda: final(delivery) > before + 1, second)
        s3_proxy.clear()
        # A job that changes its state may be missing for a moment where jobs are listed by it.
        ended = lambda: [job.state for job in delivery.jobs()] == [JobState.DONE]  # noqa: E731
        await_("the job is done", ended, second)
        executors = spark_cluster.executor_pids()
        driver = second.driver()
        assert driver is not None
        driver.send_signal(signal.SIGTERM)
        code = second.process.wait(timeout=AWAITED_SECONDS)

    spark_cluster.stop()

    assert left == [JobState.RUNNING]
    assert code == 0, (tmp_path / "second.log").read_text()
    assert delivery.leftovers() == []
    assert delivery.live() == []
    assert sorted(delivery.values()) == sorted(LINES)
    assert executors
    assert not any(psutil.pid_exists(pid) for pid in executors)


@pytest.mark.soak
def test_a_batch_query_survives_speculation_and_the_loss_of_an_executor(
    delivery: Delivery,
    spark_cluster: SparkCluster,
    submitter: Submitter,
    s3_proxy: FaultProxy,
    tmp_path: Path,
) -> None:
    delivery.connector({**CONFIG, "aws.s3.endpoint": s3_proxy.endpoint})
    delivery.put("lines.txt", joined(LINES))
    program = tmp_path / "batch.py"
    program.write_text(BATCH)
    log = tmp_path / "batch.log"

    words = (delivery.connector_name, delivery.address)
    with submitted(submitter, program, *words, log=log) as submission:
        await_("extents are under way", delivery.under_way, submission)
        os.kill(spark_cluster.executor_pids()[0], signal.SIGKILL)
        s3_proxy.clear()
        code = submission.process.wait(timeout=AWAITED_SECONDS)

    assert code == 0, log.read_text()
    assert f"reported: {len(LINES)} ['DONE']" in log.read_text()
    assert delivery.leftovers() == []
    assert sorted(delivery.values()) == sorted(LINES)


def final(delivery: Delivery) -> int:
    return sum(item.state.final for item in delivery.items())
