"""Findings of cdk-nag that are meant to be: each with its reason, beside the construct it is about.

Owns: how reasons are told. Refuses to know: rules.
"""

from aws_cdk import Acknowledgment, Validations
from constructs import IConstruct


def explain(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept what `rule` finds in this construct, because of `reason`."""
    Validations.of(construct).acknowledge(Acknowledgment(id=rule, reason=reason))
