"""Every AWS call that the real functions make, against their roles in the synthesised template.

A missing permission fails the test, and so does one that no call needs.
"""

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.deployed_calls import HURRIED_SECONDS, MANY, Scene
from tests.support.permissions import allowed, recorded, verdict
from tests.support.waiting import eventually

from extentflow.discovery.report import Report
from extentflow.model import JobState, ObjectVersion
from extentflow_local.aws.event_source.source import EventSource
from extentflow_local.stack.stack import Stack

pytestmark = pytest.mark.variant  # of the event path, whose functions other tests run

DONE, FAILED = JobState.DONE, JobState.FAILED
# Servers and synthesis included, where no other test has started them yet.
FUNCTIONS = ("receiver", "planner", "worker", "reconciler", "provider")


@pytest.fixture(scope="module")
def played(
    stack: Stack, queues: Stack, aws: Stack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """The scene, played to its end."""
    scene = Scene(
        name=uuid.uuid4().hex[:8],
        root=tmp_path_factory.mktemp("scene"),
        sqs=queues.endpoint("sqs"),
        servers={**stack.environment(), **queues.environment()},
        moto=aws.endpoint("aws"),
    )
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {**scene.servers, **aws.environment()}.items():
            environment.setenv(name, value)
        scene.build()
        play(scene)
        yield scene


def play(scene: Scene) -> None:
    """Play all of it, first with workers of little time, then with enough."""
    notified = [scene.put("lines", "notified"), scene.put("versions", "notified")]
    notified.append(scene.put("ordered", "several", MANY))
    notified.append(scene.put_sealed("narrow", "a"))
    posted = [scene.put(name, "posted") for name in ("theirs", "shared")]
    listed = [scene.put(name, "lost") for name in ("lines", "versions", "theirs")]
    replayed = scene.put("orphans", "replayed")
    lost = [scene.put(name, "lost") for name in ("orphans", "orphaned-versions")]
    broken = scene.put("parquet", "broken")
    waiting = scene.put("waiting", "paused")
    gone = [
        ObjectVersion(scene.landing, "lines/gone", None, "", 0),
        ObjectVersion(scene.kept, "versions/gone", None, "", 0),
        ObjectVersion("nobodys", "object", None, "", 0),
    ]
    hurried = scene.deployment.with_function("worker", timeout_seconds=HURRIED_SECONDS)
    with EventSource(hurried, scene.place_of_functions) as source:
        neglected = [
            scene.registered(scene.put("lines", "registered")),
            scene.standing_still(scene.put("versions", "silent")),
            scene.complete_and_open(scene.put("lines", "complete")),
            # A version of the schema beside the one of the notified object.
            scene.registered(scene.put_sealed("wide", "a", "b")),
        ]
        scene.held_by_the_dead(scene.put("lines", "held"))
        scene.pause_before_delivery(waiting)
        scene.come_often(source, waiting)
        assert [scene.post(source, one) for one in posted] == [200, 200]
        scene.notify(*notified, replayed, *lost, broken, *gone)
        scene.await_state(DONE, [*notified, *posted])
        scene.await_state(FAILED, [replayed, *lost, broken])
        eventually("the paused connector's message waits", lambda: hidden(scene))
        scene.resume()
        scene.reconcile(source, reconciled)
        scene.await_state(DONE, [*listed, *(job.version for job in neglected)])
        scene.await_state(DONE, [waiting])
    assert scene.queue("ArrivalsDlqUrl").depth().waiting == 1
    scene.make_topic(scene.missing_topic)
    for version in lost:
        scene.lose(version)
    with EventSource(scene.deployment, scene.place_of_functions):
        assert scene.replay() == 1 + len(lost)
        eventually("ends were published", lambda: published_again(scene, [replayed, *lost]))
    assert [scene.state_of(one) for one in (replayed, *lost)] == [DONE, FAILED, FAILED]


def hidden(scene: Scene) -> bool:
    """Whether a worker changed the visibility of a message."""
    calls = recorded(scene.calls, "worker")
    return any(call.operation == "ChangeMessageVisibility" for call in calls)


def reconciled(report: Report) -> bool:
    """Whether the reconciler has done everything that it can do."""
    return all(
        (
            report.slots_recovered,
            report.jobs_resumed,
            report.jobs_closed,
            report.messages_resent,
            report.jobs_new >= 3,
            report.ends_published,
            not report.problems,
        )
    )


def published_again(scene: Scene, versions: list[ObjectVersion]) -> bool:
    """Whether jobs ended once more, and the events are published."""
    jobs = [scene.job_of(version) for version in versions]
    return all(job is not None and job.reopened and job.published for job in jobs)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_may_do_what_it_does_and_nothing_else(played: Scene, function: str) -> None:
    calls = recorded(played.calls, function)
    statements = allowed(played.template, played.names, function)

    assert calls
    assert statements
    assert verdict(function, calls, statements) == []


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_action_that_is_taken_away_is_missed(played: Scene, function: str) -> None:
    calls = recorded(played.calls, function)
    statements = allowed(played.template, played.names, function)

    for place, statement in enumerate(statements):
        for action in statement.actions:
            rest = tuple(other for other in statement.actions if other != action)
            less = statements[:]
            less[place] = replace(statement, actions=rest)
            reported = verdict(function, calls, less)
            assert any(line.startswith(f"{function} lacks {action} on ") for line in reported)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_permissions_that_no_call_needs_are_reported(played: Scene, function: str) -> None:
    calls = recorded(played.calls, function)
    first, *others = allowed(played.template, played.names, function)
    actions, resources = (
        (*first.actions, "s3:PutObject"),
        (*first.resources, "arn:aws:s3:::other/*"),
    )

    reported = verdict(
        function, calls, [replace(first, actions=actions, resources=resources), *others]
    )

    assert reported == [
        f"{function} never needed s3:PutObject of its grant {first.id}",
        f"{function} never needed arn:aws:s3:::other/* of its grant {first.id}",
    ]
