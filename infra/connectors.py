"""Store declared connectors in the ledger at deployment: one custom resource per connector."""

from aws_cdk import CustomResource, Duration, RemovalPolicy, custom_resources
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.context import StackContext
from infra.functions import LOGS_KEPT, EventFunction, Size, write
from infra.grants import Grant, policy

RESOURCE = "Custom::ExtentflowConnector"
ANSWERED_WITHIN = Duration.minutes(5)
WRITER = Size(memory_mib=512, timeout_seconds=120)


class Connectors(Construct):
    """All declared connectors; one that is no longer declared is hidden from new jobs."""

    def __init__(self, scope: Construct, construct_id: str, *, context: StackContext) -> None:
        super().__init__(scope, construct_id)
        writer = EventFunction(
            self,
            "Writer",
            code=context.project.provider,
            description="Stores the stack's connectors in the ledger",
            size=WRITER,
            common=context.common,
            grants=(context.ledger.write_connectors(),),
        )
        provider = self._provider(writer)
        for one in context.connectors:
            CustomResource(
                self,
                one.name,
                resource_type=RESOURCE,
                service_token=provider.service_token,
                properties={"config": dict(one.config)},
                service_timeout=ANSWERED_WITHIN,
            )

    def _provider(self, writer: EventFunction) -> custom_resources.Provider:
        """Return CDK's provider framework, which responds to CloudFormation."""
        log = logs.LogGroup(
            self, "ProviderLog", retention=LOGS_KEPT, removal_policy=RemovalPolicy.DESTROY
        )
        call = Grant(
            "CallWriter",
            "the framework invokes the writer, and checks its state",
            ("lambda:InvokeFunction", "lambda:GetFunction"),
            (writer.function.function_arn,),
        )
        role = iam.Role(
            self,
            "ProviderRole",
            description="Invokes the function that stores connectors",
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
