"""The event path on the session's servers: the template's functions, each path with its own names.

ground (session)  servers, template      with ground.open(...) as path:         (module or test)
path              functions, queues, ledger, bucket      feed = path.feed()              (test)
feed              one connector, its topic, its objects  feed.ending(lines) == Ending(...)
"""

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import boto3
from botocore.exceptions import ClientError
from demo.eventpath import PROJECT, Upload, notification, put
from tests.integration.faultproxy import Answer, FaultProxy, Request
from tests.support.delivery import LEASE_SECONDS, Delivery
from tests.support.toy_functions import Seen
from tests.support.waiting import eventually

from extentflow.config.worker import WorkerSettings, load, variable
from extentflow.ledger import ExtentItem
from extentflow.model import Job, JobState
from extentflow.queue import Depth
from extentflow.queue.sqs_queue import SqsQueue
from extentflow_local.aws.emr.service import EmrServerless
from extentflow_local.aws.event_path import emr_environment, forward_run_events
from extentflow_local.aws.event_source.deployment import Deployment, Queue
from extentflow_local.aws.event_source.names import NOWHERE, TemplateContext
from extentflow_local.aws.event_source.place import Place
from extentflow_local.aws.event_source.source import EventSource
from extentflow_local.aws.event_source.template import read_template
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

PROCESSES = 2
# The template's times suit days of operation; these suit tests of seconds.
SHORT = {
    "exactly.once.slots": "16",
    "lease.seconds": f"{LEASE_SECONDS:g}",
    "transaction.max.bytes": "64KiB",
    "transaction.max.seconds": "2",
    "transaction.timeout.ms": "10000",
    "retry.timeout.seconds": "30",
}
HIDDEN_SECONDS = 4
# The reconciler runs only when a test invokes it: a schedule would make results depend on timing.
UNCALLED_SECONDS = 7 * 86_400.0
HIDING = "AmazonSQS.ChangeMessageVisibility"

Change = Callable[[Deployment], Deployment]


@dataclass(frozen=True)
class Ending:
    """The final state once no work is left; the defaults are those of one object without errors."""

    records: int
    missing: int = 0
    doubled: int = 0
    foreign: int = 0
    jobs: Mapping[str, int] = field(default_factory=lambda: {"DONE": 1})
    held: tuple[str, ...] = ()
    dead: int = 0


@dataclass(frozen=True)
class Ground:
    """What event paths share: the session's servers, the template, a folder for logs."""

    stack: Stack
    queues: Stack
    template: Path
    folder: Path

    @contextmanager
    def open(
        self,
        change: Change = lambda deployment: deployment,
        *,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        emr: EmrServerless | None = None,
        most_hidden_seconds: int = HIDDEN_SECONDS,
        layers: Sequence[Path] = (),
    ) -> Iterator["EventPath"]:
        """Run the functions of the deployment that `change` derives from the template.

        `settings` override SHORT. Large jobs go to `emr`. A received message is invisible for at
        most `most_hidden_seconds`, even if a worker requests more. `layers` are folders of packages
        that the functions have in addition to the library.
        """
        name = f"path-{uuid4().hex[:8]}"
        sqs = boto3.client("sqs", endpoint_url=self.queues.endpoint("sqs"))
        s3 = boto3.client("s3", endpoint_url=self.stack.endpoint("s3"))
        with FaultProxy(self.queues.endpoint("sqs")) as proxy:
            ours = {**SHORT, **(settings or {}), **self._servers(name)}
            deployment = self._deployment(
                name,
                {
                    **emr_environment(emr),
                    **{variable(key): value for key, value in ours.items()},
                    "AWS_ENDPOINT_URL_SQS": proxy.endpoint,
                    **(environment or {}),
                },
                emr.id if emr else NOWHERE,
            )
            for function in ("planner", "worker"):
                deployment = deployment.with_queue(function, visibility_seconds=most_hidden_seconds)
            deployment = deployment.with_schedule("reconciler", every_seconds=UNCALLED_SECONDS)
            seen = Seen()
            source = EventSource(change(deployment), self._place(name, layers), observe=seen)
            path = EventPath(name, self, source, proxy, seen, s3, sqs)
            s3.create_bucket(Bucket=path.bucket)
            path.delivery("ground", by_admin=True).runtime  # noqa: B018 - makes the table
            proxy.inject(
                Answer(200, content_type="application/x-amz-json-1.0"),
                when=ShortVisibility(sqs, most_hidden_seconds),
                times=None,
            )
            with source, forward_run_events(emr, source):
                yield path
        s3.close()
        sqs.close()

    def _servers(self, name: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.stack.endpoint("kafka"),
            "ledger.table": name,
            "ledger.endpoint": self.stack.endpoint("dynamodb"),
        }

    def _deployment(
        self, name: str, environment: Mapping[str, str | None], application: str
    ) -> Deployment:
        around = TemplateContext(
            sqs=self.queues.endpoint("sqs"),
            application=application,
            prefix=f"{name}-",
            environment=environment,
        )
        return read_template(self.template, around)

    def _place(self, name: str, layers: Sequence[Path] = ()) -> Place:
        return Place(
            directory=self.folder / name,
            functions=PROJECT / "functions",
            layers=[PROJECT / "layers" / "core" / "python", *layers],
            processes=PROCESSES,
            search_path=os.environ["PATH"],
        )


@dataclass(frozen=True)
class ShortVisibility:
    """A rule of the queues' proxy: limits the visibility timeout that a worker requests."""

    sqs: "SQSClient"
    most_seconds: int

    def __call__(self, request: Request) -> bool:
        if request.headers.get("x-amz-target") != HIDING:
            return False
        asked = json.loads(request.body)
        if asked["VisibilityTimeout"] <= self.most_seconds:
            return False
        try:
            self.sqs.change_message_visibility(**{**asked, "VisibilityTimeout": self.most_seconds})
        except ClientError:
            return False  # the server rejects the worker's request in the same way
        return True


@dataclass(frozen=True)
class EventPath:
    """A running event path. `proxy` is between its functions and the queues."""

    name: str
    ground: Ground
    source: EventSource
    proxy: FaultProxy
    seen: Seen
    s3: "S3Client"
    sqs: "SQSClient"

    @property
    def bucket(self) -> str:
        return self.name

    @property
    def deployment(self) -> Deployment:
        return self.source.deployment

    @property
    def settings(self) -> WorkerSettings:
        """The worker settings in the environment of the functions."""
        given = self.deployment.functions["worker"].environment
        ours = {name: value for name, value in given.items() if name.startswith("EXTENTFLOW_")}
        return load(ours, read_text=lambda _path: None)

    def delivery(self, name: str, bucket: str | None = None, *, by_admin: bool = False) -> Delivery:
        """Return a delivery with a unique name in the path's ledger.

        `by_admin`: over the stack's own listener, whatever the functions may do on the brokers.
        """
        settings = self.settings
        same = {one.name: getattr(settings, one.name) for one in fields(settings)}
        door = {"bootstrap_servers": self.ground.stack.endpoint("kafka"), "kafka": {}}
        changes = {**same, **door} if by_admin else same
        return Delivery(self.ground.stack, self.s3, bucket or self.bucket, name, changes)

    def feed(self, bucket: str | None = None, **config: str) -> "Feed":
        """Store a connector with its own topic; write the dots of its keys as `_`."""
        delivery = self.delivery(f"feed-{uuid4().hex[:8]}", bucket)
        delivery.connector({key.replace("_", "."): value for key, value in config.items()})
        return Feed(self, delivery)

    def feed_by_admin(self) -> "Feed":
        """Store a connector with its own topic, whatever the functions may do on the brokers."""
        delivery = self.delivery(f"feed-{uuid4().hex[:8]}", by_admin=True)
        delivery.connector({})
        return Feed(self, delivery)

    def depth(self, queue: Queue) -> Depth:
        """Count a queue's messages."""
        return SqsQueue(queue.url, self.sqs).depth()

    def is_drained(self) -> bool:
        """Whether no arrival and no extent is queued or in work."""
        queues = map(self.deployment.queue_of, ("planner", "worker"))
        return all(self.depth(queue) == Depth(0) for queue in queues)

    def dead(self) -> int:
        """Count dead letters."""
        queues = map(self.deployment.dead_letter_queue_of, ("planner", "worker"))
        return sum(self.depth(queue).waiting for queue in queues)

    def purge(self) -> None:
        """Empty all queues, so that no message of one test reaches the next."""
        for function in ("planner", "worker"):
            for queue in (
                self.deployment.queue_of(function),
                self.deployment.dead_letter_queue_of(function),
            ):
                self.sqs.purge_queue(QueueUrl=queue.url)

    def signal(self, function: str, number: signal.Signals) -> int:
        """Send a signal to a running process of a function; return the process id."""
        pid = self.source.pids(function)[0]
        os.kill(pid, number)
        return pid

    def log(self, function: str) -> list[dict[str, Any]]:
        """Return a function's log lines that are JSON."""
        lines = self.output(function).splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def output(self, function: str) -> str:
        """Return everything that a function's processes wrote."""
        log = self.ground._place(self.name).log_of(function)
        return log.read_text() if log.exists() else ""  # it has not begun


@dataclass
class Feed:
    """One connector's objects on an event path, and their jobs."""

    path: EventPath
    delivery: Delivery

    def upload(self, label: str, body: bytes) -> Upload:
        """Put an object and notify of it."""
        found = self.put(label, body)
        self.announce(found)
        return found

    def put(self, label: str, body: bytes) -> Upload:
        """Put an object; return it with the id of its job."""
        return put_version(self.delivery, label, body)

    def announce(self, *uploads: Upload) -> None:
        """Send the notification of each, as S3 would, in one batch of at most ten."""
        self.send(self.path.deployment.queue_of("planner"), map(announcement, uploads))

    def send(self, queue: Queue, bodies: Iterable[str]) -> None:
        """Send messages in one batch."""
        SqsQueue(queue.url, self.path.sqs).send(list(bodies))

    def job(self, upload: Upload) -> Job | None:
        """Return the job of an object's version."""
        return self.delivery.runtime.ledger.jobs.get(upload.job)

    def await_state(self, upload: Upload, *states: JobState) -> Job:
        """Wait until a job is in one of some states."""

        def arrived() -> Job | None:
            job = self.job(upload)
            return job if job is not None and job.state in states else None

        what = f"job {upload.job} is {' or '.join(states)}"
        found: Job = eventually(what, arrived)
        return found

    def is_mid_extent(self) -> bool:
        """Whether an extent is partly committed and has an open transaction with more records."""
        under_way = any(item.claim is not None and item.position > 0 for item in self.items())
        return under_way and not self.delivery._is_stable(self.delivery.topic)

    def ending(self, lines: Collection[bytes]) -> Ending:
        """Wait until no work is left; compare the delivered records with `lines`."""
        # A consumer deletes a message only after it has sent the messages that follow from it.
        eventually("the queues are empty", self.path.is_drained)
        found = Counter(self.delivery.values())
        expected = set(lines)
        return Ending(
            records=found.total(),
            missing=len(expected - found.keys()),
            doubled=found.total() - len(found),
            foreign=len(found.keys() - expected),
            jobs=Counter(str(job.state) for job in self.jobs()),
            held=tuple(map(repr, self.delivery.leftovers())),
            dead=self.path.dead(),
        )

    def jobs(self) -> list[Job]:
        """Return the connector's jobs."""
        return list(self.delivery.runtime.ledger.jobs.list(self.delivery.connector_name))

    def items(self) -> list[ExtentItem]:
        """Return the extents of the connector's jobs that are in the ledger."""
        ledger = self.delivery.runtime.ledger
        return [item for job in self.jobs() for item in ledger.extents.list(job.id)]

    def receipts(self) -> list[dict[str, Any]]:
        """Return the receipts of the connector's extents in the worker's log, in order."""
        ours = {job.id for job in self.jobs()}
        return [line for line in self.path.log("worker") if line.get("job") in ours]


def put_version(delivery: Delivery, label: str, body: bytes) -> Upload:
    """Put an object of a delivery; return it with the id of its job."""
    key = f"{delivery.prefix}{label}"
    return put(delivery.s3, delivery.bucket, key, body, delivery.connector_name)


def announcement(upload: Upload) -> str:
    """Return the notification that S3 sends for a new object."""
    return notification(upload.version)
