"""Reads and checks connectors: the table of their keys, and the rules between several keys.

load(path) -> flat map -> parse(map) -> ConnectorConfig -> to_map -> flat map
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from extentflow.config import topics
from extentflow.config.connector import LOCAL_FILE, ConnectorConfig, key_converters, unfit
from extentflow.config.specs import CONVERTERS, FORMATS, FormatCheck, FormatSpec
from extentflow.config.table import Only, Rule, Table, broken, declared
from extentflow.errors import Misconfigured, quoted

_NEED_ENDPOINT = frozenset({"ontaps3", "storagegrids3"})
_FOREIGN = {
    "connector.class": "names a class of Kafka Connect, which extentflow does not use; remove it",
    "topics": "a key of Connect's sinks; a connector writes to one topic: write topic",
    "key.converter.schemas.enable": "JSON is written without a schema envelope; remove the key",
    "value.converter.schemas.enable": "JSON is written without a schema envelope; remove the key",
    "errors.deadletterqueue.topic.replication.factor": (
        "connectors create no topics; create the topic and remove the key"
    ),
}


def connector_table(config: Mapping[str, str] | None = None) -> Table:
    """Return the keys of connectors: their own, and those of formats.

    Formats of installed packages are included where `config` names them, so that a package that
    cannot be loaded is reported only by connectors that use it.
    """
    rows = list(declared(ConnectorConfig))
    section = "Formats"
    for name, spec in _formats_of(config or {}):
        only = Only(
            "input.format",
            partial(_is_or_none, name),
            f"input.format is {name} or left to the extension",
        )
        rows += declared(spec.options, part=f"{name}.", section=section, only=(only,))
        section = ""
    return Table(tuple(rows), _FOREIGN)


def _is_or_none(name: str, value: str | None) -> bool:
    return value in {None, name}


def _formats_of(config: Mapping[str, str]) -> Iterator[tuple[str, FormatSpec]]:
    chosen = config.get("input.format", config.get("decoder.type", "")).strip().lower()
    for name in FORMATS.names():
        used = chosen == name.lower() or any(key.startswith(f"{name}.") for key in config)
        if used or FORMATS.is_built_in(name):
            yield name, FORMATS.get(name)


def parse(config: Mapping[str, str]) -> ConnectorConfig:
    """Return the connector that a flat map describes, for the registered formats and stores.

    Raises:
        Misconfigured: every problem at once, one line each: key, value, remedy.
    """
    table = connector_table(config)
    # NetApp's second meaning of `directory`: a prefix, wherever the store is S3.
    local = config.get("endpoint.type", "").strip().lower() == LOCAL_FILE
    reading = table.read(config, rename={} if local else {"directory": "aws.s3.prefix"})
    formats = dict(_formats_of(config))
    options: dict[str, Any] = {
        name: table.make(spec.options, reading, part=f"{name}.") for name, spec in formats.items()
    }
    draft = table.make(
        ConnectorConfig,
        reading,
        format_options={
            name: own for name, own in options.items() if own != formats[name].options()
        },
    )
    found = [*reading.problems, *broken(RULES, draft, reading)]
    for name, spec in formats.items():
        check = FormatCheck(options[name], draft.message_key.columns, draft.format == name)
        found += broken(spec.rules, check, reading)
    if found:
        raise Misconfigured(found)
    return draft


def to_map(config: ConnectorConfig) -> dict[str, str]:
    """Return the flat map, in canonical names and without defaults; `parse` reads it back."""
    options = {f"{name}.": own for name, own in config.format_options.items()}
    return connector_table(options).write({"": config, **options})


def _place(config: ConnectorConfig) -> str | None:
    if config.bucket:
        return None
    if config.endpoint_type == LOCAL_FILE:
        return "directory: missing; write the absolute path of the directory to read"
    return "aws.s3.bucket.name: missing; write the name of the bucket to read"


def _endpoint(config: ConnectorConfig) -> str | None:
    if config.endpoint_type not in _NEED_ENDPOINT or config.endpoint:
        return None
    return (
        f"aws.s3.endpoint: missing; endpoint.type={config.endpoint_type} has no default, write"
        " https://host:port"
    )


def _authorities(config: ConnectorConfig) -> str | None:
    if config.ca_bundle is None or not (config.endpoint or "").lower().startswith("http:"):
        return None
    return (
        f"aws.s3.ca.bundle={config.ca_bundle!r}: aws.s3.endpoint is not https; remove one or change"
        " the other"
    )


def _credentials(config: ConnectorConfig) -> str | None:
    if (config.access_key_id is None) == (config.secret_access_key is None):
        return None
    missing = "aws.access.key.id" if config.access_key_id is None else "aws.secret.access.key"
    return f"{missing}: missing; an access key is its id and its secret: write both or neither"


def _topic(config: ConnectorConfig) -> str | None:
    filled = topics.fill(config.topic, config.fixed_placeholders())
    if topics.depends_on_object(filled):
        return None
    problem = topics.illegal(filled)
    return f"topic={quoted(config.topic)}: makes {quoted(filled)}: {problem}" if problem else None


def _fit(config: ConnectorConfig) -> str | None:
    if config.format is None:
        return None
    return unfit(
        config.format, value_converter=config.value_converter, message_key=config.message_key
    )


def _key_converter(config: ConnectorConfig) -> str | None:
    fitting = key_converters(config.message_key)
    if config.key_converter is None or config.key_converter in fitting:
        return None
    if config.message_key.columns and not CONVERTERS.is_built_in(config.key_converter):
        return None
    return (
        f"key.converter={config.key_converter!r}: cannot make this message.key; write one of"
        f" {', '.join(fitting)}, or remove it"
    )


def _dead_letters(config: ConnectorConfig) -> str | None:
    if config.errors_tolerance != "all" or config.dead_letter_topic is not None:
        return None
    return (
        "errors.deadletterqueue.topic.name: missing; errors.tolerance=all sends bad records"
        " there: write a topic"
    )


def _dead_letters_apart(config: ConnectorConfig) -> str | None:
    filled = topics.fill(config.topic, config.fixed_placeholders())
    if config.dead_letter_topic == filled:
        return (
            f"errors.deadletterqueue.topic.name={filled!r}: is the topic of the good records; write"
            " another"
        )
    return None


RULES: tuple[Rule[ConnectorConfig], ...] = (
    Rule(("endpoint.type", "aws.s3.bucket.name", "directory"), _place),
    Rule(("endpoint.type", "aws.s3.endpoint"), _endpoint),
    Rule(("aws.s3.endpoint", "aws.s3.ca.bundle"), _authorities),
    Rule(("aws.access.key.id", "aws.secret.access.key"), _credentials),
    Rule(("topic", "aws.s3.bucket.name", "directory", "aws.s3.prefix"), _topic),
    Rule(("input.format", "value.converter", "message.key"), _fit),
    Rule(("message.key", "key.converter"), _key_converter),
    Rule(("errors.tolerance", "errors.deadletterqueue.topic.name"), _dead_letters),
    Rule(("topic", "errors.deadletterqueue.topic.name"), _dead_letters_apart),
)
