"""`spark-submit` on a standalone cluster, with the library in a zip and nowhere else."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.faultproxy import Answer, Delay, FaultProxy
from tests.support.delivery import Delivery, joined, numbered_lines
from tests.support.submitting import (
    LAYER,
    PACKAGES,
    ROOT,
    SPECULATION,
    await_,
    clean_python,
    submitted,
    surroundings,
)
from tests.support.waiting import AWAITED_SECONDS

from extentflow_local.stack.spark_cluster import SparkCluster
from extentflow_local.stack.spark_submit import Submitter, library_zip
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

JOB = ROOT / "jobs" / "spark_deliver.py"
LINES = numbered_lines("line-", 60_000)
EXTENT_BYTES = 96 << 10
LAST_EXTENT = len(joined(LINES)) // EXTENT_BYTES

WHERE = """
from extentflow.engines import spark

def file_of_library(_):
    import extentflow
    return extentflow.__file__

sc = spark.local_context(1)
print(file_of_library(None))
print(*sc.parallelize([0], 1).map(file_of_library).collect())
print(sc._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString())
sc.stop()
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return library_zip(LAYER, tmp_path)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    return clean_python(tmp_path)


@pytest.fixture
def environment(python: Path) -> dict[str, str]:
    return surroundings(python)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path / "spark", cores=2) as running:
        yield running


@pytest.fixture
def delivery(
    stack: Stack, s3: "S3Client", bucket: str, unique: str, s3_proxy: FaultProxy
) -> Delivery:
    delivery = Delivery(stack, s3, bucket, unique, {"retry_timeout_seconds": 120.0})
    delivery.put("lines.txt", joined(LINES))
    delivery.connector({"aws.s3.endpoint": s3_proxy.endpoint, "extent.bytes": str(EXTENT_BYTES)})
    # From the byte before, to see whether a line begins with the extent.
    straggler = f"bytes={LAST_EXTENT * EXTENT_BYTES - 1}-"
    held = lambda request: straggler in str(request.byte_range)  # noqa: E731
    s3_proxy.inject(Answer(503), when=held, times=None)
    s3_proxy.inject(Delay(0.5), when=lambda request: request.method == "GET", times=None)
    return delivery


@pytest.fixture
def submitter(
    delivery: Delivery,
    cluster: SparkCluster,
    library: Path,
    environment: dict[str, str],
) -> Submitter:
    events = library.parent / "events"
    events.mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.log.level": "INFO",  # the test reads when tasks are started
        **SPECULATION,
    }
    return Submitter(cluster.master_url, library, {**delivery.environment, **environment}, conf)


@pytest.mark.soak
def test_a_submitted_job_survives_speculation_and_the_loss_of_an_executor(
    delivery: Delivery, cluster: SparkCluster, submitter: Submitter, s3_proxy: FaultProxy
) -> None:
    log = submitter.library.parent / "driver.log"

    def started(attempt: int) -> bool:
        return f"Starting task {LAST_EXTENT}.{attempt} in stage" in log.read_text()

    ours = ("--connector", delivery.connector_name, "--json", delivery.address)
    with submitted(submitter, JOB, *ours, log=log) as submission:
        process = submission.process
        await_("an extent is under way", delivery.under_way, submission)
        os.kill(cluster.executor_pids()[0], signal.SIGKILL)
        await_("the last extent's turn", lambda: started(0), submission)
        await_("its speculative copy", lambda: started(1), submission)
        await_("the slots of both", lambda: len(delivery.live()) > 1, submission)
        s3_proxy.clear()
        code = process.wait(timeout=AWAITED_SECONDS)
    events = task_events(log.parent / "events")

    assert code == 0, log.read_text()
    assert '"ok": true' in log.read_text()
    assert any(event["Task Info"]["Speculative"] for event in events)
    assert any(failed(event) == "ExecutorLostFailure" for event in events)
    assert delivery.leftovers() == []
    assert sorted(delivery.values()) == sorted(LINES)


def test_driver_and_workers_use_a_zipped_library_and_its_log_settings(
    library: Path, environment: dict[str, str], python: Path
) -> None:
    zipped = {**environment, "PYTHONPATH": f"{library}{os.pathsep}{PACKAGES}"}

    shown = subprocess.run(
        [str(python), "-c", WHERE], env=zipped, capture_output=True, text=True, check=True
    )

    place = f"{library}/extentflow/__init__.py"
    assert shown.stdout.split() == [place, place, "ERROR"]


def test_without_the_zip_the_library_is_not_there(
    environment: dict[str, str], python: Path
) -> None:
    alone = subprocess.run(
        [str(python), "-c", "import extentflow"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "No module named 'extentflow'" in alone.stderr


def task_events(folder: Path) -> list[dict[str, Any]]:
    """Return the starts and ends of tasks that Spark logged."""
    logs = [path.read_text() for path in folder.rglob("*") if path.is_file()]
    events = [json.loads(line) for log in logs for line in log.splitlines()]
    return [event for event in events if "Task Info" in event]


def failed(event: dict[str, Any]) -> str:
    return str(event.get("Task End Reason", {}).get("Reason", ""))
