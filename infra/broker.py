"""The way to Kafka: what functions may do there.

Owns: MSK's names for rights and resources. Refuses to know: what is sent; networks (`network`), how
functions prove who they are (`config`).
"""

from collections.abc import Iterable, Iterator

from extentflow.sink import JOBS_TOPIC, PROGRESS_TOPIC
from infra.config import Auth, Cluster
from infra.grants import Grant

_MAKE = ("kafka-cluster:DescribeTopic", "kafka-cluster:CreateTopic")


def credentials(cluster: Cluster) -> Iterator[Grant]:
    """Yield leave to look the credentials up."""
    if cluster.secret_arn is not None:
        yield Grant(
            "ReadBrokerCredentials",
            "the credentials for the brokers are looked up where they are used",
            ("secretsmanager:GetSecretValue",),
            (cluster.secret_arn,),
        )
    if cluster.secret_key_arn is not None:
        yield Grant(
            "DecryptBrokerCredentials",
            "they are encrypted with a key of your own, as MSK wants it",
            ("kms:Decrypt",),
            (cluster.secret_key_arn,),
        )


def describe(cluster: Cluster) -> Iterator[Grant]:
    """Yield leave to connect, and to ask for the cluster's id."""
    if cluster.auth is Auth.IAM and cluster.arn is not None:
        yield Grant(
            "ConnectToCluster",
            "jobs carry the id of the cluster that they deliver to",
            ("kafka-cluster:Connect", "kafka-cluster:DescribeCluster"),
            (cluster.arn,),
        )


def prepare(cluster: Cluster) -> Iterator[Grant]:
    """Yield leave to make what delivering needs, before anybody delivers."""
    if cluster.auth is Auth.IAM and cluster.arn is not None:
        yield Grant(
            "MakeProgress",
            "the topic of progress is made when it is missing",
            _MAKE,
            (_below(cluster.arn, "topic", PROGRESS_TOPIC),),
        )


def tell_of_jobs(cluster: Cluster) -> Iterator[Grant]:
    """Yield leave to write the events of jobs that ended."""
    if cluster.auth is Auth.IAM and cluster.arn is not None:
        yield Grant(
            "TellOfJobs",
            "every job's end is told on a topic, which is made when it is missing",
            (*_MAKE, "kafka-cluster:WriteData"),
            (_below(cluster.arn, "topic", JOBS_TOPIC),),
        )
        yield _idempotent(cluster.arn)


def deliver(cluster: Cluster, *, app_id: str, topics: Iterable[str]) -> Iterator[Grant]:
    """Yield leave to own slots and to commit records with their progress."""
    if cluster.auth is not Auth.IAM or cluster.arn is None:
        return
    written = sorted({*topics})
    yield Grant(
        "WriteRecords",
        "records go to the connectors' topics, whose limits are asked for",
        (
            "kafka-cluster:DescribeTopic",
            "kafka-cluster:DescribeTopicDynamicConfiguration",
            "kafka-cluster:WriteData",
        ),
        tuple(_below(cluster.arn, "topic", topic) for topic in written),
        wildcard="topics that are made from objects' keys are known only then",
    )
    yield from own_slots(cluster, app_id=app_id)


def own_slots(cluster: Cluster, *, app_id: str) -> Iterator[Grant]:
    """Yield leave to fence and settle slots: transactional ids, groups, the topic of progress."""
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
        wildcard="slots are named after the ledger's identity, which the ledger makes itself",
    )


def _idempotent(cluster_arn: str) -> Grant:
    return Grant(
        "WriteIdempotently",
        "no producer of ours writes anything twice",
        ("kafka-cluster:WriteDataIdempotently",),
        (cluster_arn,),
    )


def _below(cluster_arn: str, kind: str, name: str) -> str:
    """Return MSK's name of a topic, group or transactional id: cluster/<name>/<id> with its own."""
    return cluster_arn.replace(":cluster/", f":{kind}/", 1) + f"/{name}"
