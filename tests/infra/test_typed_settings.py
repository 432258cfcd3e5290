"""Settings of a wrong type are refused where they are written, with what to write."""

from typing import Any

import pytest
from infra.config import (
    Auth,
    Bucket,
    BucketNotification,
    Cluster,
    Network,
    Stage,
    Subnet,
    Unmatched,
)
from infra.config_spark import Spark
from infra.grants import literal
from infra.synthesis import synthesise

from extentflow.errors import Misconfigured

SUBNET = Subnet(id="subnet-1", availability_zone="eu-central-1a", route_table_id="rtb-1")
CLUSTER = Cluster(
    bootstrap_servers="b:9098", arn="arn:aws:kafka:eu-central-1:123456789012:cluster/c"
)
BUCKET = Bucket(name="shop-data")
PLAIN: dict[str, Any] = {
    "name": "dev",
    "region": "eu-central-1",
    "cluster": CLUSTER,
    "buckets": (BUCKET,),
}


def test_a_text_becomes_the_choice_that_it_names() -> None:
    # `is` compares choices, so that a text would leave out permissions in silence.
    assert Cluster(auth="iam").auth is Auth.IAM  # type: ignore[arg-type]
    found = Bucket(name="shop-data", announced="direct")  # type: ignore[arg-type]
    assert found.announced is BucketNotification.DIRECT
    assert Stage(**{**PLAIN, "unmatched": "ignore"}).unmatched is Unmatched.IGNORE


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (Cluster, {"auth": "aim"}, "auth is 'aim': write 'none' or 'iam' or 'scram' or"),
        (Bucket, {"name": "b", "account": 1}, 'account is 1: write a text, "..."'),
        (Bucket, {"name": "b", "exists": "no"}, "exists is 'no': write True or False"),
        (Bucket, {"name": "b", "exist": True}, "exist: there is no such setting; write exists"),
        (Bucket, {}, 'name is missing: write a text, "..."'),
        (Network, {"subnets": SUBNET}, "subnets is a Subnet: write a tuple, (Subnet(...),)"),
        (Network, {"vpc_cidrs": "10.0.0.0/16"}, "write a tuple, ('10.0.0.0/16',)"),
        (Network, {"endpoints": "s3"}, "endpoints is 's3': write a tuple, ('s3',)"),
        (Network, {"subnets": ("subnet-1",)}, "subnets is 'subnet-1': write Subnet(...)"),
        (Network, {"placement": ("s3",)}, "placement is a tuple: write a dictionary"),
        (Network, {"placement": {"sqs": "subnet-1"}}, "placement of sqs is 'subnet-1': write a"),
        (Spark, {"most_vcpu": True}, "most_vcpu is True: write a whole number"),
        (Stage, {**PLAIN, "most_wrkers": 3}, "most_wrkers: there is no such setting; write most_w"),
        (Stage, {**PLAIN, "buckets": BUCKET}, "buckets is a Bucket: write a tuple"),
        (Stage, {**PLAIN, "buckets": ("shop",)}, "buckets is 'shop': write Bucket("),
        (Stage, {**PLAIN, "most_workers": "10"}, "most_workers is '10': write a whole number"),
        (Stage, {**PLAIN, "tags": {"cost": 4711}}, "tags of cost is 4711: write a text"),
        (Stage, {**PLAIN, "tags": {1: "x"}}, "tags has the name 1: write a text"),
        (Stage, {**PLAIN, "settings": {"a.b": 4}}, "settings of a.b is 4: write a text"),
    ],
)
def test_a_setting_of_a_wrong_type_is_refused_with_what_to_write(
    kind: Any,  # noqa: ANN401 - each class of settings
    given: dict[str, Any],
    said: str,
) -> None:
    (problem,) = kind(**given).misfits()

    assert problem.startswith(said) or problem.endswith(said)


def test_all_that_does_not_fit_is_reported_at_once_with_its_stage() -> None:
    """Python ended with a traceback, which names neither stage nor place."""
    subnet = Subnet(id=1, availability_zone="eu-central-1a", route_table_id="rtb-1")  # type: ignore[arg-type]
    network: Any = Network(vpc_id="vpc-0a1b2c3d", subnets=(subnet,), vpc_cidr="10.0.0.0/16")  # type: ignore[call-arg]
    fitting, wrong = Stage(**PLAIN), {**PLAIN, "name": "prod", "network": network, "tags": ()}
    unnamed: Any = Stage(*["test"], **{**PLAIN, "name": "test"})

    with pytest.raises(SystemExit) as ended:
        synthesise(fitting, Stage(**wrong), unnamed)

    assert str(ended.value).splitlines() == [
        "error: stage prod: tags is a tuple: write a dictionary, {name: value}",
        "error: stage prod: network.vpc_cidr: there is no such setting; write vpc_cidrs",
        'error: stage prod: network.subnets[0].id is 1: write a text, "..."',
        "error: stage test: 'test' has no name: write NAME='test'",
    ]
    with pytest.raises(Misconfigured, match="stage prod: tags is a tuple"):
        Stage(**wrong).check()


def test_iam_finds_no_wildcard_and_no_variable_in_a_literal_text() -> None:
    assert literal("a/b-$1.csv") == "a/b-$1.csv"
    assert literal("*o?/${aws:username}/") == "${*}o${?}/${$}{aws:username}/"
