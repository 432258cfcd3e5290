"""Permissions of functions on the Kafka cluster, in MSK's terms."""

from collections.abc import Iterable, Iterator

from aws_cdk import Fn, Token

from extentflow.kafka import JOBS_TOPIC, PROGRESS_TOPIC, SCHEMAS_TOPIC

from . import encryption
from .config import Auth, Cluster
from .grants import Grant
from .secrets import PROVIDER

_MAKE = ("kafka-cluster:DescribeTopic", "kafka-cluster:CreateTopic")


def credentials(cluster: Cluster) -> Iterator[Grant]:
    """Yield permission to read the credentials for the brokers."""
    if cluster.secret_arn is not None:
        yield Grant(
            "ReadBrokerCredentials",
            "functions read the credentials for the brokers at run time",
            ("secretsmanager:GetSecretValue",),
            (cluster.secret_arn,),
        )
    if cluster.secret_key_arn is not None:
        used = Grant(
            "DecryptBrokerCredentials",
            "MSK requires that a customer managed key encrypts them",
            ("kms:Decrypt",),
            (cluster.secret_key_arn,),
        )
        yield from encryption.through(used, PROVIDER)


def describe(cluster: Cluster) -> Iterator[Grant]:
    """Yield permission to connect and to read the cluster's id."""
    if cluster.auth is Auth.IAM and cluster.arn is not None:
        yield Grant(
            "ConnectToCluster",
            "jobs contain the id of their target cluster",
            ("kafka-cluster:Connect", "kafka-cluster:DescribeCluster"),
            (cluster.arn,),
        )


def prepare(cluster: Cluster) -> Iterator[Grant]:
    """Yield permission to create the topics that delivery needs."""
    if cluster.auth is Auth.IAM and cluster.arn is not None:
        yield Grant(
            "MakeProgress",
            "the progress topic is created when it is missing",
            _MAKE,
            (_below(cluster.arn, "topic", PROGRESS_TOPIC),),
        )


def publish_job_events(cluster: Cluster) -> Iterator[Grant]:
    """Yield permission to publish job events."""
    if cluster.auth is Auth.IAM and cluster.arn is not None:
        yield Grant(
            "TellOfJobs",
            "job events go to a topic, which is created when it is missing",
            (*_MAKE, "kafka-cluster:WriteData"),
            (_below(cluster.arn, "topic", JOBS_TOPIC),),
        )
        yield _idempotent(cluster.arn)


def deliver(cluster: Cluster, *, app_id: str, topics: Iterable[str]) -> Iterator[Grant]:
    """Yield permission to own slots, and to commit records with their progress."""
    if cluster.auth is not Auth.IAM or cluster.arn is None:
        return
    written = sorted({*topics})
    yield Grant(
        "WriteRecords",
        "records go to the connectors' topics, whose limits are read",
        (
            "kafka-cluster:DescribeTopic",
            "kafka-cluster:DescribeTopicDynamicConfiguration",
            "kafka-cluster:WriteData",
        ),
        tuple(_below(cluster.arn, "topic", topic) for topic in written),
        wildcard="names of topics that depend on object keys are known only at run time",
    )
    yield Grant(
        "SettleSchemas",
        "schemas of columnar values are in a topic, which is created when it is missing",
        (*_MAKE, "kafka-cluster:ReadData", "kafka-cluster:WriteData"),
        (_below(cluster.arn, "topic", SCHEMAS_TOPIC),),
    )
    yield from own_slots(cluster, app_id=app_id)


def own_slots(cluster: Cluster, *, app_id: str) -> Iterator[Grant]:
    """Yield permission on transactional ids, groups and the progress topic, to fence and settle."""
    if cluster.auth is not Auth.IAM or cluster.arn is None:
        return
    yield Grant(
        "KeepProgress",
        "progress is a group's offset on this topic",
        ("kafka-cluster:DescribeTopic", "kafka-cluster:ReadData"),
        (_below(cluster.arn, "topic", PROGRESS_TOPIC),),
    )
    yield Grant(
        "OwnSlots",
        "every slot has a transactional id and a group of its own",
        (
            "kafka-cluster:DescribeTransactionalId",
            "kafka-cluster:AlterTransactionalId",
            "kafka-cluster:DescribeGroup",
            "kafka-cluster:AlterGroup",
        ),
        tuple(_below(cluster.arn, kind, f"{app_id}.*") for kind in ("transactional-id", "group")),
        wildcard="names of slots contain the ledger's identity, which the ledger generates",
    )


def _idempotent(cluster_arn: str) -> Grant:
    return Grant(
        "WriteIdempotently",
        "all producers are idempotent",
        ("kafka-cluster:WriteDataIdempotently",),
        (cluster_arn,),
    )


def _below(cluster_arn: str, kind: str, name: str) -> str:
    """Return MSK's ARN of a topic, group or transactional id: cluster/<name>/<id>/<resource>."""
    if Token.is_unresolved(cluster_arn):
        before, after = (Fn.select(part, Fn.split(":cluster/", cluster_arn)) for part in (0, 1))
        return f"{before}:{kind}/{after}/{name}"
    return cluster_arn.replace(":cluster/", f":{kind}/", 1) + f"/{name}"
