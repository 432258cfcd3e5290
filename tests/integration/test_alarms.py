"""A deployment that cannot deliver rings within ten minutes of its first upload.

The template's functions run and write their metrics; the template's alarms are evaluated over them:

    invocation k of the only message   at k * (queue's visibility timeout + its duration)
    reconciler                         every five minutes
    upload                             anywhere in a period
"""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin._resource import ResourceType
from infra.config import Auth, Cluster
from infra.stages import STAGES
from tests.support.alarms import (
    LAMBDA,
    Alarm,
    Point,
    alarms,
    emitted,
    first_alarm,
    metric_lines,
)
from tests.support.delivery import joined, numbered_lines
from tests.support.eventpath import EventPath, Ground
from tests.support.secured import PASSWORD, Secured, secured_stack
from tests.support.waiting import eventually

from extentflow.config.worker import variable
from extentflow.model import JobState
from extentflow_local.stack.servers.dynamodb import DynamoDbLocal
from extentflow_local.stack.servers.s3 import SeaweedS3

TEN_MINUTES = 600.0
RECONCILED_SECONDS = 300.0
PHASES = range(0, 300, 23)
# The template's value; the tests wait for an unavailable broker for a shorter time.
RETRY_SECONDS, QUICK_SECONDS = 20.0, 1.0
QUICK = {"retry.timeout.seconds": f"{QUICK_SECONDS:g}", "extent.attempts.max": "3"}
LINES = numbered_lines("line-", 10)
VISIBILITY = "VisibilityTimeout"


@dataclass(frozen=True)
class Deployed:
    """The synthesised template: its alarms, and the time after which messages return."""

    alarms: list[Alarm]
    hidden_seconds: float
    functions: Mapping[str, str]  # service -> logical id

    @classmethod
    def read(cls, template: Path) -> "Deployed":
        whole = json.loads(template.read_text())
        resources = whole["Resources"].values()
        hidden = {
            one["Properties"][VISIBILITY]
            for one in resources
            if VISIBILITY in one.get("Properties", {})
        }
        return cls(list(alarms(whole)), max(hidden), dict(_functions(whole)))

    def points(self, path: EventPath, function: str, *, every: float | None = None) -> list[Point]:
        """Return what a function's invocations wrote, and what Lambda counts, as deployed.

        `every`: seconds between scheduled invocations; None: a message returned each time.
        """
        outcomes = [one for one in path.seen.deliveries if one.function == function]
        lines = metric_lines(path.output(function)) if outcomes else []
        found: list[Point] = []
        at = 0.0
        for number, delivery in enumerate(outcomes):
            seconds = delivery.outcome.seconds + RETRY_SECONDS - QUICK_SECONDS
            ended = at + seconds
            if number < len(lines):
                found += emitted(lines[number], ended)
            failed = float(not delivery.outcome.ok)
            found.append(Point(LAMBDA, "Errors", self.functions[function], ended, failed))
            at = at + every if every is not None else ended + self.hidden_seconds
        return found

    def rings(self, points: list[Point]) -> list[tuple[float, str] | None]:
        """Return when the first alarm rings after the upload, for every phase of the upload."""
        found = []
        for phase in PHASES:
            moved = [replace(point, at=point.at + phase) for point in points]
            rung = first_alarm(self.alarms, moved, until=phase + TEN_MINUTES)
            found.append(rung and (rung[0] - phase, rung[1]))
        return found


def _functions(template: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, resource in template["Resources"].items():
        if resource["Type"] == "AWS::Lambda::Function":
            variables = resource["Properties"].get("Environment", {}).get("Variables", {})
            if service := variables.get("POWERTOOLS_SERVICE_NAME"):
                yield service, name


@pytest.fixture(scope="module")
def deployed(ground: Ground) -> Deployed:
    return Deployed.read(ground.template)


@contextmanager
def unreachable() -> Iterator[str]:
    """An address that answers no connection, as a security group that drops packets."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        servers = f"127.0.0.1:{listener.getsockname()[1]}"
        with socket.create_connection(listener.getsockname()):  # its backlog is full now
            yield servers


def in_vain(path: EventPath, function: str, times: int) -> None:
    """Wait until a function returned a message so often."""

    def returned() -> bool:
        seen = [one for one in path.seen.deliveries if one.function == function]
        return len([one for one in seen if one.failed or not one.outcome.ok]) >= times

    eventually(f"{function} returned its message {times} times", returned)


def upload(path: EventPath) -> None:
    """Upload the first object."""
    path.feed_by_admin().upload("first.txt", joined(LINES))


@pytest.mark.outage
def test_a_wrong_security_group_rings_within_ten_minutes(
    ground: Ground, deployed: Deployed
) -> None:
    with unreachable() as servers:
        around = {"EXTENTFLOW_BOOTSTRAP_SERVERS": servers}
        with ground.open(settings=QUICK, environment=around, most_hidden_seconds=1) as path:
            upload(path)
            in_vain(path, "planner", 4)
            path.source.trigger("reconciler")
            path.source.trigger("reconciler")
            planner = deployed.points(path, "planner")
            reconciler = deployed.points(path, "reconciler", every=RECONCILED_SECONDS)

    assert any(point.metric == "MessagesReturned" and point.value for point in planner)
    # Without the reconciler too, whose failures ring by themselves.
    for points in (planner, [*planner, *reconciler]):
        rung = deployed.rings(points)
        assert all(rung), rung


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_stack(tmp_path_factory.mktemp("denied"), SeaweedS3(), DynamoDbLocal()) as opened:
        yield opened


OURS = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)


def prefix_of(kind: ResourceType) -> str:
    """Return what the names of our resources of a kind begin with."""
    return "extentflow." if kind is ResourceType.TOPIC else f"{STAGES[0].app_id}."


@pytest.mark.secured
@pytest.mark.parametrize(
    ("missing", "records"),
    [
        (None, False),  # on the connector's topic
        pytest.param(ResourceType.TRANSACTIONAL_ID, True, marks=pytest.mark.soak),
        pytest.param(ResourceType.GROUP, True, marks=pytest.mark.soak),
        pytest.param(ResourceType.TOPIC, True, marks=pytest.mark.soak),  # on the progress topic
    ],
    ids=["records", "transactional-id", "group", "progress"],
)
def test_a_missing_right_on_the_brokers_rings_within_ten_minutes(
    ground: Ground,
    deployed: Deployed,
    secured: Secured,
    unique: str,
    missing: ResourceType | None,
    *,
    records: bool,
) -> None:
    user = secured.user(f"user-{unique}")
    for kind in OURS:
        if kind is not missing:
            secured.allow(user, kind, prefix_of(kind))
    if records:
        secured.allow(user, ResourceType.TOPIC, "records-")
    with denied(ground, secured, user) as path:
        upload(path)
        eventually("an alarm rings", lambda: all(deployed.rings(written(deployed, path))))
        found = deployed.rings(written(deployed, path))

    assert all(found), found


@pytest.mark.secured
def test_a_deployment_with_all_rights_rings_nothing(
    ground: Ground, deployed: Deployed, secured: Secured, unique: str
) -> None:
    user = secured.user(f"user-{unique}")
    for kind in OURS:
        secured.allow(user, kind, prefix_of(kind))
    secured.allow(user, ResourceType.TOPIC, "records-")
    with denied(ground, secured, user) as path:
        feed = path.feed_by_admin()
        feed.await_state(feed.upload("first.txt", joined(LINES)), JobState.DONE)
        path.source.trigger("reconciler")
        points = written(deployed, path)

    assert {point.metric for point in points} >= {"Records", "OldestOpenJobSeconds"}
    assert deployed.rings(points) == [None for _ in PHASES]


@contextmanager
def denied(ground: Ground, secured: Secured, user: str) -> Iterator[EventPath]:
    """Run the functions as a user of the secured broker."""
    cluster = Cluster(bootstrap_servers=secured.servers, auth=Auth.NONE)
    kafka = {
        **cluster.client_settings(),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": user,
        "kafka.sasl.password": "${env:BROKER_PASSWORD}",
        "kafka.ssl.ca.location": str(secured.certificate),
    }
    environment = {variable(key): value for key, value in kafka.items()}
    environment["BROKER_PASSWORD"] = PASSWORD
    with replace(ground, stack=secured.stack).open(
        settings=QUICK, environment=environment, most_hidden_seconds=1
    ) as path:
        yield path


def written(deployed: Deployed, path: EventPath) -> list[Point]:
    """Return the metrics of all functions of a path."""
    return [
        *deployed.points(path, "planner"),
        *deployed.points(path, "worker"),
        *deployed.points(path, "reconciler", every=RECONCILED_SECONDS),
    ]
