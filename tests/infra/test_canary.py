"""Gradual deployment: what a new version of a function reaches, and what stops it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_cdk.assertions import Template
from infra.config import Bucket
from infra.project import Project
from tests.infra.conftest import Templates
from tests.support.synthesis import CANARY, FUNCTIONS, Bench, environment, of_type

from extentflow.errors import Misconfigured

ALIAS = "AWS::Lambda::Alias"
VERSION = "AWS::Lambda::Version"
GRADUAL = {"planner", "receiver", "worker"}


@pytest.fixture
def canary(templates: Templates) -> Template:
    return templates("canary")


def services(template: Template) -> dict[str, str]:
    """Return the service of each function, by the function's logical id."""
    return {
        name: environment(properties)["POWERTOOLS_SERVICE_NAME"]
        for name, properties in of_type(template, "AWS::Lambda::Function").items()
        if "POWERTOOLS_SERVICE_NAME" in environment(properties)
    }


def aliases(template: Template) -> dict[str, str]:
    """Return the service of each alias, by the alias's logical id."""
    of = services(template)
    found = of_type(template, ALIAS)
    return {name: of[one["FunctionName"]["Ref"]] for name, one in found.items()}


def versions(template: Template) -> dict[str, str]:
    """Return the logical id of each version, by its service."""
    of = services(template)
    found = of_type(template, VERSION)
    return {of[one["FunctionName"]["Ref"]]: name for name, one in found.items()}


def references(part: Any) -> Iterator[str]:  # noqa: ANN401 - CloudFormation's JSON
    """Yield the logical ids that a part of a template refers to."""
    match part:
        case {"Ref": str(name)}:
            yield name
        case {"Fn::GetAtt": [str(name), *_]}:
            yield name
        case dict():
            for each in part.values():
                yield from references(each)
        case list():
            for each in part:
                yield from references(each)


def test_nothing_invokes_a_function_but_by_its_alias(canary: Template) -> None:
    """What names the function itself would invoke the new code at once."""
    of = services(canary)
    own = {
        "AWS::Lambda::Alias",
        "AWS::Lambda::Version",
        "AWS::IAM::Role",
        "AWS::CloudWatch::Alarm",
        "AWS::CloudWatch::Dashboard",
        "AWS::Lambda::EventInvokeConfig",
    }
    named: dict[str, set[str]] = {}
    for name, resource in canary.to_json()["Resources"].items():
        for function in {*references(resource.get("Properties"))} & of.keys():
            if of[function] in FUNCTIONS and resource["Type"] not in own:
                named.setdefault(name, set()).add(of[function])

    assert named == {}
    assert set(aliases(canary).values()) == {*FUNCTIONS}


@pytest.mark.parametrize(
    "kind",
    [
        "AWS::Lambda::EventSourceMapping",
        "AWS::Lambda::Permission",
        "AWS::ApiGatewayV2::Integration",
    ],
)
def test_event_sources_and_permissions_name_aliases(canary: Template, kind: str) -> None:
    of = aliases(canary)

    found = [{*references(one)} & of.keys() for one in of_type(canary, kind).values()]

    assert found
    assert all(len(each) == 1 for each in found)


def test_limits_hold_for_what_is_invoked(canary: Template) -> None:
    """Reserved concurrency belongs to a function; limits of asynchronous calls to a name of it."""
    of = services(canary)
    limits = {
        of[one["FunctionName"]["Ref"]]: one["Qualifier"]
        for one in of_type(canary, "AWS::Lambda::EventInvokeConfig").values()
        if one["FunctionName"]["Ref"] in of
    }
    reserved = {
        of[name]: one["ReservedConcurrentExecutions"]
        for name, one in of_type(canary, "AWS::Lambda::Function").items()
        if "ReservedConcurrentExecutions" in one
    }

    assert limits == {"reconciler": "live"}
    assert reserved == {"receiver": 20}


def test_a_new_version_gets_a_tenth_for_the_given_time(bench: Bench) -> None:
    template = bench.template(replace(CANARY, canary_minutes=30))
    of = aliases(template)
    groups = of_type(template, "AWS::CodeDeploy::DeploymentGroup")
    gradual = {
        of[name]: groups[
            one["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]["DeploymentGroupName"]["Ref"]
        ]
        for name, one in template.find_resources(ALIAS).items()
        if "UpdatePolicy" in one
    }

    assert gradual.keys() == GRADUAL
    for group in gradual.values():
        assert group["DeploymentConfigName"] == "CodeDeployDefault.LambdaCanary10Percent30Minutes"
        assert group["AutoRollbackConfiguration"]["Enabled"]
        assert "DEPLOYMENT_STOP_ON_ALARM" in group["AutoRollbackConfiguration"]["Events"]
        assert {*references(group["AlarmConfiguration"])} == {*own_alarms(template)}


def own_alarms(template: Template) -> dict[str, dict[str, Any]]:
    found = of_type(template, "AWS::CloudWatch::Alarm")
    return {name: one for name, one in found.items() if "Canary" in name}


def test_alarms_measure_the_new_version_before_it_is_invoked(canary: Template) -> None:
    of, alarms = aliases(canary), own_alarms(canary)

    waiting = {of[name]: {*one["DependsOn"]} for name, one in canary.find_resources(ALIAS).items()}

    assert len(alarms) == len(GRADUAL)
    for service in GRADUAL:
        assert alarms.keys() <= waiting[service]
    found = {name for name, service in of.items() if service in GRADUAL}
    assert found <= waiting["reconciler"]


def test_an_alarm_is_new_for_each_version(canary: Template) -> None:
    """The state of the last deployment's alarm would stop the next one."""
    numbers = {*versions(canary).values()}

    for one in own_alarms(canary).values():
        assert {*references(one["AlarmName"])} <= numbers
        assert "AlarmActions" not in one


def test_connectors_are_stored_when_all_functions_know_them(canary: Template) -> None:
    (stored,) = canary.find_resources("Custom::ExtentflowConnector").values()

    assert aliases(canary).keys() <= {*stored["DependsOn"]}


def rings(alarm: Mapping[str, Any], seen: Mapping[str, float]) -> bool:
    """Return whether an alarm rings for one minute's metrics, by id."""
    (expression,) = (one["Expression"] for one in alarm["Metrics"] if "Expression" in one)
    ids = {one["Id"] for one in alarm["Metrics"] if "MetricStat" in one}
    condition = expression.removeprefix("IF(").removesuffix(", 1, 0)").replace("AND", "and")
    values = {"FILL": lambda value, other: other if value is None else value}
    given = {one: seen.get(one) for one in ids}
    assert seen.keys() <= ids
    return bool(eval(condition, values, given))  # noqa: S307 - our own template


@pytest.mark.parametrize(
    ("seen", "rung"),
    [
        ({}, False),
        ({"all0": 9.0}, False),  # the last version fails: its remedy must be deployable
        ({"all0": 10.0, "new0": 1.0}, False),  # the brokers are down for both
        ({"all0": 1.0, "new0": 1.0}, True),
        ({"all1": 3.0, "new1": 2.0}, True),
        ({"allErrors": 1.0, "newErrors": 1.0}, True),
        ({"allErrors": 9.0, "newErrors": 9.0, "all0": 1.0}, True),
    ],
)
def test_a_deployment_ends_when_most_failures_are_the_new_versions(
    canary: Template, seen: dict[str, float], *, rung: bool
) -> None:
    (alarm,) = (one for name, one in own_alarms(canary).items() if "WorkerFails" in name)

    assert rings(alarm, seen) is rung
    assert (alarm["EvaluationPeriods"], alarm["DatapointsToAlarm"]) == (5, 1)
    assert alarm["TreatMissingData"] == "notBreaching"


def test_each_version_is_measured_by_its_number(canary: Template) -> None:
    number = {"Fn::GetAtt": [versions(canary)["worker"], "Version"]}
    (alarm,) = (one for name, one in own_alarms(canary).items() if "WorkerFails" in name)

    found = {
        one["Id"]: {
            each["Name"]: each["Value"] for each in one["MetricStat"]["Metric"]["Dimensions"]
        }
        for one in alarm["Metrics"]
        if "MetricStat" in one
    }

    assert found["new0"] == {"service": "worker", "version": number}
    assert found["all0"] == {"service": "worker"}
    assert found["newErrors"].keys() == {"FunctionName", "Resource", "ExecutedVersion"}
    assert found["newErrors"]["ExecutedVersion"] == number


# -- what makes a version -------------------------------------------------------------------------


def _layer(bench: Bench) -> Template:
    bench.write("core/python/extentflow/new.py", "changed = True\n")
    return bench.template(CANARY)


def _what_lambda_does_not_version(bench: Bench) -> Template:
    assert CANARY.receiver is not None
    changed = replace(
        CANARY,
        tags={"owner": "data"},
        receiver=replace(CANARY.receiver, concurrency=7),
        most_workers=90,
        buckets=(*CANARY.buckets, Bucket(name="second")),
    )
    return bench.template(changed)


class OwnCore(Bench):
    """A project whose library can be changed."""

    @property
    def project(self) -> Project:
        return replace(super().project, core=self.root / "core")


@pytest.fixture
def own_core(tmp_path: Path) -> Bench:
    bench = OwnCore.at(tmp_path)
    bench.write("core/python/extentflow/__init__.py", "")
    return bench


@pytest.mark.parametrize(
    ("change", "published"),
    [
        (_layer, True),  # a layer keeps its name in the template when its content changes
        (_what_lambda_does_not_version, False),  # it publishes none that equals the last
    ],
)
def test_a_version_is_published_for_every_change_of_it_and_for_no_other(
    own_core: Bench,
    change: Callable[[Bench], Template],
    *,
    published: bool,
) -> None:
    before = versions(own_core.template(CANARY))
    after = versions(change(own_core))

    assert before.keys() == after.keys() == {*FUNCTIONS}
    assert {service for service in FUNCTIONS if before[service] != after[service]} == (
        {*FUNCTIONS} if published else set()
    )


# -- the choice -----------------------------------------------------------------------------------


def test_a_stage_without_canary_has_no_versions(templates: Templates) -> None:
    plain = templates("plain")

    for kind in (ALIAS, VERSION, "AWS::CodeDeploy::DeploymentGroup"):
        plain.resource_count_is(kind, 0)


def test_another_time_is_rejected() -> None:
    with pytest.raises(Misconfigured, match="canary_minutes=7: CodeDeploy has 5, 10, 15, 30"):
        replace(CANARY, canary_minutes=7).check()
