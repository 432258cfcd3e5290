"""The health of a deployed stage, from outside: what AWS reports of the stack's resources.

Needs AWS credentials and no path to the brokers: `health` checks those, from inside their VPC.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from extentflow.aws import open_client
from extentflow.errors import ExtentflowError, Misconfigured, Retryable
from extentflow.retry import Clock
from extentflow.services.aws_calls import AwsCalls, OpenClient
from extentflow.services.health import DEAD_MESSAGES, Finding, examine_each, problem_of
from extentflow.services.network_checks import dns_attributes_off
from extentflow.wording import counted

ERRORS_WITHIN_SECONDS = 3_600
MOST_LINES = 50
LONGEST_LINE = 200
PROBE_SECONDS = 10
# Both send messages to their own queues.
RECURSIVE = ("planner", "worker")
SERVICE = "POWERTOOLS_SERVICE_NAME"
FINISHED = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE")
_PATTERN = '?ERROR ?WARNING ?"Task timed out" ?"Runtime."'
_MISSING = "deploy the stage, or correct its name, the account or the region"

Probe = Callable[[str], str]


def probe(url: str) -> str:
    """Return the body of a GET request. Raises Retryable without a response of 200."""
    try:
        with urlopen(url, timeout=PROBE_SECONDS) as response:  # noqa: S310 - an output of the stack
            return str(response.read(LONGEST_LINE).decode())
    except (URLError, OSError) as exc:
        raise Retryable(f"{url}: {exc}") from exc


@dataclass(frozen=True)
class DeployedStage:
    """A deployed stage. `open_client` opens a client by the name of its service."""

    name: str
    open_client: OpenClient = open_client
    probe: Probe = probe
    clock: Clock = field(default_factory=Clock)

    @property
    def stack(self) -> str:
        """The name of the CloudFormation stack."""
        return f"extentflow-{self.name}"

    def examine(self) -> Iterator[Finding]:
        """Yield a finding per check. Without the stack there is one only."""
        try:
            status = self._stack["StackStatus"]
        except ExtentflowError as exc:
            yield problem_of("stack", exc)
            return
        if status in FINISHED:
            yield Finding("stack", "ok", f"{self.stack}: {status}")
        else:
            remedy = "see the stack's events in CloudFormation, then `make deploy` again"
            yield Finding("stack", "problem", f"{self.stack}: {status}", remedy)
        yield from examine_each(
            (
                ("ledger table", self._ledger),
                ("queues", self._queues),
                ("functions", self._functions),
                ("event sources", self._event_sources),
                ("schedules", self._schedules),
                ("account", self._concurrency),
                ("network", self._network),
                ("alarms", self._alarms),
                ("receiver", self._receiver),
                ("Spark", self._spark),
                ("last errors", self._last_errors),
            )
        )

    # -- what AWS reports -------------------------------------------------------------------------

    @cached_property
    def _calls(self) -> AwsCalls:
        return AwsCalls(self.open_client, missing=_MISSING)

    @cached_property
    def _stack(self) -> Mapping[str, Any]:
        found = self._calls.call("cloudformation", "describe_stacks", StackName=self.stack)[
            "Stacks"
        ]
        if not found:
            raise Misconfigured(f"{self.stack}: no such stack; deploy it, or correct its name")
        stack: Mapping[str, Any] = found[0]
        return stack

    @cached_property
    def _outputs(self) -> dict[str, str]:
        return {one["OutputKey"]: one["OutputValue"] for one in self._stack.get("Outputs", ())}

    @cached_property
    def _resources(self) -> list[tuple[str, str]]:
        """The type and physical id of each resource."""
        listed = self._calls.pages(
            "cloudformation", "list_stack_resources", "StackResourceSummaries", StackName=self.stack
        )
        return [
            (one["ResourceType"], one["PhysicalResourceId"])
            for one in listed
            if one.get("PhysicalResourceId")
        ]

    def _of_type(self, kind: str) -> list[str]:
        return [physical for found, physical in self._resources if found == kind]

    @cached_property
    def _ours(self) -> dict[str, Mapping[str, Any]]:
        """The configurations of extentflow's own functions, by the names of their services."""
        found: dict[str, Mapping[str, Any]] = {}
        for name in self._of_type("AWS::Lambda::Function"):
            config = self._calls.call("lambda", "get_function_configuration", FunctionName=name)
            variables = config.get("Environment", {}).get("Variables", {})
            if SERVICE in variables:
                found[variables[SERVICE]] = config
        return found

    @cached_property
    def _mappings(self) -> dict[str, Mapping[str, Any]]:
        """The event source mappings, by the names of their functions' services."""
        found: dict[str, Mapping[str, Any]] = {}
        for service, config in self._ours.items():
            name = config["FunctionName"]
            # Mappings of an alias are not among those of its function.
            aliases = (one for one in self._of_type("AWS::Lambda::Alias") if f":{name}:" in one)
            for invoked in (name, *aliases):
                answer = self._calls.call(
                    "lambda", "list_event_source_mappings", FunctionName=invoked
                )
                for mapping in answer["EventSourceMappings"]:
                    found[service] = mapping
        return found

    # -- checks -----------------------------------------------------------------------------------

    def _ledger(self) -> Iterator[Finding]:
        name = self._outputs["LedgerTable"]
        table = self._calls.call("dynamodb", "describe_table", TableName=name)["Table"]
        backups = self._calls.call("dynamodb", "describe_continuous_backups", TableName=name)
        recovery = backups["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
        fact = f"{name}: {table['TableStatus']}"
        if table["TableStatus"] not in ("ACTIVE", "UPDATING"):
            yield Finding("ledger table", "problem", fact, "restore it: docs/operations.md")
        elif recovery.get("PointInTimeRecoveryStatus") != "ENABLED":
            remedy = "enable point-in-time recovery: the table records what was delivered"
            yield Finding("ledger table", "warning", fact, remedy)
        else:
            yield Finding("ledger table", "ok", fact)

    def _queues(self) -> Iterator[Finding]:
        for output in ("ArrivalsQueueUrl", "ExtentsQueueUrl", "ArrivalsDlqUrl", "ExtentsDlqUrl"):
            names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
            answer = self._calls.call(
                "sqs",
                "get_queue_attributes",
                QueueUrl=self._outputs[output],
                AttributeNames=names,
            )
            waiting, taken = (int(answer["Attributes"][name]) for name in names)
            check = output.removesuffix("Url")
            fact = f"{counted(waiting, 'message')} waiting, {taken} in work"
            if output.endswith("DlqUrl") and waiting:
                yield Finding(check, "problem", fact, DEAD_MESSAGES)
            else:
                yield Finding(check, "ok", fact)

    def _functions(self) -> Iterator[Finding]:
        for service, config in sorted(self._ours.items()):
            check, name = f"function {service}", config["FunctionName"]
            state = config.get("State", "Active")
            updated = config.get("LastUpdateStatus", "Successful")
            if (state, updated) != ("Active", "Successful"):
                why = config.get("StateReason") or config.get("LastUpdateStatusReason") or ""
                fact = f"{name}: {state}, last update {updated}. {why}".strip()
                remedy = "see subnets, free addresses and the role, then `make deploy` again"
                yield Finding(check, "problem", fact, remedy)
                continue
            if service in RECURSIVE:
                found = self._calls.call(
                    "lambda", "get_function_recursion_config", FunctionName=name
                )
                if found["RecursiveLoop"] != "Allow":
                    fact = f"{name}: recursive loop detection is {found['RecursiveLoop']}"
                    remedy = "set it to Allow: the function sends messages to its own queue"
                    yield Finding(check, "problem", fact, remedy)
                    continue
            yield Finding(check, "ok", f"{name}: {state}")

    def _event_sources(self) -> Iterator[Finding]:
        for service in RECURSIVE:
            check, mapping = f"messages of {service}", self._mappings.get(service)
            if mapping is None:
                remedy = "`make deploy` creates it; nothing is delivered without"
                yield Finding(check, "problem", "no event source mapping", remedy)
            elif mapping["State"] not in ("Enabled", "Updating"):
                fact = f"event source mapping {mapping['UUID']} is {mapping['State']}"
                remedy = (
                    f"`aws lambda update-event-source-mapping --enabled --uuid {mapping['UUID']}`"
                )
                yield Finding(check, "problem", fact, remedy)
            else:
                most = mapping.get("ScalingConfig", {}).get("MaximumConcurrency")
                yield Finding(check, "ok", f"{mapping['State']}, at most {most} at a time")

    def _schedules(self) -> Iterator[Finding]:
        for name in self._of_type("AWS::Events::Rule"):
            rule = self._calls.call("events", "describe_rule", Name=name.rpartition("|")[2])
            if rule["State"].startswith("ENABLED"):
                yield Finding("rule", "ok", f"{rule['Name']}: {rule.get('Description', '')}")
            else:
                fact = f"{rule['Name']} is {rule['State']}: {rule.get('Description', '')}"
                remedy = f"`aws events enable-rule --name {rule['Name']}`"
                yield Finding("rule", "problem", fact, remedy)

    def _concurrency(self) -> Iterator[Finding]:
        limits = self._calls.call("lambda", "get_account_settings")["AccountLimit"]
        allowed = int(limits["UnreservedConcurrentExecutions"])
        wanted = sum(
            int(one.get("ScalingConfig", {}).get("MaximumConcurrency", 0))
            for one in self._mappings.values()
        )
        fact = f"{allowed} concurrent invocations are allowed, {wanted} are configured"
        if allowed < wanted:
            remedy = 'request more ("Concurrent executions" of Lambda), or lower most_workers'
            yield Finding("account", "warning", fact, remedy)
        else:
            yield Finding("account", "ok", fact)

    def _network(self) -> Iterator[Finding]:
        found = {one.get("VpcConfig", {}).get("VpcId") for one in self._ours.values()}
        for vpc in sorted(filter(None, found)):
            off = dns_attributes_off(self._calls, vpc)
            if off:
                remedy = "set them: private names of interface endpoints do not resolve without"
                yield Finding("network", "problem", f"{vpc}: {', '.join(off)} off", remedy)
            else:
                yield Finding("network", "ok", f"{vpc}: DNS resolution and host names are on")

    def _alarms(self) -> Iterator[Finding]:
        prefix = f"{self.stack}-Alarms"
        answer = self._calls.call(
            "cloudwatch", "describe_alarms", AlarmNamePrefix=prefix, MaxRecords=100
        )
        alarms: Sequence[Mapping[str, Any]] = answer["MetricAlarms"]
        if not alarms:
            yield Finding("alarms", "problem", f"none begins with {prefix}", "`make deploy`")
            return
        ringing = [one for one in alarms if one["StateValue"] == "ALARM"]
        for one in ringing:
            name = one["AlarmName"].removeprefix(prefix)
            fact = f"{name}: {one.get('StateReason', '')}"
            yield Finding("alarm", "problem", fact, "docs/operations.md, Alarms")
        silent = [one["AlarmName"] for one in alarms if not one.get("ActionsEnabled", True)]
        if silent:
            remedy = "`aws cloudwatch enable-alarm-actions --alarm-names NAME`"
            yield Finding("alarms", "warning", f"{len(silent)} notify no topic", remedy)
        if not ringing and not silent:
            yield Finding("alarms", "ok", f"{len(alarms)} exist, none rings")
        for topic in sorted({arn for one in alarms for arn in one.get("AlarmActions", ())}):
            yield self._topic(topic)

    def _topic(self, arn: str) -> Finding:
        answer = self._calls.call("sns", "list_subscriptions_by_topic", TopicArn=arn)
        found = [one["SubscriptionArn"] for one in answer["Subscriptions"]]
        confirmed = [one for one in found if one.startswith("arn:")]
        if confirmed:
            return Finding("alarm topic", "ok", f"{arn}: {len(confirmed)} subscriptions")
        if found:
            remedy = "open the message of AWS and confirm it"
            return Finding("alarm topic", "problem", f"{arn}: no confirmed subscription", remedy)
        remedy = "set alarm_email in the stage, or subscribe to it: alarms reach no person"
        return Finding("alarm topic", "problem", f"{arn}: no subscription", remedy)

    def _receiver(self) -> Iterator[Finding]:
        url = self._outputs.get("ReceiverUrl")
        if url is None:
            return
        try:
            body = self.probe(url)
        except Retryable as exc:
            remedy = "see the receiver's log, its secret, and the web ACL if the stage has one"
            yield Finding("receiver", "problem", str(exc), remedy)
        else:
            yield Finding("receiver", "ok", f"{url} answers {body.strip()!r}")

    def _spark(self) -> Iterator[Finding]:
        application = self._outputs.get("SparkApplicationId")
        if application is None:
            return
        answer = self._calls.call("emr-serverless", "get_application", applicationId=application)
        state = answer["application"]["state"]
        fact = f"application {application}: {state}"
        if state == "TERMINATED":
            yield Finding("Spark", "problem", fact, "`make deploy` creates another one")
        else:
            yield Finding("Spark", "ok", fact)

    def _last_errors(self) -> Iterator[Finding]:
        since = int((self.clock.wall() - ERRORS_WITHIN_SECONDS) * 1_000)
        for service, config in sorted(self._ours.items()):
            group = config.get("LoggingConfig", {}).get("LogGroup")
            if group is None:
                continue
            answer = self._calls.call(
                "logs",
                "filter_log_events",
                logGroupName=group,
                startTime=since,
                filterPattern=_PATTERN,
                limit=MOST_LINES,
            )
            events: Sequence[Mapping[str, Any]] = answer["events"]
            check = f"log of {service}"
            if not events:
                yield Finding(check, "ok", "no error within an hour")
                continue
            last = max(events, key=lambda event: int(event["timestamp"]))
            count = f"{len(events)} or more" if len(events) == MOST_LINES else str(len(events))
            line = " ".join(str(last["message"]).split())[:LONGEST_LINE]
            yield Finding(check, "warning", f"{count} warnings and errors; last: {line}", group)
