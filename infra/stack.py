"""The stack of one stage: all constructs, the functions' environment, and the outputs."""

from collections.abc import Mapping, Sequence
from functools import partial

import aws_cdk as cdk
from constructs import Construct

from extentflow.config.worker import variable

from . import msk
from .alarms import Alarms
from .buckets import Buckets
from .config import Stage
from .connectors import Connectors
from .context import StackContext
from .dashboard import Dashboard
from .declared import DeclaredConnector, declared
from .event_path import EventPath
from .functions import RETRY_SECONDS, VERSIONED, SharedFunctionSettings
from .kept_logs import KeptLogs
from .layers import Layers
from .network import Network
from .new_cluster import Brokers
from .plan import plan
from .project import Project
from .queues import WorkQueue
from .spark import SparkApplication
from .state import Ledger

_NAME = "extentflow-{}"


class ExtentflowStack(cdk.Stack):
    """All resources of a stage.

    Raises:
        Misconfigured: all problems of the stage, of the connectors, or of the network.
    """

    def __init__(self, scope: Construct, *, stage: Stage, project: Project) -> None:
        stage = msk.complete(stage, scope.node.try_get_context)
        stage.check()
        connectors = declared(project.home / stage.connectors, stage, layer=project.core)
        super().__init__(
            scope,
            _NAME.format(stage.name),
            description="extentflow: objects from S3 into Kafka, exactly once",
            env=cdk.Environment(account=stage.account, region=stage.region),
            termination_protection=stage.termination_protection,
            synthesizer=cdk.DefaultStackSynthesizer(
                # None: that of CDK's context, or CDK's own.
                qualifier=stage.qualifier,
                file_assets_bucket_name=stage.assets_bucket,
                # Code below a prefix of its own, to which permission to read it can be limited.
                bucket_prefix=f"{_NAME.format(stage.name)}/",
            ),
        )
        for flag, on in VERSIONED.items():
            self.node.set_context(flag, on)
        for key, value in stage.tags.items():
            cdk.Tags.of(self).add(key, value)
        planned = partial(plan, stage, connectors)
        logs = KeptLogs.of(stage)
        self._brokers: Brokers | None = None
        if stage.cluster.created is not None:
            self._brokers = Brokers(self, "Brokers", stage=stage, logs=logs)
            stage = self._brokers.known(stage)
        self._stage = stage
        key_arn = stage.kms_key_arn
        self._arrivals = WorkQueue(self, "Arrivals", key_arn=key_arn)
        self._extents = WorkQueue(self, "Extents", key_arn=key_arn)
        self._ledger = Ledger(self, "Ledger", existing=stage.table, key_arn=key_arn)
        Buckets(self, "Buckets", stage=stage, connectors=connectors, arrivals=self._arrivals)
        context = self._context(project, connectors, logs)
        self._spark = SparkApplication(self, "Spark", context=context) if stage.spark else None
        # The construct keeps the id of stages that are deployed: resources are named after it.
        self._event_path = EventPath(self, "Ingest", context=context, spark=self._spark)
        Connectors(self, "Connectors", context=context, after=self._event_path.settled)
        if context.network is not None:
            context.network.require_paths()
        called = context.network.called if context.network is not None else ()
        self.template_options.metadata = planned(called).metadata()
        queues = (("Arrivals", self._arrivals), ("Extents", self._extents))
        alarms = Alarms(self, "Alarms", stage=stage, queues=queues, event_path=self._event_path)
        if stage.dashboard:
            Dashboard(
                self,
                "Dashboard",
                stage=stage,
                queues=queues,
                ledger=self._ledger,
                event_path=self._event_path,
                alarms=alarms,
            )
        self._tell(context)

    def _context(
        self, project: Project, connectors: Sequence[DeclaredConnector], logs: KeptLogs
    ) -> StackContext:
        layers = Layers(self, "Layers", project=project).all
        return StackContext(
            stage=self._stage,
            project=project,
            common=SharedFunctionSettings(
                layers=layers,
                environment=self._environment(),
                metrics_namespace=self._stage.metrics_namespace,
                logs=logs,
                key_arn=self._stage.kms_key_arn,
                tracing=self._stage.tracing,
            ),
            connectors=connectors,
            arrivals=self._arrivals,
            extents=self._extents,
            ledger=self._ledger,
            event_bus_arn=self._event_bus_arn(),
            network=self._network(),
        )

    def _network(self) -> Network | None:
        return Network(self, "Network", stage=self._stage) if self._stage.network else None

    def _event_bus_arn(self) -> str:
        bus = self._stage.event_bus
        if bus.startswith("arn:"):
            return bus
        return self.format_arn(service="events", resource="event-bus", resource_name=bus)

    def _environment(self) -> dict[str, str]:
        """Return the worker settings as environment variables of the functions."""
        stage = self._stage
        settings: Mapping[str, str | None] = {
            "retry.timeout.seconds": f"{RETRY_SECONDS}",
            **stage.given_settings(),
            **({"bootstrap.servers": self._brokers.servers} if self._brokers else {}),
            "ledger.table": self._ledger.table.table_name,
            "arrivals.queue.url": self._arrivals.queue.queue_url,
            "arrivals.dlq.url": self._arrivals.dead.queue_url,
            "extents.queue.url": self._extents.queue.queue_url,
            "extents.dlq.url": self._extents.dead.queue_url,
            "receiver.secret.id": stage.receiver.secret_arn if stage.receiver else None,
            "event.bus": stage.event_bus,
            "arrivals.unmatched": stage.unmatched,
        }
        return {variable(key): value for key, value in settings.items() if value is not None}

    def _tell(self, context: StackContext) -> None:
        """Add the outputs that operators and the command line need."""
        outputs = {
            "LedgerTable": self._ledger.table.table_name,
            "ArrivalsQueueUrl": self._arrivals.queue.queue_url,
            "ArrivalsDlqUrl": self._arrivals.dead.queue_url,
            "ExtentsQueueUrl": self._extents.queue.queue_url,
            "ExtentsDlqUrl": self._extents.dead.queue_url,
        }
        if self._event_path.endpoint is not None:
            outputs["ReceiverUrl"] = self._event_path.endpoint.url
        if self._spark is not None:
            outputs |= self._spark.outputs()
        if context.network is not None:
            outputs |= context.network.outputs()
        if self._brokers is not None:
            outputs |= self._brokers.outputs()
        for name, value in outputs.items():
            cdk.CfnOutput(self, name, value=value)
