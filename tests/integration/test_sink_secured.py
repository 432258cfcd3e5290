"""The sink on a broker with SCRAM, tokens, TLS and ACLs: what works, what each refusal says."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace

import boto3
import pytest
from confluent_kafka.admin._resource import ResourceType
from infra.config import Auth, Cluster
from moto.server import ThreadedMotoServer
from tests.contracts.sink import EXACTLY_ONCE, PROGRESS, lines, values_of
from tests.support.secured import PASSWORD, QUICK, Certified, Secured, Unsigned, secured_stack
from tests.support.waiting import eventually, running_seconds

from extentflow.config.worker import WorkerSettings
from extentflow.errors import Misconfigured, SinkUnavailable
from extentflow.kafka import PROGRESS_TOPIC, ProducerSettings
from extentflow.kafka.broker import KafkaBroker
from extentflow.kafka.reading import read_committed
from extentflow.wiring import Runtime

pytestmark = pytest.mark.secured


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_stack(tmp_path_factory.mktemp("secured")) as opened:
        yield opened


@pytest.fixture
def progress_topic(secured: Secured) -> str:
    secured.broker("app").ensure_progress_topic()
    return PROGRESS_TOPIC


@pytest.fixture
def no_progress_topic(secured: Secured) -> None:
    if PROGRESS_TOPIC in secured.admin.list_topics(timeout=60).topics:
        for deleted in secured.admin.delete_topics([PROGRESS_TOPIC]).values():
            deleted.result(timeout=60)
    end = running_seconds() + 60
    while PROGRESS_TOPIC in secured.admin.list_topics(timeout=60).topics:
        assert running_seconds() < end
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
    (batch,) = read_committed(secured.settings("app"), topic, timeouts=QUICK)
    assert values_of(batch) == [b"a"]


def test_a_wrong_password_is_reported_at_once(secured: Secured) -> None:
    broker = secured.broker("app", password="wrong")
    began = running_seconds()

    with pytest.raises(Misconfigured, match="check user name, password"):
        broker.fence("app.slot-2", EXACTLY_ONCE)
    with pytest.raises(Misconfigured, match="check user name, password"):
        _ = broker.cluster

    assert running_seconds() - began < 30  # of 60 that fencing may take


def test_an_untrusted_certificate_is_reported_in_time(secured: Secured) -> None:
    settings = {**secured.settings("app"), "ssl.ca.location": "probe"}
    broker = KafkaBroker(settings, timeouts=replace(QUICK, fence_seconds=3))

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


# -- tokens ---------------------------------------------------------------------------------------


def with_token(secured: Secured, sign: Unsigned) -> KafkaBroker:
    return KafkaBroker(
        {**secured.over_tls, "sasl.mechanism": "AWS_MSK_IAM"}, timeouts=QUICK, sign=sign
    )


@pytest.mark.usefixtures("progress_topic")
@pytest.mark.parametrize("exactly_once", [True, False])
def test_everything_works_with_tokens_over_tls(secured: Secured, *, exactly_once: bool) -> None:
    sign = Unsigned()
    topic = secured.topic(f"tokens-{exactly_once}")
    broker = with_token(secured, sign)
    broker.topics([topic])
    identity = f"app.slot-token-{exactly_once}"

    fence = broker.fence(identity, ProducerSettings(exactly_once=exactly_once))
    fence.mark(PROGRESS)
    sink = fence.open()
    sink.send(lines(topic, b"a"))
    sink.commit(PROGRESS)
    sink.close()
    fence = broker.fence(identity, EXACTLY_ONCE)
    found = fence.read()
    fence.close()

    assert found == PROGRESS
    settings = {**secured.over_tls, "sasl.mechanism": "AWS_MSK_IAM"}
    (batch,) = read_committed(settings, topic, timeouts=QUICK, sign=sign)
    assert values_of(batch) == [b"a"]


@pytest.mark.usefixtures("progress_topic")
def test_a_client_that_was_idle_beyond_its_tokens_end_commits(secured: Secured) -> None:
    sign = Unsigned(seconds=5)
    topic = secured.topic("renewed")
    broker = with_token(secured, sign)
    sink = broker.fence("app.slot-renewed", EXACTLY_ONCE).open()
    sink.send(lines(topic, b"a"))
    sink.commit(PROGRESS)
    latest = max(sign.ends)

    eventually("the tokens that it had are over", lambda: time.time() > latest + 1)
    sink.send(lines(topic, b"b"))
    sink.commit(replace(PROGRESS, position=PROGRESS.position + 1))
    sink.close()

    settings = {**secured.over_tls, "sasl.mechanism": "AWS_MSK_IAM"}
    batches = read_committed(settings, topic, timeouts=QUICK, sign=Unsigned())
    assert [value for batch in batches for value in values_of(batch)] == [b"a", b"b"]


@pytest.mark.usefixtures("progress_topic")
def test_a_token_that_brokers_reject_is_reported_at_once(secured: Secured) -> None:
    class Expired(Unsigned):
        def __call__(self, region: str | None) -> tuple[str, float]:
            return super().__call__(region)[0], time.time() + 600

    broker = with_token(secured, Expired(seconds=-600))
    began = running_seconds()

    with pytest.raises(Misconfigured, match="allow the role kafka-cluster:Connect"):
        broker.fence("app.slot-refused", EXACTLY_ONCE)
    with pytest.raises(Misconfigured, match="allow the role kafka-cluster:Connect"):
        _ = broker.cluster

    assert running_seconds() - began < 30  # of 60 that fencing may take


# -- secrets --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secrets_server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.mark.usefixtures("progress_topic")
def test_a_password_that_is_rotated_under_a_warm_worker_fails_nothing(
    secured: Secured, secrets_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", secrets_server)
    server = boto3.client("secretsmanager", endpoint_url=secrets_server)
    user = secured.user("rotated", "first")
    secured.allow(user, ResourceType.TRANSACTIONAL_ID, "rotated.")
    held = '{"username": "rotated", "password": "%s"}'
    arn = server.create_secret(Name="AmazonMSK_rotated", SecretString=held % "first")["ARN"]
    settings = WorkerSettings(
        bootstrap_servers=secured.servers,
        kafka={
            **secured.settings(f"${{secretsmanager:{arn}:username}}"),
            "sasl.password": f"${{secretsmanager:{arn}:password}}",
        },
    )
    broker = Runtime(settings).broker
    broker.fence("rotated.slot-1", EXACTLY_ONCE).close()

    secured.user(user, "second")
    with pytest.raises(Misconfigured, match="check user name, password"):
        broker.fence("rotated.slot-1", EXACTLY_ONCE)  # the secret is not updated yet
    server.put_secret_value(SecretId=arn, SecretString=held % "second")

    broker.fence("rotated.slot-1", EXACTLY_ONCE).close()
    server.close()


@pytest.mark.usefixtures("progress_topic")
@pytest.mark.parametrize("auth", [one for one in Auth if one not in {Auth.NONE, Auth.IAM}], ids=str)
def test_a_stages_credentials_come_from_a_secret(
    secured: Secured, secrets_server: str, monkeypatch: pytest.MonkeyPatch, auth: Auth
) -> None:
    """All ways of a stage that need no AWS: also those of clusters that are not MSK."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", secrets_server)
    server = boto3.client("secretsmanager", endpoint_url=secrets_server)
    certified = auth is Auth.MTLS
    held = asdict(secured.client) if certified else {"username": "app", "password": PASSWORD}
    arn = server.create_secret(Name=f"held-{auth}", SecretString=json.dumps(held))["ARN"]
    server.close()
    servers = secured.mtls_servers if certified else secured.servers
    cluster = Cluster(bootstrap_servers=servers, auth=auth, secret_arn=arn)
    kafka = {
        **cluster.client_settings(),
        "kafka.ssl.ca.location": str(secured.certificate),
    }
    topic = secured.topic(f"held-{auth}")
    broker = Runtime(WorkerSettings.from_map(kafka)).broker

    sink = broker.fence(f"app.slot-{auth}", EXACTLY_ONCE).open()
    sink.send(lines(topic, b"a"))
    sink.commit(PROGRESS)
    sink.close()

    assert broker.topics([topic])[0].partitions == 1


# -- mutual TLS -----------------------------------------------------------------------------------


def mtls_settings(secured: Secured) -> dict[str, str]:
    return {
        "bootstrap.servers": secured.mtls_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": str(secured.certificate),
    }


def over_mtls(secured: Secured, certified: Certified | None) -> KafkaBroker:
    settings = mtls_settings(secured)
    if certified is not None:
        settings |= {"ssl.certificate.pem": certified.certificate, "ssl.key.pem": certified.key}
    return KafkaBroker(settings, timeouts=replace(QUICK, fence_seconds=60))


@pytest.mark.usefixtures("progress_topic")
@pytest.mark.parametrize("certified", [Certified.make("app"), None], ids=["unknown", "none"])
def test_a_client_certificate_that_brokers_reject_is_reported_at_once(
    secured: Secured, certified: Certified | None
) -> None:
    broker = over_mtls(secured, certified)
    began = running_seconds()

    with pytest.raises(Misconfigured, match=r"slot app.*check ssl\.certificate"):
        broker.fence("app.slot-unknown", EXACTLY_ONCE)
    with pytest.raises(Misconfigured, match=r"check ssl\.certificate.*trust its issuer"):
        _ = broker.cluster

    assert running_seconds() - began < 30  # of 60 that fencing may take


@pytest.mark.usefixtures("progress_topic")
def test_a_certificate_that_was_rotated_under_a_warm_worker_fails_nothing(secured: Secured) -> None:
    rotated = [Certified.make("app"), secured.client]

    def look_up(written: Mapping[str, str], *, refresh: bool = False) -> Mapping[str, str]:
        now = rotated[refresh]
        return {**written, "ssl.certificate.pem": now.certificate, "ssl.key.pem": now.key}

    broker = KafkaBroker(mtls_settings(secured), timeouts=QUICK, look_up=look_up)

    broker.fence("app.slot-rotated", EXACTLY_ONCE).close()


def test_a_key_of_another_certificate_is_reported_before_any_connection(secured: Secured) -> None:
    mixed = replace(secured.client, key=Certified.make("other").key)

    with pytest.raises(Misconfigured, match=r"ssl\.key\.pem failed.*mismatch"):
        _ = over_mtls(secured, mixed).cluster
