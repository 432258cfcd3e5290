"""Spark in the stack: one application that costs nothing when idle, one role, its code, its way."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from aws_cdk.assertions import Template
from hypothesis import given
from hypothesis import strategies as st
from infra.config import Stage, Subnet
from infra.config_spark import Spark
from infra.recipes import spark_archive
from tests.infra.conftest import Templates
from tests.support.synthesis import (
    CLUSTER_ARN,
    EXISTING,
    IN_A_VPC,
    ON_SPARK,
    PLAIN,
    Bench,
    actions,
    allowed,
    environment,
    function,
    of_type,
    rejected,
    statements,
    yaml_of,
)

from extentflow.errors import Misconfigured
from extentflow_local.aws.emr import events
from extentflow_local.aws.event_path import ELSEWHERE
from extentflow_local.aws.event_source.names import TemplateContext
from extentflow_local.aws.event_source.patterns import wants
from extentflow_local.aws.event_source.template import read_document

ENDPOINT = "AWS::EC2::VPCEndpoint"
APPLICATION = "AWS::EMRServerless::Application"
IMAGE = "111122223333.dkr.ecr.eu-central-1.amazonaws.com/spark:1"
GROUP = "AWS::EC2::SecurityGroup"
SERVICE = "emr-serverless.amazonaws.com"
LEDGER = {"dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"}
OBJECTS = {"s3:GetObject", "s3:GetObjectVersion", "s3:ListBucket"}
LOG = {"logs:CreateLogStream", "logs:PutLogEvents"}
KAFKA = {
    "kafka-cluster:AlterGroup",
    "kafka-cluster:AlterTransactionalId",
    "kafka-cluster:Connect",
    "kafka-cluster:CreateTopic",
    "kafka-cluster:DescribeCluster",
    "kafka-cluster:DescribeGroup",
    "kafka-cluster:DescribeTopic",
    "kafka-cluster:DescribeTopicDynamicConfiguration",
    "kafka-cluster:DescribeTransactionalId",
    "kafka-cluster:ReadData",
    "kafka-cluster:WriteData",
    "kafka-cluster:WriteDataIdempotently",
}


def only(template: Template, kind: str) -> tuple[str, dict[str, Any]]:
    """Return logical id and properties of the one resource of that kind."""
    ((name, properties),) = of_type(template, kind).items()
    return name, properties


def job_role(template: Template) -> tuple[str, dict[str, Any]]:
    """Return logical id and properties of the role that runs have."""
    for name, role in of_type(template, "AWS::IAM::Role").items():
        (trusted,) = role["AssumeRolePolicyDocument"]["Statement"]
        if trusted["Principal"] == {"Service": SERVICE}:
            return name, role
    raise LookupError("no role of Spark jobs")


def group(template: Template) -> tuple[str, dict[str, Any]]:
    """Return logical id and properties of the application's security group."""
    ((asked,),) = [
        application["NetworkConfiguration"]["SecurityGroupIds"]
        for application in of_type(template, APPLICATION).values()
    ]
    name = asked["Fn::GetAtt"][0]
    return name, of_type(template, GROUP)[name]


def problems(stage: Stage) -> tuple[str, ...]:
    with pytest.raises(Misconfigured) as caught:
        stage.check()
    return caught.value.problems


def sized(**changes: Any) -> Stage:  # noqa: ANN401 - fields of Spark
    return replace(ON_SPARK, spark=replace(Spark(), **changes))


# -- the application ------------------------------------------------------------------------------


def test_the_application_is_bounded_keeps_no_capacity_and_stops_by_itself(
    templates: Templates,
) -> None:
    _, application = only(templates("spark"), APPLICATION)

    assert application["Type"] == "SPARK"
    assert application["ReleaseLabel"] == "emr-spark-8.0.0"
    assert application["Architecture"] == "ARM64"
    assert application["MaximumCapacity"] == {
        "Cpu": "16 vCPU",
        "Memory": "64 GB",
        "Disk": "80 GB",
    }
    # Of four drivers and executors; each run has three at least.
    assert application["SchedulerConfiguration"] == {
        "MaxConcurrentRuns": 1,
        "QueueTimeoutMinutes": 720,
    }
    assert "InitialCapacity" not in application
    assert application["AutoStartConfiguration"] == {"Enabled": True}
    assert application["AutoStopConfiguration"] == {"Enabled": True, "IdleTimeoutMinutes": 15}


def test_capacity_and_release_are_the_stages(bench: Bench) -> None:
    asked = replace(
        Spark(), release_label="emr-7.12.0", image_uri=IMAGE, most_vcpu=12, most_memory_gb=48
    )

    _, application = only(bench.template(replace(ON_SPARK, spark=asked)), APPLICATION)

    assert application["MaximumCapacity"] == {"Cpu": "12 vCPU", "Memory": "48 GB", "Disk": "80 GB"}
    assert application["ReleaseLabel"] == "emr-7.12.0"
    assert application["ImageConfiguration"] == {"ImageUri": IMAGE}
    assert application["SchedulerConfiguration"]["MaxConcurrentRuns"] == 1


@pytest.mark.parametrize(
    ("changes", "runs"),
    [
        ({"most_vcpu": 400, "most_memory_gb": 1_600, "most_disk_gb": 2_000}, 15),
        ({"most_vcpu": 64, "most_memory_gb": 96, "most_disk_gb": 320}, 2),
        ({}, 1),
    ],
)
def test_no_more_runs_than_have_room_for_executors(changes: dict[str, Any], runs: int) -> None:
    assert replace(Spark(), **changes).most_runs == runs


@given(
    st.builds(
        Spark,
        most_vcpu=st.integers(12, 4_000),
        most_memory_gb=st.integers(48, 16_000),
        most_disk_gb=st.integers(60, 20_000),
    )
)
def test_drivers_of_all_runs_leave_two_executors_to_each(spark: Spark) -> None:
    drivers = spark.most_runs

    assert spark.processes - drivers >= 2 * drivers


def test_driver_and_executors_write_one_log_that_ends(templates: Templates) -> None:
    template = templates("spark")
    _, application = only(template, APPLICATION)

    log = application["MonitoringConfiguration"]["CloudWatchLoggingConfiguration"]

    assert log["Enabled"] is True
    kept = of_type(template, "AWS::Logs::LogGroup")[log["LogGroupName"]["Ref"]]
    assert kept["RetentionInDays"] == 30
    assert {one["Key"]: set(one["Value"]) for one in log["LogTypeMap"]} == {
        "SPARK_DRIVER": {"STDOUT", "STDERR"},
        "SPARK_EXECUTOR": {"STDOUT", "STDERR"},
    }


def test_the_archive_is_for_the_applications_machine(templates: Templates) -> None:
    _, application = only(templates("spark"), APPLICATION)

    assert application["Architecture"].lower() == spark_archive.MACHINE.shown


# -- the network ----------------------------------------------------------------------------------


def test_runs_stand_in_the_brokers_subnets_with_a_group_of_their_own(templates: Templates) -> None:
    template = templates("spark")
    _, application = only(template, APPLICATION)
    functions = function(template, "worker")["VpcConfig"]

    assert application["NetworkConfiguration"]["SubnetIds"] == functions["SubnetIds"]
    assert functions["SecurityGroupIds"] != application["NetworkConfiguration"]["SecurityGroupIds"]


def test_runs_reach_brokers_and_https_and_nothing_reaches_them(templates: Templates) -> None:
    template = templates("spark")
    name, own = group(template)

    (out,) = own["SecurityGroupEgress"]
    (to_brokers,) = of_type(template, "AWS::EC2::SecurityGroupEgress").values()

    assert (out["IpProtocol"], out["FromPort"], out["ToPort"]) == ("tcp", 443, 443)
    assert to_brokers["GroupId"] == {"Fn::GetAtt": [name, "GroupId"]}
    assert to_brokers["DestinationSecurityGroupId"] == "sg-0a1b2c3d"
    assert (to_brokers["FromPort"], to_brokers["ToPort"]) == (9098, 9098)
    assert "SecurityGroupIngress" not in own


def test_brokers_let_runs_in_as_they_do_functions(templates: Templates) -> None:
    template = templates("spark")
    functions = function(template, "worker")["VpcConfig"]["SecurityGroupIds"]
    peers = [*functions, {"Fn::GetAtt": [group(template)[0], "GroupId"]}]

    let_in = [*of_type(template, "AWS::EC2::SecurityGroupIngress").values()]

    found = [rule["SourceSecurityGroupId"] for rule in let_in if rule["FromPort"] == 9098]
    assert len(found) == 2
    assert all(peer in found for peer in peers)


def test_a_store_with_a_port_of_its_own_is_reached_there(bench: Bench) -> None:
    grid = {
        "name": "grid",
        "topic": "grid",
        "endpoint.type": "storagegrids3",
        "aws.s3.bucket.name": "measurements",
        "aws.s3.endpoint": "https://grid.example:10443",
    }
    bench.write("connectors/grid.yaml", yaml_of(grid))
    assert ON_SPARK.network is not None
    stage = replace(ON_SPARK, network=replace(ON_SPARK.network, reaches=("grid.example",)))

    _, own = group(bench.template(stage))

    assert [rule["FromPort"] for rule in own["SecurityGroupEgress"]] == [443, 10443]


@pytest.mark.parametrize(
    ("missing", "reported"),
    [
        ("logs", "function spark calls logs ("),
        ("emr-serverless", "functions planner, reconciler call emr-serverless ("),
    ],
)
def test_a_service_that_spark_adds_needs_a_path(bench: Bench, missing: str, reported: str) -> None:
    assert ON_SPARK.network is not None
    kept = tuple(service for service in ON_SPARK.network.created if service != missing)

    with pytest.raises(Misconfigured) as caught:
        bench.stack(replace(ON_SPARK, network=replace(ON_SPARK.network, endpoints=kept)))

    assert any(problem.startswith(reported) for problem in caught.value.problems)
    for problem in caught.value.problems:
        assert f"add {missing} to network.endpoints" in problem


# -- who may do what ------------------------------------------------------------------------------


def test_a_run_may_do_exactly_this(templates: Templates) -> None:
    _, role = job_role(templates("spark"))

    assert {action for each in allowed(role) for action in each["Action"]} == (
        LEDGER
        | {"dynamodb:BatchGetItem", "dynamodb:ConditionCheckItem", "events:PutEvents"}
        | OBJECTS
        | {"s3:GetBucketVersioning", "s3:ListBucketVersions"}
        | KAFKA
        | LOG
        | {"logs:DescribeLogGroups", "logs:DescribeLogStreams"}
    )


def test_a_run_writes_and_reads_what_workers_do(templates: Templates) -> None:
    template = templates("spark")
    _, role = job_role(template)
    runs = {each["Sid"]: each for each in allowed(role)}
    shared = {"ReadObjects", "ListObjects", "WorkOnLedger", "ClaimExtents", "WriteRecords"}

    workers = {each["Sid"]: each for each in statements(template, "worker")}

    for sid in shared | {"OwnSlots", "KeepProgress", "TellOfJobs", "TellEventBus"}:
        assert runs[sid] == workers[sid]
    assert not [action for each in runs.values() for action in each["Action"] if "sqs" in action]


def test_runs_read_secrets_and_keys_and_assume_roles_as_workers_do(bench: Bench) -> None:
    reader = "arn:aws:iam::444455556666:role/reader"
    bench.write(
        "connectors/theirs.yaml",
        f"name: theirs\ntopic: theirs\naws.s3.bucket.name: theirs\naws.sts.role.arn: {reader}\n",
    )
    assert ON_SPARK.network is not None
    network = replace(ON_SPARK.network, nat=True)
    stage = replace(EXISTING, network=network, spark=Spark(), spark_cores=64)
    template = bench.template(stage)
    _, role = job_role(template)
    sids = {"ReadBrokerCredentials", "DecryptBrokerCredentials", "DecryptObjects", "AssumeRoles"}

    runs = {each["Sid"]: each for each in allowed(role)}

    workers = {each["Sid"]: each for each in statements(template, "worker")}
    assert {sid: runs[sid] for sid in sids} == {sid: workers[sid] for sid in sids}


def test_wildcards_of_the_job_role_are_these(templates: Templates) -> None:
    _, role = job_role(templates("spark"))

    found = {each["Sid"] for each in allowed(role) if "*" in str(each["Resource"])}

    assert found == {"FetchCode", "FindLog", "OwnSlots", "ReadObjects"}


def test_the_job_role_reads_the_code_of_its_stage_only(templates: Templates) -> None:
    """Of earlier deployments, too: an active run continues with the code that it began with."""
    template = templates("spark")
    _, role = job_role(template)
    variables = environment(function(template, "planner"))

    (fetch,) = (each for each in allowed(role) if each["Sid"] == "FetchCode")

    places = [str(one) for one in fetch["Resource"]]
    assert ["/extentflow-spark/*.py" in places[0], "/extentflow-spark/*.tgz" in places[1]] == [
        True,
        True,
    ]
    for name in ("ENTRY_POINT", "ARCHIVE"):
        read = variables[f"EXTENTFLOW_SPARK_{name}"]["Fn::Sub"]
        assert read.rpartition("/")[0].endswith("/extentflow-spark")


@pytest.mark.parametrize("region", ["me-south-1", "me-central-1"])
def test_regions_without_a_release_are_refused(region: str) -> None:
    found = problems(replace(ON_SPARK, region=region))

    assert any(f"spark: {region} has no release with Spark 4" in problem for problem in found)


def test_only_runs_of_this_application_take_the_role_on(templates: Templates) -> None:
    template = templates("spark")
    name, _ = only(template, APPLICATION)
    _, role = job_role(template)

    (trusted,) = role["AssumeRolePolicyDocument"]["Statement"]

    assert trusted["Condition"] == {
        "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}},
        "ArnEquals": {"aws:SourceArn": {"Fn::GetAtt": [name, "Arn"]}},
    }


@pytest.mark.parametrize("service", ["planner", "reconciler"])
def test_who_starts_runs_starts_them_here_and_passes_this_role_to_emr_only(
    templates: Templates, service: str
) -> None:
    template = templates("spark")
    application, _ = only(template, APPLICATION)
    role, _ = job_role(template)
    found = {each["Sid"]: each for each in statements(template, service)}

    start, give = found["StartRuns"], found["PassJobRole"]

    assert start["Action"] == ["emr-serverless:StartJobRun"]
    assert start["Resource"] == [{"Fn::GetAtt": [application, "Arn"]}]
    assert give["Action"] == ["iam:PassRole"]
    assert give["Resource"] == [{"Fn::GetAtt": [role, "Arn"]}]
    assert give["Condition"] == {"StringEquals": {"iam:PassedToService": SERVICE}}


def test_the_reconciler_may_read_the_state_of_runs(templates: Templates) -> None:
    template = templates("spark")
    application, _ = only(template, APPLICATION)
    found = {each["Sid"]: each for each in statements(template, "reconciler")}

    look = found["LookAtRuns"]

    assert look["Action"] == ["emr-serverless:GetJobRun"]
    (resource,) = look["Resource"]
    assert resource["Fn::Join"][1] == [{"Fn::GetAtt": [application, "Arn"]}, "/jobruns/*"]
    assert "LookAtRuns" not in {each["Sid"] for each in statements(template, "planner")}


@pytest.mark.parametrize("service", ["receiver", "worker", "provider"])
def test_no_other_function_starts_runs_or_gets_their_events(
    templates: Templates, service: str
) -> None:
    template = templates("spark")
    variables = environment(function(template, service))

    assert not actions(template, service) & {"emr-serverless:StartJobRun", "iam:PassRole"}
    assert not [name for name in variables if name.startswith("EXTENTFLOW_SPARK_")]


# -- what starts runs, and what they tell ---------------------------------------------------------


@pytest.mark.parametrize("service", ["planner", "reconciler"])
def test_functions_that_start_runs_get_application_role_and_code(
    templates: Templates, service: str
) -> None:
    template = templates("spark")
    application, _ = only(template, APPLICATION)
    role, _ = job_role(template)

    variables = environment(function(template, service))

    assert variables["EXTENTFLOW_SPARK_APPLICATION_ID"] == {
        "Fn::GetAtt": [application, "ApplicationId"]
    }
    assert variables["EXTENTFLOW_SPARK_JOB_ROLE_ARN"] == {"Fn::GetAtt": [role, "Arn"]}
    assert variables["EXTENTFLOW_SPARK_ENTRY_POINT"]["Fn::Sub"].startswith("s3://cdk-")
    assert variables["EXTENTFLOW_SPARK_ENTRY_POINT"]["Fn::Sub"].endswith(".py")
    assert variables["EXTENTFLOW_SPARK_ARCHIVE"]["Fn::Sub"].endswith(".tgz")
    assert variables["EXTENTFLOW_SPARK_THRESHOLD_BYTES"] == str(20 << 30)
    assert variables["EXTENTFLOW_SPARK_TIMEOUT_MINUTES"] == "720"


def test_runs_that_ended_wake_the_reconciler(templates: Templates) -> None:
    template = templates("spark")
    application, _ = only(template, APPLICATION)
    rules = of_type(template, "AWS::Events::Rule").values()

    (rule,) = [
        one for one in rules if one.get("EventPattern", {}).get("source") == ["aws.emr-serverless"]
    ]

    assert rule["EventPattern"]["detail-type"] == ["EMR Serverless Job Run State Change"]
    assert rule["EventPattern"]["detail"] == {
        "applicationId": [{"Fn::GetAtt": [application, "ApplicationId"]}],
        "state": ["SUCCESS", "FAILED", "CANCELLED"],
    }
    (target,) = rule["Targets"]
    woken = of_type(template, "AWS::Lambda::Function")[target["Arn"]["Fn::GetAtt"][0]]
    assert environment(woken)["POWERTOOLS_SERVICE_NAME"] == "reconciler"


def test_what_the_command_line_needs_to_start_runs_are_outputs(templates: Templates) -> None:
    template = templates("spark")
    application, _ = only(template, APPLICATION)
    role, _ = job_role(template)
    planner = environment(function(template, "planner"))

    for name, value in {
        "SparkApplicationId": {"Fn::GetAtt": [application, "ApplicationId"]},
        "SparkJobRoleArn": {"Fn::GetAtt": [role, "Arn"]},
        "SparkEntryPoint": planner["EXTENTFLOW_SPARK_ENTRY_POINT"],
        "SparkArchive": planner["EXTENTFLOW_SPARK_ARCHIVE"],
    }.items():
        template.has_output(name, {"Value": value})


def test_on_one_machine_the_functions_run_without_spark(templates: Templates) -> None:
    context = TemplateContext(sqs="http://127.0.0.1:1", environment=ELSEWHERE)

    deployment = read_document(templates("spark").to_json(), context)

    planner = deployment.functions["planner"].environment
    assert not [name for name in planner if name.startswith("EXTENTFLOW_SPARK_")]
    assert [one.function for one in deployment.schedules] == ["reconciler"]


@pytest.mark.parametrize(
    ("application", "state", "heard"),
    [
        *(("00here", state, True) for state in ("SUCCESS", "FAILED", "CANCELLED")),
        *(("00here", state, False) for state in ("SUBMITTED", "RUNNING", "CANCELLING")),
        ("00there", "FAILED", False),
    ],
)
def test_on_one_machine_the_reconciler_gets_events_of_ended_runs(
    templates: Templates, application: str, state: str, *, heard: bool
) -> None:
    context = TemplateContext(sqs="http://127.0.0.1:1", application="00here", environment=ELSEWHERE)
    shown = {
        "arn": "arn:aws:emr-serverless:us-east-1:000000000000:/applications/0/jobruns/0",
        **dict.fromkeys(("jobRunId", "releaseLabel", "createdBy"), "x"),
        **dict.fromkeys(("createdAt", "updatedAt"), 0.0),
        "applicationId": application,
        "state": state,
    }

    (rule,) = read_document(templates("spark").to_json(), context).subscriptions

    assert rule.function == "reconciler"
    assert wants(rule.pattern, events.changed(shown, None)) is heard


# -- without it -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["plain", "vpc", "existing"])
def test_a_stage_without_spark_has_nothing_of_it(templates: Templates, stage: str) -> None:
    template = templates(stage)

    template.resource_count_is(APPLICATION, 0)
    text = str(template.to_json())
    for word in ("emr-serverless", "EMRServerless", "PassRole", "EXTENTFLOW_SPARK", "JobsArchive"):
        assert word not in text


# -- a stack without the archive ------------------------------------------------------------------


def _without_archive(bench: Bench) -> None:
    (bench.root / spark_archive.stamp()).unlink()


def _with_older_pins(bench: Bench) -> None:
    bench.write(str(spark_archive.LOCK), "boto3==2\n")


def _with_older_code(bench: Bench) -> None:
    bench.write(str(spark_archive.LIBRARY / "model.py"), "")


def _with_half_an_archive(bench: Bench) -> None:
    (bench.root / spark_archive.archive()).unlink()


@pytest.mark.parametrize(
    "spoil",
    [
        _without_archive,
        pytest.param(_with_older_pins, marks=pytest.mark.variant),
        _with_older_code,
        pytest.param(_with_half_an_archive, marks=pytest.mark.variant),
    ],
)
def test_cloudformation_rejects_a_stack_without_the_current_archive(
    bench: Bench, spoil: Callable[[Bench], None]
) -> None:
    spoil(bench)

    assert rejected(bench.stack(ON_SPARK), "JobsArchive", "make spark-archive")


def test_a_stack_with_the_archive_is_not_rejected(templates: Templates) -> None:
    template = templates("spark").to_json()

    assert "JobsArchiveIsBuilt" not in template["Rules"]
    assert "JobsArchive" not in template["Parameters"]


# -- settings that cannot work --------------------------------------------------------------------


@pytest.mark.parametrize("label", ["emr-spark-8.0.0", "emr-spark-8.1.2", "emr-spark-9.0.0"])
def test_releases_with_spark_4_and_our_python_are_accepted(label: str) -> None:
    sized(release_label=label).check()


@pytest.mark.parametrize(
    "label", ["emr-6.15.0", "emr-7.0.0", "emr-7.13.0", "emr-spark-8.0-preview", "latest"]
)
def test_other_releases_are_rejected_with_the_way_out(label: str) -> None:
    (problem,) = problems(sized(release_label=label))

    assert f"spark.release_label={label}" in problem
    assert "Python 3.11" in problem
    assert "use emr-spark-8.0.0" in problem
    assert "to a custom image" in problem


def test_an_image_of_ones_own_may_be_of_any_release() -> None:
    sized(release_label="emr-7.12.0", image_uri=IMAGE).check()
    (problem,) = problems(sized(image_uri="registry/spark:1"))
    assert "spark.image_uri=registry/spark:1: write an image in ECR" in problem


def test_the_releases_python_is_the_archives() -> None:
    (problem,) = problems(sized(release_label="emr-7.13.0"))

    assert f"python{spark_archive.PYTHON}" in problem


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"most_vcpu": 11}, "spark.most_vcpu=11: a driver and two executors need 4 each"),
        ({"most_memory_gb": 47}, "spark.most_memory_gb=47: a driver and two executors need 16"),
        ({"most_disk_gb": 59}, "spark.most_disk_gb=59: a driver and two executors need 20 each"),
        ({"most_vcpu": 17}, "the account allows spark.quota_vcpu=16, which drivers alone"),
        ({"threshold_bytes": 0}, "spark.threshold_bytes=0: write 1 or more"),
        ({"timeout_minutes": 4}, "spark.timeout_minutes=4: write 5 to 20160"),
        ({"timeout_minutes": 20_161}, "spark.timeout_minutes=20161: write 5 to 20160"),
        ({"most_vcpu": 65, "quota_vcpu": 65}, "spark_cores=64 is lower; raise spark_cores"),
    ],
)
def test_a_size_that_cannot_work_is_rejected(changes: dict[str, int], reported: str) -> None:
    (problem,) = problems(sized(**changes))

    assert reported in problem


def in_zones(*zones: str | None) -> Stage:
    """Return a stage in a region that has a zone without EMR Serverless."""
    subnets = tuple(
        Subnet(
            id=f"subnet-0000000{number}",
            availability_zone=f"ap-northeast-1{letter}",
            route_table_id="rtb-00000001",
            zone_id=zone,
        )
        for number, (letter, zone) in enumerate(zip("acd", zones, strict=False))
    )
    assert ON_SPARK.network is not None
    network = replace(ON_SPARK.network, subnets=subnets)
    cluster = replace(ON_SPARK.cluster, arn=CLUSTER_ARN.replace("eu-central-1", "ap-northeast-1"))
    return replace(ON_SPARK, region="ap-northeast-1", cluster=cluster, network=network)


def test_runs_use_subnets_in_zones_of_emr_serverless_only(bench: Bench) -> None:
    stage = in_zones("apne1-az4", "apne1-az3", "apne1-az1")

    template = bench.template(stage)

    _, application = only(template, APPLICATION)
    assert application["NetworkConfiguration"]["SubnetIds"] == [
        "subnet-00000000",
        "subnet-00000002",
    ]
    placed = function(template, "worker")["VpcConfig"]["SubnetIds"]
    assert placed == [f"subnet-0000000{number}" for number in range(3)]
    interfaces = [one for one in of_type(template, ENDPOINT).values() if "SubnetIds" in one]
    served = [one for one in interfaces if "emr-serverless" in str(one["ServiceName"])]
    assert [one["SubnetIds"] for one in served] == [["subnet-00000000", "subnet-00000002"]]
    assert all(one["SubnetIds"] == placed for one in interfaces if one not in served)


@pytest.mark.parametrize(
    ("zones", "reported"),
    [
        (("apne1-az4", None), "network.subnets: subnet-00000001: set zone_id (`aws ec2 describe-"),
        (("apne1-az3",), "EMR Serverless has apne1-az1, apne1-az2, apne1-az4 only; add a subnet"),
    ],
)
def test_a_zone_that_emr_serverless_lacks_is_rejected(
    zones: tuple[str | None, ...], reported: str
) -> None:
    (problem,) = problems(in_zones(*zones))

    assert reported in problem


def test_zones_matter_only_where_spark_runs_and_a_region_lacks_one() -> None:
    replace(in_zones(None), spark=None).check()
    ON_SPARK.check()


def test_spark_needs_a_network() -> None:
    (problem,) = problems(replace(PLAIN, spark=Spark(), spark_cores=64))

    assert "can reach brokers from a VPC only; set network" in problem


def test_spark_settings_of_the_stack_cannot_be_set() -> None:
    (problem,) = problems(replace(IN_A_VPC, settings={"spark.threshold.bytes": "1GiB"}))

    assert "settings: spark.threshold.bytes: the stack sets it" in problem


def test_topics_and_slots_of_runs_are_the_clusters(templates: Templates) -> None:
    _, role = job_role(templates("spark"))
    below = CLUSTER_ARN.partition(":cluster/")

    found = {each["Sid"]: each["Resource"] for each in allowed(role)}

    assert found["WriteRecords"] == [f"{below[0]}:topic/{below[2]}/orders"]
    assert found["OwnSlots"][0] == f"{below[0]}:transactional-id/{below[2]}/extentflow-test.*"


def test_the_role_may_look_for_its_log_group(templates: Templates) -> None:
    """`log-group/*` matches no log group: their ARNs have a colon there."""
    found = [
        statement["Resource"]
        for policy in of_type(templates("spark"), "AWS::IAM::Role").values()
        for each in policy.get("Policies", [])
        for statement in each["PolicyDocument"]["Statement"]
        if "logs:DescribeLogGroups" in statement["Action"]
    ]

    assert found
    assert all(str(resource).count(":log-group:*") == 1 for resource in found)
