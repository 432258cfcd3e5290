"""What a stage needs of its account, as the template says it to `extentflow doctor --stage`."""

from collections.abc import Iterator, Sequence

from extentflow.services.planned import (
    PlannedBucket,
    PlannedCluster,
    PlannedKey,
    PlannedNetwork,
    PlannedSecret,
    PlannedSpark,
    PlannedStage,
    PlannedSubnet,
)

from . import config, secrets
from .announced import announced
from .config import BucketNotification, Front, Stage
from .config_spark import LEAST_PROCESSES, PROCESS
from .declared import DeclaredConnector


def plan(
    stage: Stage, connectors: Sequence[DeclaredConnector] = (), called: Sequence[str] = ()
) -> PlannedStage:
    """Return a stage as its account sees it, with the secrets of its connectors.

    `called` are the services that its functions and Spark call from the VPC.
    """
    receiver, cluster, spark = stage.receiver, stage.cluster, stage.spark
    return PlannedStage(
        name=stage.name,
        region=stage.region,
        account=stage.account,
        cluster=PlannedCluster(
            auth=str(cluster.auth),
            servers=tuple(f"{host}:{port}" for host, port in cluster.servers),
            arn=cluster.arn,
        ),
        network=_network(stage, stage.network, called) if stage.network else None,
        buckets=tuple(
            PlannedBucket(
                name=one.bucket.name,
                exists=one.bucket.exists,
                prefixes=() if one.by_events else one.prefixes,
                elsewhere=one.bucket.announced is BucketNotification.ELSEWHERE,
            )
            for one in announced(stage.buckets, connectors, stage.unmatched)
        ),
        spark=PlannedSpark(
            release_label=spark.release_label,
            quota_vcpu=spark.quota_vcpu,
            least_vcpu=LEAST_PROCESSES * PROCESS["most_vcpu"],
            processes=spark.processes,
        )
        if spark
        else None,
        invocations=stage.most_workers + stage.most_planners + config.OTHER_INVOCATIONS,
        least_invocations=2 * config.LEAST_CONCURRENCY + config.OTHER_INVOCATIONS,
        received=receiver.concurrency if receiver else 0,
        account_concurrency=stage.account_concurrency,
        access_log=receiver is not None and receiver.front is Front.HTTP,
        secrets=tuple(
            sorted(_secrets(stage, connectors), key=lambda one: (one.id, one.key_option))
        ),
        keys=tuple(_keys(stage)),
        topic=stage.alarm_topic_arn,
        event_bus=stage.event_bus,
        table=stage.table,
        assets_bucket=stage.assets_bucket,
    )


def _keys(stage: Stage) -> Iterator[PlannedKey]:
    """Yield the keys with the services that use them without a role of the stage."""
    buckets = (one.kms_key_arn for one in stage.buckets)
    given = (stage.kms_key_arn, *buckets, stage.cluster.secret_key_arn, *stage.secret_key_arns)
    ways = {one.announced for one in stage.buckets}
    # Events and notifications go to queues, alarms to a topic, lines to log groups.
    used = {
        "cloudwatch": stage.alarm_topic_arn is None,
        "events": bool(ways - {BucketNotification.DIRECT}),
        "logs": True,
        "s3": BucketNotification.DIRECT in ways,
    }
    own = tuple(service for service, uses in used.items() if uses)
    for arn in sorted({one for one in given if one}):
        yield PlannedKey(arn=arn, services=own if arn == stage.kms_key_arn else ())


def _secrets(stage: Stage, connectors: Sequence[DeclaredConnector]) -> Iterator[PlannedSecret]:
    """Yield secrets with their members, and the keys that all roles that read them get.

    The stage's key is for variables of functions, which are another encryption context.
    """
    texts = (text for one in connectors for text in one.config.values())
    members = secrets.members((*stage.given_settings().values(), *texts))

    def planned(name: str, keys: set[str], option: str) -> PlannedSecret:
        own = members.get(name, ())
        return PlannedSecret(id=name, keys=tuple(sorted(keys)), key_option=option, members=own)

    shared, receiver = {*stage.secret_key_arns}, stage.receiver
    if receiver is not None:
        yield planned(receiver.secret_arn, shared, "secret_key_arns")
    brokers = {one for one in (stage.cluster.secret_key_arn,) if one}
    by_all = secrets.referred(stage.settings).union(
        *(one.secrets(producer=False) for one in connectors)
    )
    named = by_all.union(*(one.secrets(producer=True) for one in connectors))
    if stage.cluster.secret_arn is not None:
        # The roles of planner and reconciler have shared keys only if they read such secrets.
        found = brokers | shared if by_all else brokers
        yield planned(stage.cluster.secret_arn, found, "cluster.secret_key_arn")
    for name in named:
        yield planned(name, shared | brokers, "secret_key_arns")


def _network(stage: Stage, network: config.Network, called: Sequence[str]) -> PlannedNetwork:
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
        called=tuple(called),
        nat=network.nat,
        vpc_cidrs=network.vpc_cidrs,
        function_subnets=tuple(one.id for one in network.placed(config.FUNCTIONS)),
        spark_subnets=tuple(one.id for one in stage.spark_subnets),
    )
