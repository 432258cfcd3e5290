"""One permission of a function or a Spark job, with its reason.

Resources are named wherever the name is known; otherwise `wildcard` gives the reason to cdk-nag.

A role's grants are one inline policy while they fit. Of a stage with many topics, secrets or
buckets they do not: the grants that remain are divided among managed policies.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from extentflow.errors import Misconfigured

from .findings import explain, shown

# IAM counts characters without white space: of all inline policies of a role, of each managed one.
INLINE_CHARACTERS, MANAGED_CHARACTERS = 10_240, 6_144
MOST_MANAGED = 10  # the default quota of managed policies per role
# The rest is for the frame of the document, and for what the estimate leaves out.
USED_PERCENT = 95
_PSEUDO = {"AWS::Partition": 10, "AWS::Region": 14, "AWS::AccountId": 12}
# Names that CloudFormation makes: an ARN with a name of 80 characters.
_REFERENCE_CHARACTERS = 150

# Services that the function uses without a connection of its own, so they need no path.
WITHOUT_CONNECTION: Mapping[str, str] = {
    "logs": "Lambda itself writes a function's output",
    "ec2": "Lambda itself connects functions to the VPC",
    "kms": "S3 and Secrets Manager call it on behalf of the function",
    "kafka-cluster": "brokers authorise with it; their addresses are inside the VPC",
    "iam": "EMR Serverless checks whether a role may be passed",
}

Conditions: TypeAlias = Mapping[str, Mapping[str, str | Sequence[str]]]


def literal(text: str) -> str:
    """Return a text for a resource of a policy in which IAM finds no wildcard and no variable."""
    return re.sub(r"[*?]|\$(?=\{)", r"${\g<0>}", text)


@dataclass(frozen=True, slots=True)
class Grant:
    """Permission for `actions` on `resources`; `why` and `wildcard` are its reasons.

    `id` identifies a grant within a role, in CamelCase. `connects` names services that the holder
    connects to although functions do not. With `denies`, it takes that permission away.
    """

    id: str
    why: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    wildcard: str = ""
    conditions: Conditions = field(default_factory=dict)
    connects: frozenset[str] = frozenset()
    denies: bool = False

    def statement(self) -> iam.PolicyStatement:
        """Return the grant as an IAM statement."""
        return iam.PolicyStatement(
            sid=self.id,
            effect=iam.Effect.DENY if self.denies else iam.Effect.ALLOW,
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
    """Return a role with exactly these grants, each wildcard explained.

    Raises:
        Misconfigured: the grants fit into no ten managed policies.
    """
    inline, *managed = divided(scope, grants)
    if len(managed) > MOST_MANAGED:
        raise Misconfigured(
            f"role of {scope.node.path}: its permissions need {len(managed)} managed policies, and"
            f" AWS allows {MOST_MANAGED}; declare fewer connectors, topics or buckets per stage"
        )
    made = iam.Role(
        scope,
        "Role",
        description=description,
        assumed_by=assumed_by,
        inline_policies={policy_name: policy(inline)},
    )
    _explain_wildcards(made, inline)
    for number, some in enumerate(managed):
        # Attached by the role, so that nothing with the role can exist before its policies.
        more = iam.ManagedPolicy(scope, f"{policy_name}{number}", document=policy(some))
        made.add_managed_policy(more)
        _explain_wildcards(more, some)
    return made


def divided(scope: Construct, grants: Iterable[Grant]) -> list[list[Grant]]:
    """Return the grants of the inline policy, then those of each managed policy.

    A grant with many resources is divided, with the same id and a number.
    """
    parts: list[list[Grant]] = [[]]
    limit, used = _usable(INLINE_CHARACTERS), 0
    for grant in (part for whole in grants for part in _pieces(scope, whole)):
        size = characters(scope, grant)
        if used + size > limit:
            parts.append([])
            limit, used = _usable(MANAGED_CHARACTERS), 0
        parts[-1].append(grant)
        used += size
    return parts


def _pieces(scope: Construct, grant: Grant) -> list[Grant]:
    """Return a grant in halves, each so small that several fit into a policy."""
    if characters(scope, grant) <= _usable(MANAGED_CHARACTERS) // 2 or len(grant.resources) == 1:
        return [grant]
    middle = len(grant.resources) // 2
    halves = (grant.resources[:middle], grant.resources[middle:])
    pieces = [
        replace(piece, id=grant.id)
        for half in halves
        for piece in _pieces(scope, replace(grant, resources=half))
    ]
    return [replace(piece, id=f"{grant.id}{number}") for number, piece in enumerate(pieces)]


def characters(scope: Construct, grant: Grant) -> int:
    """Return how many characters of a policy a grant takes at most."""
    return _length(Stack.of(scope).resolve(grant.statement().to_json())) + 1


def _usable(limit: int) -> int:
    return limit * USED_PERCENT // 100


def _length(part: Any) -> int:  # noqa: ANN401 - CloudFormation's JSON
    """Return the length of JSON without white space after CloudFormation resolved it."""
    match part:
        case {"Ref": str(name)}:
            return _PSEUDO.get(name, _REFERENCE_CHARACTERS)
        case {"Fn::GetAtt": _} | {"Fn::Select": _}:
            return _REFERENCE_CHARACTERS
        case {"Fn::Join": [str(between), list(parts)]}:
            return 2 + sum(map(_length, parts)) + len(between) * (len(parts) - 1)
        case dict():
            return 2 + sum(_length(key) + _length(value) + 2 for key, value in part.items())
        case list():
            return 2 + sum(_length(each) + 1 for each in part)
    return len(json.dumps(part))


def _explain_wildcards(construct: Construct, grants: Iterable[Grant]) -> None:
    for resource, reason in wildcards(grants):
        explain(construct, f"AwsSolutions-IAM5[Resource::{shown(construct, resource)}]", reason)


def wildcards(grants: Iterable[Grant]) -> Iterator[tuple[str, str]]:
    """Yield (resource, reason) for every resource that is not a single name."""
    for grant in grants:
        yield from (
            (resource, f"{grant.id}: {grant.wildcard}")
            for resource in grant.resources
            if "*" in resource and not grant.denies
        )
