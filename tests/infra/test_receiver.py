"""The receiver behind a web ACL: a flood is blocked before it uses up the rate of others."""

from dataclasses import replace
from typing import Any

import pytest
from infra.config import Front, Receiver
from tests.infra.conftest import Templates
from tests.support.synthesis import BEHIND_WAF, PLAIN, SOURCES_ARN, Bench, of_type

from extentflow.discovery.receiver import Receiver as Answering
from extentflow.discovery.sources import SecretPathProof, Source
from extentflow.errors import Misconfigured
from extentflow.http.requests import HttpRequest

ACL, METHOD = "AWS::WAFv2::WebACL", "AWS::ApiGateway::Method"


def receiver(**settings: Any) -> Receiver:  # noqa: ANN401 - fields of Receiver
    return Receiver(secret_arn=SOURCES_ARN, **settings)


def rules(bench: Bench, found: Receiver) -> dict[str, dict[str, Any]]:
    (acl,) = of_type(bench.template(replace(PLAIN, receiver=found)), ACL).values()
    return {rule["Name"]: rule for rule in acl["Rules"]}


def test_a_sender_above_its_rate_is_blocked(templates: Templates) -> None:
    (acl,) = of_type(templates("rest"), ACL).values()

    (rule,) = (one for one in acl["Rules"] if one["Name"] == "SenderRate")
    assert rule["Action"] == {"Block": {}}
    assert rule["Statement"]["RateBasedStatement"] == {
        "AggregateKeyType": "IP",
        "EvaluationWindowSec": 300,
        "Limit": 1_500,
    }
    assert acl["DefaultAction"] == {"Allow": {}}


def test_addresses_outside_the_list_are_blocked_first(templates: Templates) -> None:
    template = templates("rest")
    (acl,) = of_type(template, ACL).values()
    sets = {one["IPAddressVersion"]: one for one in of_type(template, "AWS::WAFv2::IPSet").values()}

    first = min(acl["Rules"], key=lambda rule: rule["Priority"])

    assert (first["Name"], first["Action"]) == ("AllowList", {"Block": {}})
    known = first["Statement"]["NotStatement"]["Statement"]["OrStatement"]["Statements"]
    assert len(known) == 2
    assert sets["IPV4"]["Addresses"] == ["192.0.2.0/24"]
    assert sets["IPV6"]["Addresses"] == ["2001:db8::/32"]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"requests_per_sender": 10}, {"SenderRate"}),
        ({"allowed_cidrs": ("192.0.2.0/24",)}, {"AllowList"}),
    ],
)
def test_each_guard_may_stand_alone(
    bench: Bench, settings: dict[str, Any], names: set[str]
) -> None:
    assert set(rules(bench, receiver(front=Front.REST, **settings))) == names


def test_the_acl_is_in_front_of_the_deployed_stage(templates: Templates) -> None:
    (association,) = of_type(templates("rest"), "AWS::WAFv2::WebACLAssociation").values()
    (stage,) = of_type(templates("rest"), "AWS::ApiGateway::Stage")
    (acl,) = of_type(templates("rest"), ACL)

    assert {"Ref": stage} in association["ResourceArn"]["Fn::Join"][1]
    assert association["WebACLArn"] == {"Fn::GetAtt": [acl, "Arn"]}


def test_no_sample_of_a_request_shows_the_secret_path(templates: Templates) -> None:
    (acl,) = of_type(templates("rest"), ACL).values()

    shown = [one["VisibilityConfig"] for one in (acl, *acl["Rules"])]
    assert not [one for one in shown if one["SampledRequestsEnabled"]]
    assert all(one["CloudWatchMetricsEnabled"] for one in shown)


def test_what_the_api_refuses_has_the_receivers_answer(templates: Templates) -> None:
    sources = (Source(None, SecretPathProof("a-secret-segment")),)
    ours = Answering(sources, lambda _: None).answer(HttpRequest("POST", "/", {}, b"x"))

    answers = of_type(templates("rest"), "AWS::ApiGateway::GatewayResponse").values()

    assert {one["ResponseType"] for one in answers} == {
        "ACCESS_DENIED",
        "WAF_FILTERED",
        "MISSING_AUTHENTICATION_TOKEN",
    }
    for one in answers:
        assert one["StatusCode"] == str(ours.status)
        assert one["ResponseTemplates"] == {"application/json": ours.body}


def test_every_request_reaches_the_receiver_byte_for_byte(templates: Templates) -> None:
    template = templates("rest")
    (api,) = of_type(template, "AWS::ApiGateway::RestApi").values()
    (stage,) = of_type(template, "AWS::ApiGateway::Stage").values()

    assert api["BinaryMediaTypes"] == ["*/*"]
    methods = of_type(template, METHOD).values()
    assert [one["HttpMethod"] for one in methods] == ["ANY", "ANY"]
    assert {one["Integration"]["Type"] for one in methods} == {"AWS_PROXY"}
    (limits,) = stage["MethodSettings"]
    assert (limits["ThrottlingRateLimit"], limits["ThrottlingBurstLimit"]) == (200, 400)


def test_the_api_without_a_web_acl_is_the_default(templates: Templates) -> None:
    assert not of_type(templates("plain"), ACL)
    assert of_type(templates("plain"), "AWS::ApiGatewayV2::Api")
    assert not of_type(templates("rest"), "AWS::ApiGatewayV2::Api")


@pytest.mark.parametrize(
    ("settings", "reported"),
    [
        ({"requests_per_sender": 100}, "need front=Front.REST"),
        ({"allowed_cidrs": ("192.0.2.0/24",)}, "need front=Front.REST"),
        ({"front": Front.REST}, "set requests_per_sender, allowed_cidrs, or both"),
        ({"concurrency": 0}, "receiver.concurrency=0: write 1 to 1000"),
        ({"front": Front.REST, "requests_per_sender": 9}, "write 10 to 2000000000"),
        ({"front": Front.REST, "allowed_cidrs": ("192.0.2.1/24",)}, "has host bits set; write a"),
        ({"front": Front.REST, "allowed_cidrs": ("grid",)}, "=grid: write a block such as"),
        ({"front": Front.REST, "allowed_cidrs": ("0.0.0.0/0",)}, "it admits every address"),
    ],
)
def test_settings_that_guard_nothing_are_rejected(settings: dict[str, Any], reported: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        replace(PLAIN, receiver=receiver(**settings)).check()

    (problem,) = caught.value.problems
    assert reported in problem


def test_the_alarm_on_failed_responses_reads_this_api(templates: Templates) -> None:
    alarms = of_type(templates("rest"), "AWS::CloudWatch::Alarm").values()

    (alarm,) = (one for one in alarms if one.get("MetricName") == "5XXError")
    assert alarm["Dimensions"] == [{"Name": "ApiName", "Value": f"extentflow-{BEHIND_WAF.name}"}]
