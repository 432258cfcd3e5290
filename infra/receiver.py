"""The API in front of the receiver function, and what keeps a flood from the other senders.

HTTP API                            every request ──> receiver
web ACL ──> REST API, regional      requests of permitted senders below their rate ──> receiver
"""

import json
from collections.abc import Sequence
from ipaddress import ip_network
from typing import Protocol

from aws_cdk import Duration
from aws_cdk import aws_apigateway as rest
from aws_cdk import aws_apigatewayv2 as http
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_wafv2 as waf
from aws_cdk.aws_apigatewayv2_integrations import HttpLambdaIntegration
from constructs import Construct

from extentflow.http import requests

from .config import Front, Receiver, Stage
from .findings import explain
from .kept_logs import KeptLogs

# Without the path, which may contain a secret.
LOGGED = {
    "request": "$context.requestId",
    "time": "$context.requestTime",
    "method": "$context.httpMethod",
    "status": "$context.status",
    "milliseconds": "$context.responseLatency",
    "from": "$context.identity.sourceIp",
}
# As the receiver answers a request without a proof.
DENIED_STATUS = 403
DENIED = requests.refused("AccessDenied", "the proof is missing or wrong")
REST_STAGE = "live"
RATE_SECONDS = 300
VERIFIES = (
    "the receiver itself verifies every request: a StorageGRID signs with a key that IAM does"
    " not know, or has only a secret path"
)


class Endpoint(Protocol):
    """The API of a stage: its address, and the responses that it counts."""

    url: str

    def server_errors(self, period: Duration) -> cloudwatch.Metric:
        """Return the number of responses with a 5xx status."""
        ...

    def client_errors(self, period: Duration) -> cloudwatch.Metric:
        """Return the number of responses with a 4xx status."""
        ...

    def requests(self, period: Duration) -> cloudwatch.Metric:
        """Return the number of requests."""
        ...


def endpoint(
    scope: Construct,
    construct_id: str,
    *,
    receiver: lambda_.IFunction,
    settings: Receiver,
    stage: Stage,
    kept: KeptLogs,
) -> Endpoint:
    """Return the API that passes requests to the receiver."""
    if settings.front is Front.REST:
        return RestEndpoint(scope, construct_id, receiver=receiver, settings=settings, stage=stage)
    return HttpEndpoint(scope, construct_id, receiver=receiver, settings=settings, kept=kept)


class HttpEndpoint(Construct):
    """An HTTP API that passes every request to the receiver, in payload format 2.0."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        receiver: lambda_.IFunction,
        settings: Receiver,
        kept: KeptLogs,
    ) -> None:
        super().__init__(scope, construct_id)
        self._api = http.HttpApi(
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
            http_api=self._api,
            stage_name="$default",
            auto_deploy=True,
            throttle=http.ThrottleSettings(
                rate_limit=settings.requests_per_second,
                burst_limit=2 * settings.requests_per_second,
            ),
        )
        self._log_access(stage, kept)
        explain(self._api, "AwsSolutions-APIG4", VERIFIES)
        self.url = self._api.api_endpoint

    def server_errors(self, period: Duration) -> cloudwatch.Metric:
        """See `Endpoint`."""
        return self._api.metric_server_error(period=period, statistic="Sum")

    def client_errors(self, period: Duration) -> cloudwatch.Metric:
        """See `Endpoint`."""
        return self._api.metric_client_error(period=period, statistic="Sum")

    def requests(self, period: Duration) -> cloudwatch.Metric:
        """See `Endpoint`."""
        return self._api.metric_count(period=period)

    def _log_access(self, stage: http.HttpStage, kept: KeptLogs) -> None:
        log = kept.delivered(self, "AccessLog")
        resource = stage.node.default_child
        if not isinstance(resource, http.CfnStage):
            raise TypeError(
                f"{stage.node.path}: CDK no longer creates an HTTP stage as one resource"
            )
        resource.access_log_settings = http.CfnStage.AccessLogSettingsProperty(
            destination_arn=log.log_group_arn, format=json.dumps(LOGGED)
        )


class RestEndpoint(Construct):
    """A regional REST API behind a web ACL; it passes requests in payload format 1.0."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        receiver: lambda_.IFunction,
        settings: Receiver,
        stage: Stage,
    ) -> None:
        super().__init__(scope, construct_id)
        self._api = rest.RestApi(
            self,
            "Api",
            rest_api_name=f"extentflow-{stage.name}",  # a dimension of its metrics
            description="Notifications for extentflow",
            endpoint_types=[rest.EndpointType.REGIONAL],
            # Every body is passed as base64: signatures cover its bytes.
            binary_media_types=["*/*"],
            cloud_watch_role=False,
            deploy_options=rest.StageOptions(
                stage_name=REST_STAGE,
                throttling_rate_limit=settings.requests_per_second,
                throttling_burst_limit=2 * settings.requests_per_second,
                tracing_enabled=stage.tracing,
            ),
        )
        integration = rest.LambdaIntegration(receiver, allow_test_invoke=False)
        methods = [self._api.root.add_method("ANY", integration)]
        proxy = self._api.root.add_proxy(default_integration=integration, any_method=True)
        if proxy.any_method is not None:
            methods.append(proxy.any_method)
        self._refuse_alike()
        self._guard(settings)
        self._explain(methods)
        self.url = self._api.url

    def server_errors(self, period: Duration) -> cloudwatch.Metric:
        """See `Endpoint`."""
        return self._api.metric_server_error(period=period, statistic="Sum")

    def client_errors(self, period: Duration) -> cloudwatch.Metric:
        """See `Endpoint`."""
        return self._api.metric_client_error(period=period, statistic="Sum")

    def requests(self, period: Duration) -> cloudwatch.Metric:
        """See `Endpoint`."""
        return self._api.metric_count(period=period)

    def _refuse_alike(self) -> None:
        """Give what the API refuses the receiver's answer, so that it reveals nothing either."""
        for name, kind in (
            ("Denied", rest.ResponseType.ACCESS_DENIED),
            ("Filtered", rest.ResponseType.WAF_FILTERED),
            ("Unknown", rest.ResponseType.MISSING_AUTHENTICATION_TOKEN),
        ):
            self._api.add_gateway_response(
                name,
                type=kind,
                status_code=str(DENIED_STATUS),
                response_headers={"content-type": f"'{requests.CONTENT_TYPE}'"},
                templates={"application/json": DENIED},
            )

    def _guard(self, settings: Receiver) -> None:
        rules = []
        if settings.allowed_cidrs:
            rules.append(_rule("AllowList", 0, self._strangers(settings.allowed_cidrs)))
        if settings.requests_per_sender is not None:
            rate = waf.CfnWebACL.RateBasedStatementProperty(
                aggregate_key_type="IP",
                limit=settings.requests_per_sender,
                evaluation_window_sec=RATE_SECONDS,
            )
            statement = waf.CfnWebACL.StatementProperty(rate_based_statement=rate)
            rules.append(_rule("SenderRate", 1, statement))
        acl = waf.CfnWebACL(
            self,
            "Acl",
            scope="REGIONAL",
            description="Senders of notifications",
            default_action=waf.CfnWebACL.DefaultActionProperty(allow={}),
            rules=rules,
            visibility_config=_counted("Acl"),
        )
        waf.CfnWebACLAssociation(
            self,
            "Association",
            resource_arn=self._api.deployment_stage.stage_arn,
            web_acl_arn=acl.attr_arn,
        )

    def _strangers(self, cidrs: Sequence[str]) -> waf.CfnWebACL.StatementProperty:
        """Return a statement about every address outside of these blocks."""
        statement = waf.CfnWebACL.StatementProperty
        sets = []
        for version in (4, 6):
            addresses = [cidr for cidr in cidrs if ip_network(cidr).version == version]
            if addresses:
                made = waf.CfnIPSet(
                    self,
                    f"Allowed{version}",
                    scope="REGIONAL",
                    ip_address_version=f"IPV{version}",
                    addresses=addresses,
                )
                reference = waf.CfnWebACL.IPSetReferenceStatementProperty(arn=made.attr_arn)
                sets.append(statement(ip_set_reference_statement=reference))
        known = sets[0]
        if len(sets) > 1:
            either = waf.CfnWebACL.OrStatementProperty(statements=sets)
            known = statement(or_statement=either)
        return statement(not_statement=waf.CfnWebACL.NotStatementProperty(statement=known))

    def _explain(self, methods: Sequence[rest.Method]) -> None:
        for method in methods:
            explain(method, "AwsSolutions-APIG4", VERIFIES)
            explain(method, "AwsSolutions-COG4", VERIFIES)
        explain(
            self._api,
            "AwsSolutions-APIG2",
            "the receiver queues any document; a request that API Gateway refuses would be lost",
        )
        for rule in ("AwsSolutions-APIG1", "AwsSolutions-APIG6"):
            explain(
                self._api.deployment_stage,
                rule,
                "logs of REST APIs need a role in the settings of the whole account; the receiver"
                " logs every response, and metrics count what the web ACL blocks",
            )


def _rule(
    name: str, priority: int, statement: waf.CfnWebACL.StatementProperty
) -> waf.CfnWebACL.RuleProperty:
    """Return a rule that blocks requests for which the statement is true."""
    return waf.CfnWebACL.RuleProperty(
        name=name,
        priority=priority,
        statement=statement,
        action=waf.CfnWebACL.RuleActionProperty(block={}),
        visibility_config=_counted(name),
    )


def _counted(name: str) -> waf.CfnWebACL.VisibilityConfigProperty:
    # Samples would show paths, which may contain a secret.
    return waf.CfnWebACL.VisibilityConfigProperty(
        cloud_watch_metrics_enabled=True, metric_name=name, sampled_requests_enabled=False
    )
