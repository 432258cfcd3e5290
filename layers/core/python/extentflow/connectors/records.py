"""The connector keys for records and delivery."""

from collections.abc import Collection

from extentflow.config import Alias, Group, Key, Only
from extentflow.config.types import (
    BOOLEAN,
    CHARACTER,
    EXACT,
    SIZE,
    Kind,
    choice,
    or_word,
    whole,
)
from extentflow.connectors import topics
from extentflow.connectors.columns import MESSAGE_KEY, SCHEMA, MessageKey
from extentflow.connectors.config import AUTO, ENGINES

_CONNECT_CONVERTERS = {
    "org.apache.kafka.connect.storage.StringConverter": "string",
    "org.apache.kafka.connect.converters.ByteArrayConverter": "bytes",
    "org.apache.kafka.connect.json.JsonConverter": "json",
}


def _only_format(name: str) -> Only:
    says = f"input.format is {name} or left to the extension"
    return Only("input.format", lambda value: value in {None, name}, says)


_KEYED = Only("message.key", lambda value: value.source != "none", "message.key is set")
_TOLERANT = Only("errors.tolerance", lambda value: value == "all", "errors.tolerance is all")


def _topic_name(text: str) -> str:
    problem = topics.illegal(text.strip())
    if problem:
        raise ValueError(problem)
    return text.strip()


def decoding() -> Group:
    """Return the keys of formats and extents."""
    csv, jsonl = _only_format("csv"), _only_format("jsonl")
    return Group(
        "Decoding",
        (
            Key(
                name="csv.separator.char",
                field="csv_separator",
                kind=CHARACTER,
                default=",",
                only=(csv,),
                doc=r"One ASCII character; `\t` is a tab.",
            ),
            Key(
                name="csv.quote.char",
                field="csv_quote",
                kind=CHARACTER,
                default='"',
                only=(csv,),
                doc="One ASCII character; doubled inside a quoted field it stands for itself.",
            ),
            Key(
                name="csv.escape.char",
                field="csv_escape",
                kind=or_word("none", CHARACTER),
                only=(csv,),
                doc="One ASCII character that takes the next one's meaning away, or `none`.",
            ),
            Key(
                name="csv.header",
                field="csv_header",
                kind=BOOLEAN,
                default=True,
                only=(csv,),
                doc="Whether the first record holds names; else `csv.schema`'s, or c0, c1, …",
            ),
            Key(
                name="csv.null",
                field="csv_null",
                kind=EXACT,
                default="",
                only=(csv,),
                doc="The unquoted field that means null; by default the empty one.",
            ),
            Key(
                name="csv.schema",
                field="csv_schema",
                kind=SCHEMA,
                default=(),
                shown="every value a string",
                only=(csv,),
                doc=(
                    "`name:type,…` in file order; names that hold `,` or `:` in double quotes."
                    " Types: string, bool, int8 to int64, uint8 to uint64, float32, float64, date,"
                    " decimal(precision,scale), timestamp(s, ms, us or ns[,zone])."
                ),
            ),
            Key(
                name="jsonl.validate",
                field="jsonl_validate",
                kind=BOOLEAN,
                default=True,
                only=(jsonl,),
                doc="true: an invalid line is a bad record. false: lines pass through unread.",
            ),
            Key(
                name="extent.bytes",
                field="extent_bytes",
                kind=or_word("auto", SIZE),
                shown="auto",
                aliases=(Alias("extent.stride", "NetApp"),),
                doc=(
                    "The size to aim at for an extent. `auto`: max(64 MiB, size / 10,000) for line"
                    " formats, row groups up to 32 MiB for Parquet, and at least one extent per"
                    " core where the object allows it. Line formats: at most 1,000,000 extents."
                ),
            ),
        ),
    )


def records(converters: Collection[str]) -> Group:
    """Return the keys of values and message keys."""
    converter = choice(converters, _CONNECT_CONVERTERS)
    return Group(
        "Records",
        (
            Key(
                name="value.converter",
                field="value_converter",
                kind=converter,
                shown="by format",
                doc=(
                    "`string`, `bytes` or `json`, or Connect's class names for them. text: string"
                    " (default), bytes. csv: json. jsonl and parquet: json (default), string,"
                    " bytes."
                ),
            ),
            Key(
                name="message.key",
                field="message_key",
                kind=MESSAGE_KEY,
                default=MessageKey(),
                shown="none",
                doc=(
                    "`none`, `object` (the object's key) or `column:name[,name]`. One column's null"
                    " is a null key; a JSON line without such a member is a bad record."
                ),
            ),
            Key(
                name="key.converter",
                field="key_converter",
                kind=converter,
                shown="by message.key",
                only=(_KEYED,),
                doc=(
                    "The object's key: string. One column: string (default), bytes, json. Several:"
                    " json, one object with these members."
                ),
            ),
        ),
    )


def delivery() -> Group:
    """Return the keys of guarantees, order and bad records."""
    requested = {"required": "exactly_once", "requested": "exactly_once"}
    return Group(
        "Delivery",
        (
            Key(
                name="delivery.guarantee",
                field="delivery_guarantee",
                kind=choice({"exactly_once", "at_least_once"}),
                default="exactly_once",
                aliases=(Alias("exactly.once.support", "Connect", requested),),
                doc=(
                    "`exactly_once` or `at_least_once`. Consumers need"
                    " `isolation.level=read_committed` for the former."
                ),
            ),
            Key(
                name="ordering",
                field="ordering",
                kind=choice({"partitioned", "object"}),
                default="partitioned",
                doc=(
                    "`partitioned`: file order within an extent, extents in parallel. `object`:"
                    " one object's records in file order, one extent after the other."
                ),
            ),
            Key(
                name="errors.tolerance",
                field="errors_tolerance",
                kind=choice({"none", "all"}),
                default="none",
                doc=(
                    "`none`: a bad record fails its extent. `all`: bad records go to the dead"
                    " letter queue."
                ),
            ),
            Key(
                name="errors.deadletterqueue.topic.name",
                field="dead_letter_topic",
                kind=Kind(_topic_name),
                shown="required with `all`",
                only=(_TOLERANT,),
                doc="The dead letter queue; another topic than `topic`.",
            ),
            Key(
                name="errors.deadletterqueue.context.headers.enable",
                field="dead_letter_headers",
                kind=BOOLEAN,
                default=True,
                only=(_TOLERANT,),
                doc="Whether dead letters carry object, version, extent, place and reason.",
            ),
            Key(
                name="engine",
                field="engine",
                kind=choice(ENGINES),
                default=AUTO,
                doc=(
                    "Who delivers objects that are announced. `lambda`: functions. `spark`: a run"
                    " of EMR Serverless for each. `auto`: Spark for those of more than"
                    " `spark.threshold.bytes`. Functions also get what no run can be had for."
                ),
            ),
            Key(
                name="tasks.max",
                field="max_tasks",
                kind=whole(1),
                shown="engine's",
                doc="The most extents in work at once for this connector in one run.",
            ),
        ),
    )
