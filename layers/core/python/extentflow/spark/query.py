"""A streaming query as a service: started, reported trigger by trigger, stopped within seconds.

stop requested ── workers commit and hand back ── query ends ── slots settled and freed
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from extentflow.engines import spark as engine
from extentflow.engines.spark import QueryFailed, failure_cause
from extentflow.errors import ExtentflowError
from extentflow.spark import register
from extentflow.spark.drain import DrainTracker
from extentflow.spark.query_options import StreamOptions
from extentflow.spark.tasks import request_stop
from extentflow.wiring import Runtime

log = logging.getLogger(__name__)

OBSERVED = "extentflow"
SUMS = {"records": "records", "bad": "bad", "filtered": "filtered", "bytes": "bytes_read"}
# Spark's sink that runs queries and keeps nothing.
NOWHERE = "noop"
# spark-submit sets it.
SUBMITTED = "PYSPARK_GATEWAY_PORT"
# Of the five seconds that a stop may take; ending the query and freeing slots needs the rest.
HAND_BACK_SECONDS = 2.5
POLL_SECONDS = 0.1
WATCH_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings of a query; `every_seconds` None: only the work that waits at its start."""

    run: str
    checkpoint: str
    every_seconds: float | None
    options: Mapping[str, str] = field(default_factory=dict)
    sink: str = NOWHERE
    sink_options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TriggerResult:
    """The result of one trigger, in extents, records, bytes and seconds; and what was waiting."""

    batch: int
    extents: int  # that became final
    failed: int
    records: int
    bad: int
    filtered: int
    bytes_read: int
    seconds: float
    records_per_second: float
    waiting: int
    hidden: int
    left: int = 0  # extents whose job is CANCELLED or SUPERSEDED
    listing: bool = False  # not all objects were listed before
    reason: str | None = None  # of one failure


@contextmanager
def session(
    master: str | None,
    cores: int | None,
    settings: Mapping[str, str] | None = None,
    *,
    java_options: str = engine.QUICK,
    filtered: bool = False,
) -> Iterator[SparkSession]:
    """Yield spark-submit's session, one on `master`, or a local one.

    `settings` are Spark's for a session that starts here, `java_options` those of a local JVM;
    `filtered` as `engine.local_context`.

    Raises as `engine.context`; JvmEnded if the JVM ends while the session is used.
    """
    if master is None and SUBMITTED not in os.environ:
        cores = cores or os.cpu_count() or 1
        context = engine.local_context(
            cores, settings, java_options=java_options, filtered=filtered
        )
    else:
        context = engine.context(master, dict(settings or {}))
        with engine.jvm_calls():
            engine.silence_query_logs(context)
    with engine.jvm_calls():
        found = SparkSession(context)
    try:
        with engine.jvm_calls():
            yield found
    finally:
        with suppress(ValueError):  # in another thread than the main one
            # PySpark's own handler would use the context, which ends here.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with suppress(Py4JError, OSError):  # the same signal has ended the JVM
            context.setLogLevel("OFF")  # hides errors of tasks whose executor ends
            found.stop()


class Service:
    """Runs one query, or for `--once` several in turn, until it is stopped."""

    def __init__(self, spark: SparkSession, runtime: Runtime, terms: Terms) -> None:
        register(spark)
        self._spark = spark
        self._runtime = runtime
        self._terms = terms
        self._stopping = threading.Event()
        self._stop_requested: bool | None = None  # None: not tried yet

    def stop(self) -> None:
        """Let `run` return within five seconds; from any thread, or a signal handler."""
        self._stopping.set()

    def run(self, report: Callable[[TriggerResult], None]) -> list[str]:
        """Deliver until `stop`, or what waits; return lines on undelivered jobs and connectors."""
        try:
            if self._terms.every_seconds is None:
                return self._deliver_pending(report)
            self._follow(self._start(), report)
            return []
        finally:
            self._ask_workers_to_stop()  # after a failure, too: workers may run on for seconds
            try:
                self._runtime.evict(f"{self._terms.run}/")
            except ExtentflowError as exc:  # must not hide why the query ended
                log.warning("slots stay leased until their leases end: %s", exc)

    def _deliver_pending(self, report: Callable[[TriggerResult], None]) -> list[str]:
        options = StreamOptions.read({**self._terms.options, "run": self._terms.run})
        listing = options.run if options.listing else None
        tracker = DrainTracker(self._runtime.brief_ledger, options.connector, listing=listing)
        while not self._stopping.is_set():
            ended = self._follow(self._start(), report)
            if not self._stopping.is_set() and not tracker.left(ended=ended):
                return tracker.undone()
            self._stopping.wait(0 if ended else WATCH_SECONDS)
        return []

    def _ask_workers_to_stop(self) -> bool:
        """Request the stop once, without retry; return whether the request was written."""
        if self._stop_requested is None:
            try:
                request_stop(self._runtime.brief_ledger, self._terms.run)
                self._stop_requested = True
            except ExtentflowError as exc:
                log.warning("workers cannot be asked to stop; they are fenced instead: %s", exc)
                self._stop_requested = False
        return self._stop_requested

    def _start(self) -> StreamingQuery:
        terms = self._terms

        def append(receipts: DataFrame, _batch: int) -> None:
            writer = receipts.write.format(terms.sink).mode("append")
            writer.options(**terms.sink_options).save()

        try:
            source = self._spark.readStream.format("extentflow")
            receipts = source.options(**terms.options, run=terms.run).load()
            writer = _observed(receipts).writeStream.queryName(terms.run)
            writer = writer.option("checkpointLocation", terms.checkpoint)
            # Spark's file sink skips the batches of a new checkpoint, and delivers nothing.
            elsewhere = terms.sink != NOWHERE
            writer = writer.foreachBatch(append) if elsewhere else writer.format(NOWHERE)
            if terms.every_seconds is None:
                return writer.trigger(availableNow=True).start()
            interval = f"{round(terms.every_seconds * 1000)} milliseconds"
            return writer.trigger(processingTime=interval).start()
        except (PySparkException, Py4JError) as exc:
            raise (engine.jvm_end() or QueryFailed(failure_cause(str(exc)))) from exc

    def _follow(self, query: StreamingQuery, report: Callable[[TriggerResult], None]) -> int:
        """Report a query's triggers until it ends; return how many extents became final."""
        ended, last, over = 0, -1, False
        try:
            while not over:
                # Read before the triggers, which then include the last one of an ended query.
                over = self._stopping.wait(WATCH_SECONDS) or not query.isActive
                if self._stopping.is_set():
                    self._end(query)
                for found in _triggers(query, last):
                    last = found.batch
                    ended += found.extents
                    report(found)
            if not self._stopping.is_set() and (failure := query.exception()) is not None:
                raise QueryFailed(failure_cause(str(failure))) from failure
        except (Py4JError, OSError) as exc:
            if not self._stopping.is_set():
                raise (engine.jvm_end() or QueryFailed(failure_cause(str(exc)))) from exc
            log.debug("the JVM got the signal, too, and ended before the query did: %s", exc)
        return ended

    def _end(self, query: StreamingQuery) -> None:
        """Let workers hand back what they hold, and end the query, whether they did or not."""
        until = time.monotonic() + HAND_BACK_SECONDS
        if self._ask_workers_to_stop():
            while query.status["isTriggerActive"] and time.monotonic() < until:
                time.sleep(POLL_SECONDS)
        with suppress(StreamingQueryException):  # it is over: how does not matter any more
            query.stop()


def _observed(receipts: DataFrame) -> DataFrame:
    done, failed = (sql.col("state") == state for state in ("DONE", "FAILED"))
    return receipts.observe(
        OBSERVED,
        sql.count(sql.lit(1)).alias("extents"),
        sql.count(sql.when(failed, 1)).alias("failed"),
        sql.count(sql.when(~done & ~failed, 1)).alias("left"),
        *(sql.coalesce(sql.sum(name), sql.lit(0)).alias(total) for name, total in SUMS.items()),
        sql.first(sql.when(failed, sql.col("reason")), ignorenulls=True).alias("reason"),
    )


def _triggers(query: StreamingQuery, last: int) -> Iterator[TriggerResult]:
    """Yield the triggers after batch `last` that did something."""
    if (newest := query.lastProgress) is None or newest.batchId <= last:
        return  # reading all of `recentProgress` costs a second
    for progress in query.recentProgress:
        observed = progress.observedMetrics.get(OBSERVED)
        if progress.batchId <= last or observed is None:
            continue
        offset = json.loads(progress.json)["sources"][0]["endOffset"]  # its member is no JSON
        seconds = progress.durationMs.get("triggerExecution", 0) / 1000
        yield TriggerResult(
            batch=progress.batchId,
            seconds=seconds,
            records_per_second=round(observed["records"] / max(seconds, 1e-3), 1),
            waiting=offset.get("waiting", 0),
            hidden=offset.get("hidden", 0),
            listing=bool(offset.get("listing", 0)),
            **observed.asDict(),
        )
