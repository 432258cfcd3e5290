"""The HTTP API in front of the receiver function."""

import json

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_apigatewayv2 as http
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk.aws_apigatewayv2_integrations import HttpLambdaIntegration
from constructs import Construct

from infra.findings import explain
from infra.functions import LOGS_KEPT

# Without the path, which may contain a secret.
LOGGED = {
    "request": "$context.requestId",
    "time": "$context.requestTime",
    "method": "$context.httpMethod",
    "status": "$context.status",
    "milliseconds": "$context.responseLatency",
    "from": "$context.identity.sourceIp",
}


class Endpoint(Construct):
    """An HTTP API that passes every request to the receiver, in payload format 2.0."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        receiver: lambda_.IFunction,
        requests_per_second: int,
    ) -> None:
        super().__init__(scope, construct_id)
        api = http.HttpApi(
            self,
            "Api",
            description="Notifications for extentflow",
            default_integration=HttpLambdaIntegration(
                "Receiver",
                receiver,
                payload_format_version=http.PayloadFormatVersion.VERSION_2_0,
            ),
            create_default_stage=False,
        )
        stage = http.HttpStage(
            self,
            "Stage",
            http_api=api,
            stage_name="$default",
            auto_deploy=True,
            throttle=http.ThrottleSettings(
                rate_limit=requests_per_second, burst_limit=2 * requests_per_second
            ),
        )
        self._log_access(stage)
        explain(
            api,
            "AwsSolutions-APIG4",
            "the receiver itself verifies every request: a StorageGRID signs with "
            "a key that IAM does"
            " not know, or has only a secret path",
        )
        self.url = api.api_endpoint
        self._api = api

    def server_errors(self, period: Duration) -> cloudwatch.Metric:
        """Return the number of responses with a 5xx status."""
        return self._api.metric_server_error(period=period, statistic="Sum")

    def _log_access(self, stage: http.HttpStage) -> None:
        log = logs.LogGroup(
            self, "AccessLog", retention=LOGS_KEPT, removal_policy=RemovalPolicy.DESTROY
        )
        resource = stage.node.default_child
        if not isinstance(resource, http.CfnStage):
            raise TypeError(
                f"{stage.node.path}: CDK no longer creates an HTTP stage as one resource"
            )
        resource.access_log_settings = http.CfnStage.AccessLogSettingsProperty(
            destination_arn=log.log_group_arn, format=json.dumps(LOGGED)
        )
