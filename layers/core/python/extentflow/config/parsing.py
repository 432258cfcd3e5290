"""Reads and checks connectors: the table of their keys, and the rules between several keys.

load(path) -> flat map -> parse(map) -> ConnectorConfig -> to_map -> flat map
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from extentflow.config import types
from extentflow.config.column_lists import BY_NAME, LAST_MODIFIED
from extentflow.config.columnar import ARROW, ARROW_COMPRESSIONS
from extentflow.config.connector import ConnectorConfig, key_converters
from extentflow.config.connector_keys import CONVERTER, CONVERTER_PARTS, LOCAL_FILE, MOVE, TAG
from extentflow.config.specs import (
    CONVERTERS,
    FORMATS,
    STORES,
    ConverterCheck,
    ConverterSpec,
    FormatCheck,
    FormatSpec,
)
from extentflow.config.steps import Step, read_steps
from extentflow.config.table import Key, KeyCondition, ParsedKeys, Table, declared
from extentflow.config.worker import TABLE as SETTINGS
from extentflow.config.worker import variable
from extentflow.errors import Misconfigured
from extentflow.wording import either, quoted

# As AWS KMS takes them for its own keys and for those of several regions.
_KMS_KEY = re.compile(r"arn:.+|alias/.+|(mrk-)?[0-9a-f-]{32,36}")
_FOREIGN = {
    **{
        key.name: f"a setting of commands and workers: set {variable(key.name)}, and remove the key"
        for key in SETTINGS
    },
    "connector.class": "names a class of Kafka Connect, which extentflow does not use; remove it",
    "topics": "a key of Connect's sinks; a connector writes to one topic: write topic",
    **{
        f"{part}{name}": why
        for part in CONVERTER_PARTS.values()
        for name, why in (
            ("replace.null.with.default", "columns have no defaults, nulls stay; remove the key"),
            ("schemas.cache.size", "a schema is written once per extent; remove the key"),
        )
    },
    "errors.deadletterqueue.topic.replication.factor": (
        "connectors create no topics; create the topic and remove the key"
    ),
}


def connector_table(config: Mapping[str, str] | None = None) -> Table:
    """Return the keys of connectors: their own, and those of formats and converters.

    Those of installed packages are included where `config` names them, so that a package that
    cannot be loaded is reported only by connectors that use it.
    """
    rows = list(declared(ConnectorConfig))
    section = "Converters with keys of their own"
    for name, part in CONVERTER_PARTS.items():
        for row, converters in _converter_keys(part, _converter_of(config or {}, name)):
            says = f"{name} is {either(sorted(converters))}"
            only = KeyCondition(name, frozenset(converters).__contains__, says)
            rows.append(replace(row, section=section, only=(only, *row.only)))
            section = ""
    section = "Formats"
    for name, spec in _formats_of(config or {}):
        says = f"input.format is {name} or left to the extension"
        only = KeyCondition("input.format", frozenset({None, name}).__contains__, says)
        own = list(declared(spec.options, part=f"{name}.", section=section, only=(only,)))
        rows += own
        section = "" if own else section
    return Table(tuple(rows), _FOREIGN)


def _formats_of(config: Mapping[str, str]) -> Iterator[tuple[str, FormatSpec]]:
    chosen = config.get("input.format", config.get("decoder.type", "")).strip().lower()
    for name in FORMATS.names():
        used = chosen == name.lower() or any(key.startswith(f"{name}.") for key in config)
        if used or FORMATS.is_built_in(name):
            yield name, FORMATS.get(name)


def _converter_of(config: Mapping[str, str], name: str) -> str | None:
    """Return the converter that `value.converter` or `key.converter` names; None: none."""
    try:
        return CONVERTER.read(config.get(name, ""))
    except ValueError:
        return None


def _converter_keys(part: str, chosen: str | None) -> Iterator[tuple[Key, list[str]]]:
    """Yield the keys of converters and which converters have them; those of `chosen` win."""
    found: dict[str, tuple[Key, list[str]]] = {}
    named = [name for name in CONVERTERS.names() if CONVERTERS.is_built_in(name) or name == chosen]
    for name in sorted(named, key=lambda name: name != chosen):
        spec = _converter_spec(name)
        for row in declared(spec.options, part=part) if spec else ():
            if isinstance(row, Key):
                aliases = tuple(each for each in row.aliases if each.name.startswith(part))
                one = found.setdefault(row.name, (replace(row, aliases=aliases), []))
                one[1].append(name)
    yield from found.values()


def _converter_spec(name: str | None) -> ConverterSpec | None:
    if name is None or CONVERTERS.load_problems(name):
        return None
    found = CONVERTERS.get(name)
    return found if isinstance(found, ConverterSpec) else None


def _converter_options(
    config: Mapping[str, str], reading: ParsedKeys
) -> tuple[dict[str, Any], list[str]]:
    """Return the options of value and key converters, and what is wrong between their keys."""
    made: dict[str, Any] = {}
    problems: list[str] = []
    for name, part in CONVERTER_PARTS.items():
        chosen = _converter_of(config, name)
        spec = _converter_spec(chosen)
        if spec is None or chosen is None:
            continue
        keys = (row for row in declared(spec.options, part=part) if isinstance(row, Key))
        own = spec.options(**{row.field: reading.values[row.name] for row in keys})
        made[name] = own
        sound = partial(_sound_below, reading, part)
        problems += spec.problems(ConverterCheck(chosen, part, own, sound))
    return made, problems


def _sound_below(reading: ParsedKeys, part: str, *names: str) -> bool:
    return reading.sound(*(part + name for name in names))


def parse(config: Mapping[str, str]) -> ConnectorConfig:
    """Return the connector that a flat map describes, for the registered formats and stores.

    Raises Misconfigured with every problem at once, one line each: key, value, remedy.
    """
    table = connector_table(config)
    # NetApp's second meaning of `directory`: a prefix, wherever the store is S3.
    local = config.get("endpoint.type", "").strip().lower() == LOCAL_FILE
    reading = table.read(config, rename={} if local else {"directory": "aws.s3.prefix"})
    formats = dict(_formats_of(config))
    options: dict[str, Any] = {
        name: table.make(spec.options, reading, part=f"{name}.") for name, spec in formats.items()
    }
    changed = {name: own for name, own in options.items() if own != formats[name].options()}
    steps, broken = _steps(reading)
    converters, unfit = _converter_options(config, reading)
    draft = table.make(
        ConnectorConfig,
        reading,
        format_options=changed,
        converter_options=converters,
        steps=steps,
    )
    found = [*reading.problems, *broken, *unfit]
    found += [*_source_problems(draft, reading), *_partition_problems(draft, reading)]
    found += [*_object_problems(draft, reading), *_problems(draft, reading)]
    found += [*_columnar_problems(draft, reading), *_package_problems(draft)]
    for name, spec in formats.items():
        columns, chosen = draft.extracted_columns, draft.format == name
        columns += draft.select if spec.raw else ()
        found += spec.problems(FormatCheck(options[name], columns, chosen, reading.sound))
    if found:
        raise Misconfigured(found)
    return draft


def _steps(reading: ParsedKeys) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """Return the chain of transforms, and what is wrong with it."""
    if not reading.sound("transforms", "predicates"):
        return (), ()
    values = reading.values
    try:
        steps = read_steps(
            values["transforms"],
            values["transforms."],
            values["predicates"],
            values["predicates."],
        )
    except Misconfigured as exc:
        reading.failed.add("transforms")
        return (), exc.problems
    return steps, ()


def to_map(config: ConnectorConfig) -> dict[str, str]:
    """Return the flat map, in canonical names and without defaults; `parse` reads it back."""
    parts = {f"{name}.": own for name, own in config.format_options.items()}
    parts |= {CONVERTER_PARTS[name]: own for name, own in config.converter_options.items()}
    chosen = {"value.converter": config.value_converter, "key.converter": config.key_converter}
    named = dict.fromkeys(parts, "") | {name: text for name, text in chosen.items() if text}
    return connector_table(named).write({"": config, **parts})


def _package_problems(config: ConnectorConfig) -> Iterator[str]:
    """Yield why packages of the connector cannot be used; those of formats are loaded before."""
    named = (config.value_converter, config.key_converter)
    for converter in dict.fromkeys(name for name in named if name is not None):
        yield from CONVERTERS.load_problems(converter)
    yield from STORES.load_problems(config.endpoint_type)


def _source_problems(config: ConnectorConfig, reading: ParsedKeys) -> Iterator[str]:
    sound, local = reading.sound, config.endpoint_type == LOCAL_FILE
    if sound("endpoint.type", "aws.s3.bucket.name", "directory") and not config.bucket:
        if local:
            yield "directory: missing; write the absolute path of the directory to read"
        else:
            yield "aws.s3.bucket.name: missing; write the name of the bucket to read"
    only = config.object_key
    if only is not None and sound("object.key", "aws.s3.prefix"):
        if not only.startswith(config.prefix):
            yield (
                f"object.key={quoted(only)}: does not begin with"
                f" aws.s3.prefix={quoted(config.prefix)}; write the whole key, or remove the prefix"
            )
        if not only or only.endswith("/"):
            key = "leave object.key out" if local else "write it as aws.s3.prefix"
            yield f"object.key={quoted(only)}: names no object; for all below a folder {key}"
    remote = config.endpoint_type in {"ontaps3", "storagegrids3"}
    if sound("endpoint.type", "aws.s3.endpoint") and remote and not config.endpoint:
        yield (
            f"aws.s3.endpoint: missing; endpoint.type={config.endpoint_type} has no default, write"
            " https://host:port"
        )
    plain = (config.endpoint or "").lower().startswith("http:")
    if sound("aws.s3.endpoint", "aws.s3.ca.bundle") and config.ca_bundle is not None and plain:
        yield (
            f"aws.s3.ca.bundle={config.ca_bundle!r}: aws.s3.endpoint is not https; remove one or"
            " change the other"
        )
    no_id, no_secret = config.access_key_id is None, config.secret_access_key is None
    if sound("aws.access.key.id", "aws.secret.access.key") and no_id != no_secret:
        missing = "aws.access.key.id" if no_id else "aws.secret.access.key"
        yield f"{missing}: missing; an access key is its id and its secret: write both or neither"


def _partition_problems(config: ConnectorConfig, reading: ParsedKeys) -> Iterator[str]:
    """Yield what is wrong with `file.name.template`, and with partitions and keys by other keys."""
    sound, key = reading.sound, config.message_key
    parts = config.name_template.text if config.name_template else ""
    if sound("topic", "file.name.template") and "{topic}" in config.topic and "topic" not in parts:
        yield "topic: {topic} is the {{topic}} of file.name.template; write that key, too"
    by_name = config.message_partition == BY_NAME and "partition" not in parts
    if sound("message.partition", "file.name.template") and by_name:
        yield (
            "message.partition=name: is the {{partition}} of file.name.template; write that key,"
            " too"
        )
    if config.message_partition is not None and config.ordered:
        yield (
            "message.partition: ordering=object sends an object to one partition; remove one of"
            " the two"
        )
    by_value = config.value_topics and (config.message_partition is not None or config.ordered)
    if by_value and not (config.ordered and config.keyed):
        yield (
            "transforms: values name the topic, and ordering=object and message.partition choose a"
            " partition of one topic; remove one of them"
        )
    if key.source == "template" and sound("message.key", "transforms") and config.keys_by_transform:
        yield "message.key: a template, and a transform makes keys, too; remove one of the two"


def _object_problems(config: ConnectorConfig, reading: ParsedKeys) -> Iterator[str]:
    """Yield what `after.completion` lacks, and where moved objects would be delivered again.

    And the headers that files cannot have.
    """
    if config.endpoint_type == LOCAL_FILE and reading.sound("headers", "endpoint.type"):
        lacking = ("content_type", "metadata", "tag")
        for header in (one for one in config.headers if one.source in lacking):
            yield f"headers: {header.name}: files have no {header.source}; remove it"
    if not reading.sound("after.completion", "aws.s3.prefix", "aws.s3.bucket.name"):
        return
    key = f"after.completion.{config.after_completion}"
    if config.after_completion == TAG and reading.sound(key) and config.completion_tag is None:
        yield f"{key}: missing; write the tag, for example delivered=extentflow"
    prefix, sound = config.completion_prefix, reading.sound(f"{key}.prefix", f"{key}.bucket")
    if config.after_completion != MOVE or not sound:
        return
    if prefix is None:
        yield f"{key}.prefix: missing; write where objects are moved, for example delivered/"
    elif config.completion_bucket in (None, config.bucket) and (
        prefix.startswith(config.prefix) or config.prefix.startswith(prefix)
    ):
        yield (
            f"{key}.prefix={quoted(prefix)}: overlaps aws.s3.prefix={quoted(config.prefix)}, so"
            f" that moved objects could be delivered again; write another prefix, or {key}.bucket"
        )


def _columnar_problems(config: ConnectorConfig, reading: ParsedKeys) -> Iterator[str]:
    """Yield which keys columnar values exclude: what single rows have, and a record of many not."""
    if not config.columnar or not reading.sound("columnar.encoding"):
        return
    sound, encoding = reading.sound, f"columnar.encoding={config.columnar_encoding}"
    if config.value_converter is not None and sound("value.converter"):
        yield f"value.converter: {encoding} makes the values; remove one of the two"
    compression = config.columnar_compression
    if config.columnar_encoding == ARROW and compression not in (None, *ARROW_COMPRESSIONS):
        yield (
            f"columnar.encoding.compression={compression}: not with {encoding}; write"
            f" {either(ARROW_COMPRESSIONS)}"
        )
    of_rows = [one.name for one in config.headers if one.source in ("column", "location")]
    if of_rows and sound("headers"):
        yield (
            f"headers: {', '.join(of_rows)}: differs from row to row; a record of {encoding} has"
            " many rows; remove it"
        )
    if config.message_headers is not None or config.headers_by_transform:
        yield (
            f"message.headers, transforms: make headers of rows, and a record of {encoding} has"
            " many rows; remove them"
        )
    if config.message_timestamp not in (None, LAST_MODIFIED) and sound("message.timestamp"):
        yield (
            f"message.timestamp: differs from row to row, and a record of {encoding} has many rows;"
            " write last_modified, or remove it"
        )
    yield from _encryption_problems(config, reading)
    partitioner = config.producer.get("partitioner", "murmur2")
    if config.keyed and not partitioner.startswith("murmur2"):
        yield (
            f"producer.partitioner={partitioner}: with {encoding}, keys choose partitions as Java's"
            " client does; remove it"
        )


def _encryption_problems(config: ConnectorConfig, reading: ParsedKeys) -> Iterator[str]:
    columns, key = "columnar.encryption.columns", "columnar.encryption.key"
    keys = f"{key}.list"
    if not reading.sound(columns, key, keys):
        return
    given = {key: config.columnar_encryption_key, keys: config.columnar_encryption_key_list}
    if not config.columnar_encryption_columns:
        for name in (name for name, text in given.items() if text is not None):
            yield f"{name}: encrypts nothing without {columns}; write columns, or remove it"
    elif config.columnar_encryption_key is None:
        yield f"{key}: missing; {columns} needs the id of a master key"
    elif config.columnar_encryption_key_list is None:
        name = config.columnar_encryption_key
        if not _KMS_KEY.fullmatch(name):
            yield (
                f"{key}={quoted(name)}: is no ARN, id or alias/NAME of a key in AWS KMS; correct"
                f" it, or set {keys} to a secret with this master key"
            )


def _problems(config: ConnectorConfig, reading: ParsedKeys) -> Iterator[str]:
    sound, key, dead = reading.sound, config.message_key, config.dead_letter_topic
    topic = types.fill_topic(config.topic, config.fixed_placeholders()) if sound("topic") else ""
    topic = config.routed(topic)
    fixed = sound("topic", "aws.s3.bucket.name", "directory", "aws.s3.prefix")
    fixed = fixed and not types.depends_on_object(topic)
    for name in dict.fromkeys((topic, *config.written_topics(topic))) if fixed else ():
        if problem := types.illegal_topic(name):
            yield f"topic={quoted(config.topic)}: makes {quoted(name)}: {problem}"
    chosen = config.format if sound("input.format", "value.converter", "message.key") else None
    if chosen and (problem := config.unfit(chosen)):
        yield problem
    fitting, named = key_converters(key), config.key_converter
    # A package's converter states itself what columns it takes; transforms may change them. The
    # object's key and a template are texts whatever the transforms are, unless one makes keys.
    unchecked = (
        named is None
        or config.keys_by_transform
        or (key.source == "column" and bool(config.steps or not CONVERTERS.is_built_in(named)))
    )
    if sound("message.key", "key.converter", "transforms") and named and not config.keyed:
        yield (
            "key.converter: applies only where message.key is set or a transform makes keys;"
            " neither is the case: remove key.converter"
        )
        unchecked = True
    if sound("message.key", "key.converter") and named not in fitting and not unchecked:
        yield (
            f"key.converter={named!r}: cannot make this message.key; write {either(fitting)}, or"
            " remove it"
        )
    tolerant = config.errors_tolerance == "all"
    if sound("errors.tolerance", "errors.deadletterqueue.topic.name") and tolerant and dead is None:
        yield (
            "errors.deadletterqueue.topic.name: missing; errors.tolerance=all sends bad records"
            " there: write a topic"
        )
    of_records = config.written_topics(topic)
    if sound("topic", "errors.deadletterqueue.topic.name") and dead in of_records:
        yield (
            f"errors.deadletterqueue.topic.name={dead!r}: is a topic of the good records; write"
            " another"
        )
