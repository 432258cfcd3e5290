"""Buckets whose object-created notifications go to the arrivals queue.

created here                     existing
eventbridge  own property, one rule        enabled by CDK's handler, the same rule
direct       own property, queue policy    added by CDK's handler, queue policy
elsewhere    -                             written by others; the same rule, and queue policy
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jsii
from aws_cdk import CfnResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from aws_cdk.interfaces.aws_s3 import IBucketRef
from aws_cdk.region_info import RegionInfo
from constructs import Construct, IDependable

from extentflow.config.connector_keys import DELETE, MOVE, TAG
from extentflow.errors import Misconfigured

from . import config, encryption
from .announced import Announced, announced, filter_value, patterns
from .config import BucketNotification
from .declared import DeclaredConnector
from .findings import explain
from .functions import answer_within, write
from .grants import Grant, literal, role
from .kept_logs import KeptLogs
from .queues import WorkQueue

CREATED = "s3:ObjectCreated:*"
OBJECT_CREATED = "Object Created"  # the same, as EventBridge calls it
# A queue's policy may have 20 statements and 8,192 characters. One statement is needed for TLS, one
# for the buckets of each account that notify directly, and one for each rule.
MOST_STATEMENTS, MOST_RULES, DIRECT_CHARACTERS = 18, 16, 5_000
MOST_FILTERS = 100  # of S3, for one bucket
DEFAULT_BUS = "default"  # of every account; S3 sends there
HANDLER = "BucketNotificationsHandler"
# CloudFormation waits this long for it. A later attempt would write what was rolled back.
ANSWERED_WITHIN = Duration.hours(1)


class Buckets(Construct):
    """The buckets of a stage, which send notifications to `arrivals`.

    Raises:
        Misconfigured: they are too many for AWS's limits.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: config.Stage,
        connectors: Sequence[DeclaredConnector],
        arrivals: WorkQueue,
    ) -> None:
        super().__init__(scope, construct_id)
        self._arrivals = arrivals
        self._stage = stage
        found = announced(stage.buckets, connectors, stage.unmatched)
        self._prefixes = {one.bucket.name: one.prefixes for one in found}
        owners = _by_owner(found)
        rules = {
            owner: list(patterns(one for one in those if one.by_events))
            for owner, those in owners.items()
        }
        direct = {
            owner: [one.bucket.name for one in those if one.directly]
            for owner, those in owners.items()
        }
        if problems := [*_excess(rules, direct), *_crowded(found)]:
            raise Misconfigured(problems)
        for owner, details in rules.items():
            for number, detail in enumerate(details):
                self._rule(f"Created{owner or ''}{number or ''}", detail, owner=owner)
            if owner and details:
                self._admit(owner)
        self._allowed: IDependable | None = None
        for owner, names in direct.items():
            if names:
                self._allowed = self._announcing(names, owner=owner)
        for bucket in (one for one in stage.buckets if not one.exists):
            self._make(bucket)
        switched = [
            one.bucket
            for one in found
            if one.bucket.exists
            and one.prefixes
            and one.bucket.announced is not BucketNotification.ELSEWHERE
        ]
        if switched:
            self._switch_on(switched)

    def _rule(self, name: str, detail: Mapping[str, Any], *, owner: str | None) -> None:
        """Create a rule from EventBridge to the queue, with its dead letter queue.

        It takes events of the buckets' account only: others may send to this event bus, too.
        """
        events.Rule(
            self,
            name,
            description="New objects of extentflow's buckets",
            event_pattern=events.EventPattern(
                account=[owner or Stack.of(self).account],
                source=["aws.s3"],
                detail_type=[OBJECT_CREATED],
                detail=detail,
            ),
            targets=[targets.SqsQueue(self._arrivals.queue, dead_letter_queue=self._arrivals.dead)],
        )

    def _admit(self, owner: str) -> None:
        """Allow rules of another account to send events of S3 to the event bus of this one."""
        stack, sid = Stack.of(self), f"extentflow-{self._stage.name}-{owner}"
        partition = RegionInfo.get(stack.region).partition
        bus = stack.format_arn(service="events", resource="event-bus", resource_name=DEFAULT_BUS)
        events.CfnEventBusPolicy(
            self,
            f"Bus{owner}",
            event_bus_name=DEFAULT_BUS,
            statement_id=sid,
            statement={
                "Sid": sid,
                "Effect": "Allow",
                "Principal": {"AWS": f"arn:{partition}:iam::{owner}:root"},
                "Action": "events:PutEvents",
                "Resource": bus,
                "Condition": {
                    "StringEquals": {
                        "events:source": "aws.s3",
                        "events:detail-type": OBJECT_CREATED,
                    }
                },
            },
        )

    def _make(self, bucket: config.Bucket) -> None:
        key_arn = self._stage.key_of(bucket)
        made = s3.Bucket(
            self,
            bucket.name,
            bucket_name=bucket.name,
            encryption=s3.BucketEncryption.KMS if key_arn else s3.BucketEncryption.S3_MANAGED,
            encryption_key=kms.Key.from_key_arn(self, f"{bucket.name}-key", key_arn)
            if key_arn
            else None,
            # One call of KMS for many objects.
            bucket_key_enabled=True if key_arn else None,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            versioned=True,
            lifecycle_rules=[
                s3.LifecycleRule(abort_incomplete_multipart_upload_after=Duration.days(7))
            ],
            # Not on a first deployment that fails: its names must be free for the next.
            removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
        )
        if made.policy is None:
            raise TypeError(f"{made.node.path}: CDK no longer creates the policy that requires TLS")
        # The bucket that stays must not lose the rule that refuses requests without TLS.
        made.policy.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
        explain(
            made,
            "AwsSolutions-S1",
            "the functions' logs show every read; where audits require every request,"
            " CloudTrail data events record it without a second bucket",
        )
        self._announce_made(made, bucket)

    def _announce_made(self, made: s3.Bucket, bucket: config.Bucket) -> None:
        """Use the bucket's own properties: CDK's method would add a function."""
        resource = made.node.default_child
        if not isinstance(resource, s3.CfnBucket):
            raise TypeError(f"{made.node.path}: CDK no longer creates a bucket as one resource")
        if bucket.announced is BucketNotification.EVENTBRIDGE:
            resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
                event_bridge_configuration=s3.CfnBucket.EventBridgeConfigurationProperty(
                    event_bridge_enabled=True
                )
            )
            return
        resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
            queue_configurations=[
                s3.CfnBucket.QueueConfigurationProperty(
                    event=CREATED,
                    queue=self._arrivals.queue.queue_arn,
                    filter=_filter(prefix),
                )
                for prefix in self._prefixes[bucket.name]
            ]
        )
        # S3 sends a test message to the queue when the bucket is created.
        if self._allowed is not None:
            resource.node.add_dependency(self._allowed)

    def _announcing(self, buckets: Sequence[str], *, owner: str | None) -> IDependable | None:
        """Allow buckets of an account to send; their names are known before they exist.

        Return the queue's policy: a bucket must not be created before it.
        """
        arns = [arn_of(self, bucket) for bucket in buckets]
        statement = iam.PolicyStatement(
            sid=f"AnnounceBuckets{owner or ''}",
            principals=[iam.ServicePrincipal("s3.amazonaws.com")],
            actions=["sqs:SendMessage"],
            resources=[self._arrivals.queue.queue_arn],
            conditions={
                "ArnEquals": {"aws:SourceArn": arns[0] if len(arns) == 1 else arns},
                "StringEquals": {"aws:SourceAccount": owner or Stack.of(self).account},
            },
        )
        return self._arrivals.queue.add_to_resource_policy(statement).policy_dependable

    def _switch_on(self, buckets: Sequence[config.Bucket]) -> None:
        """Add notifications to existing buckets, beside those that they have."""
        log = KeptLogs.of(self._stage).group(self, "SwitchLog")
        switch_role = self._switch_role(buckets, log)
        for bucket in buckets:
            existing = s3.Bucket.from_bucket_attributes(
                self,
                bucket.name,
                bucket_name=bucket.name,
                notifications_handler_role=switch_role.without_policy_updates(),
            )
            if bucket.announced is BucketNotification.EVENTBRIDGE:
                existing.enable_event_bridge_notification()
            else:
                queue = _QueueDestination(self._arrivals.queue, self._allowed)
                for prefix in self._prefixes[bucket.name]:
                    # None of an empty one: S3 takes no filter without a value.
                    filters = [s3.NotificationKeyFilter(prefix=filter_value(prefix))]
                    existing.add_event_notification(
                        s3.EventType.OBJECT_CREATED, queue, *(filters if prefix else ())
                    )
        handler = _handler(self)
        handler.add_property_override("LoggingConfig", {"LogGroup": log.log_group_name})
        answer_within(self, handler.ref, period=ANSWERED_WITHIN)

    def _switch_role(self, buckets: Sequence[config.Bucket], log: logs.LogGroup) -> iam.Role:
        """Return the role of CDK's handler, for these buckets only."""
        grant = Grant(
            "SwitchAnnouncementsOn",
            "the handler reads, completes and writes the buckets' notification configuration",
            ("s3:GetBucketNotification", "s3:PutBucketNotification"),
            tuple(arn_of(self, bucket.name) for bucket in buckets),
        )
        return role(
            self,
            description="Adds notifications to existing buckets",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            grants=(grant, write(log)),
            policy_name="Function",
        )


@jsii.implements(s3.IBucketNotificationDestination)
class _QueueDestination:
    """The queue as a target of notifications; CDK's own would admit buckets of any account."""

    def __init__(self, queue: sqs.IQueue, allowed: IDependable | None) -> None:
        self._queue = queue
        # None for a queue of another stack, whose policy CDK does not write.
        self._allowed = allowed

    def bind(self, scope: Construct, bucket: IBucketRef) -> s3.BucketNotificationDestinationConfig:
        """Return the queue. S3 sends a test message, so the queue's policy must exist before."""
        _ = scope, bucket
        return s3.BucketNotificationDestinationConfig(
            arn=self._queue.queue_arn,
            type=s3.BucketNotificationDestinationType.QUEUE,
            dependencies=None if self._allowed is None else [self._allowed],
        )


def _handler(scope: Construct) -> CfnResource:
    """Return CDK's function that writes the notifications of existing buckets."""
    for child in Stack.of(scope).node.children:
        if child.node.id.startswith(HANDLER):
            found = child.node.default_child
            if isinstance(found, CfnResource):
                return found
    raise TypeError(f"{scope.node.path}: CDK no longer has a function named {HANDLER}...")


def _filter(prefix: str) -> s3.CfnBucket.NotificationFilterProperty | None:
    if not prefix:
        return None
    rule = s3.CfnBucket.FilterRuleProperty(name="prefix", value=filter_value(prefix))
    key = s3.CfnBucket.S3KeyFilterProperty(rules=[rule])
    return s3.CfnBucket.NotificationFilterProperty(s3_key=key)


def _by_owner(found: Iterable[Announced]) -> dict[str | None, list[Announced]]:
    """Return announcements by the account of their bucket; None is the stage's own, and first."""
    owners: dict[str | None, list[Announced]] = {None: []}
    for one in found:
        owners.setdefault(one.bucket.account, []).append(one)
    return owners


def _excess(
    rules: Mapping[str | None, Sequence[object]], direct: Mapping[str | None, Sequence[str]]
) -> list[str]:
    """Return why the policy of the queue has no room for these announcements."""
    found = []
    needed = sum(map(len, rules.values()))
    statements = needed + sum(1 for names in direct.values() if names)
    if needed > MOST_RULES or statements > MOST_STATEMENTS:
        found.append(
            f"buckets: announcements by EventBridge need {needed} rules, and {statements}"
            f" statements in the policy of a queue, which has room for {MOST_RULES} and"
            f" {MOST_STATEMENTS}; use several stages, shorter prefixes, or unmatched=DEAD_LETTER"
        )
    names = [name for each in direct.values() for name in each]
    if sum(len(f'"arn:aws-us-gov:s3:::{name}",') for name in names) > DIRECT_CHARACTERS:
        found.append(
            f"buckets: {len(names)} with announced=DIRECT or ELSEWHERE do not fit into the policy"
            " of a queue; use announced=EVENTBRIDGE, or several stages"
        )
    return found


def _crowded(found: Iterable[Announced]) -> list[str]:
    """Return which buckets would need more filters than S3 takes."""
    return [
        f"buckets: {one.bucket.name} with announced=DIRECT has {len(one.prefixes)} prefixes of"
        f" connectors, and S3 takes {MOST_FILTERS}; use announced=EVENTBRIDGE"
        for one in found
        if one.bucket.announced is BucketNotification.DIRECT and len(one.prefixes) > MOST_FILTERS
    ]


def arn_of(scope: Construct, bucket: str) -> str:
    """Return a bucket's ARN; it contains neither region nor account, and no token."""
    partition = RegionInfo.get(Stack.of(scope).region).partition
    return f"arn:{partition}:s3:::{bucket}"


def read(scope: Construct, stage: config.Stage) -> tuple[Grant, ...]:
    """Return permission to read objects, and to distinguish a missing object from a denied one."""
    buckets = stage.buckets
    if not buckets:
        return ()
    keys = _sorted(key for bucket in buckets if (key := stage.key_of(bucket)))
    found = (
        Grant(
            "ReadObjects",
            "objects are pinned and read in ranges, also as versions",
            ("s3:GetObject", "s3:GetObjectVersion"),
            tuple(f"{arn_of(scope, bucket.name)}/*" for bucket in buckets),
            wildcard="a notification can name every object of the bucket",
        ),
        Grant(
            "ListObjects",
            "without ListBucket, S3 answers 403 instead of 404 for missing objects",
            ("s3:ListBucket",),
            tuple(arn_of(scope, bucket.name) for bucket in buckets),
        ),
    )
    return (*found, *_decrypt(keys))


def change(
    scope: Construct, stage: config.Stage, connectors: Sequence[DeclaredConnector]
) -> tuple[Grant, ...]:
    """Return permission for `after.completion` of the connectors that use it, on their prefixes."""
    tagged: list[str] = []
    removed: list[str] = []
    sources: list[str] = []
    targets: list[str] = []
    for one in (each.checked for each in connectors if each.on_aws):
        place = f"{arn_of(scope, one.bucket)}/{literal(one.prefix)}*"
        if one.after_completion == TAG:
            tagged.append(place)
        if one.after_completion == MOVE:
            sources.append(place)
            target, prefix = one.completion_bucket or one.bucket, one.completion_prefix
            targets.append(f"{arn_of(scope, target)}/{literal(prefix or '')}*")
        if one.after_completion in (MOVE, DELETE):
            removed.append(place)
    keys = {one.name: key for one in stage.buckets if (key := stage.key_of(one))}
    moved = [one.checked for one in connectors if one.on_aws and one.checked.completion_prefix]
    written = {keys.get(one.completion_bucket or one.bucket) for one in moved} - {None}
    wildcard = "every object below a connector's prefix may be delivered"
    reading = ("s3:GetObjectTagging", "s3:GetObjectVersionTagging")
    found = (
        Grant(
            "TagObjects",
            "delivered objects get the tag of after.completion",
            (*reading, "s3:PutObjectTagging", "s3:PutObjectVersionTagging"),
            _sorted(tagged),
            wildcard=wildcard,
        ),
        Grant(
            "CopyTags",
            "objects are moved with their tags",
            reading,
            _sorted(sources),
            wildcard=wildcard,
        ),
        Grant(
            "PutMovedObjects",
            "delivered objects are moved there",
            ("s3:PutObject", "s3:PutObjectTagging", "s3:AbortMultipartUpload"),
            _sorted(targets),
            wildcard="moved objects keep the rest of their keys",
        ),
        Grant(
            "DeleteObjects",
            "delivered objects are deleted, also after they were copied",
            ("s3:DeleteObject", "s3:DeleteObjectVersion"),
            _sorted(removed),
            wildcard=wildcard,
        ),
        *encryption.through(
            Grant(
                "EncryptMovedObjects",
                "moved objects are encrypted with these keys",
                ("kms:GenerateDataKey",),
                _sorted(key for key in written if key),
            ),
            "s3",
        ),
    )
    return tuple(grant for grant in found if grant.resources)


def read_tags(scope: Construct, connectors: Sequence[DeclaredConnector]) -> tuple[Grant, ...]:
    """Return permission to read tags, for connectors that make headers of them."""
    places = _sorted(
        f"{arn_of(scope, one.checked.bucket)}/{literal(one.checked.prefix)}*"
        for one in connectors
        if one.on_aws and any(header.source == "tag" for header in one.checked.headers)
    )
    if not places:
        return ()
    return (
        Grant(
            "ReadTags",
            "tags become headers",
            ("s3:GetObjectTagging", "s3:GetObjectVersionTagging"),
            places,
            wildcard="every object below a connector's prefix may be delivered",
        ),
    )


def _sorted(resources: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(resources)))


def list_versions(scope: Construct, buckets: Sequence[config.Bucket]) -> tuple[Grant, ...]:
    """Return permission to list buckets that have versions."""
    if not buckets:
        return ()
    return (
        Grant(
            "ListVersions",
            "listings find objects whose events were lost, with version ids where they exist",
            ("s3:GetBucketVersioning", "s3:ListBucketVersions"),
            tuple(arn_of(scope, bucket.name) for bucket in buckets),
        ),
    )


def _decrypt(keys: Sequence[str]) -> tuple[Grant, ...]:
    if not keys:
        return ()
    why = "objects are encrypted with these keys"
    return tuple(
        encryption.through(Grant("DecryptObjects", why, ("kms:Decrypt",), tuple(keys)), "s3")
    )
