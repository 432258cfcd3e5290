"""A stage that cannot work is rejected before anything is made of it."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from infra.config import ENDPOINTS, Auth, Bucket, Cluster, Receiver, Stage
from infra.stages import STAGES
from infra.synthesis import choose, keep_apart
from infra.typed_settings import TypedSettings
from tests.support.synthesis import (
    ALARMS_ARN,
    CLUSTER_ARN,
    EXISTING,
    IN_A_VPC,
    KEY_ARN,
    PLAIN,
    SECRET_ARN,
)

from extentflow.errors import Misconfigured
from infra import network


def problems(stage: Stage) -> tuple[str, ...]:
    with pytest.raises(Misconfigured) as caught:
        stage.check()
    return caught.value.problems


@pytest.mark.parametrize("stage", [PLAIN, IN_A_VPC, EXISTING, *STAGES])
def test_stages_that_work_are_accepted(stage: Stage) -> None:
    stage.check()


def test_an_unknown_stage_is_reported_with_the_defined_ones() -> None:
    with pytest.raises(Misconfigured, match=r"no stage prod; defined are dev"):
        choose(STAGES, "prod")


def test_without_a_name_all_stages_are_synthesised() -> None:
    assert choose((PLAIN, IN_A_VPC), None) == [PLAIN, IN_A_VPC]
    assert choose((PLAIN, IN_A_VPC), "vpc") == [IN_A_VPC]


def test_stages_of_one_name_or_of_one_application_in_a_cluster_are_refused() -> None:
    """They would be one stack, or stop each other's transactions."""
    by_arn = replace(IN_A_VPC.cluster, bootstrap_servers="")
    some = Cluster(bootstrap_servers=" broker-2:9092", auth=Auth.NONE)
    refused = (
        (PLAIN, replace(PLAIN, app_id="another"), "stage plain: name: two stages have it"),
        (IN_A_VPC, replace(IN_A_VPC, name="two", cluster=by_arn), "stage two: app_id: stage vpc"),
        (PLAIN, replace(PLAIN, name="two", cluster=some), "stage two: app_id: stage plain has it"),
        (
            replace(PLAIN, app_id="extentflow.prod"),
            replace(PLAIN, name="two", app_id="extentflow"),
            "stage two: app_id: stage plain",
        ),
    )

    for first, second, reported in refused:
        with pytest.raises(Misconfigured, match=reported):
            keep_apart((first, second))
    keep_apart((PLAIN, IN_A_VPC, replace(PLAIN, name="two", app_id="another")))


def within(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - settings
    """Return the network of a stage with these changes."""
    assert IN_A_VPC.network is not None
    return {"network": replace(IN_A_VPC.network, **changes)}


def on_subnet(**changes: str) -> dict[str, Any]:
    """Return the network of a stage with these changes of its second subnet."""
    assert IN_A_VPC.network is not None
    first, second = IN_A_VPC.network.subnets
    return within(subnets=(first, replace(second, **changes)))


FAR_KEY = "arn:aws:kms:eu-west-1:111122223333:key/1"
FAR_TOPIC = "arn:aws:sns:eu-west-1:111122223333:alarms"


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"region": ""}, "region=: AWS has no such region; write one, such as eu-central-1"),
        ({"region": "eu-centrl-1"}, "region=eu-centrl-1: AWS has no such region; write eu-central"),
        ({"account": "1111"}, "account=1111: write twelve digits"),
        ({"table": "arn:aws:dynamodb:eu-central-1:111122223333:table/x"}, "write the table's name"),
        ({"alarm_topic_arn": FAR_TOPIC}, f"alarm_topic_arn={FAR_TOPIC}: it is in eu-west-1; write"),
        (
            {"alarm_topic_arn": SECRET_ARN},
            "this is another resource; write arn:aws:sns:eu-central-1",
        ),
        ({"event_bus": CLUSTER_ARN}, f"event_bus={CLUSTER_ARN}: this is another resource"),
        ({"secret_key_arns": (FAR_KEY, CLUSTER_ARN)}, f"secret_key_arns[1]={CLUSTER_ARN}: this"),
        ({"qualifier": "much-too-long"}, "qualifier=much-too-long: write 1 to 10 letters"),
        (
            {"cluster": replace(IN_A_VPC.cluster, arn=CLUSTER_ARN.replace("central", "west"))},
            "it is in eu-west-1; write one in eu-central-1, the stage's region",
        ),
        (
            {"cluster": replace(IN_A_VPC.cluster, arn=SECRET_ARN)},
            f"cluster.arn={SECRET_ARN}: this is another resource; write arn:aws:kafka",
        ),
        (
            {"receiver": Receiver(secret_arn=SECRET_ARN.removesuffix("-AbCdEf"))},
            ":secret:AmazonMSK_events: the ARN is cut off; write all of it",
        ),
        (
            {"buckets": (Bucket(name="landing", kms_key_arn=FAR_TOPIC),)},
            "buckets[landing].kms_key_arn=",
        ),
        ({"alarm_topic_arn": f"{ALARMS_ARN}\n"}, "alarms\\n': write a complete ARN"),
        ({"alarm_email": "on-call"}, "alarm_email=on-call: write one address, such as"),
        ({"alarm_email": "a@b.example\nCc: c"}, "alarm_email='a@b.example\\nCc: c': write one"),
        ({"alarm_email": "a@b.example,c@d.example"}, "write one address"),
        ({"connectors": ""}, "connectors=: write the path of a folder"),
        ({"tags": {"team": "a\nb"}}, "tags: 'team'='a\\nb': write letters, digits, blanks"),
        ({"buckets": (Bucket(name="", exists=True),)}, "buckets[].name=: write a bucket's name"),
        ({"spark_cores": -1}, "spark_cores=-1: write 0 or more"),
        ({"log_days": 29}, "log_days=29: CloudWatch Logs has 1, 3, 5, 7"),
        ({"canary_minutes": -5}, "canary_minutes=-5: CodeDeploy has 5, 10, 15, 30"),
        (
            {"receiver": Receiver(secret_arn=SECRET_ARN, requests_per_second=-1)},
            "receiver.requests_per_second=-1: write 1 or more",
        ),
        (
            {"secret_key_arns": (KEY_ARN, KEY_ARN)},
            f"secret_key_arns: {KEY_ARN} is listed more than once; remove the duplicate",
        ),
        (within(vpc_id="my-vpc"), "network.vpc_id=my-vpc: write the VPC's id, vpc-..."),
        (within(vpc_cidrs=("0.0.0.0/0",)), "vpc_cidrs[0]=0.0.0.0/0: it admits every address;"),
        (within(vpc_cidrs=("0.0.0.0/1", "128.0.0.0/1")), "write blocks of /8 or smaller"),
        (within(vpc_cidrs=("10.0.0.1",)), "vpc_cidrs[0]=10.0.0.1: write a block such as"),
        (within(reaches=("https://grid:8082",)), "network.reaches[0]=https://grid:8082: write a"),
        (
            within(existing_endpoints=("com.amazonaws.eu-central-1.kms",)),
            "write the service's name, such as sqs",
        ),
        (
            on_subnet(availability_zone="us-east-1a"),
            "subnets[1].availability_zone=us-east-1a: write a zone of eu-central-1",
        ),
        (on_subnet(id="10.0.1.0/24"), "subnets[1].id=10.0.1.0/24: write the subnet's id, subnet-"),
        (on_subnet(id="subnet-0a1b2c3d4e5f6000"), "write the subnet's id"),  # a digit is missing
        (on_subnet(route_table_id="main"), "route_table_id=main: write the route table's id, rtb-"),
        (on_subnet(zone_id="eu-central-1a"), "zone_id=eu-central-1a: write the zone's id, such as"),
        (
            on_subnet(id="subnet-00000001"),
            "network.subnets: subnet-00000001 is listed more than once; remove the duplicate",
        ),
    ],
)
def test_a_value_of_another_kind_is_refused_with_stage_and_setting(
    changes: dict[str, Any], reported: str
) -> None:
    found = problems(replace(PLAIN, **changes))

    assert all(problem.startswith("stage plain: ") for problem in found)
    assert reported in found[0]
    assert "\n" not in found[0]


# What these texts must be is checked elsewhere: by the settings of workers.
OF_WORKERS = {"Stage.app_id", "Cluster.bootstrap_servers"}


def test_each_text_and_each_number_has_a_kind_or_a_range() -> None:
    """A setting without one takes -1, or a text with a newline, into the template."""
    without = {
        f"{kind.__name__}.{one.name}"
        for kind in TypedSettings.__subclasses__()
        for one in fields(kind)
        for hint in [get_type_hints(kind, include_extras=True)[one.name]]
        if not hasattr(hint, "__metadata__")
        and {str, int} & {hint, *get_args(hint)}
        and get_origin(hint) is not Mapping
    }

    assert without == OF_WORKERS


def test_endpoints_are_those_that_the_stack_can_create() -> None:
    assert {*ENDPOINTS.offered} == network.GATEWAYS.keys() | network.INTERFACES.keys()


@pytest.mark.parametrize(
    ("workers", "spark_cores", "slots"), [(80, 0, 100), (2, 78, 100), (204, 0, 256)]
)
def test_four_fifths_of_the_slots_may_be_in_use(workers: int, spark_cores: int, slots: int) -> None:
    settings = {"exactly.once.slots": str(slots)}
    stage = replace(PLAIN, most_workers=workers, spark_cores=spark_cores, settings=settings)

    stage.check()


@pytest.mark.parametrize(
    ("workers", "spark_cores", "slots"), [(81, 0, 100), (80, 1, 100), (205, 0, 256), (5, 0, 6)]
)
def test_more_workers_and_spark_cores_than_that_are_rejected(
    workers: int, spark_cores: int, slots: int
) -> None:
    settings = {"exactly.once.slots": str(slots)}
    stage = replace(PLAIN, most_workers=workers, spark_cores=spark_cores, settings=settings)

    (problem,) = problems(stage)

    assert f"most_workers={workers} and spark_cores={spark_cores}" in problem
    assert f"exactly.once.slots={slots}" in problem


@pytest.mark.parametrize("changes", [{"most_workers": 1}, {"most_planners": 1_001}])
def test_a_concurrency_that_aws_does_not_take_is_rejected(changes: dict[str, Any]) -> None:
    quota = replace(PLAIN, account_concurrency=9_999, settings={"exactly.once.slots": "9999"})

    (problem,) = problems(replace(quota, **changes))

    assert problem.endswith(": write 2 to 1000")


@pytest.mark.parametrize(
    ("workers", "planners", "pollers", "reported"),
    [
        (100, 20, 2, ""),
        (100, 50, 5, ""),
        (100, 5, 2, "most_planners=5: each of the pollers invokes 10; write a multiple of it, 20"),
        (105, 20, 2, "most_workers=105: each of the pollers invokes 10"),
        (100, 20, 3, "pollers=3: most_planners=20 and AWS allow 2 to 2"),
        (100, 20, 1, "pollers=1: most_workers=100 and AWS allow 2 to 10"),
    ],
)
def test_pollers_fit_into_the_limits_of_concurrency(
    workers: int, planners: int, pollers: int, reported: str
) -> None:
    stage = replace(PLAIN, most_workers=workers, most_planners=planners, pollers=pollers)

    if not reported:
        stage.check()
    else:
        assert reported in "\n".join(problems(stage))


@pytest.mark.parametrize(
    ("workers", "planners", "allowed", "fits"),
    [(100, 5, 1_000, True), (100, 5, 135, True), (100, 5, 134, False), (5, 2, 10, False)],
)
def test_functions_fit_into_the_accounts_concurrency(
    workers: int, planners: int, allowed: int, *, fits: bool
) -> None:
    stage = replace(
        PLAIN, most_workers=workers, most_planners=planners, account_concurrency=allowed
    )

    if fits:
        stage.check()
    else:
        (problem,) = problems(stage)
        assert f"account_concurrency={allowed}" in problem
        assert "and 20 of the receiver need" in problem
        assert 'quota "Concurrent executions" of Lambda' in problem


@pytest.mark.parametrize(("minutes", "fits"), [(9, False), (10, True)])
def test_an_alarm_on_the_oldest_job_needs_two_measurements(minutes: int, *, fits: bool) -> None:
    stage = replace(PLAIN, oldest_job_minutes=minutes)

    if fits:
        stage.check()
    else:
        (problem,) = problems(stage)
        assert problem.endswith("measures every 5 minutes; write 10 or more")


def test_an_unknown_worker_setting_names_the_nearest() -> None:
    (problem,) = problems(replace(PLAIN, settings={"lease.second": "60"}))

    assert problem.startswith("stage plain: settings: lease.second")
    assert "lease.seconds" in problem


@pytest.mark.parametrize("key", ["bootstrap.servers", "ledger.table", "extents.queue.url"])
def test_a_setting_that_the_stack_sets_is_rejected(key: str) -> None:
    found = problems(replace(PLAIN, settings={key: "http://elsewhere:1"}))

    assert f"stage plain: settings: {key}: the stack sets it; remove it" in found


def test_a_stage_cannot_open_its_receiver_to_everybody() -> None:
    found = problems(replace(PLAIN, settings={"receiver.open.allowed": "true"}))

    assert "stage plain: settings: receiver.open.allowed: the stack sets it; remove it" in found


@pytest.mark.parametrize(
    ("cluster", "reported"),
    [
        (Cluster(bootstrap_servers="b:9098", auth=Auth.IAM), "cluster.arn"),
        (Cluster(bootstrap_servers="b:9096", auth=Auth.SCRAM), "cluster.secret_arn"),
        (Cluster(bootstrap_servers="b:9094", auth=Auth.MTLS), "cluster.secret_arn"),
        (Cluster(bootstrap_servers="b:9092", auth=Auth.PLAIN), "auth=plain needs the secret"),
        (Cluster(bootstrap_servers="b:9098", auth=Auth.IAM, arn="my cluster"), "complete ARN"),
    ],
)
def test_authentication_without_what_it_needs_is_rejected(cluster: Cluster, reported: str) -> None:
    (problem,) = problems(replace(PLAIN, cluster=cluster))

    assert reported in problem


MSK = "b-1.dev.abc123.c2.kafka.eu-central-1.amazonaws.com"


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"auth": Auth.IAM, "arn": CLUSTER_ARN, "port": 9092}, "auth=iam on 9098, or 9198 with"),
        ({"auth": Auth.NONE, "port": 9098}, "MSK brokers listen for auth=none on 9092"),
        ({"auth": Auth.NONE, "port": 9094}, None),
        ({"auth": Auth.IAM, "arn": CLUSTER_ARN, "port": 14_001}, None),
        ({"auth": Auth.IAM, "arn": CLUSTER_ARN, "port": 9098}, "from its VPC only; set network"),
        ({"auth": Auth.IAM, "arn": CLUSTER_ARN, "port": 9198}, None),
        ({"auth": Auth.MTLS, "secret_arn": SECRET_ARN, "port": 9194}, None),
        (
            {"auth": Auth.PLAIN, "secret_arn": SECRET_ARN, "port": 9096},
            f"cluster.auth=plain: brokers of MSK, such as {MSK}, do not offer it; use mtls, scram,",
        ),
        (
            {"auth": Auth.SCRAM_SHA_256, "secret_arn": SECRET_ARN, "port": 9096},
            "cluster.auth=scram-sha-256: brokers of MSK",
        ),
    ],
)
def test_unreachable_msk_brokers_are_rejected(
    changes: dict[str, Any], reported: str | None
) -> None:
    proof = {key: value for key, value in changes.items() if key != "port"}
    cluster = Cluster(bootstrap_servers=f"{MSK}:{changes['port']}", **proof)
    stage = replace(PLAIN, cluster=cluster)

    if reported is None:
        stage.check()
    else:
        (problem,) = problems(stage)
        assert reported in problem


def test_msk_serverless_is_refused() -> None:
    servers = "boot-abc123.c2.kafka-serverless.eu-central-1.amazonaws.com:9098"
    cluster = Cluster(bootstrap_servers=servers, auth=Auth.IAM, arn=CLUSTER_ARN)

    (problem,) = problems(replace(IN_A_VPC, cluster=cluster))

    assert "MSK Serverless is not supported" in problem
    assert problem.endswith("use a provisioned or an Express cluster")


@pytest.mark.parametrize(
    ("auth", "mechanism"),
    [
        (Auth.PLAIN, "PLAIN"),
        (Auth.SCRAM, "SCRAM-SHA-512"),
        (Auth.SCRAM_SHA_256, "SCRAM-SHA-256"),
    ],
)
def test_a_cluster_that_is_not_msk_takes_passwords_over_tls_only(
    auth: Auth, mechanism: str
) -> None:
    servers = "pkc-12345.eu-central-1.aws.confluent.cloud:9092"
    cluster = Cluster(bootstrap_servers=servers, auth=auth, secret_arn=SECRET_ARN)

    replace(PLAIN, cluster=cluster).check()

    assert cluster.client_settings() == {
        "bootstrap.servers": servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.username": f"${{secretsmanager:{SECRET_ARN}:username}}",
        "kafka.sasl.password": f"${{secretsmanager:{SECRET_ARN}:password}}",
    }


def test_a_setting_that_the_authentication_sets_is_rejected() -> None:
    """It was replaced in silence."""
    settings = {"kafka.sasl.mechanism": "SCRAM-SHA-256"}

    (problem,) = problems(replace(EXISTING, settings=settings))

    assert problem.endswith("settings: kafka.sasl.mechanism: cluster.auth=scram sets it; remove it")


def test_a_stage_says_its_app_id() -> None:
    """A default by the stage's name would part deployed stages from their ledgers."""
    (problem,) = problems(replace(PLAIN, app_id=None))

    assert 'app_id: write app_id="extentflow-plain" for a new stage' in problem
    assert 'deployed without it needs app_id="extentflow"' in problem
    replace(PLAIN, app_id=None, settings={"app.id": "ingest"}).check()
    (twice,) = problems(replace(PLAIN, settings={"app.id": "ingest"}))
    assert twice.endswith("settings: app.id: app_id sets it; remove it")


def test_brokers_of_msk_are_reached_from_their_vpc() -> None:
    cluster = Cluster(bootstrap_servers=f"{MSK}:9098", auth=Auth.IAM, arn=CLUSTER_ARN)

    replace(IN_A_VPC, cluster=cluster).check()


@pytest.mark.parametrize("servers", ["b", "b:", "a:9092,,b:9092", "PLAINTEXT://b:9092"])
def test_servers_that_are_no_addresses_are_rejected(servers: str) -> None:
    cluster = Cluster(bootstrap_servers=servers, auth=Auth.NONE)

    (problem,) = problems(replace(PLAIN, cluster=cluster))

    assert "bootstrap.servers" in problem


@pytest.mark.parametrize("name", ["Landing", "a", "land_ing", "-landing"])
def test_an_invalid_bucket_name_is_rejected(name: str) -> None:
    (problem,) = problems(replace(PLAIN, buckets=(Bucket(name=name),)))

    assert f"{name!r} is not a valid bucket name" in problem


@pytest.mark.parametrize("name", ["*", "arn:aws:s3:::landing", "s3://landing"])
def test_a_pattern_or_an_address_is_no_bucket_that_exists(name: str) -> None:
    (problem,) = problems(replace(PLAIN, buckets=(Bucket(name=name, exists=True),)))

    assert problem.endswith("write a bucket's name")


def test_a_bucket_that_exists_may_have_any_name() -> None:
    replace(PLAIN, buckets=(Bucket(name="My_Old_One", exists=True),)).check()


def test_all_problems_are_reported_at_once() -> None:
    stage = replace(
        PLAIN,
        name="Wrong Name",
        buckets=(Bucket(name="landing"), Bucket(name="landing", exists=True)),
        cluster=Cluster(bootstrap_servers="b:9098", auth=Auth.IAM),
        most_workers=500,
    )

    reported = "\n".join(problems(stage))

    for part in (
        "name=Wrong Name: write",
        "landing is listed more than once",
        "cluster.arn",
        "slots",
    ):
        assert part in reported


def test_the_ports_of_the_brokers_are_read_from_their_addresses() -> None:
    cluster = Cluster(bootstrap_servers="a:9098,b:9098,c:9198", auth=Auth.IAM, arn=CLUSTER_ARN)

    assert cluster.ports == (9098, 9198)
