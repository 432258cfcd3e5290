"""A broker with TLS, users and passwords, tokens and ACLs, beside the other servers of a test.

PLAINTEXT   for the administrator: no proof, every right
SASL_SSL    SCRAM-SHA-512, or unsigned tokens (OAUTHBEARER): rights by ACLs, `app` has them all;
            `app` also by PLAIN and SCRAM-SHA-256
MTLS        a certificate that the broker trusts: every right
"""

import base64
import json
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.support.waiting import eventually

from extentflow.kafka.broker import KafkaBroker
from extentflow.kafka.settings import Timeouts
from extentflow_local.stack.ports import free_run
from extentflow_local.stack.servers import Service
from extentflow_local.stack.servers.kafka import Kafka
from extentflow_local.stack.stack import Stack

QUICK = Timeouts(request_seconds=20, topic_seconds=1, read_seconds=20, commit_seconds=20)
PASSWORD = "correct-horse"
STORE_PASSWORD = "changeit"
# Sessions end with their token at the latest; brokers of MSK see to that, too.
SESSION_MS = 60_000

_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_VALIDATOR = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
    "OAuthBearerUnsecuredValidatorCallbackHandler"
)


@dataclass(frozen=True)
class Certified:
    """A client's certificate, signed by itself, and its key; both PEM."""

    certificate: str
    key: str

    @classmethod
    def make(cls, name: str) -> "Certified":
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder(subject, subject, key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=30))
            .sign(key, hashes.SHA256())
        )
        encoding, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        secret = key.private_bytes(encoding, pkcs8, serialization.NoEncryption())
        return cls(made.public_bytes(encoding).decode(), secret.decode())


@dataclass(frozen=True)
class Secured:
    """One broker: an open door for the administrator, proof over TLS from everybody else."""

    stack: Stack
    admin: AdminClient
    servers: str
    mtls_servers: str
    certificate: Path
    client: Certified

    @property
    def over_tls(self) -> dict[str, str]:
        """Where everybody connects, and whom they trust."""
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificate),
            # Otherwise a slow end of a transaction, on a busy machine, is its producer's last.
            "retry.backoff.ms": "1000",
        }

    def settings(self, user: str, password: str = PASSWORD) -> dict[str, str]:
        return {
            **self.over_tls,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
        }

    def broker(self, user: str, password: str = PASSWORD) -> KafkaBroker:
        return KafkaBroker(self.settings(user, password), timeouts=QUICK)

    def topic(self, name: str) -> str:
        for created in self.admin.create_topics([NewTopic(name, 1, 1)]).values():
            created.result(timeout=60)
        return name

    def user(self, name: str, password: str = PASSWORD) -> str:
        """Make a user, or give one another password."""
        for mechanism in (ScramMechanism.SCRAM_SHA_512, ScramMechanism.SCRAM_SHA_256):
            secret = ScramCredentialInfo(mechanism, 4096)
            wanted = UserScramCredentialUpsertion(name, secret, password.encode())
            for altered in self.admin.alter_user_scram_credentials([wanted]).values():
                altered.result(timeout=60)
        # The controller answers before the broker knows the password.
        eventually(f"{name} can log in", lambda: self._logs_in(name, password))
        return name

    def _logs_in(self, name: str, password: str) -> bool:
        try:
            AdminClient({**self.settings(name, password)}).list_topics(timeout=10)
        except KafkaException:
            return False
        return True

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
            created.result(timeout=60)


@dataclass
class Unsigned:
    """Makes tokens that brokers take for `user` until `seconds` are over: an `access.Sign`."""

    user: str = "app"
    seconds: float = 600.0
    ends: list[float] = field(default_factory=list)

    def __call__(self, _region: str | None) -> tuple[str, float]:
        now = time.time()
        end = now + self.seconds
        self.ends.append(end)
        return f"{_part({'alg': 'none'})}.{_part({'sub': self.user, 'iat': now, 'exp': end})}.", end


def _part(content: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


@contextmanager
def secured_stack(folder: Path, *others: Service) -> Iterator[Secured]:
    """Run a secured broker, and `others` beside it."""
    store, certificate = _certificate(folder)
    client = Certified.make("app")
    known = folder / "clients.pem"
    known.write_text(client.certificate)
    first = free_run(4, random.Random())
    listeners = (
        f"PLAINTEXT://127.0.0.1:{first},CONTROLLER://127.0.0.1:{first + 1},"
        f"SASL_SSL://127.0.0.1:{first + 2},MTLS://127.0.0.1:{first + 3}"
    )
    there = "listener.name.sasl_ssl"
    properties = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,MTLS:SSL"
        ),
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.mtls.ssl.truststore.type": "PEM",
        "listener.name.mtls.ssl.truststore.location": str(known),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,OAUTHBEARER",
        f"{there}.scram-sha-512.sasl.jaas.config": _SCRAM,
        f"{there}.scram-sha-256.sasl.jaas.config": _SCRAM,
        f"{there}.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            f' user_app="{PASSWORD}";'
        ),
        f"{there}.oauthbearer.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
            ' unsecuredLoginStringClaim_sub="broker";'
        ),
        f"{there}.oauthbearer.sasl.server.callback.handler.class": _VALIDATOR,
        f"{there}.oauthbearer.connections.max.reauth.ms": str(SESSION_MS),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": STORE_PASSWORD,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:app;User:CN=app",
    }
    services = [Kafka(properties=properties, heap="384m", quick=True), *others]
    with Stack(folder, ports={"kafka": first}, services=services, free_ports=True) as running:
        running.up()
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{first}", "log_level": 0})
        sasl, mtls = (f"127.0.0.1:{first + offset}" for offset in (2, 3))
        opened = Secured(running, admin, sasl, mtls, certificate, client)
        opened.user("app")
        yield opened


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
