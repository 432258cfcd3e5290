"""Rules between several keys of a connector; a rule is silent about a key that was reported.

Tests: unit/config/test_connector.py
"""

import re
from collections.abc import Iterator

from extentflow.config import types
from extentflow.config.column_lists import BY_NAME, LAST_MODIFIED
from extentflow.config.columnar import ARROW, ARROW_COMPRESSIONS
from extentflow.config.connector import ConnectorConfig, key_converters
from extentflow.config.connector_keys import LOCAL_FILE, MOVE, TAG
from extentflow.config.specs import CONVERTERS
from extentflow.config.store_access import access_problems
from extentflow.config.table import ParsedKeys
from extentflow.wording import either, quoted

# As AWS KMS takes them for its own keys and for those of several regions.
_KMS_KEY = re.compile(r"arn:.+|alias/.+|(mrk-)?[0-9a-f-]{32,36}")


def broken_rules(config: ConnectorConfig, reading: ParsedKeys) -> Iterator[str]:
    """Yield what is wrong between the keys of a connector, each with its remedy."""
    yield from _source_problems(config, reading)
    yield from _partition_problems(config, reading)
    yield from _object_problems(config, reading)
    yield from _record_problems(config, reading)
    yield from _columnar_problems(config, reading)


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
    yield from access_problems(config, reading)


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


def _record_problems(config: ConnectorConfig, reading: ParsedKeys) -> Iterator[str]:
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
