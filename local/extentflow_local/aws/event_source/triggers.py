"""Read event sources from resources: queues, schedules, rules, HTTP routes.

`folders` maps a function's name or ARN to its folder. Event sources of unknown functions are None.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from extentflow_local.aws.event_source import patterns
from extentflow_local.aws.event_source.deployment import (
    Route,
    Schedule,
    SourceMapping,
    Subscription,
    TimeSource,
)
from extentflow_local.aws.event_source.intrinsics import UnresolvedValue
from extentflow_local.aws.event_source.resources import Resource

_MOST_BATCH = 10
_UNIT_SECONDS = {"minute": 60, "hour": 3600, "day": 86_400}
_RATE = re.compile(r"rate\(([1-9]\d*) (minute|hour|day)s?\)")

Folders = Mapping[str, str]


def mapping(resource: Resource, folders: Folders) -> SourceMapping | None:
    """Read an AWS::Lambda::EventSourceMapping of a queue."""
    function = folders.get(resource.text("FunctionName"))
    if function is None or resource.value("Enabled") is False:
        return None
    resource.refuse("FilterCriteria", "MaximumBatchingWindowInSeconds", "ProvisionedPollerConfig")
    batch = resource.whole("BatchSize", 10)
    if batch > _MOST_BATCH:
        raise UnresolvedValue(f"BatchSize {batch} is not emulated; {_MOST_BATCH} is the most")
    scaling = resource.value("ScalingConfig") or {}
    most = scaling.get("MaximumConcurrency")
    return SourceMapping(
        function=function,
        queue_arn=resource.text("EventSourceArn"),
        batch_size=batch,
        most_concurrent=None if most is None else int(most),
        reports_failures=resource.value("FunctionResponseTypes") == ["ReportBatchItemFailures"],
    )


def rule(resource: Resource, folders: Folders) -> Schedule | None:
    """Read an AWS::Events::Rule with a rate; None for one with a pattern."""
    if resource.value("ScheduleExpression") is None:
        return None
    for target in resource.value("Targets") or ():
        found = _every(resource, folders, target, "aws.events")
        if found is not None:
            return found
    return None


def subscription(resource: Resource, folders: Folders) -> Subscription | None:
    """Read an AWS::Events::Rule with a pattern."""
    if resource.given.get("EventPattern") is None or resource.value("State") == "DISABLED":
        return None
    targets = resource.given.get("Targets") or ()
    functions = (_function(resource, target, folders) for target in targets)
    function = next((one for one in functions if one is not None), None)
    if function is None:
        return None
    pattern = resource.value("EventPattern")
    patterns.check(pattern)
    return Subscription(function=function, pattern=pattern)


def schedule(resource: Resource, folders: Folders) -> Schedule | None:
    """Read an AWS::Scheduler::Schedule with a rate."""
    return _every(resource, folders, resource.value("Target") or {}, "aws.scheduler")


def route(resource: Resource, folders: Folders, integrations: Iterable[Resource]) -> Route | None:
    """Read an AWS::ApiGatewayV2::Route."""
    target = resource.text("Target").removeprefix("integrations/")
    for integration in integrations:
        if integration.ref != target:
            continue
        # The function's ARN, or the path of Lambda's API that contains it.
        uri = integration.text("IntegrationUri").removesuffix("/invocations")
        function = folders.get(uri.rpartition("/functions/")[2])
        if function is None:
            return None
        if integration.value("PayloadFormatVersion") != "2.0":
            raise UnresolvedValue("only PayloadFormatVersion 2.0 is emulated")
        return Route(function=function, key=resource.text("RouteKey"), front="http-api")
    return None


def url(resource: Resource, folders: Folders) -> Route | None:
    """Read an AWS::Lambda::Url."""
    function = folders.get(resource.text("TargetFunctionArn"))
    if function is None:
        return None
    return Route(function=function, key="$default", front="function-url")


def _function(resource: Resource, target: Mapping[str, Any], folders: Folders) -> str | None:
    try:
        return folders.get(resource.names.value(target.get("Arn")))
    except UnresolvedValue:  # an unknown function
        return None


def _every(
    resource: Resource, folders: Folders, target: Mapping[str, Any], source: TimeSource
) -> Schedule | None:
    function = folders.get(target.get("Arn", ""))
    if function is None or resource.value("State") == "DISABLED":
        return None
    return Schedule(
        function=function,
        arn=resource.arn,
        every_seconds=_rate(resource.text("ScheduleExpression")),
        source=source,
        payload=target.get("Input"),
    )


def _rate(expression: str) -> float:
    found = _RATE.fullmatch(expression)
    if found is None:
        raise UnresolvedValue(f"{expression} is not emulated; write rate(5 minutes)")
    return int(found[1]) * _UNIT_SECONDS[found[2]]
