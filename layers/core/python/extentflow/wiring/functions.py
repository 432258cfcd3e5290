"""What the deployed functions need: queues, workers with a deadline, publishers of job events."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from extentflow.config.connector import SPLITTABLE_COMPRESSIONS, ConnectorConfig
from extentflow.config.connector_keys import AUTO, LAMBDA, LOCAL_FILE, SPARK
from extentflow.config.files import read_if_present
from extentflow.config.worker import IGNORE, WorkerSettings, load, variable
from extentflow.delivery.slots import Slots
from extentflow.discovery import Arrival
from extentflow.discovery.admission import ArrivalHandler, JobAdmission, UnparsedConnector
from extentflow.discovery.listing import ListedPrefix
from extentflow.discovery.reconciler import Reconciler
from extentflow.errors import Misconfigured, Permanent, Retryable, UnsupportedFormat
from extentflow.formats.compressed.compression import undivided_bytes
from extentflow.jobs.completion import CompletionActions
from extentflow.jobs.events import JobEventPublisher, JobEvents
from extentflow.jobs.planner import JobRequest
from extentflow.jobs.publishers import EventBridgeJobEvents, KafkaJobEvents
from extentflow.ledger import ConnectorState
from extentflow.model import Job, ObjectVersion
from extentflow.queue.consumer import QueueWorker
from extentflow.queue.dispatch import ExtentDispatcher
from extentflow.queue.routing import JobRouter
from extentflow.queue.sqs_queue import SqsQueue
from extentflow.wiring.extents import delivery_context, open_started
from extentflow.wiring.options import absent_elsewhere, require_shared_ledger
from extentflow.wiring.runtime import Runtime

log = logging.getLogger(__name__)

# How many leases a message stays hidden after its last renewal: until others may claim its extent.
# `LeaseRenewer` renews lease and message every third of a lease, commits the lease alone in
# between: a dead worker's lease and its grace, a quarter at most, are over after 19/12 of a lease.
# A message that is received earlier finds its extent busy and comes back: the ledger decides.
HIDDEN_LEASES = 2
FUNCTIONS = "functions"
QUEUES = ("arrivals_queue_url", "arrivals_dlq_url", "extents_queue_url", "extents_dlq_url")
# Stores that may list files which are still being written.
SETTLING = frozenset({"localfile", "ontaps3"})
# Both spellings of a bucket's key, of which an unparsed connector may have either.
_BUCKETS = ("aws.s3.bucket.name", "s3.bucket.name")
# What publishing takes at most when broker and bus are both unavailable.
PUBLISHING_SECONDS = 40.0
# Of content to compressed bytes, for routing; text and JSON lines have five to ten.
TYPICAL_RATIO = 8
# Content of an object without resume points that one call of a function certainly cannot reach: in
# its 145 s, a zstd stream is decompressed at 0.7 GB/s or less, while S3 delivers it.
UNREACHABLE_BYTES = 100 * 10**9
# How many times slower these are decompressed.
SLOWER = {"bzip2": 25, "snappy": 8}
# An object that is smaller by this factor is not looked into before it is delivered.
LARGEST_RATIO = 64
HEAD_BYTES = 16 << 20

Ended = TypeVar("Ended")


class Deadline:
    """When the current invocation ends, on this process's clock."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self.start(0)

    def start(self, seconds: float) -> None:
        self._end = self._monotonic() + seconds

    def seconds_left(self) -> float:
        return self._end - self._monotonic()


def measured_connectors() -> tuple[str, ...]:
    """Return the setting `metrics.connectors` of the environment. Raises Misconfigured."""
    return load(os.environ, read_text=read_if_present, brokers=False).metrics_connectors


def queue(settings: WorkerSettings, field: str) -> SqsQueue:
    """Return the queue whose URL is the setting `field`. Raises Misconfigured if it is not set."""
    url = getattr(settings, field)
    if url is None:
        name = field.replace("_", ".")
        raise Misconfigured(f"{name} is not set; give the queue's URL as {variable(name)}")
    return SqsQueue(url)


def queue_name(field: str) -> str:
    """Return how results name the queue whose URL is the setting `field`."""
    return field.removesuffix("_url").replace("_", ".")


def queues(settings: WorkerSettings) -> Iterator[tuple[str, SqsQueue]]:
    """Yield the queues that are set, each after its name in settings."""
    for field in QUEUES:
        if getattr(settings, field) is not None:
            yield queue_name(field), queue(settings, field)


def dispatch(runtime: Runtime) -> ExtentDispatcher:
    """Return what sends a job's extents to the extents queue."""
    return ExtentDispatcher(runtime.planner(), queue(runtime.settings, "extents_queue_url"))


def open_job_router(runtime: Runtime) -> JobRouter:
    """Return what sends new jobs to functions or to Spark, and processes the ends of runs."""
    threshold = runtime.settings.spark_threshold_bytes

    def engine_of(job: Job) -> str:
        config = runtime.connectors.revision(job.connector, job.revision)
        absent = absent_elsewhere(config)
        engine, size = config.engine, job.version.size
        with suppress(UnsupportedFormat):  # the plan ends such a job, with this reason
            codec = config.compression_for(job.version.key, job.content)
            if engine == AUTO and codec not in SPLITTABLE_COMPRESSIONS:
                # The content counts: one worker decompresses all of it.
                large = size * TYPICAL_RATIO > threshold or functions_refusal(runtime, job)
                engine = SPARK if large else LAMBDA
        if absent is None or engine == LAMBDA:
            return engine
        if engine == SPARK or size > threshold:
            log.warning("job %s goes to the queue instead of Spark: %s", job.id, absent)
        return LAMBDA  # functions have the variables that a run lacks

    return JobRouter(
        dispatch(runtime),
        open_started(runtime),
        threshold,
        engine_of,
        lambda connector: absent_elsewhere(runtime.connectors.latest(connector)[0]),
        partial(functions_refusal, runtime),
    )


def functions_refusal(runtime: Runtime, job: Job) -> str:
    """Return why no sequence of function calls ends with this job's object delivered, or "".

    Each call decompresses a stream without resume points from its start. Reads the first bytes of
    large compressed objects. Raises StoreUnavailable, CredentialsUnavailable.
    """
    version = job.version
    with suppress(Permanent):  # the plan ends such a job, with this reason
        config = runtime.connectors.revision(job.connector, job.revision)
        codec = config.compression_for(version.key, job.content)
        unreachable = UNREACHABLE_BYTES // SLOWER.get(codec, 1)
        if codec in SPLITTABLE_COMPRESSIONS or version.size * LARGEST_RATIO <= unreachable:
            return ""
        _, source = runtime.objects.source(job)
        head = source.read(0, min(HEAD_BYTES, version.size))
        content_bytes = undivided_bytes(codec, head, version.size)
        if content_bytes > unreachable:
            return (
                f"{version.uri}: one {codec} stream with about {content_bytes / 1e9:,.0f} GB of "
                "content, which functions cannot deliver: each call decompresses it from its "
                f"start. Deliver it with `extentflow replay {job.id}` and --engine inline or "
                "spark, or recompress it with gzip, or with pzstd, which writes several frames"
            )
    return ""


def open_arrival_handler(
    runtime: Runtime, *, late: Callable[[], bool] = lambda: False
) -> ArrivalHandler:
    """Return the planner function's handler; it calls `late` between pages and arrivals."""
    require_shared_ledger(runtime.settings, FUNCTIONS)
    routing = open_job_router(runtime)
    return ArrivalHandler(
        context=RuntimeContext(runtime),
        planner=routing.dispatch.planner,
        start=lambda job: routing.start(job, late=late),
        kept=queue(runtime.settings, "arrivals_dlq_url"),
        arrivals=queue(runtime.settings, "arrivals_queue_url"),
        publish=unless_late(late, open_job_events(runtime).publish),
        late=late,
        backfill=routing.backfill,
        ignores_unmatched=runtime.settings.arrivals_unmatched == IGNORE,
    )


def open_job_admission(runtime: Runtime, connector: str) -> JobAdmission:
    """Return the admission of one connector's objects; it plans jobs, and sends no extents."""
    planner = runtime.planner()
    return JobAdmission(RuntimeContext(runtime, connector), planner, planner.plan)


def open_queue_worker(
    runtime: Runtime,
    slots: Slots,
    *,
    seconds_left: Callable[[], float],
    margin_seconds: float,
    job_events: JobEvents | None = None,
) -> QueueWorker:
    """Return a worker that hands back with less time left; the caller closes its `job_events`."""
    require_shared_ledger(runtime.settings, FUNCTIONS)
    publish = (job_events or open_job_events(runtime)).publish_ended
    work = delivery_context(runtime, slots)
    limits = replace(work.limits, gives_up=False)  # SQS redelivers the message
    return QueueWorker(
        work=replace(work, limits=limits, stopping=lambda: seconds_left() < margin_seconds),
        dispatch=dispatch(runtime),
        queue=queue(runtime.settings, "extents_queue_url"),
        dead=queue(runtime.settings, "extents_dlq_url"),
        ledger=runtime.ledger,
        random=runtime.random,
        hide_seconds=HIDDEN_LEASES * runtime.settings.lease_seconds,
        renew_seconds=runtime.settings.lease_seconds / 3,
        ended=unless_late(lambda: seconds_left() < PUBLISHING_SECONDS, publish),
    )


def open_reconciler(runtime: Runtime, *, late: Callable[[], bool] = lambda: False) -> Reconciler:
    """Return the reconciler function's reconciler; it calls `late` before every step."""
    require_shared_ledger(runtime.settings, FUNCTIONS)
    routing = open_job_router(runtime)
    return Reconciler(
        context=RuntimeContext(runtime),
        ledger=runtime.ledger,
        slots=runtime.slots(f"reconciler-{os.getpid()}-{runtime.random.getrandbits(64):016x}"),
        router=routing,
        receive=open_arrival_handler(runtime, late=late).receive,
        publish=partial(publish_pending, runtime),
        random=runtime.random,
        late=late,
    )


@dataclass(slots=True)
class RuntimeContext:
    """`AdmissionContext` and `ReconcilerContext` of a process; `only` one connector, None: all."""

    _runtime: Runtime
    _only: str | None = None
    _prepared: bool = False

    def connectors(self) -> Iterator[tuple[ConnectorConfig, int] | UnparsedConnector]:
        for stored in self._runtime.ledger.connectors.list():
            if self._only not in (None, stored.name):
                continue
            try:
                config = self._runtime.connectors.revision(stored.name, stored.revision)
            except Misconfigured as exc:
                # By the raw keys: arrivals that it may read wait until its mistake is fixed.
                raw = stored.config
                local = raw.get("endpoint.type", "").strip().lower() == LOCAL_FILE
                names = ("directory",) if local else _BUCKETS
                where = next((raw[name].strip() for name in names if name in raw), "")
                prefix = raw.get("aws.s3.prefix", "")
                yield UnparsedConnector(exc, stored.name, where.rstrip("/") or where, prefix)
            else:
                yield config, stored.revision

    def state(self, config: ConnectorConfig) -> ConnectorState:
        return self._runtime.ledger.connectors.state(config.name)

    def head(self, config: ConnectorConfig, revision: int, arrival: Arrival) -> ObjectVersion:
        store = self._runtime.objects.store(config, revision)
        return store.head(arrival.bucket, arrival.key, arrival.version_id)

    def request(self, config: ConnectorConfig, revision: int, version: ObjectVersion) -> JobRequest:
        if not self._prepared:  # before any job exists whose worker writes to the topic
            self._runtime.broker.ensure_progress_topic()
            self._prepared = True
        return self._runtime.requests.make(config, revision, version, 1)

    def listed_prefix(self, connector: str, revision: int) -> ListedPrefix:
        config = self._runtime.connectors.revision(connector, revision)
        store = self._runtime.objects.store(config, revision)
        return ListedPrefix(config, store, settles=config.endpoint_type in SETTLING)

    def cluster(self) -> str:
        return self._runtime.broker.cluster


def open_job_events(runtime: Runtime) -> JobEvents:
    """Return what publishes ends of jobs; nothing is connected before the first of them."""
    publishers: list[JobEventPublisher] = [KafkaJobEvents(runtime.open_event_sink, runtime.clock)]
    if (bus := runtime.settings.event_bus) is not None:
        publishers.append(EventBridgeJobEvents(bus, clock=runtime.clock, random=runtime.random))
    actions = CompletionActions(
        runtime.ledger,
        lambda job: runtime.connectors.revision(job.connector, job.revision),
        runtime.objects.store,
    )
    return JobEvents(runtime.ledger, publishers, runtime.connectors.topic_of, actions.apply)


def publish_pending(runtime: Runtime, limit: int) -> int:
    """Publish at most `limit` ends of jobs; return how many. An error leaves the rest."""
    with closing(open_job_events(runtime)) as job_events:
        return job_events.sweep(limit)


def unless_late(
    late: Callable[[], bool], publish: Callable[[Ended], object]
) -> Callable[[Ended], None]:
    """Return `publish`, refused when it is `late`: the next sweep publishes the end then."""

    def publish_in_time(ended: Ended) -> None:
        # Publishing would leave no time to delete the message, and SQS would redeliver it.
        if late():
            raise Retryable("too little time is left")
        publish(ended)

    return publish_in_time
