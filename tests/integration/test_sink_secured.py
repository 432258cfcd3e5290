"""The sink on a broker with SCRAM over TLS and ACLs: what works, and what each refusal says."""

import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic
from tests.contracts.sink import EXACTLY_ONCE, PROGRESS, lines, values_of

from extentflow.errors import Misconfigured, SinkUnavailable
from extentflow.sink import PROGRESS_TOPIC
from extentflow.sink.broker import KafkaBroker
from extentflow.sink.patience import Patience
from extentflow.sink.reader import read_committed
from extentflow_local.ports import free_run
from extentflow_local.services.kafka import Kafka
from extentflow_local.stack import Stack

QUICK = Patience(request_seconds=20, topic_seconds=1, read_seconds=20, commit_seconds=20)
PASSWORD = "correct-horse"
STORE_PASSWORD = "changeit"


@dataclass(frozen=True)
class Secured:
    """One broker: an open door for the administrator, SCRAM over TLS for everybody else."""

    admin: AdminClient
    servers: str
    certificate: Path

    def settings(self, user: str, password: str = PASSWORD) -> dict[str, str]:
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(self.certificate),
        }

    def broker(self, user: str, password: str = PASSWORD) -> KafkaBroker:
        return KafkaBroker(self.settings(user, password), patience=QUICK)

    def topic(self, name: str) -> str:
        for created in self.admin.create_topics([NewTopic(name, 1, 1)]).values():
            created.result(timeout=30)
        return name

    def user(self, name: str) -> str:
        secret = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = UserScramCredentialUpsertion(name, secret, PASSWORD.encode())
        for altered in self.admin.alter_user_scram_credentials([wanted]).values():
            altered.result(timeout=30)
        return name

    def allow(self, user: str, kind: ResourceType, prefix: str) -> None:
        rule = AclBinding(
            kind,
            prefix,
            ResourcePatternType.PREFIXED,
            f"User:{user}",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for created in self.admin.create_acls([rule]).values():
            created.result(timeout=30)


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Make a key pair for 127.0.0.1; Java's keytool is there wherever a broker runs."""
    store, certificate = folder / "broker.p12", folder / "broker.pem"
    keytool = shutil.which("keytool")
    assert keytool is not None
    entry = ["-keystore", str(store), "-storepass", STORE_PASSWORD, "-alias", "broker"]
    kind = ["-storetype", "PKCS12", "-keyalg", "RSA", "-validity", "30"]
    name = ["-dname", "CN=127.0.0.1", "-ext", "SAN=IP:127.0.0.1"]
    subprocess.run([keytool, "-genkeypair", *entry, *kind, *name], check=True, capture_output=True)
    subprocess.run(
        [keytool, "-exportcert", "-rfc", *entry, "-file", str(certificate)],
        check=True,
        capture_output=True,
    )
    return store, certificate


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    store, certificate = _certificate(folder)
    first = free_run(3, random.Random())
    listeners = (
        f"PLAINTEXT://127.0.0.1:{first},CONTROLLER://127.0.0.1:{first + 1},"
        f"SASL_SSL://127.0.0.1:{first + 2}"
    )
    properties = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL"
        ),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": STORE_PASSWORD,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:app",
    }
    services = [Kafka(properties=properties, heap="384m")]
    with Stack(folder, ports={"kafka": first}, services=services) as running:
        running.up()
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{first}", "log_level": 0})
        opened = Secured(admin, f"127.0.0.1:{first + 2}", certificate)
        opened.user("app")
        yield opened


@pytest.fixture
def progress_topic(secured: Secured) -> str:
    secured.broker("app").ensure_progress_topic()
    return PROGRESS_TOPIC


@pytest.fixture
def no_progress_topic(secured: Secured) -> None:
    if PROGRESS_TOPIC in secured.admin.list_topics(timeout=10).topics:
        for deleted in secured.admin.delete_topics([PROGRESS_TOPIC]).values():
            deleted.result(timeout=30)
    end = time.monotonic() + 30
    while PROGRESS_TOPIC in secured.admin.list_topics(timeout=10).topics:
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.usefixtures("progress_topic")
def test_everything_works_through_scram_over_tls(secured: Secured) -> None:
    topic = secured.topic("encrypted")
    broker = secured.broker("app")
    broker.topics([topic])

    sink = broker.fence("app.slot-1", EXACTLY_ONCE).open()
    sink.send(lines(topic, b"a"))
    sink.commit(PROGRESS)
    sink.close()
    fence = broker.fence("app.slot-1", EXACTLY_ONCE)
    found = fence.read()
    fence.close()

    assert found == PROGRESS
    (batch,) = read_committed(secured.settings("app"), topic, patience=QUICK)
    assert values_of(batch) == [b"a"]


def test_a_wrong_password_is_told_at_once(secured: Secured) -> None:
    broker = secured.broker("app", password="wrong")
    began = time.monotonic()

    with pytest.raises(Misconfigured, match="check user name, password"):
        broker.fence("app.slot-2", EXACTLY_ONCE)
    with pytest.raises(Misconfigured, match="check user name, password"):
        _ = broker.cluster

    assert time.monotonic() - began < 30  # of 60 that fencing may take


def test_a_certificate_that_nobody_vouches_for_is_told_in_time(secured: Secured) -> None:
    settings = {**secured.settings("app"), "ssl.ca.location": "probe"}
    broker = KafkaBroker(settings, patience=replace(QUICK, fence_seconds=3))

    with pytest.raises(SinkUnavailable, match=r"(?i)certificate"):
        broker.fence("app.slot-3", EXACTLY_ONCE)


@pytest.mark.usefixtures("no_progress_topic")
def test_a_missing_progress_topic_is_no_missing_group(secured: Secured) -> None:
    fence = secured.broker("app").fence("app.slot-4", EXACTLY_ONCE)

    with pytest.raises(Misconfigured, match=rf"{PROGRESS_TOPIC} does not exist"):
        fence.read()

    fence.close()


@pytest.mark.usefixtures("no_progress_topic")
def test_a_progress_topic_that_may_not_be_created_is_a_persons_work(secured: Secured) -> None:
    reader = secured.user("reader")

    with pytest.raises(Misconfigured, match=PROGRESS_TOPIC):
        secured.broker(reader).ensure_progress_topic()


@pytest.mark.usefixtures("progress_topic")
def test_a_transactional_id_that_is_not_allowed_is_named(secured: Secured) -> None:
    stranger = secured.user("stranger")

    with pytest.raises(Misconfigured, match=r"slot-5.*transactional ids of `app\.id`"):
        secured.broker(stranger).fence("stranger.slot-5", EXACTLY_ONCE)


@pytest.mark.usefixtures("progress_topic")
def test_a_group_that_is_not_allowed_is_named(secured: Secured) -> None:
    user = secured.user("groupless")
    secured.allow(user, ResourceType.TRANSACTIONAL_ID, "groupless.")
    secured.allow(user, ResourceType.TOPIC, "extentflow.")
    fence = secured.broker(user).fence("groupless.slot-6", EXACTLY_ONCE)

    with pytest.raises(Misconfigured, match=r"slot-6.*consumer groups of `app\.id`"):
        fence.read()
    with pytest.raises(Misconfigured, match=r"slot-6.*consumer groups of `app\.id`"):
        fence.mark(PROGRESS)


@pytest.mark.usefixtures("progress_topic")
def test_a_topic_that_is_not_allowed_is_named(secured: Secured) -> None:
    topic = secured.topic("forbidden")
    user = secured.user("topicless")
    secured.allow(user, ResourceType.TRANSACTIONAL_ID, "topicless.")
    secured.allow(user, ResourceType.GROUP, "topicless.")
    broker = secured.broker(user)
    sink = broker.fence("topicless.slot-7", EXACTLY_ONCE).open()

    with pytest.raises(Misconfigured, match=r"forbidden.*allow Write"):
        sink.send(lines(topic, b"a"))
    with pytest.raises(Misconfigured, match=r"forbidden.*allow Write"):
        broker.topics([topic])

    sink.close()
