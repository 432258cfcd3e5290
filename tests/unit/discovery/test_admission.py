"""From an arrival to jobs: who wants the object, and that nothing announced gets lost."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.golden import Golden
from tests.support.memory_delivery import Bytewise, World, expected
from tests.support.queued import Queued, ordinals, queue_world
from tests.unit.discovery.posting import (
    ANYONE,
    EVENTS,
    GRID,
    SECRET,
    SIGNED,
    Post,
    event,
    record,
    request_of,
    signing_time,
)

from extentflow.config.connector import ConnectorConfig, hidden
from extentflow.discovery import Arrival, Dialect
from extentflow.discovery.admission import (
    AdmissionResult,
    ArrivalHandler,
    ArrivalPending,
    UnparsedConnector,
    lies_in,
)
from extentflow.discovery.documents import wrapped
from extentflow.discovery.sources import Proof
from extentflow.errors import (
    AccessDenied,
    BucketGone,
    Conflict,
    CorruptObject,
    LedgerUnavailable,
    Misconfigured,
    NotOffered,
    ObjectGone,
    QueueUnavailable,
    RunsUnavailable,
    StoreUnavailable,
)
from extentflow.formats import Format
from extentflow.jobs.planner import MAX_EXTENTS, PAGE_EXTENTS, JobRequest, Planner
from extentflow.ledger import ConnectorState
from extentflow.model import Job, JobState, ObjectVersion
from extentflow.queue import MOST_ADDRESSES, Backfill, Queue
from extentflow.queue.consumer import PAUSED_RECEIVES
from extentflow.queue.dispatch import ExtentDispatcher
from extentflow.storage import RangeSource
from extentflow.testing.services import MemoryQueue
from extentflow.testing.stores import MemoryStore
from extentflow.wiring import options

ORDERS = ConnectorConfig(name="orders", topic="orders", s3_bucket="bucket", format="text")
SMALL = replace(ORDERS, name="small", extent_bytes=4)
CONFLICT = Conflict("the job delivers to another Kafka cluster")


@dataclass
class AdmissionWorld:
    """A handler with everything around it in memory."""

    queued: Queued = field(default_factory=Queued)
    connectors_: list[tuple[ConnectorConfig, int]] = field(default_factory=lambda: [(SMALL, 1)])
    states: dict[str, ConnectorState] = field(default_factory=dict)
    late: Callable[[], bool] = lambda: False
    errors: dict[str, Exception] = field(default_factory=dict)
    unparsed: list[UnparsedConnector] = field(default_factory=list)
    ignores_unmatched: bool = False

    def __post_init__(self) -> None:
        self.kept = MemoryQueue(self.queued.world.ticker.read)
        self.arrivals = MemoryQueue(self.queued.world.ticker.read)
        self.backfilled: list[Backfill] = []
        self.revisions = {(config.name, revision): config for config, revision in self.connectors_}

    @property
    def world(self) -> World:
        return self.queued.world

    @property
    def planner(self) -> Planner:
        return Planner(self.world.ledger, self._open, self.world.ticker.clock)

    def _open(self, job: Job) -> tuple[Format, RangeSource]:
        config = self.revisions[job.connector, job.revision]
        config.format_for(job.version.key)
        return self.world._open(job)

    def handler(self, kept: Queue | None = None) -> ArrivalHandler:
        dispatch = ExtentDispatcher(self.planner, self.queued.queue)
        return ArrivalHandler(
            context=self,
            planner=self.planner,
            start=lambda job: dispatch.start(job, late=self.late),
            kept=kept or self.kept,
            arrivals=self.arrivals,
            late=self.late,
            backfill=self.backfill,
            ignores_unmatched=self.ignores_unmatched,
        )

    def backfill(self, wanted: Backfill) -> None:
        """Take a backfill, or fail as the test wants it."""
        if (error := self.errors.get(wanted.id)) is not None:
            raise error
        self.backfilled.append(wanted)

    def take(self, body: str) -> list[AdmissionResult]:
        return self.handler().take(body)

    def jobs(self) -> list[Job]:
        return sorted(
            self.world.ledger.jobs.list(), key=lambda job: (job.version.key, job.connector)
        )

    def put(self, body: bytes, key: str = "key") -> str:
        """Put an object; return what announces it."""
        self.world.put(body, key)
        return announced(key)

    # -- context --------------------------------------------------------------------------------

    def connectors(self) -> Iterator[tuple[ConnectorConfig, int] | UnparsedConnector]:
        yield from self.unparsed
        yield from self.connectors_

    def state(self, config: ConnectorConfig) -> ConnectorState:
        return self.states.get(config.name, ConnectorState.ENABLED)

    def head(self, config: ConnectorConfig, revision: int, arrival: Arrival) -> ObjectVersion:
        assert self.revisions[config.name, revision] == config
        error = self.errors.get(arrival.key) or self.errors.get(config.name)
        if error is not None:
            raise error
        return self.world.store.head(arrival.bucket, arrival.key, arrival.version_id)

    def request(self, config: ConnectorConfig, revision: int, version: ObjectVersion) -> JobRequest:
        return options.job_request(config, revision, version, self.world.broker.cluster, 1)


def announced(*keys: str, bucket: str = "bucket") -> str:
    """What AWS says about new objects."""
    found = [record(key, eventSource="aws:s3") for key in keys]
    for one in found:
        one["s3"]["bucket"]["name"] = bucket
    return json.dumps({"Records": found})


# -- every dialect --------------------------------------------------------------------------------


class Everywhere(MemoryStore):
    """A store that has every object, in the version that was announced."""

    def head(self, bucket: str, key: str, version_id: str | None = None) -> ObjectVersion:
        return ObjectVersion(bucket, key, version_id, "etag", 1_000)


SHOP = replace(ORDERS, s3_bucket="shop", prefix="in/")
SHOPS = [
    (replace(SHOP, name="any"), 1),
    (replace(SHOP, name="eu", region="eu-central-1"), 2),
    (replace(SHOP, name="grid", endpoint=GRID), 3),
    (replace(SHOP, name="elsewhere", endpoint="https://other.example.com"), 4),
    (replace(SHOP, name="another-bucket", s3_bucket="other"), 5),
    (replace(SHOP, name="another-prefix", prefix="out/"), 6),
]
FLOWER = "in/2026/red flower+100% ☃.csv"
LARGE = "in/2026/orders, large.parquet"
V_PUT = "096fKKXTRTtl3on89fVO.nfljtsv6qko"
V_BRIDGED = "IYV3p45BT0ac8hjHg1houSdS1a.Mro8e"
V_GRID = "NTZEMDQxNTgtQzVBMy0xMUVDLTgwMDAtMDA1MDU2QTg"

EUROPE = ("any", "elsewhere", "eu", "grid")
AMERICA = ("any", "elsewhere", "grid")
ConnectorStateCache = set[tuple[str, str, str | None]]


def jobs(connectors: tuple[str, ...], key: str, version: str | None = None) -> ConnectorStateCache:
    return {(connector, key, version) for connector in connectors}


ANNOUNCED: dict[str, ConnectorStateCache] = {
    "arrival": jobs(("grid",), FLOWER),
    "aws-s3-multipart": jobs(AMERICA, LARGE),
    "aws-s3-put": jobs(EUROPE, FLOWER, V_PUT),
    "aws-s3-removed": set(),
    "aws-s3-test": set(),
    "eventbridge-created": jobs(EUROPE, FLOWER, V_BRIDGED),
    "eventbridge-created-emulator": jobs(EUROPE, "in/2026/100%+a%20b.csv"),
    "eventbridge-deleted": set(),
    "function-url-sns": jobs(EUROPE, FLOWER),
    "function-url-webhook": jobs(EUROPE, FLOWER),
    "http-api-probe": set(),
    "http-api-sns-base64": jobs(EUROPE, FLOWER),
    "http-api-sns-plain": jobs(EUROPE, FLOWER),
    "http-api-sns-test": set(),
    "http-api-webhook": jobs(EUROPE, FLOWER),
    "sns-envelope": jobs(EUROPE, FLOWER, V_PUT),
    "sqs-aws-s3": jobs(EUROPE, FLOWER, V_PUT) | jobs(AMERICA, LARGE),
    "sqs-eventbridge": jobs(EUROPE, FLOWER, V_BRIDGED),
    "sqs-receiver": jobs(("grid",), FLOWER),
    "sqs-sns": jobs(EUROPE, FLOWER, V_PUT),
    "storagegrid": jobs(EUROPE, FLOWER) | jobs(EUROPE, "in/2026/orders.parquet", V_GRID),
}


def shop() -> AdmissionWorld:
    return AdmissionWorld(Queued(queue_world(store=Everywhere())), SHOPS)


def planned(admission: AdmissionWorld) -> ConnectorStateCache:
    return {(job.connector, job.version.key, job.version.version_id) for job in admission.jobs()}


@pytest.mark.parametrize("name", sorted(path.stem for path in EVENTS.glob("*.json")))
def test_trap_t22_every_event_file_leads_to_its_jobs(name: str) -> None:
    admission = shop()

    found = admission.take(event(name))

    assert planned(admission) == ANNOUNCED[name]
    assert {job.state for job in admission.jobs()} <= {JobState.RUNNING}
    assert len(admission.queued.queue.sent) == len(ANNOUNCED[name])
    assert admission.kept.messages == []
    assert sorted(job.id for one in found for job in one.jobs) == sorted(
        job.id for job in admission.jobs()
    )


@pytest.mark.parametrize(
    ("name", "proof"),
    [
        ("http-api-sns-base64", SIGNED),
        ("http-api-sns-plain", SIGNED),
        ("http-api-webhook", SECRET),
        ("function-url-sns", SECRET),
        ("function-url-webhook", ANYONE),
    ],
)
def test_what_the_receiver_queued_leads_to_jobs_of_its_endpoint_only(
    name: str, proof: Proof
) -> None:
    request = request_of(name)
    post = Post(proof, now=signing_time(request) if proof == SIGNED else 0.0)
    post.answer(request)
    admission = shop()

    for body in post.queued:
        admission.take(body)

    assert planned(admission) == {("grid", FLOWER, None)}


@pytest.mark.parametrize("name", sorted(ANNOUNCED))
def test_a_repeated_notification_in_another_envelope_changes_nothing(name: str) -> None:
    admission = shop()
    admission.take(event(name))
    before, sent = admission.jobs(), list(admission.queued.queue.sent)

    for body in (event(name), sns(event(name)), sqs(event(name)), sqs(sns(event(name)))):
        admission.take(body)

    assert admission.jobs() == before
    assert admission.queued.queue.sent == sent


def sns(body: str) -> str:
    return json.dumps({"Type": "Notification", "Message": body})


def sqs(body: str) -> str:
    return json.dumps({"Records": [{"eventSource": "aws:sqs", "body": body}]})


@pytest.mark.parametrize("key", ["a,b", "a b", "a+b", "ü/☃", "100%", "a%2Bb", "a//b/c", "x\ty"])
def test_trap_t20_the_key_is_exact(key: str) -> None:
    admission = AdmissionWorld()
    admission.put(b"abcd", key)
    arrival = Arrival("bucket", key, Dialect.LISTING)

    admission.take(json.dumps(arrival.to_message()))

    (job,) = admission.jobs()
    assert job.version.key == key


# -- who wants it ---------------------------------------------------------------------------------


AWS = Arrival("bucket", "in/a.csv", Dialect.AWS, region="eu-central-1")
GRID_TOLD = Arrival("bucket", "in/a.csv", Dialect.STORAGEGRID, endpoint=GRID)
UNKNOWN = Arrival("bucket", "in/a.csv", Dialect.STORAGEGRID)


@pytest.mark.parametrize(
    ("arrival", "endpoint", "region", "wanted"),
    [
        (AWS, None, None, True),
        (AWS, None, "eu-central-1", True),
        (AWS, None, "us-east-1", False),
        (AWS, GRID, None, True),
        (AWS, GRID, "us-east-1", False),
        (UNKNOWN, None, None, True),
        (UNKNOWN, None, "us-east-1", True),
        (UNKNOWN, GRID, None, True),
        (GRID_TOLD, None, None, False),
        (GRID_TOLD, None, "us-east-1", False),
        (GRID_TOLD, GRID, None, True),
        (GRID_TOLD, GRID, "us-east-1", True),
        (GRID_TOLD, f"{GRID}/", None, True),
        (GRID_TOLD, GRID.upper(), None, True),
        (GRID_TOLD, "https://grid.example.com", None, False),
        (GRID_TOLD, "https://other.example.com:10443", None, False),
        (replace(AWS, endpoint="https://s3.test"), "https://s3.test:443", None, True),
        (replace(AWS, endpoint="http://s3.test"), "http://s3.test:80", None, True),
        (replace(AWS, endpoint="http://s3.test"), "https://s3.test", None, False),
        (replace(AWS, endpoint="http://[::1]:9000"), "http://[::1]:9000", None, True),
        (replace(AWS, endpoint="minio:9000"), "minio:9000", None, True),
        (replace(AWS, endpoint="minio:9000"), "other:9000", None, False),
        (replace(AWS, endpoint="http://[broken"), GRID, None, False),
        (replace(AWS, endpoint="http://host:99999"), "http://host:99999", None, True),
    ],
)
def test_endpoint_and_region_decide_whose_object_it_is(
    arrival: Arrival,
    endpoint: str | None,
    region: str | None,
    wanted: bool,  # noqa: FBT001
) -> None:
    config = replace(ORDERS, endpoint=endpoint, region=region)

    assert lies_in(config, arrival) is wanted


@pytest.mark.parametrize(
    ("bucket", "prefix", "key", "wanted"),
    [
        ("bucket", "", "a", True),
        ("bucket", "in/", "in/a", True),
        ("bucket", "in/", "out/a", False),
        ("bucket", "in/a", "in/abc", True),
        ("Bucket", "", "a", False),
        ("bucket", "in/", "in/_SUCCESS", False),
        ("bucket", "in/", "in/.part.crc", False),
        ("bucket", "in/", "in/_temporary/0/part", False),
        ("bucket", "in/", "in/_year=2026/part", True),
        ("bucket", "_in/", "_in/a", True),
    ],
)
def test_bucket_prefix_and_name_decide_what_is_data(
    bucket: str,
    prefix: str,
    key: str,
    wanted: bool,  # noqa: FBT001
) -> None:
    config = replace(ORDERS, prefix=prefix)

    found = lies_in(config, replace(AWS, bucket=bucket, key=key))
    assert (found and not hidden(key, prefix)) is wanted


def test_every_connector_that_wants_an_object_gets_a_job_of_its_own() -> None:
    admission = AdmissionWorld(
        connectors_=[(SMALL, 1), (replace(SMALL, name="other", extent_bytes=2), 7)]
    )

    (received,) = admission.take(admission.put(b"abcd"))

    assert [(job.connector, job.revision) for job in received.jobs] == [("small", 1), ("other", 7)]
    assert len({job.id for job in received.jobs}) == 2
    assert ordinals(admission.queued.queue.sent) == [0, 0, 1]


AVRO = Misconfigured("connector avro, revision 1, cannot be read: input.format='avro'")


@pytest.mark.parametrize(
    "unparsed",
    [UnparsedConnector(AVRO, "avro", "other"), UnparsedConnector(AVRO, "avro", "bucket", "in/")],
)
def test_an_unparseable_connector_of_another_bucket_is_only_logged(
    unparsed: UnparsedConnector, caplog: pytest.LogCaptureFixture
) -> None:
    admission = AdmissionWorld(unparsed=[unparsed])

    (received,) = admission.take(admission.put(b"abcd"))

    assert [job.connector for job in received.jobs] == ["small"]
    assert admission.kept.messages == []
    assert "connector avro, revision 1, cannot be read" in caplog.text


@pytest.mark.parametrize(
    "unparsed",
    [
        UnparsedConnector(AVRO, "avro"),
        UnparsedConnector(AVRO, "avro", "bucket"),
        UnparsedConnector(AVRO, "avro", "bucket", "ke"),
    ],
)
def test_an_object_of_an_unparseable_connector_is_retried_for_it_alone(
    unparsed: UnparsedConnector,
    golden: Golden,
) -> None:
    admission = AdmissionWorld(unparsed=[unparsed])
    body = admission.put(b"abcd")

    with golden.raises(ArrivalPending, match="connector avro.*revision 1"):
        admission.take(body)

    assert [job.connector for job in admission.jobs()] == ["small"]
    assert admission.kept.messages == []
    admission.unparsed.clear()
    admission.take(body)
    assert [job.connector for job in admission.jobs()] == ["small"]


def test_an_object_of_an_unparseable_connector_is_not_unmatched() -> None:
    admission = AdmissionWorld(
        connectors_=[], unparsed=[UnparsedConnector(AVRO, "avro", "bucket")], late=lambda: True
    )

    with pytest.raises(ArrivalPending, match="connector avro"):
        admission.take(admission.put(b"abcd"))
    (received,) = admission.take(announced("key", "another"))

    assert not received.unmatched
    assert admission.kept.messages == []


def test_an_object_that_no_connector_reads_is_kept_with_the_reason() -> None:
    admission = AdmissionWorld(connectors_=[(replace(SMALL, prefix="in/"), 1)])

    (received,) = admission.take(admission.put(b"abcd", "out/key"))

    assert received.unmatched
    assert admission.jobs() == []
    (kept,) = admission.kept.messages
    assert kept.reason == "no connector reads s3://bucket/out/key"


def test_an_object_that_no_connector_reads_is_logged_where_unmatched_ones_are_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not so one of another server than the connector's: a setting is wrong there."""
    config = replace(SMALL, prefix="in/", region="eu-north-1")
    admission = AdmissionWorld(connectors_=[(config, 1)], ignores_unmatched=True)
    far = Arrival("bucket", "in/key", Dialect.LISTING, region="eu-west-1")

    (received,) = admission.take(admission.put(b"abcd", "out/key"))
    admission.take(json.dumps(far.to_message()))

    assert received.unmatched
    assert "no connector reads s3://bucket/out/key; ignored" in caplog.text
    (kept,) = admission.kept.messages
    assert "connector small reads that name from AWS region eu-north-1" in kept.reason


@pytest.mark.parametrize(
    ("config", "arrival", "reason"),
    [
        (
            replace(SMALL, endpoint="https://grid:10443"),
            Arrival("bucket", "key", Dialect.LISTING, endpoint="https://grid:10444"),
            "of https://grid:10444: connector small reads that name from https://grid:10443;",
        ),
        (
            replace(SMALL, endpoint="https://grid:10443"),
            Arrival("bucket", "key", Dialect.LISTING),
            None,
        ),
        (
            replace(SMALL, region="eu-north-1"),
            Arrival("bucket", "key", Dialect.LISTING, region="eu-west-1"),
            "of AWS region eu-west-1: connector small reads that name from AWS region eu-north-1;",
        ),
        (
            SMALL,
            Arrival("bucket", "key", Dialect.LISTING, endpoint="https://grid:10443"),
            "of https://grid:10443: connector small reads that name from AWS;",
        ),
    ],
)
def test_a_connector_that_reads_the_name_from_elsewhere_is_named(
    config: ConnectorConfig, arrival: Arrival, reason: str | None
) -> None:
    admission = AdmissionWorld(connectors_=[(config, 1)])
    admission.put(b"abcd")

    admission.take(json.dumps(arrival.to_message()))

    kept_reasons = [one.reason for one in admission.kept.messages]
    remedy = "correct its aws.s3.endpoint or aws.s3.region"
    expected = reason and f"no connector reads s3://bucket/key {reason} {remedy}"
    assert kept_reasons == ([expected] if expected else [])


def test_what_was_kept_is_all_that_a_replay_takes() -> None:
    admission = AdmissionWorld(connectors_=[])
    admission.take(admission.put(b"abcd"))
    (kept,) = admission.kept.messages
    admission.connectors_ = [(SMALL, 1)]
    admission.revisions = {("small", 1): SMALL}

    admission.take(kept.body)

    assert [job.version.key for job in admission.jobs()] == ["key"]


@pytest.mark.parametrize("key", ["_SUCCESS", ".part.crc", "_temporary/0/part", "folder/"])
def test_a_name_of_no_data_makes_no_job_and_no_alarm(key: str) -> None:
    admission = AdmissionWorld()

    (received,) = admission.take(admission.put(b"", key))

    assert received == AdmissionResult()
    assert admission.jobs() == []
    assert admission.kept.messages == []


def test_an_object_with_bytes_is_data_although_its_key_ends_with_a_slash() -> None:
    admission = AdmissionWorld()

    admission.take(admission.put(b"abcd", "folder/"))

    assert [job.version.key for job in admission.jobs()] == ["folder/"]


def test_trap_t19_an_empty_object_is_done_at_once() -> None:
    """Trap: an empty object or prefix failed the start."""
    admission = AdmissionWorld()

    ((job,),) = [one.jobs for one in admission.take(admission.put(b""))]

    assert job.state is JobState.DONE


# -- what people want -----------------------------------------------------------------------------


def test_a_paused_connector_makes_the_message_come_again_and_loses_no_job() -> None:
    admission = AdmissionWorld(
        connectors_=[(SMALL, 1), (ORDERS, 1)], states={"small": ConnectorState.PAUSED}
    )
    body = admission.put(b"abcd")

    for _ in range(3):
        with pytest.raises(ArrivalPending, match="connector small is PAUSED"):
            admission.take(body)

    assert [job.connector for job in admission.jobs()] == ["orders"]
    assert len(admission.queued.queue.sent) == 1
    admission.states.clear()
    admission.take(body)
    assert [job.connector for job in admission.jobs()] == ["orders", "small"]
    assert admission.kept.messages == []


def test_a_paused_arrival_is_copied_before_its_receives_are_used_up() -> None:
    admission = AdmissionWorld(states={"small": ConnectorState.PAUSED})
    admission.put(b"abcd")
    body = announced("key")

    with pytest.raises(ArrivalPending):
        admission.handler().take(body, received=PAUSED_RECEIVES - 1)
    assert admission.arrivals.messages == []
    admission.handler().take(body, received=PAUSED_RECEIVES)

    (copy,) = admission.arrivals.messages
    assert (admission.kept.messages, admission.jobs()) == ([], [])
    admission.states.clear()
    admission.take(copy.body)
    assert len(admission.jobs()) == 1


def test_only_the_arrivals_of_a_paused_connector_are_copied() -> None:
    waiting = replace(SMALL, prefix="key")
    other = replace(SMALL, name="other", prefix="bad")
    admission = AdmissionWorld(
        connectors_=[(waiting, 1), (other, 1)],
        errors={"bad": CONFLICT},
        states={"small": ConnectorState.PAUSED},
    )
    known = json.loads(announced("key", "bad", "unread"))["Records"]
    body = json.dumps({"Records": [*known, {"eventSource": "unheard"}]})
    admission.put(b"abcd")

    admission.handler().take(body, received=PAUSED_RECEIVES)

    assert [json.loads(copy.body)["key"] for copy in admission.arrivals.messages] == ["key"]
    reasons = [message.reason for message in admission.kept.messages]
    assert reasons[0].startswith("notification not understood")
    assert reasons[1:] == [str(CONFLICT), "no connector reads s3://bucket/unread"]
    (copy,) = admission.arrivals.messages
    admission.states.clear()
    admission.take(copy.body)
    assert [job.version.key for job in admission.jobs()] == ["key"]
    assert len(admission.kept.messages) == 3


def test_a_permanent_error_is_recorded_while_a_connector_is_paused() -> None:
    admission = AdmissionWorld(
        connectors_=[(ORDERS, 1), (SMALL, 1)],
        errors={"orders": CONFLICT},
        states={"small": ConnectorState.PAUSED},
    )

    admission.handler().take(admission.put(b"abcd"), received=PAUSED_RECEIVES)

    (kept,) = admission.kept.messages
    (copy,) = admission.arrivals.messages
    assert (kept.reason, kept.body) == (str(CONFLICT), copy.body)
    admission.states.clear()
    admission.errors.clear()
    admission.take(copy.body)
    assert [job.connector for job in admission.jobs()] == ["orders", "small"]


def test_every_connectors_error_is_in_the_reason() -> None:
    admission = AdmissionWorld(
        connectors_=[(ORDERS, 1), (SMALL, 1)],
        errors={"orders": CONFLICT, "small": CorruptObject("its footer is damaged")},
    )

    admission.take(admission.put(b"abcd"))

    (kept,) = admission.kept.messages
    assert kept.reason == f"{CONFLICT}; its footer is damaged"


def test_only_a_pause_makes_copies() -> None:
    admission = AdmissionWorld(
        connectors_=[(SMALL, 1), (ORDERS, 1)],
        states={"small": ConnectorState.PAUSED},
        errors={"orders": StoreUnavailable("s3://bucket/key: no answer")},
    )

    with pytest.raises(ArrivalPending, match="no answer"):
        admission.handler().take(admission.put(b"abcd"), received=PAUSED_RECEIVES)

    assert admission.arrivals.messages == []


def test_a_stopped_connector_gets_no_job() -> None:
    admission = AdmissionWorld(states={"small": ConnectorState.STOPPED})

    (received,) = admission.take(admission.put(b"abcd"))

    assert received == AdmissionResult()
    assert admission.jobs() == []
    assert admission.kept.messages == []


def test_what_has_to_be_kept_is_kept_once_when_the_message_is_over() -> None:
    admission = AdmissionWorld(states={"small": ConnectorState.PAUSED})
    records = [record("key", eventSource="aws:s3"), {"eventSource": "unheard"}]
    records[0]["s3"]["bucket"]["name"] = "bucket"
    admission.put(b"abcd")
    body = json.dumps({"Records": [*records, record("unread")]})

    for _ in range(3):
        with pytest.raises(ArrivalPending):
            admission.take(body)
    assert admission.kept.messages == []
    admission.states.clear()
    admission.take(body)

    reasons = [message.reason for message in admission.kept.messages]
    assert reasons[0].startswith("notification not understood")
    assert reasons[1:] == ["no connector reads s3://shop/unread"]


# -- versions -------------------------------------------------------------------------------------


def test_an_object_that_is_gone_makes_no_job() -> None:
    admission = AdmissionWorld()
    body = admission.put(b"abcd")
    assert isinstance(admission.world.store, MemoryStore)
    admission.world.store.remove("bucket", "key")

    (received,) = admission.take(body)

    assert received == AdmissionResult()
    assert admission.jobs() == []


def test_an_object_whose_bucket_is_missing_is_kept_with_the_reason(golden: Golden) -> None:
    admission = AdmissionWorld(
        connectors_=[(ORDERS, 1), (SMALL, 1)],
        errors={"orders": BucketGone("s3://bucket: no such bucket at https://grid")},
    )

    admission.take(admission.put(b"abcd"))

    assert [job.connector for job in admission.jobs()] == ["small"]
    (kept,) = admission.kept.messages
    golden(kept.reason)
    assert "s3://bucket" in kept.reason
    assert json.loads(kept.body)["key"] == "key"


def test_the_version_that_was_announced_is_the_one_that_is_pinned() -> None:
    admission = AdmissionWorld(Queued(queue_world(store=MemoryStore(versioned=True))))
    first, second = admission.world.put(b"old"), admission.world.put(b"new")

    for version in (second, first):
        arrival = Arrival("bucket", "key", Dialect.AWS, version_id=version.version_id)
        admission.take(json.dumps(arrival.to_message()))
    admission.queued.drain(admission.queued.worker())

    assert {job.version for job in admission.jobs()} == {first, second}
    assert {job.state for job in admission.jobs()} == {JobState.DONE}


def test_an_object_that_reappears_is_delivered_completely() -> None:
    admission = AdmissionWorld()
    worker = admission.queued.worker()
    admission.take(admission.put(b"abcdefghijkl"))
    message = admission.queued.take()
    admission.queued.settle(message, worker.handle(message))
    admission.take(admission.put(b"ABCDEFGHIJKL"))
    admission.queued.drain(worker)
    first = next(job for job in admission.jobs() if job.state is JobState.SUPERSEDED)

    ((again,),) = [one.jobs for one in admission.take(admission.put(b"abcdefghijkl"))]
    admission.queued.drain(worker)

    assert again.id == first.id
    assert {job.state for job in admission.jobs()} == {JobState.DONE}
    both = expected(b"abcdefghijkl") + expected(b"ABCDEFGHIJKL")
    assert sorted(admission.world.delivered()) == sorted(both)
    assert admission.queued.dead.messages == []


def test_a_delivered_object_that_reappears_adds_nothing() -> None:
    admission = AdmissionWorld()
    worker = admission.queued.worker()
    for body in (b"abcd", b"ABCD", b"abcd"):
        admission.take(admission.put(body))
        admission.queued.drain(worker)

    assert {job.state for job in admission.jobs()} == {JobState.DONE}
    assert admission.world.delivered() == expected(b"abcd") + expected(b"ABCD")


def test_the_next_planner_takes_over_an_object_that_came_back() -> None:
    at, finished = 0, False
    while not finished:
        at += 1
        admission = AdmissionWorld()
        worker = admission.queued.worker()
        admission.take(admission.put(b"abcdefghijkl"))
        admission.put(b"ABCDEFGHIJKL")
        message = admission.queued.take()
        admission.queued.settle(message, worker.handle(message))
        admission.queued.drain(worker)
        body = admission.put(b"abcdefghijkl")
        dying = Dying(at)

        dying.watch(admission)
        with suppress(ArrivalPending):
            admission.take(body)
        finished = not dying.died
        dying.spare(admission)
        admission.take(body)
        admission.queued.drain(worker)

        (job,) = admission.jobs()
        assert job.state in (JobState.DONE, JobState.FAILED)
        assert job.state is JobState.DONE or admission.queued.item(job).error


@dataclass
class Dying:
    """Takes table and queue away at the n-th operation, for good."""

    at: int
    count: int = 0
    died: bool = False

    def watch(self, admission: AdmissionWorld) -> None:
        admission.world.ledger.on_call = admission.queued.queue.on_call = self

    def spare(self, admission: AdmissionWorld) -> None:
        admission.world.ledger.on_call = admission.queued.queue.on_call = lambda _: None

    def __call__(self, _name: str) -> None:
        self.count += 1
        if self.count >= self.at:
            self.died = True
            raise LedgerUnavailable("gone")


# -- planning that fails --------------------------------------------------------------------------


def test_an_unsupported_format_is_a_failed_job_with_its_reason(golden: Golden) -> None:
    anything = replace(SMALL, format=None)
    admission = AdmissionWorld(connectors_=[(anything, 1)])

    ((job,),) = [one.jobs for one in admission.take(admission.put(b"abcd", "file.xyz"))]

    assert job.state is JobState.FAILED
    golden(job.reason)
    assert "s3://bucket/file.xyz" in job.reason
    assert admission.queued.queue.sent == []
    assert admission.kept.messages == []


def test_a_replay_of_an_unsupported_format_fails_again_with_the_reason() -> None:
    admission = AdmissionWorld(connectors_=[(replace(SMALL, format=None), 1)])
    ((job,),) = [one.jobs for one in admission.take(admission.put(b"abcd", "file.xyz"))]

    again = admission.planner.plan(admission.planner.replay(job))

    assert (again.state, again.reason) == (JobState.FAILED, job.reason)


def test_more_extents_than_a_job_may_have_are_a_failed_job_and_stay_one() -> None:
    admission = AdmissionWorld(
        Queued(queue_world(store=Large())), connectors_=[(replace(SMALL, extent_bytes=1), 1)]
    )

    ((job,),) = [one.jobs for one in admission.take(announced("key"))]
    again = admission.planner.plan(admission.planner.replay(job))

    assert job.state is JobState.FAILED
    assert "set extent.bytes to" in job.reason
    assert (again.state, again.reason) == (JobState.FAILED, job.reason)
    assert admission.queued.queue.sent == []


class Large(MemoryStore):
    """A store of objects that are too large for extents of a byte."""

    def head(self, bucket: str, key: str, version_id: str | None = None) -> ObjectVersion:
        return ObjectVersion(bucket, key, version_id, "etag", 2 * MAX_EXTENTS)


def test_a_connector_that_was_broken_since_ends_no_job_that_is_under_way() -> None:
    admission = AdmissionWorld()
    body = admission.put(b"abcd", "file.xyz")
    ((job,),) = [one.jobs for one in admission.take(body)]
    broken = replace(SMALL, format=None)
    admission.connectors_, admission.revisions["small", 2] = [(broken, 2)], broken

    ((again,),) = [one.jobs for one in admission.take(body)]

    assert again == job
    admission.queued.drain(admission.queued.worker())
    assert admission.queued.now(job).state is JobState.DONE


class Damaged(Bytewise):
    """Cannot cut an object that begins with `!`."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        if source.read(0, 1) == b"!":
            raise self._error
        return super().plan(source, target_bytes)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (CorruptObject("its footer is damaged"), "its footer is damaged"),
        (ZeroDivisionError("oh"), "s3://bucket/bad: unexpected ZeroDivisionError: oh"),
    ],
)
def test_trap_t09_an_object_that_cannot_be_planned_fails_only_its_own_job(
    error: Exception, why: str
) -> None:
    admission = AdmissionWorld(Queued(queue_world(format=Damaged(error))))
    admission.put(b"!bcd", "bad")
    admission.put(b"abcd", "good")

    admission.take(announced("bad", "good"))

    bad, good = admission.jobs()
    assert (bad.state, bad.reason) == (JobState.FAILED, why)
    assert good.state is JobState.RUNNING


def test_a_defect_of_ours_holds_up_its_own_object_alone(
    caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    admission = AdmissionWorld(errors={"bad": ZeroDivisionError("oh")})
    admission.put(b"abcd", "bad")
    admission.put(b"abcd", "good")
    body = announced("bad", "good")

    with golden.raises(ArrivalPending, match="connector small.*s3://bucket/bad.*ZeroDivision"):
        admission.take(body)

    assert [job.version.key for job in admission.jobs()] == ["good"]
    assert "Traceback" in caplog.text
    admission.errors.clear()
    admission.take(body)
    assert [job.version.key for job in admission.jobs()] == ["bad", "good"]


def test_a_planning_failure_can_be_replayed() -> None:
    fmt = Damaged(CorruptObject("its footer is damaged"))
    admission = AdmissionWorld(Queued(queue_world(format=fmt)))
    ((job,),) = [one.jobs for one in admission.take(admission.put(b"!bcd"))]
    admission.world.format = Bytewise()

    admission.handler().start(admission.planner.replay(job))

    assert admission.queued.now(job).state is JobState.RUNNING
    assert ordinals(admission.queued.queue.sent) == [0]


def test_a_planner_without_time_resumes_with_the_redelivered_message() -> None:
    admission = AdmissionWorld(connectors_=[(replace(SMALL, extent_bytes=1), 1)], late=lambda: True)
    body = admission.put(b"x" * (3 * PAGE_EXTENTS))

    for _ in range(3):
        with pytest.raises(ArrivalPending, match="is PLANNING"):
            admission.take(body)
    admission.take(body)

    assert ordinals(admission.queued.queue.sent) == list(range(3 * PAGE_EXTENTS))
    assert [job.state for job in admission.jobs()] == [JobState.RUNNING]


class Slow(AdmissionWorld):
    """A handler whose clock advances by 20 s per request while the object store is unavailable."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.begin()

    def begin(self) -> None:
        end = self.world.ticker.now + 30
        self.late = lambda: self.world.ticker.now > end

    def head(self, config: ConnectorConfig, revision: int, arrival: Arrival) -> ObjectVersion:
        if "unavailable" in arrival.key or "unavailable" in config.name:
            self.world.ticker.now += 20
            raise StoreUnavailable(f"{arrival.uri}: no answer")
        return super().head(config, revision, arrival)

    def waiting(self) -> list[str]:
        """Return the keys that went on by themselves."""
        return [json.loads(message.body)["key"] for message in self.arrivals.messages]


def test_unprocessed_objects_continue_as_separate_messages() -> None:
    admission = Slow()
    for key in ("good", "behind", "last"):
        admission.put(b"abcd", key)
    body = announced("good", "unavailable1", "unavailable2", "behind", "last")

    admission.take(body)

    assert [job.version.key for job in admission.jobs()] == ["good"]
    assert admission.waiting() == ["unavailable1", "unavailable2", "behind", "last"]
    for message in admission.arrivals.messages[2:]:
        admission.take(message.body)
    assert [job.version.key for job in admission.jobs()] == ["behind", "good", "last"]


def test_the_only_arrival_is_always_begun_and_makes_no_copy() -> None:
    admission = Slow()

    for _ in range(3):
        with pytest.raises(ArrivalPending, match="no answer"):
            admission.take(announced("unavailable"))

    assert admission.arrivals.messages == []


def test_without_time_from_the_start_nothing_is_lost_and_something_is_done() -> None:
    admission = AdmissionWorld(late=lambda: True)
    for number in range(4):
        admission.put(b"abcd", f"k{number}")

    admission.take(announced("k0", "k1", "k2", "k3"))
    for message in admission.arrivals.messages:
        admission.take(message.body)

    assert [job.version.key for job in admission.jobs()] == ["k0", "k1", "k2", "k3"]
    assert len(admission.arrivals.messages) == 3


def test_a_split_message_is_deleted_with_all_its_objects_sent() -> None:
    waiting = replace(ORDERS, prefix="paused")
    admission = Slow(
        connectors_=[(SMALL, 1), (waiting, 1)], states={"orders": ConnectorState.PAUSED}
    )
    for key in ("paused", "unseen"):
        admission.put(b"abcd", key)
    known = json.loads(announced("paused", "unavailable1", "unavailable2", "unseen"))["Records"]
    body = json.dumps({"Records": [*known, {"eventSource": "unheard"}]})

    admission.handler().take(body, received=PAUSED_RECEIVES)

    assert admission.waiting() == ["paused", "unavailable1", "unavailable2", "unseen"]
    (kept,) = admission.kept.messages
    assert kept.reason.startswith("notification not understood")


def test_continuations_are_sent_before_dead_letters() -> None:
    admission = Slow()
    known = json.loads(announced("unavailable1", "unavailable2", "unseen"))["Records"]
    body = json.dumps({"Records": [*known, {"eventSource": "unheard"}]})
    admission.arrivals.failures = 1

    with pytest.raises(QueueUnavailable):
        admission.take(body)

    assert admission.kept.messages == []


def test_unavailable_stores_do_not_starve_other_connectors(golden: Golden) -> None:
    unavailable = [(replace(SMALL, name=f"unavailable{number}"), 1) for number in range(3)]
    admission = Slow(connectors_=[*unavailable, (ORDERS, 1)])
    body = admission.put(b"abcd")
    began = admission.world.ticker.now

    with golden.raises(ArrivalPending, match="connector orders"):
        admission.handler().take(body)
    assert admission.world.ticker.now - began == 40
    for received in range(2, 5):
        admission.begin()
        with pytest.raises(ArrivalPending, match="no answer"):
            admission.handler().take(body, received=received)

    assert [job.connector for job in admission.jobs()] == ["orders"]


# -- unavailable services --------------------------------------------------------------------------


AGAIN = [
    StoreUnavailable("the store is unavailable"),
    AccessDenied("no permission"),
    Misconfigured("another region"),
]


@pytest.mark.parametrize("error", AGAIN, ids=lambda error: type(error).__name__)
def test_trap_t09_an_object_that_cannot_be_looked_at_holds_up_no_other(error: Exception) -> None:
    admission = AdmissionWorld(errors={"b": error})
    for key in "abc":
        admission.put(b"abcd", key)

    with pytest.raises(ArrivalPending, match=str(error)):
        admission.take(announced("a", "b", "c"))

    assert [job.version.key for job in admission.jobs()] == ["a", "c"]
    assert admission.kept.messages == []
    admission.errors.clear()
    admission.take(announced("a", "b", "c"))
    assert [job.version.key for job in admission.jobs()] == ["a", "b", "c"]


@pytest.mark.parametrize("error", AGAIN, ids=lambda error: type(error).__name__)
def test_trap_t09_a_connector_that_cannot_look_holds_up_no_other(error: Exception) -> None:
    admission = AdmissionWorld(connectors_=[(ORDERS, 1), (SMALL, 1)], errors={"orders": error})

    with pytest.raises(ArrivalPending, match=str(error)):
        admission.take(admission.put(b"abcd"))

    assert [job.connector for job in admission.jobs()] == ["small"]


def test_the_error_of_a_single_arrival_is_raised_as_it_is() -> None:
    error = AccessDenied("no permission")
    admission = AdmissionWorld(connectors_=[(ORDERS, 1), (SMALL, 1)], errors={"orders": error})
    admission.put(b"abcd")

    with pytest.raises(AccessDenied, match="no permission"):
        admission.handler().receive(Arrival("bucket", "key", Dialect.COMMAND))

    assert [job.connector for job in admission.jobs()] == ["small"]


def test_an_arrival_that_nothing_helps_is_kept_with_the_reason(golden: Golden) -> None:
    admission = AdmissionWorld(
        errors={"key": Conflict("the job delivers to another Kafka cluster")}
    )

    admission.take(admission.put(b"abcd"))

    (kept,) = admission.kept.messages
    golden(kept.reason)
    assert json.loads(kept.body)["key"] == "key"


def test_an_arrival_is_retried_while_any_connector_can_succeed() -> None:
    nothing_helps = Conflict("the job delivers to another Kafka cluster")
    admission = AdmissionWorld(
        connectors_=[(ORDERS, 1), (SMALL, 1)],
        errors={"orders": nothing_helps},
        states={"small": ConnectorState.PAUSED},
    )
    body = admission.put(b"abcd")

    with pytest.raises(ArrivalPending, match="another Kafka cluster"):
        admission.take(body)
    assert admission.kept.messages == []
    admission.states.clear()
    admission.take(body)

    assert [job.connector for job in admission.jobs()] == ["small"]
    assert len(admission.kept.messages) == 1


def test_a_job_of_another_kafka_cluster_is_kept_for_people() -> None:
    admission = AdmissionWorld()
    body = admission.put(b"abcd")
    admission.take(body)
    admission.world.broker.cluster = "elsewhere"

    admission.take(body)

    (kept,) = admission.kept.messages
    assert "delivers to Kafka cluster memory" in kept.reason


@pytest.mark.parametrize("at", range(1, 30))
def test_a_planner_that_dies_anywhere_is_made_good_by_the_same_message(at: int) -> None:
    admission = AdmissionWorld(connectors_=[(ORDERS, 1), (SMALL, 1)])
    admission.put(b"abcdefgh", "a")
    admission.put(b"ijkl", "b")
    body = announced("a", "b")
    dying = Dying(at)

    dying.watch(admission)
    with suppress(ArrivalPending):
        admission.take(body)
    dying.spare(admission)
    admission.take(body)

    assert [(job.version.key, job.connector) for job in admission.jobs()] == [
        ("a", "orders"),
        ("a", "small"),
        ("b", "orders"),
        ("b", "small"),
    ]
    assert {job.state for job in admission.jobs()} == {JobState.RUNNING}
    assert len(set(admission.queued.queue.sent)) == 5
    assert admission.kept.messages == []


def test_a_message_is_retried_while_the_dlq_is_unavailable() -> None:
    admission = AdmissionWorld(connectors_=[])
    admission.kept.failures = 1
    body = admission.put(b"abcd")

    with pytest.raises(QueueUnavailable):
        admission.take(body)
    admission.take(body)

    assert len(admission.kept.messages) == 1


# -- bodies ---------------------------------------------------------------------------------------


def test_what_is_not_understood_is_kept_and_its_neighbours_are_dealt_with() -> None:
    admission = AdmissionWorld()
    admission.put(b"abcd")
    known = json.loads(announced("key"))["Records"]
    body = json.dumps({"Records": [{"eventSource": "unheard"}, *known, 7]})

    admission.take(body)

    assert [job.version.key for job in admission.jobs()] == ["key"]
    assert [json.loads(message.body) for message in admission.kept.messages] == [
        {"Records": [{"eventSource": "unheard"}]},
        {"Records": [7]},
    ]
    assert all(
        message.reason.startswith("notification not understood")
        for message in admission.kept.messages
    )


@settings(deadline=None, max_examples=100)
@given(body=st.text(min_size=1))
def test_any_text_is_kept_or_announces_nothing(body: str) -> None:
    admission = AdmissionWorld()

    found = admission.take(body)

    assert found == []
    assert admission.jobs() == []
    assert all(message.body and message.reason for message in admission.kept.messages)
    assert admission.kept.messages or json.loads(body)


@settings(deadline=None, max_examples=50)
@given(
    bucket=st.text(min_size=1), key=st.text(min_size=1), endpoint=st.none() | st.text(min_size=1)
)
def test_any_arrival_of_ours_is_dealt_with_or_kept(
    bucket: str, key: str, endpoint: str | None
) -> None:
    admission = AdmissionWorld(
        connectors_=[(SMALL, 1), (replace(SMALL, name="grid", endpoint=GRID), 1)]
    )
    arrival = Arrival(bucket, key, Dialect.COMMAND, endpoint=endpoint)

    admission.take(json.dumps(arrival.to_message()))

    assert admission.jobs() == []
    assert bucket == "bucket" or len(admission.kept.messages) == 1


def test_an_empty_message_inside_another_is_kept_as_the_whole() -> None:
    admission = AdmissionWorld()
    body = sns("")

    admission.take(body)

    assert [message.body for message in admission.kept.messages] in ([body], [])


@pytest.mark.parametrize("error", [ObjectGone("gone"), None])
def test_an_arrival_without_any_certainty_is_looked_up(error: Exception | None) -> None:
    admission = AdmissionWorld(errors={"key": error} if error else {})
    admission.put(b"abcd")
    arrival = Arrival("bucket", "key", Dialect.LISTING, etag="another", size=0, event_time=0.0)

    (received,) = admission.take(json.dumps(arrival.to_message()))

    assert [job.version.size for job in received.jobs] == ([] if error else [4])


# -- backfills ------------------------------------------------------------------------------------

WANTED = Backfill("b1", "small", ("s3://bucket/in/",))
ASKED = json.dumps(WANTED.to_message())


def test_a_backfill_is_routed_and_makes_no_job_here() -> None:
    admission = AdmissionWorld()

    assert admission.take(ASKED) == []

    assert admission.backfilled == [WANTED]
    assert (admission.kept.messages, admission.arrivals.messages, admission.jobs()) == ([], [], [])


@pytest.mark.parametrize("error", [RunsUnavailable("unavailable"), Misconfigured("no permission")])
def test_a_backfill_that_cannot_be_started_now_comes_again(error: Exception) -> None:
    admission = AdmissionWorld(errors={"b1": error})

    with pytest.raises(ArrivalPending, match=f"backfill b1: {error}"):
        admission.take(ASKED)

    assert (admission.backfilled, admission.kept.messages) == ([], [])


def test_a_backfill_without_an_engine_is_kept_with_the_reason() -> None:
    admission = AdmissionWorld(errors={"b1": NotOffered("there is no Spark")})

    admission.take(ASKED)

    (kept,) = admission.kept.messages
    assert (json.loads(kept.body), kept.reason) == (WANTED.to_message(), "there is no Spark")


@pytest.mark.parametrize(
    "wrapping",
    [
        {"Type": "Notification", "Message": ASKED},
        {"Records": [{"eventSource": "aws:sqs", "body": ASKED}]},
    ],
    ids=["sns", "sqs"],
)
def test_a_backfill_that_was_refused_in_a_wrapping_starts_by_no_redrive(
    wrapping: dict[str, object],
) -> None:
    admission = AdmissionWorld()

    admission.take(json.dumps(wrapping))
    (first,) = admission.kept.messages
    admission.take(first.body)

    assert admission.backfilled == []
    assert [kept.body for kept in admission.kept.messages] == [first.body, first.body]


def test_a_backfill_waits_for_a_paused_connector_and_continues_as_a_copy() -> None:
    admission = AdmissionWorld(states={"small": ConnectorState.PAUSED})

    with pytest.raises(ArrivalPending, match="connector small is PAUSED"):
        admission.take(ASKED)
    admission.handler().take(ASKED, received=PAUSED_RECEIVES)

    (copy,) = admission.arrivals.messages
    admission.states.clear()
    admission.take(copy.body)
    assert admission.backfilled == [WANTED]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (WANTED, "connector small is STOPPED"),
        (replace(WANTED, connector="other"), "connector other is not there"),
    ],
)
def test_a_backfill_of_no_connector_that_runs_is_kept(asked: Backfill, why: str) -> None:
    admission = AdmissionWorld(states={"small": ConnectorState.STOPPED})

    admission.take(json.dumps(asked.to_message()))

    (kept,) = admission.kept.messages
    assert why in kept.reason
    assert admission.backfilled == []


def test_a_backfill_of_a_connector_that_cannot_be_read_yet_comes_again() -> None:
    admission = AdmissionWorld(
        connectors_=[],
        unparsed=[UnparsedConnector(AVRO, "small"), UnparsedConnector(AVRO, "other")],
    )

    with pytest.raises(ArrivalPending, match="backfill b1: "):
        admission.take(ASKED)

    assert (admission.kept.messages, admission.backfilled) == ([], [])


@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2},
        {"id": ""},
        {"connector": None},
        {"addresses": "s3://bucket/"},
        {"addresses": [1]},
        {"addresses": ["--again"]},
        {"addresses": ["s3://bucket/"] * (MOST_ADDRESSES + 1)},
    ],
)
def test_what_is_no_backfill_is_kept_as_it_came(changes: dict[str, object]) -> None:
    admission = AdmissionWorld()
    body = json.dumps(WANTED.to_message() | changes)

    admission.take(body)

    (kept,) = admission.kept.messages
    assert kept.body == body
    assert admission.backfilled == []


def test_a_posted_notification_never_starts_a_backfill() -> None:
    admission = AdmissionWorld()

    admission.take(wrapped(ASKED.encode(), None))
    admission.take(json.dumps({"Type": "Notification", "Message": ASKED}))

    assert admission.backfilled == []
    assert len(admission.kept.messages) == 2
