"""One scene in which the deployed functions make every AWS call that they may make.

    provider    stores connectors                 receiver    takes a notification over HTTP
    planner     plans, dead-letters, meets deleted objects, publishes failed jobs
    worker      delivers, hands back, sends on in order, waits, dead-letters, is replayed
    reconciler  lists, resumes, sends again, closes, frees slots, publishes

Objects lie in a bucket without versions, in one with versions, and in another store, which is read
in a connector's own role, and with keys that a secret holds. Some are encrypted with keys of a
secret, and are written by schemas in AWS Glue.
"""

import hashlib
import json
import os
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
import pyarrow.parquet.encryption as pe
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from infra.config import Auth, Bucket, Cluster, Network, Receiver, Stage, Subnet, Unmatched
from tests.laws.parquet_cases import written
from tests.support.delivery import PATIENT, joined, numbered_lines
from tests.support.deployed import synthesised
from tests.support.parquet_keys import Wrapping, text_of
from tests.support.past import registered_ago
from tests.support.waiting import eventually

from extentflow.config.worker import load
from extentflow.discovery import Arrival, Dialect
from extentflow.discovery.report import Report
from extentflow.ledger import Claim, ConnectorState
from extentflow.model import Job, JobState, ObjectVersion, job_id
from extentflow.queue.consumer import PAUSED_RECEIVES
from extentflow.queue.dispatch import ExtentDispatcher
from extentflow.queue.redrive import redrive
from extentflow.queue.sqs_queue import SqsQueue
from extentflow.retry import Clock
from extentflow.testing.services import MemoryQueue
from extentflow.wiring import Runtime
from extentflow.wiring.functions import dispatch
from extentflow_local.aws.event_source.deployment import Deployment
from extentflow_local.aws.event_source.names import Names, TemplateContext
from extentflow_local.aws.event_source.place import Place
from extentflow_local.aws.event_source.source import EventSource
from extentflow_local.aws.event_source.sqs_events import event_of
from extentflow_local.aws.event_source.template import read_document
from extentflow_local.stack.servers import REGION

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs.type_defs import MessageTypeDef

PROJECT = Path(__file__).parents[2]
CORE = PROJECT / "layers" / "core" / "python"
RECORDING = PROJECT / "tests" / "support" / "recording"
SECRET_PATH = "of-the-grid-only"
ROLE = "arn:aws:iam::444455556666:role/reader"
KEY = f"arn:aws:kms:{REGION}:111122223333:key/11112222-3333-4444-5555-666677778888"
CLUSTER = f"arn:aws:kafka:{REGION}:111122223333:cluster/events/11112222-3333-4444-5555-6-2"
LEASE_SECONDS = 2.0
LONG_AGO_SECONDS = 10_000.0
# The worker's margin: every extent is handed back after its first chunk.
HURRIED_SECONDS = 25
MASTERS = {"files": b"a master key of ".ljust(16)}
FEW = joined(numbered_lines("line-", 10))
MANY = joined(numbered_lines("line-", 8_000))
# What the template says of MSK, and is otherwise here.
ELSEWHERE = {
    "EXTENTFLOW_KAFKA_SECURITY_PROTOCOL": None,
    "EXTENTFLOW_KAFKA_SASL_MECHANISM": None,
    "EXTENTFLOW_LEASE_SECONDS": f"{LEASE_SECONDS:g}",
}


@dataclass
class Scene:
    """A stage around real servers. `servers` are their variables, `moto` stands in for AWS.

    `name` is unique; `root` holds connectors, logs, the template and recorded calls.
    """

    name: str
    root: Path
    sqs: str
    servers: Mapping[str, str]
    moto: str

    # -- the stage ------------------------------------------------------------------------------

    @property
    def landing(self) -> str:
        return f"landing-{self.name}"

    @property
    def kept(self) -> str:
        return f"kept-{self.name}"

    @property
    def theirs(self) -> str:
        return f"theirs-{self.name}"

    @property
    def topic(self) -> str:
        return f"records-{self.name}"

    @property
    def registry(self) -> str:
        """The registry of schemas."""
        return f"schemas-{self.name}"

    @property
    def missing_topic(self) -> str:
        return f"orphans-{self.name}"

    @cached_property
    def stage(self) -> Stage:
        subnet = Subnet(
            id="subnet-00000001", availability_zone=f"{REGION}a", route_table_id="rtb-00000001"
        )
        network = Network(
            vpc_id="vpc-0a1b2c3d",
            subnets=(subnet,),
            cluster_security_group_id="sg-0a1b2c3d",
            endpoints=("s3", "dynamodb", "sqs", "events", "sts", "secretsmanager", "glue"),
            reaches=("127.0.0.1",),
            vpc_cidrs=("10.0.0.0/16",),
        )
        return Stage(
            name="scene",
            region=REGION,
            app_id="extentflow-scene",
            unmatched=Unmatched.DEAD_LETTER,
            buckets=(Bucket(name=self.landing, kms_key_arn=KEY), Bucket(name=self.kept)),
            cluster=Cluster(bootstrap_servers="b-1.msk:9098", auth=Auth.IAM, arn=CLUSTER),
            network=network,
            receiver=Receiver(secret_arn=self.secret),
            event_bus=f"ends-{self.name}",
        )

    @cached_property
    def secret(self) -> str:
        return self._secret("sources", [{"endpoint": self.moto, "secret_path": SECRET_PATH}])

    def _secret(self, label: str, content: object) -> str:
        """Keep a secret; return its ARN. A text is the whole secret."""
        client = boto3.client("secretsmanager", endpoint_url=self.moto)
        text = content if isinstance(content, str) else json.dumps(content)
        made = client.create_secret(Name=self._named(label), SecretString=text)
        return made["ARN"]

    def _named(self, label: str) -> str:
        return f"{label}-of-{self.name}"

    @property
    def connectors(self) -> dict[str, dict[str, str]]:
        """What the stage declares: each connector reads what begins with its name."""
        usual = {"aws.s3.bucket.name": self.landing, "topic": self.topic, "input.format": "text"}
        configs: dict[str, dict[str, str]] = {
            "lines": {},
            "parquet": {"input.format": "parquet"},
            "ordered": {"ordering": "object", "extent.bytes": "64KiB"},
            "orphans": {"topic": self.missing_topic},
            "waiting": {},
            "versions": {"aws.s3.bucket.name": self.kept},
            "orphaned-versions": {"aws.s3.bucket.name": self.kept, "topic": self.missing_topic},
            "empty": {"aws.s3.bucket.name": self.kept},
            "sealed": {
                "input.format": "parquet",
                "parquet.encryption.key.list": f"${{secretsmanager:{self._named('files')}}}",
                "value.converter": "protobuf",
                "value.converter.schema.registry.type": "glue",
                "value.converter.registry.name": self.registry,
            },
            "theirs": {
                "aws.s3.bucket.name": self.theirs,
                "aws.s3.endpoint": self.moto,
                "aws.sts.role.arn": ROLE,
            },
            "shared": {
                "aws.s3.bucket.name": self.theirs,
                "aws.s3.endpoint": self.moto,
                "aws.access.key.id": f"${{secretsmanager:{self._named('keys')}:id}}",
                "aws.secret.access.key": f"${{secretsmanager:{self._named('keys')}:secret}}",
            },
        }
        return {
            name: {"name": name, "aws.s3.prefix": f"{name}/", **usual, **config}
            for name, config in configs.items()
        }

    @cached_property
    def template(self) -> dict[str, Any]:
        folder = self.root / "connectors"
        folder.mkdir()
        for name, config in self.connectors.items():
            lines = (f"{key}: {value}\n" for key, value in config.items())
            (folder / f"{name}.yaml").write_text("".join(lines))
        found: dict[str, Any] = json.loads(synthesised(self.stage, self.root).read_text())
        return found

    @cached_property
    def around(self) -> TemplateContext:
        environment = {
            **self.servers,
            **ELSEWHERE,
            "AWS_ENDPOINT_URL_EVENTBRIDGE": self.moto,
            "AWS_ENDPOINT_URL_GLUE": self.moto,
            "AWS_ENDPOINT_URL_SECRETS_MANAGER": self.moto,
            "AWS_ENDPOINT_URL_STS": self.moto,
            "RECORDED_CALLS": str(self.calls),
        }
        return TemplateContext(sqs=self.sqs, prefix=f"{self.name}-", environment=environment)

    @property
    def names(self) -> Names:
        """What the template's names stand for."""
        return Names(self.template, self.around)

    @cached_property
    def deployment(self) -> Deployment:
        return read_document(self.template, self.around)

    @cached_property
    def calls(self) -> Path:
        """Where calls are written down."""
        folder = self.root / "calls"
        folder.mkdir()
        return folder

    @property
    def place_of_functions(self) -> Place:
        return self._place(PROJECT / "functions")

    def _place(self, functions: Path) -> Place:
        return Place(
            directory=self.root / "logs",
            functions=functions,
            layers=[RECORDING, CORE],
            processes=2,
            search_path=os.environ["PATH"],
        )

    # -- clients --------------------------------------------------------------------------------

    @cached_property
    def runtime(self) -> Runtime:
        """A process beside the functions, with their settings."""
        environment = self.deployment.functions["worker"].environment
        return Runtime(load(environment, read_text=lambda _path: None))

    @cached_property
    def s3(self) -> "S3Client":
        return boto3.client("s3", endpoint_url=self.servers["AWS_ENDPOINT_URL_S3"])

    @cached_property
    def their_s3(self) -> "S3Client":
        return boto3.client("s3", endpoint_url=self.moto)

    def queue(self, output: str) -> SqsQueue:
        client = boto3.client("sqs", endpoint_url=self.sqs)
        return SqsQueue(self.deployment.outputs[output], client)

    def make_topic(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.runtime.settings.bootstrap_servers})
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(timeout=60)

    # -- arranging ------------------------------------------------------------------------------

    def build(self) -> None:
        """Make what is there before the functions run, connectors by their real writer."""
        boto3.client("events", endpoint_url=self.moto).create_event_bus(Name=self.stage.event_bus)
        boto3.client("glue", endpoint_url=self.moto).create_registry(RegistryName=self.registry)
        self._secret("files", text_of(MASTERS))
        self._secret("keys", {"id": "theirs", "secret": "theirs-as-well"})
        for bucket in (self.landing, self.kept):
            self.s3.create_bucket(Bucket=bucket)
        self.s3.put_bucket_versioning(
            Bucket=self.kept, VersioningConfiguration={"Status": "Enabled"}
        )
        self.their_s3.create_bucket(Bucket=self.theirs)
        self.runtime.ledger.admin.create()
        self.runtime.broker.ensure_progress_topic()
        self.make_topic(self.topic)
        writer = self._place(PROJECT / "infra").starter(self.deployment, "provider", Clock())()
        try:
            for config in self.connectors.values():
                event = {"RequestType": "Create", "ResourceProperties": {"config": config}}
                outcome = writer.invoke(json.dumps(event).encode())
                assert outcome.ok, outcome.payload
        finally:
            writer.stop()

    def put(self, connector: str, label: str, body: bytes = FEW) -> ObjectVersion:
        """Put an object without a notification."""
        bucket, key = self.connectors[connector]["aws.s3.bucket.name"], f"{connector}/{label}"
        s3 = self.their_s3 if bucket == self.theirs else self.s3
        answer = s3.put_object(Bucket=bucket, Key=key, Body=body)
        etag, version_id = answer["ETag"].strip('"'), answer.get("VersionId")
        return ObjectVersion(bucket, key, version_id, etag, len(body))

    def put_sealed(self, label: str, *columns: str) -> ObjectVersion:
        """Put a Parquet object with these columns, whose keys a master key wraps."""
        factory = pe.CryptoFactory(lambda _: Wrapping(MASTERS))
        configured = pe.EncryptionConfiguration(footer_key="files", uniform_encryption=True)
        keys = factory.file_encryption_properties(pe.KmsConnectionConfig(), configured)
        table = pa.table({name: range(10) for name in columns})
        return self.put("sealed", label, written(table, encryption_properties=keys))

    def notify(self, *versions: ObjectVersion) -> None:
        """Announce objects on the arrivals queue."""
        arrivals = [
            Arrival(one.bucket, one.key, Dialect.COMMAND, version_id=one.version_id)
            for one in versions
        ]
        self.queue("ArrivalsQueueUrl").send([json.dumps(one.to_message()) for one in arrivals])

    def post(self, source: EventSource, version: ObjectVersion) -> int:
        """Announce an object of the other store, as that store does; return the status."""
        record = {
            "eventVersion": "2.0",
            "eventSource": "sgws:s3",
            "eventName": "ObjectCreated:Put",
            "s3": {"bucket": {"name": version.bucket}, "object": {"key": version.key}},
        }
        request = urllib.request.Request(  # noqa: S310 - http, on the loopback interface
            f"{source.url}/{SECRET_PATH}/",
            data=json.dumps({"Records": [record]}).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return int(answer.status)

    def lose(self, version: ObjectVersion) -> None:
        """Remove an object for good."""
        if version.version_id is None:
            self.s3.delete_object(Bucket=version.bucket, Key=version.key)
        else:
            self.s3.delete_object(
                Bucket=version.bucket, Key=version.key, VersionId=version.version_id
            )

    # -- what the reconciler finds --------------------------------------------------------------

    def registered(self, version: ObjectVersion) -> Job:
        """Register an object's job, as a planner did that died long ago."""
        connector = version.key.partition("/")[0]
        config, revision = self.runtime.connectors.latest(connector)
        request = self.runtime.requests.make(config, revision, version, 1)
        return registered_ago(self.runtime, request, LONG_AGO_SECONDS)

    def sent_in_vain(self, version: ObjectVersion) -> Job:
        """Plan an object whose messages are lost."""
        nowhere = MemoryQueue(time.monotonic)
        return ExtentDispatcher(self.runtime.planner(), nowhere).start(self.registered(version))

    def claimed(self, version: ObjectVersion) -> tuple[Job, Claim]:
        """Claim an object's only extent, as a worker that has a slot of its own."""
        job = self.sent_in_vain(version)
        (extent,) = self.runtime.planner().extents(job)
        self.slots = self.runtime.slots(f"worker-of-{version.key}")
        claim = self.slots.claim(extent, PATIENT)
        assert isinstance(claim, Claim)
        return job, claim

    def standing_still(self, version: ObjectVersion) -> Job:
        """Plan an object whose messages were lost long ago, as an earlier run noted."""
        job = self.sent_in_vain(version)
        facts = {
            "seen": "0:0:0",
            "claims": hashlib.sha256().hexdigest(),
            "since": repr(time.time() - LONG_AGO_SECONDS),
            "resent": "0",
            "resent_at": "0.0",
        }
        self.runtime.ledger.notes.remember(f"watch#{job.id}", facts)
        return job

    def complete_and_open(self, version: ObjectVersion) -> Job:
        """Complete an object's only extent, as a worker that died before it closed the job."""
        job, claim = self.claimed(version)
        self.slots.complete(claim, position=claim.extent.end, records=0, bad=0, filtered=0)
        self.slots.release()
        return job

    def held_by_the_dead(self, version: ObjectVersion) -> Job:
        """Claim an object's only extent, as a worker that died at once."""
        job, _ = self.claimed(version)
        self.slots.drop()
        return job

    def come_often(self, source: EventSource, version: ObjectVersion) -> None:
        """Hand the planner a message that it was handed many times already."""
        arrival = Arrival(version.bucket, version.key, Dialect.COMMAND)
        message: MessageTypeDef = {
            "MessageId": "often",
            "ReceiptHandle": "often",
            "Body": json.dumps(arrival.to_message()),
            "MD5OfBody": "",
            "Attributes": {"ApproximateReceiveCount": f"{PAUSED_RECEIVES}"},
        }
        arn = self.deployment.queue_of("planner").arn
        outcome = source.invoke("planner", event_of([message], queue_arn=arn))
        assert json.loads(outcome.payload) == {"batchItemFailures": []}

    def pause_before_delivery(self, version: ObjectVersion) -> None:
        """Pause a connector whose messages are on their way."""
        assert self.runtime.ledger.connectors.set_state("waiting", ConnectorState.PAUSED)
        dispatch(self.runtime).start(self.registered(version))

    def resume(self) -> None:
        assert self.runtime.ledger.connectors.set_state("waiting", ConnectorState.ENABLED)

    # -- acting and looking ---------------------------------------------------------------------

    def reconcile(self, source: EventSource, enough: Callable[[Report], bool]) -> None:
        """Let the reconciler run until what it did in sum is enough."""
        total = Report()

        def ran() -> bool:
            nonlocal total
            outcome = source.trigger("reconciler")
            assert outcome.ok, outcome.payload
            report = json.loads(outcome.payload)
            total += Report(**{**report, "listings_finished": tuple(report["listings_finished"])})
            return enough(total)

        try:
            eventually("the reconciler has done everything", ran)
        except AssertionError as exc:
            raise AssertionError(f"{exc}: {total}") from exc

    def replay(self) -> int:
        """Send every dead-lettered extent again; return how many."""
        return len(redrive(self.queue("ExtentsDlqUrl"), self.queue("ExtentsQueueUrl")).moved)

    def job_of(self, version: ObjectVersion) -> Job | None:
        connector = version.key.partition("/")[0]
        return self.runtime.ledger.jobs.get(job_id(connector, version))

    def state_of(self, version: ObjectVersion) -> JobState:
        job = self.job_of(version)
        assert job is not None
        return job.state

    def await_state(self, state: JobState, versions: Sequence[ObjectVersion]) -> None:
        """Wait until the objects' jobs are all in one state."""
        for version in versions:

            def arrived(version: ObjectVersion = version) -> bool:
                job = self.job_of(version)
                return job is not None and job.state is state

            eventually(f"the job of {version.uri} is {state}", arrived)
