"""Lanes: the connectors of a round, each with its own topic, objects and way of delivery."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time, timedelta
from random import Random
from threading import Lock
from typing import Any, Literal
from uuid import uuid4

from demo.eventpath import Upload
from tests.faults.comparison import OBJECT_KEY, Expectation, Source
from tests.faults.objects import CSV_SCHEMA, DAYS, LARGE_CHARACTERS, Numbers, Written, day_of
from tests.faults.repeats import ACTION, MOVED, TAGGED, Repeats
from tests.faults.retention import RetainedReader
from tests.faults.servers import Servers
from tests.support.delivery import Delivery
from tests.support.eventpath import Feed, put_version

from extentflow.ledger.summaries import committed
from extentflow.model import ExtentState, Job, JobState

Route = Literal["inline", "two inline", "spark", "queue", "queue and inline"]

DEAD = "dead"
# More would make rounds longer than they are disturbed.
MOST_LANES = 6
# Two topics, whose batches must stay aligned.
GROUPS = ("numbers", "others")


@dataclass(frozen=True)
class Refusal:
    """What a topic rejects: its configuration, the connector's, and the rows, also in SQL."""

    topic: Callable[[], dict[str, str]]
    connector: Mapping[str, str]
    refuses: Callable[[Mapping[str, Any]], bool]
    sql: str


# The brokers judge timestamps of the first of the rejected days, workers those of the other ones.
_FIRST_REFUSED_DAY = day_of(DAYS - 40)
_BEFORE_IT = timedelta(minutes=14)


def _limited_timestamps() -> dict[str, str]:
    limit = datetime.combine(_FIRST_REFUSED_DAY, time(), UTC) - _BEFORE_IT
    ahead = limit - datetime.now(UTC)
    return {
        "message.timestamp.after.max.ms": str(ahead // timedelta(milliseconds=1)),
        "retention.ms": "-1",
        # Rows of other years would begin a segment each.
        "segment.ms": str(10**13),
    }


_LARGE = LARGE_CHARACTERS - 1_000
TOO_LARGE = Refusal(
    lambda: {"max.message.bytes": str(_LARGE)},
    {},
    lambda row: len(row["note"] or "") > _LARGE,
    f"length(note) > {_LARGE}",
)
TOO_LATE = Refusal(
    _limited_timestamps,
    {"message.timestamp": "column:day"},
    lambda row: row["day"] >= _FIRST_REFUSED_DAY,
    f"day >= DATE '{_FIRST_REFUSED_DAY}'",
)
WITHOUT_KEY = Refusal(
    lambda: {"cleanup.policy": "compact"},
    {"message.key": "column:note"},
    lambda row: row["note"] is None,
    "note IS NULL",
)


@dataclass(frozen=True)
class Kind:
    """What a lane's connector is: its configuration, formats, sizes, and how it is compared.

    Of each of `choices`, a lane has one, and one of `refusals`: `drawn`. `routes`: only these.
    `repeated`: equal bytes are uploaded again, to a bucket with versions if `versioned`.
    `retained`: its topic is read while records of it are deleted, and is created again at the end.
    """

    name: str
    config: dict[str, str]
    formats: tuple[str, ...]
    rows: tuple[int, int]
    begin: int
    expectation: Expectation = field(default_factory=Expectation)
    choices: tuple[tuple[Mapping[str, str], ...], ...] = ()
    refusals: tuple[Refusal, ...] = ()
    routes: tuple[Route, ...] = ()
    repeated: bool = False
    versioned: bool = False
    retained: bool = False

    def drawn(self, random: Random) -> "Kind":
        """Return the kind of one lane."""
        if self.refusals:
            refusal = random.choice(self.refusals)
            keyed = "note" if refusal is WITHOUT_KEY else None
            how = replace(self.expectation, refused=refusal.sql, key=keyed)
            config = {**self.config, **refusal.connector}
            return replace(self, config=config, refusals=(refusal,), expectation=how)
        if not self.choices:
            return self
        config = dict(self.config)
        for each in self.choices:
            config |= random.choice(each)
        if self.repeated:
            versioned = config[ACTION] == "tag" or random.random() < 0.5
            return replace(self, config=config, choices=(), versioned=versioned)
        how = replace(
            self.expectation,
            key="grp" if config.get("message.key") == "column:grp" else None,
            ordered=config.get("ordering") == "object",
        )
        return replace(self, config=config, choices=(), expectation=how)

    @property
    def groups(self) -> tuple[str, ...]:
        """The column groups, each with a topic of its own."""
        return GROUPS if "columnar.groups" in self.config else ()

    @property
    def refusal(self) -> Refusal | None:
        """What the topic of a drawn kind rejects."""
        return self.refusals[0] if self.refusals else None

    @property
    def tolerant(self) -> bool:
        """Whether bad records go to a dead letter queue."""
        return self.config.get("errors.tolerance") == "all"


KINDS = (
    Kind(
        "keyed",
        {"message.key": "column:grp", "extent.bytes": "24KiB"},
        ("parquet",),
        (600, 2_000),
        2,
        Expectation(key="grp"),
    ),
    Kind(
        "ordered",
        {"message.key": "object", "ordering": "object", "extent.bytes": "32KiB"},
        ("jsonl", "jsonl", "jsonl.gz"),
        (400, 1_200),
        2,
        Expectation(key=OBJECT_KEY, ordered=True),
    ),
    Kind(
        "tolerant",
        {"errors.tolerance": "all", "csv.schema": CSV_SCHEMA, "extent.bytes": "32KiB"},
        ("csv", "csv", "csv.gz"),
        (500, 1_500),
        2,
    ),
    Kind("small", {}, ("jsonl", "parquet"), (20, 120), 10),
    Kind(
        "lines",
        {"extent.bytes": "48KiB"},
        ("txt", "txt", "txt.gz"),
        (1_000, 4_000),
        2,
        Expectation(text=True),
    ),
    Kind(
        "columnar",
        {"errors.tolerance": "all", "csv.schema": CSV_SCHEMA, "extent.bytes": "32KiB"},
        ("parquet", "parquet", "parquet", "csv"),
        (600, 2_000),
        2,
        Expectation(columnar=True),
        choices=(
            # The first one is frequent: only there row groups pass through.
            (
                *({"columnar.encoding": "parquet"},) * 2,
                {"columnar.encoding": "parquet", "columnar.passthrough": "false"},
                {"columnar.encoding": "parquet", "columnar.encoding.compression": "zstd"},
                {"columnar.encoding": "arrow"},
                {"columnar.encoding": "arrow", "columnar.encoding.compression": "lz4"},
            ),
            ({}, {}, {}, {"message.key": "column:grp"}, {"ordering": "object"}),
            ({}, {}, {"columnar.groups": f"{GROUPS[0]}: id, amount, ratio; {GROUPS[1]}: *"}),
            ({}, {"columnar.batch.bytes": "4KiB"}),
        ),
    ),
    Kind(
        "refused",
        {"errors.tolerance": "all", "extent.bytes": "24KiB"},
        ("parquet",),
        (600, 2_000),
        2,
        refusals=(TOO_LARGE, TOO_LATE, WITHOUT_KEY),
    ),
    # Commands repeat FAILED jobs of the lane; a function's dead letters would be those of others.
    Kind(
        "strict",
        {"extent.bytes": "24KiB"},
        ("parquet",),
        (50, 400),
        5,
        refusals=(TOO_LARGE, TOO_LATE),
        routes=("inline", "two inline"),
    ),
    Kind(
        "repeated",
        {"extent.bytes": "24KiB"},
        ("parquet", "jsonl"),
        (300, 900),
        3,
        choices=(({ACTION: "delete"}, {ACTION: "move"}, TAGGED),),
        routes=("inline", "two inline", "queue and inline"),
        repeated=True,
    ),
    Kind(
        "retained",
        {"extent.bytes": "24KiB"},
        ("parquet", "jsonl"),
        (400, 1_200),
        3,
        retained=True,
    ),
)


@dataclass
class Version:
    """An uploaded object version. `gone`: replaced or deleted since."""

    written: Written
    upload: Upload
    gone: bool = False


@dataclass
class Lane:
    """One connector in one round."""

    kind: Kind
    route: Route
    delivery: Delivery
    servers: Servers
    versions: list[Version] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)
    repeats: Repeats | None = None
    reader: RetainedReader | None = None

    @property
    def feed(self) -> Feed:
        """Its notifications, where functions run."""
        return Feed(self.servers.functions, self.delivery)

    @property
    def topics(self) -> list[str]:
        """Where its records go: one topic, or one per column group."""
        return [f"{self.delivery.topic}.{one}" for one in self.kind.groups] or [self.delivery.topic]

    @property
    def dead_topic(self) -> str | None:
        """Where its bad records go."""
        return f"{DEAD}-{self.delivery.name}" if self.kind.tolerant else None

    @property
    def topic_config(self) -> dict[str, str]:
        """What differs from the broker's configuration of topics."""
        return self.kind.refusal.topic() if self.kind.refusal else {}

    @property
    def connector(self) -> str:
        """The connector's name."""
        return self.delivery.connector_name

    @property
    def queued(self) -> bool:
        """Whether its objects are announced."""
        return self.route in ("queue", "queue and inline")

    @property
    def engines(self) -> list[str]:
        """The engine of each command that delivers it."""
        return {
            "inline": ["inline"],
            "two inline": ["inline", "inline"],
            "spark": ["spark"],
            "queue": [],
            "queue and inline": ["inline"],
        }[self.route]

    def fails(self, version: Version) -> bool:
        """Whether the topic rejects a row of it, and that ends its job as FAILED."""
        refusal = self.kind.refusal
        if refusal is None or self.kind.tolerant:
            return False
        return any(map(refusal.refuses, version.written.rows.rows()))

    def put(self, written: Written, *, over: Version | None = None) -> Version:
        """Upload an object, in place of `over`."""
        label = f"{written.rows.label}.{written.format}"
        if over is not None:
            key = over.upload.version.key
            label = key.removeprefix(self.delivery.prefix)
        with self.lock:
            version = Version(written, put_version(self.delivery, label, written.body))
            if over is not None:
                over.gone = True
            self.versions.append(version)
        return version

    def delete(self, version: Version) -> None:
        """Delete an object."""
        with self.lock:
            found = version.upload.version
            self.servers.s3.delete_object(Bucket=found.bucket, Key=found.key)
            version.gone = True

    def current(self) -> list[Version]:
        """Return the versions that a listing finds."""
        with self.lock:
            return [one for one in self.versions if not one.gone]

    def uploads(self) -> list[Version]:
        """Return all versions, also those that are gone."""
        with self.lock:
            return list(self.versions)

    def job(self, version: Version) -> Job | None:
        """Return a version's job, past the proxies."""
        return self.servers.direct.ledger.jobs.get(version.upload.job)

    def jobs(self) -> list[Job]:
        """Return the connector's jobs, past the proxies."""
        return list(self.servers.direct.ledger.jobs.list(self.connector))

    def unsettled(self) -> list[str]:
        """Return what is not final yet: objects without a DONE job, and open jobs of others."""
        if self.repeats is not None:
            return self.repeats.unsettled()
        found = []
        for version in self.uploads():
            job = self.job(version)
            state = "none" if job is None else str(job.state)
            where = f"{version.upload.version.uri} job {version.upload.job}"
            if not version.gone and self.fails(version):
                if not self._has_failed(job):
                    found.append(f"{where} has refused rows, and is {state}")
            elif not version.gone and state != JobState.DONE:
                found.append(f"{where} is {state}{f': {job.reason}' if job else ''}")
            elif job is not None and job.state.open:
                found.append(f"{where} of a replaced or deleted object is {state}")
        return found

    def _has_failed(self, job: Job | None) -> bool:
        """Whether a job is FAILED because of bad records only."""
        if job is None or job.state is not JobState.FAILED:
            return False
        items = self.servers.direct.ledger.extents.list(job.id)
        errors = [one.error for one in items if one.state is ExtentState.FAILED]
        return bool(errors) and all("bad record at " in one for one in errors)

    def sources(self) -> list[Source]:
        """Return what must be in the topic, as the ledger counts it now."""
        if self.repeats is not None:
            each = {one.written.rows.label: one for one in self.uploads()}
            return [self._repeated(self.repeats, one) for one in each.values()]
        return [self._source(one) for one in self.uploads()]

    def _repeated(self, repeats: Repeats, version: Version) -> Source:
        """Return what must be in the topic of all uploads of equal bytes: a copy per DONE job."""
        jobs, ledger = repeats.jobs(version), self.servers.direct.ledger
        done = sum(job.state is JobState.DONE for job in jobs)
        return Source(
            label=version.written.rows.label,
            path=version.written.path,
            format=version.written.format,
            key=version.upload.version.key,
            required=True,
            records=sum(committed(ledger, job).records for job in jobs),
            least=max(1, done),
            most=max(1, done),
        )

    def _source(self, version: Version) -> Source:
        ledger, job = self.servers.direct.ledger, self.job(version)
        done = job is not None and job.state is JobState.DONE
        records: int | None = 0
        if job is not None:
            records = committed(ledger, job).records
            # Of what was not settled, the ledger may count less than Kafka has.
            if not done and any(one.claim is not None for one in ledger.extents.list(job.id)):
                records = None
        return Source(
            label=version.written.rows.label,
            path=version.written.path,
            format=version.written.format,
            key=version.upload.version.key,
            required=done or not (version.gone or self.fails(version)),
            records=records,
            pin=version.upload.version.version_id or version.upload.version.etag,
            first=version.written.rows.first,
        )


def draw_routes(random: Random, *, spark: bool, functions: bool = True) -> list[Route]:
    """Return a way of delivery per kind of lane: functions and commands are both among them."""
    if not functions:
        rest: list[Route] = ["inline", "inline", "inline", "two inline", "two inline"]
        return random.sample([*rest, "spark" if spark else "inline"], MOST_LANES)
    some: Sequence[Route] = ("two inline", "queue and inline", "queue")
    routes: list[Route] = ["queue", "queue", "inline", random.choice(some), random.choice(some)]
    routes.append("spark" if spark else random.choice(("inline", "queue and inline", "queue")))
    random.shuffle(routes)
    return routes


def draw_kinds(random: Random, kinds: Sequence[Kind]) -> list[Kind]:
    """Return the kinds of one round: at most MOST_LANES, in the order of `kinds`."""
    chosen = random.sample(range(len(kinds)), min(len(kinds), MOST_LANES))
    return [kinds[number].drawn(random) for number in sorted(chosen)]


def open_lane(kind: Kind, route: Route, servers: Servers, *, topic: bool = True) -> Lane:
    """Create a lane's topics and connector; without `topic`, `Lane.topics` are still missing."""
    delivery = servers.delivery(f"feed-{uuid4().hex[:8]}")
    delivery.runtime = servers.direct
    delivery.topic = f"records-{delivery.name}"
    lane = Lane(kind, route, delivery, servers)
    if kind.repeated:
        lane.repeats = Repeats(lane, kind.versioned)
        if kind.versioned:
            delivery.bucket = servers.versioned_bucket()
        if kind.config[ACTION] == "move":
            own = {MOVED: f"moved-{delivery.name}/"}
            lane.kind = kind = replace(kind, config={**kind.config, **own})
    if kind.retained:
        lane.reader = RetainedReader(servers, delivery.topic)
    for name in lane.topics if topic or kind.retained else ():
        servers.make_topic(name, lane.topic_config)
    dead = {}
    if kind.tolerant:
        dead = {"errors.deadletterqueue.topic.name": delivery.make_topic(DEAD)}
    delivery.connector({"aws.s3.endpoint": servers.store.endpoint, **kind.config, **dead})
    return lane


def next_object(lane: Lane, numbers: Numbers, random: Random) -> Written:
    """Write the lane's next object."""
    return numbers.write(random.choice(lane.kind.formats), random.randrange(*lane.kind.rows))
