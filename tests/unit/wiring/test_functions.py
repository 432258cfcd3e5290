"""What functions get: queues by their settings, a worker with a deadline, the connectors."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.support.golden import Golden
from tests.support.memory_delivery import Ticker

from extentflow.config.connector import ConnectorConfig
from extentflow.config.ledgers import LedgerAddress
from extentflow.config.worker import WorkerSettings
from extentflow.delivery.slots import SlotPolicy
from extentflow.discovery import Arrival, Dialect
from extentflow.discovery.admission import UnparsedConnector
from extentflow.errors import Misconfigured, NotOffered, ObjectGone
from extentflow.ledger import ConnectorState
from extentflow.model import Job, JobState, ObjectVersion, Plan
from extentflow.queue import Backfill
from extentflow.queue.consumer import QueueWorker
from extentflow.queue.sqs_queue import SqsQueue
from extentflow.testing.broker import MemoryBroker
from extentflow.testing.ledger import MemoryLedger
from extentflow.wiring import Runtime
from extentflow.wiring.functions import (
    HEAD_BYTES,
    LARGEST_RATIO,
    UNREACHABLE_BYTES,
    Deadline,
    RuntimeContext,
    open_arrival_handler,
    open_job_router,
    open_queue_worker,
    open_reconciler,
    queue,
)

QUEUES = "https://sqs.eu-west-1.amazonaws.com/123456789012"
SETTINGS = WorkerSettings(
    bootstrap_servers="127.0.0.1:1",
    ledger_table="ledger",
    lease_seconds=30.0,
    extents_queue_url=f"{QUEUES}/extents",
    extents_dlq_url=f"{QUEUES}/extents-dead",
    arrivals_queue_url=f"{QUEUES}/arrivals",
    arrivals_dlq_url=f"{QUEUES}/arrivals-dead",
)


class Cluster(MemoryBroker):
    """A broker that counts the checks of the progress topic."""

    ensured = 0

    def ensure_progress_topic(self) -> None:
        self.ensured += 1


def runtime(settings: WorkerSettings = SETTINGS) -> Runtime:
    made = Runtime(settings)
    made.__dict__.update(ledger=MemoryLedger(), broker=Cluster())
    return made


def put(made: Runtime, name: str, directory: Path, **changes: str) -> int:
    usual = {"name": name, "topic": "t", "endpoint.type": "localfile", "directory": str(directory)}
    return made.ledger.connectors.put(name, {**usual, **changes}).revision


def readable(made: Runtime) -> list[tuple[ConnectorConfig, int]]:
    found = RuntimeContext(made).connectors()
    return [one for one in found if not isinstance(one, UnparsedConnector)]


def queue_worker(
    settings: WorkerSettings, seconds_left: Callable[[], float] = lambda: 99.0
) -> QueueWorker:
    made = runtime(settings)
    return open_queue_worker(made, made.slots("w"), seconds_left=seconds_left, margin_seconds=25)


def url_of(found: object) -> str:
    assert isinstance(found, SqsQueue)
    return found.url


# -- queues ---------------------------------------------------------------------------------------


def test_a_queue_is_the_one_of_its_setting() -> None:
    assert url_of(queue(SETTINGS, "extents_queue_url")) == f"{QUEUES}/extents"


def test_a_queue_that_is_not_set_says_which_variable_to_set(golden: Golden) -> None:
    with golden.raises(Misconfigured, match=r"extents\.queue\.url.*EXTENTFLOW_EXTENTS_QUEUE_URL"):
        queue(replace(SETTINGS, extents_queue_url=None), "extents_queue_url")


def test_an_unparseable_notification_is_dead_lettered() -> None:
    assert url_of(open_arrival_handler(runtime()).kept) == f"{QUEUES}/arrivals-dead"


def test_a_paused_connectors_arrivals_continue_in_the_arrivals_queue() -> None:
    assert url_of(open_arrival_handler(runtime()).arrivals) == f"{QUEUES}/arrivals"


def test_a_planner_without_time_begins_with_no_other_arrival() -> None:
    assert open_arrival_handler(runtime(), late=lambda: True).late()
    assert not open_arrival_handler(runtime()).late()


# -- the worker -----------------------------------------------------------------------------------


def test_a_deadline_counts_from_the_start_of_each_invocation() -> None:
    ticker = Ticker()
    deadline = Deadline(ticker.read)
    assert deadline.seconds_left() == 0

    deadline.start(180)
    ticker.sleep(30)
    assert deadline.seconds_left() == 150
    deadline.start(60)

    assert deadline.seconds_left() == 60


def test_a_worker_stops_when_less_than_its_margin_is_left() -> None:
    ticker = Ticker()
    deadline = Deadline(ticker.read)
    worker = queue_worker(SETTINGS, seconds_left=deadline.seconds_left)
    deadline.start(180)

    ticker.sleep(155)
    assert not worker.work.stopping()
    ticker.sleep(0.1)

    assert worker.work.stopping()


def test_a_worker_never_gives_up_and_renews_with_the_lease() -> None:
    worker = queue_worker(SETTINGS)

    assert not worker.work.limits.gives_up
    assert worker.renew_seconds == 10
    assert worker.hide_seconds == 60
    assert url_of(worker.queue) == f"{QUEUES}/extents"
    assert url_of(worker.dead) == f"{QUEUES}/extents-dead"
    assert url_of(worker.dispatch.queue) == f"{QUEUES}/extents"


@pytest.mark.parametrize("lease_seconds", [3.0, 10.0, 60.0, 600.0])
def test_a_dead_workers_message_is_seen_when_its_slot_may_be_taken_over(
    lease_seconds: float,
) -> None:
    settings = replace(SETTINGS, lease_seconds=lease_seconds)
    worker = queue_worker(settings)
    grace_seconds = SlotPolicy(lease_seconds=lease_seconds).grace_seconds

    # The last commit may have renewed the lease just before the message's turn.
    taken_over_at = worker.renew_seconds + lease_seconds + grace_seconds

    assert taken_over_at <= worker.hide_seconds < taken_over_at + lease_seconds


# -- the surroundings -----------------------------------------------------------------------------


def test_every_connector_is_seen_in_its_latest_revision(tmp_path: Path) -> None:
    made = runtime()
    put(made, "a", tmp_path)
    put(made, "a", tmp_path, **{"input.format": "text"})
    put(made, "b", tmp_path)

    found = readable(made)

    assert [(config.name, revision, config.format) for config, revision in found] == [
        ("a", 2, "text"),
        ("b", 1, None),
    ]


@pytest.mark.parametrize(
    ("stored", "bucket", "prefix"),
    [
        ({"aws.s3.bucket.name": "shop", "aws.s3.prefix": "in/"}, "shop", "in/"),
        ({"s3.bucket.name": " shop ", "directory": "in/"}, "shop", ""),
        ({"endpoint.type": "LocalFile", "directory": "/data/"}, "/data", ""),
        ({}, "", ""),
    ],
)
def test_a_connector_that_cannot_be_parsed_keeps_no_other_from_being_seen(
    tmp_path: Path, stored: dict[str, str], bucket: str, prefix: str, golden: Golden
) -> None:
    made = runtime()
    put(made, "c", tmp_path)
    made.ledger.connectors.put("b", {"name": "b", "topic": "t", "input.format": "nosuch", **stored})

    unparsed, _ = RuntimeContext(made).connectors()

    assert [config.name for config, _ in readable(made)] == ["c"]
    assert isinstance(unparsed, UnparsedConnector)
    assert (unparsed.bucket, unparsed.prefix) == (bucket, prefix)
    golden(str(unparsed.error))
    assert "connector b" in str(unparsed.error)


def test_what_people_want_of_a_connector_is_asked_for_one_at_a_time(tmp_path: Path) -> None:
    made = runtime()
    put(made, "a", tmp_path)
    put(made, "b", tmp_path)
    made.ledger.connectors.set_state("b", ConnectorState.PAUSED)
    surroundings = RuntimeContext(made)

    states = {config.name: surroundings.state(config) for config, _ in readable(made)}

    assert states == {"a": ConnectorState.ENABLED, "b": ConnectorState.PAUSED}


def test_an_object_is_looked_up_in_the_connectors_own_store(tmp_path: Path) -> None:
    made = runtime()
    put(made, "a", tmp_path)
    (tmp_path / "x.csv").write_bytes(b"id\n1\n")
    surroundings = RuntimeContext(made)
    ((config, revision),) = readable(made)

    version = surroundings.head(
        config, revision, Arrival(str(tmp_path), "x.csv", Dialect.LISTING, size=99)
    )

    assert (version.key, version.size) == ("x.csv", 5)
    with pytest.raises(ObjectGone):
        surroundings.head(config, revision, Arrival(str(tmp_path), "y.csv", Dialect.LISTING))
    request = surroundings.request(config, revision, version)
    assert (request.connector, request.format, request.cluster) == ("a", "csv", "memory")
    assert surroundings.cluster() == "memory"
    assert surroundings.request(config, revision, replace(version, key="x.xyz")).unfit


@pytest.mark.parametrize(
    ("key", "changes", "why"),
    [
        ("x.xyz", {}, "the extension .xyz is of no known format"),
        ("x y.csv", {"topic": "t-{key}"}, "x y.csv"),
        ("x.parquet.gz", {"input.format": "parquet"}, "gzip around parquet is not read"),
        ("x.csv", {}, ""),
    ],
)
def test_what_no_job_can_deliver_is_said_where_jobs_are_made(
    tmp_path: Path, key: str, changes: dict[str, str], why: str
) -> None:
    made = runtime()
    put(made, "a", tmp_path, **changes)
    ((config, revision),) = readable(made)
    version = ObjectVersion(str(tmp_path), key, None, "etag", 1)

    request = RuntimeContext(made).request(config, revision, version)

    assert why in request.unfit
    assert bool(request.unfit) == bool(why)


def test_a_planner_ensures_the_progress_topic_once(tmp_path: Path) -> None:
    made = runtime()
    put(made, "a", tmp_path)
    (tmp_path / "x.csv").write_bytes(b"id\n1\n")
    surroundings = RuntimeContext(made)
    ((config, revision),) = readable(made)
    version = surroundings.head(config, revision, Arrival(str(tmp_path), "x.csv", Dialect.LISTING))

    for _ in range(2):
        surroundings.request(config, revision, version)

    assert made.__dict__["broker"].ensured == 1


# -- Spark ----------------------------------------------------------------------------------------


SPARK = replace(
    SETTINGS,
    spark_application_id="00app",
    spark_job_role_arn="arn:aws:iam::123456789012:role/run",
    spark_entry_point="s3://assets/job.py",
    spark_archive="s3://assets/python.tgz",
    spark_threshold_bytes=5,
)


@pytest.mark.parametrize(
    ("engine", "secret", "size", "goes", "logged"),
    [
        ("spark", None, 1, "spark", False),
        ("auto", None, 9, "auto", False),
        ("spark", "${secretsmanager:grid:secret}", 1, "spark", False),
        ("spark", "${env:SECRET}", 1, "lambda", True),
        ("auto", "${env:SECRET}", 9, "lambda", True),
        ("auto", "${env:SECRET}", 5, "lambda", False),
        ("lambda", "${env:SECRET}", 9, "lambda", False),
    ],
)
def test_jobs_whose_secrets_are_in_variables_go_to_functions(
    engine: str,
    secret: str | None,
    size: int,
    goes: str,
    *,
    logged: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = runtime(SPARK)
    job = registered(made, engine, secret, size)

    assert open_job_router(made).engine(job) == goes
    assert ("goes to the queue instead of Spark: connector orders" in caplog.text) is logged


@pytest.mark.parametrize(
    ("compression", "engine", "goes"),
    [("gzip", "auto", "spark"), ("none", "auto", "auto"), ("gzip", "lambda", "lambda")],
)
def test_the_estimated_content_of_a_compressed_object_decides(
    compression: str, engine: str, goes: str
) -> None:
    made = runtime(SPARK)
    keys = {"file.compression.type": compression}
    job = registered(made, engine, None, SPARK.spark_threshold_bytes // 2, **keys)

    assert open_job_router(made).engine(job) == goes


@dataclass
class OneFrame:
    """Objects that begin with a zstd frame of so many bytes of content; count the reads."""

    content_bytes: int
    reads: int = 0

    def source(self, _job: Job) -> tuple[None, "OneFrame"]:
        return None, self

    def read(self, start: int, end: int) -> bytes:
        assert (start, end) == (0, HEAD_BYTES)
        self.reads += 1
        # Magic number, then: a single segment whose size has eight bytes.
        return b"\x28\xb5\x2f\xfd\xe0" + self.content_bytes.to_bytes(8, "little") + b"\x00" * 9


@pytest.mark.parametrize(
    ("size", "content_bytes", "refused", "reads"),
    [
        (4 * 10**9, UNREACHABLE_BYTES + 1, True, 1),
        (4 * 10**9, UNREACHABLE_BYTES, False, 1),
        (UNREACHABLE_BYTES // LARGEST_RATIO, UNREACHABLE_BYTES + 1, False, 0),
    ],
)
def test_a_single_frame_that_functions_cannot_reach_the_end_of_is_refused(
    size: int, content_bytes: int, *, refused: bool, reads: int
) -> None:
    made = runtime(SETTINGS)
    made.__dict__["objects"] = objects = OneFrame(content_bytes)
    job = registered(made, "auto", None, size, **{"file.compression.type": "zstd"})

    why = open_job_router(made).refusal(job)

    assert bool(why) is refused
    assert objects.reads == reads
    if refused:
        assert "s3://shop/a.txt" in why
        assert f"one zstd stream with about {content_bytes / 1e9:,.0f} GB of content" in why
        assert f"`extentflow replay {job.id}`" in why
        assert "pzstd" in why


def test_a_single_frame_goes_to_spark_where_the_connector_leaves_the_choice() -> None:
    made = runtime(replace(SPARK, spark_threshold_bytes=1 << 50))
    made.__dict__["objects"] = OneFrame(UNREACHABLE_BYTES + 1)
    job = registered(made, "auto", None, 4 * 10**9, **{"file.compression.type": "zstd"})

    assert open_job_router(made).engine(job) == "spark"


@pytest.mark.parametrize("key", ["a.unknown.gz", "a.parquet.gz"])
def test_a_compressed_object_that_no_format_reads_ends_its_job(key: str) -> None:
    made = runtime(SPARK)
    draft = registered(made, "auto", None, 9)
    version = replace(draft.version, key=key)
    job = made.ledger.jobs.register(replace(draft, version=version, format="unknown"))

    ended = open_job_router(made).start(job)

    assert ended.state is JobState.FAILED
    assert f"s3://shop/{key}" in ended.reason


def test_a_backfill_with_secrets_in_variables_is_kept_with_a_remedy(golden: Golden) -> None:
    made = runtime(SPARK)
    registered(made, "auto", "${env:SECRET}", 1)

    with golden.raises(NotOffered, match="b1.*connector orders"):
        open_arrival_handler(made).backfill(Backfill("b1", "orders"))


def registered(made: Runtime, engine: str, secret: str | None, size: int, **more: str) -> Job:
    """A job of connector `orders`, which keeps its secret there."""
    keys = {"aws.access.key.id": "id", "aws.secret.access.key": secret} if secret else {}
    usual = {"name": "orders", "topic": "t", "s3.bucket.name": "shop", "engine": engine}
    revision = made.ledger.connectors.put("orders", {**usual, **keys, **more}).revision
    version = ObjectVersion("shop", "a.txt", None, "etag", size)
    return Job("j", "orders", revision, version, "text", "cluster", Plan(size))


@pytest.mark.parametrize(
    "opened",
    [
        open_arrival_handler,
        open_reconciler,
        lambda runtime: open_queue_worker(
            runtime, runtime.slots("here"), seconds_left=lambda: 60.0, margin_seconds=1.0
        ),
    ],
    ids=["planner", "reconciler", "worker"],
)
def test_functions_refuse_the_ledger_of_one_machine(
    opened: Callable[[Runtime], object], golden: Golden
) -> None:
    ledger = LedgerAddress.parse("sqlite:////var/ledger.db")

    with pytest.raises(Misconfigured) as caught:
        opened(runtime(replace(SETTINGS, ledger_table=None, ledger_url=ledger)))

    golden(caught.value)
    assert "/var/ledger.db" in str(caught.value)
