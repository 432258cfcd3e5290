"""The EMR Serverless application of Spark jobs: large objects and backfills.

Owns: the application, its job role, its place in the network, its log, where runs find their code.
Refuses to know: who decides that an object goes to Spark, what a run does, what is in the archive
(`layers/spark/recipe.py`).

    planner ──StartJobRun──> application ──job role──> ledger, stores, brokers, secrets
                                  │                    code: the entry point, the archive
                                  └──run ended──> reconciler

Nothing runs while there is no run: no capacity is kept, the application stops by itself.
"""

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_emrserverless as emr
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as assets
from constructs import Construct
from layers.spark import recipe

from infra import broker, buckets, rights
from infra.config_spark import Spark
from infra.functions import LOGS_KEPT, METRICS_NAMESPACE
from infra.grants import Grant, role
from infra.missing import refuse_deployment
from infra.network import HTTPS_PORT, Network
from infra.project import Project
from infra.surroundings import Surroundings

SERVICE = "emr-serverless.amazonaws.com"
ARCHITECTURE = recipe.MACHINE.shown.upper()
IDLE_MINUTES = 15
QUEUE_MINUTES = 720  # the most that there is; then the run ends, and functions go on
ENDED = ("SUCCESS", "FAILED", "CANCELLED")
LOGGED = ("STDOUT", "STDERR")
ENTRY_POINT = "spark_ingest.py"
PLAIN_HTTP_PORT = 80

REMEDY = (
    "the archive of Spark jobs is missing or was built from other pins or code;"
    " run `make spark-archive`"
)


class SparkApplication(Construct):
    """The application, the one role of its runs, and the code that they are started with.

    `settings` are for who starts runs, `start` what it may do for that, `ended` the events of runs
    that are over.
    """

    def __init__(self, scope: Construct, construct_id: str, *, around: Surroundings) -> None:
        super().__init__(scope, construct_id)
        wanted, network = around.stage.spark, around.network
        if wanted is None or network is None:
            raise TypeError("a stage without spark and network has no application")
        self._threshold_bytes = wanted.threshold_bytes
        self._timeout_minutes = wanted.timeout_minutes
        self._entry_point, self._archive = self._code(around.project)
        self._log = logs.LogGroup(
            self, "Log", retention=LOGS_KEPT, removal_policy=RemovalPolicy.DESTROY
        )
        group = network.admit(self, "Spark jobs of extentflow", ports=_ports(around))
        self.application = self._application(around.stage.name, wanted, network, group)
        own = tuple(self._grants(around))
        network.place("spark", own)
        self.role = role(
            self,
            description="Delivers large objects on Spark",
            assumed_by=self._runs(),
            grants=own,
            policy_name="Job",
        )

    @property
    def ended(self) -> events.EventPattern:
        """What EventBridge hears when a run of this application is over."""
        return events.EventPattern(
            source=["aws.emr-serverless"],
            detail_type=["EMR Serverless Job Run State Change"],
            detail={"applicationId": [self.application.attr_application_id], "state": list(ENDED)},
        )

    def settings(self) -> Mapping[str, str]:
        """Return what who starts runs has to know, as worker settings by their keys."""
        return {
            "spark.application.id": self.application.attr_application_id,
            "spark.job.role.arn": self.role.role_arn,
            "spark.entry.point": self._entry_point.s3_object_url,
            "spark.archive": self._archive.s3_object_url,
            "spark.threshold.bytes": f"{self._threshold_bytes}",
            "spark.timeout.minutes": f"{self._timeout_minutes}",
        }

    def start(self) -> Iterator[Grant]:
        """Yield leave to start runs, in the name of this role alone."""
        yield Grant(
            "StartRuns",
            "large objects and backfills are delivered by Spark",
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
        """Return leave to ask where runs stand."""
        return Grant(
            "LookAtRuns",
            "what a run has is left to it, until it ends",
            ("emr-serverless:GetJobRun",),
            (f"{self.application.attr_arn}/jobruns/*",),
            wildcard="runs have no names before they begin",
        )

    def outputs(self) -> Mapping[str, str]:
        """Return what the command line has to know to start runs itself."""
        return {
            "SparkApplicationId": self.application.attr_application_id,
            "SparkJobRoleArn": self.role.role_arn,
            "SparkEntryPoint": self._entry_point.s3_object_url,
            "SparkArchive": self._archive.s3_object_url,
        }

    def _code(self, project: Project) -> tuple[assets.Asset, assets.Asset]:
        """Return the entry point and the archive, or a placeholder of one that is not built."""
        archive = project.root / recipe.archive()
        if recipe.built(project.root) is None:
            refuse_deployment(self, "JobsArchive", REMEDY)
            archive = project.placeholder / "MISSING.md"
        entry_point = project.root / recipe.JOBS / ENTRY_POINT
        return (
            assets.Asset(self, "EntryPoint", path=str(entry_point)),
            assets.Asset(self, "Archive", path=str(archive)),
        )

    def _application(
        self, stage: str, wanted: Spark, network: Network, group: ec2.ISecurityGroup
    ) -> emr.CfnApplication:
        app = emr.CfnApplication
        return app(
            self,
            "Application",
            name=f"extentflow-{stage}",
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
                # Every run has a driver before it has an executor: too many at once hold all there
                # is, and none gets on.
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
                subnet_ids=[subnet.subnet_id for subnet in network.vpc.private_subnets],
            ),
            monitoring_configuration=app.MonitoringConfigurationProperty(
                cloud_watch_logging_configuration=app.CloudWatchLoggingConfigurationProperty(
                    enabled=True,
                    log_group_name=self._log.log_group_name,
                    log_stream_name_prefix=METRICS_NAMESPACE,
                    log_type_map=[
                        app.LogTypeMapKeyValuePairProperty(key=process, value=list(LOGGED))
                        for process in ("SPARK_DRIVER", "SPARK_EXECUTOR")
                    ],
                )
            ),
        )

    def _runs(self) -> iam.IPrincipal:
        """Return who may take the job role on: runs of this application, for nobody else."""
        return iam.ServicePrincipal(
            SERVICE,
            conditions={
                "StringEquals": {"aws:SourceAccount": Stack.of(self).account},
                "ArnEquals": {"aws:SourceArn": self.application.attr_arn},
            },
        )

    def _grants(self, around: Surroundings) -> Iterator[Grant]:
        """Yield what a run may do: what planner and worker may, apart from their queues."""
        stage = around.stage
        yield from self._fetch()
        yield around.ledger.work()
        yield around.ledger.claim()
        yield from around.ledger.find_jobs()
        yield from buckets.read(self, stage.buckets)
        yield from buckets.list_versions(self, stage.buckets)
        yield from broker.describe(stage.cluster)
        yield from broker.prepare(stage.cluster)
        yield from broker.deliver(
            stage.cluster,
            app_id=stage.worker_settings().app_id,
            topics=[topic for one in around.connectors for topic in one.topics],
        )
        yield from rights.tell(around)
        yield from rights.look_up(self, around, producer=True)
        yield from rights.enter(around)
        yield from self._write_log()

    def _fetch(self) -> Iterator[Grant]:
        """Yield leave to fetch the code, also that of the deployments before."""
        bucket = self._archive.bucket.bucket_arn
        yield Grant(
            "FetchCode",
            "driver and executors fetch entry point and archive",
            ("s3:GetObject",),
            tuple(f"{bucket}/*{suffix}" for suffix in (".py", ".tgz")),
            wildcard="runs that were begun before a deployment go on with the code of then",
        )

    def _write_log(self) -> Iterator[Grant]:
        """Yield leave to write the application's log, through the VPC: EMR acts for the run."""
        yield Grant(
            "WriteLog",
            "what driver and executors print",
            ("logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"),
            (self._log.log_group_arn,),
            connects=frozenset({"logs"}),
        )
        yield Grant(
            "FindLog",
            "EMR looks for the log group before it writes",
            ("logs:DescribeLogGroups",),
            (Stack.of(self).format_arn(service="logs", resource="log-group", resource_name="*"),),
            wildcard="groups are looked for in a list of all",
            connects=frozenset({"logs"}),
        )


def _ports(around: Surroundings) -> frozenset[int]:
    """Return the ports of stores and services: HTTPS, and where connectors' endpoints listen."""
    addresses = [
        urlsplit(one.checked.endpoint) for one in around.connectors if one.checked.endpoint
    ]
    defaults = {"http": PLAIN_HTTP_PORT}
    return frozenset(
        {HTTPS_PORT} | {each.port or defaults.get(each.scheme, HTTPS_PORT) for each in addresses}
    )
