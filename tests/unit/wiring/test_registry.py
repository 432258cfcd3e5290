"""From a connector's keys to records with schemas in a registry."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.support.chains import BASE, chain, convert
from tests.support.golden import Golden
from tests.support.registry import RegistryDouble, registry_double

from extentflow.aws.secrets_manager import SecretsManager
from extentflow.config.hosts import OF_FUNCTIONS
from extentflow.config.parsing import parse
from extentflow.config.trust import Trust
from extentflow.errors import (
    AccessDenied,
    IncompatibleSchema,
    Misconfigured,
    RegistryUnavailable,
)
from extentflow.wiring import options

TABLE = pa.table({"id": [1, 2, 3], "name": ["a", None, "c"]})


@pytest.fixture
def registry() -> Iterator[RegistryDouble]:
    with registry_double() as double:
        yield double


def avro(registry: RegistryDouble, side: str = "value", **changes: str) -> dict[str, str]:
    part = f"{side}.converter"
    keys = {f"{part}.{name}": text for name, text in changes.items()}
    return {part: "avro", f"{part}.schema.registry.url": registry.url, **keys}


def test_values_and_keys_are_records_of_their_own_subjects(registry: RegistryDouble) -> None:
    keyed = {"message.key": "column:id", **avro(registry, "key")}

    made = convert(TABLE, {**avro(registry), **keyed})

    assert [registry.decode(one or b"") for one in made.payloads] == TABLE.to_pylist()
    assert [registry.decode(one or b"") for one in made.keys] == [{"id": n} for n in (1, 2, 3)]
    assert list(registry.subjects) == ["source-value", "source-key"]


def test_the_subject_is_that_of_the_routed_topic(registry: RegistryDouble) -> None:
    routed = chain(route={"type": "RegexRouter", "regex": "source", "replacement": "orders"})

    made = convert(TABLE, {**avro(registry), **routed})

    assert made.topics == {"orders"}
    assert list(registry.subjects) == ["orders-value"]


def test_transforms_decide_the_schema(registry: RegistryDouble) -> None:
    steps = chain(
        key={"type": "ValueToKey", "fields": "id"},
        drop={"type": "ReplaceField", "exclude": "id", "renames": "name:title"},
    )

    made = convert(TABLE, {**avro(registry), **avro(registry, "key"), **steps})

    assert [registry.decode(one or b"") for one in made.payloads] == [
        {"title": "a"}, {"title": None}, {"title": "c"},
    ]  # fmt: skip
    assert [registry.decode(one or b"") for one in made.keys] == [{"id": n} for n in (1, 2, 3)]


def test_lines_that_transforms_give_columns_are_records(registry: RegistryDouble) -> None:
    steps = chain(where={"type": "InsertField", "offset.field": "at"})

    made = convert(b'{"a": 1}\n', {**avro(registry), **steps}, "jsonl")

    assert [registry.decode(one or b"") for one in made.payloads] == [
        {"value": b'{"a": 1}', "at": 0}
    ]


def test_rows_that_the_schema_has_no_value_for_are_bad_records(registry: RegistryDouble) -> None:
    field = {"name": "name", "type": "string"}
    held = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, field]}
    registry.add("source-value", held)
    latest = {"auto.register.schemas": "false", "use.latest.version": "true"}

    made = convert(TABLE, avro(registry, **latest))

    assert [registry.decode(one or b"")["id"] for one in made.payloads] == [1, 3]
    assert made.bad == [(1, "name: null, and its schema has no null")]


def test_a_refusal_names_object_and_connector(registry: RegistryDouble, golden: Golden) -> None:
    other = {
        "type": "record",
        "name": "ConnectDefault",
        "fields": [{"name": "id", "type": "string"}],
    }
    registry.add("source-value", other)

    with golden.raises(IncompatibleSchema, match="bucket/folder/key.*connector c"):
        convert(TABLE, avro(registry))


def test_an_outage_names_object_and_connector(registry: RegistryDouble, golden: Golden) -> None:
    registry.fail.append((503, None))

    with golden.raises(RegistryUnavailable, match="bucket/folder/key.*503"):
        convert(TABLE, avro(registry))


# -- secrets ---------------------------------------------------------------------------------------


class Vault(SecretsManager):
    """A secret that was rotated after it had been cached."""

    def read(self, name: str, *, refresh: bool = False) -> str:
        assert name == "registry"
        return "app:new" if refresh else "app:old"


def opener(registry: RegistryDouble) -> options.OpenConverter:
    changes = {
        "basic.auth.credentials.source": "USER_INFO",
        "basic.auth.user.info": "${secretsmanager:registry}",
    }
    config = parse({**BASE, **avro(registry, **changes)})
    assert "app:" not in repr(config)
    return options.converter_opener(
        config, "value.converter", "orders", options.SecretResolver(Vault())
    )


def test_a_rotated_password_is_read_again(registry: RegistryDouble) -> None:
    registry.user_info = "app:new"

    convert_rows = opener(registry)("avro", TABLE.schema)

    payloads = convert_rows(TABLE.to_batches()[0]).to_pylist()
    assert [registry.decode(one) for one in payloads] == TABLE.to_pylist()


def test_a_password_that_stays_wrong_is_refused(registry: RegistryDouble, golden: Golden) -> None:
    registry.user_info = "app:another"

    with golden.raises(AccessDenied, match=r"basic\.auth\.user\.info"):
        opener(registry)("avro", TABLE.schema)


def test_a_registrys_password_in_a_variable_keeps_a_run_from_emr_serverless(
    registry: RegistryDouble,
) -> None:
    changes = {
        "basic.auth.credentials.source": "USER_INFO",
        "basic.auth.user.info": "${env:REGISTRY}",
    }

    absent = options.absent_elsewhere(parse({**BASE, **avro(registry, **changes)}))

    assert "value.converter.basic.auth.user.info=${env:REGISTRY}" in str(absent)


def test_connections_of_a_connectors_registry_are_judged(
    registry: RegistryDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OF_FUNCTIONS, "worker")
    url = registry.url.replace("127.0.0.1", "localhost")
    config = parse({**BASE, **avro(registry), "value.converter.schema.registry.url": url})
    secrets = options.SecretResolver(SecretsManager(), Trust())
    opened = options.converter_opener(config, "value.converter", "t", secrets)
    ((_, check),) = options.registry_checks(config, secrets)

    with pytest.raises(Misconfigured, match="may not name this"):
        opened("avro", TABLE.schema)
    with pytest.raises(Misconfigured, match="may not name this"):
        check()
    assert registry.requests == []
