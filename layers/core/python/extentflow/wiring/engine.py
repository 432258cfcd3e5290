"""Open the engine of a driver: Spark, a run on EMR Serverless, or one of the registry."""

import logging
import os
import shutil
from collections.abc import Callable
from functools import partial
from uuid import uuid4

from extentflow.config.worker import variable
from extentflow.engines import ENGINES, Engine, Worker, WorkerSpec
from extentflow.engines.emr.client import Application, EmrJobRuns, properties
from extentflow.engines.emr.engine import SubmittedRunEngine
from extentflow.engines.emr.submitted import SubmittedRuns
from extentflow.errors import Misconfigured
from extentflow.wiring.extents import open_worker
from extentflow.wiring.runtime import Runtime

log = logging.getLogger(__name__)

# Opened here and not by the registry; an entry point with one of these names is never used.
RESERVED = ("spark", "emr")
SUBMITTED = "submitted"

StartRun = Callable[[SubmittedRuns], str]
"""Starts a remote run for the jobs of a driver; returns the run's id."""


def open_engine(
    runtime: Runtime,
    name: str = "spark",
    *,
    cores: int | None = None,
    master: str | None = None,
    max_tasks: int | None = None,
    start_run: StartRun | None = None,
    say: Callable[[str], object] = log.info,
) -> Engine:
    """Return the engine called `name`; `cores` are its workers here (default: this machine's).

    `max_tasks` (`tasks.max`) bounds the extents in work at once on any engine. `master` None means
    this machine for `spark`; SUBMITTED leaves it to spark-submit. `start_run` starts
    a remote run, whose progress messages go to `say`.

    Raises:
        Misconfigured: no such engine, pyspark is not installed, or no application is set.
    """
    if name not in (*RESERVED, *ENGINES.names()):
        known = ", ".join([*RESERVED, *ENGINES.names()])
        raise Misconfigured(f"--engine {name}: there is no such engine; use one of {known}")
    if master is not None and name != "spark":
        raise Misconfigured(f"--master goes with --engine spark, not with {name}")
    if name == "emr":
        return _remote(runtime, start_run, cores, say)
    spec = WorkerSpec(
        open=open_worker,
        settings=runtime.settings.to_map(),
        run=f"run-{uuid4().hex[:12]}",
    )
    most = min(
        max_tasks or runtime.settings.exactly_once_slots, runtime.settings.exactly_once_slots
    )
    count = min(cores or os.cpu_count() or 1, most)
    if name == "spark":
        return _spark(runtime, spec, count, master, most)
    return ENGINES.get(name)(spec, cores=count, evict=runtime.evict)


def _remote(
    runtime: Runtime, start_run: StartRun | None, cores: int | None, say: Callable[[str], object]
) -> SubmittedRunEngine:
    if start_run is None:
        raise Misconfigured("--engine emr is for `run` and `replay`")
    started = require_started(runtime)
    return SubmittedRunEngine(
        started.runs,
        partial(start_run, started),
        runtime.ledger,
        runtime.clock,
        cores=cores or 1,
        say=say,
    )


def _require_java() -> None:
    """Raise where Spark would only say that its gateway ended."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        where = f"JAVA_HOME={home} holds none" if home else "there is none on the path"
        raise Misconfigured(
            f"--engine spark needs Java 17 or 21, and {where}; install it, set JAVA_HOME, or use "
            "--engine inline"
        )


def _spark(
    runtime: Runtime, spec: WorkerSpec[Worker], cores: int, master: str | None, most: int
) -> Engine:
    try:
        from extentflow.engines import spark  # noqa: PLC0415 - only Spark users need pyspark
    except ModuleNotFoundError as exc:
        raise Misconfigured(
            f"--engine spark needs {exc.name}; install extentflow[spark], or use --engine inline"
        ) from exc
    if master != SUBMITTED:
        _require_java()
    owned = not spark.is_running()
    if master is None:
        sc = spark.local_context(cores)
    else:
        sc = spark.context(None if master == SUBMITTED else master, {})
    return spark.SparkEngine(spec, sc, max_tasks=most, evict=runtime.evict, owned=owned)


# A run needs none of these, and its role may not use the queues. `retry.` is for functions: their
# messages are redelivered, while a run has to wait longer for an unavailable service.
NOT_FOR_RUNS = ("spark.", "arrivals.", "extents.", "receiver.", "retry.")


def open_runs(runtime: Runtime) -> EmrJobRuns | None:
    """Return the client of EMR Serverless; None where the settings name no application."""
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
    """Return the submitted runs of the ledger; None where no application is configured."""
    runs = open_runs(runtime)
    return None if runs is None else _started(runtime, runs)


def require_started(runtime: Runtime) -> SubmittedRuns:
    """Return the submitted runs of the ledger.

    Raises:
        Misconfigured: no application is configured, or its runs cannot have these settings.
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
