"""The engine `emr`: runs on the application of EMR Serverless that the settings name."""

import os

from extentflow.config.worker import WorkerSettings, variable
from extentflow.engines.emr.emr_client import Application, EmrJobRuns
from extentflow.engines.remote import RunService

# A run needs none of these, and its role may not use the queues. `retry.` is for functions: their
# messages are redelivered, while a run has to wait longer for an unavailable service.
NOT_FOR_RUNS = ("spark.", "arrivals.", "extents.", "receiver.", "retry.")


def open_runs(settings: WorkerSettings) -> EmrJobRuns | None:
    """Return the runs of the application, None without one; connects when first used."""
    if settings.spark_application_id is None:
        return None
    usable = {k: v for k, v in settings.to_map().items() if not k.startswith(NOT_FOR_RUNS)}
    application = Application(
        id=settings.spark_application_id,
        job_role_arn=settings.spark_job_role_arn or "",  # the rules of settings ask for all four
        entry_point=settings.spark_entry_point or "",
        archive=settings.spark_archive or "",
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        environment={variable(name): text for name, text in usable.items()},
    )
    return EmrJobRuns(application)


EMR_SERVERLESS = RunService(
    title="EMR Serverless",
    needs="an EMR Serverless application; give, as the stack's outputs say,"
    " EXTENTFLOW_SPARK_APPLICATION_ID, EXTENTFLOW_SPARK_JOB_ROLE_ARN,"
    " EXTENTFLOW_SPARK_ENTRY_POINT and EXTENTFLOW_SPARK_ARCHIVE",
    open=open_runs,
)
