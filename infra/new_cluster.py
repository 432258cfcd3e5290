"""An MSK cluster of the stack: brokers, their group, and where clients reach them.

CloudFormation does not know the bootstrap brokers of a cluster that it created. A custom resource
asks for them, with permission for this one call on this one cluster.

The cluster and its records stay without the stack, and so does the group that its brokers use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aws_cdk import CfnResource, Duration, RemovalPolicy, Stack, custom_resources
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_msk as msk
from constructs import Construct

from . import config
from .config_cluster import ZONES, NewCluster
from .findings import explain
from .functions import answer_within, write
from .grants import Grant, role
from .kept_logs import KeptLogs

# What exactly-once needs of standard brokers: what a transaction acknowledged survives the loss of
# a zone, and a replica that lacks it never leads. Express brokers have the same, unchangeably.
PROPERTIES = """\
auto.create.topics.enable=false
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
transaction.state.log.min.isr=2
transaction.state.log.replication.factor=3
unclean.leader.election.enable=false
"""
ANSWERED_WITHIN = Duration.minutes(5)
ASKS = "GetBootstrapBrokers"
ANSWER = "BootstrapBrokerStringSaslIam"


class Brokers(Construct):
    """The cluster of a stage that has none yet."""

    def __init__(
        self, scope: Construct, construct_id: str, *, stage: config.Stage, logs: KeptLogs
    ) -> None:
        super().__init__(scope, construct_id)
        settings, network = stage.cluster.created, stage.network
        if settings is None or network is None:
            raise TypeError("a stage with a cluster of its own has one elsewhere")
        name = f"extentflow-{stage.name}"
        group = ec2.CfnSecurityGroup(
            self,
            "Group",
            group_description=f"Brokers of {name}",
            vpc_id=network.vpc_id,
            # Brokers connect to nothing in the VPC. Without any rule, AWS would allow all traffic.
            security_group_egress=[
                ec2.CfnSecurityGroup.EgressProperty(
                    ip_protocol="icmp",
                    cidr_ip="255.255.255.255/32",
                    from_port=252,
                    to_port=86,
                    description="Disallow all traffic",
                )
            ],
        )
        self.group_id = group.attr_group_id
        cluster = msk.CfnCluster(
            self,
            "Cluster",
            cluster_name=name,
            kafka_version=settings.kafka_version,
            number_of_broker_nodes=ZONES * settings.brokers_per_zone,
            broker_node_group_info=msk.CfnCluster.BrokerNodeGroupInfoProperty(
                client_subnets=_one_per_zone(network.subnets),
                instance_type=settings.instance,
                security_groups=[self.group_id],
                storage_info=_storage(settings),
            ),
            client_authentication=msk.CfnCluster.ClientAuthenticationProperty(
                sasl=msk.CfnCluster.SaslProperty(iam=msk.CfnCluster.IamProperty(enabled=True)),
                unauthenticated=msk.CfnCluster.UnauthenticatedProperty(enabled=False),
            ),
            configuration_info=None if settings.express else self._configuration(name),
            encryption_info=msk.CfnCluster.EncryptionInfoProperty(
                encryption_at_rest=msk.CfnCluster.EncryptionAtRestProperty(
                    data_volume_kms_key_id=stage.kms_key_arn
                )
                if stage.kms_key_arn
                else None,
                encryption_in_transit=msk.CfnCluster.EncryptionInTransitProperty(
                    client_broker="TLS", in_cluster=True
                ),
            ),
            enhanced_monitoring=settings.monitoring,
            logging_info=msk.CfnCluster.LoggingInfoProperty(
                broker_logs=msk.CfnCluster.BrokerLogsProperty(
                    cloud_watch_logs=msk.CfnCluster.CloudWatchLogsProperty(
                        enabled=True,
                        log_group=logs.delivered(self, "Log", part="/brokers").log_group_name,
                    )
                )
            ),
        )
        _keep(group, cluster)
        self.arn = cluster.attr_arn
        self.servers = self._ask(settings, logs)

    def known(self, stage: config.Stage) -> config.Stage:
        """Return the stage with what its resources need of the cluster; brokers come later."""
        if stage.network is None:
            raise TypeError("a stage with a cluster of its own has a network")
        return replace(
            stage,
            cluster=replace(stage.cluster, arn=self.arn),
            network=replace(stage.network, cluster_security_group_id=self.group_id),
        )

    def outputs(self) -> Mapping[str, str]:
        """Return what people need to create topics, and to admit other clients."""
        return {
            "BootstrapServers": self.servers,
            "BrokersSecurityGroupId": self.group_id,
            "ClusterArn": self.arn,
        }

    def _configuration(self, name: str) -> msk.CfnCluster.ConfigurationInfoProperty:
        # Without versions: other ones would replace it, which needs another name.
        made = msk.CfnConfiguration(
            self,
            "Configuration",
            name=name,
            description="What exactly-once delivery needs",
            server_properties=PROPERTIES,
        )
        _keep(made)
        return msk.CfnCluster.ConfigurationInfoProperty(
            arn=made.attr_arn,
            revision=made.attr_latest_revision_revision,
        )

    def _ask(self, settings: NewCluster, logs: KeptLogs) -> str:
        """Return the bootstrap brokers, asked for again when their number changes."""
        log = logs.group(self, "AskLog")
        asks = role(
            self,
            description="Asks MSK for the bootstrap brokers",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            grants=(
                Grant(
                    "AskForBrokers",
                    "CloudFormation does not know the bootstrap brokers",
                    (f"kafka:{ASKS}",),
                    (self.arn,),
                ),
                write(log),
            ),
            policy_name="Function",
        )
        call = custom_resources.AwsSdkCall(
            service="Kafka",
            action=ASKS,
            parameters={"ClusterArn": self.arn},
            output_paths=[ANSWER],
            physical_resource_id=custom_resources.PhysicalResourceId.of(
                f"brokers-{settings.brokers_per_zone}-{settings.instance}"
            ),
        )
        found = custom_resources.AwsCustomResource(
            self,
            "Ask",
            on_create=call,
            on_update=call,
            role=asks.without_policy_updates(),
            log_group=log,
            install_latest_aws_sdk=False,
            service_timeout=ANSWERED_WITHIN,
        )
        number = custom_resources.AwsCustomResource.PROVIDER_FUNCTION_UUID.replace("-", "")
        function = Stack.of(self).node.find_child(f"AWS{number}")
        if not isinstance(function, lambda_.Function):
            raise TypeError(f"{function.node.path}: CDK's custom resource is no longer a function")
        explain(function, "AwsSolutions-L1", "CDK chooses the runtime of its own function")
        answer_within(self, function.function_name, period=ANSWERED_WITHIN)
        return found.get_response_field(ANSWER)


def _one_per_zone(subnets: Sequence[config.Subnet]) -> list[str]:
    """Return the first subnet of each zone: one that is added later replaces no cluster."""
    first = {one.availability_zone: one.id for one in reversed(subnets)}
    return [one.id for one in subnets if one.id in first.values()]


def _storage(settings: NewCluster) -> msk.CfnCluster.StorageInfoProperty | None:
    if settings.express:
        return None
    return msk.CfnCluster.StorageInfoProperty(
        ebs_storage_info=msk.CfnCluster.EBSStorageInfoProperty(volume_size=settings.storage_gib)
    )


def _keep(*resources: CfnResource) -> None:
    for one in resources:
        one.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
