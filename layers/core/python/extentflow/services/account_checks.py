"""Whether an AWS account takes a stage, before its first deployment: read-only calls.

Needs AWS credentials and a synthesised stage; `deployed` checks what the deployment made of it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property, partial
from typing import Any

from extentflow.aws import open_client
from extentflow.errors import ExtentflowError, Misconfigured
from extentflow.retry import Clock
from extentflow.services.aws_calls import AwsCalls, OpenClient
from extentflow.services.bucket_checks import BucketChecks
from extentflow.services.deployed import FINISHED
from extentflow.services.health import Finding, examine_each, problem_of
from extentflow.services.network_checks import NetworkChecks
from extentflow.services.planned import PlannedStage
from extentflow.services.secret_checks import SecretChecks
from extentflow.wording import counted

# Lambda keeps as many invocations free of reservations.
KEPT_UNRESERVED = 100
# AWS allows ten resource policies of CloudWatch Logs; deliveries to /aws/vendedlogs/ share one.
MOST_LOG_POLICIES, DELIVERY_POLICY = 10, "AWSLogDeliveryWrite20150319"
QUALIFIER = "hnb659fds"  # CDK's own
LEAST_BOOTSTRAP = 6  # the first version with roles and assets of today's CDK
LEAST_KAFKA_WITH_IAM = (3, 8)
EMR_QUOTA = "Max concurrent vCPUs per account"
# AWS's release guide; `emr-serverless` reports no date.
SUPPORT_ENDS: Mapping[str, date] = {"emr-spark-8.0.0": date(2027, 5, 20)}
SHORT_SUPPORT_DAYS = 180
SERVERLESS = "SERVERLESS"
FUNCTION = "AWS::Lambda::Function"

# An action that the creation of a type of resource needs, at least one per service.
CREATES: Mapping[str, str] = {
    "AWS::ApiGateway::RestApi": "apigateway:POST",
    "AWS::ApiGatewayV2::Api": "apigateway:POST",
    "AWS::CloudWatch::Alarm": "cloudwatch:PutMetricAlarm",
    "AWS::CloudWatch::Dashboard": "cloudwatch:PutDashboard",
    "AWS::CodeDeploy::Application": "codedeploy:CreateApplication",
    "AWS::DynamoDB::Table": "dynamodb:CreateTable",
    "AWS::EC2::SecurityGroup": "ec2:CreateSecurityGroup",
    "AWS::EC2::SecurityGroupIngress": "ec2:AuthorizeSecurityGroupIngress",
    "AWS::EC2::VPCEndpoint": "ec2:CreateVpcEndpoint",
    "AWS::EMRServerless::Application": "emr-serverless:CreateApplication",
    "AWS::Events::EventBusPolicy": "events:PutPermission",
    "AWS::Events::Rule": "events:PutRule",
    "AWS::IAM::ManagedPolicy": "iam:CreatePolicy",
    "AWS::IAM::Role": "iam:CreateRole",
    "AWS::KMS::Key": "kms:CreateKey",
    "AWS::Lambda::EventSourceMapping": "lambda:CreateEventSourceMapping",
    "AWS::Lambda::Function": "lambda:CreateFunction",
    "AWS::Lambda::LayerVersion": "lambda:PublishLayerVersion",
    "AWS::Logs::LogGroup": "logs:CreateLogGroup",
    "AWS::MSK::Cluster": "kafka:CreateCluster",
    "AWS::S3::Bucket": "s3:CreateBucket",
    "AWS::SNS::Topic": "sns:CreateTopic",
    "AWS::SQS::Queue": "sqs:CreateQueue",
    "AWS::WAFv2::WebACL": "wafv2:CreateWebACL",
}

# What a stage may write so that it needs no such action.
AVOIDED_BY: Mapping[str, str] = {
    "apigateway:POST": "no receiver",
    "cloudwatch:PutDashboard": "dashboard=False",
    "codedeploy:CreateApplication": "no canary_minutes",
    "dynamodb:CreateTable": "table of a ledger that exists",
    "ec2:CreateVpcEndpoint": "network.existing_endpoints of what others create, or nat=True",
    "emr-serverless:CreateApplication": "no spark",
    "kafka:CreateCluster": "cluster.arn instead of created",
    "s3:CreateBucket": "exists=True for buckets that others create",
    "sns:CreateTopic": "alarm_topic_arn of a topic that exists",
    "wafv2:CreateWebACL": "front=Front.HTTP of the receiver",
}

_PARAMETER = re.compile(r"/cdk-bootstrap/([\w-]+)/version")
_ACCOUNT_OF_ARN = 4
_VERSION = re.compile(r"([0-9]+)\.([0-9]+)")
# A change set was made, and nothing else.
IN_REVIEW = "REVIEW_IN_PROGRESS"
# Broken deployments that no further one repairs.
_DEAD = ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED")


@dataclass(frozen=True)
class AccountChecks:
    """Checks the account and region of a planned stage."""

    stage: PlannedStage
    open_client: OpenClient | None = None
    clock: Clock = field(default_factory=Clock)

    def examine(self) -> Iterator[Finding]:
        """Yield a finding per check. Without credentials, only those that call nothing."""
        yield from self._template()
        try:
            found = self._credentials()
        except ExtentflowError as exc:
            yield problem_of("credentials", exc)
            return
        yield found
        if found.verdict == "problem":
            return
        yield from examine_each((("CDK bootstrap", self._bootstrap), ("stack", self._stack)))
        if self.stage.network is not None:
            account = self._caller["Account"]
            network = NetworkChecks(self.stage, self.stage.network, account, self._calls, self._own)
            yield from network.examine()
        yield from examine_each(
            (
                ("rights of CloudFormation", self._rights),
                ("invocations", self._invocations),
                ("vCPUs of Spark", self._spark),
                ("cluster", self._cluster),
                ("access log", self._log_policies),
                *(
                    (f"bucket {one.name}", partial(self._buckets.examine, one))
                    for one in self.stage.buckets
                ),
                *(
                    (f"secret {one.id}", partial(self._secrets.secret, one))
                    for one in self.stage.secrets
                ),
                *((f"key {one.arn}", partial(self._secrets.key, one)) for one in self.stage.keys),
                ("alarm topic", self._topic),
                ("event bus", self._bus),
                ("ledger table", self._table),
            )
        )

    # -- what AWS reports -------------------------------------------------------------------------

    @cached_property
    def _calls(self) -> AwsCalls:
        return AwsCalls(self.open_client or partial(open_client, region=self.stage.region))

    @cached_property
    def _caller(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self._calls.call("sts", "get_caller_identity")
        return found

    @cached_property
    def _deployed(self) -> Mapping[str, Any] | None:
        """The stack, if it exists."""
        answer = self._calls.find(
            "cloudformation", "describe_stacks", ("ValidationError",), StackName=self.stage.stack
        )
        found = answer["Stacks"] if answer else ()
        return next((one for one in found if one["StackStatus"] != IN_REVIEW), None)

    @cached_property
    def _own(self) -> frozenset[str]:
        """The physical ids of what the stack has created; none if that cannot be read."""
        try:
            return frozenset(one.get("PhysicalResourceId", "") for one in self._created)
        except ExtentflowError:
            return frozenset()  # the check of the stack has reported it

    @cached_property
    def _created(self) -> tuple[Mapping[str, Any], ...]:
        """What the stack has created, of which there is nothing without a stack."""
        if self._deployed is None:
            return ()
        service, operation = "cloudformation", "list_stack_resources"
        key, name = "StackResourceSummaries", self.stage.stack
        return tuple(self._calls.pages(service, operation, key, StackName=name))

    @cached_property
    def _buckets(self) -> BucketChecks:
        return BucketChecks(self.stage.region, self._calls, self._own)

    @cached_property
    def _secrets(self) -> SecretChecks:
        account = self._caller["Account"]
        return SecretChecks(self.stage.region, account, self._calls, self._own)

    def _reserved(self) -> int:
        """Return the concurrency that functions of the deployed stack have reserved."""
        found = 0
        for one in self._created:
            if one["ResourceType"] == FUNCTION and one.get("PhysicalResourceId"):
                answer = self._calls.find(
                    "lambda",
                    "get_function_concurrency",
                    ("ResourceNotFoundException",),
                    FunctionName=one["PhysicalResourceId"],
                )
                found += int(answer.get("ReservedConcurrentExecutions", 0)) if answer else 0
        return found

    # -- checks -----------------------------------------------------------------------------------

    def _template(self) -> Iterator[Finding]:
        """Report what the template alone shows."""
        for reason in self.stage.unbuilt:
            remedy = "then synthesise the stage again"
            yield Finding("template", "problem", reason, remedy)
        network = self.stage.network
        for service in network.existing_endpoints if network else ():
            if network and service not in network.called:
                remedy = f"remove or correct it; the stage calls {', '.join(network.called)}"
                fact = f"network.existing_endpoints names {service}, which the stage does not call"
                yield Finding(f"existing endpoint {service}", "warning", fact, remedy)
        if self.stage.spark is not None:
            yield from self._release(self.stage.spark.release_label)

    def _credentials(self) -> Finding:
        who = f"{self._caller['Arn']}, region {self.stage.region}"
        wanted = self.stage.account
        if wanted is not None and wanted != self._caller["Account"]:
            remedy = f"use credentials of {wanted}, or correct the stage's account"
            return Finding("credentials", "problem", f"{who}; the stage is of {wanted}", remedy)
        return Finding("credentials", "ok", who)

    def _bootstrap(self) -> Iterator[Finding]:
        name = self.stage.bootstrap
        if name is None:
            return
        answer = self._calls.find("ssm", "get_parameter", ("ParameterNotFound",), Name=name)
        place = f"aws://{self._caller['Account']}/{self.stage.region}"
        remedy = self._bootstrapping(new=answer is None)
        if answer is None:
            fact = f"{place}: not bootstrapped, {name} does not exist"
            yield Finding("CDK bootstrap", "problem", fact, remedy)
        elif not (version := answer["Parameter"]["Value"]).isdecimal():
            fact = f"{place}: {name} has the value {version}, which is no version of a bootstrap"
            yield Finding("CDK bootstrap", "problem", fact, remedy)
        elif int(version) < LEAST_BOOTSTRAP:
            yield Finding("CDK bootstrap", "problem", f"{place}: version {version}", remedy)
        else:
            yield Finding("CDK bootstrap", "ok", f"{place}: version {version}")

    def _bootstrapping(self, *, new: bool) -> str:
        """Return the command that bootstraps for the stage's qualifier.

        A new one must not replace the roles of another qualifier, in the common stack of CDK.
        """
        command = f"npx cdk bootstrap aws://{self._caller['Account']}/{self.stage.region}"
        found = _PARAMETER.fullmatch(self.stage.bootstrap or "")
        if found is not None and found[1] != QUALIFIER:
            command += f" --qualifier {found[1]}"
            command += f" --toolkit-stack-name CDKToolkit-{found[1]}" if new else ""
        if bucket := self.stage.assets_bucket:
            command += f" --bootstrap-bucket-name {bucket}"
        return f"`{command}`"

    def _stack(self) -> Iterator[Finding]:
        name = self.stage.stack
        if self._deployed is None:
            yield Finding("stack", "ok", f"{name}: new")
            return
        status = self._deployed["StackStatus"]
        if status in FINISHED:
            yield Finding("stack", "ok", f"{name}: {status}; the next deployment updates it")
        elif status in _DEAD:
            remedy = f"`aws cloudformation delete-stack --stack-name {name}`"
            yield Finding("stack", "problem", f"{name}: {status}, cannot be deployed again", remedy)
        else:
            remedy = "wait, or see the stack's events in CloudFormation"
            yield Finding("stack", "problem", f"{name}: {status}", remedy)

    def _rights(self) -> Iterator[Finding]:
        """Ask IAM what CDK's role for CloudFormation may create, organisation included."""
        found = _PARAMETER.fullmatch(self.stage.bootstrap or "")
        if found is None:
            return
        account, partition = self._caller["Account"], self._caller["Arn"].split(":")[1]
        role = f"cdk-{found[1]}-cfn-exec-role-{account}-{self.stage.region}"
        names = sorted({CREATES[kind] for kind in self.stage.resources if kind in CREATES})
        answers = self._simulated(f"arn:{partition}:iam::{account}:role/{role}", names)
        if answers is None:
            fact = f"there is no role {role}"
            yield Finding(
                "rights of CloudFormation", "problem", fact, self._bootstrapping(new=False)
            )
            return
        refused: dict[str, list[str]] = {}
        for one in answers:
            if one["EvalDecision"] != "allowed":
                refused.setdefault(_refuser(one), []).append(one["EvalActionName"])
        for who, actions in refused.items():
            fact = f"{who} does not allow {role}: {', '.join(actions)}"
            avoided = [f"{AVOIDED_BY[one]} ({one})" for one in actions if one in AVOIDED_BY]
            remedy = "ask who owns that policy to allow them, or deploy into another account"
            if avoided:
                remedy += f"; a stage may do without some: write {', '.join(avoided)}"
            yield Finding("rights of CloudFormation", "problem", fact, remedy)
        left = sorted({*names} - {one["EvalActionName"] for one in answers})
        if left:
            fact = f"IAM does not say whether {role} may call {', '.join(left)}"
            remedy = "see the role's policies in IAM, or ask who owns them"
            yield Finding("rights of CloudFormation", "problem", fact, remedy)
        elif not refused:
            fact = f"{role}: {counted(len(names), 'action')} allowed"
            yield Finding("rights of CloudFormation", "ok", fact)

    def _simulated(self, role: str, names: Sequence[str]) -> list[Mapping[str, Any]] | None:
        """Return IAM's answers for all actions, from all pages; None if there is no such role."""
        context = {"aws:RequestedRegion": self.stage.region}
        if self.stage.boundary is not None:
            _, partition, _, _, account, _ = role.split(":", 5)
            known = {"${AWS::Partition}": partition, "${AWS::AccountId}": account}
            boundary = self.stage.boundary
            for name, value in known.items():
                boundary = boundary.replace(name, value)
            # Companies allow the creation of roles with their boundary only.
            context["iam:PermissionsBoundary"] = boundary
        entries = [
            {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}
            for key, value in context.items()
        ]
        request = {"PolicySourceArn": role, "ActionNames": names, "ContextEntries": entries}
        found: list[Mapping[str, Any]] = []
        page: dict[str, str] = {}
        while True:
            answer = self._calls.coded(
                "iam", "simulate_principal_policy", {"NoSuchEntity": None}, **request, **page
            )
            if answer is None:
                return None
            found += answer["EvaluationResults"]
            if not answer.get("IsTruncated"):
                return found
            page = {"Marker": answer["Marker"]}

    def _invocations(self) -> Iterator[Finding]:
        stage = self.stage
        limits = self._calls.call("lambda", "get_account_settings")["AccountLimit"]
        allowed = int(limits["ConcurrentExecutions"])
        free = int(limits["UnreservedConcurrentExecutions"])
        # What is deployed has its reservation already, of which others are not free.
        reserved = self._reserved() if stage.received else 0
        received = max(0, stage.received - reserved)
        needed = {
            f"{stage.least_invocations + received} or more": stage.least_invocations + received,
            f"{received} reserved for the receiver and {KEPT_UNRESERVED} others unreserved": (
                received + KEPT_UNRESERVED if received else 0
            ),
            f"{stage.invocations + received} at its settings": stage.invocations + received,
        }
        short = [text for text, number in needed.items() if number > free]
        fact = f"{free} of {allowed} concurrent invocations are free, the stage needs "
        fact += ", ".join(short) or str(stage.invocations + received)
        if allowed < stage.account_concurrency:
            fact += f"; {allowed} are allowed, the stage says {stage.account_concurrency}"
        elif not short:
            yield Finding("invocations", "ok", fact)
            return
        quota = max(stage.account_concurrency, allowed + max(needed.values()) - free)
        remedy = f'request {quota} of the quota "Concurrent executions" of Lambda'
        remedy += self._fewer(allowed, free, received, most=reserved + free - KEPT_UNRESERVED)
        yield Finding("invocations", "problem" if short else "warning", fact, remedy)

    def _fewer(self, allowed: int, free: int, received: int, *, most: int) -> str:
        """Return how a stage needs fewer invocations; the receiver may reserve `most`."""
        stage, ways = self.stage, []
        if allowed < stage.least_invocations:
            return f": no stage fits into {allowed}"
        if received and free - received < KEPT_UNRESERVED:
            way = (
                f"write Receiver(concurrency={most}) or less" if most > 0 else "leave receiver out"
            )
            ways.append(way)
        elif free < stage.least_invocations + received:
            return ", or free some: no stage fits"
        if free < stage.invocations + received:
            ways.append("lower most_workers and account_concurrency")
        if allowed < stage.account_concurrency:
            ways.append(f"write account_concurrency={allowed}")
        return f", or {' and '.join(ways)}"

    def _spark(self) -> Iterator[Finding]:
        spark = self.stage.spark
        if spark is None:
            return
        allowed = self._emr_quota()
        fact = f"{allowed:g} allowed, spark.quota_vcpu={spark.quota_vcpu}"
        if allowed < spark.quota_vcpu:
            fits = allowed >= spark.least_vcpu
            way = f"lower quota_vcpu to {allowed:g}, and most_vcpu"
            way = way if fits else f"leave spark out: no run fits into less than {spark.least_vcpu}"
            remedy = f'request {spark.quota_vcpu} of the quota "{EMR_QUOTA}", or {way}'
            yield Finding("vCPUs of Spark", "problem", fact, remedy)
        else:
            yield Finding("vCPUs of Spark", "ok", fact)

    def _emr_quota(self) -> float:
        """Return the account's own value, or AWS's default, which the first call leaves out."""
        for operation in ("list_service_quotas", "list_aws_default_service_quotas"):
            for one in self._calls.pages(
                "service-quotas", operation, "Quotas", ServiceCode="emr-serverless"
            ):
                if one["QuotaName"] == EMR_QUOTA:
                    return float(one["Value"])
        raise Misconfigured(f"AWS reports no quota {EMR_QUOTA}; see it in the console")

    def _release(self, label: str) -> Iterator[Finding]:
        ends = SUPPORT_ENDS.get(label)
        if ends is None:
            return
        left = (ends - datetime.fromtimestamp(self.clock.wall(), UTC).date()).days
        fact = f"{label}: AWS supports it until {ends}"
        if left < SHORT_SUPPORT_DAYS:
            remedy = "plan a later emr-spark release, as spark.release_label"
            yield Finding("release of Spark", "warning", fact, remedy)
        else:
            yield Finding("release of Spark", "ok", fact)

    def _cluster(self) -> Iterator[Finding]:
        arn = self.stage.cluster.arn
        if arn is None:
            return
        owner, account = arn.split(":")[_ACCOUNT_OF_ARN], self._caller["Account"]
        if owner != account:
            fact = f"account {owner} owns it, the stage is of {account}: not checked"
            remedy = (
                f"deploy into {owner}; or let {owner} turn on multi-VPC connectivity, with a policy"
                f" of the cluster that admits {account}"
            )
            yield Finding("cluster", "warning", fact, remedy)
            return
        answer = self._calls.find(
            "kafka", "describe_cluster_v2", ("NotFoundException",), ClusterArn=arn
        )
        if answer is None:
            yield Finding("cluster", "problem", f"{arn}: no such cluster", "correct cluster.arn")
            return
        found = answer["ClusterInfo"]
        if found["ClusterType"] == SERVERLESS:
            fact = f"{arn} is MSK Serverless, with which extentflow is not supported"
            yield Finding("cluster", "problem", fact, "use a provisioned cluster")
            return
        wrong = list(self._cluster_problems(found))
        for fact, remedy in wrong:
            yield Finding("cluster", "problem", f"{found['ClusterName']}: {fact}", remedy)
        if not wrong:
            version = _kafka_version(found)
            fact = f"{found['ClusterName']}: {found['State']}, Kafka {version}, admits the stage"
            yield Finding("cluster", "ok", fact)

    def _cluster_problems(self, found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        stage, provisioned = self.stage, found["Provisioned"]
        if found["State"] not in ("ACTIVE", "UPDATING", "MAINTENANCE", "REBOOTING_BROKER"):
            yield f"it is {found['State']}", "wait until it is ACTIVE"
        auth = stage.cluster.auth
        if not _admits(provisioned.get("ClientAuthentication", {}), auth):
            yield (
                f"authentication {auth} is off",
                f"enable it in the cluster, or change auth={auth}",
            )
        version = _kafka_version(found)
        number = _VERSION.match(version)
        if auth == "iam" and number and tuple(map(int, number.groups())) < LEAST_KAFKA_WITH_IAM:
            remedy = (
                "upgrade it to 3.8 or later: older ones complete no transactions of IAM clients"
            )
            yield f"Kafka {version}", remedy
        groups = provisioned["BrokerNodeGroupInfo"].get("SecurityGroups", [])
        named = stage.network.cluster_security_group_id if stage.network else ""
        if named and groups and named not in groups:
            fact = f"its brokers have {', '.join(groups)}, not {named}"
            yield fact, f"write cluster_security_group_id={groups[0]!r}"
        brokers = self._calls.call("kafka", "get_bootstrap_brokers", ClusterArn=stage.cluster.arn)
        known = {
            server
            for text in brokers.values()
            if isinstance(text, str)
            for server in text.split(",")
        }
        left = [one for one in stage.cluster.servers if one not in known]
        if left and known:
            yield (
                f"it has no bootstrap server {', '.join(left)}",
                (f"`aws kafka get-bootstrap-brokers --cluster-arn {stage.cluster.arn}`"),
            )

    def _log_policies(self) -> Iterator[Finding]:
        if not self.stage.access_log:
            return
        found = list(
            self._calls.pages(
                "logs", "describe_resource_policies", "resourcePolicies", next_page="nextToken"
            )
        )
        fact = f"{len(found)} of {MOST_LOG_POLICIES} resource policies of CloudWatch Logs"
        names = {one["policyName"] for one in found}
        if len(found) >= MOST_LOG_POLICIES and DELIVERY_POLICY not in names:
            remedy = "delete one that has no use: API Gateway must add one to deliver its log"
            yield Finding("access log", "problem", fact, remedy)
        else:
            yield Finding("access log", "ok", fact)

    def _topic(self) -> Iterator[Finding]:
        if self.stage.topic is not None:
            yield self._exists(
                "alarm topic",
                ("sns", "get_topic_attributes", "NotFound"),
                {"TopicArn": self.stage.topic},
                "create it, or leave out alarm_topic_arn",
            )

    def _bus(self) -> Iterator[Finding]:
        yield self._exists(
            "event bus",
            ("events", "describe_event_bus", "ResourceNotFoundException"),
            {"Name": self.stage.event_bus},
            "create it, or correct event_bus",
        )

    def _table(self) -> Iterator[Finding]:
        if self.stage.table is not None:
            yield self._exists(
                "ledger table",
                ("dynamodb", "describe_table", "ResourceNotFoundException"),
                {"TableName": self.stage.table},
                "restore it, or leave out table for a new ledger",
            )

    def _exists(
        self, check: str, call: tuple[str, str, str], request: dict[str, str], remedy: str
    ) -> Finding:
        """Report whether something that the stage names exists."""
        service, operation, absent = call
        name = next(iter(request.values()))
        if self._calls.find(service, operation, (absent,), **request) is None:
            return Finding(check, "problem", f"{name} does not exist", remedy)
        return Finding(check, "ok", name)


def _refuser(result: Mapping[str, Any]) -> str:
    """Return which kind of policy refuses an action, as far as IAM says it."""
    if not result.get("OrganizationsDecisionDetail", {}).get("AllowedByOrganizations", True):
        return "a policy of the organisation (SCP)"
    boundary = result.get("PermissionsBoundaryDecisionDetail", {})
    if not boundary.get("AllowedByPermissionsBoundary", True):
        return "the permissions boundary"
    return "the role's own policy"


def _admits(given: Mapping[str, Any], auth: str) -> bool:
    """Whether a cluster's settings allow this authentication; without any, plain text is on."""
    sasl = given.get("Sasl", {})
    found: Mapping[str, Any] = {
        "iam": sasl.get("Iam", {}),
        "scram": sasl.get("Scram", {}),
        "mtls": given.get("Tls", {}),
        "none": given.get("Unauthenticated", {}) if given else {"Enabled": True},
    }.get(auth, {})  # MSK has no other
    return bool(found.get("Enabled", False))


def _kafka_version(cluster: Mapping[str, Any]) -> str:
    found: str = cluster["Provisioned"]["CurrentBrokerSoftwareInfo"].get("KafkaVersion", "unknown")
    return found
