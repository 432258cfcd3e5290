"""extentflow on Spark `local[2]`, as `extentflow run` does it, in one warm session."""

from typing import Any

from bench.lane import serve
from bench.settings import CORES
from extentflow.ingest import Run
from extentflow.model import Extent, Receipt
from extentflow.wiring import Site, open_engine


class _Unwatched:
    """A watcher that looks away."""

    def expect(self, extent: Extent) -> None:
        """See `Watch`."""

    def see(self, receipt: Receipt) -> None:
        """See `Watch`."""


def main() -> None:
    """Serve runs, one engine for all, so that Python workers and producers stay warm."""
    site = Site.from_environment()
    engine = open_engine(site, "spark", cores=CORES)
    serve(lambda request: _run(site, engine, request))


def _run(site: Site, engine: Any, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    config, revision = site.connector(request["connector"])
    store = site.store(config, revision)
    version = store.head(config.bucket, request["key"])
    run = Run("spark", engine, site.planner(), site.ledger, _Unwatched())
    intake = site.intake(config, revision, version, engine.cores)
    report = run.ingest(iter([intake]), again=True)
    if not report.ok:
        raise RuntimeError(f"the run failed: {report.errors or report.jobs}")
    return {
        "seconds": report.seconds,
        "records": report.records_this_run,
        "bytes_read": report.bytes_read,
        "worker_peak_rss_bytes": report.worker_peak_rss_bytes,
    }


if __name__ == "__main__":
    main()
