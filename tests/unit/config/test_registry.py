"""The keys of converters with a schema registry."""

import pickle
from collections.abc import Mapping

import pytest
from tests.support.golden import Golden

from extentflow.config.parsing import connector_table, parse, to_map
from extentflow.config.registry import AvroOptions, RegistryOptions
from extentflow.errors import Misconfigured

ORDERS = {"name": "orders", "topic": "orders", "aws.s3.bucket.name": "lake"}
URL = "http://registry:8081"
AVRO = {
    **ORDERS,
    "value.converter": "avro",
    "value.converter.schema.registry.url": URL,
}


def problems(config: Mapping[str, str]) -> tuple[str, ...]:
    with pytest.raises(Misconfigured) as caught:
        parse(config)
    return caught.value.problems


def test_the_keys_of_a_registry_make_the_converters_options() -> None:
    written = {
        **ORDERS,
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": "https://one:8081/, https://two:8081",
        "value.converter.basic.auth.credentials.source": "USER_INFO",
        "value.converter.basic.auth.user.info": "${env:REGISTRY}",
        "value.converter.schema.registry.ssl.ca.location": "/etc/ca.pem",
        "value.converter.auto.register.schemas": "false",
        "value.converter.use.latest.version": "true",
        "value.converter.value.subject.name.strategy": (
            "io.confluent.kafka.serializers.subject.RecordNameStrategy"
        ),
        "value.converter.record.name": "com.acme.Order",
        "value.converter.scrub.invalid.names": "true",
        "message.key": "column:id",
        "key.converter": "avro",
        "key.converter.schema.registry.url": URL,
    }

    config = parse(written)

    assert config.converter_options == {
        "value.converter": AvroOptions(
            urls=("https://one:8081", "https://two:8081"),
            credentials_source="USER_INFO",
            user_info="${env:REGISTRY}",
            ca_location="/etc/ca.pem",
            auto_register=False,
            use_latest=True,
            strategy="RecordNameStrategy",
            record_name="com.acme.Order",
            scrub=True,
        ),
        "key.converter": AvroOptions(urls=(URL,)),
    }
    assert parse(to_map(config)) == config
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301 - our own


def test_other_converters_have_no_options() -> None:
    assert parse({**ORDERS, "value.converter": "string"}).converter_options == {}
    assert parse(ORDERS).converter_options == {}


@pytest.mark.parametrize("part", ["value.converter.", "key.converter."])
@pytest.mark.parametrize("chosen", [{}, {"value.converter": "bytes", "key.converter": "string"}])
def test_a_key_of_a_converter_needs_its_converter(part: str, chosen: dict[str, str]) -> None:
    keys = [key for key in connector_table() if key.name.startswith(part)]
    samples = {"url": URL, "source": "USER_INFO", "info": "${env:A}", "strategy": ""}
    samples |= {"endpoint": URL, "compatibility": "FULL", "compression": "ZLIB", "type": "glue"}
    samples |= {"format": "BASE64"}

    for name, converters in ((key.name, key.only[0].says) for key in keys):
        sample = samples.get(name.rpartition(".")[2], "true")
        if name.endswith("strategy"):
            sample = "TopicNameStrategy"
        keyed = {"message.key": "column:id"}
        (problem,) = problems({**ORDERS, **keyed, **chosen, name: sample})
        assert problem.startswith(f"{name}: applies only where {converters};")
    assert len(keys) == 19


@pytest.mark.parametrize(
    ("url", "clear"),
    [
        ("http://registry:8081", True),
        ("https://registry:8081,HTTP://registry:8081", True),
        ("https://registry:8081", False),
        ("http://127.0.0.1:8081", False),
        ("http://[::1]:8081", False),
        ("http://localhost:8081", False),
    ],
)
def test_a_password_does_not_cross_a_network_in_clear_text(
    url: str,
    clear: bool,  # noqa: FBT001 - a parameter
) -> None:
    chosen = {
        "value.converter.schema.registry.url": url,
        "value.converter.basic.auth.credentials.source": "USER_INFO",
        "value.converter.basic.auth.user.info": "${env:A}",
    }

    if not clear:
        parse({**AVRO, **chosen})
        return
    (problem,) = problems({**AVRO, **chosen})
    assert "clear text; write https" in problem


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"schema.registry.url": "registry:8081"}, "write http://host:port"),
        ({"schema.registry.url": "http://me:pw@registry"}, "must not contain credentials"),
        ({"basic.auth.user.info": "me:pw"}, "(not shown): a secret is not written down"),
        ({"basic.auth.user.info": "${env:A}"}, "source: missing; write USER_INFO, or remove"),
        (
            {"basic.auth.credentials.source": "USER_INFO"},
            "basic.auth.user.info: missing; write a reference",
        ),
        ({"basic.auth.credentials.source": "URL"}, "write USER_INFO"),
        ({"use.latest.version": "true"}, "auto.register.schemas is false; write that, too"),
        ({"subject.name.strategy": "RecordNameStrategy"}, "record.name: missing; Rec"),
        ({"record.name": "a-b"}, "write names of letters, digits and _"),
        ({"record.name": "string"}, "string is a type of Avro's; choose another name"),
        ({"schema.registry.ssl.ca.location": "/a.pem"}, "schema.registry.url is not https"),
    ],
)
def test_what_cannot_work_is_reported_in_one_line(changes: dict[str, str], problem: str) -> None:
    (found,) = problems(
        {**AVRO, **{f"value.converter.{name}": text for name, text in changes.items()}}
    )

    assert problem in found


def test_the_address_of_the_registry_is_required(golden: Golden) -> None:
    (found,) = problems({**ORDERS, "value.converter": "avro"})

    golden(found)
    assert "value.converter.schema.registry.url" in found


@pytest.mark.parametrize("name", ["jsonl", "text", "json", "bytes"])
def test_formats_without_columns_have_no_schema(name: str, golden: Golden) -> None:
    (found,) = problems({**AVRO, "input.format": name})

    golden(found)
    assert "value.converter=avro" in found


GLUE = {**ORDERS, "value.converter": "avro", "value.converter.schema.registry.type": "glue"}


def test_the_keys_of_awss_serializer_choose_glue() -> None:
    part = "value.converter."
    own = {
        "registry.name": "shop",
        "region": "eu-west-1",
        "endpoint": "http://localhost:4566",
        "schemaName": "order",
        "schemaAutoRegistrationEnabled": "false",
        "compatibility": "FULL_ALL",
        "compression": "ZLIB",
    }

    config = parse({**GLUE, **{part + name: text for name, text in own.items()}})

    assert config.converter_options["value.converter"] == AvroOptions(
        registry_type="glue",
        registry_name="shop",
        region="eu-west-1",
        endpoint="http://localhost:4566",
        schema_name="order",
        auto_register=False,
        compatibility="FULL_ALL",
        compression="ZLIB",
    )
    assert parse(to_map(config)) == config


@pytest.mark.parametrize("name", ["avro", "json-schema", "protobuf"])
def test_glue_needs_no_other_key(name: str) -> None:
    options = parse({**GLUE, "value.converter": name}).converter_options["value.converter"]

    assert isinstance(options, RegistryOptions)
    assert (options.registry_type, options.registry_name) == ("glue", "default-registry")
    assert options.subject("orders", is_key=True) == "orders-key"


@pytest.mark.parametrize(
    ("config", "keys", "says"),
    [
        (GLUE, {"schema.registry.url": URL}, "schema.registry.type is confluent"),
        (GLUE, {"schema.registry.ssl.ca.location": "/a.pem"}, "type is confluent"),
        (AVRO, {"region": "eu-west-1"}, "schema.registry.type is glue"),
        (AVRO, {"compression": "ZLIB"}, "schema.registry.type is glue"),
        (AVRO, {"schemaName": "order"}, "schema.registry.type is glue"),
        (GLUE, {"subject.name.strategy": "RecordNameStrategy"}, "record.name: missing"),
        (
            GLUE,
            {"schemaName": "order", "subject.name.strategy": "RecordNameStrategy",
             "record.name": "acme.Order"},
            "names the schema, too; remove one",
        ),
    ],
)  # fmt: skip
def test_keys_of_another_type_of_registry_are_refused(
    config: Mapping[str, str], keys: Mapping[str, str], says: str
) -> None:
    (problem,) = problems(
        {**config, **{f"value.converter.{name}": text for name, text in keys.items()}}
    )

    assert says in problem


@pytest.mark.parametrize("name", ["compatibility", "compression", "schema.registry.type"])
def test_other_words_than_those_of_glue_are_refused(name: str) -> None:
    (problem,) = problems({**GLUE, f"value.converter.{name}": "SNAPPY"})

    assert problem.startswith(f"value.converter.{name}='SNAPPY': write ")
