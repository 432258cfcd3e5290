"""A secret that is planted in every place for one occurs in no message, log, item or record."""

import base64
import json
import logging
import pickle
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace

import pyarrow as pa
import pyarrow.parquet.encryption as pe
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from tests.laws.parquet_cases import written
from tests.support.local_engine import CallingThreadEngine, until_final
from tests.support.memory_runtime import MemoryRuntime
from tests.unit.discovery.posting import SECRET as SECRET_PATH
from tests.unit.discovery.posting import SEGMENT, SIGNED, Post, post

from extentflow.config import files
from extentflow.config.kafka_properties import (
    CLIENT_PROPERTIES,
    PRODUCER_PROPERTIES,
    SECRET_PROPERTIES,
)
from extentflow.config.parsing import connector_table, parse
from extentflow.config.types import REFERABLE, SECRET
from extentflow.config.worker import TABLE, WorkerSettings
from extentflow.config.worker import load as load_settings
from extentflow.delivery.runner import run_extent
from extentflow.errors import ExtentflowError
from extentflow.jobs.addresses import KeyScope
from extentflow.kafka import JOBS_TOPIC
from extentflow.kafka.broker import KafkaBroker
from extentflow.kafka.settings import Timeouts
from extentflow.model import ExtentState, JobState
from extentflow.services.composition import open_runs
from extentflow.services.connectors import Connectors
from extentflow.services.run_control import EngineChoice
from extentflow.wiring.extents import delivery_context

PLANTED = "hunter2-PLANTED"
CONNECTOR = {"name": "c", "topic": "records", "aws.s3.bucket.name": "bucket"}
LITERALS = [PLANTED, f"${{env:{PLANTED}", f"${{vault:{PLANTED}:x}}"]
URLS = {
    "user": f"https://user:{PLANTED}@host:1",
    "presigned": f"https://host/key?X-Amz-Signature={PLANTED}",
    "shared-access-signature": f"https://host/key?sv=1&sig={PLANTED}",
    "fragment": f"https://host/#{PLANTED}",
}
CONNECTOR_URLS = ("aws.s3.endpoint",)
WORKER_URLS = ("ledger.url", "ledger.endpoint", "arrivals.queue.url", "extents.queue.url")

Read = Callable[[Mapping[str, str]], object]


def read_connector(changes: Mapping[str, str]) -> object:
    return parse({**CONNECTOR, **changes})


READERS: dict[str, Read] = {"connector": read_connector, "worker": WorkerSettings.from_map}
SECRET_KEYS = [
    *[("connector", key.name) for key in connector_table() if key.kind is SECRET],
    *[("connector", f"producer.{name}") for name in sorted(SECRET_PROPERTIES)],
    *[("worker", f"kafka.{name}") for name in sorted(SECRET_PROPERTIES)],
    *[("worker", key.name) for key in TABLE if key.kind is SECRET],
]


def message_of(act: Callable[[], object]) -> str:
    with pytest.raises(ExtentflowError) as caught:
        act()
    return f"{caught.value} {caught.value!r}"


@pytest.mark.parametrize(("kind", "name"), SECRET_KEYS)
@pytest.mark.parametrize("text", LITERALS)
def test_a_password_in_place_of_a_reference_is_rejected_unseen(
    kind: str, name: str, text: str
) -> None:
    message = message_of(lambda: READERS[kind]({name: text}))

    assert PLANTED not in message
    assert name in message


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *[("connector", name) for name in CONNECTOR_URLS],
        *[("worker", name) for name in WORKER_URLS],
    ],
)
@pytest.mark.parametrize("url", URLS.values(), ids=URLS)
def test_an_endpoint_with_credentials_is_rejected_unseen(kind: str, name: str, url: str) -> None:
    message = message_of(lambda: READERS[kind]({name: url}))

    assert PLANTED not in message
    shown = "(not shown)" if name == "ledger.url" else "'https://"
    assert f"{name}={shown}" in message


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("connector", {"producer.sasl.oauthbearer.token.endpoint.url": URLS["user"]}),
        ("connector", {"producer.sasl.pasword": PLANTED}),
        ("connector", {"producer.sasl.jaas.config": f"Login required password={PLANTED};"}),
        ("connector", {"sasl.password": PLANTED}),
        ("connector", {"aws.s3.bucket.name": URLS["presigned"]}),
        ("connector", {"topic": URLS["presigned"]}),
        ("worker", {"bootstrap.servers": f"user:{PLANTED}@host:9092"}),
        ("worker", {"bootstrap.servers": f"SASL_SSL://user:{PLANTED}@host:9092"}),
        ("worker", {"kafka.sasl.pasword": PLANTED}),
        ("worker", {"ledger.url": f"postgresql://me:{PLANTED}@db/l"}),
        ("worker", {"ledger.url": f"postgresql://me@db/l?password={PLANTED}"}),
        ("worker", {"ledger.url": f"postgresql://me@db/l?sslpassword={PLANTED}"}),
        ("worker", {"ledger.url": f"acme://me:{PLANTED}@db"}),
        ("worker", {"ledger.url": f"postgresql://db/l?passwrd={PLANTED}&x=1"}),
    ],
)
def test_a_secret_in_the_wrong_place_is_not_repeated(kind: str, config: dict[str, str]) -> None:
    assert PLANTED not in message_of(lambda: READERS[kind](config))


def test_a_variable_with_a_secret_is_not_repeated() -> None:
    environ = {
        "EXTENTFLOW_KAFKA_SASL_PASSWORD": PLANTED,
        "EXTENTFLOW_KAFKA_SASL_PASWORD": PLANTED,
        "EXTENTFLOW_LEDGER_ENDPOINT": URLS["user"],
    }

    message = message_of(lambda: load_settings(environ, read_text=lambda _: None))

    assert PLANTED not in message
    assert all(name in message for name in environ)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.json", f'{{"producer.sasl.password": "{PLANTED}'),
        ("c.json", f'{{"producer.sasl.password": "{PLANTED}", "producer.sasl.password": "x"}}'),
        ("c.yaml", f"producer.sasl.password: [{PLANTED}\nname: c"),
        ("c.yaml", f"producer.sasl.password: @{PLANTED}"),
        ("c.properties", f"producer.sasl.password=\\u{PLANTED}"),
        ("c.properties", f"producer.sasl.password={PLANTED}\nproducer.sasl.password=x"),
    ],
)
def test_a_damaged_file_with_a_secret_is_not_repeated(name: str, text: str) -> None:
    assert PLANTED not in message_of(lambda: files.parse_text(text, name))


@pytest.mark.parametrize("url", URLS.values(), ids=URLS)
def test_a_presigned_address_is_rejected_unseen(url: str) -> None:
    message = message_of(lambda: KeyScope("c", "bucket").key(url))

    assert PLANTED not in message
    assert message.startswith("https://")


@pytest.mark.parametrize("proof", [SIGNED, SECRET_PATH])
def test_headers_and_paths_of_requests_are_neither_logged_nor_queued(
    proof: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body = json.dumps({"Records": [{"eventSource": "sgws:s3"}]}).encode()
    receiver = Post(proof)  # type: ignore[arg-type] # one of the proofs
    headers = {"Authorization": f"Bearer {PLANTED}", "X-Amz-Security-Token": PLANTED}

    answers = [
        receiver.answer(post(body, f"/{SEGMENT}", **headers)),
        receiver.answer(post(body, f"/{PLANTED}", **headers)),
        receiver.answer(replace(post(b"", f"/{SEGMENT}", **headers), method="GET")),
    ]

    seen = caplog.text + repr(receiver.queued) + "".join(answer.body for answer in answers)
    assert PLANTED not in seen
    assert SEGMENT not in seen


def test_a_delivery_keeps_only_references(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("ORDERS_PASSWORD", PLANTED)
    reference = "${env:ORDERS_PASSWORD}"
    settings = WorkerSettings(
        bootstrap_servers="127.0.0.1:1",
        kafka={"sasl.username": "u", "sasl.password": reference},
        connectors_env_allowed=("ORDERS_*",),
    )
    runtime = MemoryRuntime(settings)
    runtime.cluster.create_topic("dead", partitions=1)
    runtime.put_connector(
        input__format="jsonl",
        extent__bytes="auto",
        errors__tolerance="all",
        errors__deadletterqueue__topic__name="dead",
        aws__access__key__id="id",
        aws__secret__access__key=reference,
        producer__sasl__password=reference,
    )
    job = runtime.job(lines=2)
    gone = runtime.job("c/gone.txt")
    work = delivery_context(runtime, runtime.slots("here"))
    extents = [next(runtime.planner().extents(runtime.planner().plan(one))) for one in (job, gone)]
    runtime.memory_store.remove("shop", "c/gone.txt")

    for extent in extents:
        run_extent(extent, work)

    shown = asdict(Connectors(runtime.memory).get("c"))
    items = [runtime.memory.extents.get(one.job, one.ordinal) for one in extents]
    letters = runtime.cluster.read_committed("dead")
    assert [item.state for item in items] == [ExtentState.DONE, ExtentState.FAILED]
    assert len(letters) == 2
    assert shown["config"]["producer.sasl.password"] == reference
    seen = (
        *(shown, items, letters, settings.to_map(), settings, caplog.text),
        *(list(runtime.memory.jobs.list()), runtime.events.read_committed(JOBS_TOPIC)),
        *[runtime.memory.slots.get("memory", slot) for slot in range(2)],
    )
    assert PLANTED not in repr(seen)
    assert PLANTED in repr(runtime.secrets(settings.kafka))


SECRETS_OF_CONNECTORS = [
    *(key.name for key in connector_table() if key.kind in (SECRET, REFERABLE)),
    *(f"producer.{name}" for name in sorted(SECRET_PROPERTIES & PRODUCER_PROPERTIES)),
]
# What a key with a secret needs beside it.
BESIDE = {
    "aws.secret.access.key": {"aws.access.key.id": "id"},
    "aws.access.key.id": {"aws.secret.access.key": "${file:/a:b}"},
    "aws.sts.role.external.id": {"aws.sts.role.arn": "arn:aws:iam::111122223333:role/r"},
    "columnar.encryption.key.list": {
        "columnar.encoding": "parquet",
        "columnar.encryption.columns": "id",
        "columnar.encryption.key": "k",
    },
    **{
        f"{part}.converter.basic.auth.user.info": {
            "message.key": "column:id",
            f"{part}.converter": "avro",
            f"{part}.converter.schema.registry.url": "https://host.example",
            f"{part}.converter.basic.auth.credentials.source": "USER_INFO",
        }
        for part in ("key", "value")
    },
    "parquet.encryption.footer.key": {"input.format": "parquet"},
    "parquet.encryption.key.list": {"input.format": "parquet"},
}


@pytest.mark.parametrize("name", SECRETS_OF_CONNECTORS)
@pytest.mark.parametrize(
    "reference", ["${env:AWS_SECRET_ACCESS_KEY}", "${file:/proc/self/environ:HOME}"]
)
def test_no_key_of_a_stored_connector_gets_the_workers_own_secrets(
    name: str, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PLANTED)
    runtime = MemoryRuntime()
    hostile = {**CONNECTOR, **BESIDE.get(name, {}), name: reference}
    parse(hostile)
    revision = runtime.memory.connectors.put("c", hostile).revision

    message = message_of(lambda: runtime.connectors.revision("c", revision))

    assert f"connector c, revision {revision}: {name}=" in message
    assert PLANTED not in message
    with pytest.raises(ExtentflowError):
        runtime.connectors.latest("c")
    assert list(runtime.connectors.readable(runtime.memory.connectors.list())), "it is listed"


@pytest.mark.parametrize("name", sorted(CLIENT_PROPERTIES - PRODUCER_PROPERTIES))
def test_no_connector_changes_how_the_owners_password_travels(name: str) -> None:
    message = message_of(lambda: read_connector({f"producer.{name}": PLANTED}))

    assert f"write kafka.{name} in the worker's settings" in message
    assert PLANTED not in message


@pytest.mark.parametrize("kind", ["footer.key", "key.list"])
def test_keys_of_encrypted_files_are_only_in_the_process_that_decrypts(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Connector, plan, run, ledger, logs, events, and what engines and executors receive."""
    caplog.set_level(logging.DEBUG)
    keys = {b"PLANTED-key-of-1", b"other-key-of-16b"}
    used = base64.b64encode(b"PLANTED-key-of-1").decode()
    monkeypatch.setenv("FILE_KEYS", used if kind == "footer.key" else f"planted:{used}")
    runtime = MemoryRuntime()
    runtime.put_connector(
        **{f"parquet.encryption.{kind}": "${env:FILE_KEYS}"},
        **{"input.format": "parquet", "extent.bytes": "auto"},
    )
    bodies = {"right": b"PLANTED-key-of-1", "wrong": b"other-key-of-16b"}
    for name, key in bodies.items():
        runtime.memory_store.put("shop", f"c/{name}.parquet", encrypted_file(kind, key))
    work = delivery_context(runtime, runtime.slots("here"))
    engine = CallingThreadEngine(until_final(work))

    plans = open_runs(runtime).plan(runtime.order())
    runs = open_runs(runtime, open_engine=lambda *_args, **_words: engine)
    report = runs.run(runtime.order(), engine=EngineChoice("inline"))

    assert [plan.version.key for plan in plans.objects] == ["c/right.parquet"]
    assert f"cannot be decrypted with parquet.encryption.{kind}" in " ".join(plans.problems)
    states = sorted((job.version.key, job.state) for job in runtime.memory.jobs.list())
    assert states == [
        ("c/right.parquet", JobState.DONE),
        ("c/wrong.parquet", JobState.FAILED),
    ]
    shown = asdict(Connectors(runtime.memory).get("c"))
    assert shown["config"][f"parquet.encryption.{kind}"] == "${env:FILE_KEYS}"
    # What a worker is opened with, and what it is sent.
    sent = pickle.dumps((runtime.settings.to_map(), engine.runs))
    assert b"c/right.parquet" in sent
    seen = (
        *(shown, plans, report, caplog.text, engine.runs, sent),
        *(list(runtime.memory.jobs.list()), runtime.events.read_committed(JOBS_TOPIC)),
        *[runtime.memory.extents.get(job.id, 0) for job in runtime.memory.jobs.list()],
        *(runtime.settings, runtime, work),
    )
    for key in keys:
        for form in (key.decode(), base64.b64encode(key).decode(), key.hex()):
            assert form not in repr(seen)


def encrypted_file(kind: str, key: bytes) -> bytes:
    if kind == "footer.key":
        keys = pe.create_encryption_properties(key)
    else:
        factory = pe.CryptoFactory(lambda _: Wrapping(key))
        configured = pe.EncryptionConfiguration(
            "planted", column_keys={"planted": ["n"]}, double_wrapping=False
        )
        keys = factory.file_encryption_properties(pe.KmsConnectionConfig(), configured)
    return written(pa.table({"n": range(5)}), encryption_properties=keys)


class Wrapping(pe.KmsClient):  # type: ignore[misc]
    def __init__(self, key: bytes) -> None:
        super().__init__()
        self._key = key

    def wrap_key(self, key_bytes: bytes, name: str) -> bytes:
        sealed = AESGCM(self._key).encrypt(b"n" * 12, key_bytes, name.encode())
        return base64.b64encode(b"n" * 12 + sealed)


def test_the_kafka_client_logs_no_password(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "user",
        "sasl.password": PLANTED,
        "debug": "all",
    }
    broker = KafkaBroker(settings, timeouts=Timeouts(request_seconds=0.2))

    message = message_of(lambda: broker.cluster)

    out, err = capfd.readouterr()
    assert "sasl.mechanism" in err + out + caplog.text, "the client showed its settings"
    assert PLANTED not in message + caplog.text + out + err
