"""Findings of doctor about slots, retention, credentials, topics and errors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.support.golden import Golden
from tests.support.memory_delivery import World

from extentflow.config.column_lists import MessageKey
from extentflow.config.connector import ConnectorConfig
from extentflow.config.worker import WorkerSettings
from extentflow.errors import (
    AccessDenied,
    CredentialsUnavailable,
    ExtentflowError,
    Misconfigured,
    SinkUnavailable,
)
from extentflow.kafka import ProducerSettings
from extentflow.kafka.topic_admin import TopicFacts
from extentflow.kafka.topic_limits import TopicLimits
from extentflow.services.composition import open_health
from extentflow.services.health import ClusterChecks, Finding, TopicChecks, problem_of
from extentflow.testing.broker import DEFAULT_CONFIG, MemoryBroker
from extentflow.testing.services import MemoryQueue
from extentflow.wiring import Runtime

DAY = 24 * 3600.0


Levels = Mapping[str, str] | ExtentflowError


class Shared(MemoryBroker):
    """A cluster with share groups of these isolation levels, or one that does not say so."""

    def __init__(self, levels: Levels) -> None:
        super().__init__({"records": 1})
        self._levels = levels

    def share_groups(self) -> Mapping[str, str]:
        if isinstance(self._levels, ExtentflowError):
            raise self._levels
        return self._levels


def shared(levels: Levels) -> list[tuple[str, str]]:
    """Return verdicts and facts of doctor about share groups."""
    runtime = Runtime(WorkerSettings(bootstrap_servers="127.0.0.1:1"))
    runtime.__dict__.update(broker=Shared(levels))
    found = open_health(runtime).cluster.share_groups()
    return [(one.verdict, f"{one.fact}; {one.remedy}") for one in found]


class Configured(MemoryBroker):
    """A cluster whose brokers return their configuration, or refuse to."""

    def __init__(self, config: Mapping[str, str] | ExtentflowError) -> None:
        super().__init__({"records": 1})
        self._config = config

    def config(self) -> Mapping[str, str]:
        if isinstance(self._config, ExtentflowError):
            raise self._config
        return self._config


def left(days: float, config: Mapping[str, str] | ExtentflowError | None = None) -> Runtime:
    """Return a runtime whose ledger has an extent that a worker left so many days ago."""
    usual = {"offsets.retention.minutes": "10080"}
    world = World(broker=Configured(usual if config is None else config))
    (extent,) = world.extents(world.job(b"abc"))
    world.slots().claim(extent, ProducerSettings())
    world.ticker.sleep(3 + days * DAY)
    runtime = Runtime(WorkerSettings(bootstrap_servers="127.0.0.1:1"))
    # Where cached properties keep what was made, so that nothing else is.
    runtime.__dict__.update(ledger=world.ledger, broker=world.broker)
    return runtime


@pytest.mark.parametrize(
    ("days", "verdict"),
    [(0, "ok"), (3.4, "ok"), (3.6, "warning"), (6.9, "warning"), (7.1, "problem")],
)
def test_an_extent_unfinished_longer_than_the_retention_is_a_problem(
    days: float, verdict: str
) -> None:
    found = open_health(left(days)).cluster.retention()

    assert found.verdict == verdict
    assert "7 days" in found.fact
    assert bool(found.remedy) == (verdict != "ok")


def test_the_configured_retention_of_the_cluster_is_used(golden: Golden) -> None:
    found = open_health(left(2, {"offsets.retention.minutes": "1440"})).cluster.retention()

    assert found.verdict == "problem"
    golden(found.fact)
    assert "2.0" in found.fact
    assert "--accept-duplicates" in found.remedy


def test_a_cluster_without_that_setting_has_the_default_retention() -> None:
    assert open_health(left(8, {})).cluster.retention().verdict == "problem"


def test_an_unreadable_cluster_configuration_is_only_a_warning() -> None:
    found = open_health(left(0, Misconfigured("not allowed"))).cluster.retention()

    assert (found.verdict, found.fact) == ("warning", "not allowed")


@pytest.mark.parametrize(
    ("config", "verdict", "fact"),
    [
        ({"transaction.partition.verification.enable": "true"}, "ok", "version is not checked"),
        ({"transaction.partition.verification.enable": "false"}, "warning", "off: a late write"),
        ({}, "warning", "before Kafka 3.6: a late write can leave a transaction open"),
    ],
)
def test_brokers_that_do_not_verify_transactions_are_reported(
    config: Mapping[str, str], verdict: str, fact: str
) -> None:
    found = open_health(left(0, config)).cluster.verification()

    assert found.verdict == verdict
    assert fact in found.fact
    assert ("--bootstrap-server 127.0.0.1:1 find-hanging" in found.remedy) == (verdict != "ok")


def test_brokers_whose_configuration_is_hidden_may_verify_transactions_or_not() -> None:
    found = open_health(left(0, Misconfigured("not allowed"))).cluster.verification()

    assert (found.verdict, found.fact) == ("warning", "not allowed")
    assert "DescribeConfigs" in found.remedy


def test_share_groups_that_read_aborted_records_are_named_with_the_command(golden: Golden) -> None:
    ((verdict, text),) = shared({"a": "read_committed", "b": "read_uncommitted", "c": "other"})

    golden(text)
    assert verdict == "warning"
    assert text.startswith("b, c read records of aborted transactions")
    assert "--entity-name b --add-config share.isolation.level=read_committed" in text


def test_share_groups_that_read_committed_records_need_nothing() -> None:
    assert shared({}) == []
    assert [verdict for verdict, _ in shared({"a": "read_committed"})] == ["ok"]


def test_share_groups_that_may_not_be_read_are_a_warning() -> None:
    ((verdict, text),) = shared(Misconfigured("not allowed"))

    assert (verdict, text.startswith("not allowed; allow DescribeConfigs")) == ("warning", True)


@pytest.mark.parametrize("check", [ClusterChecks.verification, ClusterChecks.retention])
def test_a_broker_that_does_not_answer_lacks_no_permission(
    check: Callable[[ClusterChecks], Finding],
    golden: Golden,
) -> None:
    found = check(open_health(left(0, SinkUnavailable("no answer"))).cluster)

    assert (found.verdict, found.fact) == ("warning", "no answer")
    golden(found.remedy)
    assert "`extentflow doctor`" in found.remedy


@pytest.mark.parametrize(("days", "verdict"), [(-1, "ok"), (0.1, "warning")])
def test_expired_slots_with_an_extent_are_reported(days: float, verdict: str) -> None:
    assert open_health(left(days)).cluster.slots().verdict == verdict


def test_an_error_becomes_a_fact_and_a_remedy() -> None:
    assert problem_of("objects", AccessDenied("s3://b: refused; allow s3:GetObject")) == Finding(
        "objects", "problem", "s3://b: refused", "allow s3:GetObject"
    )
    assert problem_of(
        "topic", Misconfigured(["t1 is not there; create it", "t2 is odd"])
    ) == Finding("topic", "problem", "t1 is not there; t2 is odd", "create it")


def test_the_remedy_for_an_unavailable_server_is_to_start_it() -> None:
    found = problem_of("Kafka cluster", SinkUnavailable("no answer; last: refused"))

    assert found.fact == "no answer; last: refused"
    assert found.remedy == "start the server, or correct its address"


# -- credentials ----------------------------------------------------------------------------------


def shown(**kafka: str) -> Finding:
    """Return what doctor says of the credentials in a worker's `kafka.*`; `_` stands for a dot."""
    settings = {key.replace("_", "."): text for key, text in kafka.items()}
    runtime = Runtime(WorkerSettings(bootstrap_servers="127.0.0.1:1", kafka=settings))
    return open_health(runtime).cluster.credentials()


@pytest.fixture
def _no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")


def test_the_authentication_is_reported_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKERS_PASSWORD", "hunter2")
    scram = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "app"}

    found = shown(security_protocol="sasl_ssl", **scram, sasl_password="${env:BROKERS_PASSWORD}")

    assert found == Finding("broker credentials", "ok", "SASL_SSL with SCRAM-SHA-512")
    assert shown() == Finding("broker credentials", "ok", "PLAINTEXT")


def test_a_missing_password_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BROKERS_PASSWORD", raising=False)

    found = shown(sasl_password="${env:BROKERS_PASSWORD}")

    assert found.verdict == "problem"
    assert found.fact.startswith("sasl.password=${env:BROKERS_PASSWORD}: ")


@pytest.mark.usefixtures("_no_credentials")
@pytest.mark.parametrize(
    "kafka",
    [
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM"},
        {"sasl_password": "${secretsmanager:app:password}"},
    ],
    ids=["token", "secret"],
)
def test_missing_credentials_are_a_problem_with_a_remedy(kafka: dict[str, str]) -> None:
    found = shown(**kafka)

    assert found.verdict == "problem"
    assert "set AWS_ACCESS_KEY_ID" in found.remedy


def test_an_unavailable_secret_store_is_a_problem(golden: Golden) -> None:
    found = problem_of("broker credentials", CredentialsUnavailable("secret app: throttled"))

    assert found.fact == "secret app: throttled"
    golden(found.remedy)


# -- topics ---------------------------------------------------------------------------------------


class Topics(MemoryBroker):
    """A cluster whose topics are compacted where their names say so, and narrow likewise."""

    def topics(self, names: Sequence[str]) -> list[TopicFacts]:
        if "missing" in names:
            raise Misconfigured("topic missing does not exist; create it")
        (name,) = names
        limit = 200 if "narrow" in name else 1 << 20
        limits = TopicLimits.of(name, {"retention.ms": "604800000", **DEFAULT_CONFIG})
        diskless = "diskless" in name
        compacted = "compacted" in name
        return [TopicFacts(name, 8, limit, compacted=compacted, stated=limits, diskless=diskless)]


def of_topics(**changes: object) -> list[Finding]:
    """Return doctor's findings about the topics of a connector."""
    runtime = Runtime(WorkerSettings(bootstrap_servers="127.0.0.1:1"))
    runtime.__dict__.update(broker=Topics())
    given: dict[str, object] = {"name": "c", "topic": "records", "s3_bucket": "b", **changes}
    return list(TopicChecks(runtime.topic).findings(ConnectorConfig(**given)))  # type: ignore[arg-type]


def test_topics_that_take_the_records_are_described() -> None:
    assert of_topics(dead_letter_topic="dead") == [
        Finding("topic", "ok", "records: 8 partitions, records up to 1.0 MiB"),
        Finding("dead letter topic", "ok", "dead: 8 partitions, records up to 1.0 MiB"),
    ]


def test_limits_of_timestamps_are_described_where_records_get_some() -> None:
    (found,) = of_topics(message_timestamp="at")

    assert found.verdict == "ok"
    assert "timestamps more than 60 minutes ahead of the clock are bad records" in found.fact
    assert "deletes records with timestamps older than 7 days (retention.ms)" in found.fact


def test_a_topic_that_depends_on_the_object_is_left_to_the_run() -> None:
    assert of_topics(topic="t-{extension}") == []


@pytest.mark.parametrize(
    ("changes", "verdict", "says"),
    [
        ({"topic": "missing"}, "problem", "create it"),
        ({"topic": "narrow"}, "problem", "raise it to 1061 or more"),
        ({"topic": "compacted"}, "problem", "set message.key"),
        (
            {"topic": "compacted", "message_key": MessageKey("object")},
            "warning",
            "Kafka keeps only the last record of each key",
        ),
        ({"topic": "diskless"}, "warning", "set delivery.guarantee=at_least_once"),
        ({"topic": "diskless", "delivery_guarantee": "at_least_once"}, "ok", "8 partitions"),
    ],
)
def test_a_topic_that_would_reject_or_lose_records_is_reported(
    changes: dict[str, object], verdict: str, says: str
) -> None:
    (found,) = of_topics(**changes)

    assert (found.check, found.verdict) == ("topic", verdict)
    assert says in f"{found.fact}; {found.remedy}"


def test_a_compacted_dead_letter_topic_is_a_problem_for_any_key() -> None:
    found = of_topics(message_key=MessageKey("object"), dead_letter_topic="compacted")[1]

    assert (found.check, found.verdict) == ("dead letter topic", "problem")
    assert "name another topic" in found.remedy


# -- the whole stack ------------------------------------------------------------------------------


def waiting(messages: int) -> MemoryQueue:
    """Return a queue of so many messages."""
    queue = MemoryQueue(lambda: 0.0)
    queue.send(["body"] * messages)
    return queue


@dataclass(frozen=True)
class Queues:
    """The queues of a stack, by name."""

    found: Mapping[str, int]
    are_own: bool = False

    def list(self) -> Iterator[tuple[str, MemoryQueue]]:
        for name, messages in self.found.items():
            yield name, waiting(messages)


class Silent(Configured):
    """A cluster that does not answer."""

    def proof(self) -> str:
        raise SinkUnavailable("no answer")


def test_a_message_in_a_dead_letter_queue_is_a_warning_with_its_command() -> None:
    queues = Queues({"extents": 1, "extents.dlq": 1, "arrivals": 2, "arrivals.dlq": 0})
    runtime = left(0)
    runtime.__dict__.update(broker=Silent({}))
    health = replace(open_health(runtime), queues=queues)  # type: ignore[arg-type]

    found = {one.check: one for one in health.examine() if one.check in queues.found}

    redrive = "`extentflow redrive --dry-run` shows the reasons"
    assert found == {
        "extents": Finding("extents", "ok", "1 message waiting"),
        "extents.dlq": Finding("extents.dlq", "warning", "1 message waiting", redrive),
        "arrivals": Finding("arrivals", "ok", "2 messages waiting"),
        "arrivals.dlq": Finding("arrivals.dlq", "ok", "0 messages waiting"),
    }


def test_references_of_all_connectors_are_resolved_without_naming_one() -> None:
    runtime = left(0)
    usual = {"topic": "t", "aws.s3.bucket.name": "bucket"}

    def references(**configs: dict[str, str]) -> list[Finding]:
        for name, config in configs.items():
            runtime.ledger.connectors.put(name, {"name": name, **usual, **config})
        return list(open_health(runtime).connectors().references())

    assert references() == []
    (whole,) = references(whole={})
    ours = references(
        file={"producer.sasl.password": "${file:/absent/kafka.properties:key}"},
        secret={"aws.access.key.id": "${env:ABSENT_ID}", "aws.secret.access.key": "${env:ABSENT}"},
    )

    assert (whole.check, whole.verdict) == ("references", "ok")
    assert "1 connector" in whole.fact
    assert [(one.check, one.verdict) for one in ours] == [
        ("producer settings of connector file", "problem"),
        ("references of connector secret", "problem"),
    ]
    assert "/absent/kafka.properties" in ours[0].fact
    assert "ABSENT" in ours[1].fact
    assert "ABSENT_ID" in ours[1].fact
