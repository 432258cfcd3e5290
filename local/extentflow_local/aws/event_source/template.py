"""Read a deployment from a synthesised CloudFormation template.

A function is identified by POWERTOOLS_SERVICE_NAME in its environment, which the stack sets to the
name of its code's folder. Functions without it, such as those of CDK, do not run here.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from extentflow.errors import Misconfigured
from extentflow_local.aws.event_source import triggers
from extentflow_local.aws.event_source.deployment import Deployment, Function, Queue, Redrive
from extentflow_local.aws.event_source.intrinsics import UnresolvedValue
from extentflow_local.aws.event_source.names import Names, TemplateContext
from extentflow_local.aws.event_source.resources import Resource, resources_of

SERVICE_NAME = "POWERTOOLS_SERVICE_NAME"

Declared = TypeVar("Declared")


def read_template(path: Path, context: TemplateContext) -> Deployment:
    """Return the deployment in a template file.

    Raises:
        Misconfigured: all unknown values, and everything that is not emulated.
    """
    return read_document(json.loads(path.read_text(encoding="utf-8")), context)


def read_document(template: Mapping[str, Any], context: TemplateContext) -> Deployment:
    """Return the deployment of a template, as `read_template`."""
    reading = _TemplateReader(template, Names(template, context))
    functions = list(reading.each("AWS::Lambda::Function", lambda one: _function(one, context)))
    folders = {name: one.name for one in functions for name in (one.arn, one.deployed_name)}
    integrations = reading.all("AWS::ApiGatewayV2::Integration")
    deployment = Deployment(
        functions={one.name: one for one in functions},
        queues=tuple(reading.each("AWS::SQS::Queue", _queue)),
        mappings=tuple(
            reading.each(
                "AWS::Lambda::EventSourceMapping", lambda one: triggers.mapping(one, folders)
            )
        ),
        schedules=(
            *reading.each("AWS::Events::Rule", lambda one: triggers.rule(one, folders)),
            *reading.each("AWS::Scheduler::Schedule", lambda one: triggers.schedule(one, folders)),
        ),
        subscriptions=tuple(
            reading.each("AWS::Events::Rule", lambda one: triggers.subscription(one, folders))
        ),
        routes=(
            *reading.each(
                "AWS::ApiGatewayV2::Route", lambda one: triggers.route(one, folders, integrations)
            ),
            *reading.each("AWS::Lambda::Url", lambda one: triggers.url(one, folders)),
        ),
        outputs=dict(reading.outputs()),
    )
    if reading.problems:
        raise Misconfigured(reading.problems)
    return deployment


class _TemplateReader:
    """One template and its problems."""

    def __init__(self, template: Mapping[str, Any], names: Names) -> None:
        self._template = template
        self._names = names
        self.problems: list[str] = []

    def all(self, kind: str) -> list[Resource]:
        return list(resources_of(self._template, self._names, kind))

    def each(self, kind: str, read: Callable[[Resource], Declared | None]) -> Iterator[Declared]:
        for resource in self.all(kind):
            try:
                found = read(resource)
            except UnresolvedValue as exc:
                self.problems += [f"{resource.logical_id}: {line}" for line in exc.args]
                continue
            if found is not None:
                yield found

    def outputs(self) -> Iterator[tuple[str, str]]:
        for name, output in self._template.get("Outputs", {}).items():
            try:
                yield name, str(self._names.value(output["Value"]))
            except UnresolvedValue:
                # Refers to something that does not exist here; access to it raises an error.
                continue


def _queue(resource: Resource) -> Queue:
    resource.refuse("FifoQueue")
    return Queue(
        name=resource.physical,
        arn=resource.arn,
        url=resource.ref,
        visibility_seconds=resource.whole("VisibilityTimeout", 30),
        retention_seconds=resource.whole("MessageRetentionPeriod", 345_600),
        delay_seconds=resource.whole("DelaySeconds", 0),
        wait_seconds=resource.whole("ReceiveMessageWaitTimeSeconds", 0),
        redrive=_redrive(resource.value("RedrivePolicy")),
    )


def _redrive(policy: Mapping[str, Any] | None) -> Redrive | None:
    if policy is None:
        return None
    return Redrive(
        arn=str(policy["deadLetterTargetArn"]), most_receives=int(policy["maxReceiveCount"])
    )


def _function(resource: Resource, context: TemplateContext) -> Function | None:
    variables = resource.given.get("Environment", {}).get("Variables", {})
    name = variables.get(SERVICE_NAME)
    if not isinstance(name, str):
        return None
    return Function(
        name=name,
        arn=resource.arn,
        handler=resource.text("Handler"),
        runtime=resource.text("Runtime"),
        timeout_seconds=resource.whole("Timeout", 3),
        memory_mib=resource.whole("MemorySize", 128),
        environment=_environment(resource, {**variables, **context.environment}),
        reserved=resource.whole("ReservedConcurrentExecutions", 0) or None,
        may_recurse=resource.given.get("RecursiveLoop") == "Allow",
    )


def _environment(resource: Resource, variables: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    problems = []
    for name, value in variables.items():
        try:
            given = resource.names.value(value)
        except UnresolvedValue as exc:
            problems += [f"{name}: {line}" for line in exc.args]
            continue
        if given is not None:
            found[name] = str(given)
    if problems:
        raise UnresolvedValue(*problems)
    return found
