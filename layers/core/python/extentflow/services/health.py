"""The health of a stack: create what is missing, report findings with what to do."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from extentflow.config.connector import ConnectorConfig
from extentflow.config.connector_keys import LOCAL_FILE, NONE, TAG
from extentflow.config.ledgers import LedgerAddress
from extentflow.config.worker import ARRAYS
from extentflow.errors import (
    CredentialsUnavailable,
    ExtentflowError,
    Misconfigured,
    NotOffered,
    Retryable,
)
from extentflow.jobs.addresses import KeyScope
from extentflow.jobs.preflight import dead_letters_refused, records_refused
from extentflow.kafka import ProducerSettings, SlotProgress
from extentflow.kafka.native import explain
from extentflow.kafka.topic_admin import TopicFacts
from extentflow.ledger import ConnectorState
from extentflow.model import ObjectVersion
from extentflow.queue import Queue
from extentflow.storage import ObjectStore, changeable, untaggable
from extentflow.wiring import Runtime
from extentflow.wiring.arrivals import create_own_queue, has_own_queue, queues
from extentflow.wiring.options import encryption_checks, format_checks, registry_checks
from extentflow.wording import format_bytes

CLOCK_SKEW_SECONDS = 5.0


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


def initialise(runtime: Runtime) -> Initialised:
    """Create the ledger and the progress topic where they are missing."""
    where = runtime.ledger_address
    # The user's own is created where it is opened.
    existed = not _is_absent(where) and runtime.ledger.admin.exists()
    warnings = runtime.ledger.admin.create()
    if not runtime.ledger_address.of_one_machine:
        # A receiver's role may lack the right to; in a file the receiver creates it.
        create_own_queue(runtime)
    runtime.require_app()
    runtime.broker.ensure_progress_topic()
    url, ledger = where.url, runtime.ledger.id
    return Initialised(url, not existed, ledger, runtime.broker.cluster, warnings)


def examine(runtime: Runtime, connector: str | None = None) -> Iterator[Finding]:
    """Yield a finding per check: ledger, clock, broker, slots, queues; `connector` adds its own."""
    ledger = _ledger(runtime)
    yield ledger
    # Nothing is recorded yet; a check creates no ledger.
    recorded = ledger.verdict != "problem" and not _is_absent(runtime.ledger_address)
    # A check is left out where its cause is reported already.
    if recorded:
        skew = time.time() - runtime.ledger.now()
        fact = f"{skew:+.0f} s against the ledger's server"
        remedy = "request signatures need a correct clock: synchronise this machine (NTP)"
        yield _usable("clock", fact, remedy if abs(skew) > CLOCK_SKEW_SECONDS else "")
    broker = credentials(runtime)
    yield broker
    if broker.verdict == "ok":
        broker = _check("Kafka cluster", lambda: runtime.broker.cluster)
        yield broker
    if broker.verdict == "ok":
        yield _check("progress topic", lambda: _progress_topic(runtime))
        yield _check("transactions", lambda: _transaction(runtime))
        yield verification(runtime)
        wanted = runtime.settings.sink_enqueue == ARRAYS
        yield Finding("exactly-once records", "ok", explain(wanted=wanted))
    if broker.verdict == "ok" and recorded:
        yield slots(runtime)
        yield retention(runtime)
    if recorded or not has_own_queue(runtime):
        for name, queue in queues(runtime):
            yield _check(name, partial(_waiting, queue))
    if connector is not None and not recorded and ledger.verdict != "problem":
        why = f"there is no connector {connector}"
        yield Finding("connector", "problem", why, "`extentflow connectors put FILE` stores it")
    elif connector is not None and recorded:
        yield from _connector(runtime, connector, broker=broker.verdict == "ok")


def _check(check: str, ask: Callable[[], str]) -> Finding:
    try:
        return Finding(check, "ok", ask())
    except ExtentflowError as exc:
        return problem_of(check, exc)


def _usable(check: str, fact: str, remedy: str = "") -> Finding:
    return Finding(check, "warning" if remedy else "ok", fact, remedy)


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


def _is_absent(where: LedgerAddress) -> bool:
    """Whether the ledger is the user's own, and nothing is recorded in it yet."""
    return not where.chosen and not where.path.exists()


def _ledger(runtime: Runtime) -> Finding:
    where = runtime.ledger_address
    if _is_absent(where):
        fact = f"none yet: {where.path} is created with the first connector or delivery"
        return _usable("ledger", fact)
    try:
        fact = f"{runtime.ledger_address}, id {runtime.ledger.id}"
        table = runtime.ledger.admin.describe()
        runtime.require_app()
    except ExtentflowError as exc:
        return problem_of("ledger", exc)
    if table.problems:
        return Finding("ledger", "problem", "; ".join(table.problems), "name another ledger")
    remedy = "enable point-in-time recovery: the ledger records what was delivered"
    return _usable("ledger", fact, remedy if table.recovery is False else "")


def _waiting(queue: Queue) -> str:
    return f"{queue.depth().waiting} messages waiting"


def credentials(runtime: Runtime) -> Finding:
    """Report how this process authenticates to the brokers, and whether the secrets resolve."""
    return _check("broker credentials", runtime.broker.proof)


def _progress_topic(runtime: Runtime) -> str:
    runtime.broker.ensure_progress_topic()
    return "exists"


def _transaction(runtime: Runtime) -> str:
    started = time.monotonic()
    # An identity of its own fences no worker.
    identity = f"{runtime.settings.app_id}.doctor-{uuid4().hex[:8]}"
    fence = runtime.broker.fence(identity, ProducerSettings())
    try:
        fence.mark(SlotProgress(epoch=1))
    finally:
        fence.close()
    return f"committed one in {time.monotonic() - started:.1f} s"


def verification(runtime: Runtime) -> Finding:
    """Report whether brokers verify that a transaction is open before they append its records.

    That is the first part of KIP-890. The level of `transaction.version`, the second part, is in no
    answer that this client reads, and librdkafka has only version 1 (its issue 5423).
    """
    check = "transaction verification"
    try:
        stated = runtime.broker.config().get("transaction.partition.verification.enable")
    except ExtentflowError as exc:
        return _unread(check, exc, "`doctor` alone needs that")
    if stated == "true":
        level = "transaction.version is not checked: `kafka-features.sh describe` shows it"
        return _usable(check, f"on; a late write cannot leave a transaction open. {level}")
    servers = runtime.settings.bootstrap_servers
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


def _unread(check: str, exc: ExtentflowError, need: str) -> Finding:
    """Return a check that could not read the configuration of a broker."""
    remedy = f"allow DescribeConfigs on the cluster to check it; {need}"
    if isinstance(exc, Retryable):
        remedy = "run `extentflow doctor` again when the brokers answer"
    return _usable(check, str(exc), remedy)


def slots(runtime: Runtime) -> Finding:
    """Count the slots in use, and the expired ones with an unfinished extent."""
    now = runtime.ledger.now()
    taken = [slot for slot in runtime.ledger.slots.list(runtime.broker.cluster) if slot.owner]
    alive = [slot for slot in taken if slot.until >= now]
    stuck = [slot for slot in taken if slot.until < now and slot.working is not None]
    fact = f"{len(alive)} in use of {runtime.settings.exactly_once_slots}"
    if not stuck:
        return _usable("slots", fact)
    fact += f", {len(stuck)} expired with an unfinished extent"
    return _usable("slots", fact, "run the jobs again; the next worker takes over these slots")


def retention(runtime: Runtime) -> Finding:
    """Compare Kafka's offset retention with the age of the oldest unfinished extent."""
    check = "offset retention"
    try:
        minutes = int(runtime.broker.config().get("offsets.retention.minutes", "10080"))
    except ExtentflowError as exc:
        return _unread(check, exc, "only this check needs that")
    fact = f"Kafka keeps a slot's progress for {minutes / 1_440:g} days"
    now = runtime.ledger.now()
    every = runtime.ledger.slots.list(runtime.broker.cluster)
    # A dead worker's lease ended soon after its last commit, from which Kafka counts.
    age = now - min((slot.until for slot in every if slot.working is not None), default=now)
    if age < minutes * 60 / 2:
        return _usable(check, fact)
    fact += f", and an extent has been unfinished for {age / 86_400:.1f} days"
    if age < minutes * 60:
        return _usable(check, fact, "run its job again before Kafka deletes it")
    remedy = "run its job again; where progress is unknown, decide about --accept-duplicates"
    return Finding(check, "problem", fact, remedy)


def _connector(runtime: Runtime, name: str, *, broker: bool) -> Iterator[Finding]:
    try:
        config, revision = runtime.connectors.latest(name)
    except Misconfigured as exc:
        yield problem_of("connector", exc)
        return
    state = runtime.ledger.connectors.state(name)
    fact = f"{name}, revision {revision}"
    if state is ConnectorState.RUNNING:
        yield _usable("connector", fact)
    else:
        remedy = f"continue it with `extentflow resume {name}`"
        yield _usable("connector", f"{fact}, {state}", remedy)
    yield _check("objects", lambda: _first_object(runtime, config, revision))
    if config.producer:
        yield _check("producer settings", lambda: _producer_settings(runtime, config))
    for key, ask in format_checks(config, runtime.secrets):
        yield _check(f"secrets of {key}", ask)
    for key, ask in registry_checks(config, runtime.secrets):
        yield _check(f"schema registry of {key}", ask)
    for key, ask in encryption_checks(config, runtime.secrets):
        yield _check(f"master key of {key}", ask)
    if config.after_completion != NONE:
        yield _check("completion", lambda: _completion(runtime, config, revision))
    if broker:
        yield from topics(runtime, config)


def _producer_settings(runtime: Runtime, config: ConnectorConfig) -> str:
    if problems := runtime.producer_problems(config):
        raise Misconfigured(problems)
    return "this machine has every secret and file that producer.* names"


def _listed_first(store: ObjectStore, config: ConnectorConfig) -> ObjectVersion | None:
    """Return the first object below a connector's prefix, if there is one."""
    first = next(iter(store.list(config.bucket, config.listed_prefix)), None)
    return store.head(first.bucket, first.key) if first else None


def _first_object(runtime: Runtime, config: ConnectorConfig, revision: int) -> str:
    store = runtime.objects.store(config, revision)
    version = _listed_first(store, config)
    if version is None:
        return f"{KeyScope.of(config).source} can be listed; nothing is there"
    if version.size:
        store.read(version, 0, 1)
    if config.endpoint_type == LOCAL_FILE:
        return f"{version.uri} can be read; changing a file ends its running job as SUPERSEDED"
    off = "off: overwriting an object ends its running job as SUPERSEDED"
    return f"{version.uri} can be read; versioning {'on' if version.version_id else off}"


def _completion(runtime: Runtime, config: ConnectorConfig, revision: int) -> str:
    """Return what happens to delivered objects; raises NotOffered where that is not safe."""
    store = runtime.objects.store(config, revision)
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


def topics(runtime: Runtime, config: ConnectorConfig) -> Iterator[Finding]:
    """Yield findings about the topics of a connector whose names do not depend on the object."""
    fixed = None if "{" in config.topic else config.routed(config.topic)
    for name in config.written_topics(fixed):
        refused = partial(records_refused, config)
        yield _topic(runtime, "topic", name, refused, stamps=config.message_timestamp is not None)
    queue = config.dead_letter_topic
    if queue is not None:
        yield _topic(runtime, "dead letter topic", queue, dead_letters_refused)


def _topic(
    runtime: Runtime,
    check: str,
    name: str,
    why: Callable[[TopicFacts], str | None],
    *,
    stamps: bool = False,
) -> Finding:
    try:
        facts = runtime.topic(name)
        if problem := why(facts):
            raise Misconfigured(problem)
    except ExtentflowError as exc:
        return problem_of(check, exc)
    limit = format_bytes(facts.max_message_bytes)
    fact = f"{name}: {facts.partitions} partitions, records up to {limit}"
    if stamps:
        fact = "; ".join((fact, *facts.limits.describe_times()))
    if not facts.compacted:
        return _usable(check, fact)
    remedy = "Kafka keeps only the last record of each key; to keep all, set cleanup.policy=delete"
    return _usable(check, f"{fact}; compacted: a record with a null key is a bad record", remedy)
