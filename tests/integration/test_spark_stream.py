"""`spark.readStream.format("extentflow")`: a streaming query delivers new objects, exactly once."""

import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.integration.faultproxy import Answer, Delay, FaultProxy, Reset
from tests.support.delivery import Delivery, joined, numbered_lines
from tests.support.eventpath import Ending, Ground
from tests.support.spark import kill_python_workers
from tests.support.waiting import AWAITED_SECONDS, eventually, running_seconds

from extentflow.engines import spark as engine
from extentflow.engines.spark import QueryFailed
from extentflow.ledger import ConnectorState
from extentflow.model import JobState
from extentflow.spark.query import Service, Terms, TriggerResult
from extentflow.spark.tasks import request_stop
from extentflow.wiring import Runtime
from extentflow.wiring.functions import queue
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

JOB = Path(__file__).parents[2] / "jobs" / "spark_stream.py"
LINES = numbered_lines("line-", 30_000)
OTHERS = numbered_lines("other-", 500)
EVERY_SECONDS = 0.5
SLOW_SECONDS = 20.0


@pytest.fixture(scope="module")
def spark(queues: Stack) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ENDPOINT_URL_SQS", queues.endpoint("sqs"))
        session = SparkSession(engine.local_context(2))
        yield session
        session.stop()


@pytest.fixture
def queued(delivery: Delivery, spark: SparkSession, sqs: "SQSClient") -> Delivery:
    """A delivery with queues; its connector is there, and nothing else runs."""
    assert spark is not None  # the queues' endpoint is in the environment
    delivery.make_queues(sqs)
    delivery.connector({"extent.bytes": "64KiB"})
    return delivery


class Running:
    """A service in a thread, as its own process would run it."""

    def __init__(
        self,
        spark: SparkSession,
        delivery: Delivery,
        folder: Path,
        **terms: Any,  # noqa: ANN401
    ) -> None:
        self.triggers: list[TriggerResult] = []
        self.undone: list[str] | None = None
        self.error: BaseException | None = None
        options = {
            **delivery.settings.to_map(),
            "parallelism": "2",
            "listing.interval.seconds": "0",
            **terms.pop("options", {}),
        }
        whole = Terms(
            **{
                "run": f"stream-{delivery.name}-{time.monotonic_ns()}",
                "checkpoint": (folder / "checkpoint").as_uri(),
                "every_seconds": EVERY_SECONDS,
                "options": options,
                "sink": "parquet",
                "sink_options": {"path": (folder / "receipts").as_uri()},
                **terms,
            }
        )
        self.service = Service(spark, Runtime(delivery.settings), whole)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> float:
        """Stop it; return how many seconds that took."""
        began = running_seconds()
        self.service.stop()
        self.join()
        return running_seconds() - began

    def join(self) -> None:
        self._thread.join(timeout=AWAITED_SECONDS)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.undone = self.service.run(self.triggers.append)
        except BaseException as exc:  # noqa: BLE001 - for the test to look at
            self.error = exc


def all_done(delivery: Delivery, count: int) -> Callable[[], bool]:
    def look() -> bool:
        jobs = delivery.jobs()
        return len(jobs) == count and all(job.state is JobState.DONE for job in jobs)

    return look


def receipts(spark: SparkSession, folder: Path) -> list[Any]:
    return spark.read.parquet((folder / "receipts").as_uri()).collect()


@pytest.mark.long
def test_a_query_drains_the_queue_and_reports_every_extent(
    spark: SparkSession, queued: Delivery, tmp_path: Path
) -> None:
    queued.arrive("lines.txt", joined(LINES))

    with Running(spark, queued, tmp_path) as running:
        eventually("the first is done", all_done(queued, 1))
        queued.arrive("others.txt", joined(OTHERS))
        eventually("both are done", all_done(queued, 2))
        eventually(
            "all records are reported", lambda: sum(t.records for t in running.triggers) == 30_500
        )

    assert running.error is None
    assert sorted(queued.values()) == sorted(LINES + OTHERS)
    rows = receipts(spark, tmp_path)
    assert {row.state for row in rows} == {"DONE"}
    assert len(rows) == sum(job.plan.count for job in queued.jobs())
    assert sum(row.records for row in rows) == len(LINES) + len(OTHERS)
    assert max(trigger.waiting for trigger in running.triggers) > 0
    assert queued.leftovers() == []
    assert queued.live() == []


@pytest.mark.long
def test_once_delivers_what_waits_and_ends(
    spark: SparkSession, queued: Delivery, tmp_path: Path
) -> None:
    queued.arrive("lines.txt", joined(LINES))
    queued.arrive("others.txt", joined(OTHERS))

    with Running(
        spark, queued, tmp_path, every_seconds=None, options={"max.extents.per.trigger": "3"}
    ) as running:
        running.join()

    assert (running.error, running.undone) == (None, [])
    assert sorted(queued.values()) == sorted(LINES + OTHERS)
    assert max(trigger.extents for trigger in running.triggers) <= 3
    assert {job.state for job in queued.jobs()} == {"DONE"}


@pytest.mark.variant
@pytest.mark.parametrize("work", ["queue", pytest.param("listing", marks=pytest.mark.soak)])
def test_once_ends_although_objects_keep_arriving(
    spark: SparkSession, queued: Delivery, tmp_path: Path, work: str
) -> None:
    arrive = queued.arrive if work == "queue" else queued.put
    arrive("lines.txt", joined(LINES))
    over = threading.Event()

    def keep_arriving() -> None:
        number = 0
        while not over.wait(2):
            arrive(f"more-{number}.txt", joined(OTHERS[:10]))
            number += 1

    arriving = threading.Thread(target=keep_arriving, daemon=True)
    # A queue that never runs empty ends no trigger; a minute each, by default.
    options = {"work": work, "max.seconds.per.trigger": "5"}
    with Running(spark, queued, tmp_path, every_seconds=None, options=options) as running:
        arriving.start()
        try:
            running.join()
        finally:
            over.set()
            arriving.join()

    assert (running.error, running.undone) == (None, [])
    first = next(job for job in queued.jobs() if job.version.key.endswith("lines.txt"))
    assert first.state is JobState.DONE
    assert set(LINES) <= set(queued.values())


@pytest.mark.variant
def test_a_deleted_checkpoint_loses_and_doubles_nothing(
    spark: SparkSession, queued: Delivery, tmp_path: Path
) -> None:
    queued.arrive("lines.txt", joined(LINES))
    with Running(spark, queued, tmp_path):
        eventually("a part is done", lambda: any(item.state.final for item in queued.items()))
    shutil.rmtree(tmp_path / "checkpoint")
    queued.arrive("others.txt", joined(OTHERS))

    with Running(spark, queued, tmp_path) as running:
        eventually("both are done", all_done(queued, 2))
        eventually("a trigger is reported", lambda: any(one.extents for one in running.triggers))

    assert running.error is None
    reported = [(row.job, row.extent) for row in receipts(spark, tmp_path)]
    assert len(reported) == len(set(reported))
    # A stop may end a trigger whose extents are done: nothing reports those again.
    assert reported
    assert {job for job, _ in reported} <= {job.id for job in queued.jobs()}
    assert sorted(queued.values()) == sorted(LINES + OTHERS)


@pytest.mark.long
def test_a_stop_hands_back_within_seconds_and_the_next_start_resumes(
    spark: SparkSession, queued: Delivery, tmp_path: Path, s3_proxy: FaultProxy
) -> None:
    queued.connector({"extent.bytes": "64KiB", "aws.s3.endpoint": s3_proxy.endpoint})
    queued.arrive("lines.txt", joined(LINES))
    slow = s3_proxy.inject(
        Delay(SLOW_SECONDS), when=lambda request: request.method == "GET", times=None
    )
    with Running(spark, queued, tmp_path) as running:
        eventually("extents are in work", lambda: len(queued.claims()) == 2)
        seconds = running.stop()
    depth = queue(queued.settings, "extents_queue_url").depth()
    s3_proxy.clear()

    assert slow.hits > 0
    sys.stdout.write(f"stopped within {seconds:.2f} s\n")
    assert seconds < SLOW_SECONDS  # the stop does not wait for the slow store
    assert running.error is None
    assert queued.leftovers() == []
    assert depth.hidden == 0  # handed back: no visibility timeout delays the next receive
    with Running(spark, queued, tmp_path) as again:
        eventually("it is done", all_done(queued, 1))
    assert again.error is None
    assert sorted(queued.values()) == sorted(LINES)


@pytest.mark.outage
@pytest.mark.soak
def test_killed_python_workers_lose_and_double_nothing(
    spark: SparkSession, queued: Delivery, tmp_path: Path, s3_proxy: FaultProxy
) -> None:
    queued.connector({"extent.bytes": "64KiB", "aws.s3.endpoint": s3_proxy.endpoint})
    queued.arrive("lines.txt", joined(LINES))
    s3_proxy.inject(Delay(0.3), when=lambda request: request.method == "GET", times=None)
    with Running(spark, queued, tmp_path) as running:
        eventually("extents are in work", lambda: len(queued.claims()) == 2)
        killed = kill_python_workers()
        eventually("it is done", all_done(queued, 1))

    assert killed > 0
    assert running.error is None
    assert sorted(queued.values()) == sorted(LINES)
    assert queued.leftovers() == []


@pytest.mark.long
def test_without_a_queue_connectors_are_listed_and_the_next_query_continues_a_stopped_one(
    spark: SparkSession, delivery: Delivery, tmp_path: Path, s3_proxy: FaultProxy
) -> None:
    delivery.connector({"extent.bytes": "64KiB", "aws.s3.endpoint": s3_proxy.endpoint})
    delivery.put("lines.txt", joined(LINES))
    s3_proxy.inject(Delay(1.0), when=lambda request: request.method == "GET", times=None)
    with Running(spark, delivery, tmp_path) as running:
        eventually("extents are in work", lambda: len(delivery.claims()) == 2)
        seconds = running.stop()
    s3_proxy.clear()
    stopped = delivery.leftovers()

    sys.stdout.write(f"stopped within {seconds:.2f} s\n")
    with Running(spark, delivery, tmp_path) as again:
        eventually("the first is done", all_done(delivery, 1))
        delivery.put("others.txt", joined(OTHERS))
        eventually("both are done", all_done(delivery, 2))

    assert (running.error, again.error) == (None, None)
    assert stopped == delivery.leftovers() == []
    assert sorted(delivery.values()) == sorted(LINES + OTHERS)
    (others,) = [job.id for job in delivery.jobs() if job.version.key.endswith("others.txt")]
    reported = [(row.state, row.records) for row in receipts(spark, tmp_path) if row.job == others]
    assert reported == [("DONE", len(OTHERS))]


@pytest.mark.long
def test_paused_connectors_and_odd_objects_delay_no_other_connector(
    spark: SparkSession, delivery: Delivery, tmp_path: Path
) -> None:
    delivery.connector({"extent.bytes": "64KiB"})
    delivery.put("odd.parquet", b"no parquet at all, although its name says so")
    delivery.put("others.txt", joined(OTHERS))
    delivery.runtime.ledger.connectors.set_state(delivery.connector_name, ConnectorState.PAUSED)

    with Running(spark, delivery, tmp_path) as running:
        time.sleep(2)
        untouched = delivery.jobs()
        delivery.runtime.ledger.connectors.set_state(
            delivery.connector_name, ConnectorState.ENABLED
        )
        eventually("both are over", lambda: states(delivery) == ["DONE", "FAILED"])

    assert untouched == []
    assert running.error is None
    assert sorted(delivery.values()) == sorted(OTHERS)


@pytest.mark.outage
def test_a_long_store_outage_fails_nothing(
    spark: SparkSession, delivery: Delivery, tmp_path: Path, s3_proxy: FaultProxy
) -> None:
    delivery.changes["retry_timeout_seconds"] = 0.5
    delivery.connector({"extent.bytes": "64KiB", "aws.s3.endpoint": s3_proxy.endpoint})
    delivery.put("lines.txt", joined(LINES))
    unavailable = s3_proxy.inject(Answer(503), when=lambda one: bool(one.byte_range), times=None)

    with Running(spark, delivery, tmp_path) as running:
        eventually("many reads failed", lambda: unavailable.hits > 30)
        before = states(delivery)
        s3_proxy.clear()
        eventually("it is done", all_done(delivery, 1))

    assert before == ["RUNNING"]
    assert running.error is None
    assert sorted(delivery.values()) == sorted(LINES)


@pytest.mark.outage
def test_a_long_table_outage_ends_no_query(
    spark: SparkSession, queued: Delivery, tmp_path: Path, dynamodb_proxy: FaultProxy
) -> None:
    settings = replace(
        queued.settings, ledger_endpoint=dynamodb_proxy.endpoint, retry_timeout_seconds=1.0
    )
    queued.arrive("lines.txt", joined(LINES))
    with Running(spark, queued, tmp_path, options=settings.to_map()) as running:
        eventually("a part is done", lambda: any(item.state.final for item in queued.items()))
        unavailable = dynamodb_proxy.inject(Reset(), times=None)
        eventually("many requests failed", lambda: unavailable.hits > 50)
        dynamodb_proxy.clear()
        eventually("it is done", all_done(queued, 1))

    assert running.error is None
    assert sorted(queued.values()) == sorted(LINES)


@pytest.mark.long
def test_a_connector_without_a_topic_fails_its_own_jobs_only(
    spark: SparkSession, delivery: Delivery, tmp_path: Path
) -> None:
    delivery.connector({"extent.bytes": "64KiB"})
    broken = Delivery(
        delivery.stack,
        delivery.s3,
        delivery.bucket,
        f"broken-{delivery.name}",
        {"ledger_table": delivery.settings.ledger_table},
    )
    broken.topic = f"missing-{delivery.name}"
    broken.connector({})
    broken.put("others.txt", joined(OTHERS))
    delivery.put("lines.txt", joined(LINES))

    with Running(spark, delivery, tmp_path) as running:
        eventually("both are over", lambda: states(delivery) == ["DONE", "FAILED"])

    assert running.error is None
    assert sorted(delivery.values()) == sorted(LINES)
    (failed,) = [row for row in receipts(spark, tmp_path) if row.state == "FAILED"]
    assert broken.topic in failed.reason


@pytest.mark.long
def test_a_run_that_was_stopped_is_never_taken_for_another(
    spark: SparkSession, delivery: Delivery, tmp_path: Path
) -> None:
    delivery.connector({})
    request_stop(delivery.runtime.ledger, "nightly")

    with Running(spark, delivery, tmp_path, run="nightly") as running:
        running.join()

    assert "run nightly was stopped before" in str(running.error)


@pytest.mark.long
def test_wrong_options_are_all_reported_when_the_query_starts(
    spark: SparkSession, delivery: Delivery, tmp_path: Path
) -> None:
    delivery.connector({})
    options = {"work": "queue", "max.extents.per.trigger": "0"}

    with Running(spark, delivery, tmp_path, options=options) as running:
        running.join()

    assert isinstance(running.error, QueryFailed | PySparkException)
    assert "max.extents.per.trigger='0': write a whole number" in str(running.error)


@pytest.mark.variant
def test_functions_and_a_query_share_a_queue(
    spark: SparkSession, ground: Ground, tmp_path: Path, s3_proxy: FaultProxy
) -> None:
    lines: list[bytes] = []
    with ground.open() as path:
        feed = path.feed(extent_bytes="16KiB", aws_s3_endpoint=s3_proxy.endpoint)
        s3_proxy.inject(Delay(0.5), when=lambda request: request.method == "GET", times=None)

        def by_functions() -> int:
            return sum(receipt["records"] for receipt in feed.receipts() if "records" in receipt)

        with Running(spark, feed.delivery, tmp_path) as running:
            # On a busy machine one of them may deliver a whole object before the other starts.
            for objects in range(1, 11):
                more = numbered_lines(f"shared-{objects}-", 20_000)
                lines += more
                feed.await_state(feed.upload(f"{objects}.txt", joined(more)), JobState.DONE)
                ending = feed.ending(lines)
                if objects > 1 and by_functions() and sum(one.records for one in running.triggers):
                    break
            eventually("Spark reported its share", lambda: running.triggers)
        shares = sum(trigger.records for trigger in running.triggers), by_functions()

    assert running.error is None
    assert ending == Ending(len(lines), jobs={"DONE": objects})
    assert sum(shares) == len(lines)
    assert min(shares) > 0


@pytest.mark.soak
@pytest.mark.variant
def test_a_program_that_delivers_once_says_what_it_could_not(delivery: Delivery) -> None:
    delivery.changes["retry_timeout_seconds"] = 0.5
    delivery.connector({"aws.s3.endpoint": "http://127.0.0.1:1"})
    delivery.put("lines.txt", joined(OTHERS))

    ended = subprocess.run(
        [sys.executable, str(JOB), "--work", "listing", "--once"],
        env=delivery.environment,
        capture_output=True,
        text=True,
        timeout=AWAITED_SECONDS,
        check=False,
    )

    assert ended.returncode == 1
    reported = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert len(reported) == 1
    assert "not all of its objects have jobs" in reported[0]
    assert delivery.jobs() == []


def states(delivery: Delivery) -> list[str]:
    return sorted(job.state.value for job in delivery.jobs())


@pytest.mark.long
def test_once_rejects_a_paused_connector(delivery: Delivery) -> None:
    delivery.connector({})
    name = delivery.connector_name
    assert delivery.runtime.ledger.connectors.set_state(name, ConnectorState.PAUSED)

    ended = subprocess.run(
        [sys.executable, str(JOB), "--work", "listing", "--once", "--connector", name],
        env=delivery.environment,
        capture_output=True,
        text=True,
        timeout=AWAITED_SECONDS,
        check=False,
    )

    assert ended.returncode == 2
    reported = f"error: connector {name} is PAUSED; continue it with `extentflow resume {name}`\n"
    assert ended.stderr == reported


@pytest.mark.variant
@pytest.mark.parametrize(
    "master",
    [
        pytest.param((), id="ours"),
        pytest.param(("--master", "local[2]"), id="anybody's", marks=pytest.mark.soak),
    ],
)
def test_a_program_whose_query_fails_says_why_in_one_line(
    delivery: Delivery, master: tuple[str, ...]
) -> None:
    delivery.connector({})
    delivery.put("lines.txt", joined(OTHERS))
    words = ("--work", "listing", "--once", "--receipts", "nosuch", *master)

    ended = subprocess.run(
        [sys.executable, str(JOB), *words],
        # Where the driver is not ours to set up, Spark would take any `python3` of the path.
        env={**delivery.environment, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=AWAITED_SECONDS,
        check=False,
    )

    # A driver that is not ours to set up warns of this and that.
    passing = re.compile(r"WARNING: |Using Spark|Setting default log|To adjust logging|.* WARN ")
    reported = [line for line in ended.stderr.splitlines() if not passing.match(line)]
    assert ended.returncode == 1
    assert reported.pop(0).startswith("note: listing every connector: ")
    assert len(reported) == 1
    assert reported[0].startswith(
        "error: [DATA_SOURCE_NOT_FOUND] Failed to find the data source: nosuch"
    )
