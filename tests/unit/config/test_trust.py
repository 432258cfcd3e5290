"""What connectors may name on a worker."""

from pathlib import Path

import pytest

from extentflow.config.parsing import connector_table, parse
from extentflow.config.trust import FOLDERS, PATTERNS, Trust
from extentflow.config.types import DIRECTORY, URL, Kind

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
    "system": {"producer.sasl.password": "${file:/sys/kernel/x:y}"},
    "root": {"directory": "/"},
    "settings": {"directory": "/etc/extentflow"},
    "etc": {"directory": "/etc"},
    "proc": {"directory": "/proc/self"},
    "metadata": {"aws.s3.endpoint": "http://169.254.169.254"},
    "alias": {"s3.url": "http://169.254.169.254"},
    "decimal": {"aws.s3.endpoint": "http://2852039166"},
    "mapped": {"aws.s3.endpoint": "http://[::ffff:169.254.169.254]"},
    "v6": {"aws.s3.endpoint": "http://[fd00:ec2::254]"},
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
