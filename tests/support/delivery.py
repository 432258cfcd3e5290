"""Deliveries on real servers: put objects, make topic and connector, run, read, find leftovers."""

import json
import math
import os
import signal
import subprocess
import sysconfig
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic
from tests.support.waiting import AWAITED_SECONDS, eventually

from extentflow.config.parsing import parse
from extentflow.config.worker import WorkerSettings, variable
from extentflow.discovery import Arrival, Dialect
from extentflow.engines import Engine, RunListener, Task
from extentflow.jobs.run import JobRunner, RunReport
from extentflow.kafka import ProducerSettings
from extentflow.kafka.reading import ConsumedRecord, read_committed
from extentflow.ledger import ExtentItem, SlotItem
from extentflow.model import Extent, Job, ObjectVersion, Receipt
from extentflow.wiring import Runtime, open_engine
from extentflow.wiring.functions import QUEUES, open_arrival_handler
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

PROGRAM = Path(sysconfig.get_path("scripts")) / "extentflow"
LEASE_SECONDS = 3.0
# For slots that tests drive without a worker's retries: no end of a transaction is slow for them.
PATIENT = ProducerSettings({"retry.backoff.ms": "5000"})


@dataclass
class Seen:
    """A listener that collects receipts and calls `react` for each."""

    react: Callable[[Receipt], None] = lambda _receipt: None
    receipts: list[Receipt] = field(default_factory=list)

    def on_extent(self, extent: Extent) -> None:
        """Ignore it."""

    def on_receipt(self, receipt: Receipt) -> None:
        self.receipts.append(receipt)
        self.react(receipt)


@dataclass
class Counted:
    """An engine that records its tasks."""

    engine: Engine
    tasks: list[Task] = field(default_factory=list)

    @property
    def cores(self) -> int:
        return self.engine.cores

    def run(self, tasks: Sequence[Task], watch: RunListener) -> None:
        self.tasks += tasks
        self.engine.run(tasks, watch)

    def stop(self) -> None:
        self.engine.stop()

    def close(self) -> None:
        self.engine.close()


@dataclass
class Delivery:
    """Objects below one prefix, one topic, one connector, one ledger table; all of it unique."""

    stack: Stack
    s3: "S3Client"
    bucket: str
    name: str
    changes: dict[str, Any] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        return f"{self.name}/"

    @property
    def connector_name(self) -> str:
        return f"connector-{self.name}"

    @property
    def address(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    @cached_property
    def settings(self) -> WorkerSettings:
        """Short leases and small transactions, overridden by `changes`."""
        usual: dict[str, Any] = {
            "bootstrap_servers": self.stack.endpoint("kafka"),
            "exactly_once_slots": 16,
            "lease_seconds": LEASE_SECONDS,
            "transaction_max_bytes": 64 << 10,
            "transaction_max_seconds": 2.0,
            "transaction_timeout_ms": 10_000,
            "retry_timeout_seconds": 30.0,
        }
        if not self.changes.get("ledger_url"):
            usual["ledger_table"] = f"delivery-{self.name}"
            usual["ledger_endpoint"] = self.stack.endpoint("dynamodb")
        return WorkerSettings(**{**usual, **self.changes})

    @property
    def environment(self) -> dict[str, str]:
        """What an `extentflow` process needs."""
        ours = {variable(name): value for name, value in self.settings.to_map().items()}
        return {**os.environ, **ours}

    @cached_property
    def runtime(self) -> Runtime:
        runtime = Runtime(self.settings)
        runtime.ledger.admin.create()
        runtime.broker.ensure_progress_topic()
        return runtime

    @cached_property
    def topic(self) -> str:
        return self.make_topic("records")

    def make_topic(self, label: str, partitions: int = 4) -> str:
        name = f"{label}-{self.name}"
        admin = self._admin()
        created = admin.create_topics([NewTopic(name, partitions)])[name]
        created.result(timeout=60)
        return name

    def make_queues(self, sqs: "SQSClient") -> None:
        """Create its own queues; call it before `settings` is read."""
        for setting in QUEUES:
            name = f"{self.name}-{setting.replace('_', '-')}"
            self.changes[setting] = sqs.create_queue(QueueName=name)["QueueUrl"]

    def put(self, label: str, body: bytes) -> str:
        """Store an object; return its key."""
        key = f"{self.prefix}{label}"
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=body)
        return key

    def arrive(self, label: str, body: bytes) -> None:
        """Store an object and plan it, as the planner function does."""
        key = self.put(label, body)
        open_arrival_handler(Runtime(self.settings)).receive(
            Arrival(bucket=self.bucket, key=key, dialect=Dialect.COMMAND)
        )

    def connector(self, config: Mapping[str, str]) -> None:
        """Store the connector: from the prefix (or a directory) to the topic."""
        usual = {"name": self.connector_name, "topic": self.topic}
        if config.get("endpoint.type") != "localfile":
            usual |= {
                "aws.s3.bucket.name": self.bucket,
                "aws.s3.prefix": self.prefix,
                "aws.s3.endpoint": self.stack.endpoint("s3"),
            }
        whole = {**usual, **config}
        parse(whole)
        self.runtime.ledger.connectors.put(self.connector_name, whole)

    # -- running --------------------------------------------------------------------------------

    def run(
        self,
        name: str = "inline",
        *,
        keys: Iterable[str] = (),
        cores: int = 2,
        again: bool = False,
        watch: RunListener | None = None,
        engine: Engine | None = None,
    ) -> RunReport:
        """Deliver what is below the prefix (or `keys`) from this process."""
        driver = self.driver(engine or open_engine(self.runtime, name, cores=cores), watch)
        config, revision = self.runtime.connectors.latest(self.connector_name)
        versions = self._versions(list(keys))
        requests = (self.runtime.requests.make(config, revision, each, cores) for each in versions)
        return driver.deliver(requests, again=math.inf if again else None)

    def driver(self, engine: Engine, watch: RunListener | None = None) -> JobRunner:
        return JobRunner(
            "test", engine, self.runtime.planner(), self.runtime.ledger, watch or Seen()
        )

    def _versions(self, keys: list[str]) -> list[ObjectVersion]:
        config, revision = self.runtime.connectors.latest(self.connector_name)
        store = self.runtime.objects.store(config, revision)
        keys = keys or [listed.key for listed in store.list(config.bucket, config.prefix)]
        return [store.head(config.bucket, key) for key in keys]

    def start(
        self,
        engine: str | None,
        *arguments: str,
        output: int | IO[str] = subprocess.PIPE,
        errors: IO[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start `extentflow run` (or `arguments`) as shells do: in a process group of its own.

        `engine` None: a command that takes none. Errors go to `output`, unless `errors` is given.
        `environment` goes over what every `extentflow` process is given.
        """
        words = arguments or ("run", self.address, "--connector", self.connector_name)
        on = () if engine is None else ("--engine", engine, "--cores", "2")
        process = subprocess.Popen(
            [str(PROGRAM), *words, "--json", *on],
            env={**self.environment, **(environment or {})},
            stdout=output,
            stderr=output if errors is None else errors,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def finish(self, engine: str, address: str | None = None) -> dict[str, Any]:
        """Run everything below the prefix (or `address`) as a process, to the end."""
        connector = ("--connector", self.connector_name)
        with self.start(engine, "run", address or self.address, *connector) as process:
            output, errors = process.communicate(timeout=AWAITED_SECONDS)
        assert process.returncode == 0, errors
        return dict(json.loads(output))

    def kill_started(self) -> None:
        """Kill the processes that a failed test left running, with their workers."""
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

    # -- afterwards -----------------------------------------------------------------------------

    def read(self, topic: str | None = None) -> list[ConsumedRecord]:
        """Return the committed records of a topic, in order within each partition."""
        topic = topic or self.topic
        kafka = {"bootstrap.servers": self.settings.bootstrap_servers}
        eventually(f"no transaction is open in {topic}", lambda: self._is_stable(topic))
        return [record for batch in read_committed(kafka, topic) for record in batch]

    def values(self, topic: str | None = None) -> list[bytes]:
        """Return the committed values of a topic, in order within each partition."""
        return [record.value or b"" for record in self.read(topic)]

    def values_by_key(self) -> dict[str, list[bytes]]:
        """Return the values of each key (with `message.key=object`: of each object), in order."""
        found: dict[str, list[bytes]] = defaultdict(list)
        for record in self.read():
            found[(record.key or b"").decode()].append(record.value or b"")
        return found

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.settings.bootstrap_servers, "log_level": 0})

    def _is_stable(self, topic: str) -> bool:
        return is_stable(self._admin(), topic)

    def jobs(self) -> list[Job]:
        return list(self.runtime.ledger.jobs.list())

    def slots(self) -> list[SlotItem]:
        return list(self.runtime.ledger.slots.list(self.runtime.broker.cluster))

    def items(self) -> list[ExtentItem]:
        return [item for job in self.jobs() for item in self.runtime.ledger.extents.list(job.id)]

    def claims(self) -> list[ExtentItem]:
        """Return the claimed extents."""
        return [item for item in self.items() if item.claim is not None]

    def under_way(self) -> bool:
        """Return whether some records are committed and an extent is claimed."""
        items = self.items()
        return any(item.position > 0 for item in items) and any(item.claim for item in items)

    def half_done(self) -> list[ExtentItem]:
        """Return the claimed extents of which a part is committed."""
        return [item for item in self.claims() if item.position > 0]

    def leftovers(self) -> list[object]:
        """Return extents with a claim and slots that work on something; both block later runs."""
        return [*self.claims(), *(slot for slot in self.slots() if slot.working is not None)]

    def owned(self) -> list[SlotItem]:
        """Return the slots with an owner: others cannot acquire them before their leases end."""
        return [slot for slot in self.slots() if slot.owner]

    def live(self) -> list[SlotItem]:
        """Return the slots whose leases have not ended."""
        return [slot for slot in self.owned() if slot.until > time.time()]


def is_stable(admin: AdminClient, topic: str) -> bool:
    """Whether consumers of committed records may read to the end.

    Not yet where a transaction is open, nor where the broker has still to mark one that was
    committed: it answers before it has written the marks, and does so later on a busy machine.
    """
    partitions = admin.list_topics(topic, timeout=60).topics[topic].partitions
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    wanted = {TopicPartition(topic, number): latest for number in partitions}
    try:
        ends = [
            {place: future.result().offset for place, future in asked.items()}
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
            for asked in [admin.list_offsets(wanted, isolation_level=level, request_timeout=60)]
        ]
    except KafkaException:  # a broker that was paused may have an older leader epoch
        return False
    return ends[0] == ends[1]


def numbered_lines(label: str, count: int) -> list[bytes]:
    """Return lines that no other label and no other line has."""
    return [f"{label}{number}".encode() for number in range(count)]


def joined(lines: Iterable[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def parsed(values: Iterable[bytes]) -> list[Any]:
    """Return JSON values, in an order that does not depend on how they arrived."""
    return sorted((json.loads(value) for value in values), key=json.dumps)


SLOW_LINES = numbered_lines("line-", 60_000)
