"""The stages that can be deployed; replace these examples with your own."""

from infra.config import Auth, Bucket, Cluster, Network, Receiver, Stage, Subnet
from infra.config_spark import Spark

_DEV = Stage(
    name="dev",
    region="eu-central-1",
    app_id="extentflow-dev",
    buckets=(Bucket(name="extentflow-dev-landing"),),
    cluster=Cluster(
        bootstrap_servers=(
            "b-1.dev.abc123.c2.kafka.eu-central-1.amazonaws.com:9098,"
            "b-2.dev.abc123.c2.kafka.eu-central-1.amazonaws.com:9098"
        ),
        auth=Auth.IAM,
        arn=(
            "arn:aws:kafka:eu-central-1:111122223333:cluster/dev/"
            "11111111-2222-3333-4444-555555555555-2"
        ),
    ),
    network=Network(
        vpc_id="vpc-0a1b2c3d4e5f60718",
        subnets=(
            Subnet(
                id="subnet-0a1b2c3d4e5f60001",
                availability_zone="eu-central-1a",
                route_table_id="rtb-0a1b2c3d4e5f60001",
            ),
            Subnet(
                id="subnet-0a1b2c3d4e5f60002",
                availability_zone="eu-central-1b",
                route_table_id="rtb-0a1b2c3d4e5f60002",
            ),
        ),
        cluster_security_group_id="sg-0a1b2c3d4e5f60718",
        endpoints=("s3", "dynamodb", "sqs", "events", "logs", "emr-serverless"),
        vpc_cidrs=("10.0.0.0/16",),
    ),
    spark=Spark(),
    spark_cores=16,
    receiver=Receiver(
        secret_arn=(  # noqa: S106 - the secret's name, not the secret
            "arn:aws:secretsmanager:eu-central-1:111122223333:secret:extentflow/dev/sources-AbCdEf"
        )
    ),
)

STAGES = (_DEV,)
