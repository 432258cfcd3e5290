"""The health of a stack: create what is missing, report findings with what to do."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol
from uuid import uuid4

from extentflow.config.connector import ConnectorConfig
from extentflow.config.connector_keys import LOCAL_FILE, NONE, TAG
from extentflow.config.ledgers import LedgerAddress
from extentflow.config.secrets import referring
from extentflow.config.worker import ARRAYS, WorkerSettings
from extentflow.errors import (
    CredentialsUnavailable,
    ExtentflowError,
    Misconfigured,
    NotOffered,
    Retryable,
)
from extentflow.jobs.addresses import KeyScope
from extentflow.jobs.connector_catalogue import ConnectorCatalogue
from extentflow.jobs.preflight import dead_letters_refused, records_refused
from extentflow.kafka import Fence, ProducerSettings, SlotProgress
from extentflow.kafka.broker_errors import REFUSED_REMEDY
from extentflow.kafka.native import explain
from extentflow.kafka.topic_admin import ISOLATION, TopicFacts
from extentflow.ledger import ConnectorState, ConnectorVersion, Ledger
from extentflow.model import ObjectVersion
from extentflow.queue import Queue
from extentflow.storage import ObjectStore, changeable, untaggable
from extentflow.wiring.arrivals import StackQueues
from extentflow.wiring.deliverability import Deliverability
from extentflow.wiring.objects import ObjectAccess
from extentflow.wiring.options import (
    SecretResolver,
    encryption_checks,
    format_checks,
    registry_checks,
)
from extentflow.wording import counted, format_bytes

CLOCK_SKEW_SECONDS = 5.0
READ_COMMITTED = "read_committed"
SHOWN_GROUPS = 3
DEAD_MESSAGES = "`extentflow redrive --dry-run` shows the reasons"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's result: `verdict` is ok, warning or problem; `remedy` is empty when ok."""

    check: str
    verdict: str
    fact: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Initialised:
    """What is ready; `created`: the ledger is new; `warnings`: it is a copy, and what follows."""

    url: str
    created: bool
    ledger: str
    cluster: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LedgerChecks:
    """Checks the ledger at `address`, which `ledger` opens and `require_app` binds to `app.id`."""

    address: LedgerAddress
    ledger: Callable[[], Ledger]
    require_app: Callable[[], None]

    @property
    def is_absent(self) -> bool:
        """Whether the ledger is the user's own, and nothing is recorded in it yet."""
        return not self.address.chosen and not self.address.path.exists()

    def usability(self) -> Finding:
        """Report the ledger, and what is wrong with it."""
        where = self.address
        if self.is_absent:
            fact = f"none yet: {where.path} is created with the first connector or delivery"
            return _usable("ledger", fact)
        try:
            fact = f"{where}, id {self.ledger().id}"
            table = self.ledger().admin.describe()
            self.require_app()
        except ExtentflowError as exc:
            return problem_of("ledger", exc)
        if table.problems:
            return Finding("ledger", "problem", "; ".join(table.problems), "name another ledger")
        remedy = "enable point-in-time recovery: the ledger records what was delivered"
        return _usable("ledger", fact, remedy if table.recovery is False else "")

    def clock(self) -> Finding:
        """Compare this machine's clock with that of the ledger's server."""
        skew = time.time() - self.ledger().now()
        fact = f"{round(skew):+d} s against the ledger's server"
        remedy = "request signatures need a correct clock: synchronise this machine (NTP)"
        return _usable("clock", fact, remedy if abs(skew) > CLOCK_SKEW_SECONDS else "")


class CheckedCluster(Protocol):
    """The calls to Kafka that checks make."""

    @property
    def cluster(self) -> str:
        """The id of the cluster, as its brokers report it."""

    def proof(self) -> str:
        """Describe what brokers are shown; connects to none."""

    def ensure_progress_topic(self) -> None:
        """Create the progress topic where it is missing."""

    def config(self) -> Mapping[str, str]:
        """Return the configuration of one broker."""

    def share_groups(self) -> Mapping[str, str]:
        """Return the isolation level of each share group, by its name."""

    def fence(self, identity: str, client: ProducerSettings) -> Fence:
        """Fence the previous producer of `identity`."""


@dataclass(frozen=True, slots=True)
class ClusterChecks:
    """Checks the Kafka cluster that `broker` opens, and slots, which the ledger has."""

    settings: WorkerSettings
    ledger: Callable[[], Ledger]
    broker: Callable[[], CheckedCluster]

    def credentials(self) -> Finding:
        """Report how this process authenticates to the brokers, and whether the secrets resolve."""
        return _check("broker credentials", self.broker().proof)

    def identity(self) -> Finding:
        """Report the id of the cluster."""
        return _check("Kafka cluster", lambda: self.broker().cluster)

    def producing(self) -> Iterator[Finding]:
        """Yield findings about what producers need of the cluster."""
        yield _check("progress topic", self._progress_topic)
        yield _check("transactions", self._transaction)
        yield self.verification()
        yield from self.share_groups()
        wanted = self.settings.sink_enqueue == ARRAYS
        yield Finding("exactly-once records", "ok", explain(wanted=wanted))

    def verification(self) -> Finding:
        """Report whether brokers verify that a transaction is open before they append its records.

        That is the first part of KIP-890. The level of `transaction.version`, the second part, is
        in no answer that this client reads, and librdkafka has only version 1 (its issue 5423).
        """
        check = "transaction verification"
        try:
            stated = self.broker().config().get("transaction.partition.verification.enable")
        except ExtentflowError as exc:
            return _unread(check, exc, "`doctor` alone needs that")
        if stated == "true":
            level = "transaction.version is not checked: `kafka-features.sh describe` shows it"
            return _usable(check, f"on; a late write cannot leave a transaction open. {level}")
        servers = self.settings.bootstrap_servers
        find = f"`kafka-transactions.sh --bootstrap-server {servers} find-hanging --broker-id N`"
        hanging = "a late write can leave a transaction open, behind which committed records wait"
        ended = f"{find} lists such transactions, and `abort` instead of it ends them"
        if stated is None:
            remedy = f"upgrade the brokers to Kafka 3.6 or later, better to 4.0; {ended}"
            return _usable(
                check, f"the brokers do not state it, as before Kafka 3.6: {hanging}", remedy
            )
        remedy = f"set transaction.partition.verification.enable=true on the brokers; {ended}"
        return _usable(check, f"off: {hanging}", remedy)

    def share_groups(self) -> Iterator[Finding]:
        """Yield a finding if there are share groups; those of Kafka 4.2 read uncommitted records.

        The level is a setting of the group: no consumer states it.
        """
        check = "share groups"
        try:
            levels = self.broker().share_groups()
        except ExtentflowError as exc:
            need = "and Describe and DescribeConfigs on the groups; only this check needs that"
            yield _unread(check, exc, need)
            return
        uncommitted = [name for name, level in levels.items() if level != READ_COMMITTED]
        if not levels:
            return
        if not uncommitted:
            yield _usable(check, f"{len(levels)}, which read committed records only")
            return
        more = (
            f" and {len(uncommitted) - SHOWN_GROUPS} more"
            if len(uncommitted) > SHOWN_GROUPS
            else ""
        )
        fact = f"{', '.join(uncommitted[:SHOWN_GROUPS])}{more} read records of aborted transactions"
        servers = self.settings.bootstrap_servers
        remedy = (
            f"`kafka-configs.sh --bootstrap-server {servers} --alter --entity-type groups"
            f" --entity-name {uncommitted[0]} --add-config {ISOLATION}={READ_COMMITTED}`, and so"
            " for each share group that reads what extentflow delivers"
        )
        yield _usable(check, fact, remedy)

    def slots(self) -> Finding:
        """Count the slots in use, and the expired ones with an unfinished extent."""
        now = self.ledger().now()
        taken = [slot for slot in self.ledger().slots.list(self.broker().cluster) if slot.owner]
        alive = [slot for slot in taken if slot.until >= now]
        stuck = [slot for slot in taken if slot.until < now and slot.working is not None]
        fact = f"{len(alive)} in use of {self.settings.exactly_once_slots}"
        if not stuck:
            return _usable("slots", fact)
        fact += f", {len(stuck)} expired with an unfinished extent"
        return _usable("slots", fact, "run the jobs again; the next worker takes over these slots")

    def retention(self) -> Finding:
        """Compare Kafka's offset retention with the age of the oldest unfinished extent."""
        check = "offset retention"
        try:
            minutes = int(self.broker().config().get("offsets.retention.minutes", "10080"))
        except ExtentflowError as exc:
            return _unread(check, exc, "only this check needs that")
        fact = f"Kafka keeps a slot's progress for {minutes / 1_440:g} days"
        now = self.ledger().now()
        every = self.ledger().slots.list(self.broker().cluster)
        # A dead worker's lease ended soon after its last commit, from which Kafka counts.
        age = now - min((slot.until for slot in every if slot.working is not None), default=now)
        if age < minutes * 60 / 2:
            return _usable(check, fact)
        fact += f", and an extent has been unfinished for {age / 86_400:.1f} days"
        if age < minutes * 60:
            return _usable(check, fact, "run its job again before Kafka deletes it")
        remedy = "run its job again; where progress is unknown, decide about --accept-duplicates"
        return Finding(check, "problem", fact, remedy)

    def _progress_topic(self) -> str:
        self.broker().ensure_progress_topic()
        return "exists"

    def _transaction(self) -> str:
        started = time.monotonic()
        # An identity of its own fences no worker.
        identity = f"{self.settings.app_id}.doctor-{uuid4().hex[:8]}"
        fence = self.broker().fence(identity, ProducerSettings())
        try:
            fence.mark(SlotProgress(epoch=1))
        finally:
            fence.close()
        return f"committed one in {time.monotonic() - started:.1f} s"


@dataclass(frozen=True, slots=True)
class TopicChecks:
    """Checks the topics of connectors. `topic` returns a topic's facts."""

    topic: Callable[[str], TopicFacts]

    def findings(self, config: ConnectorConfig) -> Iterator[Finding]:
        """Yield findings about a connector's topics whose names do not depend on the object."""
        fixed = None if "{" in config.topic else config.routed(config.topic)
        for name in config.written_topics(fixed):
            yield self._topic("topic", name, config, partial(records_refused, config))
        queue = config.dead_letter_topic
        if queue is not None:
            yield self._topic("dead letter topic", queue, config, dead_letters_refused)

    def _topic(
        self,
        check: str,
        name: str,
        config: ConnectorConfig,
        why: Callable[[TopicFacts], str | None],
    ) -> Finding:
        try:
            facts = self.topic(name)
            if problem := why(facts):
                raise Misconfigured(problem)
        except ExtentflowError as exc:
            return problem_of(check, exc)
        limit = format_bytes(facts.max_message_bytes)
        fact = f"{name}: {facts.partitions} partitions, records up to {limit}"
        if check == "topic" and config.message_timestamp is not None:
            fact = "; ".join((fact, *facts.limits.describe_times()))
        if facts.diskless and config.exactly_once:
            fact = f"{fact}; diskless: unless its brokers let it join transactions, none is sent"
            return _usable(check, fact, REFUSED_REMEDY)
        if not facts.compacted:
            return _usable(check, fact)
        remedy = (
            "Kafka keeps only the last record of each key; to keep all, set cleanup.policy=delete"
        )
        fact = f"{fact}; compacted: a record with a null key is a bad record"
        return _usable(check, fact, remedy)


@dataclass(frozen=True, slots=True)
class ConnectorChecks:
    """Checks connectors of a ledger."""

    ledger: Ledger
    connectors: ConnectorCatalogue
    objects: ObjectAccess
    secrets: SecretResolver
    deliverability: Deliverability
    topics: TopicChecks

    def findings(self, name: str, *, broker: bool) -> Iterator[Finding]:
        """Yield findings about a connector; about its topics if there is a `broker`."""
        try:
            config, revision = self.connectors.latest(name)
        except Misconfigured as exc:
            yield problem_of("connector", exc)
            return
        state = self.ledger.connectors.state(name)
        fact = f"{name}, revision {revision}"
        if state is ConnectorState.ENABLED:
            yield _usable("connector", fact)
        else:
            remedy = f"continue it with `extentflow resume {name}`"
            yield _usable("connector", f"{fact}, {state}", remedy)
        yield _check("objects", lambda: self._first_object(config, revision))
        if config.producer:
            yield _check("producer settings", lambda: self._producer_settings(config))
        for key, ask in format_checks(config, self.secrets):
            yield _check(f"secrets of {key}", ask)
        for key, ask in registry_checks(config, self.secrets):
            yield _check(f"schema registry of {key}", ask)
        for key, ask in encryption_checks(config, self.secrets):
            yield _check(f"master key of {key}", ask)
        if config.after_completion != NONE:
            yield _check("completion", lambda: self._completion(config, revision))
        if broker:
            yield from self.topics.findings(config)

    def references(self) -> Iterator[Finding]:
        """Yield a problem per connector and setting whose secrets or files this machine lacks.

        If there is none, one finding counts the connectors. No object and no topic is read.
        """
        complete, checked = True, 0
        for version in self.ledger.connectors.list():
            checked += 1
            for found in self._references(version):
                if found.verdict != "ok":
                    complete = False
                    yield replace(found, check=f"{found.check} of connector {version.name}")
        if checked and complete:
            fact = f"{counted(checked, 'connector')}: this machine has every secret and file"
            yield _usable("references", fact)

    def _references(self, version: ConnectorVersion) -> Iterator[Finding]:
        """Yield findings about one connector: its producer's settings, and the other keys."""
        try:
            config, _ = self.connectors.latest(version.name)
        except Misconfigured as exc:
            yield problem_of("configuration", exc)
            return
        others = {
            key: text for key, text in version.config.items() if not key.startswith("producer.")
        }
        yield _check("references", lambda: f"{len(self.secrets(referring(others)))} resolved")
        if config.producer:
            yield _check("producer settings", lambda: self._producer_settings(config))

    def _producer_settings(self, config: ConnectorConfig) -> str:
        if problems := self.deliverability.producer_problems(config):
            raise Misconfigured(problems)
        return "this machine has every secret and file that producer.* names"

    def _first_object(self, config: ConnectorConfig, revision: int) -> str:
        store = self.objects.store(config, revision)
        version = _listed_first(store, config)
        if version is None:
            return f"{KeyScope.of(config).source} can be listed; nothing is there"
        if version.size:
            store.read(version, 0, 1)
        if config.endpoint_type == LOCAL_FILE:
            return f"{version.uri} can be read; changing a file ends its running job as SUPERSEDED"
        off = "off: overwriting an object ends its running job as SUPERSEDED"
        return f"{version.uri} can be read; versioning {'on' if version.version_id else off}"

    def _completion(self, config: ConnectorConfig, revision: int) -> str:
        """Return what happens to delivered objects; raises NotOffered where that is not safe."""
        store = self.objects.store(config, revision)
        action = f"after.completion={config.after_completion}"
        changes = changeable(store, f"{action} of connector {config.name}")
        version = _listed_first(store, config)
        if version is None:
            return f"{action}; not checked, because nothing is below {KeyScope.of(config).source}"
        if config.after_completion == TAG and version.version_id is None:
            raise NotOffered(untaggable(version))
        if version.version_id is None:
            changes.require_conditional_deletes(config.bucket, config.prefix.rpartition("/")[0])
        pin = "version id" if version.version_id else "ETag"
        return f"{action}, on condition of the {pin}"


@dataclass(frozen=True, slots=True)
class Health:
    """Checks a stack; `connectors` opens the checks of connectors, which need a ledger."""

    ledger: LedgerChecks
    cluster: ClusterChecks
    queues: StackQueues
    connectors: Callable[[], ConnectorChecks]

    def examine(self, connector: str | None = None) -> Iterator[Finding]:
        """Yield a finding per check: ledger, clock, broker, slots, queues.

        `connector` adds its own; without it, the references of all connectors are resolved.
        """
        ledger = self.ledger.usability()
        yield ledger
        # Nothing is recorded yet; a check creates no ledger.
        recorded = ledger.verdict != "problem" and not self.ledger.is_absent
        # A check is left out where its cause is reported already.
        if recorded:
            yield self.ledger.clock()
        broker = self.cluster.credentials()
        yield broker
        if broker.verdict == "ok":
            broker = self.cluster.identity()
            yield broker
        if broker.verdict == "ok":
            yield from self.cluster.producing()
        if broker.verdict == "ok" and recorded:
            yield self.cluster.slots()
            yield self.cluster.retention()
        if recorded or not self.queues.are_own:
            for name, queue in self.queues.list():
                yield _waiting(name, queue)
        if connector is not None and not recorded and ledger.verdict != "problem":
            why = f"there is no connector {connector}"
            yield Finding("connector", "problem", why, "`extentflow connectors put FILE` stores it")
        elif connector is not None and recorded:
            yield from self.connectors().findings(connector, broker=broker.verdict == "ok")
        elif recorded:
            yield from self.connectors().references()


@dataclass(frozen=True, slots=True)
class Initialisation:
    """Creates what a stack needs, in the ledger that `ledger` opens and the broker's cluster."""

    ledger: LedgerChecks
    queues: StackQueues
    broker: Callable[[], CheckedCluster]

    def run(self) -> Initialised:
        """Create the ledger and the progress topic where they are missing."""
        where, ledger = self.ledger.address, self.ledger.ledger
        # The user's own is created where it is opened.
        existed = not self.ledger.is_absent and ledger().admin.exists()
        warnings = ledger().admin.create()
        if not where.of_one_machine:
            # A receiver's role may lack the right to; in a file the receiver creates it.
            self.queues.create_own()
        self.ledger.require_app()
        broker = self.broker()
        broker.ensure_progress_topic()
        return Initialised(where.url, not existed, ledger().id, broker.cluster, warnings)


def _check(check: str, ask: Callable[[], str]) -> Finding:
    try:
        return Finding(check, "ok", ask())
    except ExtentflowError as exc:
        return problem_of(check, exc)


def _usable(check: str, fact: str, remedy: str = "") -> Finding:
    return Finding(check, "warning" if remedy else "ok", fact, remedy)


def examine_each(
    checks: Iterable[tuple[str, Callable[[], Iterable[Finding]]]],
) -> Iterator[Finding]:
    """Yield the findings of all checks; one that fails is a finding, and leaves out itself only."""
    for check, findings in checks:
        try:
            yield from findings()
        except ExtentflowError as exc:
            yield problem_of(check, exc)


def problem_of(check: str, exc: ExtentflowError) -> Finding:
    """Return an error as a finding: the message up to the first "; " is the fact."""
    if isinstance(exc, CredentialsUnavailable):
        remedy = "check that this machine can reach the service that holds its secrets"
        return Finding(check, "problem", str(exc), remedy)
    if isinstance(exc, Retryable):
        return Finding(check, "problem", str(exc), "start the server, or correct its address")
    problems = exc.problems if isinstance(exc, Misconfigured) else (str(exc),)
    halves = [problem.partition("; ") for problem in problems]
    facts = "; ".join(fact for fact, _, _ in halves)
    remedies = "; ".join(remedy for _, _, remedy in halves if remedy)
    return Finding(check, "problem", facts, remedies)


def _waiting(name: str, queue: Queue) -> Finding:
    """Report a queue's depth; a message in a dead letter queue waits for a person."""
    try:
        waiting = queue.depth().waiting
    except ExtentflowError as exc:
        return problem_of(name, exc)
    fact = f"{counted(waiting, 'message')} waiting"
    needs_person = waiting > 0 and name.endswith(".dlq")
    return _usable(name, fact, DEAD_MESSAGES if needs_person else "")


def _unread(check: str, exc: ExtentflowError, need: str) -> Finding:
    """Return a check that could not read the configuration of a broker."""
    remedy = f"allow DescribeConfigs on the cluster to check it; {need}"
    if isinstance(exc, Retryable):
        remedy = "run `extentflow doctor` again when the brokers answer"
    return _usable(check, str(exc), remedy)


def _listed_first(store: ObjectStore, config: ConnectorConfig) -> ObjectVersion | None:
    """Return the first object below a connector's prefix, if there is one."""
    listed = store.list(config.bucket, config.listed_prefix)
    first = next((one for one in listed if one.link is None or not one.link.problem), None)
    return store.head(first.bucket, first.key) if first else None
