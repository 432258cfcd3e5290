"""The standalone Spark cluster: two workers on two addresses, and its processes at hand."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.support.waiting import AWAITED_SECONDS, eventually

from extentflow_local.stack.programs import spark_home
from extentflow_local.stack.spark_cluster import SparkCluster

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

JOB = """
import os, sys, time
from pathlib import Path
from pyspark import SparkContext

flag = Path(sys.argv[1])
context = SparkContext()

def work(number):
    deadline = time.monotonic() + 300
    while not flag.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return number

print("SUM", context.parallelize(range(2), 2).map(work).sum())
context.stop()
"""


@pytest.fixture
def job(spark_cluster: SparkCluster, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    loopback = ["--conf", "spark.driver.host=127.0.0.1"]
    loopback += ["--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.ui.enabled=false"]
    submit = [str(spark_home() / "bin" / "spark-submit"), "--master", spark_cluster.master_url]
    environment = {**os.environ, "SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": sys.executable}
    with subprocess.Popen(
        [*submit, *loopback, str(script), str(tmp_path / "go")],
        env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as running:
        yield running
        if running.poll() is None:
            running.kill()


def await_workers(spark_cluster: SparkCluster, count: int) -> None:
    eventually(f"{count} workers", lambda: len(spark_cluster.python_worker_pids()) >= count)


@pytest.mark.soak
def test_a_job_survives_the_loss_of_an_executor_and_stop_leaves_no_process(
    spark_cluster: SparkCluster, job: subprocess.Popen[str], tmp_path: Path
) -> None:
    await_workers(spark_cluster, 2)
    executors = spark_cluster.executor_pids()
    hosts = set().union(*map(listening_hosts, executors))

    os.kill(executors[0], signal.SIGKILL)
    (tmp_path / "go").touch()
    output, _ = job.communicate(timeout=AWAITED_SECONDS)
    workers = spark_cluster.executor_pids()
    spark_cluster.stop()

    assert hosts == {"127.0.0.1", "127.0.0.2"}
    assert "SUM 1" in output
    assert not any(psutil.pid_exists(pid) for pid in executors + workers)


def listening_hosts(pid: int) -> set[str]:
    return {
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in psutil.Process(pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
