"""Findings of cdk-nag that are meant to be: each with its reason, beside the construct it is about.

Owns: how reasons are told, how cdk-nag writes what only a deployment knows. Refuses to know: rules.
"""

import re
from typing import Any

from aws_cdk import Acknowledgment, Stack, Validations
from constructs import IConstruct

_VARIABLE = re.compile(r"\$\{([^}]+)\}")


def explain(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept what `rule` finds in this construct, because of `reason`."""
    Validations.of(construct).acknowledge(Acknowledgment(id=rule, reason=reason))


def shown(construct: IConstruct, text: str) -> str:
    """Return a text that may hold tokens as findings show it: `arn:<AWS::Partition>:...`."""
    return _flat(Stack.of(construct).resolve(text))


def _flat(part: Any) -> str:  # noqa: ANN401 - CloudFormation's JSON
    """Return an expression of CloudFormation as one text."""
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
    raise TypeError(f"{part}: cdk-nag's way to write this is not known here")
