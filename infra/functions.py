"""One function of the event path: code, role, log group, place in the network."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from extentflow.errors import Misconfigured

from . import encryption
from .findings import explain
from .grants import Grant, role
from .kept_logs import KeptLogs
from .layers import ARCHITECTURE, NOT_CODE, RUNTIME
from .network import Network

ENTRY = "handler.py"
HANDLER = "handler.handler"
# Default. A waiting function costs money, a waiting message does not: an unavailable service fails
# the message, which returns to the queue. Begun within the margin that the worker keeps
# (25 s), one such wait ends before the function's time does.
RETRY_SECONDS = 20
MOST_ATTEMPTS = 3  # of an asynchronous invocation, by Lambda
LIVE = "live"  # the alias of a published function
# How CDK decides whether a function changed. Without the first, a new layer would be no change, and
# the alias would keep the last one for ever; without the second, a tag would be one, and Lambda
# refuses to publish a version that equals the last.
VERSIONED: Mapping[str, bool] = {
    "@aws-cdk/aws-lambda:recognizeLayerVersion": True,
    "@aws-cdk/aws-lambda:recognizeVersionProps": True,
}

TRACE = Grant(
    "SendTraces",
    "Lambda sends the segments of a function with its role",
    ("xray:PutTelemetryRecords", "xray:PutTraceSegments"),
    ("*",),
    wildcard="traces of X-Ray are no resources that a policy could name",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFunctionSettings:
    """What all functions of a stack share."""

    layers: Sequence[lambda_.ILayerVersion]
    environment: Mapping[str, str]
    metrics_namespace: str
    logs: KeptLogs
    key_arn: str | None = None
    tracing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Resources of one invocation: memory, with it CPU (one vCPU at 1,769 MiB), and timeout."""

    memory_mib: int
    timeout_seconds: int


class EventFunction(Construct):
    """One function with a role of its own.

    `code` is a folder with `handler.py`. With `network` it runs in the VPC's subnets. `recurs`: it
    sends messages to a queue that leads back to it. Lambda's detection of recursive loops is then
    off, which would drop the messages of a chain after about 16 invocations. `reserved` is how many
    invocations run at a time, at most; the account keeps as many free for them. Lambda reserves
    them for all versions together.

    A `published` function has a version for each change of its code, layers or settings, and the
    alias `live`; `target` is what event sources invoke.

    Raises:
        Misconfigured: the code is missing.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        code: Path,
        description: str,
        size: Size,
        common: SharedFunctionSettings,
        grants: Iterable[Grant],
        network: Network | None = None,
        recurs: bool = False,
        reserved: int | None = None,
        published: bool = False,
    ) -> None:
        super().__init__(scope, construct_id)
        self.memory_mib = size.memory_mib
        self.service = code.name
        if not (code / ENTRY).is_file():
            raise Misconfigured(
                f"{code / ENTRY}: no such file; it must contain the function's code"
            )
        name = code.name
        own = tuple(grants)
        if network is not None:
            network.place(name, own)
        log = common.logs.group(self, "Log")
        self.log_group_name = log.log_group_name
        self.role = role(
            self,
            description=description,
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            grants=(
                *own,
                write(log),
                *_stand(network),
                *encryption.storage(self, common.key_arn, own),
                *encryption.variables(self, common.key_arn),
                *((TRACE,) if common.tracing else ()),
            ),
            policy_name="Function",
        )
        self.function = lambda_.Function(
            self,
            "Function",
            description=description,
            runtime=RUNTIME,
            architecture=ARCHITECTURE,
            handler=HANDLER,
            code=lambda_.Code.from_asset(str(code), exclude=NOT_CODE),
            layers=list(common.layers),
            memory_size=size.memory_mib,
            timeout=Duration.seconds(size.timeout_seconds),
            role=self.role,
            log_group=log,
            reserved_concurrent_executions=reserved,
            recursive_loop=lambda_.RecursiveLoop.ALLOW if recurs else None,
            # With plain text logs Lambda sets no level, and the library's INFO lines would be lost.
            logging_format=lambda_.LoggingFormat.JSON,
            application_log_level_v2=lambda_.ApplicationLogLevel.INFO,
            environment={
                **common.environment,
                "POWERTOOLS_SERVICE_NAME": name,
                "POWERTOOLS_METRICS_NAMESPACE": common.metrics_namespace,
            },
            vpc=network.vpc if network else None,
            security_groups=[network.security_group] if network else None,
            vpc_subnets=network.subnets if network else None,
        )
        encryption.encrypt_variables(self.function, common.key_arn)
        if common.tracing:
            _trace(self.function)
        explain(
            self.function,
            "AwsSolutions-L1",
            "the layer's packages are built for Python 3.13; both change together",
        )
        self._alias = self._publish() if published else None

    @property
    def target(self) -> lambda_.IFunction:
        """What event sources invoke."""
        return self._alias or self.function

    @property
    def qualifier(self) -> str:
        """The name of what event sources invoke, within the function."""
        return LIVE if self._alias else "$LATEST"

    @property
    def live(self) -> lambda_.Alias:
        """The alias of a published function."""
        if self._alias is None:
            raise TypeError(f"{self.node.path} is not published")
        return self._alias

    @property
    def resource_of_alias(self) -> lambda_.CfnAlias:
        """The alias without the permissions on it, for others to wait for."""
        resource = self.live.node.default_child
        if not isinstance(resource, lambda_.CfnAlias):
            raise TypeError(
                f"{self.live.node.path}: CDK no longer creates an alias as one resource"
            )
        return resource

    def _publish(self) -> lambda_.Alias:
        # A setting of the function, not of a version.
        lambda_.Function.classify_version_property("RecursiveLoop", locked=False)
        version = self.function.current_version
        return lambda_.Alias(self, "Live", alias_name=LIVE, version=version)


def _trace(function: lambda_.Function) -> None:
    """Let Lambda trace invocations, without the policy that CDK would add to the role."""
    resource = function.node.default_child
    if not isinstance(resource, lambda_.CfnFunction):
        raise TypeError(f"{function.node.path}: CDK no longer creates a function as one resource")
    resource.tracing_config = lambda_.CfnFunction.TracingConfigProperty(mode="Active")


def write(log: logs.LogGroup) -> Grant:
    """Return permission to write a function's own log group."""
    return Grant(
        "WriteLog",
        "what the function prints",
        ("logs:CreateLogStream", "logs:PutLogEvents"),
        (log.log_group_arn,),
    )


def answer_within(
    scope: Construct,
    function_name: str,
    *,
    period: Duration,
    attempts: int = MOST_ATTEMPTS,
    qualifier: str = "$LATEST",
) -> lambda_.CfnEventInvokeConfig:
    """Limit the asynchronous invocations of a function to the `period` in which they have a use.

    Otherwise, Lambda keeps an event for six hours, and repeats a failed invocation twice.
    """
    return lambda_.CfnEventInvokeConfig(
        scope,
        "Events",
        function_name=function_name,
        qualifier=qualifier,
        maximum_event_age_in_seconds=period.to_seconds(),
        maximum_retry_attempts=attempts - 1,
    )


def _stand(network: Network | None) -> Iterator[Grant]:
    if network is None:
        return
    stand = Grant(
        "StandInVpc",
        "Lambda creates network interfaces in the VPC with the function's role",
        (
            "ec2:AssignPrivateIpAddresses",
            "ec2:CreateNetworkInterface",
            "ec2:DeleteNetworkInterface",
            "ec2:DescribeNetworkInterfaces",
            "ec2:DescribeSubnets",
            "ec2:UnassignPrivateIpAddresses",
        ),
        ("*",),
        wildcard="Lambda requires these permissions on all network interfaces",
    )
    yield stand
    yield replace(
        stand,
        id="LeaveVpcToLambda",
        why="code of the function has no use for them; only its calls carry this key",
        conditions={"Null": {"lambda:SourceFunctionArn": "false"}},
        denies=True,
    )
