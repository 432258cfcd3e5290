"""An engine for a driver: Spark, processes of our own, or a run of Spark elsewhere.

Owns: the choice. Refuses to know: what either does.
"""

import logging
import os
import shutil
from collections.abc import Callable
from functools import partial
from uuid import uuid4

from extentflow.engines import Engine, Worker, WorkerSpec
from extentflow.engines.emr.engine import SubmittedRunEngine
from extentflow.engines.emr.submitted import SubmittedRuns
from extentflow.engines.inline import InlineEngine
from extentflow.errors import Misconfigured
from extentflow.wiring.extents import open_worker
from extentflow.wiring.runs import require_started
from extentflow.wiring.runtime import Runtime

log = logging.getLogger(__name__)

ENGINES = ("spark", "inline", "emr")
SUBMITTED = "submitted"

StartRun = Callable[[SubmittedRuns], str]
"""Starts a run elsewhere for what a driver is about to deliver; returns its id."""


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
    this machine for `spark`; SUBMITTED leaves it to spark-submit. `start_run` starts a run
    elsewhere, `say` hears what becomes of it.

    Raises:
        Misconfigured: no such engine, pyspark is not installed, or no application is set.
    """
    if name not in ENGINES:
        raise Misconfigured(f"--engine {name}: there is no such engine; use spark, inline or emr")
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
    if name == "inline":
        return InlineEngine(spec, cores=count, evict=runtime.evict)
    return _spark(runtime, spec, count, master, most)


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
