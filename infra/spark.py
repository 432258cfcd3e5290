"""The EMR Serverless application for large objects and backfills.

    planner ──StartJobRun──> application ──job role──> ledger, stores, brokers, secrets
                                  │                    code: the entry point, the archive
                                  └──run ended──> reconciler

Without runs nothing is active: there is no pre-initialised capacity, and the application stops
automatically.
"""

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_emrserverless as emr
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from . import broker, buckets, encryption, rights
from .config import Stage
from .config_spark import Spark
from .context import StackContext
from .grants import Grant, role
from .missing import refuse_deployment
from .network import HTTPS_PORT
from .project import Project
from .recipes import spark_archive

SERVICE = "emr-serverless.amazonaws.com"
ARCHITECTURE = spark_archive.MACHINE.shown.upper()
IDLE_MINUTES = 15
QUEUE_MINUTES = 720  # the maximum; then the run ends, and functions continue
ENDED = ("SUCCESS", "FAILED", "CANCELLED")
LOGGED = ("STDOUT", "STDERR")
ENTRY_POINT = "spark_deliver.py"
PLAIN_HTTP_PORT = 80

REMEDY = "the Spark archive is missing or was built from other pins or code; run `{} spark-archive`"


class SparkApplication(Construct):
    """The application, the job role of its runs, and their code.

    `settings` are for components that start runs, `start` their permissions, `ended` the pattern of
    the events of completed runs.
    """

    def __init__(self, scope: Construct, construct_id: str, *, context: StackContext) -> None:
        super().__init__(scope, construct_id)
        wanted, network = context.stage.spark, context.network
        if wanted is None or network is None:
            raise TypeError("a stage without spark and network has no Spark application")
        self._threshold_bytes = wanted.threshold_bytes
        self._timeout_minutes = wanted.timeout_minutes
        self._entry_point, self._archive = self._code(context.project)
        self._log = context.common.logs.group(self, "Log")
        group = network.admit(self, "Spark jobs of extentflow", ports=_ports(context))
        self.application = self._application(context.stage, wanted, group)
        own = tuple(self._grants(context))
        network.place("spark", own)
        key_arn = context.stage.kms_key_arn
        self.role = role(
            self,
            description="Delivers large objects on Spark",
            assumed_by=self._runs(),
            grants=(*own, *encryption.storage(self, key_arn, own)),
            policy_name="Job",
        )

    @property
    def ended(self) -> events.EventPattern:
        """The event pattern of completed runs of this application."""
        return events.EventPattern(
            source=["aws.emr-serverless"],
            detail_type=["EMR Serverless Job Run State Change"],
            detail={"applicationId": [self.application.attr_application_id], "state": list(ENDED)},
        )

    def settings(self) -> Mapping[str, str]:
        """Return the worker settings of components that start runs."""
        return {
            "spark.application.id": self.application.attr_application_id,
            "spark.job.role.arn": self.role.role_arn,
            "spark.entry.point": self._entry_point.s3_object_url,
            "spark.archive": self._archive.s3_object_url,
            "spark.threshold.bytes": f"{self._threshold_bytes}",
            "spark.timeout.minutes": f"{self._timeout_minutes}",
        }

    def start(self) -> Iterator[Grant]:
        """Yield permission to start runs with this job role only."""
        yield Grant(
            "StartRuns",
            "Spark delivers large objects and backfills",
            ("emr-serverless:StartJobRun",),
            (self.application.attr_arn,),
        )
        yield Grant(
            "PassJobRole",
            "a run has this role",
            ("iam:PassRole",),
            (self.role.role_arn,),
            conditions={"StringEquals": {"iam:PassedToService": SERVICE}},
        )

    def look(self) -> Grant:
        """Return permission to read the state of runs."""
        return Grant(
            "LookAtRuns",
            "jobs of an active run are reserved for it until it ends",
            ("emr-serverless:GetJobRun",),
            (f"{self.application.attr_arn}/jobruns/*",),
            wildcard="ids of runs are known only after their start",
        )

    def outputs(self) -> Mapping[str, str]:
        """Return what the command line needs to start runs."""
        return {
            "SparkApplicationId": self.application.attr_application_id,
            "SparkJobRoleArn": self.role.role_arn,
            "SparkEntryPoint": self._entry_point.s3_object_url,
            "SparkArchive": self._archive.s3_object_url,
        }

    def _code(self, project: Project) -> tuple[assets.Asset, assets.Asset]:
        """Return the entry point and the archive, or placeholders if they are not built."""
        archive = project.root / spark_archive.archive()
        if spark_archive.built(project.root) is None:
            refuse_deployment(self, "JobsArchive", REMEDY.format(project.command))
            archive = project.placeholder / "MISSING.md"
        entry_point = project.root / spark_archive.JOBS / ENTRY_POINT
        return (
            assets.Asset(self, "EntryPoint", path=str(entry_point)),
            assets.Asset(self, "Archive", path=str(archive)),
        )

    def _application(
        self, stage: Stage, wanted: Spark, group: ec2.ISecurityGroup
    ) -> emr.CfnApplication:
        app = emr.CfnApplication
        return app(
            self,
            "Application",
            name=f"extentflow-{stage.name}",
            type="SPARK",
            release_label=wanted.release_label,
            architecture=ARCHITECTURE,
            image_configuration=app.ImageConfigurationInputProperty(image_uri=wanted.image_uri)
            if wanted.image_uri
            else None,
            auto_start_configuration=app.AutoStartConfigurationProperty(enabled=True),
            auto_stop_configuration=app.AutoStopConfigurationProperty(
                enabled=True, idle_timeout_minutes=IDLE_MINUTES
            ),
            scheduler_configuration=app.SchedulerConfigurationProperty(
                # Every run gets a driver before an executor: too many concurrent runs would fill
                # the capacity with drivers, and none would make progress.
                max_concurrent_runs=wanted.most_runs,
                queue_timeout_minutes=QUEUE_MINUTES,
            ),
            maximum_capacity=app.MaximumAllowedResourcesProperty(
                cpu=f"{wanted.most_vcpu} vCPU",
                memory=f"{wanted.most_memory_gb} GB",
                disk=f"{wanted.most_disk_gb} GB",
            ),
            network_configuration=app.NetworkConfigurationProperty(
                security_group_ids=[group.security_group_id],
                subnet_ids=sorted(subnet.id for subnet in stage.spark_subnets),
            ),
            monitoring_configuration=app.MonitoringConfigurationProperty(
                cloud_watch_logging_configuration=app.CloudWatchLoggingConfigurationProperty(
                    enabled=True,
                    log_group_name=self._log.log_group_name,
                    log_stream_name_prefix="extentflow",
                    log_type_map=[
                        app.LogTypeMapKeyValuePairProperty(key=process, value=list(LOGGED))
                        for process in ("SPARK_DRIVER", "SPARK_EXECUTOR")
                    ],
                )
            ),
        )

    def _runs(self) -> iam.IPrincipal:
        """Return the principal that may assume the job role: runs of this application only."""
        return iam.ServicePrincipal(
            SERVICE,
            conditions={
                "StringEquals": {"aws:SourceAccount": Stack.of(self).account},
                "ArnEquals": {"aws:SourceArn": self.application.attr_arn},
            },
        )

    def _grants(self, context: StackContext) -> Iterator[Grant]:
        """Yield the permissions of a run: those of planner and worker without their queues."""
        stage = context.stage
        yield from self._fetch()
        yield context.ledger.work()
        yield context.ledger.claim()
        yield from context.ledger.find_jobs()
        yield from buckets.read(self, stage)
        yield from buckets.change(self, stage, context.connectors)
        yield from buckets.read_tags(self, context.connectors)
        yield from buckets.list_versions(self, stage.buckets)
        yield from broker.describe(stage.cluster)
        yield from broker.prepare(stage.cluster)
        yield from broker.deliver(
            stage.cluster,
            app_id=stage.worker_settings().app_id,
            topics=[topic for one in context.connectors for topic in one.topics],
        )
        yield from rights.publish_events(context)
        yield from rights.read_secrets(self, context, producer=True)
        yield from rights.authenticate(context)
        yield from rights.settle_schemas(self, context.connectors)
        yield from rights.encrypt_columns(self, context.connectors)
        yield from self._write_log()

    def _fetch(self) -> Iterator[Grant]:
        """Yield permission to read the stage's code, including that of earlier deployments."""
        folder, _, _ = self._archive.s3_object_key.rpartition("/")
        place = f"{self._archive.bucket.bucket_arn}/{folder}"
        yield Grant(
            "FetchCode",
            "driver and executors fetch entry point and archive",
            ("s3:GetObject",),
            tuple(f"{place}/*{suffix}" for suffix in (".py", ".tgz")),
            wildcard="runs started before a deployment continue with the code of that time",
        )

    def _write_log(self) -> Iterator[Grant]:
        """Yield permission to write the application's log through the VPC."""
        yield Grant(
            "WriteLog",
            "the output of driver and executors",
            ("logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"),
            (self._log.log_group_arn,),
            connects=frozenset({"logs"}),
        )
        yield Grant(
            "FindLog",
            "EMR checks that the log group exists before it writes",
            ("logs:DescribeLogGroups",),
            (
                Stack.of(self).format_arn(
                    service="logs",
                    resource="log-group",
                    resource_name="*",
                    arn_format=ArnFormat.COLON_RESOURCE_NAME,
                ),
            ),
            wildcard="DescribeLogGroups can only list all groups",
            connects=frozenset({"logs"}),
        )


def _ports(context: StackContext) -> frozenset[int]:
    """Return the ports of stores and services: HTTPS, and those that connectors name."""
    addresses = [urlsplit(address) for one in context.connectors for address in one.addresses]
    defaults = {"http": PLAIN_HTTP_PORT}
    return frozenset(
        {HTTPS_PORT} | {each.port or defaults.get(each.scheme, HTTPS_PORT) for each in addresses}
    )
