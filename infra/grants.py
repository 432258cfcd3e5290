"""One permission of a function or a Spark job, with its reason.

Resources are named wherever the name is known; otherwise `wildcard` gives the reason to cdk-nag.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.findings import explain, shown

# Services that the function uses without a connection of its own, so they need no path.
WITHOUT_CONNECTION: Mapping[str, str] = {
    "logs": "Lambda itself writes a function's output",
    "ec2": "Lambda itself connects functions to the VPC",
    "kms": "S3 and Secrets Manager call it on behalf of the function",
    "kafka-cluster": "brokers authorise with it; their addresses are inside the VPC",
    "iam": "EMR Serverless checks whether a role may be passed",
}


@dataclass(frozen=True, slots=True)
class Grant:
    """Permission for `actions` on `resources`; `why` and `wildcard` are its reasons.

    `id` identifies a grant within a role, in CamelCase. `connects` names services that the holder
    connects to although functions do not.
    """

    id: str
    why: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    wildcard: str = ""
    conditions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    connects: frozenset[str] = frozenset()

    def statement(self) -> iam.PolicyStatement:
        """Return the grant as an IAM statement."""
        return iam.PolicyStatement(
            sid=self.id,
            actions=list(self.actions),
            resources=list(self.resources),
            conditions=dict(self.conditions) or None,
        )

    @property
    def services(self) -> frozenset[str]:
        """The services that the holder of this grant connects to."""
        asked = {action.partition(":")[0] for action in self.actions}
        return frozenset(asked - WITHOUT_CONNECTION.keys()) | self.connects


def policy(grants: Iterable[Grant]) -> iam.PolicyDocument:
    """Return grants as one policy document."""
    return iam.PolicyDocument(statements=[grant.statement() for grant in grants])


def role(
    scope: Construct,
    *,
    description: str,
    assumed_by: iam.IPrincipal,
    grants: Sequence[Grant],
    policy_name: str,
) -> iam.Role:
    """Return a role with exactly these grants, each wildcard explained."""
    made = iam.Role(
        scope,
        "Role",
        description=description,
        assumed_by=assumed_by,
        inline_policies={policy_name: policy(grants)},
    )
    for resource, reason in wildcards(grants):
        explain(made, f"AwsSolutions-IAM5[Resource::{shown(scope, resource)}]", reason)
    return made


def wildcards(grants: Iterable[Grant]) -> Iterator[tuple[str, str]]:
    """Yield (resource, reason) for every resource that is not a single name."""
    for grant in grants:
        yield from (
            (resource, f"{grant.id}: {grant.wildcard}")
            for resource in grant.resources
            if "*" in resource
        )
