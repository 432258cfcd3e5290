"""extentflow in one warm driver; the argument selects the engine.

spark           Spark local[2], its Python workers, with the checks and job events of `extentflow
run`,
                but without the end of the run, which releases their slots
here            this process only
processes:N     N worker processes
dropping:N      N worker processes that discard their records
"""

import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from bench.dropping import open_dropping_worker
from bench.here import Here
from bench.process import serve
from bench.settings import CORES
from extentflow.engines import Engine, RunListener, Task, Worker, WorkerSpec
from extentflow.engines.inline import InlineEngine
from extentflow.jobs import preflight
from extentflow.jobs.run import JobRunner
from extentflow.model import Extent, Job, Receipt
from extentflow.wiring import Runtime, open_engine, open_worker
from extentflow.wiring.functions import open_job_events

OpenWorker = Callable[[dict[str, str], str], Worker]
OPEN: dict[str, OpenWorker] = {"processes": open_worker, "dropping": open_dropping_worker}


class _ExtentTimer:
    """A listener that adds up the seconds of all extents."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def on_extent(self, extent: Extent) -> None:
        """See `RunListener`."""

    def on_receipt(self, receipt: Receipt) -> None:
        """See `RunListener`."""
        self.seconds += receipt.seconds


@dataclass(frozen=True, slots=True)
class _Warm:
    """An engine whose workers, with slots and producers, outlive a run."""

    engine: Engine

    @property
    def cores(self) -> int:
        """See `Engine`."""
        return self.engine.cores

    def run(self, tasks: Sequence[Task], watch: RunListener) -> None:
        """See `Engine.run`."""
        self.engine.run(tasks, watch)

    def stop(self) -> None:
        """See `Engine.stop`."""
        self.engine.stop()

    def close(self) -> None:
        """See `Engine.close`; the next run continues with these workers."""


def main() -> None:
    """Process runs with one engine, so that workers and producers stay warm.

    A request has `connector` and `key`; known objects are delivered again.
    """
    runtime = Runtime.from_environment()
    kind = sys.argv[1]
    with _engine(runtime, kind) as engine, closing(open_job_events(runtime)) as events:
        publish = events.publish if kind == "spark" else None
        serve(lambda request: _run(runtime, engine, request, publish))


@contextmanager
def _engine(runtime: Runtime, name: str) -> Iterator[Engine]:
    kind, _, count = name.partition(":")
    if kind == "spark":
        engine = open_engine(runtime, "spark", cores=CORES)
        yield _Warm(engine)
        engine.close()
    elif kind == "here":
        here = Here(runtime)
        signal.signal(signal.SIGUSR1, lambda *_: here.stop())
        yield here
        here.end()
    else:
        run = f"bench-{uuid4().hex[:12]}"
        spec = WorkerSpec(OPEN[kind], runtime.settings.to_map(), run)
        processes = InlineEngine(spec, cores=int(count), evict=runtime.evict)
        yield _Warm(processes)
        processes.close()


def _run(
    runtime: Runtime,
    engine: Engine,
    request: dict[str, Any],
    publish: Callable[[Sequence[Job]], object] | None,
) -> dict[str, Any]:
    """Process one request, with the checks of the command where job events are published."""
    if isinstance(engine, Here):
        engine.begin()
    started = time.perf_counter()
    config, revision = runtime.connectors.latest(request["connector"])
    store = runtime.objects.store(config, revision)
    version = store.head(config.bucket, request["key"])
    if publish is not None:
        preflight.require_running(runtime.ledger, config.name)
        runtime.require_app()
        preflight.check(config, runtime.broker, [version])
    stopped = (lambda: engine.stopped) if isinstance(engine, Here) else (lambda: False)
    timed = _ExtentTimer()
    run = JobRunner("bench", engine, runtime.planner(), runtime.ledger, timed, stopped)
    if publish is not None:
        run = replace(run, publish=publish)
    job_request = runtime.requests.make(config, revision, version, engine.cores)
    report = run.deliver(iter([job_request]), again=math.inf)
    if not report.ok and not report.stopped:
        raise RuntimeError(f"the run failed: {report.errors or report.jobs}")
    return {
        "seconds": time.perf_counter() - started,
        "extent_seconds": timed.seconds,
        "records": report.records_this_run,
        "bytes_read": report.bytes_read,
        "worker_peak_rss_bytes": report.worker_peak_rss_bytes,
    }


if __name__ == "__main__":
    main()
