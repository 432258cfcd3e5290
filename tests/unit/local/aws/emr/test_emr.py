"""The stand-in of EMR Serverless as boto3 sees it; runs that do nothing take Spark's place."""

import http.client
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, cast

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from moto import mock_aws

from extentflow.engines.emr import emr_client as emr
from extentflow.engines.emr.emr_client import Application, EmrJobRuns
from extentflow.engines.remote import Run
from extentflow.errors import Misconfigured, RunsUnavailable
from extentflow_local.aws.emr import events
from extentflow_local.aws.emr.description import answer_shape, problems
from extentflow_local.aws.emr.double import IdleRuns
from extentflow_local.aws.emr.service import ENDPOINT, JOB_ROLE, EmrServerless
from extentflow_local.aws.event_path import ELSEWHERE, emr_environment

RUN = Run(
    subject="0123abcd",
    number=1,
    arguments=("--connector", "orders", "s3://shop/in/a b.parquet"),
    timeout_minutes=720,
)
PATIENCE_SECONDS = 300
ENDS = ("SUCCESS", "FAILED", "CANCELLED")
Json = dict[str, Any]


@dataclass
class Heard:
    """A listener that tests wait on."""

    events: list[Mapping[str, Any]] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, event: Mapping[str, Any]) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def states(self, run: str) -> list[str]:
        return [one["detail"]["state"] for one in self.events if one["detail"]["jobRunId"] == run]

    def until(self, run: str, *states: str) -> list[str]:
        """Wait until a run was in one of the states; return all it was in."""
        with self._changed:
            arrived = lambda: not set(states).isdisjoint(self.states(run))  # noqa: E731
            assert self._changed.wait_for(arrived, PATIENCE_SECONDS)
            return self.states(run)


@dataclass
class Scene:
    """A stand-in, what it was reported to begin, what it reported, a client."""

    server: EmrServerless
    runs: IdleRuns
    heard: Heard
    client: Any

    @property
    def application(self) -> Application:
        return Application(
            id=self.server.id,
            job_role_arn=JOB_ROLE,
            entry_point="s3://code/spark_deliver.py",
            archive="s3://code/spark.tgz",
            region="eu-central-1",
            environment={"EXTENTFLOW_APP_ID": "extentflow"},
        )

    def start(self, run: Run = RUN, **changes: object) -> str:
        """Start a run with the product's own request; return its id."""
        answer = self.client.start_job_run(**{**emr.request(self.application, run), **changes})
        return str(answer["jobRunId"])

    def begun(self, run: Run = RUN) -> str:
        """Start a run, and return its id when it runs."""
        found = self.start(run)
        self.heard.until(found, "RUNNING")
        return found

    def get(self, run: str) -> Json:
        answer = self.client.get_job_run(applicationId=self.server.id, jobRunId=run)
        return dict(answer["jobRun"])

    def cancel(self, run: str, **more: int) -> None:
        self.client.cancel_job_run(applicationId=self.server.id, jobRunId=run, **more)


@cache
def session() -> boto3.session.Session:
    """Return one for all tests: it reads the service's description once."""
    return boto3.session.Session(
        aws_access_key_id="test", aws_secret_access_key="test", region_name="eu-central-1"
    )


@contextmanager
def scene(minute_seconds: float = 60.0) -> Iterator[Scene]:
    runs, heard = IdleRuns(), Heard()
    with EmrServerless(runs, minute_seconds=minute_seconds) as server:
        made = session().client(
            cast("Any", "emr-serverless"),
            endpoint_url=server.url,
            config=Config(retries={"total_max_attempts": 1}),
        )
        with closing(made), server.forwarding(heard):
            yield Scene(server, runs, heard, made)


@pytest.fixture
def here() -> Iterator[Scene]:
    with scene() as found:
        yield found


# -- a run ----------------------------------------------------------------------------------------


def test_a_run_starts_with_program_arguments_and_spark_properties(here: Scene) -> None:
    run = here.begun()

    (order,) = here.runs.orders
    assert (order.run, order.entry_point) == (run, "s3://code/spark_deliver.py")
    assert order.arguments == RUN.arguments
    assert order.properties == emr.properties(here.application)


@pytest.mark.parametrize(
    ("code", "end", "details"), [(0, "SUCCESS", "the run ended"), (137, "FAILED", "exit code 137")]
)
def test_a_run_ends_as_its_program_does(here: Scene, code: int, end: str, details: str) -> None:
    run = here.begun()
    assert here.get(run)["state"] == "RUNNING"

    here.runs.work[run].end(code)

    states = here.heard.until(run, end)
    assert states == ["SUBMITTED", "PENDING", "SCHEDULED", "RUNNING", end]
    shown = here.get(run)
    assert shown["state"] == end
    assert details in shown["stateDetails"]


def test_a_run_that_cannot_start_has_failed_with_the_reason(here: Scene) -> None:
    here.runs.broken = "s3://code/spark.tgz cannot be fetched"

    run = here.start()

    assert here.heard.until(run, *ENDS) == ["SUBMITTED", "PENDING", "SCHEDULED", "FAILED"]
    assert "spark.tgz cannot be fetched" in here.get(run)["stateDetails"]


def test_a_run_is_shown_with_what_was_asked_for(here: Scene) -> None:
    asked = emr.request(here.application, replace(RUN, timeout_minutes=60))

    shown = here.get(here.begun(replace(RUN, timeout_minutes=60)))

    for name in ("name", "jobDriver", "configurationOverrides", "executionTimeoutMinutes"):
        assert shown[name] == asked[name]
    assert shown["executionRole"] == JOB_ROLE
    assert shown["createdAt"] <= shown["updatedAt"]


# -- tokens ---------------------------------------------------------------------------------------


def test_a_repeated_start_is_the_run_that_began_and_begins_nothing(here: Scene) -> None:
    first = here.begun()
    here.runs.work[first].end()
    here.heard.until(first, "SUCCESS")

    again, other = here.start(), here.begun(replace(RUN, number=2))

    assert again == first != other
    assert [order.run for order in here.runs.orders] == [first, other]


# -- cancelling, time -----------------------------------------------------------------------------


def test_a_run_is_cancelled_with_the_grace_that_was_asked_for(here: Scene) -> None:
    run = here.begun()

    here.cancel(run, shutdownGracePeriodInSeconds=17)

    assert here.heard.until(run, *ENDS)[-3:] == ["RUNNING", "CANCELLING", "CANCELLED"]
    assert here.runs.work[run].stops == [17]


def test_a_run_that_ended_is_not_cancelled_any_more(here: Scene) -> None:
    run = here.begun()
    here.runs.work[run].end()
    here.heard.until(run, "SUCCESS")

    here.cancel(run)

    assert here.get(run)["state"] == "SUCCESS"


def test_a_run_over_its_timeout_is_cancelled() -> None:
    with scene(minute_seconds=0.05) as here:
        endless = here.begun(replace(RUN, number=2, timeout_minutes=0))
        run = here.start(replace(RUN, timeout_minutes=1))

        states = here.heard.until(run, *ENDS)
        assert states[-3:] == ["RUNNING", "CANCELLING", "CANCELLED"]
        assert here.runs.work[run].stops == [0]
        assert "more than 1 minutes" in here.get(run)["stateDetails"]
        assert here.get(endless)["state"] == "RUNNING"


def test_when_it_stops_nothing_runs_on(here: Scene) -> None:
    run = here.begun()

    here.server.stop()

    assert here.heard.states(run)[-1] == "CANCELLED"
    assert not [one for one in threading.enumerate() if one.name.startswith("run-")]


# -- events ---------------------------------------------------------------------------------------


def test_every_state_change_is_an_eventbridge_event(here: Scene) -> None:
    run = here.begun()
    here.runs.work[run].end(1)
    here.heard.until(run, "FAILED")

    event = dict(here.heard.events[-1])

    assert event.pop("id")
    detail = event.pop("detail")
    assert event == {
        "version": "0",
        "detail-type": "EMR Serverless Job Run State Change",
        "source": "aws.emr-serverless",
        "account": "000000000000",
        "time": detail["updatedAt"],
        "region": "us-east-1",
        "resources": [],
    }
    assert detail["arn"].endswith(f":/applications/{here.server.id}/jobruns/{run}")
    assert (detail["applicationId"], detail["jobRunId"]) == (here.server.id, run)
    assert (detail["previousState"], detail["state"]) == ("RUNNING", "FAILED")


def test_the_first_event_has_no_state_before() -> None:
    shown = {
        "arn": "arn:aws:emr-serverless:us-east-1:000000000000:/applications/00a/jobruns/00b",
        **dict.fromkeys(("jobRunId", "applicationId", "releaseLabel", "createdBy"), "x"),
        "state": "SUBMITTED",
        "updatedAt": 0.0,
        "createdAt": 0.0,
    }

    detail = events.changed(shown, None)["detail"]

    assert "previousState" not in detail
    assert detail["createdAt"] == "1970-01-01T00:00:00Z"


# -- what it refuses ------------------------------------------------------------------------------


def test_another_application_does_not_exist_and_nor_does_another_run(here: Scene) -> None:
    calls: list[Callable[[], object]] = [
        lambda: here.start(applicationId="00elsewhere"),
        lambda: here.get("00nobody"),
        lambda: here.cancel("00nobody"),
    ]

    for call in calls:
        with pytest.raises(ClientError) as caught:
            call()
        assert type(caught.value).__name__ == "ResourceNotFoundException"
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404

    assert here.runs.orders == []


def _defaults(properties: dict[str, str], **more: object) -> Json:
    one = {"classification": "spark-defaults", "properties": properties, **more}
    return {"configurationOverrides": {"applicationConfiguration": [one]}}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"executionRoleArn": "arn:aws:iam::me:role/spark"}, "executionRoleArn"),
        ({"clientToken": "with spaces"}, "clientToken"),
        ({"name": "n" * 257}, "'name'"),
        (_defaults({"a": "x" * 1025}), "properties.a"),
        (_defaults({"a": ""}), "properties.a"),
        (_defaults({f"a{number}": "x" for number in range(101)}), "at most 100"),
        (_defaults({}, classification="spark-log4j2"), "not emulated"),
        ({"jobDriver": {"hive": {"query": "SELECT 1"}}}, "not emulated"),
        ({"mode": "STREAMING"}, "not emulated on one machine: mode"),
        ({"mode": "ONCE"}, "one of"),
    ],
)
def test_unsupported_requests_are_rejected(here: Scene, changes: Json, why: str) -> None:
    with pytest.raises(ClientError, match=why) as caught:
        here.start(**changes)

    assert type(caught.value).__name__ == "ValidationException"
    assert here.runs.orders == []


@pytest.mark.parametrize(
    ("method", "target", "body", "kind"),
    [
        ("POST", "/applications/{id}/jobruns", "{", "ValidationException"),
        ("POST", "/applications/{id}/jobruns", "[]", "ValidationException"),
        ("POST", "/applications/{id}/jobruns", '{"clientToken": 1}', "ValidationException"),
        ("POST", "/applications/{id}/jobruns", '{"nme": "x"}', "ValidationException"),
        ("GET", "/applications/{id}/jobruns", "", "UnknownOperationException"),
        ("DELETE", "/applications/{id}/jobruns/0?shutdownGracePeriodInSeconds=x", "", "Validation"),
    ],
)
def test_an_invalid_request_is_rejected(
    here: Scene, method: str, target: str, body: str, kind: str
) -> None:
    status, headers, _ = asked(here, method, target.format(id=here.server.id), body)

    assert 400 <= status < 500
    assert headers["x-amzn-ErrorType"].startswith(kind)


def test_answers_are_as_the_services_description_has_them(here: Scene) -> None:
    run = here.begun()

    target = f"/applications/{here.server.id}/jobruns/{run}"
    answers = {
        "StartJobRun": again(here),
        "GetJobRun": asked(here, "GET", target)[2],
        "CancelJobRun": asked(here, "DELETE", target)[2],
    }

    for name, answer in answers.items():
        assert list(problems(answer_shape(name), answer)) == []


def again(here: Scene) -> Json:
    """Repeat the start by hand."""
    request = emr.request(here.application, RUN)
    target = f"/applications/{request.pop('applicationId')}/jobruns"
    return asked(here, "POST", target, json.dumps(request))[2]


def asked(
    here: Scene, method: str, target: str, body: str = ""
) -> tuple[int, Mapping[str, str], Json]:
    with closing(http.client.HTTPConnection(here.server.url.removeprefix("http://"))) as connection:
        connection.request(method, target, body=body)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), json.loads(answer.read())


# -- the product's own client ---------------------------------------------------------------------


@pytest.fixture
def product(here: Scene, monkeypatch: pytest.MonkeyPatch) -> EmrJobRuns:
    """Return runs that find the stand-in as functions do, by a variable."""
    monkeypatch.setenv(ENDPOINT, here.server.environment[ENDPOINT])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    return EmrJobRuns(here.application)


def test_functions_find_it_by_their_environment(here: Scene, product: EmrJobRuns) -> None:
    run = product.start(RUN)

    assert here.heard.until(run, "RUNNING")
    assert here.server.environment["EXTENTFLOW_SPARK_APPLICATION_ID"] == here.server.id
    assert here.server.environment["EXTENTFLOW_SPARK_JOB_ROLE_ARN"] == JOB_ROLE


def test_an_event_path_has_the_stand_ins_settings_and_any_threshold(here: Scene) -> None:
    around = emr_environment(here.server)

    assert around.items() >= here.server.environment.items()
    assert "EXTENTFLOW_SPARK_THRESHOLD_BYTES" not in around
    assert around["EXTENTFLOW_SPARK_ARCHIVE"] is None
    assert emr_environment() == ELSEWHERE


def test_an_application_that_is_unknown_is_a_matter_of_settings(
    here: Scene, product: EmrJobRuns
) -> None:
    product.application = replace(here.application, id="00elsewhere")

    with pytest.raises(Misconfigured, match=r"correct spark\.application\.id"):
        product.start(RUN)


def test_one_that_has_stopped_is_worth_another_try(here: Scene, product: EmrJobRuns) -> None:
    here.server.stop()

    with pytest.raises(RunsUnavailable):
        product.start(RUN)


# -- another opinion ------------------------------------------------------------------------------


def test_moto_takes_the_same_request() -> None:
    with mock_aws():
        client = session().client(cast("Any", "emr-serverless"))
        made = client.create_application(releaseLabel="emr-7.9.0-20250601", type="SPARK")
        application = Application(
            id=made["applicationId"],
            job_role_arn="arn:aws:iam::123456789012:role/spark",  # moto's own account
            entry_point="s3://code/spark_deliver.py",
            archive="s3://code/spark.tgz",
        )

        started = client.start_job_run(**emr.request(application, RUN))
        shown = client.get_job_run(applicationId=application.id, jobRunId=started["jobRunId"])

    assert shown["jobRun"]["jobDriver"]["sparkSubmit"]["entryPointArguments"] == [*RUN.arguments]
