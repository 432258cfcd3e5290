"""Runs on EMR Serverless.

A repeated StartJobRun with the same token starts nothing. Spark's properties name the archive,
which is unpacked as ./environment in every process's folder.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from botocore.config import Config
from botocore.exceptions import ClientError

from extentflow.aws import new_session, translate_errors
from extentflow.config.secrets import environments
from extentflow.engines.remote import Run, RunGone, RunState, RunStatus
from extentflow.errors import Misconfigured, RunsUnavailable

# Amazon Linux 2023 ships it beside its default Python.
PYTHON = "python3.11"
UNPACKED = "environment"
PYTHONPATH = f"./{UNPACKED}/site-packages"

_DRIVER, _EXECUTOR = "spark.emr-serverless.driverEnv", "spark.executorEnv"
_NAME_LENGTH = 256
# Of one property's value, by the service's description.
_VALUE_LENGTH = 1_024

PASSING_CODES = frozenset(
    {"InternalServerException", "ServiceQuotaExceededException", "ServiceUnavailable"}
    | {"ThrottlingException", "TooManyRequestsException"}
)
_ABSENT = "ResourceNotFoundException"
REMEDIES = {
    "AccessDeniedException": (
        "allow emr-serverless:StartJobRun on the application, GetJobRun and CancelJobRun on its "
        "runs, and iam:PassRole on the job role"
    ),
    "ConflictException": "look at the application's state; it starts no run in this one",
    _ABSENT: ("there is no such application, or no such run of it; correct spark.application.id"),
    "ValidationException": "correct the settings of Spark",
}

# Any other state counts as waiting.
STATES = {state.value: state for state in RunState if state is not RunState.WAITING}
STATES["CANCELLING"] = RunState.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """An application, what its runs are started with (in S3), and variables of their driver."""

    id: str
    job_role_arn: str
    entry_point: str
    archive: str
    region: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)


class EmrJobRuns:
    """`JobRuns` over one application; connects when first used, unless it has boto3's `client`."""

    def __init__(self, application: Application, client: Any = None) -> None:  # noqa: ANN401
        self.application = application
        self._client = client

    def start(self, run: Run) -> str:
        with self._connected() as client:
            return str(client.start_job_run(**request(self.application, run))["jobRunId"])

    def describe(self, run_id: str) -> RunStatus:
        with self._connected() as client:
            try:
                answer = client.get_job_run(applicationId=self.application.id, jobRunId=run_id)
            except ClientError as exc:
                if exc.response["Error"].get("Code") != _ABSENT:
                    raise
                what = f"EMR Serverless application {self.application.id}: run {run_id}"
                raise RunGone(f"{what}: {exc}; {REMEDIES[_ABSENT]}") from exc
            found = answer["jobRun"]
        state = STATES.get(found["state"], RunState.WAITING)
        return RunStatus(state, str(found.get("stateDetails", "")))

    def cancel(self, run_id: str) -> None:
        with self._connected() as client:
            try:
                client.cancel_job_run(applicationId=self.application.id, jobRunId=run_id)
            except ClientError as exc:
                # The service refuses to cancel a run that has ended, with the code of bad input.
                refused = exc.response["Error"].get("Code") == "ValidationException"
                if not refused or not self.describe(run_id).state.ended:
                    raise

    def check(self) -> None:
        properties(self.application)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        what = f"EMR Serverless application {self.application.id}"
        with translate_errors(what, RunsUnavailable, transient=PASSING_CODES, remedies=REMEDIES):
            if self._client is None:
                self._client = connect(self.application.region)
            yield self._client


def connect(region: str | None) -> Any:  # noqa: ANN401 - boto3's clients have no types here
    """Return a client; the endpoint comes from the SDK's own settings, as does a region of None."""
    retries: Any = {"total_max_attempts": 3, "mode": "standard"}
    config = Config(retries=retries, connect_timeout=2, read_timeout=10)
    return new_session().client("emr-serverless", region_name=region, config=config)


def request(application: Application, run: Run) -> dict[str, Any]:
    """Return what StartJobRun is called with."""
    submitted = {"entryPoint": application.entry_point, "entryPointArguments": list(run.arguments)}
    defaults = {"classification": "spark-defaults", "properties": properties(application)}
    return {
        "applicationId": application.id,
        "clientToken": run.token,
        "executionRoleArn": application.job_role_arn,
        "executionTimeoutMinutes": run.timeout_minutes,
        "name": f"extentflow {run.subject} {run.number}"[:_NAME_LENGTH],
        "jobDriver": {"sparkSubmit": submitted},
        "configurationOverrides": {"applicationConfiguration": [defaults]},
    }


def properties(application: Application) -> dict[str, str]:
    """Return Spark's properties; Misconfigured: one is too long, or refers to a variable."""
    if absent := environments(application.environment):
        raise Misconfigured(
            f"{', '.join(absent)}: a run of EMR Serverless has none of these variables; keep the "
            "value in Secrets Manager, and refer to it by ${secretsmanager:name:key}"
        )
    long = sorted(n for n, value in application.environment.items() if len(value) > _VALUE_LENGTH)
    if long:
        raise Misconfigured(
            f"{', '.join(long)}: EMR Serverless takes values of up to {_VALUE_LENGTH:,} characters;"
            " keep a longer one in Secrets Manager, and refer to it by ${secretsmanager:name:key}"
        )
    shared = {"PYSPARK_PYTHON": PYTHON, "PYTHONPATH": PYTHONPATH}
    if application.region is not None:
        shared["AWS_DEFAULT_REGION"] = application.region
    driver = {**application.environment, **shared, "PYSPARK_DRIVER_PYTHON": PYTHON}
    return {
        "spark.archives": f"{application.archive}#{UNPACKED}",
        **{f"{_DRIVER}.{name}": value for name, value in driver.items()},
        **{f"{_EXECUTOR}.{name}": value for name, value in shared.items()},
    }
