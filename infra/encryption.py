"""The customer managed key of a stage: what is encrypted with it, and who may use it.

queues, table, new buckets        their service calls KMS for the caller: grants follow
variables of functions            Lambda calls KMS with the function's role, and names the function
logs, topic of alarms, events     services call KMS themselves: the key's own policy, in
docs/key-policy.json
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from aws_cdk import ArnFormat, CfnResource, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk.region_info import RegionInfo
from constructs import Construct, IConstruct

from .grants import Conditions, Grant

T = TypeVar("T", bound=CfnResource)

_REGION = 3  # in an ARN
# Services that call KMS with the permissions of their caller.
ON_BEHALF = frozenset({"dynamodb", "sqs"})


def storage(scope: Construct, key_arn: str | None, grants: Iterable[Grant]) -> Iterator[Grant]:
    """Yield permission to use the key, through the services that these grants allow to call."""
    called = {action.partition(":")[0] for grant in grants for action in grant.actions}
    if key_arn is None or not called & ON_BEHALF:
        return
    region = Stack.of(scope).region
    yield Grant(
        "UseStageKey",
        "queues and table are encrypted with the stage's key",
        (
            "kms:Decrypt",
            "kms:DescribeKey",
            "kms:Encrypt",
            "kms:GenerateDataKey",
            "kms:ReEncryptFrom",
            "kms:ReEncryptTo",
        ),
        (key_arn,),
        conditions=via(region, called & ON_BEHALF),
    )


def via(region: str, services: Iterable[str]) -> Conditions:
    """Return the conditions of a grant that is used through these services only."""
    suffix = RegionInfo.get(region).domain_suffix
    names = [f"{service}.{region}.{suffix}" for service in sorted(services)]
    return {"StringEquals": {"kms:ViaService": names}}


def through(grant: Grant, service: str) -> Iterator[Grant]:
    """Yield a grant on keys, for this service only, per region: a service calls KMS in its own."""
    regions = sorted({arn.split(":")[_REGION] for arn in grant.resources})
    for number, region in enumerate(regions):
        yield replace(
            grant,
            id=f"{grant.id}{number or ''}",
            resources=tuple(arn for arn in grant.resources if arn.split(":")[_REGION] == region),
            conditions=via(region, (service,)),
        )


def variables(scope: Construct, key_arn: str | None) -> Iterator[Grant]:
    """Yield permission to decrypt a function's variables, which Lambda does with its role.

    Lambda encrypts them with the function's ARN as context. A policy that names the function would
    depend on it, and it depends on its role: so the condition has the begin of the stacks' names.
    """
    if key_arn is None:
        return
    functions = Stack.of(scope).format_arn(
        service="lambda",
        resource="function",
        resource_name="extentflow-*",
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    yield Grant(
        "DecryptVariables",
        "variables are encrypted with the stage's key",
        ("kms:Decrypt",),
        (key_arn,),
        conditions={"ArnLike": {"kms:EncryptionContext:aws:lambda:FunctionArn": functions}},
    )


def encrypt_variables(function: IConstruct, key_arn: str | None) -> None:
    """Encrypt a function's variables with the key, without the grants that CDK would add."""
    if key_arn is not None:
        _resource(function, lambda_.CfnFunction).kms_key_arn = key_arn


def encrypt_queue(queue: IConstruct, key_arn: str | None) -> None:
    """Encrypt a queue with the key.

    CDK's own way would leave out of the queue's policy which rules may send.
    """
    if key_arn is not None:
        resource = _resource(queue, sqs.CfnQueue)
        resource.kms_master_key_id = key_arn
        resource.sqs_managed_sse_enabled = None


def _resource(construct: IConstruct, kind: type[T]) -> T:
    found = construct.node.default_child
    if not isinstance(found, kind):
        raise TypeError(f"{construct.node.path}: CDK no longer creates one {kind.__name__}")
    return found
