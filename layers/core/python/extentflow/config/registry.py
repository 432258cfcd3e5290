"""The keys of converters that keep their schemas in a registry, by Confluent's and AWS's names."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from extentflow.config import types
from extentflow.config.hosts import HostRule
from extentflow.config.specs import ConverterCheck
from extentflow.config.table import Alias, Key, declared, key

RECORD_NAME = "io.confluent.connect.avro.ConnectDefault"
TOPIC_NAME = "TopicNameStrategy"
CONFLUENT, GLUE = "confluent", "glue"
DEFAULT_REGISTRY = "default-registry"
COMPATIBILITIES = (
    "NONE",
    "DISABLED",
    "BACKWARD",
    "BACKWARD_ALL",
    "FORWARD",
    "FORWARD_ALL",
    "FULL",
    "FULL_ALL",
)
STRATEGIES = (TOPIC_NAME, "RecordNameStrategy", "TopicRecordNameStrategy")

_STRATEGY_PACKAGE = "io.confluent.kafka.serializers.subject."


def _urls(text: str) -> tuple[str, ...]:
    return tuple(types.URL.read(one).rstrip("/") for one in text.split(","))


_AVRO_TYPES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def _record_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", text.strip()):
        raise ValueError("write names of letters, digits and _, separated by dots: com.acme.Order")
    if text.strip() in _AVRO_TYPES:
        raise ValueError(f"{text.strip()} is a type of Avro's; choose another name")
    return text.strip()


def _name(default: str) -> Any:  # noqa: ANN401 - as `key`
    return key(
        types.Kind(_record_name),
        "The record's full name in the schema. Strategies other than `TopicNameStrategy` need it.",
        default=default,
        shown="as Connect's",
        name="record.name",
    )


def _scrub(what: str) -> Any:  # noqa: ANN401 - as `key`
    return key(
        types.BOOLEAN,
        f"Replace what {what} does not allow in names, as Connect does; else it is an error.",
        default=False,
        name="scrub.invalid.names",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOptions:
    """How a registry is reached, and which schema is written. Safe to pickle: holds references.

    `hosts` says which addresses connections may reach; None: all, because the owner named them.
    """

    hosts: HostRule | None = field(default=None, repr=False)
    registry_type: str = key(
        types.choice({CONFLUENT, GLUE}),
        "`confluent`: a registry with Confluent's API, at `schema.registry.url`. `glue`: AWS Glue"
        " Schema Registry.",
        default=CONFLUENT,
        name="schema.registry.type",
    )
    urls: tuple[str, ...] = key(
        types.Kind(_urls, ",".join),
        "The registry's address, http(s)://host:port; several, separated by commas, are tried in"
        " turn.",
        default=(),
        name="schema.registry.url",
        shown="required with confluent",
    )
    credentials_source: str | None = key(
        types.choice({"USER_INFO"}),
        "`USER_INFO`: send user and password.",
        name="basic.auth.credentials.source",
    )
    user_info: str | None = key(
        types.SECRET,
        "`user:password`, as a reference only.",
        name="basic.auth.user.info",
        shown="required with USER_INFO",
    )
    ca_location: str | None = key(
        types.TEXT,
        "A PEM file on every worker: the authorities to trust for the registry.",
        name="schema.registry.ssl.ca.location",
        shown="system's own",
    )
    auto_register: bool = key(
        types.BOOLEAN,
        "Register the schema of the columns before the first record, if it is compatible."
        " `false`: it must exist.",
        default=True,
        name="auto.register.schemas",
        aliases=(
            Alias("value.converter.schemaAutoRegistrationEnabled", "AWS"),
            Alias("key.converter.schemaAutoRegistrationEnabled", "AWS"),
        ),
    )
    strategy: str = key(
        types.choice(STRATEGIES, {_STRATEGY_PACKAGE + name: name for name in STRATEGIES}),
        "The subject: `TopicNameStrategy` (`TOPIC-value`, `TOPIC-key`), `RecordNameStrategy` (the"
        " record's name), `TopicRecordNameStrategy` (`TOPIC-NAME`).",
        default=TOPIC_NAME,
        name="subject.name.strategy",
        aliases=(
            Alias("value.converter.value.subject.name.strategy", "Connect"),
            Alias("key.converter.key.subject.name.strategy", "Connect"),
        ),
    )
    record_name: str = _name(RECORD_NAME)
    registry_name: str = key(
        types.TEXT,
        "With `glue`: the registry.",
        default=DEFAULT_REGISTRY,
        name="registry.name",
    )
    region: str | None = key(
        types.TEXT, "With `glue`: the registry's region.", name="region", shown="SDK's own"
    )
    endpoint: str | None = key(
        types.URL, "With `glue`: its address.", name="endpoint", shown="SDK's own"
    )
    schema_name: str | None = key(
        types.TEXT,
        "With `glue`: the schema's name, in place of a strategy.",
        name="schemaName",
        shown="the subject",
    )
    compatibility: str = key(
        types.choice(COMPATIBILITIES),
        "With `glue`: the rule of a schema that is created; an existing one keeps its own.",
        default="BACKWARD",
        name="compatibility",
    )
    compression: str = key(
        types.choice({"NONE", "ZLIB"}),
        "With `glue`: `ZLIB` compresses each record.",
        default="NONE",
        name="compression",
    )

    def subject(self, topic: str, *, is_key: bool) -> str:
        """Return the subject of the schema of a topic's keys or values."""
        if self.schema_name is not None:
            return self.schema_name
        if self.strategy == TOPIC_NAME:
            return f"{topic}-{'key' if is_key else 'value'}"
        is_record = self.strategy == "RecordNameStrategy"
        return self.record_name if is_record else f"{topic}-{self.record_name}"


# What applies to one type of registry only, by field.
_CONFLUENTS = ("urls", "credentials_source", "user_info", "ca_location")
_GLUES = ("registry_name", "region", "endpoint", "schema_name", "compatibility", "compression")


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroOptions(RegistryOptions):
    """The keys of the converter `avro`."""

    use_latest: bool = key(
        types.BOOLEAN,
        "Write by the latest schema of the subject; columns that do not fit it are an error."
        " Needs `auto.register.schemas=false`.",
        default=False,
        name="use.latest.version",
    )

    scrub: bool = _scrub("Avro")


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchemaOptions(RegistryOptions):
    """The keys of the converter `json-schema`."""

    record_name: str = _name("")
    open_objects: bool = key(
        types.BOOLEAN,
        "The schema allows members that no column has, as Connect's does. `false`: a registry"
        " takes another nullable column as a compatible change.",
        default=True,
        name="object.additional.properties",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufOptions(RegistryOptions):
    """The keys of the converter `protobuf`."""

    record_name: str = _name("ConnectDefault1")
    scrub: bool = _scrub("Protocol Buffers")


def registries(converters: Mapping[str, object]) -> Iterator[tuple[str, RegistryOptions]]:
    """Yield the options with a schema registry, by the keys that name the converters."""
    for name, own in converters.items():
        if isinstance(own, RegistryOptions):
            yield name, own


def problems(check: ConverterCheck) -> Iterator[str]:
    """Yield what is wrong between the keys of a registry."""
    options, prefix, sound = check.options, check.prefix, check.sound
    if not sound("schema.registry.type"):
        return
    yield from _foreign(check)
    if options.registry_type == GLUE:
        if options.schema_name is not None and options.strategy != TOPIC_NAME:
            yield (
                f"{prefix}schemaName={options.schema_name}: {prefix}subject.name.strategy names"
                " the schema, too; remove one"
            )
        yield from _unnamed(check)
        return
    if not options.urls and sound("schema.registry.url"):
        yield (
            f"{prefix}schema.registry.url: missing; {prefix.rstrip('.')}={check.name} keeps its"
            " schemas in a registry: write http(s)://host:port"
        )
    source, user = options.credentials_source, options.user_info
    if (source is None) != (user is None) and sound(
        "basic.auth.credentials.source", "basic.auth.user.info"
    ):
        missing, value = (
            ("basic.auth.credentials.source", "USER_INFO")
            if source is None
            else ("basic.auth.user.info", "a reference to user:password")
        )
        yield f"{prefix}{missing}: missing; write {value}, or remove the other key"
    yield from _unnamed(check)
    read = [urlsplit(url) for url in options.urls]
    clear = [one for one in read if one.scheme == "http"]
    if user and source and not all(types.is_this_machine(one.hostname or "") for one in clear):
        yield (
            f"{prefix}basic.auth.user.info: {prefix}schema.registry.url is not https, and the"
            " password would go over the network in clear text; write https://"
        )
    plain = any(url.lower().startswith("http:") for url in options.urls)
    if options.ca_location is not None and plain and sound("schema.registry.ssl.ca.location"):
        yield (
            f"{prefix}schema.registry.ssl.ca.location: {prefix}schema.registry.url is not https;"
            " remove one or change the other"
        )


def _foreign(check: ConverterCheck) -> Iterator[str]:
    """Yield keys that another type of registry has."""
    options = check.options
    others = _CONFLUENTS if options.registry_type == GLUE else _GLUES
    names = {one.field: one.name for one in declared(type(options)) if isinstance(one, Key)}
    for one in fields(options):
        if one.name in others and getattr(options, one.name) != one.default:
            yield (
                f"{check.prefix}{names[one.name]}: applies only where"
                f" {check.prefix}schema.registry.type is"
                f" {CONFLUENT if options.registry_type == GLUE else GLUE}; remove it, or change"
                " the type"
            )


def _unnamed(check: ConverterCheck) -> Iterator[str]:
    options = check.options
    (default,) = (one.default for one in fields(options) if one.name == "record_name")
    if options.strategy != TOPIC_NAME and options.record_name == default:
        yield (
            f"{check.prefix}record.name: missing; {options.strategy} makes the subject of it:"
            " write the record's full name"
        )


def avro_problems(check: ConverterCheck) -> Iterator[str]:
    """Yield what is wrong between the keys of `avro`."""
    yield from problems(check)
    if check.options.use_latest and check.options.auto_register:
        yield (
            f"{check.prefix}use.latest.version=true: applies only where"
            f" {check.prefix}auto.register.schemas is false; write that, too"
        )
