"""Buckets whose object-created notifications go to the arrivals queue.

created here                     existing
eventbridge  own property, one rule        enabled by CDK's handler, the same rule
direct       own property, queue policy    added by CDK's handler, queue policy
"""

from collections.abc import Iterable, Iterator, Sequence

import jsii
from aws_cdk import ArnFormat, CfnResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from aws_cdk.interfaces.aws_s3 import IBucketRef
from aws_cdk.region_info import RegionInfo
from constructs import Construct, IDependable

from extentflow.config.connector_keys import DELETE, MOVE, TAG
from extentflow.errors import Misconfigured

from . import config
from .config import BucketNotification
from .declared import DeclaredConnector
from .findings import explain
from .functions import answer_within
from .grants import Grant, role
from .queues import WorkQueue

CREATED = "s3:ObjectCreated:*"
# A rule's pattern may have 2,048 characters, of which the names of buckets get these.
NAMES_CHARACTERS = 1_800
# A queue's policy may have 20 statements and 8,192 characters. One statement is needed for TLS, one
# for buckets that notify directly, and one for each rule.
MOST_RULES, DIRECT_CHARACTERS = 16, 5_000
HANDLER = "BucketNotificationsHandler"
# CloudFormation waits this long for it. A later attempt would write what was rolled back.
ANSWERED_WITHIN = Duration.hours(1)
# CloudFormation shortens long names of stacks in those of the functions that it names.
STACK_NAME_KEPT = 24


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
        buckets: Sequence[config.Bucket],
        arrivals: WorkQueue,
    ) -> None:
        super().__init__(scope, construct_id)
        self._arrivals = arrivals
        by_events = [one.name for one in buckets if one.announced is BucketNotification.EVENTBRIDGE]
        direct = [one.name for one in buckets if one.announced is BucketNotification.DIRECT]
        groups = list(_grouped(by_events))
        if problems := _excess(groups, direct):
            raise Misconfigured(problems)
        for number, names in enumerate(groups):
            self._rule(f"Created{number or ''}", names)
        self._allowed = self._announcing(direct) if direct else None
        for one in (bucket for bucket in buckets if not bucket.exists):
            self._make(one)
        existing = [bucket for bucket in buckets if bucket.exists]
        if existing:
            self._switch_on(existing)

    def _rule(self, name: str, names: Sequence[str]) -> None:
        """Create a rule from EventBridge to the queue, with its dead letter queue."""
        events.Rule(
            self,
            name,
            description="New objects of extentflow's buckets",
            event_pattern=events.EventPattern(
                source=["aws.s3"],
                detail_type=["Object Created"],
                detail={"bucket": {"name": list(names)}},
            ),
            targets=[targets.SqsQueue(self._arrivals.queue, dead_letter_queue=self._arrivals.dead)],
        )

    def _make(self, bucket: config.Bucket) -> None:
        made = s3.Bucket(
            self,
            bucket.name,
            bucket_name=bucket.name,
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            versioned=True,
            lifecycle_rules=[
                s3.LifecycleRule(abort_incomplete_multipart_upload_after=Duration.days(7))
            ],
            # Not on a first deployment that fails: its names must be free for the next.
            removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
        )
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
                    event=CREATED, queue=self._arrivals.queue.queue_arn
                )
            ]
        )
        # S3 sends a test message to the queue when the bucket is created.
        if self._allowed is not None:
            resource.node.add_dependency(self._allowed)

    def _announcing(self, buckets: Sequence[str]) -> IDependable | None:
        """Allow buckets of this account to send; their names are known before they exist.

        Return the queue's policy: a bucket must not be created before it.
        """
        arns = [arn_of(self, bucket) for bucket in buckets]
        statement = iam.PolicyStatement(
            sid="AnnounceBuckets",
            principals=[iam.ServicePrincipal("s3.amazonaws.com")],
            actions=["sqs:SendMessage"],
            resources=[self._arrivals.queue.queue_arn],
            conditions={
                "ArnEquals": {"aws:SourceArn": arns[0] if len(arns) == 1 else arns},
                "StringEquals": {"aws:SourceAccount": Stack.of(self).account},
            },
        )
        return self._arrivals.queue.add_to_resource_policy(statement).policy_dependable

    def _switch_on(self, buckets: Sequence[config.Bucket]) -> None:
        """Add notifications to existing buckets, beside those that they have."""
        switch_role = self._switch_role(buckets)
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
                existing.add_event_notification(s3.EventType.OBJECT_CREATED, queue)
        answer_within(self, _handler(self).ref, period=ANSWERED_WITHIN)

    def _switch_role(self, buckets: Sequence[config.Bucket]) -> iam.Role:
        """Return the role of CDK's handler, for these buckets only."""
        grant = Grant(
            "SwitchAnnouncementsOn",
            "the handler reads, completes and writes the buckets' notification configuration",
            ("s3:GetBucketNotification", "s3:PutBucketNotification"),
            tuple(arn_of(self, bucket.name) for bucket in buckets),
        )
        stack = Stack.of(self)
        logs = stack.format_arn(
            service="logs",
            resource="log-group",
            resource_name=f"/aws/lambda/{stack.stack_name[:STACK_NAME_KEPT]}*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        log = Grant(
            "WriteLog",
            "what the handler prints, for example which bucket refused it",
            ("logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"),
            (logs,),
            wildcard="CloudFormation names the handler, and Lambda its log group after it",
        )
        return role(
            self,
            description="Adds notifications to existing buckets",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            grants=(grant, log),
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


def _grouped(names: Sequence[str]) -> Iterator[list[str]]:
    """Yield the names in groups that fit into the pattern of one rule."""
    group: list[str] = []
    for name in names:
        if group and sum(map(_quoted, (*group, name))) > NAMES_CHARACTERS:
            yield group
            group = []
        group.append(name)
    if group:
        yield group


def _quoted(name: str) -> int:
    return len(f'"{name}",')


def _excess(groups: Sequence[Sequence[str]], direct: Sequence[str]) -> list[str]:
    """Return why the policy of the queue has no room for these buckets."""
    found = []
    if len(groups) > MOST_RULES:
        found.append(
            f"buckets: {sum(map(len, groups))} with announced=EVENTBRIDGE need {len(groups)} rules,"
            f" and the policy of a queue has room for {MOST_RULES}; use several stages"
        )
    if sum(len(f'"arn:aws-us-gov:s3:::{name}",') for name in direct) > DIRECT_CHARACTERS:
        found.append(
            f"buckets: {len(direct)} with announced=DIRECT do not fit into the policy of a queue;"
            " use announced=EVENTBRIDGE"
        )
    return found


def arn_of(scope: Construct, bucket: str) -> str:
    """Return a bucket's ARN; it contains neither region nor account, and no token."""
    partition = RegionInfo.get(Stack.of(scope).region).partition
    return f"arn:{partition}:s3:::{bucket}"


def read(scope: Construct, buckets: Sequence[config.Bucket]) -> tuple[Grant, ...]:
    """Return permission to read objects, and to distinguish a missing object from a denied one."""
    if not buckets:
        return ()
    keys = tuple(bucket.kms_key_arn for bucket in buckets if bucket.kms_key_arn)
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
    scope: Construct, buckets: Sequence[config.Bucket], connectors: Sequence[DeclaredConnector]
) -> tuple[Grant, ...]:
    """Return permission for `after.completion` of the connectors that use it, on their prefixes."""
    tagged: list[str] = []
    removed: list[str] = []
    sources: list[str] = []
    targets: list[str] = []
    for one in (each.checked for each in connectors if each.on_aws):
        place = f"{arn_of(scope, one.bucket)}/{one.prefix}*"
        if one.after_completion == TAG:
            tagged.append(place)
        if one.after_completion == MOVE:
            sources.append(place)
            target, prefix = one.completion_bucket or one.bucket, one.completion_prefix
            targets.append(f"{arn_of(scope, target)}/{prefix}*")
        if one.after_completion in (MOVE, DELETE):
            removed.append(place)
    keys = {one.name: one.kms_key_arn for one in buckets if one.kms_key_arn}
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
        Grant(
            "EncryptMovedObjects",
            "moved objects are encrypted with these keys",
            ("kms:GenerateDataKey",),
            _sorted(key for key in written if key),
        ),
    )
    return tuple(grant for grant in found if grant.resources)


def read_tags(scope: Construct, connectors: Sequence[DeclaredConnector]) -> tuple[Grant, ...]:
    """Return permission to read tags, for connectors that make headers of them."""
    places = _sorted(
        f"{arn_of(scope, one.checked.bucket)}/{one.checked.prefix}*"
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
    return (Grant("DecryptObjects", why, ("kms:Decrypt",), tuple(keys)),)
