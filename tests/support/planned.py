"""The example stage of the project, as its synthesised template describes it to checks."""

from extentflow.services.planned import (
    PlannedBucket,
    PlannedCluster,
    PlannedNetwork,
    PlannedSecret,
    PlannedSpark,
    PlannedStage,
    PlannedSubnet,
)

SUBNETS = ("subnet-0a1b2c3d4e5f60001", "subnet-0a1b2c3d4e5f60002")
KINDS = (
    "AWS::ApiGatewayV2::Api",
    "AWS::CloudWatch::Alarm",
    "AWS::DynamoDB::Table",
    "AWS::EC2::VPCEndpoint",
    "AWS::IAM::Role",
    "AWS::Lambda::Function",
    "AWS::SNS::Topic",
)

DEV = PlannedStage(
    name="dev",
    region="eu-central-1",
    account=None,
    cluster=PlannedCluster(
        auth="iam",
        servers=(
            "b-1.dev.abc123.c2.kafka.eu-central-1.amazonaws.com:9098",
            "b-2.dev.abc123.c2.kafka.eu-central-1.amazonaws.com:9098",
        ),
        arn=(
            "arn:aws:kafka:eu-central-1:111122223333:cluster/dev/"
            "11111111-2222-3333-4444-555555555555-2"
        ),
    ),
    network=PlannedNetwork(
        vpc_id="vpc-0a1b2c3d4e5f60718",
        cluster_security_group_id="sg-0a1b2c3d4e5f60718",
        client_security_group_id="",
        subnets=(
            PlannedSubnet(
                id=SUBNETS[0],
                availability_zone="eu-central-1a",
                zone_id=None,
                route_table_id="rtb-0a1b2c3d4e5f60001",
            ),
            PlannedSubnet(
                id=SUBNETS[1],
                availability_zone="eu-central-1b",
                zone_id=None,
                route_table_id="rtb-0a1b2c3d4e5f60002",
            ),
        ),
        gateways=("s3", "dynamodb"),
        interfaces=dict.fromkeys(("sqs", "events", "logs", "emr-serverless"), SUBNETS),
        existing_endpoints=(),
        called=("dynamodb", "emr-serverless", "events", "glue", "logs", "s3", "sqs"),
        nat=False,
        vpc_cidrs=("10.0.0.0/16",),
        function_subnets=SUBNETS,
        spark_subnets=SUBNETS,
    ),
    buckets=(
        PlannedBucket(name="extentflow-dev-landing", exists=False, prefixes=(), elsewhere=False),
    ),
    spark=PlannedSpark(release_label="emr-spark-8.0.0", quota_vcpu=16, least_vcpu=12, processes=4),
    invocations=115,
    least_invocations=14,
    received=20,
    account_concurrency=1_000,
    access_log=True,
    secrets=(
        PlannedSecret(
            id="arn:aws:secretsmanager:eu-central-1:111122223333:secret:extentflow/dev/sources-AbCdEf",
            keys=(),
            key_option="secret_key_arns",
            members=(),
        ),
    ),
    keys=(),
    topic=None,
    event_bus="default",
    table=None,
    resources=KINDS,
    bootstrap="/cdk-bootstrap/hnb659fds/version",
)
