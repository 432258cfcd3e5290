"""A stage: the settings of one deployment, and their checks."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated

from extentflow.config.worker import WorkerSettings
from extentflow.errors import Misconfigured

from . import kinds
from .config_cluster import IAM_PORT, LATER, NewCluster
from .config_spark import ABSENT_REGIONS, SERVED_ZONES, Spark
from .kinds import KEY, SECRET, ArnOf, Between, OneOf, unlike
from .typed_settings import TypedSettings

# Limits of AWS for the maximum concurrency of one SQS event source.
LEAST_CONCURRENCY, MOST_CONCURRENCY = 2, 1_000
# Of a provisioned poller of an SQS event source: how many there are, and what one of them invokes.
LEAST_POLLERS, MOST_POLLERS, INVOKED_BY_POLLER = 2, 200, 10
# The slot of a worker that died is not available before its lease ends.
SLOTS_IN_USE_PERCENT = 80

# Concurrent invocations of the reconciler, and of the functions of custom resources.
OTHER_INVOCATIONS = 10
CONCURRENCY = Between(LEAST_CONCURRENCY, MOST_CONCURRENCY)
NONE_OR_MORE, ONE_OR_MORE = Between(0), Between(1)
JOB_MINUTES = Between(10, why="the reconciler measures every 5 minutes; ")
# Its own configurations that send a tenth of the invocations to a new version.
CANARY_MINUTES = OneOf("CodeDeploy", (5, 10, 15, 30))
# Retention in days.
LOG_DAYS = OneOf(
    "CloudWatch Logs",
    (
        *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180),
        *(365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653),
    ),
)
# A tag on every service of the stack, and those of CloudFormation beside it.
MOST_TAGS, TAG_KEY_CHARACTERS, TAG_VALUE_CHARACTERS = 40, 128, 256

APP_ID = "app.id"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SERVERS = re.compile(r"\s*[^\s,]+:[0-9]+\s*(,\s*[^\s,]+:[0-9]+\s*)*")
_NAME = kinds.Named(
    r"[a-z][a-z0-9-]{0,30}", "write a letter, then letters, digits and -, 31 characters at most"
)
_TAG = re.compile(r"[\w .:/=+@-]*")
# Set by the stack itself, so a stage must not set them.
_SAID_BY_STACK = (
    "bootstrap.servers",
    "ledger.",
    "arrivals.",
    "extents.",
    "receiver.",
    "event.bus",
    "spark.",
)


class Auth(StrEnum):
    """How functions authenticate to the brokers.

    none   plain text                             scram  user name and password from a secret
    iam    a token signed with the function's role  mtls   certificate and key from a secret

    For clusters that are not MSK, all over TLS: `plain`, an API key or user name with its secret;
    `scram-sha-256`; `scram`, which is SHA-512; `mtls`.
    """

    NONE = "none"
    IAM = "iam"
    SCRAM = "scram"
    SCRAM_SHA_256 = "scram-sha-256"
    PLAIN = "plain"
    MTLS = "mtls"


# Mechanisms with a user name and a password.
PASSWORDS: Mapping[Auth, str] = {
    Auth.PLAIN: "PLAIN",
    Auth.SCRAM: "SCRAM-SHA-512",
    Auth.SCRAM_SHA_256: "SCRAM-SHA-256",
}


# Ports of MSK brokers: inside their VPC, and with public access.
MSK_PORTS: Mapping[Auth, tuple[int, int | None]] = {
    Auth.NONE: (9092, None),
    Auth.MTLS: (9094, 9194),
    Auth.SCRAM: (9096, 9196),
    Auth.IAM: (9098, 9198),
}
_MSK = re.compile(r".*\.kafka(?:-serverless)?\.[a-z0-9-]+\.amazonaws\.com(?:\.cn)?")
_SERVERLESS = ".kafka-serverless."


# Endpoints that are routes: they have no subnets, and admit all that the routes lead to them.
GATEWAYS = frozenset({"s3", "dynamodb"})
INTERFACES = ("emr-serverless", "events", "glue", "kms", "logs", "secretsmanager", "sqs", "sts")
ENDPOINTS = OneOf("the stack", tuple(sorted({*GATEWAYS, *INTERFACES})))
NEEDED = ("s3", "dynamodb", "sqs", "events")
EMR_SERVERLESS = "emr-serverless"
FUNCTIONS = "functions"  # in `placement`, beside the services
BROKERS_GROUP = "cluster_security_group_id"


class BucketNotification(StrEnum):
    """How a bucket sends object-created notifications.

    ELSEWHERE: others write the bucket's settings. The stack admits what EventBridge or S3 sends.
    """

    EVENTBRIDGE = "eventbridge"
    DIRECT = "direct"
    ELSEWHERE = "elsewhere"


class Unmatched(StrEnum):
    """What happens to new objects that no connector of the stage reads.

    ignore       they are not announced; one that is announced all the same is logged and counted
    dead-letter  whole buckets are announced; such an object is a dead letter, and rings an alarm
    """

    IGNORE = "ignore"
    DEAD_LETTER = "dead-letter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket(TypedSettings):
    """A bucket whose new objects are delivered; the stack creates it unless `exists`.

    `kms_key_arn` is the key of encrypted objects. `account` owns the bucket, where that is not the
    stage's account; then its owner writes the bucket's notifications and policy.
    """

    name: Annotated[str, kinds.BUCKET]
    exists: bool = False
    announced: BucketNotification = BucketNotification.EVENTBRIDGE
    kms_key_arn: Annotated[str | None, KEY] = None
    account: Annotated[str | None, kinds.ACCOUNT] = None

    def problems(self) -> Iterator[str]:
        """Yield the problems of these settings."""
        if not (self.exists or _BUCKET.fullmatch(self.name)):
            yield (
                f"buckets: {self.name!r} is not a valid bucket name: write 3 to 63 lower-case"
                " letters, digits, - and ."
            )
        elsewhere = self.announced is BucketNotification.ELSEWHERE
        if elsewhere and not self.exists:
            yield (
                f"buckets: {self.name}: announced=ELSEWHERE is for a bucket that others manage; set"
                " exists=True"
            )
        if self.account is None:
            return
        if not elsewhere:
            yield (
                f"buckets: {self.name}: the stack cannot write notifications of a bucket of account"
                f" {self.account}; set announced=ELSEWHERE, and let its owner write them"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster(TypedSettings):
    """A Kafka cluster: an existing one, or the one of MSK that the stack creates (`created`).

    `arn` is that of an MSK cluster, for `iam`, or instead of `bootstrap_servers`. `secret_arn` is
    complete and names a secret with the keys `username` and `password`, or `certificate` and `key`,
    both PEM (`mtls`). `secret_key_arn` is its KMS key; for `scram`, MSK requires a customer managed
    one.
    """

    bootstrap_servers: str = ""
    auth: Auth = Auth.IAM
    arn: Annotated[str | None, ArnOf("kafka", "cluster/", home=True)] = None
    secret_arn: Annotated[str | None, SECRET] = None
    secret_key_arn: Annotated[str | None, KEY] = None
    created: NewCluster | None = None

    @property
    def ports(self) -> tuple[int, ...]:
        """The brokers' ports."""
        return tuple(sorted({port for _, port in self.servers})) or (IAM_PORT,)

    @property
    def servers(self) -> tuple[tuple[str, int], ...]:
        """The brokers' hosts and ports, of which there are none before a cluster exists."""
        if self.created is not None:
            return ()
        written = (server.strip().rpartition(":") for server in self.bootstrap_servers.split(","))
        return tuple((host, int(port)) for host, _, port in written)

    @property
    def names(self) -> frozenset[str]:
        """What names the cluster: its ARN, and some servers; none of one that the stack creates."""
        named = (self.arn or "", *self.bootstrap_servers.split(","))
        return frozenset(one.strip() for one in named) - {""}

    def client_settings(self) -> dict[str, str]:
        """Return worker settings by key; secrets are references that functions resolve."""
        found = {"bootstrap.servers": LATER if self.created else self.bootstrap_servers}
        match self.auth:
            case Auth.NONE:
                pass
            case Auth.IAM:
                found["kafka.security.protocol"] = "SASL_SSL"
                found["kafka.sasl.mechanism"] = "AWS_MSK_IAM"
            case Auth.SCRAM | Auth.SCRAM_SHA_256 | Auth.PLAIN:
                found["kafka.security.protocol"] = "SASL_SSL"
                found["kafka.sasl.mechanism"] = PASSWORDS[self.auth]
                found["kafka.sasl.username"] = self._kept("username")
                found["kafka.sasl.password"] = self._kept("password")
            case Auth.MTLS:
                found["kafka.security.protocol"] = "SSL"
                found["kafka.ssl.certificate.pem"] = self._kept("certificate")
                found["kafka.ssl.key.pem"] = self._kept("key")
        return found

    def _kept(self, key: str) -> str:
        return f"${{secretsmanager:{self.secret_arn}:{key}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet(TypedSettings):
    """A private subnet from which the brokers can be reached.

    `zone_id` is the id of its availability zone, such as `use1-az4`: each account maps names of
    zones to ids in its own way. Spark needs it in regions where EMR Serverless lacks a zone.
    """

    id: Annotated[str, kinds.SUBNET]
    availability_zone: Annotated[str, kinds.ZONE]
    route_table_id: Annotated[str, kinds.ROUTE_TABLE]
    zone_id: Annotated[str | None, kinds.ZONE_ID] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network(TypedSettings):
    """The brokers' VPC, in which functions that use them run.

    With an MSK cluster's ARN, `vpc_id`, `subnets`, `cluster_security_group_id` and `vpc_cidrs` are
    those of the cluster, unless they are given.

    The stack creates `endpoints` (S3 and DynamoDB are free of charge; others are billed by hour and
    zone); `existing_endpoints` exist already. With `nat`, the subnets' default route leads to a NAT
    gateway, and no endpoint is created unless it is named. `reaches` names hosts with routes of
    their own, such as a StorageGRID.

    Interface endpoints answer for the service's name in the whole VPC, so they admit `vpc_cidrs`:
    all IPv4 blocks of the VPC, and others that resolve names there. `placement` names the subnets
    of an interface endpoint, by its service, and those of `functions`; others use all subnets.

    The brokers admit `client_security_group_id` already: functions and Spark have that group, and
    the stack changes no rule of it or of the brokers' group.
    """

    vpc_id: Annotated[str, kinds.VPC] = ""
    subnets: tuple[Subnet, ...] = ()
    cluster_security_group_id: Annotated[str, kinds.GROUP] = ""
    client_security_group_id: Annotated[str, kinds.GROUP] = ""
    endpoints: Annotated[tuple[str, ...] | None, ENDPOINTS] = None
    existing_endpoints: Annotated[tuple[str, ...], kinds.SERVICE] = ()
    nat: bool = False
    reaches: Annotated[tuple[str, ...], kinds.HOST] = ()
    vpc_cidrs: Annotated[tuple[str, ...], kinds.Block(8)] = ()
    placement: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def absent(self) -> tuple[str, ...]:
        """The settings without which there is no network, and that are left out."""
        named = ("vpc_id", "subnets", *(() if self.client_security_group_id else (BROKERS_GROUP,)))
        return tuple(name for name in named if not getattr(self, name))

    @property
    def created(self) -> tuple[str, ...]:
        """The services whose endpoints the stack creates."""
        if self.endpoints is not None:
            return self.endpoints
        return (
            () if self.nat else tuple(one for one in NEEDED if one not in self.existing_endpoints)
        )

    def placed(self, what: str) -> tuple[Subnet, ...]:
        """Return the subnets of an endpoint or of the functions."""
        ids = self.placement.get(what)
        return tuple(one for one in self.subnets if ids is None or one.id in ids)

    def problems(self, *, created: bool = False) -> Iterator[str]:
        """Yield the problems of these settings; the stack may have `created` the brokers."""
        for name in self.absent:
            if name != BROKERS_GROUP or not created:
                yield f"network.{name}: write it, or cluster.arn of MSK, which gives it"
        for name in (BROKERS_GROUP, "client_security_group_id") if created else ():
            if getattr(self, name):
                yield f"network.{name}: the stack creates the brokers' group; remove it"
        for service in sorted({*self.created} & {*self.existing_endpoints}):
            yield (
                f"network.endpoints: {service} is also in existing_endpoints; remove it "
                "from one of them"
            )
        interfaces = sorted({*self.created} - GATEWAYS)
        yield from self._cidr_problems(interfaces)
        yield from self._placement_problems({*interfaces, FUNCTIONS})

    def _zones(self, ids: Sequence[str]) -> set[str]:
        return {one.availability_zone for one in self.subnets if one.id in ids}

    def _cidr_problems(self, interfaces: Sequence[str]) -> Iterator[str]:
        if interfaces and not self.vpc_cidrs:
            yield (
                f"network.vpc_cidrs: endpoints of {', '.join(interfaces)} answer for all workloads"
                " of the VPC and must admit them; list its blocks (`aws ec2 describe-vpcs"
                f" --vpc-ids {self.vpc_id} --query"
                " 'Vpcs[].CidrBlockAssociationSet[].CidrBlock'`)"
            )

    def _placement_problems(self, known: set[str]) -> Iterator[str]:
        subnets = {one.id for one in self.subnets}
        for what, ids in self.placement.items():
            if what not in known:
                yield f"network.placement: {what} has no subnets; known are {_joined(known)}"
            elif not ids:
                yield f"network.placement: {what}: name at least one subnet"
            elif unknown := {*ids} - subnets:
                yield f"network.placement: {what}: {_joined(unknown)}: not in network.subnets"
            elif what != FUNCTIONS and len(self._zones(ids)) < len(ids):
                yield f"network.placement: {what}: an endpoint has one subnet per zone; leave one"


class Front(StrEnum):
    """The API in front of the receiver.

    http   cheap; all senders share `requests_per_second`
    rest   with a web ACL of WAF, which blocks senders before they use up that rate
    """

    HTTP = "http"
    REST = "rest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver(TypedSettings):
    """The HTTP endpoint for notifications of other stores.

    `secret_arn` is complete and names the secret that declares the permitted sources, in the form
    that `extentflow.discovery.sources` reads. With `front=Front.REST`, `requests_per_sender` limits
    the requests of one address within five minutes, and `allowed_cidrs`, if there are any, are the
    only addresses that may send at all. At most `concurrency` requests are answered at a time:
    without a limit, a flood or a slow queue would use up the account's concurrency.
    """

    secret_arn: Annotated[str, SECRET]
    requests_per_second: Annotated[int, ONE_OR_MORE] = 200
    front: Front = Front.HTTP
    requests_per_sender: Annotated[int | None, Between(10, 2_000_000_000)] = None
    allowed_cidrs: Annotated[tuple[str, ...], kinds.Block(1, (4, 6))] = ()
    concurrency: Annotated[int, Between(1, MOST_CONCURRENCY)] = 20

    def problems(self) -> Iterator[str]:
        """Yield the problems of these settings."""
        guarded = self.requests_per_sender is not None or bool(self.allowed_cidrs)
        if self.front is Front.HTTP and guarded:
            yield (
                "receiver: requests_per_sender and allowed_cidrs need front=Front.REST: an HTTP API"
                " cannot have a web ACL"
            )
        if self.front is Front.REST and not guarded:
            yield "receiver: front=rest: set requests_per_sender, allowed_cidrs, or both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(TypedSettings):
    """One deployment.

    `app_id` begins the stage's transactional ids and groups in Kafka, on which roles get
    permission. Stages of one cluster need different ones, and a ledger never changes its own.

    `settings` are worker settings by key (docs/configuration.md). `most_workers` and
    `most_planners` limit the concurrency of the functions; `spark_cores` is the number of slots
    for Spark, wherever it runs. `account_concurrency` is Lambda's quota "Concurrent executions" in
    this account and region, as far as this stage may use it. `table` names an existing ledger, for
    example a restored one.
    `event_bus` is a name or an ARN. Alarms notify `alarm_topic_arn`, or a topic of the stack, with
    `alarm_email` as subscriber; one rings for a job that is open for `oldest_job_minutes`. With
    `dashboard`, the stack has one. `connectors` is a folder of the project. `secret_key_arns` are
    the customer managed KMS keys of the secrets that settings, connectors and receiver refer to.
    Log groups keep lines for `log_days`; with `logs_stay`, they outlast the stack. `tags` are those
    of the stack and its resources. `termination_protection` refuses to delete the stack.
    `kms_key_arn` is the customer managed key of queues, table, logs, topic, variables of functions,
    and of new buckets without one of their own; docs/key-policy.json is the policy that it needs.
    `unmatched` decides about objects that no connector reads.
    For `canary_minutes`, a new version of a function gets a tenth of the invocations; None moves
    all of them at once. With `pollers`, each queue keeps at least so many of its own: a burst
    starts ten invocations of each at once. With `tracing`, X-Ray has traces of the functions.
    `qualifier` and `assets_bucket` are those of `cdk bootstrap`, where they are not CDK's own.
    """

    name: Annotated[str, _NAME]
    region: Annotated[str, kinds.REGION]
    cluster: Cluster
    buckets: tuple[Bucket, ...]
    account: Annotated[str | None, kinds.ACCOUNT] = None
    app_id: str | None = None
    unmatched: Unmatched = Unmatched.IGNORE
    network: Network | None = None
    receiver: Receiver | None = None
    spark: Spark | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    most_workers: Annotated[int, CONCURRENCY] = 100
    most_planners: Annotated[int, CONCURRENCY] = 5
    spark_cores: Annotated[int, NONE_OR_MORE] = 0
    account_concurrency: Annotated[int, ONE_OR_MORE] = 1_000
    table: Annotated[str | None, kinds.TABLE] = None
    event_bus: Annotated[str, ArnOf("events", "event-bus/", or_name=True)] = "default"
    alarm_topic_arn: Annotated[str | None, ArnOf("sns", home=True)] = None
    alarm_email: Annotated[str | None, kinds.EMAIL] = None
    oldest_job_minutes: Annotated[int, JOB_MINUTES] = 60
    dashboard: bool = True
    connectors: Annotated[str, kinds.FOLDER] = "connectors"
    secret_key_arns: Annotated[tuple[str, ...], KEY] = ()
    kms_key_arn: Annotated[str | None, replace(KEY, home=True)] = None
    log_days: Annotated[int, LOG_DAYS] = 30
    logs_stay: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    termination_protection: bool = False
    canary_minutes: Annotated[int | None, CANARY_MINUTES] = None
    pollers: Annotated[int | None, Between(LEAST_POLLERS, MOST_POLLERS)] = None
    tracing: bool = False
    qualifier: Annotated[str | None, kinds.QUALIFIER] = None
    assets_bucket: Annotated[str | None, kinds.BUCKET] = None

    def __str__(self) -> str:
        """Return what an error calls the stage."""
        return f"stage {self.name}"

    @property
    def metrics_namespace(self) -> str:
        """The namespace of the stage's metrics: stages of one account must not hide each other."""
        return f"extentflow/{self.name}"

    def key_of(self, bucket: Bucket) -> str | None:
        """Return the ARN of the key of a bucket's objects, where it is not one of S3."""
        return bucket.kms_key_arn or (None if bucket.exists else self.kms_key_arn)

    def worker_settings(self) -> WorkerSettings:
        """Return the library's view of this stage.

        Raises:
            Misconfigured: the settings are invalid.
        """
        return WorkerSettings.from_map(self.given_settings())

    def given_settings(self) -> dict[str, str]:
        """Return worker settings by key, without those of what the stack creates."""
        app = {} if self.app_id is None else {APP_ID: self.app_id}
        return {**self.settings, **app, **self.cluster.client_settings()}

    def same_app(self, other: "Stage") -> bool:
        """Whether one application id is the other's, or begins with it, in the same cluster.

        Rights of `orders` are those on `orders.*`.
        """
        own, others = (one.app_id or one.settings.get(APP_ID) or "" for one in (self, other))
        first, second = sorted((f"{own}.", f"{others}."))
        is_one = bool(own and others) and second.startswith(first)
        return is_one and bool(self.cluster.names & other.cluster.names)

    def check(self) -> None:
        """Raise Misconfigured with all problems of the stage."""
        found = [*self.misfits()] or [*self._problems()]
        if found:
            raise Misconfigured([f"{self}: {problem}" for problem in found])

    def _problems(self) -> Iterator[str]:
        yield from _bucket_problems(self.buckets)
        yield from _cluster_problems(self.cluster, self.network)
        yield from _server_problems(self.cluster, in_vpc=self.network is not None)
        if self.network is not None:
            yield from self.network.problems(created=self.cluster.created is not None)
        yield from unlike(self, self.region)
        if self.receiver is not None:
            yield from self.receiver.problems()
        if self.alarm_email is not None and self.alarm_topic_arn is not None:
            yield "alarm_email: subscribe the address to the topic of alarm_topic_arn instead"
        yield from _tag_problems(self.tags)
        yield from self._setting_problems()
        if self.spark is not None:
            yield from self.spark.problems(in_vpc=self.network is not None, slots=self.spark_cores)
            if self.region in ABSENT_REGIONS:
                yield (
                    f"spark: {self.region} has no release with Spark 4 on EMR Serverless; leave"
                    " spark out, and deliver large objects with `extentflow run`"
                )
            yield from self._zone_problems()

    @property
    def spark_subnets(self) -> tuple[Subnet, ...]:
        """The subnets in zones that EMR Serverless serves."""
        subnets = self.network.subnets if self.network is not None else ()
        served = SERVED_ZONES.get(self.region)
        return tuple(one for one in subnets if served is None or one.zone_id in served)

    def endpoint_subnets(self, service: str) -> tuple[Subnet, ...]:
        """Return the subnets of an interface endpoint, one per zone as AWS requires.

        That of EMR Serverless needs zones that the service has.
        """
        if self.network is None:
            return ()
        served = service == EMR_SERVERLESS and service not in self.network.placement
        found = self.spark_subnets if served and self.spark else self.network.placed(service)
        return tuple({one.availability_zone: one for one in reversed(found)}.values())

    def _zone_problems(self) -> Iterator[str]:
        served = SERVED_ZONES.get(self.region)
        if served is None or self.network is None:
            return
        zones = ", ".join(sorted(served))
        unknown = [one.id for one in self.network.subnets if one.zone_id is None]
        if unknown:
            yield (
                f"network.subnets: {', '.join(unknown)}: set zone_id (`aws ec2 describe-subnets"
                " --query 'Subnets[].[SubnetId,AvailabilityZoneId]'`); in"
                f" {self.region}, EMR Serverless has {zones} only"
            )
        elif not self.spark_subnets:
            yield f"network.subnets: EMR Serverless has {zones} only; add a subnet in one of them"

    def _setting_problems(self) -> Iterator[str]:
        for key in self.settings:
            if key.startswith(_SAID_BY_STACK):
                yield f"settings: {key}: the stack sets it; remove it"
            elif key in self.cluster.client_settings():
                yield f"settings: {key}: cluster.auth={self.cluster.auth} sets it; remove it"
        yield from self._app_problems()
        try:
            slots = self.worker_settings().exactly_once_slots
        except Misconfigured as exc:
            yield from (f"settings: {problem}" for problem in exc.problems)
        else:
            yield from self._concurrency_problems(slots)

    def _app_problems(self) -> Iterator[str]:
        if self.app_id is None and APP_ID not in self.settings:
            yield (
                f'app_id: write app_id="extentflow-{self.name}" for a new stage. A stage that was'
                ' deployed without it needs app_id="extentflow": its ledger is bound to that'
            )
        elif self.app_id is not None and APP_ID in self.settings:
            yield f"settings: {APP_ID}: app_id sets it; remove it"

    def _poller_problems(self, place: str, most: int) -> Iterator[str]:
        if self.pollers is None:
            return
        if most % INVOKED_BY_POLLER or most // INVOKED_BY_POLLER < LEAST_POLLERS:
            yield (
                f"most_{place}={most}: each of the pollers invokes {INVOKED_BY_POLLER}; write a"
                f" multiple of it, {INVOKED_BY_POLLER * LEAST_POLLERS} or more"
            )
        elif not LEAST_POLLERS <= self.pollers <= min(MOST_POLLERS, most // INVOKED_BY_POLLER):
            yield (
                f"pollers={self.pollers}: most_{place}={most} and AWS allow {LEAST_POLLERS} to"
                f" {min(MOST_POLLERS, most // INVOKED_BY_POLLER)}"
            )

    def _concurrency_problems(self, slots: int) -> Iterator[str]:
        for place, most in (("workers", self.most_workers), ("planners", self.most_planners)):
            yield from self._poller_problems(place, most)
        received = self.receiver.concurrency if self.receiver else 0
        needed = self.most_workers + self.most_planners + received + OTHER_INVOCATIONS
        if needed > self.account_concurrency:
            yield (
                f"most_workers={self.most_workers}, most_planners={self.most_planners} and"
                f" {received} of the receiver need {needed} concurrent invocations with"
                f" {OTHER_INVOCATIONS} others, the account allows"
                f" account_concurrency={self.account_concurrency}. Lower them, or raise the quota"
                ' "Concurrent executions" of Lambda, then account_concurrency'
            )
        wanted = self.most_workers + self.spark_cores
        if wanted * 100 > slots * SLOTS_IN_USE_PERCENT:
            yield (
                f"most_workers={self.most_workers} and spark_cores={self.spark_cores} need {wanted}"
                f" slots, {SLOTS_IN_USE_PERCENT} % of exactly.once.slots={slots} may be used;"
                " lower the former or raise the latter"
            )


def _bucket_problems(buckets: tuple[Bucket, ...]) -> Iterator[str]:
    for bucket in buckets:
        yield from bucket.problems()


def _tag_problems(tags: Mapping[str, str]) -> Iterator[str]:
    if len(tags) > MOST_TAGS:
        yield f"tags: {len(tags)} are too many; write {MOST_TAGS} at most"
    for key, value in tags.items():
        if key.lower().startswith("aws:") or not 0 < len(key) <= TAG_KEY_CHARACTERS:
            yield f"tags: {key!r}: write 1 to {TAG_KEY_CHARACTERS} characters, and no prefix aws:"
        elif not 0 < len(value) <= TAG_VALUE_CHARACTERS:
            yield f"tags: {key}: write a value of 1 to {TAG_VALUE_CHARACTERS} characters"
        elif not _TAG.fullmatch(f"{key}{value}"):
            yield f"tags: {key!r}={value!r}: write letters, digits, blanks and . : / = + - @ _"


def _cluster_problems(cluster: Cluster, network: Network | None) -> Iterator[str]:
    if cluster.created is not None:
        if cluster.bootstrap_servers or cluster.arn or cluster.auth is not Auth.IAM:
            yield "cluster.created: the stack creates it, with auth=iam; leave out the rest"
        zones = {one.availability_zone for one in network.subnets} if network else set()
        yield from cluster.created.problems(len(zones))
        return
    if not cluster.bootstrap_servers and cluster.arn is None:
        yield "cluster: write bootstrap_servers, arn of an MSK cluster, or created"
    if cluster.auth is Auth.IAM and cluster.arn is None:
        yield "cluster.arn: auth=iam needs it, to say what functions may do there"
    if cluster.auth not in {Auth.NONE, Auth.IAM} and cluster.secret_arn is None:
        yield f"cluster.secret_arn: auth={cluster.auth} needs the secret with the credentials"


def _server_problems(cluster: Cluster, *, in_vpc: bool) -> Iterator[str]:
    """Yield why functions cannot reach these brokers, as far as MSK's ports show it."""
    if not _SERVERS.fullmatch(cluster.bootstrap_servers):
        return  # reported with the settings
    for host, port in cluster.servers:
        if not _MSK.fullmatch(host):
            continue
        if _SERVERLESS in host:
            yield (
                f"cluster.bootstrap_servers: {host}: MSK Serverless is not supported: no test"
                " has shown transactions there; use a provisioned or an Express cluster"
            )
            continue
        if cluster.auth not in MSK_PORTS:
            offered = ", ".join(one for one in MSK_PORTS if one is not Auth.NONE)
            yield (
                f"cluster.auth={cluster.auth}: brokers of MSK, such as {host}, do not offer it; use"
                f" {offered}"
            )
            return
        inside, outside = MSK_PORTS[cluster.auth]
        if port in _others(cluster.auth):
            public = f", or {outside} with public access" if outside else ""
            yield (
                f"cluster.bootstrap_servers: {host}:{port}: MSK brokers listen for"
                f" auth={cluster.auth} on {inside}{public}"
            )
        elif port == inside and not in_vpc:
            yield (
                f"cluster.bootstrap_servers: {host}:{port} can be reached from its VPC only; set"
                " network"
            )


def _others(auth: Auth) -> set[int | None]:
    """Return the ports at which MSK's brokers use another authentication; TLS may use none."""
    own = {Auth.NONE, Auth.MTLS} if auth is Auth.NONE else {auth}
    return {port for one in MSK_PORTS.keys() - own for port in MSK_PORTS[one]}


def _joined(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
