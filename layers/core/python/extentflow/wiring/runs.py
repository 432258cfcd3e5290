"""What starts runs of Spark elsewhere, from a runtime's settings.

Owns: which settings runs get, where their application is. Refuses to know: when a run is wanted.
"""

import os

from extentflow.config.worker import variable
from extentflow.engines.emr.client import Application, EmrJobRuns, properties
from extentflow.engines.emr.submitted import SubmittedRuns
from extentflow.errors import Misconfigured
from extentflow.wiring.runtime import Runtime

# What a run has no use for, and its role no right to; and how long functions wait for what is away:
# their messages come again, a run has to be more patient.
NOT_FOR_RUNS = ("spark.", "arrivals.", "extents.", "receiver.", "retry.")


def open_runs(runtime: Runtime) -> EmrJobRuns | None:
    """Return what starts runs; None where the settings name no application."""
    settings = runtime.settings
    if settings.spark_application_id is None:
        return None
    given = {
        variable(name): text
        for name, text in settings.to_map().items()
        if not name.startswith(NOT_FOR_RUNS)
    }
    application = Application(
        id=settings.spark_application_id,
        job_role_arn=settings.spark_job_role_arn or "",  # the rules of settings ask for all four
        entry_point=settings.spark_entry_point or "",
        archive=settings.spark_archive or "",
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        environment=given,
    )
    return EmrJobRuns(application)


def open_started(runtime: Runtime) -> SubmittedRuns | None:
    """Return what starts runs and remembers them; None where there is no Spark."""
    runs = open_runs(runtime)
    return None if runs is None else _started(runtime, runs)


def require_started(runtime: Runtime) -> SubmittedRuns:
    """Do what `open_started` does.

    Raises:
        Misconfigured: there is no Spark, or its runs cannot have these settings.
    """
    runs = open_runs(runtime)
    if runs is None:
        raise Misconfigured(
            "--engine emr needs an EMR Serverless application; give, as the stack's outputs say,"
            " EXTENTFLOW_SPARK_APPLICATION_ID, EXTENTFLOW_SPARK_JOB_ROLE_ARN,"
            " EXTENTFLOW_SPARK_ENTRY_POINT and EXTENTFLOW_SPARK_ARCHIVE"
        )
    properties(runs.application)
    return _started(runtime, runs)


def _started(runtime: Runtime, runs: EmrJobRuns) -> SubmittedRuns:
    return SubmittedRuns(runs, runtime.ledger, runtime.settings.spark_timeout_minutes)
