"""Formats, converters and headers reach a topic through the functions, and on both engines.

All objects of `tests.support.formats` are delivered at once, each under a connector of its own, and
every record is read back and compared.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import boto3
import pytest
from pyspark import SparkContext
from tests.support.delivery import Delivery, Seen
from tests.support.eventpath import Feed, Ground
from tests.support.formats import CASES, Case, Services
from tests.support.registry import registry_double
from tests.support.spark import MARKS

from extentflow.engines import spark
from extentflow.jobs.run import JobRunner
from extentflow.model import JobState
from extentflow.wiring import open_engine
from extentflow_local.stack.servers import REGION
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

NAMES = ("AWS_ENDPOINT_URL_GLUE", "AWS_ENDPOINT_URL_SECRETS_MANAGER")
WAYS = [
    "inline",
    pytest.param("functions", marks=pytest.mark.variant),
    pytest.param("spark", marks=[pytest.mark.variant, *MARKS]),
]


@dataclass(frozen=True)
class Connected:
    """A case with its connector and topics."""

    case: Case
    delivery: Delivery
    dead: str

    @classmethod
    def of(cls, case: Case, delivery: Delivery) -> "Connected":
        """Make the topics and the connector."""
        dead = delivery.make_topic("dead", partitions=1) if case.bad else ""
        letters = {"errors.deadletterqueue.topic.name": dead} if dead else {}
        delivery.connector({**case.config, **letters})
        return cls(case, delivery, dead)


@pytest.fixture(scope="module")
def services(aws: Stack) -> Iterator[Services]:
    name = f"formats-{uuid4().hex[:8]}"
    session = boto3.session.Session(region_name=REGION)
    glue = session.client("glue", endpoint_url=aws.endpoint("aws"))
    secrets = session.client("secretsmanager", endpoint_url=aws.endpoint("aws"))
    glue.create_registry(RegistryName=name)
    with registry_double() as confluent:
        found = Services(confluent, glue, name, name)
        secrets.create_secret(Name=name, SecretString=json.dumps(found.secrets))
        yield found
    glue.close()
    secrets.close()


@pytest.fixture(scope="module", params=WAYS)
def delivered(  # noqa: PLR0917 - fixtures
    request: pytest.FixtureRequest,
    ground: Ground,
    s3: "S3Client",
    bucket: str,
    aws: Stack,
    services: Services,
) -> Iterator[Mapping[str, Connected]]:
    """Every case, delivered in one of the ways."""
    cases = {name: made(services) for name, made in CASES.items()}
    environment = {name: aws.environment()[name] for name in NAMES}
    if request.param == "functions":
        with through_functions(ground, cases, environment) as found:
            yield found
        return
    ledger = f"formats-{uuid4().hex[:8]}"
    found = {
        name: Connected.of(
            case,
            Delivery(
                ground.stack, s3, bucket, f"{uuid4().hex[:8]}-{place}", {"ledger_table": ledger}
            ),
        )
        for place, (name, case) in enumerate(cases.items())
    }
    run_on(request.param, found, environment)
    yield found


@contextmanager
def through_functions(
    ground: Ground, cases: Mapping[str, Case], environment: Mapping[str, str]
) -> Iterator[Mapping[str, Connected]]:
    """Deliver by notifications, from the planner function to the worker function."""
    with ground.open(environment=environment) as path:
        found = {
            name: Connected.of(case, path.delivery(f"feed-{uuid4().hex[:8]}"))
            for name, case in cases.items()
        }
        feeds = [Feed(path, one.delivery) for one in found.values()]
        uploads = [
            feed.upload(case.label, case.body)
            for feed, case in zip(feeds, cases.values(), strict=True)
        ]
        for feed, upload in zip(feeds, uploads, strict=True):
            feed.await_state(upload, JobState.DONE, JobState.FAILED)
        yield found


def run_on(engine: str, found: Mapping[str, Connected], environment: Mapping[str, str]) -> None:
    """Deliver by one run of an engine, whose workers have these variables."""
    runtime = next(iter(found.values())).delivery.runtime
    with pytest.MonkeyPatch.context() as patch:
        for name, text in environment.items():
            patch.setenv(name, text)
        inherited = {
            f"spark.executorEnv.{variable}": text for variable, text in environment.items()
        }
        patch.setattr(spark, "LOCAL", {**spark.LOCAL, **inherited})
        driver = JobRunner(
            "test", open_engine(runtime, engine, cores=2), runtime.planner(), runtime.ledger, Seen()
        )
        requests = []
        for one in found.values():
            one.delivery.put(one.case.label, one.case.body)
            config, revision = runtime.connectors.latest(one.delivery.connector_name)
            (version,) = one.delivery._versions([])
            requests.append(runtime.requests.make(config, revision, version, 2))
        report = driver.deliver(iter(requests))
        if engine == "spark":
            SparkContext.getOrCreate().stop()
    assert report.ok, report


@pytest.mark.parametrize("name", CASES)
def test_every_record_arrives_once_with_its_key_value_and_headers(
    delivered: Mapping[str, Connected], name: str
) -> None:
    case, delivery, dead = delivered[name].case, delivered[name].delivery, delivered[name].dead
    ledger = delivery.runtime.ledger

    (job,) = ledger.jobs.list(delivery.connector_name)

    assert job.state is JobState.DONE, job
    found = [case.read(record) for record in delivery.read()]
    assert sorted(found, key=repr) == sorted(case.truth, key=repr)
    letters = delivery.read(dead) if dead else []
    assert sorted(letter.value or b"" for letter in letters) == sorted(case.bad)
    assert (job.plan.count > 1) is case.is_cut
    items = list(ledger.extents.list(job.id))
    assert sum(item.records for item in items) == len(case.truth)
    assert [item for item in items if item.claim is not None] == []
