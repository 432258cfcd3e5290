"""Prevent the deployment of a stack whose artifacts were not built."""

from aws_cdk import Annotations, CfnParameter, CfnRule, CfnRuleAssertion, Fn, Stack
from constructs import Construct

BUILT = "built"


def refuse_deployment(scope: Construct, what: str, remedy: str) -> None:
    """Add a warning at synthesis, and a rule with which CloudFormation rejects the template.

    `what` is in CamelCase, and unique within a stack.
    """
    Annotations.of(scope).add_warning_v2(f"extentflow:{what}Missing", remedy)
    stack = Stack.of(scope)
    parameter = CfnParameter(
        stack, what, default="missing", description="Set by synthesis; do not set it."
    )
    CfnRule(
        stack,
        f"{what}IsBuilt",
        assertions=[
            CfnRuleAssertion(
                assert_=Fn.condition_equals(parameter.value_as_string, BUILT),
                assert_description=remedy,
            )
        ],
    )
