"""Log groups of a stage, all with its retention.

Groups to which a service delivers are below `/aws/vendedlogs/`. For all of these, AWS has one
statement in the account's policy of logs. Each other group takes a part of its 5,120 characters,
which accounts with many APIs have used up.
"""

from dataclasses import dataclass

from aws_cdk import Aws, Fn, RemovalPolicy
from aws_cdk import aws_logs as logs
from constructs import Construct

from .config import Stage

DELIVERED = "/aws/vendedlogs/extentflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLogs:
    """How long the groups keep their lines, whether they stay without the stack, and their key."""

    days: int
    stay: bool
    key_arn: str | None = None

    @classmethod
    def of(cls, stage: Stage) -> "KeptLogs":
        """Return how a stage keeps its logs."""
        return cls(days=stage.log_days, stay=stage.logs_stay, key_arn=stage.kms_key_arn)

    def group(
        self, scope: Construct, construct_id: str, *, name: str | None = None
    ) -> logs.LogGroup:
        """Return a log group; CloudFormation names it unless `name` does."""
        stay, go = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE, RemovalPolicy.DESTROY
        made = logs.LogGroup(
            scope, construct_id, log_group_name=name, removal_policy=stay if self.stay else go
        )
        resource = made.node.default_child
        if not isinstance(resource, logs.CfnLogGroup):
            raise TypeError(f"{made.node.path}: CDK no longer creates a log group as one resource")
        resource.retention_in_days = self.days
        resource.kms_key_id = self.key_arn
        return made

    def delivered(self, scope: Construct, construct_id: str, *, part: str = "") -> logs.LogGroup:
        """Return a log group to which an AWS service delivers; `part` ends its name.

        The name ends with a part of the stack's id: a stack that is created again must not find the
        group that stayed.
        """
        number = Fn.select(4, Fn.split("-", Fn.select(2, Fn.split("/", Aws.STACK_ID))))
        return self.group(scope, construct_id, name=f"{DELIVERED}/{Aws.STACK_NAME}-{number}{part}")
