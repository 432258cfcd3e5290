"""A runtime over doubles: what jobs pin, what is kept, how one extent is put together."""

import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.support.golden import Golden
from tests.support.memory_delivery import Ticker

from extentflow.config.connector import ConnectorConfig
from extentflow.config.ledgers import LedgerAddress
from extentflow.config.parsing import parse
from extentflow.config.worker import WorkerSettings
from extentflow.engines import spark
from extentflow.errors import Misconfigured, ObjectChanged, SinkUnavailable
from extentflow.kafka.topic_admin import TopicFacts
from extentflow.kafka.topic_limits import TopicLimits
from extentflow.model import Content, Extent, Job, ObjectVersion
from extentflow.testing.broker import MemoryBroker
from extentflow.testing.ledger import MemoryLedger
from extentflow.wiring import Runtime, open_engine, open_worker
from extentflow.wiring import runtime as runtime_module
from extentflow.wiring.extents import SUBMITTED, ExtentSetup, is_local
from extentflow.wiring.runtime import CURRENT_SECONDS, TOPIC_SECONDS

LIMITS = {"small": 5_000, "large": 50_000}
SETTINGS = WorkerSettings(bootstrap_servers="127.0.0.1:1", lease_seconds=3.0)


class Cluster(MemoryBroker):
    """A cluster in memory that returns facts of its topics."""

    def __init__(self) -> None:
        super().__init__()
        self.questions = 0
        self.partitions, self.limit = 4, 12_345
        self.config: dict[str, str] = {}

    def topics(self, names: Sequence[str]) -> list[TopicFacts]:
        self.questions += 1
        return [
            TopicFacts(
                name,
                self.partitions,
                LIMITS.get(name, self.limit),
                stated=TopicLimits.of(name, self.config),
            )
            for name in names
        ]


class World:
    """A runtime that reads a directory and keeps ledger and cluster in memory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ledger, self.broker = MemoryLedger(), Cluster()
        self.runtime = Runtime(SETTINGS)
        # Where cached properties keep what was made, so that nothing else is.
        self.runtime.__dict__.update(ledger=self.ledger, broker=self.broker)
        self.setup = ExtentSetup(self.runtime)

    def put(self, **changes: str) -> int:
        """Store the connector's next revision; dots are written as two underscores."""
        config = {
            "name": "c",
            "topic": "records",
            "endpoint.type": "localfile",
            "directory": str(self.directory),
            **{key.replace("__", "."): text for key, text in changes.items()},
        }
        return self.ledger.connectors.put("c", config).revision

    def job(self, name: str = "a.csv", body: bytes = b"id,v\n1,x\n2,y\n") -> Job:
        """Write a file and plan it with the connector's latest revision."""
        (self.directory / name).write_bytes(body)
        config, revision = self.runtime.connectors.latest("c")
        version = self.runtime.objects.store(config, revision).head(config.bucket, name)
        planner = self.runtime.planner()
        return planner.plan(planner.admit(self.runtime.requests.make(config, revision, version, 1)))

    def extent(self, job: Job) -> Extent:
        return next(self.runtime.planner().extents(job))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def values(world: World, job: Job) -> list[object]:
    extent = world.extent(job)
    prepared = list(world.setup.pipeline(extent).convert(extent, 0))
    return [value for each in prepared for value in each.records.values.to_pylist()]


# -- connectors -----------------------------------------------------------------------------------


def test_an_unknown_connector_is_named_with_the_command_that_stores_one(
    world: World, golden: Golden
) -> None:
    with golden.raises(Misconfigured, match="connector c.*`extentflow connectors put FILE`"):
        world.runtime.connectors.latest("c")


def test_a_job_keeps_the_revision_it_was_planned_with(world: World) -> None:
    world.put(topic="old", csv__null="x")
    job = world.job()
    world.put(topic="new", csv__null="y")

    pipeline = world.setup.pipeline(world.extent(job))

    assert pipeline.topic == "old"
    assert values(world, job) == [b'{"id":"1","v":null}', b'{"id":"2","v":"y"}']


def test_a_new_job_takes_the_new_revision_in_the_same_process(world: World) -> None:
    world.put(topic="old", csv__null="x")
    old = world.job()
    world.setup.pipeline(world.extent(old))
    world.put(topic="new", csv__null="y")

    job = world.job("b.csv")

    assert world.setup.pipeline(world.extent(job)).topic == "new"
    assert values(world, job) == [b'{"id":"1","v":"x"}', b'{"id":"2","v":null}']
    assert values(world, old) == [b'{"id":"1","v":null}', b'{"id":"2","v":"y"}']


def test_a_deleted_connector_still_serves_the_jobs_that_pinned_it(
    world: World, golden: Golden
) -> None:
    world.put()
    job = world.job()

    world.ledger.connectors.delete("c")

    assert values(world, job) == [b'{"id":"1","v":"x"}', b'{"id":"2","v":"y"}']
    with golden.raises(Misconfigured, match="`extentflow"):
        world.runtime.connectors.latest("c")


def test_a_revision_that_is_gone_is_named(world: World) -> None:
    with pytest.raises(Misconfigured, match="no revision 7 of connector c"):
        world.runtime.connectors.revision("c", 7)


def test_a_stored_connector_that_cannot_be_parsed_is_named(world: World, golden: Golden) -> None:
    world.put(input__format="nosuch")

    with golden.raises(Misconfigured, match="connector c.*revision 1"):
        world.runtime.connectors.latest("c")


def test_an_extent_of_an_unknown_job_is_named(world: World, golden: Golden) -> None:
    version = ObjectVersion("/data", "a.csv", None, "etag", 10)

    with golden.raises(Misconfigured, match=r"file:///data/a.csv\[0-10\)"):
        world.setup.pipeline(Extent("x", 0, "c", version, 0, 10, "csv"))


def test_a_file_that_is_overwritten_in_place_while_its_job_runs_is_refused(world: World) -> None:
    world.put()
    extent = world.extent(world.job())
    path = world.directory / "a.csv"
    found = path.stat()
    while path.stat().st_ctime_ns == found.st_ctime_ns:
        path.write_bytes(b"id,v\n3,x\n4,y\n")
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))

    # A message of a queue states no ctime; the job does.
    for each in (extent, Extent.from_message(extent.to_message())):
        with pytest.raises(ObjectChanged, match=r"a\.csv was overwritten in place"):
            list(world.setup.pipeline(each).convert(each, 0))


# -- what is kept ---------------------------------------------------------------------------------


def test_clients_and_formats_live_as_long_as_the_process(world: World) -> None:
    revision = world.put()
    first, second = world.job("a.csv"), world.job("b.csv")
    config, _ = world.runtime.connectors.latest("c")

    assert world.runtime.objects.store(config, revision) is world.runtime.objects.store(
        config, revision
    )
    assert world.runtime.objects.source(first)[0] is world.runtime.objects.source(second)[0]


def test_another_revision_has_its_own_client_and_format(world: World) -> None:
    first = world.put()
    before = world.runtime.objects.format(*_of(world, first), world.job().version)
    second = world.put(csv__header="false")

    after = world.runtime.objects.format(*_of(world, second), world.job().version)

    assert after is not before
    stores = [world.runtime.objects.store(*_of(world, revision)) for revision in (first, second)]
    assert stores[0] is not stores[1]


def test_what_jobs_pin_is_not_shared(world: World) -> None:
    """Each of these once made two objects share the decoder of one."""
    revision = world.put(input__format="text", file__compression__type="content")
    of = _of(world, revision)
    pinned = [Content("text", "none"), Content("text", "gzip"), Content("text", "gzip", "facts")]

    found = [world.runtime.objects.format(*of, world.job().version, one) for one in pinned]

    assert len(set(map(id, found))) == 3
    assert found[0].splittable
    assert not found[1].splittable


def _of(world: World, revision: int) -> tuple[ConnectorConfig, int]:
    return world.runtime.connectors.revision("c", revision), revision


def test_the_facts_of_a_topic_are_requested_once(world: World) -> None:
    assert world.runtime.topic("records").partitions == 4
    assert world.runtime.topic("records").partitions == 4
    assert world.broker.questions == 1


def test_the_facts_of_a_topic_expire(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ticker = Ticker()
    monkeypatch.setattr(world.runtime, "clock", ticker.clock)
    assert world.runtime.topic("records").partitions == 4
    world.broker.partitions = 7
    ticker.sleep(TOPIC_SECONDS)

    assert world.runtime.topic("records").partitions == 7


def test_the_facts_of_a_topic_are_read_again_once_they_are_known_to_be_wrong(world: World) -> None:
    world.put()
    extent = world.extent(world.job())
    client = world.setup.client(extent)
    world.broker.limit = 2_000

    before = world.setup.client(extent)
    world.runtime.expire_topics()

    assert before == client
    assert world.setup.client(extent).max_message_bytes == 2_000


def test_known_facts_of_a_topic_outlast_an_outage(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticker = Ticker()
    monkeypatch.setattr(world.runtime, "clock", ticker.clock)
    known = world.runtime.topic("records")

    def unavailable(_names: Sequence[str]) -> list[TopicFacts]:
        raise SinkUnavailable("no answer")

    monkeypatch.setattr(world.broker, "topics", unavailable)
    ticker.sleep(TOPIC_SECONDS)

    assert world.runtime.topic("records") == known
    with pytest.raises(SinkUnavailable):
        world.runtime.topic("another")


def test_bytes_of_all_stores_are_counted(world: World) -> None:
    world.put()
    job = world.job()
    before = world.runtime.objects.fetched_bytes()

    values(world, job)

    assert world.runtime.objects.fetched_bytes() - before >= job.version.size


# -- one extent -----------------------------------------------------------------------------------


def test_records_without_keys_are_spread_by_the_client(world: World) -> None:
    world.put()

    pipeline = world.setup.pipeline(world.extent(world.job()))

    assert (pipeline.key, pipeline.partition) == (None, -1)


def test_an_ordered_object_without_keys_goes_to_one_partition(world: World) -> None:
    world.put(ordering="object")
    job = world.job()

    pipeline = world.setup.pipeline(world.extent(job))

    assert job.ordered
    assert pipeline.partition == zlib.crc32(b"a.csv") % 4


def test_an_ordered_job_keeps_its_partition_when_partitions_are_added(world: World) -> None:
    world.put(ordering="object")
    job = world.job()
    warm = world.setup.pipeline(world.extent(job)).partition
    world.broker.partitions = 7
    started_later = Runtime(SETTINGS)
    started_later.__dict__.update(ledger=world.ledger, broker=world.broker)

    fresh = ExtentSetup(started_later).pipeline(world.extent(job)).partition

    assert warm == fresh == zlib.crc32(b"a.csv") % 4


def test_an_ordered_object_with_keys_goes_where_its_keys_belong(world: World) -> None:
    world.put(ordering="object", message__key="column:id")

    pipeline = world.setup.pipeline(world.extent(world.job()))

    assert pipeline.key is not None
    assert pipeline.partition == -1


def test_trap_t29_the_client_is_limited_to_what_the_topic_takes(world: World) -> None:
    world.put(producer__linger__ms="7", delivery__guarantee="at_least_once")

    client = world.setup.client(world.extent(world.job()))

    assert (client.topic, client.max_message_bytes) == ("records", 12_345)
    assert client.producer == {"linger.ms": "7"}
    assert not client.exactly_once


def test_old_timestamps_are_logged_once_per_topic(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.runtime, "clock", Ticker(100_000.0).clock)
    old = pa.array([1_000, 99_999_000], pa.int64())
    world.broker.config = {"retention.ms": "60000"}

    for topic in ("small", "small", "large"):
        assert world.runtime.acceptance.refused(topic, old, None, 0) == {}

    said = [one.getMessage() for one in caplog.records]
    assert [one.split("topic ")[1].split()[0] for one in said] == ["small", "large"]
    assert "1 of 2 timestamps are older" in said[0]


def test_a_topic_is_asked_again_before_it_refuses_records(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticker = Ticker(100_000.0)
    monkeypatch.setattr(world.runtime, "clock", ticker.clock)
    late = pa.array([200_000_000], pa.int64())
    strict = {"message.timestamp.after.max.ms": "1000"}
    refused: list[set[int]] = []

    for config in (strict, {}, strict):
        world.broker.config = config
        refused.append({*world.runtime.acceptance.refused("small", late, None, 0)})
        ticker.sleep(CURRENT_SECONDS)

    assert refused == [{0}, set(), set()]  # the last limit is the brokers' until it is read
    ticker.sleep(TOPIC_SECONDS)
    assert {*world.runtime.acceptance.refused("small", late, None, 0)} == {0}


def test_only_the_sink_resolves_the_secrets_of_a_producer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", "hidden")
    world.put(producer__sasl__password="${env:ORDERS_PASSWORD}")

    client = world.setup.client(world.extent(world.job()))

    assert client.producer == {"sasl.password": "${env:ORDERS_PASSWORD}"}


def test_a_store_with_other_secrets_has_another_client(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_SECRET", "first")
    config = parse(
        {
            "name": "s",
            "topic": "records",
            "aws.s3.bucket.name": "bucket",
            "aws.access.key.id": "id",
            "aws.secret.access.key": "${env:ORDERS_SECRET}",
        }
    )
    before = world.runtime.objects.store(config, 1)
    assert world.runtime.objects.store(config, 1) is before

    monkeypatch.setenv("ORDERS_SECRET", "second")

    assert world.runtime.objects.store(config, 1) is not before


@pytest.mark.parametrize(("queue", "batch_bytes"), [("small", 5_000), ("large", 12_345)])
def test_the_dead_letter_limit_bounds_batches_but_no_good_record(
    world: World, queue: str, batch_bytes: int
) -> None:
    world.put(errors__tolerance="all", errors__deadletterqueue__topic__name=queue)
    extent = world.extent(world.job())

    client, letters = world.setup.client(extent), world.setup.dead_letters(extent)

    assert (client.max_message_bytes, client.max_batch_bytes) == (12_345, batch_bytes)
    assert letters.limit_bytes == LIMITS[queue]


def test_bad_records_go_nowhere_unless_tolerated(world: World) -> None:
    world.put()

    letters = world.setup.dead_letters(world.extent(world.job()))

    assert (letters.topic, letters.source_topic) == (None, "records")


def test_tolerated_bad_records_go_to_the_queue(world: World) -> None:
    world.put(
        errors__tolerance="all",
        errors__deadletterqueue__topic__name="dead",
        errors__deadletterqueue__context__headers__enable="false",
    )

    letters = world.setup.dead_letters(world.extent(world.job()))

    assert (letters.topic, letters.location_unit, letters.context) == ("dead", "offset", False)


# -- engines and workers --------------------------------------------------------------------------


def test_an_unknown_engine_is_named_with_those_there_are() -> None:
    with pytest.raises(Misconfigured, match=r"--engine lambda: .* use one of spark, emr, inline"):
        open_engine(Runtime(SETTINGS), "lambda")


def test_a_master_goes_with_spark_only(golden: Golden) -> None:
    with golden.raises(Misconfigured, match="--master.*--engine"):
        open_engine(Runtime(SETTINGS), "inline", master="spark://host:7077")


ON_SQLITE = replace(SETTINGS, ledger_url=LedgerAddress.parse("sqlite:////var/ledger.db"))


@pytest.mark.parametrize(
    ("name", "master"),
    [("spark", "spark://host:7077"), ("spark", "yarn"), ("spark", "k8s://host"), ("emr", None)],
)
def test_executors_elsewhere_refuse_the_ledger_of_this_machine(
    name: str, master: str | None, golden: Golden
) -> None:
    with golden.raises(Misconfigured, match=r"ledger\.db.*--engine inline"):
        open_engine(Runtime(ON_SQLITE), name, master=master)


def test_workers_of_this_machine_use_its_ledger() -> None:
    open_engine(Runtime(ON_SQLITE), "inline", cores=1).close()


def test_a_master_that_spark_submit_chose_refuses_the_ledger_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
    golden: Golden,
) -> None:
    context = SimpleNamespace(master="spark://host:7077")
    monkeypatch.setattr(spark, "context", lambda *_: context)

    with golden.raises(Misconfigured, match="spark://host:7077.*postgresql://"):
        open_engine(Runtime(ON_SQLITE), "spark", master=SUBMITTED)


def test_a_run_elsewhere_refuses_a_password_in_a_variable_of_this_machine(golden: Golden) -> None:
    settings = replace(
        SETTINGS,
        ledger_url=LedgerAddress.parse("postgresql://me@db/ledgers"),
        ledger_password="${env:LEDGER_SECRET}",
    )

    with golden.raises(Misconfigured, match=r"ledger\.password=\$\{env:LEDGER_SECRET\}"):
        open_engine(Runtime(settings), "emr", start_run=lambda *_: "")


@pytest.mark.parametrize(
    "master", [None, "local", "local[*]", "local[4,2]", "local-cluster[1,1,1]"]
)
def test_these_masters_run_executors_on_this_machine(master: str | None) -> None:
    assert is_local(master)


def test_missing_java_is_reported_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, golden: Golden
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with golden.raises(Misconfigured):
        open_engine(Runtime(SETTINGS), "spark")

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with golden.raises(Misconfigured, match=f"JAVA_HOME={tmp_path}"):
        open_engine(Runtime(SETTINGS), "spark")


@pytest.mark.parametrize(
    ("cores", "max_tasks", "slots", "workers"),
    [(8, None, 256, 8), (8, 3, 256, 3), (8, None, 2, 2), (8, 4, 2, 2), (1, 4, 256, 1)],
)
def test_workers_are_bounded_by_cores_tasks_and_slots(
    cores: int, max_tasks: int | None, slots: int, workers: int
) -> None:
    runtime = Runtime(replace(SETTINGS, exactly_once_slots=slots))

    assert open_engine(runtime, "inline", cores=cores, max_tasks=max_tasks).cores == workers


def test_a_worker_is_created_without_a_request() -> None:
    worker = open_worker(SETTINGS.to_map(), "run-1/worker-1")

    worker.stop()
    worker.close()


@pytest.mark.parametrize(("enqueue", "found"), [("arrays", True), ("records", False)])
def test_records_queued_one_by_one_use_no_library(
    monkeypatch: pytest.MonkeyPatch, enqueue: str, *, found: bool
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(runtime_module, "KafkaBroker", lambda *_, **named: given.update(named))
    monkeypatch.setattr(runtime_module, "trusted_library", lambda: "a library")

    _ = Runtime(replace(SETTINGS, sink_enqueue=enqueue)).broker

    assert given["find_library"]() == ("a library" if found else None)


# -- the ledger of a user without settings --------------------------------------------------------


@pytest.fixture
def own_ledger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Take all settings of ledgers and of AWS away; return where the user's own ledger would be."""
    for name in list(os.environ):
        if name.startswith(("EXTENTFLOW_", "AWS_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state" / "extentflow" / "ledger.db"


@pytest.mark.usefixtures("own_ledger")
def test_without_settings_the_ledger_is_created_at_its_first_use(tmp_path: Path) -> None:
    notes: list[str] = []
    given = {"bootstrap.servers": "127.0.0.1:1"}

    first = Runtime.from_environment(given, notify=notes.append)
    identity = first.ledger.id
    again = Runtime.from_environment(given, notify=notes.append)
    worker = Runtime(WorkerSettings.from_map(first.settings.to_map()))

    assert again.ledger.id == worker.ledger.id == identity
    assert first.ledger_address.path == tmp_path / "state" / "extentflow" / "ledger.db"
    assert notes == [
        f"created the ledger {first.ledger_address.path}, which records what is delivered"
    ]


def test_a_command_that_only_reads_creates_no_ledger(own_ledger: Path, golden: Golden) -> None:
    given = {"bootstrap.servers": "127.0.0.1:1"}

    with golden.raises(Misconfigured, match=r"ledger\.db"):
        _ = Runtime.from_environment(given, creates=False).ledger

    assert not own_ledger.parent.exists()


def test_the_users_file_is_not_created_where_a_setting_names_it(
    own_ledger: Path, golden: Golden
) -> None:
    given = {"bootstrap.servers": "127.0.0.1:1", "ledger.url": f"sqlite:///{own_ledger}"}

    with golden.raises(Misconfigured, match="`extentflow init`"):
        _ = Runtime.from_environment(given).ledger.id


class Tables(BaseHTTPRequestHandler):
    """DynamoDB's DescribeTable; `answers` of its server are status and body."""

    server: "TableServer"

    def do_POST(self) -> None:
        """Answer one request."""
        self.server.asked.append(self.rfile.read(int(self.headers["Content-Length"])))
        status, body = self.server.answer
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


class TableServer(ThreadingHTTPServer):
    """A server with one answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Tables)
        self.asked: list[bytes] = []
        self.answer = (HTTPStatus.OK, b'{"Table": {"TableName": "extentflow"}}')


@pytest.fixture
def tables(own_ledger: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableServer]:
    """DynamoDB in a configured environment, beside a user's ledger that does not exist."""
    assert not own_ledger.exists()
    with TableServer() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
        serving = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield server
        server.shutdown()
        serving.join()


@pytest.mark.parametrize("creates", [True, False])
def test_no_empty_ledger_is_created_beside_the_table_of_earlier_deliveries(
    tables: TableServer,
    own_ledger: Path,
    golden: Golden,
    *,
    creates: bool,
) -> None:
    """A user of DynamoDB who set nothing once got an empty ledger, and every record twice."""
    given = {"bootstrap.servers": "127.0.0.1:1"}

    with pytest.raises(Misconfigured) as caught:
        _ = Runtime.from_environment(given, creates=creates).ledger

    assert tables.asked == [b'{"TableName": "extentflow"}']
    golden(caught.value)
    assert "EXTENTFLOW_LEDGER_TABLE=extentflow" in str(caught.value)
    assert f"EXTENTFLOW_LEDGER_URL=sqlite:///{own_ledger}, with `extentflow init`" in str(
        caught.value
    )
    assert not own_ledger.exists()


@pytest.mark.parametrize(
    "code", ["ResourceNotFoundException", "AccessDeniedException", "UnrecognizedClientException"]
)
def test_a_table_that_is_not_there_or_cannot_be_seen_is_no_obstacle(
    tables: TableServer, own_ledger: Path, code: str
) -> None:
    body = f'{{"__type": "com.amazonaws.dynamodb.v20120810#{code}", "message": "no"}}'
    tables.answer = (HTTPStatus.BAD_REQUEST, body.encode())

    assert Runtime.from_environment({"bootstrap.servers": "127.0.0.1:1"}).ledger.id

    assert len(tables.asked) == 1
    assert own_ledger.exists()


@pytest.mark.parametrize("missing", ["AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID"])
def test_no_request_is_sent_where_aws_is_not_configured(
    tables: TableServer, own_ledger: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.delenv(missing)

    assert Runtime.from_environment({"bootstrap.servers": "127.0.0.1:1"}).ledger.id

    assert tables.asked == []
    assert own_ledger.exists()


def test_a_ledger_that_a_setting_names_is_not_created(tmp_path: Path, golden: Golden) -> None:
    path = tmp_path / "mistyped" / "ledger.db"
    settings = replace(SETTINGS, ledger_url=LedgerAddress.parse(f"sqlite:///{path}"))

    with golden.raises(Misconfigured, match="`extentflow init`"):
        _ = Runtime(settings).ledger.id
    assert not Runtime(settings).ledger.admin.exists()
    assert not path.parent.exists()


def test_a_folder_that_cannot_be_made_is_named_with_the_way_out(
    tmp_path: Path, golden: Golden
) -> None:
    (tmp_path / "file").touch()
    url = LedgerAddress.parse(f"sqlite:///{tmp_path}/file/ledger.db")

    with golden.raises(Misconfigured, match=r"file/ledger\.db"):
        Runtime(replace(SETTINGS, ledger_url=url)).ledger.admin.create()
