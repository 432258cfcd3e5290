"""What connectors may name on a worker."""

import os
from pathlib import Path

import pytest

from extentflow.aws.secrets_manager import SecretsManager
from extentflow.config.hosts import OF_FUNCTIONS
from extentflow.config.parsing import connector_table, parse
from extentflow.config.trust import FOLDERS, PATTERNS, Trust
from extentflow.config.types import DIRECTORY, URL, Kind
from extentflow.config.worker import WorkerSettings
from extentflow.errors import Misconfigured
from extentflow.wiring.options import SecretResolver

BASE = {"name": "c", "topic": "t", "aws.s3.bucket.name": "bucket"}
LOCAL = {"name": "c", "topic": "t", "endpoint.type": "localfile"}
REGISTRY = {
    "value.converter": "avro",
    "value.converter.schema.registry.url": "https://r.example.com",
}
USER = {**REGISTRY, "value.converter.basic.auth.credentials.source": "USER_INFO"}
GLUE = {"value.converter": "avro", "value.converter.schema.registry.type": "glue"}


def problems(changes: dict[str, str], trust: Trust | None = None) -> list[str]:
    base = LOCAL if "directory" in changes else BASE
    config = {**base, **changes}
    return list((trust or Trust()).problems(parse(config), config))


HOSTILE = {
    "key": {
        "aws.access.key.id": "${env:AWS_SECRET_ACCESS_KEY}",
        "aws.secret.access.key": "${env:X}",
    },
    "token": {**USER, "value.converter.basic.auth.user.info": "${env:AWS_SESSION_TOKEN}"},
    "producer": {"producer.sasl.password": "${env:AWS_SESSION_TOKEN}"},
    "process": {"producer.sasl.password": "${file:/proc/self/environ:FIRST}"},
    "link": {"producer.sasl.password": "${file:/dev/fd/0:FIRST}"},
    "around": {"producer.sasl.password": "${file:/tmp/../proc/1/environ:FIRST}"},
    "profile": {"producer.sasl.password": "${file:/home/me/.aws/credentials:key}"},
    "keys of a shell": {"producer.sasl.password": "${file:/home/me/.ssh/config:key}"},
    "password of the ledger": {"producer.sasl.password": "${env:PGPASSWORD}"},
    "setting of the worker": {"producer.sasl.password": "${env:EXTENTFLOW_LEDGER_URL}"},
    "system": {"producer.sasl.password": "${file:/sys/kernel/x:y}"},
    "root": {"directory": "/"},
    "settings": {"directory": "/etc/extentflow"},
    "etc": {"directory": "/etc"},
    "one file": {"directory": "/home/me", "object.key": ".aws/credentials"},
    "one key": {"directory": "/home/me", "object.key": ".ssh/id_rsa"},
    "proc": {"directory": "/proc/self"},
    "mounted": {"directory": "/run/secrets/app"},
    "token of the cluster": {
        "producer.sasl.password": "${file:/run/secrets/kubernetes.io/serviceaccount/token:x}"
    },
    "metadata": {"aws.s3.endpoint": "http://169.254.169.254"},
    "alias": {"s3.url": "http://169.254.169.254"},
    "decimal": {"aws.s3.endpoint": "http://2852039166"},
    "mapped": {"aws.s3.endpoint": "http://[::ffff:169.254.169.254]"},
    "v6": {"aws.s3.endpoint": "http://[fd00:ec2::254]"},
    "translated": {"aws.s3.endpoint": "http://[64:ff9b::169.254.169.254]"},
    "packed": {"aws.s3.endpoint": "http://[2002:a9fe:a9fe::1]"},
    "other v6": {"aws.s3.endpoint": "http://[fd00:ec2::23]"},
    "registry": {**REGISTRY, "value.converter.schema.registry.url": "http://169.254.169.254"},
    "second": {
        **REGISTRY,
        "value.converter.schema.registry.url": "https://r.example.com,http://169.254.169.254/x",
    },
    "glue": {**GLUE, "value.converter.endpoint": "http://169.254.169.254"},
    "authorities": {
        **REGISTRY,
        "value.converter.schema.registry.ssl.ca.location": "/proc/1/x",
    },
    "bundle": {
        "aws.s3.endpoint": "https://s3.example.com",
        "aws.s3.ca.bundle": "/proc/self/environ",
    },
}


@pytest.mark.parametrize("changes", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_connector_is_refused_by_default(changes: dict[str, str]) -> None:
    (problem,) = problems(changes)

    assert "connectors may not name this here; the worker's connectors." in problem


USUAL = {
    "variable": {"producer.sasl.password": "${env:TEAM_PASSWORD}"},
    "file": {"producer.sasl.password": "${file:/etc/extentflow/team.properties:password}"},
    "secret": {"producer.sasl.password": "${secretsmanager:team:password}"},
    "folder": {"directory": "/var/data"},
    "endpoint": {"aws.s3.endpoint": "http://127.0.0.1:9000"},
    "registry": REGISTRY,
}


@pytest.mark.parametrize("changes", USUAL.values(), ids=USUAL)
def test_usual_connectors_need_no_setting(changes: dict[str, str]) -> None:
    assert problems(changes) == []


NOTHING = Trust(variables=(), files=(), secrets=(), folders=(), hosts=())


def test_an_owner_chooses_buckets_and_what_happens_to_delivered_objects() -> None:
    trust = Trust(buckets=("team-*",), completions=("tag",))
    deletes = {"aws.s3.bucket.name": "payroll", "after.completion": "delete"}
    tags = {"aws.s3.bucket.name": "team-in", "after.completion": "tag"}
    tags["after.completion.tag"] = "delivered=yes"

    completion, bucket = problems(deletes, trust)

    assert "after.completion=delete: connectors may not name this here" in completion
    assert "aws.s3.bucket.name=payroll: connectors may not name this here" in bucket
    assert problems(tags, trust) == problems(deletes) == []


def test_each_bucket_that_a_connector_names_is_one_of_the_owners() -> None:
    moved = {
        "aws.s3.prefix": "in/",
        "after.completion": "move",
        "after.completion.move.prefix": "done/",
    }
    away = {**moved, "after.completion.move.bucket": "other"}
    trust = Trust(buckets=("buck*",))

    assert problems(moved, trust) == []
    assert "after.completion.move.bucket=other: " in "".join(problems(away, trust))


OWN = {
    "kafka.sasl.username": "${env:BROKER_USER}",
    "kafka.sasl.password": "${file:/srv/worker/kafka.properties:password}",
    "ledger.password": "${secretsmanager:arn:aws:secretsmanager:eu-central-1:111122223333:secret:"
    "team-ledger-AbCdEf:password}",
}


@pytest.mark.parametrize(
    ("reference", "allowed"),
    [
        ("${env:BROKER_USER}", {"connectors.env.allowed": "BROKER_*"}),
        (
            "${file:/srv/worker/kafka.properties:password}",
            {"connectors.file.allowed": "/srv/worker"},
        ),
        ("${secretsmanager:team-ledger:x}", {"connectors.secret.allowed": "team-*"}),
        (
            "${secretsmanager:arn:aws:secretsmanager:eu-central-1:111122223333:secret:team-ledger:x}",
            {},
        ),
        ("${file:/srv/worker/settings.properties:kafka.sasl.password}", {}),
    ],
)
def test_what_the_workers_settings_refer_to_needs_a_pattern_of_its_own(
    monkeypatch: pytest.MonkeyPatch, reference: str, allowed: dict[str, str]
) -> None:
    """Trap: a connector sent the worker's password for the brokers to a registry of its choice."""
    monkeypatch.setenv("EXTENTFLOW_CONFIG", "/srv/worker/settings.properties")
    ledger = {"ledger.url": "postgresql://user@host/database?sslmode=verify-full"}
    usual = {"bootstrap.servers": "b:9092", **ledger, **OWN}
    sent = {**USER, "value.converter.basic.auth.user.info": reference}

    assert "may not name this here" in "".join(problems(sent, WorkerSettings.from_map(usual).trust))
    if allowed:
        assert problems(sent, WorkerSettings.from_map({**usual, **allowed}).trust) == []
    beside = {
        **USER,
        "value.converter.basic.auth.user.info": "${file:/srv/worker/kafka.properties:k}",
    }
    assert problems(beside, WorkerSettings.from_map(usual).trust) == []


@pytest.mark.parametrize("changes", USUAL.values(), ids=USUAL)
def test_an_owner_can_refuse_each(changes: dict[str, str]) -> None:
    assert len(problems(changes, NOTHING)) == 1


def test_an_owner_allows_by_pattern_and_folder() -> None:
    trust = Trust(
        variables=("AWS_TEAM_*",),
        files=("/home/me/.aws",),
        secrets=("team/*",),
        folders=("/etc/shop",),
        hosts=("169.254.170.2", "*.example.com"),
    )
    arn = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:"

    assert problems({"producer.sasl.password": "${env:AWS_TEAM_X}"}, trust) == []
    assert problems({"producer.sasl.password": "${env:AWS_SECRET_ACCESS_KEY}"}, trust)
    assert problems({"producer.sasl.password": "${file:/home/me/.aws/credentials:a}"}, trust) == []
    assert problems({"producer.sasl.password": "${file:/home/me/x.properties:a}"}, trust)
    assert problems({"producer.sasl.password": f"${{secretsmanager:{arn}team/a-1}}"}, trust) == []
    assert problems({"producer.sasl.password": "${secretsmanager:teams}"}, trust)
    assert problems({"directory": "/etc/shop/in"}, trust) == []
    assert problems({"directory": "/etc/extentflow"}, trust)
    assert problems({"aws.s3.endpoint": "http://169.254.170.2"}, trust) == []
    assert problems({"aws.s3.endpoint": "https://s3.example.com"}, trust) == []
    assert problems({"aws.s3.endpoint": "https://example.com.evil"}, trust)


@pytest.mark.parametrize(
    "host", ["169.254.169%2e254", "\uff11\uff16\uff19.254.169.254", "169\u3002254.169.254", "a b"]
)
def test_a_host_that_clients_read_as_another_one_is_refused(host: str) -> None:
    with pytest.raises(Misconfigured, match="a name of ASCII letters, or an IP address"):
        parse({**BASE, "aws.s3.endpoint": f"http://{host}"})


def test_functions_have_no_folders_and_no_runtime_for_connectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(OF_FUNCTIONS, "worker")

    (folder,) = problems({"directory": "/var/task"})
    (store,) = problems({"aws.s3.endpoint": "http://0x7f.1:9001"})
    (registry,) = problems(
        {**REGISTRY, "value.converter.schema.registry.url": "http://localhost.:9001"}
    )
    (glue,) = problems({**GLUE, "value.converter.endpoint": "http://[::ffff:127.0.0.1]:9001"})

    assert "functions have no folders for connectors" in folder
    for host in (store, registry, glue):
        assert "connectors.host.allowed has no pattern" in host
    assert problems({"directory": "/mnt/in"}, Trust(folders=("/mnt",))) == []


def test_a_link_that_hides_credentials_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").mkdir()
    for name in ("credentials", "own.ini"):
        (tmp_path / "kept" / name).write_text("key=secret\n")
    (tmp_path / ".aws").symlink_to(tmp_path / "kept")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "kept" / "own.ini"))

    for path in (".aws/credentials", "kept/own.ini"):
        assert problems({"producer.sasl.password": f"${{file:{tmp_path}/{path}:key}}"})
    assert problems({"directory": f"{tmp_path}/.aws"})
    assert problems({"directory": str(tmp_path), "object.key": "kept/own.ini"})


def test_a_file_is_judged_when_it_is_opened(tmp_path: Path) -> None:
    team, trust = tmp_path / "team", Trust(files=(str(tmp_path / "team"),))
    team.mkdir()
    (team / "c.properties").write_text("k=ours\n")
    (tmp_path / "owners.properties").write_text("k=OWNERS\n")
    named = {"producer.sasl.password": f"${{file:{team}/c.properties:k}}"}
    read = SecretResolver(SecretsManager(), trust)
    assert problems(named, trust) == []
    assert read({"k": named["producer.sasl.password"]}) == {"k": "ours"}

    for target in (tmp_path / "owners.properties", Path("/proc/self/environ")):
        (team / "c.properties").unlink()
        (team / "c.properties").symlink_to(target)
        with pytest.raises(Misconfigured, match="may not read this file here"):
            read({"k": named["producer.sasl.password"]})


@pytest.mark.parametrize("kind", ["device", "pipe", "large"])
def test_a_reference_reads_a_regular_file_of_limited_size(tmp_path: Path, kind: str) -> None:
    """Trap: a pipe without a writer held the worker, and /dev/zero took its memory."""
    path = tmp_path / "c.properties"
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"k=" + b"x" * (1 << 20))

    with pytest.raises(LookupError, match="regular file"):
        Trust().read_text(str(path))


NAMES = ",".join(f"c{number}" for number in range(30_000))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("file.name.template", "{{" + " " * 100_000 + "x{"),
        ("csv.schema", "a:b" + " " * 100_000 + "("),
        ("headers", "(a = 1" + " " * 100_000 + "!"),
        ("engine", "a.b" * 100_000),
        ("json.records.path", "a." * 200_000 + "a"),
        ("select", f"{NAMES},c0"),
        ("transforms", f"{NAMES},c0"),
    ],
)
def test_a_hostile_value_is_refused_in_time_that_is_linear_in_its_length(
    key: str, text: str
) -> None:
    """With a time that grows with the square, each of them takes minutes."""
    with pytest.raises(Misconfigured):
        problems({key: text})


def test_a_link_to_another_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "inside").mkdir()
    trust = Trust(folders=(str(tmp_path),))

    assert problems({"directory": str(tmp_path / "link")}, trust)
    assert problems({"directory": str(tmp_path / "inside")}, trust) == []
    assert problems({"directory": f"{tmp_path}/inside/../.."}, trust)


def test_functions_have_no_variables_for_connectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "worker")

    (problem,) = problems({"producer.sasl.password": "${env:TEAM_PASSWORD}"})

    assert "use ${secretsmanager:name:key}" in problem


def test_each_key_with_an_address_or_a_folder_is_checked() -> None:
    kinds = {one.name for one in connector_table() if one.kind in (URL, DIRECTORY)}
    named = {name for changes in HOSTILE.values() for name in changes}
    paths = {
        one.name
        for one in connector_table()
        if one.name.endswith((".bundle", ".location", ".url", ".file", ".path"))
    }

    values = {one.replace("key.converter.", "value.converter.") for one in kinds | paths}
    assert values <= named | {"json.records.path"}


@pytest.mark.parametrize(
    ("kind", "text"), [(PATTERNS, "a,,b"), (FOLDERS, "relative"), (FOLDERS, "/a,b")]
)
def test_a_list_that_is_none_is_refused(kind: Kind[tuple[str, ...]], text: str) -> None:
    with pytest.raises(ValueError, match="separated by commas, or none"):
        kind.read(text)
    assert kind.write(kind.read("none")) == "none"
