"""The event path on this machine, as `extentflow serve` runs it, with names for one run."""

import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import boto3

from demo.rig import CommandError, Rig, bring_up
from extentflow.model import ObjectVersion, job_id
from extentflow_local.aws.event_path import LocalEventPath
from extentflow_local.aws.event_source import uploads as announcing
from extentflow_local.aws.event_source.deployment import Deployment
from extentflow_local.aws.project import Project
from extentflow_local.stack.servers.dynamodb import DynamoDbLocal
from extentflow_local.stack.servers.kafka import Kafka
from extentflow_local.stack.servers.s3 import SeaweedS3
from extentflow_local.stack.servers.sqs import ElasticMq
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

PROJECT = Path(__file__).parents[1]
PROCESSES = 2
PATIENCE_SECONDS = 300.0
MOST_JOBS = 100_000
# Queues belong to one run, so nothing needs to outlive the server.
SERVICES = (Kafka(), SeaweedS3(), DynamoDbLocal(), ElasticMq(durable=False))


class OverdueError(CommandError):
    """A condition was not met in time."""


@dataclass(frozen=True, slots=True)
class Upload:
    """One object version, and its job."""

    version: ObjectVersion
    job: str


@dataclass(frozen=True, slots=True)
class EventPath:
    """A running event path. `deployment` is the template's, with names for this run."""

    rig: Rig
    deployment: Deployment
    bucket: str
    s3: "S3Client"
    sqs: "SQSClient"

    def upload(self, key: str, body: bytes, connector: str) -> Upload:
        """Put an object; return its job of `connector`."""
        return put(self.s3, self.bucket, key, body, connector)

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Return the jobs of `extentflow status`, by id."""
        output = self.rig.extentflow("status", "--json", "--limit", str(MOST_JOBS), quiet=True)
        return {one["job"]: one for one in json.loads(output)["jobs"]}

    def await_jobs(self, uploads: Collection[Upload], states: Collection[str]) -> None:
        """Wait until the uploads' jobs are all in one of `states`."""
        wanted = {one.job for one in uploads}

        def arrived() -> bool:
            jobs = self.jobs()
            return all(job in jobs and jobs[job]["state"] in states for job in wanted)

        await_that(f"{len(wanted)} jobs are {' or '.join(states)}", arrived)

    def in_dead_letter_queues(self) -> int:
        """Count the dead letters."""
        urls = (self.deployment.outputs[name] for name in ("ArrivalsDlqUrl", "ExtentsDlqUrl"))
        return sum(map(self._depth, urls))

    def waiting(self) -> int:
        """Count the messages that wait or are in work."""
        urls = (self.deployment.outputs[name] for name in ("ArrivalsQueueUrl", "ExtentsQueueUrl"))
        return sum(map(self._depth, urls))

    def is_drained(self) -> bool:
        """Return whether all queues are empty."""
        return self.waiting() == 0

    def replay(self, *arguments: str) -> list[dict[str, str]]:
        """Run `extentflow redrive`; return the messages that it moved, or would move."""
        output = self.rig.extentflow("redrive", *arguments, "--json", quiet=True)
        moved: list[dict[str, str]] = json.loads(output)["moved"]
        return moved

    def _depth(self, url: str) -> int:
        found = self.sqs.get_queue_attributes(
            QueueUrl=url,
            AttributeNames=[
                "ApproximateNumberOfMessages",
                "ApproximateNumberOfMessagesNotVisible",
            ],
        )
        return sum(int(count) for count in found["Attributes"].values())


def put(s3: "S3Client", bucket: str, key: str, body: bytes, connector: str) -> Upload:
    """Put an object; return its job of `connector`."""
    answer = s3.put_object(Bucket=bucket, Key=key, Body=body)
    version = ObjectVersion(
        bucket=bucket,
        key=key,
        version_id=answer.get("VersionId"),
        etag=answer["ETag"].strip('"'),
        size=len(body),
    )
    return Upload(version, job_id(connector, version))


@contextmanager
def event_path(
    root: Path,
    run: str,
    notify: Callable[[str], None],
    *,
    around: Mapping[str, str] = MappingProxyType({}),
    uploads: bool = False,
    workers: bool = True,
) -> Iterator[EventPath]:
    """Start stack and event path; stop the event path at the end, process by process.

    Functions and commands have `around` in their environment, which overrides the stack's. With
    `uploads` the S3 server sends notifications. Without `workers` no function consumes extents.
    """
    work = root / "var" / "demo" / "events"
    stack = Stack(root, services=SERVICES, notify=notify)
    began = bring_up(stack)
    try:
        local = LocalEventPath(
            stack=stack,
            project=Project(PROJECT),
            template=synthesise(work / "cdk.out"),
            directory=work / run,
            prefix=f"events-{run}-",
            environment=around,
            processes=PROCESSES,
            change=lambda found: found if workers else found.without_mapping("worker"),
        )
        rig = Rig(root, {**os.environ, **stack.environment(), **around, **local.settings})
        rig.extentflow("init", quiet=True)
        notify(f"the functions write their logs to {local.directory.relative_to(root)}")
        session = boto3.session.Session(
            aws_access_key_id=rig.environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=rig.environment["AWS_SECRET_ACCESS_KEY"],
            region_name=rig.environment["AWS_REGION"],
        )
        s3 = session.client("s3", endpoint_url=rig.s3_endpoint)
        sqs = session.client("sqs", endpoint_url=stack.endpoint("sqs"))
        bucket = f"events-{run}"
        s3.create_bucket(Bucket=bucket)
        with local.run(uploads=uploads, buckets=[bucket]):
            yield EventPath(rig, local.deployment, bucket, s3, sqs)
    finally:
        if began["sqs"] == "started":  # in memory; `extentflow up` starts a durable one
            stack.down(["sqs"])


def synthesise(folder: Path) -> Path:
    """Run app.py, offline; return the template."""
    return Project(PROJECT).synthesise(folder)


def notification(version: ObjectVersion) -> str:
    """Return S3's notification of a new object."""
    return announcing.notification(announcing.Upload(version, None, time.time_ns()))


def await_that(what: str, holds: Callable[[], bool]) -> None:
    """Wait until a condition is true.

    Raises:
        OverdueError: it takes too long.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise OverdueError(f"not within {PATIENCE_SECONDS:g} s: {what}")
        time.sleep(0.2)
