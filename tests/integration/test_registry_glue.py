"""AWS Glue's API over HTTP: what workers register there, and payloads that others read."""

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

import boto3
import pyarrow as pa
import pytest
from tests.support.protobuf import decode, message_class

from extentflow.aws.secrets_manager import SecretsManager
from extentflow.config.parsing import parse
from extentflow.converters.subjects import open_registry
from extentflow.errors import RegistryUnavailable
from extentflow.wiring.options import SecretResolver, converter_opener, registry_checks
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient

BATCH = pa.record_batch({"id": [1, -2], "name": ["é", None]})
REGION = "eu-west-1"
SECRETS = SecretResolver(SecretsManager())


@pytest.fixture
def glue(aws: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator["GlueClient"]:
    for name, value in aws.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    open_registry.cache_clear()
    yield boto3.session.Session().client("glue")
    open_registry.cache_clear()


def connector(registry: str, **changes: str) -> dict[str, str]:
    """Return the keys of a connector whose schemas are in Glue."""
    keys = {"schema.registry.type": "glue", "registry.name": registry, **changes}
    return {
        "name": "orders",
        "topic": "orders",
        "aws.s3.bucket.name": "lake",
        "value.converter": "protobuf",
        **{f"value.converter.{name}": text for name, text in keys.items()},
    }


def test_workers_share_a_version_that_another_client_reads(glue: "GlueClient", unique: str) -> None:
    glue.create_registry(RegistryName=unique)
    config = parse(connector(unique))

    payloads = []
    for _ in range(2):
        open_registry.cache_clear()
        opener = converter_opener(config, "value.converter", "orders", SECRETS)
        payloads += opener("protobuf", BATCH.schema)(BATCH).to_pylist()

    (version,) = {str(UUID(bytes=payload[2:18])) for payload in payloads}
    found = glue.get_schema_version(SchemaVersionId=version)
    assert found["VersionNumber"] == 1
    kind = message_class(found["SchemaDefinition"])
    assert [decode(kind, payload[19:]) for payload in payloads] == BATCH.to_pylist() * 2


def test_a_check_names_the_registry(glue: "GlueClient", unique: str) -> None:
    made = glue.create_registry(RegistryName=unique)

    ((key, ask),) = registry_checks(parse(connector(unique)), SECRETS)

    assert (key, ask()) == ("value.converter", f"AWS Glue: {made['RegistryArn']}")


def test_an_endpoint_that_does_not_answer_is_an_outage(unique: str) -> None:
    nowhere = {"endpoint": "http://127.0.0.1:9", "region": REGION}
    config = parse(connector(unique, **nowhere))
    opener = converter_opener(config, "value.converter", "orders", SECRETS)

    with pytest.raises(RegistryUnavailable, match=f"AWS Glue, registry {unique}, schema orders-v"):
        opener("protobuf", BATCH.schema)
