"""The functions of the event path, with sizes, permissions and event sources.

store ──HTTP──> receiver ──> arrivals ──ten──> planner ──> extents ──one──> worker ──> Kafka
bucket ──────────────────────┘             │                 ^
every 5 minutes ──> reconciler ────────────┼─────────────────┘
                        ^                  v
                        └─ a run ended ─ Spark, where a stage has it
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from extentflow.config.worker import variable

from . import broker, buckets, queues, rights, secrets
from .canary import Canary
from .config import INVOKED_BY_POLLER, Receiver
from .context import StackContext
from .functions import EventFunction, Size, answer_within
from .grants import Grant
from .receiver import Endpoint, endpoint
from .spark import SparkApplication

ARRIVALS_BATCH = 10
EXTENTS_BATCH = 1  # one extent per invocation: its failure and its time affect no other
RECONCILED_EVERY = Duration.minutes(5)

RECEIVER = Size(memory_mib=512, timeout_seconds=25)  # API Gateway's timeout is 30 s
PLANNER = Size(memory_mib=1024, timeout_seconds=170)
WORKER = Size(memory_mib=1769, timeout_seconds=170)  # one vCPU; messages are hidden for 180 s
RECONCILER = Size(memory_mib=1024, timeout_seconds=170)


class EventPath(Construct):
    """Receiver (where a stage has one), planner, worker, reconciler."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        context: StackContext,
        spark: SparkApplication | None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._context = context
        self._spark = spark
        stage = context.stage
        self.planner = self._planner()
        self.worker = self._worker()
        self.reconciler = self._reconciler()
        self.receiver = self._receiver() if stage.receiver else None
        self.endpoint = self._endpoint(self.receiver) if self.receiver else None
        self.settled = self._canary(stage.canary_minutes) if stage.canary_minutes else ()
        arrivals, extents = context.arrivals.queue, context.extents.queue
        _feed(self.planner, arrivals, ARRIVALS_BATCH, stage.most_planners, stage.pollers)
        _feed(self.worker, extents, EXTENTS_BATCH, stage.most_workers, stage.pollers)
        events.Rule(
            self,
            "Reconcile",
            description="Lists objects without a notification, resumes stalled jobs",
            schedule=events.Schedule.rate(RECONCILED_EVERY),
            # The next scheduled invocation repeats the work: EventBridge and Lambda must not.
            targets=[targets.LambdaFunction(self.reconciler.target, retry_attempts=0)],
        )
        limits = answer_within(
            self.reconciler,
            self.reconciler.function.function_name,
            period=RECONCILED_EVERY,
            attempts=1,
            qualifier=self.reconciler.qualifier,
        )
        limits.node.add_dependency(*self.settled)
        if spark is not None:
            self._hear_of_runs(spark)

    def _canary(self, minutes: int) -> tuple[lambda_.CfnAlias, ...]:
        """Deploy gradually; return the aliases that are moved by then."""
        functions = [one for one in (self.planner, self.worker, self.receiver) if one is not None]
        Canary(
            self,
            "Canary",
            stage=self._context.stage,
            minutes=minutes,
            functions=functions,
            # A tenth of its few invocations would show nothing.
            followers=[self.reconciler],
        )
        return tuple(one.resource_of_alias for one in (*functions, self.reconciler))

    def _hear_of_runs(self, spark: SparkApplication) -> None:
        """Invoke the reconciler when a job run ended; it reads the state from the ledger."""
        events.Rule(
            self,
            "RunEnded",
            description="Completed and failed Spark job runs",
            event_pattern=spark.ended,
            # The next scheduled invocation finds the ended run.
            targets=[targets.LambdaFunction(self.reconciler.target, retry_attempts=0)],
        )

    def _receiver(self) -> EventFunction:
        context, settings = self._context, self._receiver_settings()
        return EventFunction(
            self,
            "Receiver",
            code=context.project.functions / "receiver",
            description="Queues notifications received over HTTP",
            size=RECEIVER,
            common=context.common,
            reserved=settings.concurrency,
            published=context.stage.canary_minutes is not None,
            grants=(
                queues.send("SendArrivals", "notifications are queued", context.arrivals.queue),
                Grant(
                    "ReadSources",
                    "the secret declares the permitted sources and their proofs",
                    ("secretsmanager:GetSecretValue",),
                    (settings.secret_arn,),
                ),
                *secrets.decrypt(context.stage.secret_key_arns),
            ),
        )

    def _endpoint(self, receiver: EventFunction) -> Endpoint:
        return endpoint(
            self,
            "Endpoint",
            receiver=receiver.target,
            settings=self._receiver_settings(),
            stage=self._context.stage,
            kept=self._context.common.logs,
        )

    def _receiver_settings(self) -> Receiver:
        settings = self._context.stage.receiver
        if settings is None:
            raise TypeError("a stage without a receiver has no endpoint")
        return settings

    def _planner(self) -> EventFunction:
        context = self._context
        return self._in_network(
            "planner",
            "Registers jobs for arrivals, and sends their extents",
            PLANNER,
            (
                queues.receive(context.arrivals.queue),
                queues.send("SendExtents", "a job's extents are queued", context.extents.queue),
                queues.send(
                    "DeadLetterArrivals",
                    "arrivals that match no connector are dead-lettered",
                    context.arrivals.dead,
                ),
                queues.send(
                    "SendArrivals",
                    "arrivals for a paused connector are re-sent before they expire",
                    context.arrivals.queue,
                ),
                context.ledger.work(),
                *buckets.read(self, context.stage),
                *buckets.change(self, context.stage, context.connectors),
                *broker.describe(context.stage.cluster),
                *broker.prepare(context.stage.cluster),
                *rights.publish_events(context),
                *rights.read_secrets(self, context, producer=False),
                *(self._spark.start() if self._spark else ()),
            ),
            self._spark.settings() if self._spark else {},
            # Arrivals for a paused connector are sent again until it is resumed.
            recurs=True,
        )

    def _worker(self) -> EventFunction:
        context, cluster = self._context, self._context.stage.cluster
        topics = [topic for one in context.connectors for topic in one.topics]
        app_id = context.stage.worker_settings().app_id
        return self._in_network(
            "worker",
            "Delivers one extent's records",
            WORKER,
            (
                queues.receive(context.extents.queue),
                queues.change_visibility(context.extents.queue),
                queues.send(
                    "SendExtents", "unfinished extents are re-sent as a copy", context.extents.queue
                ),
                queues.send(
                    "DeadLetterExtents", "failed extents are dead-lettered", context.extents.dead
                ),
                context.ledger.work(),
                context.ledger.claim(),
                *buckets.read(self, context.stage),
                *buckets.change(self, context.stage, context.connectors),
                *buckets.read_tags(self, context.connectors),
                *rights.settle_schemas(self, context.connectors),
                *rights.encrypt_columns(self, context.connectors),
                *broker.describe(cluster),
                *broker.deliver(cluster, app_id=app_id, topics=topics),
                *rights.publish_events(context),
                *rights.read_secrets(self, context, producer=True),
            ),
            # Each extent of an ordered job sends the next; handed-back and paused ones send a copy.
            recurs=True,
        )

    def _reconciler(self) -> EventFunction:
        context, cluster = self._context, self._context.stage.cluster
        return self._in_network(
            "reconciler",
            "Lists objects without a notification, resumes stalled jobs",
            RECONCILER,
            (
                queues.send(
                    "SendExtents", "extents of stalled jobs are sent again", context.extents.queue
                ),
                queues.read_depth(context.extents.queue),
                context.ledger.work(),
                *context.ledger.find_jobs(),
                *buckets.read(self, context.stage),
                *buckets.change(self, context.stage, context.connectors),
                *buckets.list_versions(self, context.stage.buckets),
                *broker.describe(cluster),
                *broker.prepare(cluster),
                *broker.own_slots(cluster, app_id=context.stage.worker_settings().app_id),
                *rights.publish_events(context),
                *rights.read_secrets(self, context, producer=False),
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
        *,
        recurs: bool = False,
    ) -> EventFunction:
        """Return a function in the brokers' VPC; only it gets `settings`."""
        context = self._context
        own = {variable(key): value for key, value in settings.items()}
        environment = {**context.common.environment, **own}
        common = replace(context.common, environment=environment)
        return EventFunction(
            self,
            name.title(),
            code=context.project.functions / name,
            description=description,
            size=size,
            common=common,
            grants=(*grants, *rights.authenticate(context)),
            network=context.network,
            recurs=recurs,
            published=context.stage.canary_minutes is not None,
        )


def _feed(
    function: EventFunction, queue: sqs.IQueue, batch: int, concurrency: int, pollers: int | None
) -> None:
    """Let Lambda call a function with a queue's messages; each is answered on its own.

    AWS takes either a limit of concurrency or pollers, whose number is a limit as well.
    """
    lambda_.EventSourceMapping(
        function,
        "Messages",
        target=function.target,
        event_source_arn=queue.queue_arn,
        batch_size=batch,
        max_concurrency=concurrency if pollers is None else None,
        provisioned_poller_config=None
        if pollers is None
        else lambda_.ProvisionedPollerConfig(
            minimum_pollers=pollers, maximum_pollers=concurrency // INVOKED_BY_POLLER
        ),
        report_batch_item_failures=True,
    )
