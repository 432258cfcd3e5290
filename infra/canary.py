"""Gradual deployment: a new version gets a tenth of the invocations, until alarms let it pass.

    the last version ──90 %──┐
    the new version ──10 %───┴── alias `live` <── event sources     for `canary_minutes`
                                                                    then, or never: 100 %

A CodeDeploy deployment per function moves the alias during an update of the stack. If one of the
alarms rings, CloudFormation takes back the whole update. The function without a tenth (the
reconciler, which runs every five minutes) and the connectors follow when all tenths have passed.

CodeDeploy refuses to begin while an alarm rings, and the alarms of operators also ring for what the
last version does: with them, a fix could not be deployed. The alarms here compare the two versions.
"""

from collections.abc import Iterable, Mapping, Sequence

from aws_cdk import Duration, Fn
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_iam as iam
from constructs import Construct

from extentflow.metric_table import PLANNER, RECEIVER, SERVICE, TABLE, VERSION, WORKER

from .config import Stage
from .functions import LIVE, EventFunction
from .grants import Grant, role

CONFIGS: Mapping[int, codedeploy.ILambdaDeploymentConfig] = {
    5: codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_5_MINUTES,
    10: codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_10_MINUTES,
    15: codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_15_MINUTES,
    30: codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_30_MINUTES,
}
PERIOD = Duration.minutes(1)
# Long enough for CodeDeploy to see an alarm that one minute's failures rang.
RINGS_MINUTES = 5
# What each function counts for every version; Lambda counts its errors.
COUNTED: Mapping[str, Sequence[str]] = {
    service: [one.name for one in TABLE.values() if one.per_version and service in one.writers]
    for service in (PLANNER, WORKER, RECEIVER)
}


class Canary(Construct):
    """The deployments of published functions; any alarm stops all of them.

    `followers` get their new version when all deployments succeeded.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: Stage,
        minutes: int,
        functions: Sequence[EventFunction],
        followers: Iterable[EventFunction],
    ) -> None:
        super().__init__(scope, construct_id)
        self._stage = stage
        application = codedeploy.LambdaApplication(self, "Application")
        moves = role(
            self,
            description="Moves the aliases of extentflow's functions",
            assumed_by=iam.ServicePrincipal("codedeploy.amazonaws.com"),
            grants=_grants(functions),
            policy_name="Deploy",
        ).without_policy_updates()
        alarms = [self._alarm(function) for function in functions]
        for function in functions:
            codedeploy.LambdaDeploymentGroup(
                self,
                function.node.id,
                application=application,
                role=moves,
                alias=function.live,
                deployment_config=CONFIGS[minutes],
                alarms=alarms,
                auto_rollback=codedeploy.AutoRollbackConfig(
                    failed_deployment=True, stopped_deployment=True, deployment_in_alarm=True
                ),
            )
            # The alarms must measure the new version before it gets its first invocation.
            function.live.node.add_dependency(*alarms)
        for follower in followers:
            for function in functions:
                follower.live.node.add_dependency(function.resource_of_alias)

    def _alarm(self, function: EventFunction) -> cloudwatch.Alarm:
        """Return an alarm for a minute whose failures are mostly those of the new version."""
        service, number = function.service, function.function.current_version.version
        name = function.function.function_name
        ours = {SERVICE: service}
        versions = {"Resource": f"{name}:{LIVE}", "ExecutedVersion": number}
        metrics: dict[str, cloudwatch.IMetric] = {}
        for place, metric in enumerate(COUNTED[service]):
            metrics[f"all{place}"] = self._sum(self._stage.metrics_namespace, metric, ours)
            metrics[f"new{place}"] = self._sum(
                self._stage.metrics_namespace, metric, {**ours, VERSION: number}
            )
        named = {"FunctionName": name}
        metrics["allErrors"] = self._sum("AWS/Lambda", "Errors", named)
        metrics["newErrors"] = self._sum("AWS/Lambda", "Errors", {**named, **versions})
        new, total = (
            " + ".join(f"FILL({one}, 0)" for one in metrics if one.startswith(kind))
            for kind in ("new", "all")
        )
        return cloudwatch.Alarm(
            self,
            f"{function.node.id}Fails",
            # A new name makes a new alarm for each version, which has no state of an earlier one.
            alarm_name=Fn.join(
                "-", [f"extentflow-{self._stage.name}", "Canary", function.node.id, number]
            ),
            alarm_description=(
                f"extentflow: most failures of the {service} are those of its new version;"
                " a deployment is taken back, and no notification is sent"
            ),
            metric=cloudwatch.MathExpression(
                expression=f"IF({new} > 0 AND 2 * ({new}) > {total}, 1, 0)",
                using_metrics=metrics,
                period=PERIOD,
                label="Most failures are the new version's",
            ),
            threshold=0,
            evaluation_periods=RINGS_MINUTES,
            datapoints_to_alarm=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )

    def _sum(self, namespace: str, metric: str, dimensions: Mapping[str, str]) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=namespace,
            metric_name=metric,
            dimensions_map=dict(dimensions),
            period=PERIOD,
            statistic="Sum",
        )


def _grants(functions: Iterable[EventFunction]) -> tuple[Grant, ...]:
    arns = [one.function.function_arn for one in functions]
    return (
        Grant(
            "MoveAliases",
            "a deployment divides an alias between two versions",
            ("lambda:GetAlias", "lambda:GetProvisionedConcurrencyConfig", "lambda:UpdateAlias"),
            (*arns, *(f"{arn}:*" for arn in arns)),
            wildcard="Lambda numbers the versions of a function",
        ),
        Grant(
            "SeeAlarms",
            "a deployment ends when an alarm rings",
            ("cloudwatch:DescribeAlarms",),
            ("*",),
            wildcard="CodeDeploy lists alarms, and a list has no name",
        ),
    )
