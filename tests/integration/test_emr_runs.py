"""Large objects by runs of Spark: StartJobRun reaches a stand-in of EMR Serverless.

What is run is what is deployed: the planner's request, the archive, `spark-submit` with the
request's properties on a standalone master with two workers. The deployed rule hears of the end.
"""

import json
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest
from infra.recipes import spark_archive
from tests.integration.faultproxy import Delay, FaultProxy, Hold, Reset
from tests.support import archive
from tests.support.delivery import PROGRAM, joined, numbered_lines
from tests.support.eventpath import Ending, EventPath, Feed, Ground
from tests.support.submitting import ROOT
from tests.support.waiting import AWAITED_SECONDS, eventually

from extentflow.model import JobState
from extentflow_local.aws.emr.application import Order
from extentflow_local.aws.emr.service import ENDPOINT, Code, EmrServerless
from extentflow_local.aws.emr.submitting import OUTPUT, SparkSubmits, SubmittedRun
from extentflow_local.aws.event_source.delivery import Delivery
from extentflow_local.stack.spark_cluster import SparkCluster
from extentflow_local.stack.stack import Stack

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

LINES = numbered_lines(f"line-{'.' * 20}-", 10_000)
BODY = joined(LINES)
THRESHOLD_BYTES = len(BODY) // 2
PACKAGES = f"/{spark_archive.UNPACKED}/{spark_archive.PACKAGES}/"
# What a driver finds beside settings and Spark's own variables.
GIVEN = {
    *("PATH", "HOME", "TMPDIR", "LC_ALL", "JAVA_HOME", "PWD", "OLDPWD", "SHLVL", "_"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"),
    *("MASTER", "AWS_DEFAULT_REGION", "PYTHONPATH", "PYTHONHASHSEED", "PYTHONUNBUFFERED"),
}
ANY_NUMBER = ("AWS_ENDPOINT_URL_", "EXTENTFLOW_", "PYSPARK_", "SPARK_", "_SPARK_")
NOT_FOR_RUNS = "NOT_FOR_RUNS"

# Three JVMs start, each unpacks the archive: ten seconds, minutes on a machine that is busy.
patiently = eventually


@dataclass
class Begins:
    """Begins runs, and remembers them."""

    submits: SparkSubmits
    begun: list[SubmittedRun] = field(default_factory=list)

    def __call__(self, order: Order) -> SubmittedRun:
        found = self.submits(order)
        self.begun.append(found)
        return found


@dataclass(frozen=True)
class Scene:
    """An event path, and where its runs are."""

    path: EventPath
    cluster: SparkCluster
    begins: Begins
    root: Path
    way: FaultProxy

    def heard(self, run: str) -> list[Delivery]:
        """Wait until the reconciler has dealt with a run's end; return what it was called with."""

        def ours(seen: list[Delivery]) -> list[Delivery]:
            called = (one for one in seen if one.function == "reconciler")
            return [one for one in called if json.loads(one.outcome.payload).get("run") == run]

        return ours(self.path.seen.until(lambda seen: bool(ours(seen))))

    def unpacked(self) -> set[Path]:
        """Return where executors have unpacked the archive."""
        return set(self.root.glob(f"cluster/worker-*/work/*/*/{spark_archive.UNPACKED}"))


@pytest.fixture(scope="module")
def scene(ground: Ground, stack: Stack) -> Iterator[Scene]:
    machine = archive.this_machine()
    archive.interpreter()
    archive.built(machine)
    code = Code(
        entry_point=ROOT / "jobs" / "spark_deliver.py",
        archive=ROOT / spark_archive.archive(machine),
        environment=stack.environment(),
    )
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as caller:
        caller.setenv(NOT_FOR_RUNS, "seen")
        root = Path(folder)
        with SparkCluster(root / "cluster") as cluster:
            submits = SparkSubmits(cluster.master_url, root / "runs", stack.environment())
            begins = Begins(submits)
            with (
                EmrServerless(begins, code) as emr,
                FaultProxy(emr.url) as way,
                ground.open(
                    settings={"spark.threshold.bytes": f"{THRESHOLD_BYTES}"},
                    environment={ENDPOINT: way.endpoint},
                    emr=emr,
                ) as path,
            ):
                yield Scene(path, cluster, begins, root, way)


def run_of(scene: Scene, before: int) -> SubmittedRun:
    """Wait for the run that begins after so many others."""
    begun = scene.begins.begun
    patiently("a run begins", lambda: len(begun) > before)
    return begun[before]


def answer(heard: list[Delivery]) -> Any:  # noqa: ANN401 - JSON
    (one,) = heard
    return json.loads(one.outcome.payload)


def claims(feed: Feed) -> int:
    """Return the number of claimed extents."""
    return sum(item.claim is not None for item in feed.items())


def under_way(feed: Feed) -> bool:
    """Return whether an extent is final and another one is claimed."""
    return any(item.state.final for item in feed.items()) and claims(feed) > 0


def loaded(pid: int) -> set[str]:
    """Return the packages' libraries that a process has loaded."""
    maps = psutil.Process(pid).memory_maps()
    return {one.path for one in maps if f"/{spark_archive.PACKAGES}/" in one.path}


@pytest.mark.soak
def test_a_spark_run_alone_delivers_a_large_object(scene: Scene, s3_proxy: FaultProxy) -> None:
    feed = scene.path.feed(aws_s3_endpoint=s3_proxy.endpoint, extent_bytes="32KiB")
    seen, begun = len(scene.path.seen.deliveries), len(scene.begins.begun)
    before, released = scene.unpacked(), threading.Event()
    # Reads are held until both workers have an extent: each has one core.
    s3_proxy.inject(Hold(released), when=lambda request: request.method == "GET", times=None)

    upload = feed.upload("large.txt", BODY)
    place = run_of(scene, begun).place
    patiently("both workers have an extent", lambda: claims(feed) == 2)
    released.set()
    feed.await_state(upload, JobState.DONE)
    heard = scene.heard(place.name)

    assert feed.ending(LINES) == Ending(records=len(LINES)), (place / OUTPUT).read_text()
    assert answer(heard) == {"run": place.name, "messages_resent": 0}
    functions = {one.function for one in scene.path.seen.deliveries[seen:]}
    assert functions == {"planner", "reconciler"}
    workers = {path.parents[3].name for path in scene.unpacked() - before}
    assert workers == {"worker-0", "worker-1"}


def test_what_a_run_left_whose_driver_was_killed_is_delivered_by_functions(
    scene: Scene, s3_proxy: FaultProxy
) -> None:
    feed = scene.path.feed(aws_s3_endpoint=s3_proxy.endpoint, extent_bytes="32KiB")
    s3_proxy.inject(Delay(0.5), when=lambda request: request.method == "GET", times=None)
    begun = len(scene.begins.begun)

    feed.upload("large.txt", BODY)
    run = run_of(scene, begun)
    patiently("extents are under way", lambda: under_way(feed))
    driver = run.submission.driver()
    assert driver is not None
    given = set(driver.environ())
    libraries = [loaded(pid) for pid in (driver.pid, *scene.cluster.python_worker_pids())]
    driver.send_signal(signal.SIGKILL)
    heard = scene.heard(run.place.name)
    s3_proxy.clear()

    assert answer(heard)["messages_resent"] > 0
    assert feed.ending(LINES) == Ending(records=len(LINES))
    assert 0 < sum(receipt["records"] for receipt in feed.receipts()) < len(LINES)
    # No variable of the submitting process, and no package outside the archive.
    assert {name for name in given if not name.startswith(ANY_NUMBER)} <= GIVEN
    assert libraries[0]
    assert any(libraries[1:])
    assert [path for found in libraries for path in found if PACKAGES not in path] == []


def test_where_no_run_can_be_had_a_large_object_is_delivered_by_functions(scene: Scene) -> None:
    feed = scene.path.feed()
    begun = len(scene.begins.begun)
    rule = scene.way.inject(Reset(), times=None)

    upload = feed.upload("large.txt", BODY)
    feed.await_state(upload, JobState.DONE)
    scene.way.clear()

    assert rule.hits > 0
    assert feed.ending(LINES) == Ending(records=len(LINES))
    assert len(scene.begins.begun) == begun


@pytest.mark.soak
def test_a_smaller_object_starts_no_run(scene: Scene) -> None:
    feed = scene.path.feed()
    few = LINES[:100]
    begun = len(scene.begins.begun)

    upload = feed.upload("small.txt", joined(few))
    feed.await_state(upload, JobState.DONE)

    assert feed.ending(few) == Ending(records=len(few))
    assert len(scene.begins.begun) == begun


# -- what people ask for --------------------------------------------------------------------------

PARTS = [LINES[number::3] for number in range(3)]


def asked(scene: Scene, feed: Feed, *words: str) -> "subprocess.Popen[str]":
    """Start a command with the settings of the functions."""
    environment = {
        **feed.delivery.environment,
        "AWS_ENDPOINT_URL_SQS": scene.path.ground.queues.endpoint("sqs"),
        ENDPOINT: scene.way.endpoint,
    }
    process = subprocess.Popen(
        [str(PROGRAM), *words, "--connector", feed.delivery.connector_name, "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    feed.delivery.started.append(process)
    return process


def said(process: "subprocess.Popen[str]") -> tuple[int, Any, str]:
    """Wait for a command's end; return its code, its JSON, its messages."""
    output, errors = process.communicate(timeout=AWAITED_SECONDS)
    return process.returncode, json.loads(output or "null"), errors


@pytest.mark.soak
def test_a_backfill_whose_driver_is_killed_is_finished_by_one_more_run(
    scene: Scene, s3_proxy: FaultProxy
) -> None:
    feed = scene.path.feed(aws_s3_endpoint=s3_proxy.endpoint, extent_bytes="32KiB")
    uploads = [feed.put(f"part-{n}.txt", joined(part)) for n, part in enumerate(PARTS)]
    s3_proxy.inject(Delay(0.5), when=lambda request: request.method == "GET", times=None)
    seen, begun = len(scene.path.seen.deliveries), len(scene.begins.begun)

    code, reported, errors = said(asked(scene, feed, "submit", "--engine", "spark"))
    first = run_of(scene, begun)
    patiently("extents are under way", lambda: under_way(feed))
    killed = first.submission.driver()
    assert killed is not None
    killed.send_signal(signal.SIGKILL)
    second = run_of(scene, begun + 1)
    s3_proxy.clear()
    heard = [scene.heard(run.place.name) for run in (first, second)]

    assert (code, reported["submitted"]) == (0, 3), errors
    assert [answer(one)["messages_resent"] for one in heard] == [0, 0]
    assert [feed.await_state(one, JobState.DONE).state for one in uploads] == ["DONE"] * 3
    assert feed.ending(LINES) == Ending(records=len(LINES), jobs=Counter(DONE=3))
    assert {one.function for one in scene.path.seen.deliveries[seen:]} == {"planner", "reconciler"}
    assert len(scene.begins.begun) == begun + 2
