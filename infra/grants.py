"""One permission of a function or a Spark job, and why it has it.

Owns: how permissions are said, which services functions call by them. Refuses to know: which
functions there are. A resource is a name wherever one is known; `wildcards` gives the reason
wherever one is not, and cdk-nag hears it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.findings import explain, shown

# Services that are used without a connection of the function's own, so that no path is needed.
WITHOUT_CONNECTION: Mapping[str, str] = {
    "logs": "Lambda itself writes what a function prints",
    "ec2": "Lambda itself places functions in the VPC",
    "kms": "S3 and Secrets Manager ask it in the function's name",
    "kafka-cluster": "brokers judge by it; their addresses are inside the VPC",
    "iam": "EMR Serverless asks it whether a role may be passed",
}


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave to do `actions` on `resources`; `why` says for what, `wildcard` why no name is known.

    `id` tells a role's grants apart, in CamelCase. `connects` names services that whoever has it
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
        """Return the grant as IAM has it."""
        return iam.PolicyStatement(
            sid=self.id,
            actions=list(self.actions),
            resources=list(self.resources),
            conditions=dict(self.conditions) or None,
        )

    @property
    def services(self) -> frozenset[str]:
        """The services that somebody with this grant connects to."""
        asked = {action.partition(":")[0] for action in self.actions}
        return frozenset(asked - WITHOUT_CONNECTION.keys()) | self.connects


def policy(grants: Iterable[Grant]) -> iam.PolicyDocument:
    """Return grants as one document."""
    return iam.PolicyDocument(statements=[grant.statement() for grant in grants])


def role(
    scope: Construct,
    *,
    description: str,
    assumed_by: iam.IPrincipal,
    grants: Sequence[Grant],
    policy_name: str,
) -> iam.Role:
    """Return a role with these grants and nothing else, each wildcard explained."""
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
    """Yield (resource, reason) for every resource that is not one name."""
    for grant in grants:
        yield from (
            (resource, f"{grant.id}: {grant.wildcard}")
            for resource in grant.resources
            if "*" in resource
        )
