"""Names, ARNs and URLs of a template's resources on this machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from extentflow_local.aws.event_source.intrinsics import UnresolvedValue, resolve
from extentflow_local.stack.servers import ACCOUNT, REGION


@dataclass(frozen=True, slots=True)
class Kind:
    """A resource type: its name property, and the results of Ref and Fn::GetAtt."""

    name_property: str = ""
    ref: str = "{name}"
    attributes: Mapping[str, str] = field(default_factory=dict)


NOWHERE = "nowhere"
"""The application of EMR Serverless that nothing stands for."""

_QUEUE_URL = "{sqs}/{account}/{name}"
_APPLICATION = "{application}"
_TABLE = Kind("TableName", attributes={"Arn": "arn:aws:dynamodb:{region}:{account}:table/{name}"})
KINDS: Mapping[str, Kind] = {
    "AWS::ApiGatewayV2::Integration": Kind(),
    "AWS::DynamoDB::GlobalTable": _TABLE,
    "AWS::DynamoDB::Table": _TABLE,
    "AWS::EMRServerless::Application": Kind(
        "Name", ref=_APPLICATION, attributes={"ApplicationId": _APPLICATION}
    ),
    "AWS::Events::Rule": Kind(
        "Name", attributes={"Arn": "arn:aws:events:{region}:{account}:rule/{name}"}
    ),
    "AWS::Lambda::Function": Kind(
        "FunctionName", attributes={"Arn": "arn:aws:lambda:{region}:{account}:function:{name}"}
    ),
    "AWS::SQS::Queue": Kind(
        "QueueName",
        ref=_QUEUE_URL,
        attributes={
            "Arn": "arn:aws:sqs:{region}:{account}:{name}",
            "QueueName": "{name}",
            "QueueUrl": _QUEUE_URL,
        },
    ),
    "AWS::Scheduler::Schedule": Kind(
        "Name", attributes={"Arn": "arn:aws:scheduler:{region}:{account}:schedule/default/{name}"}
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateContext:
    """Values of this machine that a template refers to.

    `sqs` is the server's address, `application` the id of the emulated EMR Serverless application.
    `prefix` is the start of every resource's name, so that several event paths can share a server.
    `values` defines further names, or overrides: the name of a parameter or resource for Ref,
    `Name.Attribute` for Fn::GetAtt. `environment` overrides the variables of every function; None
    removes a variable.
    """

    sqs: str
    application: str = NOWHERE
    prefix: str = ""
    region: str = REGION
    account: str = ACCOUNT
    values: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str | None] = field(default_factory=dict)


class Names:
    """Resolves names in a template."""

    def __init__(self, template: Mapping[str, Any], context: TemplateContext) -> None:
        self._resources: Mapping[str, Mapping[str, Any]] = template.get("Resources", {})
        self._parameters: Mapping[str, Mapping[str, Any]] = template.get("Parameters", {})
        self._context = context
        self._pseudo = {
            "AWS::AccountId": context.account,
            "AWS::Partition": "aws",
            "AWS::Region": context.region,
            "AWS::StackName": context.prefix or "local",
            "AWS::URLSuffix": "amazonaws.com",
        }

    def look(self, name: str, attribute: str | None = None) -> str:
        """Return the result of Ref, or with an attribute of Fn::GetAtt.

        Raises:
            UnresolvedValue: the name is not defined.
        """
        wanted = name if attribute is None else f"{name}.{attribute}"
        for known in (self._context.values, self._pseudo):
            if wanted in known:
                return known[wanted]
        form = self._form(name, attribute)
        if form is not None:
            return self._fill(form, name)
        if attribute is None and "Default" in self._parameters.get(name, {}):
            return str(self._parameters[name]["Default"])
        raise UnresolvedValue(f"{wanted} is unknown here; define its value")

    def value(self, value: Any) -> Any:  # noqa: ANN401 - any JSON
        """Return a template's value with its functions resolved."""
        return resolve(value, self.look)

    def physical(self, name: str) -> str:
        """Return a resource's own name."""
        return self._fill("{name}", name)

    def _form(self, name: str, attribute: str | None) -> str | None:
        kind = KINDS.get(self._resources.get(name, {}).get("Type", ""))
        if kind is None:
            return None
        return kind.ref if attribute is None else kind.attributes.get(attribute)

    def _fill(self, form: str, name: str) -> str:
        resource = self._resources[name]
        given = resource.get("Properties", {}).get(KINDS[resource["Type"]].name_property)
        own = name if given is None else self.value(given)
        context = self._context
        return form.format(
            name=f"{context.prefix}{own}",
            sqs=context.sqs,
            application=context.application,
            region=context.region,
            account=context.account,
        )
