"""Runs on EMR Serverless: what is asked for, and what a refusal means."""

from dataclasses import replace
from typing import Any, cast

import boto3
import pytest
from botocore.stub import Stubber
from infra.recipes import spark_archive
from tests.support.golden import Golden

from extentflow.engines.emr import emr_client as emr
from extentflow.engines.emr.emr_client import Application, EmrJobRuns
from extentflow.engines.remote import Run, RunGone, RunState, RunStatus
from extentflow.errors import Misconfigured, RunsUnavailable

APPLICATION = Application(
    id="00f1cbsc6anuij25",
    job_role_arn="arn:aws:iam::111122223333:role/spark",
    entry_point="s3://code/spark_deliver.py",
    archive="s3://code/spark.tgz",
    region="eu-central-1",
    environment={"EXTENTFLOW_APP_ID": "extentflow"},
)
RUN = Run(
    subject="0123abcd",
    number=1,
    arguments=("-c", "orders", "s3://shop/in/big.parquet"),
    timeout_minutes=720,
)
ANSWER = {
    "applicationId": APPLICATION.id,
    "jobRunId": "00flfo8g80vlko17",
    "arn": f"arn:aws:emr-serverless:eu-central-1:111122223333:/applications/{APPLICATION.id}",
}


def client() -> Any:  # noqa: ANN401 - boto3's client has no types here
    return boto3.session.Session().client(
        cast("Any", "emr-serverless"),
        region_name="eu-central-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def runs(stubbed: Any) -> EmrJobRuns:  # noqa: ANN401 - as above
    return EmrJobRuns(APPLICATION, stubbed)


# -- the token ------------------------------------------------------------------------------------


def test_one_start_has_one_token_whatever_its_arguments() -> None:
    again = replace(RUN, arguments=("-c", "orders"), timeout_minutes=1)

    assert again.token == RUN.token
    assert len(RUN.token) == 64
    assert RUN.token.isalnum()


@pytest.mark.parametrize(
    "other", [{"subject": "0123abce"}, {"number": 2}, {"subject": "0123abcd/1"}]
)
def test_another_job_or_number_is_another_start(other: dict[str, Any]) -> None:
    assert replace(RUN, **other).token != RUN.token


# -- the request ----------------------------------------------------------------------------------


def test_a_run_is_asked_for_with_role_time_code_and_arguments() -> None:
    asked = emr.request(APPLICATION, replace(RUN, timeout_minutes=60))

    assert asked["applicationId"] == APPLICATION.id
    assert asked["clientToken"] == RUN.token
    assert asked["executionRoleArn"] == APPLICATION.job_role_arn
    assert asked["executionTimeoutMinutes"] == 60
    assert asked["name"] == "extentflow 0123abcd 1"
    assert asked["jobDriver"]["sparkSubmit"] == {
        "entryPoint": "s3://code/spark_deliver.py",
        "entryPointArguments": ["-c", "orders", "s3://shop/in/big.parquet"],
    }


def test_driver_and_executors_receive_archive_python_and_region() -> None:
    assert emr.properties(APPLICATION) == {
        "spark.archives": "s3://code/spark.tgz#environment",
        "spark.emr-serverless.driverEnv.EXTENTFLOW_APP_ID": "extentflow",
        "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": "python3.11",
        "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": "python3.11",
        "spark.emr-serverless.driverEnv.PYTHONPATH": "./environment/site-packages",
        "spark.emr-serverless.driverEnv.AWS_DEFAULT_REGION": "eu-central-1",
        "spark.executorEnv.PYSPARK_PYTHON": "python3.11",
        "spark.executorEnv.PYTHONPATH": "./environment/site-packages",
        "spark.executorEnv.AWS_DEFAULT_REGION": "eu-central-1",
    }


def test_without_a_region_the_services_own_is_left() -> None:
    properties = emr.properties(replace(APPLICATION, region=None))

    assert not [name for name in properties if name.endswith("AWS_DEFAULT_REGION")]


def test_settings_go_to_the_driver_alone_which_sends_them_with_every_task() -> None:
    properties = emr.properties(APPLICATION)

    where = [name for name in properties if name.endswith("EXTENTFLOW_APP_ID")]

    assert where == ["spark.emr-serverless.driverEnv.EXTENTFLOW_APP_ID"]


def test_a_setting_that_is_too_long_is_named_without_its_value(golden: Golden) -> None:
    certificate = {"EXTENTFLOW_KAFKA_SSL_CA_PEM": "x" * 1_025, "EXTENTFLOW_APP_ID": "x" * 1_024}

    with golden.raises(Misconfigured, match="EXTENTFLOW_KAFKA_SSL_CA_PEM") as raised:
        emr.properties(replace(APPLICATION, environment=certificate))

    assert "APP_ID" not in str(raised.value)
    assert "xx" not in str(raised.value)


def test_a_reference_to_a_variable_is_rejected_and_one_to_a_secret_is_not(golden: Golden) -> None:
    environment = {
        "EXTENTFLOW_KAFKA_SASL_PASSWORD": "${env:PASSWORD}",
        "EXTENTFLOW_KAFKA_SASL_USERNAME": "${secretsmanager:kafka:user}",
    }

    with golden.raises(Misconfigured, match=r"EXTENTFLOW_KAFKA_SASL_PASSWORD=\$\{env:PASSWORD\}"):
        emr.properties(replace(APPLICATION, environment=environment))


def test_spark_receives_what_the_archive_is_made_for() -> None:
    assert f"python{spark_archive.PYTHON}" == emr.PYTHON
    assert (spark_archive.UNPACKED, spark_archive.PYTHONPATH) == (emr.UNPACKED, emr.PYTHONPATH)
    assert spark_archive.archive().suffix == ".tgz"


# -- the call -------------------------------------------------------------------------------------


def test_a_start_returns_the_runs_id_and_the_service_takes_the_request() -> None:
    stubbed = client()

    with Stubber(stubbed) as stubber:
        stubber.add_response("start_job_run", ANSWER, emr.request(APPLICATION, RUN))
        started = runs(stubbed).start(RUN)
        stubber.assert_no_pending_responses()

    assert started == "00flfo8g80vlko17"


@pytest.mark.parametrize("code", sorted(emr.PASSING_CODES))
def test_what_passes_is_worth_another_try(code: str) -> None:
    stubbed = client()

    with Stubber(stubbed) as stubber:
        stubber.add_client_error("start_job_run", code, "later", 429)
        with pytest.raises(RunsUnavailable, match=f"application {APPLICATION.id}: .*{code}"):
            runs(stubbed).start(RUN)


@pytest.mark.parametrize("code", sorted(emr.REMEDIES))
def test_what_does_not_pass_says_what_to_do(code: str) -> None:
    stubbed = client()

    with Stubber(stubbed) as stubber:
        stubber.add_client_error("start_job_run", code, "no", 400)
        with pytest.raises(Misconfigured) as caught:
            runs(stubbed).start(RUN)

    (problem,) = caught.value.problems
    assert f"application {APPLICATION.id}" in problem
    assert problem.endswith(emr.REMEDIES[code])


def test_a_service_that_does_not_answer_is_worth_another_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_EMR_SERVERLESS", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")

    with pytest.raises(RunsUnavailable, match="EndpointConnectionError"):
        EmrJobRuns(APPLICATION).start(RUN)


# -- where a run stands ---------------------------------------------------------------------------

RUN_ID = "00flfo8g80vlko17"
ABOUT = {"applicationId": APPLICATION.id, "jobRunId": RUN_ID}


def described(state: str, details: str = "-") -> dict[str, Any]:
    """What GetJobRun answers, with all that its model demands."""
    return {
        "jobRun": {
            **ABOUT,
            "arn": f"{ANSWER['arn']}/jobruns/{RUN_ID}",
            "createdBy": "arn:aws:iam::111122223333:role/planner",
            "createdAt": 1_700_000_000,
            "updatedAt": 1_700_000_001,
            "executionRole": APPLICATION.job_role_arn,
            "state": state,
            "stateDetails": details,
            "releaseLabel": "emr-spark-8.0.0",
            "jobDriver": {"sparkSubmit": {"entryPoint": APPLICATION.entry_point}},
        }
    }


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("SUBMITTED", RunState.WAITING),
        ("PENDING", RunState.WAITING),
        ("SCHEDULED", RunState.WAITING),
        ("QUEUED", RunState.WAITING),
        ("RUNNING", RunState.RUNNING),
        ("CANCELLING", RunState.RUNNING),
        ("SUCCESS", RunState.SUCCESS),
        ("FAILED", RunState.FAILED),
        ("CANCELLED", RunState.CANCELLED),
    ],
)
def test_every_state_of_the_service_is_understood(said: str, meant: RunState) -> None:
    stubbed = client()

    with Stubber(stubbed) as stubber:
        stubber.add_response("get_job_run", described(said, "why"), ABOUT)
        found = runs(stubbed).describe(RUN_ID)

    assert found == RunStatus(meant, "why")


def test_a_run_that_the_application_does_not_have_is_gone(golden: Golden) -> None:
    with Stubber(stubbed := client()) as stubber:
        stubber.add_client_error("get_job_run", "ResourceNotFoundException", http_status_code=404)

        with golden.raises(RunGone, match="00flfo8g80vlko17.*spark.application.id"):
            runs(stubbed).describe(ANSWER["jobRunId"])


def test_the_states_are_all_that_the_service_has() -> None:
    shape = client().meta.service_model.shape_for("JobRunState")

    assert set(emr.STATES) <= set(shape.enum)
    assert {state for state in shape.enum if state not in emr.STATES} == {
        "SUBMITTED",
        "PENDING",
        "SCHEDULED",
        "QUEUED",
    }


def test_a_run_is_cancelled_and_one_that_ended_meanwhile_is_let_be() -> None:
    stubbed = client()

    with Stubber(stubbed) as stubber:
        stubber.add_response("cancel_job_run", ABOUT, ABOUT)
        runs(stubbed).cancel(RUN_ID)
        stubber.add_client_error("cancel_job_run", "ValidationException", "it ended", 400)
        stubber.add_response("get_job_run", described("SUCCESS"), ABOUT)
        runs(stubbed).cancel(RUN_ID)
        stubber.assert_no_pending_responses()


def test_a_failed_cancel_is_reported() -> None:
    stubbed = client()

    with Stubber(stubbed) as stubber:
        stubber.add_client_error("cancel_job_run", "ValidationException", "not now", 400)
        stubber.add_response("get_job_run", described("RUNNING"), ABOUT)
        with pytest.raises(Misconfigured, match="not now"):
            runs(stubbed).cancel(RUN_ID)
