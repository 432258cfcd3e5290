"""What a stage needs of its account, as the template says it to `extentflow doctor --stage`."""

from collections.abc import Sequence

from extentflow.services.planned import (
    PlannedBucket,
    PlannedCluster,
    PlannedNetwork,
    PlannedSpark,
    PlannedStage,
    PlannedSubnet,
)

from . import config, secrets
from .config import BucketNotification, Front, Stage
from .declared import DeclaredConnector


def plan(stage: Stage, connectors: Sequence[DeclaredConnector] = ()) -> PlannedStage:
    """Return a stage as its account sees it, with the secrets of its connectors."""
    receiver, cluster, spark = stage.receiver, stage.cluster, stage.spark
    buckets = (one.kms_key_arn for one in stage.buckets)
    keys = (stage.kms_key_arn, *buckets, cluster.secret_key_arn)
    named = {
        *(one for one in (cluster.secret_arn, receiver.secret_arn if receiver else None) if one),
        *secrets.referred(stage.settings),
        *(name for one in connectors for name in one.secrets(producer=True)),
    }
    return PlannedStage(
        name=stage.name,
        region=stage.region,
        account=stage.account,
        cluster=PlannedCluster(
            auth=str(cluster.auth),
            servers=tuple(f"{host}:{port}" for host, port in cluster.servers),
            arn=cluster.arn,
        ),
        network=_network(stage, stage.network) if stage.network else None,
        buckets=tuple(
            PlannedBucket(
                name=one.name,
                exists=one.exists,
                direct=one.announced is BucketNotification.DIRECT,
            )
            for one in stage.buckets
            if one.announced is not BucketNotification.ELSEWHERE  # the stack changes nothing of it
        ),
        spark=PlannedSpark(
            release_label=spark.release_label,
            quota_vcpu=spark.quota_vcpu,
            processes=spark.processes,
        )
        if spark
        else None,
        invocations=stage.most_workers + stage.most_planners + config.OTHER_INVOCATIONS,
        received=receiver.concurrency if receiver else 0,
        account_concurrency=stage.account_concurrency,
        access_log=receiver is not None and receiver.front is Front.HTTP,
        secrets=tuple(
            one for one in sorted(named) if secrets.region_of(one) in {None, stage.region}
        ),
        keys=tuple(sorted({*stage.secret_key_arns, *(one for one in keys if one)})),
        topic=stage.alarm_topic_arn,
        event_bus=stage.event_bus,
        table=stage.table,
    )


def _network(stage: Stage, network: config.Network) -> PlannedNetwork:
    return PlannedNetwork(
        vpc_id=network.vpc_id,
        cluster_security_group_id=network.cluster_security_group_id,
        client_security_group_id=network.client_security_group_id,
        subnets=tuple(
            PlannedSubnet(
                id=one.id,
                availability_zone=one.availability_zone,
                zone_id=one.zone_id,
                route_table_id=one.route_table_id,
            )
            for one in network.subnets
        ),
        gateways=tuple(one for one in network.created if one in config.GATEWAYS),
        interfaces={
            one: tuple(sorted(subnet.id for subnet in stage.endpoint_subnets(one)))
            for one in network.created
            if one not in config.GATEWAYS
        },
        existing_endpoints=network.existing_endpoints,
        nat=network.nat,
        vpc_cidrs=network.vpc_cidrs,
        function_subnets=tuple(one.id for one in network.placed(config.FUNCTIONS)),
        spark_subnets=tuple(one.id for one in stage.spark_subnets),
    )
