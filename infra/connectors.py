"""Declared connectors, written into the ledger when the stack is deployed.

Owns: one custom resource per connector, the function behind them. Refuses to know: what a connector
says (`declared`), how the ledger keeps it (the library, in `provider/handler.py`).
"""

from aws_cdk import CustomResource, Duration, RemovalPolicy, custom_resources
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.functions import LOGS_KEPT, EventFunction, Size, write
from infra.grants import Grant, policy
from infra.surroundings import Surroundings

RESOURCE = "Custom::ExtentflowConnector"
ANSWERED_WITHIN = Duration.minutes(5)
WRITER = Size(memory_mib=512, timeout_seconds=120)


class Connectors(Construct):
    """Every declared connector; one that is no longer declared is hidden from new jobs."""

    def __init__(self, scope: Construct, construct_id: str, *, around: Surroundings) -> None:
        super().__init__(scope, construct_id)
        writer = EventFunction(
            self,
            "Writer",
            code=around.project.provider,
            description="Writes the stack's connectors into the ledger",
            size=WRITER,
            common=around.common,
            grants=(around.ledger.write_connectors(),),
        )
        provider = self._provider(writer)
        for one in around.connectors:
            CustomResource(
                self,
                one.name,
                resource_type=RESOURCE,
                service_token=provider.service_token,
                properties={"config": dict(one.config)},
                service_timeout=ANSWERED_WITHIN,
            )

    def _provider(self, writer: EventFunction) -> custom_resources.Provider:
        """Return CDK's framework, which answers CloudFormation for the writer."""
        log = logs.LogGroup(
            self, "ProviderLog", retention=LOGS_KEPT, removal_policy=RemovalPolicy.DESTROY
        )
        call = Grant(
            "CallWriter",
            "the framework calls the writer, and looks whether it can be called",
            ("lambda:InvokeFunction", "lambda:GetFunction"),
            (writer.function.function_arn,),
        )
        role = iam.Role(
            self,
            "ProviderRole",
            description="Calls the writer of connectors",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            inline_policies={"Function": policy((call, write(log)))},
        )
        return custom_resources.Provider(
            self,
            "Provider",
            on_event_handler=writer.function,
            log_group=log,
            framework_on_event_role=role.without_policy_updates(),
        )
