"""The rules that hold between several keys of one connector."""

from extentflow.config import Rule
from extentflow.connectors import topics
from extentflow.connectors.config import ConnectorConfig, key_converters, unfit
from extentflow.connectors.sources import LOCAL_FILE

_NEED_ENDPOINT = frozenset({"ontaps3", "storagegrids3"})


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
    return f"topic={config.topic!r}: makes {filled!r}: {problem}" if problem else None


def _characters(config: ConnectorConfig) -> str | None:
    used = [config.csv_separator, config.csv_quote]
    used += [config.csv_escape] if config.csv_escape else []
    if len(set(used)) == len(used):
        return None
    return (
        "csv.separator.char, csv.quote.char and csv.escape.char: two are the same character; choose"
        " different ones (a doubled quote needs no escape character)"
    )


def _key_columns(config: ConnectorConfig) -> str | None:
    known = {name for name, _ in config.csv_schema}
    strangers = [name for name in config.message_key.columns if name not in known]
    if config.format != "csv" or not known or not strangers:
        return None
    listed = ", ".join(map(repr, strangers))
    return f"message.key: csv.schema has no column {listed}; write names from csv.schema"


def _fit(config: ConnectorConfig) -> str | None:
    if config.format is None:
        return None
    return unfit(
        config.format, value_converter=config.value_converter, message_key=config.message_key
    )


def _unread_columns(config: ConnectorConfig) -> str | None:
    if config.jsonl_validate or not config.message_key.columns:
        return None
    return (
        "jsonl.validate=false: lines pass through unread, and message.key needs their members;"
        " remove one of the two"
    )


def _key_converter(config: ConnectorConfig) -> str | None:
    fitting = key_converters(config.message_key)
    if config.key_converter is None or config.key_converter in fitting:
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
    Rule(("csv.separator.char", "csv.quote.char", "csv.escape.char"), _characters),
    Rule(("input.format", "csv.schema", "message.key"), _key_columns),
    Rule(("input.format", "value.converter", "message.key"), _fit),
    Rule(("jsonl.validate", "message.key"), _unread_columns),
    Rule(("message.key", "key.converter"), _key_converter),
    Rule(("errors.tolerance", "errors.deadletterqueue.topic.name"), _dead_letters),
    Rule(("topic", "errors.deadletterqueue.topic.name"), _dead_letters_apart),
)
