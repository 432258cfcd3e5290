"""Accepted findings of cdk-nag, each with its reason beside the construct."""

import json
import re
from typing import Any

from aws_cdk import Acknowledgment, Stack, Validations
from constructs import IConstruct

_VARIABLE = re.compile(r"\$\{([^}]+)\}")


def explain(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept the finding of `rule` on this construct, with its `reason`."""
    Validations.of(construct).acknowledge(Acknowledgment(id=rule, reason=reason))


def shown(construct: IConstruct, text: str) -> str:
    """Return a text with tokens in the form that findings use: `arn:<AWS::Partition>:...`."""
    return _flat(Stack.of(construct).resolve(text))


def _flat(part: Any) -> str:  # noqa: ANN401 - CloudFormation's JSON
    """Return a CloudFormation expression as one text."""
    match part:
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::GetAtt": [name, attribute]}:
            return f"<{name}.{attribute}>"
        case {"Fn::Join": [between, parts]}:
            return str(between).join(map(_flat, parts))
        case {"Fn::Sub": text}:
            return _VARIABLE.sub(r"<\1>", str(text))
        case str():
            return part
    return json.dumps(part, separators=(",", ":"))  # as cdk-nag does
