"""What synthesis only refers to and somebody has to build first.

Owns: that a stack without it is never deployed. Refuses to know: what it is.
"""

from aws_cdk import Annotations, CfnParameter, CfnRule, CfnRuleAssertion, Fn, Stack
from constructs import Construct

BUILT = "built"


def refuse_deployment(scope: Construct, what: str, remedy: str) -> None:
    """Let synthesis warn and CloudFormation refuse the stack, at its first look at the template.

    `what` is in CamelCase, and once in a stack.
    """
    Annotations.of(scope).add_warning_v2(f"extentflow:{what}Missing", remedy)
    stack = Stack.of(scope)
    parameter = CfnParameter(
        stack, what, default="missing", description="Set by synthesis; not to be given."
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
