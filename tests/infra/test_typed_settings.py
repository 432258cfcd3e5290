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
    ("kind", "given", "message"),
    [
        (Cluster, {"auth": "aim"}, "Cluster: auth is 'aim': write 'none' or .*'iam'"),
        (Bucket, {"name": "b", "account": 1}, r'Bucket: account is 1: write a text, "\.\.\."'),
        (Bucket, {"name": "b", "exists": "no"}, "exists is 'no': write True or False"),
        (Network, {"subnets": SUBNET}, r"subnets is a Subnet: write a tuple, \(Subnet\(...\),\)"),
        (Network, {"vpc_cidrs": "10.0.0.0/16"}, r"a tuple, \('10\.0\.0\.0/16',\)"),
        (Network, {"endpoints": "s3"}, r"endpoints is 's3': write a tuple, \('s3',\)"),
        (Network, {"subnets": ("subnet-1",)}, r"is 'subnet-1': write Subnet\(...\)"),
        (Network, {"placement": ("s3",)}, r"placement is a tuple: write a dictionary"),
        (Spark, {"most_vcpu": True}, "most_vcpu is True: write a whole number"),
        (Stage, {**PLAIN, "buckets": BUCKET}, r"stage dev: buckets is a Bucket: write a tuple"),
        (Stage, {**PLAIN, "buckets": ("shop",)}, r"stage dev: buckets is 'shop': write Bucket\("),
        (Stage, {**PLAIN, "account": 1}, "stage dev: account is 1: write a text"),
        (Stage, {**PLAIN, "most_workers": "10"}, "stage dev: most_workers is '10': write a whole"),
    ],
)
def test_a_setting_of_a_wrong_type_is_refused_with_what_to_write(
    kind: Any,  # noqa: ANN401 - each class of settings
    given: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises(Misconfigured, match=message):
        kind(**given)


def test_all_settings_of_a_wrong_type_are_named_at_once() -> None:
    with pytest.raises(Misconfigured) as caught:
        Stage(**{**PLAIN, "most_workers": "10", "tags": ()})

    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tags": {"cost-center": 4711}}, "stage dev: tags of cost-center is 4711: write a text"),
        ({"tags": {1: "x"}}, "stage dev: tags has the name 1: write a text"),
        ({"settings": {"exactly.once.slots": 4}}, "of exactly.once.slots is 4: write a text"),
    ],
)
def test_values_of_dictionaries_have_the_types_that_are_stated(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(Misconfigured, match=said):
        Stage(**{**PLAIN, **changes})
    with pytest.raises(Misconfigured, match=r"placement of sqs is .subnet-1.: write a tuple"):
        Network(vpc_id="vpc-1", placement={"sqs": "subnet-1"})  # type: ignore[dict-item]


def test_iam_finds_no_wildcard_and_no_variable_in_a_literal_text() -> None:
    assert literal("a/b-$1.csv") == "a/b-$1.csv"
    assert literal("*o?/${aws:username}/") == "${*}o${?}/${$}{aws:username}/"
