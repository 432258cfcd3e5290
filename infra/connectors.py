"""Store declared connectors in the ledger at deployment: one custom resource per connector."""

from collections.abc import Sequence

from aws_cdk import CustomResource, Duration, custom_resources
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct, IConstruct

from .context import StackContext
from .encryption import encrypt_variables, variables
from .functions import EventFunction, SharedFunctionSettings, Size, answer_within, write
from .grants import Grant, policy

RESOURCE = "Custom::ExtentflowConnector"
FRAMEWORK = "framework-onEvent"
ANSWERED_WITHIN = Duration.minutes(5)
WRITER = Size(memory_mib=512, timeout_seconds=120)


class Connectors(Construct):
    """All declared connectors; one that is no longer declared is hidden from new jobs.

    They are stored `after` the functions that deliver them are in use: their last version may not
    know a new key.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        context: StackContext,
        after: Sequence[IConstruct] = (),
    ) -> None:
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
        provider = self._provider(writer, context.common)
        for one in context.connectors:
            stored = CustomResource(
                self,
                one.name,
                resource_type=RESOURCE,
                service_token=provider.service_token,
                properties={"config": dict(one.config)},
                service_timeout=ANSWERED_WITHIN,
            )
            stored.node.add_dependency(*after)

    def _provider(
        self, writer: EventFunction, common: SharedFunctionSettings
    ) -> custom_resources.Provider:
        """Return CDK's provider framework, which responds to CloudFormation."""
        log = common.logs.group(self, "ProviderLog")
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
            inline_policies={
                "Function": policy((call, write(log), *variables(self, common.key_arn)))
            },
        )
        provider = custom_resources.Provider(
            self,
            "Provider",
            on_event_handler=writer.function,
            log_group=log,
            framework_on_event_role=role.without_policy_updates(),
        )
        # CloudFormation invokes the framework asynchronously. A later attempt would store a
        # connector of a deployment that was rolled back.
        framework = provider.node.find_child(FRAMEWORK)
        if not isinstance(framework, lambda_.Function):
            raise TypeError(f"{framework.node.path}: CDK's framework is no longer a function")
        encrypt_variables(framework, common.key_arn)
        answer_within(provider, framework.function_name, period=ANSWERED_WITHIN)
        return provider
