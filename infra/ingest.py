"""The functions of the event path, and what wakes each of them.

Owns: sizes, permissions and event sources of receiver, planner, worker and reconciler. Refuses to
know: what they do inside; how a function is made (`functions`).

    store ──HTTP──> receiver ──> arrivals ──ten──> planner ──> extents ──one──> worker ──> Kafka
    bucket ──────────────────────┘             │                 ^
    every 5 minutes ──> reconciler ────────────┼─────────────────┘
                            ^                  v
                            └─ a run ended ─ Spark, where a stage has it
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from extentflow.config.worker import variable
from infra import broker, buckets, queues, rights, secrets
from infra.functions import Common, EventFunction, Size
from infra.grants import Grant
from infra.receiver import Endpoint
from infra.spark import SparkApplication
from infra.surroundings import Surroundings

ARRIVALS_BATCH = 10
EXTENTS_BATCH = 1  # a failure is one extent's own, and so is its time
RECONCILED_EVERY = Duration.minutes(5)

RECEIVER = Size(memory_mib=512, timeout_seconds=25)  # API Gateway waits for 30 s
PLANNER = Size(memory_mib=1024, timeout_seconds=170)
WORKER = Size(memory_mib=1769, timeout_seconds=170)  # one whole processor; hidden for 180 s
RECONCILER = Size(memory_mib=1024, timeout_seconds=170)


class Ingest(Construct):
    """Receiver (where a stage has one), planner, worker, reconciler."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        around: Surroundings,
        spark: SparkApplication | None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._around = around
        self._spark = spark
        stage = around.stage
        self.planner = self._planner()
        self.worker = self._worker()
        self.reconciler = self._reconciler()
        self.endpoint = self._endpoint() if stage.receiver else None
        _feed(self.planner, around.arrivals.queue, ARRIVALS_BATCH, stage.most_planners)
        _feed(self.worker, around.extents.queue, EXTENTS_BATCH, stage.most_workers)
        events.Rule(
            self,
            "Reconcile",
            description="Lists what was not announced, resumes what stands still",
            schedule=events.Schedule.rate(RECONCILED_EVERY),
            # The next round repeats what this one missed.
            targets=[targets.LambdaFunction(self.reconciler.function, retry_attempts=0)],
        )
        if spark is not None:
            self._hear_of_runs(spark)

    def _hear_of_runs(self, spark: SparkApplication) -> None:
        """Wake the reconciler when a run ended; what is left it judges by the ledger."""
        events.Rule(
            self,
            "RunEnded",
            description="Runs of Spark that came to an end, well or not",
            event_pattern=spark.ended,
            # The next round finds what this event would have told.
            targets=[targets.LambdaFunction(self.reconciler.function, retry_attempts=0)],
        )

    def _endpoint(self) -> Endpoint:
        around, settings = self._around, self._around.stage.receiver
        if settings is None:
            raise TypeError("a stage without receiver has no endpoint")
        function = EventFunction(
            self,
            "Receiver",
            code=around.project.functions / "receiver",
            description="Queues notifications that come over HTTP",
            size=RECEIVER,
            common=around.common,
            grants=(
                queues.send("SendArrivals", "notifications are queued", around.arrivals.queue),
                Grant(
                    "ReadSources",
                    "the secret declares who may send, and what proves it",
                    ("secretsmanager:GetSecretValue",),
                    (settings.secret_arn,),
                ),
                *secrets.decrypt(around.stage.secret_key_arns),
            ),
        )
        return Endpoint(
            self,
            "Endpoint",
            receiver=function.function,
            requests_per_second=settings.requests_per_second,
        )

    def _planner(self) -> EventFunction:
        around = self._around
        return self._in_network(
            "planner",
            "Turns arrivals into jobs, and sends their extents",
            PLANNER,
            (
                queues.take(around.arrivals.queue),
                queues.send("SendExtents", "a job's extents are queued", around.extents.queue),
                queues.send("KeepArrivals", "what nobody wants is kept", around.arrivals.dead),
                queues.send(
                    "SendArrivals",
                    "what waits for a paused connector goes on as a copy",
                    around.arrivals.queue,
                ),
                around.ledger.work(),
                *buckets.read(self, around.stage.buckets),
                *broker.describe(around.stage.cluster),
                *broker.prepare(around.stage.cluster),
                *rights.tell(around),
                *rights.look_up(self, around, producer=False),
                *(self._spark.start() if self._spark else ()),
            ),
            self._spark.settings() if self._spark else {},
        )

    def _worker(self) -> EventFunction:
        around, cluster = self._around, self._around.stage.cluster
        topics = [topic for one in around.connectors for topic in one.topics]
        app_id = around.stage.worker_settings().app_id
        return self._in_network(
            "worker",
            "Delivers one extent's records",
            WORKER,
            (
                queues.take(around.extents.queue),
                queues.hide(around.extents.queue),
                queues.send("SendExtents", "what is left goes on as a copy", around.extents.queue),
                queues.send("BuryExtents", "failed extents wait there", around.extents.dead),
                around.ledger.work(),
                around.ledger.claim(),
                *buckets.read(self, around.stage.buckets),
                *broker.describe(cluster),
                *broker.deliver(cluster, app_id=app_id, topics=topics),
                *rights.tell(around),
                *rights.look_up(self, around, producer=True),
            ),
        )

    def _reconciler(self) -> EventFunction:
        around, cluster = self._around, self._around.stage.cluster
        return self._in_network(
            "reconciler",
            "Finds what was not announced, resumes what stands still",
            RECONCILER,
            (
                queues.send("SendExtents", "what stands still is sent again", around.extents.queue),
                queues.look(around.extents.queue),
                around.ledger.work(),
                *around.ledger.find_jobs(),
                *buckets.read(self, around.stage.buckets),
                *buckets.list_versions(self, around.stage.buckets),
                *broker.describe(cluster),
                *broker.prepare(cluster),
                *broker.own_slots(cluster, app_id=around.stage.worker_settings().app_id),
                *rights.tell(around),
                *rights.look_up(self, around, producer=False),
                *((*self._spark.start(), self._spark.look()) if self._spark else ()),
            ),
            self._spark.settings() if self._spark else {},
        )

    def _in_network(
        self,
        name: str,
        description: str,
        size: Size,
        grants: Iterable[Grant],
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> EventFunction:
        """Return a function that stands with the brokers; `settings` are known to it alone."""
        around = self._around
        own = {variable(key): value for key, value in settings.items()}
        environment = {**around.common.environment, **own}
        return EventFunction(
            self,
            name.title(),
            code=around.project.functions / name,
            description=description,
            size=size,
            common=Common(layers=around.common.layers, environment=environment),
            grants=(*grants, *rights.enter(around)),
            network=around.network,
        )


def _feed(function: EventFunction, queue: sqs.IQueue, batch: int, concurrency: int) -> None:
    """Let Lambda call a function with a queue's messages; each is answered on its own."""
    lambda_.EventSourceMapping(
        function,
        "Messages",
        target=function.function,
        event_source_arn=queue.queue_arn,
        batch_size=batch,
        max_concurrency=concurrency,
        report_batch_item_failures=True,
    )
